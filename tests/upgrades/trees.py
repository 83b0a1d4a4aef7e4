"""One tree of the project writes files or records, and another one reads them.

`fixtures/` has what an older tree wrote; `rollback.py` has two checkouts do both directions. Each tree is run
as its users run it, by its command line in processes of its own, so nothing here imports its code. The
brokers are this tree's FakeCluster: what they store is Kafka's format, which has no version of ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from client_core.testing.cluster import FakeCluster
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TOPIC: Final = "orders"
REFUSED_TOPIC: Final = "audit"
EVENTS_TOPIC: Final = "pilotfish.events"
#: Every type of event has been written when these have.
_EVENT_TYPES: Final = frozenset(
    (
        *("connection", "heartbeat", "produce.window"),
        *("metadata.partition", "metadata.refresh", "metadata.topic"),
    )
)
_DELIVERED_FIRST: Final = 5
_OWN_TIME_MS: Final = 1_700_000_000_123


class Tree(NamedTuple):
    """A checkout. Its programs run on this Python and its packages."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.root)}

    def run(self, *words: str, cwd: Path, code: int = 0) -> str:
        """What `python` said with these words. AssertionError where it ended with another code."""
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=cwd,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=patient(1_800),
            check=False,
        )
        assert ran.returncode == code, f"{words} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}"
        return ran.stdout if code == 0 else ran.stdout + ran.stderr

    def sidecar(self, folder: Path, cluster: FakeCluster, *flags: str, token: str | None = None) -> Sidecar:
        folder.mkdir(parents=True, exist_ok=True)
        return Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            flags=flags,
            environment=self.environment,
            headers=None if token is None else {"Authorization": f"Bearer {token}"},
            kafka={"request.timeout.ms": "2000", "reconnect.backoff.max.ms": "200"},
        )


class SpoolState(NamedTuple):
    """What a spool folder holds: records that wait, in order, and dead letters."""

    waiting: list[dict[str, Any]]
    dead_letters: int


def _requests() -> list[dict[str, Any]]:
    """Bodies whose records wait in the spool: each kind of key, value, header and timestamp."""
    binary = b64encode(bytes(range(256))).decode()
    headers = [{"key": "trace", "value": text} for text in ("MQ==", "Mg==", None)]
    # Records without a key and a partition come last: the older tree let others of a request overtake them.
    return [
        {"key_format": "text", "records": [{"key": f"k{n}", "value": {"n": n}} for n in range(4)]},
        {"key_format": "text", "value_format": "text", "records": [{"key": "ключ", "value": "größer"}]},
        {"key_format": "text", "records": [{"key": "tombstone", "value": None}]},
        {"records": [{"value": 1, "timestamp": _OWN_TIME_MS, "partition": 0}]},
        {"value_format": "base64", "records": [{"value": binary, "headers": headers}]},
        {"value_format": "text", "records": [{"value": "x" * 2_000} for _ in range(3)]},
    ]


def _seen(cluster: FakeCluster, topic: str) -> list[dict[str, Any]]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else b64encode(value).decode()

    return [
        {
            "key": text(record.key),
            "value": text(record.value),
            "headers": [[name, text(value)] for name, value in record.headers],
            "timestamp": record.timestamp_ms,
        }
        for record in cluster.records(topic)
    ]


def write_spool(tree: Tree, folder: Path, scratch: Path) -> SpoolState:
    """Have a tree's sidecar deliver some records, make others dead letters, and leave the rest in its folder.

    What waits is found out by delivering a copy of the requests directly: the records must be the same.
    """
    flags = ("--spool-folder", str(folder), "--spool-topic-wait-ms", "1000")
    with FakeCluster(1) as cluster:
        cluster.create_topic(TOPIC)
        cluster.create_topic(REFUSED_TOPIC)
        cluster.forbid(REFUSED_TOPIC, describe=False)
        with tree.sidecar(scratch / "writer", cluster, *flags) as sidecar:
            for n in range(_DELIVERED_FIRST):
                _spool(sidecar, TOPIC, {"records": [{"value": n}]})
            wait_until(lambda: len(cluster.records(TOPIC)) == _DELIVERED_FIRST, what="delivered records")
            _spool(sidecar, REFUSED_TOPIC, {"records": [{"value": "refused"}, {"value": "too"}]})
            wait_until(partial(_has_dead_letters, folder), what="dead letters", last_seen=sidecar.log)
            cluster.kill(1, elect=False)
            for body in _requests():
                _spool(sidecar, TOPIC, body)
            assert sidecar.terminate() == 0, sidecar.log()
    return SpoolState(_direct(tree, scratch), 2)


def _has_dead_letters(folder: Path) -> bool:
    return any(file.stat().st_size for file in (folder / "aside").rglob("*") if file.is_file())


def _direct(tree: Tree, scratch: Path) -> list[dict[str, Any]]:
    with FakeCluster(1) as cluster:
        cluster.create_topic(TOPIC)
        with tree.sidecar(scratch / "direct", cluster) as sidecar:
            for body in _requests():
                answer = sidecar.api.post(f"/v1/topics/{TOPIC}/records", json=body)
                assert answer.status_code == 200, answer.text
        return _seen(cluster, TOPIC)


def _spool(sidecar: Sidecar, topic: str, body: object) -> None:
    answer = sidecar.api.post(f"/v1/topics/{topic}/records", params={"delivery": "spool"}, json=body)
    assert answer.status_code == 202, answer.text


def read_spool(tree: Tree, folder: Path, expected: SpoolState, scratch: Path) -> None:
    """Have a tree's sidecar deliver a spool folder. AssertionError where it gives anything else."""
    with FakeCluster(1) as cluster:
        cluster.create_topic(TOPIC)
        cluster.create_topic(REFUSED_TOPIC)
        with tree.sidecar(scratch / "reader", cluster, "--spool-folder", str(folder)) as sidecar:
            wait_until(
                lambda: len(cluster.records(TOPIC)) >= len(expected.waiting),
                what="the spooled records",
                last_seen=sidecar.log,
            )
            assert sidecar.terminate() == 0, sidecar.log()
        delivered = _seen(cluster, TOPIC)
        found, wanted = (
            [without_time(record) for record in records] for records in (delivered, expected.waiting)
        )
        assert found == wanted, f"found {found}, not {wanted}"
        assert _OWN_TIME_MS in {record["timestamp"] for record in delivered}
        assert cluster.records(REFUSED_TOPIC) == []
    shown = tree.run("-m", "service", "spool", "show", "--json", "--folder", str(folder), cwd=scratch)
    assert shown.count(f'"topic": "{REFUSED_TOPIC}"') == expected.dead_letters, shown


def without_time(record: dict[str, Any]) -> dict[str, Any]:
    """A record without the time at which it was accepted."""
    return {name: value for name, value in record.items() if name != "timestamp"}


def write_events(tree: Tree, scratch: Path) -> list[str]:
    """The lines of a tree's event topic, of every type."""
    flags = ("--events-topic", EVENTS_TOPIC)
    with FakeCluster(2) as cluster:
        cluster.create_topic(TOPIC, partitions=3, replication_factor=2)
        cluster.create_topic(EVENTS_TOPIC)
        with tree.sidecar(scratch / "events", cluster, *flags, "--service-name", "billing") as sidecar:
            sidecar.produce(TOPIC, [{"value": "a", "partition": p} for p in range(3)])
            moved = 2 if cluster.partition(TOPIC, 0).leader == 1 else 1
            cluster.move_leader(TOPIC, 0, moved)
            sidecar.produce(TOPIC, [{"value": "b", "partition": 0}])
            wait_until(
                lambda: _types(_lines(cluster)) >= _EVENT_TYPES,
                what="events of each type",
                last_seen=lambda: _types(_lines(cluster)),
            )
            assert sidecar.terminate() == 0
        return _lines(cluster)


def _lines(cluster: FakeCluster) -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records(EVENTS_TOPIC)]


def _types(lines: Sequence[str]) -> set[str]:
    return {json.loads(line)["type"] for line in lines}


def write_tables(
    tree: Tree, events: Sequence[str], folder: Path, store: str, jars: Path, scratch: Path, *options: str
) -> None:
    """Have a tree's pipeline make, or bring up to date, the tables of these events."""
    source = scratch / f"{store}-events"
    source.mkdir(parents=True, exist_ok=True)
    name = f"events-{len(list(source.iterdir()))}.jsonl"
    (source / name).write_text("".join(f"{line}\n" for line in events), encoding="utf-8")
    words = ("run", "--source", "files", "--input", str(source), "--out", str(folder), "--store", store)
    pipeline(tree, *words, "--jars", str(jars), "--master", "local[2]", *options, scratch=scratch)


def pipeline(tree: Tree, *words: str, scratch: Path, code: int = 0) -> str:
    """What `pilotfish-pipeline` said."""
    return tree.run("-c", "from pipeline.cli import main; main()", *words, cwd=scratch, code=code)


def write_tokens(tree: Tree, scratch: Path) -> tuple[str, str]:
    """A tokens file as a tree's command writes it, and the token."""
    ran = subprocess.run(
        [sys.executable, "-m", "service", "token", "billing", "--read", "orders*", "--produce", TOPIC],
        cwd=scratch,
        env={**os.environ, **tree.environment},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=True,
    )
    return ran.stdout, ran.stderr.split()[-1]


def read_tokens(tree: Tree, file: str, token: str, scratch: Path) -> None:
    """Have a tree's sidecar let the owner of a token produce, and nobody else."""
    path = scratch / "tokens.toml"
    path.write_text(file)
    path.chmod(0o600)
    with FakeCluster(1) as cluster:
        cluster.create_topic(TOPIC)
        with tree.sidecar(scratch / "tokens", cluster, "--tokens-file", str(path), token=token) as sidecar:
            url, body = f"/v1/topics/{TOPIC}/records", {"records": [{"value": 1}]}
            stranger = {"Authorization": "Bearer pf_another"}
            assert sidecar.api.post(url, json=body, headers=stranger).status_code == 401
            assert sidecar.api.post(url, json=body).status_code == 200
            assert sidecar.api.post("/v1/topics/other/records", json=body).status_code == 403


def settings_file(values: Mapping[str, Any]) -> str:
    """A file of settings, TOML: its numbers, booleans, texts and lists of texts are written as JSON's are."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def load_settings(tree: Tree, values: Mapping[str, Any], scratch: Path) -> None:
    """Have a tree read a file of these settings. AssertionError with what it said where it refuses them."""
    module = "service.base.settings_sources" if (tree.root / "service/base").is_dir() else "service.settings"
    (scratch / "settings.toml").write_text(settings_file(values))
    program = (
        f"from {module} import load_settings\n"
        f"load_settings({{}}, ('bootstrap.servers=localhost:9092',), {str(scratch / 'settings.toml')!r})"
    )
    tree.run("-c", program, cwd=scratch)


def settings_schema(tree: Tree, scratch: Path) -> dict[str, Any]:
    """The JSON schema of each of a tree's own settings, and of Kafka's by their names."""
    module = "service.base.settings" if (tree.root / "service/base").is_dir() else "service.settings"
    program = f"import json; from {module} import Settings; print(json.dumps(Settings.model_json_schema()))"
    properties: dict[str, Any] = json.loads(tree.run("-c", program, cwd=scratch))["properties"]
    return {name: shape for name, shape in properties.items() if name not in {"kafka", "internal"}}


def other_values(schema: dict[str, Any]) -> dict[str, Any]:
    """A value for each setting that is not its default, as far as the schema allows."""
    return {name: _other_value(name, shape) for name, shape in schema.items()}


def _other_value(name: str, shape: dict[str, Any]) -> Any:
    default = shape.get("default")
    kinds = [shape, *shape.get("anyOf", ())]
    for kind in kinds:
        if "enum" in kind:
            return next(value for value in kind["enum"] if value != default)
        if kind.get("type") == "boolean":
            return not default
        if kind.get("type") in {"integer", "number"}:
            most, least = kind.get("maximum"), kind.get("minimum", 0)
            larger = (default or least) + 1
            return larger if most is None or larger <= most else (default or least) - 1
        if kind.get("type") == "array":
            enum = kind.get("items", {}).get("enum")
            return enum[:1] if enum else ["one", "two"]
    return _TEXTS.get(name, "another")


#: Settings whose texts have a form.
_TEXTS: Final = {
    "api_socket": "/tmp/pilotfish/api.sock",
    "api_socket_mode": "0600",
    "api_host": "127.0.0.2",
    "admin_host": "127.0.0.2",
}


def scrape(tree: Tree, scratch: Path) -> str:
    """What a tree's sidecar exposes, with what has metrics of its own switched on."""
    flags = ("--spool-folder", str(scratch / "spool"), "--events-topic", EVENTS_TOPIC, "--topic-metrics")
    with FakeCluster(2) as cluster:
        cluster.create_topic(TOPIC)
        cluster.create_topic(EVENTS_TOPIC)
        with tree.sidecar(scratch / "scraped", cluster, *flags) as sidecar:
            sidecar.produce(TOPIC, [{"value": "a"}])
            cluster.move_leader(TOPIC, 0, cluster.partition(TOPIC, 0).leader or 1)
            return sidecar.admin.get("/metrics").text
