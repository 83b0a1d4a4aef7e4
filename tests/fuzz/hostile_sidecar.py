"""A whole sidecar in front of brokers that lie, over sockets, with callers in each of its dialects.

    survive(seed, seconds=10, folder)

While brokers lie, the sidecar lives (`/livez`), its memory stays in bounds, each request is answered by its
deadline, and each refusal has a body that says why. When they are honest again it works again. A lie names
only the cluster's own addresses: other servers on this machine are left alone.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import httpx

from client_core.testing import FakeCluster
from tests.support.fake_cluster.hostile import Hostility
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC: Final = "orders"
_BLOCK_MS: Final = 300
_DELIVERY_MS: Final = 900
#: How long a request may take beyond its deadline: this machine does other things too.
_SLACK_S: Final = patient(20.0)
_CALLERS: Final = 4
#: The memory of answers that are being received is bounded at 16 MiB, and that of read answers has limits of
#: its own. A sidecar at rest has some 70 MB.
MOST_MB: Final = 200
_HEALS_S: Final = 30

_KAFKA: Final[Mapping[str, str]] = {
    "max.block.ms": str(_BLOCK_MS),
    "delivery.timeout.ms": str(_DELIVERY_MS),
    "request.timeout.ms": "400",
    "reconnect.backoff.ms": "10",
    "reconnect.backoff.max.ms": "40",
    "retry.backoff.ms": "20",
    "metadata.max.age.ms": "200",
    "socket.connection.setup.timeout.ms": "300",
    "metadata.recovery.rebootstrap.trigger.ms": "500",
}
_FLAGS: Final = ("--unknown-topic-wait-ms", str(_BLOCK_MS), "--log-level", "error")
_LIMITS: Final = {"lookup_wait_ms": _BLOCK_MS, "unknown_topics_per_second": 100_000}

#: What the document of the API allows beside success. A 500 is an error of a broker's that nobody may retry:
#: it has its name in it.
_REFUSALS: Final = frozenset({400, 403, 404, 408, 413, 422, 429, 500, 503, 504})


@dataclass(slots=True)
class Endured:
    """What a run went through."""

    spoilt: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    slowest_s: float = 0.0
    most_mb: int = 0


def survive(seed: int, seconds: float, folder: Path) -> Endured:
    """One run. Raises AssertionError, with the seed, if anything is wrong."""
    random, endured = Random(f"sidecar {seed}"), Endured()
    with FakeCluster(3, seed=seed) as cluster:
        cluster.create_topic(TOPIC, partitions=3, replication_factor=3)
        addresses = [cluster.address(broker_id) for broker_id in cluster.broker_ids]
        with Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            kafka=_KAFKA,
            flags=_FLAGS,
            limits=_LIMITS,
        ) as sidecar:
            hostility = Hostility(seed, lasting=False, addresses=addresses)
            cluster.disturb(hostility)
            until_s = time.monotonic() + seconds
            with ThreadPoolExecutor(_CALLERS) as pool:
                seeds = [random.getrandbits(64) for _ in range(_CALLERS)]
                callers = [pool.submit(_call, sidecar, Random(one), until_s, seed) for one in seeds]
                while not all(caller.done() for caller in callers):
                    assert sidecar.admin.get("/livez").status_code == 200, f"seed {seed}: {sidecar.log()}"
                    endured.most_mb = max(endured.most_mb, memory_mb(sidecar))
                for caller in callers:
                    statuses, slowest_s = caller.result()
                    endured.statuses += statuses
                    endured.slowest_s = max(endured.slowest_s, slowest_s)
            endured.spoilt.update({api.name: n for api, n in hostility.spoilt_answers.items()})
            assert endured.most_mb < MOST_MB, f"seed {seed}: {endured.most_mb} MB"
            _heal(seed, cluster, sidecar)
            assert "Traceback" not in sidecar.log(), f"seed {seed}: {sidecar.log()}"
            assert sidecar.terminate() == 0, f"seed {seed}: {sidecar.log()}"
    return endured


def memory_mb(sidecar: Sidecar, which: str = "VmRSS:") -> int:
    """The process's memory by a line of its Linux status: VmRSS is the present one, VmHWM the peak."""
    status = Path(f"/proc/{sidecar.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(which))
    return int(line.split()[1]) // 1024


def _heal(seed: int, cluster: FakeCluster, sidecar: Sidecar) -> None:
    """Checks that the sidecar works again, with a new topic, since leader epochs are believed for good."""
    cluster.disturb(None)
    for broker_id in cluster.broker_ids:  # a lie about versions holds as long as its connection
        cluster.drop_connections(broker_id)
    cluster.create_topic("later", partitions=3, replication_factor=3)

    reported = ""

    def works() -> bool:
        nonlocal reported
        answer = sidecar.produce("later", [{"value": "x"}])
        reported = answer.text
        return answer.status_code == 200

    wait_until(
        works,
        what=f"seed {seed}: honest brokers",
        timeout_s=_HEALS_S,
        last_seen=lambda: f"{reported}\n{sidecar.api.get('/v1/status').text}\n{sidecar.log()}",
    )
    wait_until(lambda: sidecar.admin.get("/readyz").status_code == 200, what="readiness", timeout_s=_HEALS_S)


def _call(sidecar: Sidecar, random: Random, until_s: float, seed: int) -> tuple[Counter[int], float]:
    """Sends request after request; counts the answers, and keeps the slowest."""
    statuses: Counter[int] = Counter()
    slowest_s = 0.0
    while time.monotonic() < until_s:
        method, path, sent = random.choice(_REQUESTS)
        began_s = time.monotonic()
        answer = sidecar.api.request(method, path, **sent)
        took_s = time.monotonic() - began_s
        slowest_s = max(slowest_s, took_s)
        statuses[answer.status_code] += 1
        what = f"seed {seed}: {method} {path} after {took_s:.1f} s: {answer.status_code} {answer.text[:500]}"
        assert took_s < (2 * _BLOCK_MS + _DELIVERY_MS) / 1_000 + _SLACK_S, what
        assert answer.is_success or answer.status_code in _REFUSALS, what
        _check_body(answer, what)
    return statuses, slowest_s


def _check_body(answer: httpx.Response, what: str) -> None:
    """What is no success says why, in JSON; so does each line of a stream."""
    if answer.status_code == 204:
        return
    for text in answer.text.splitlines() if "ndjson" in answer.headers["content-type"] else [answer.text]:
        assert httpx.Response(200, text=text).json() is not None, what
    if answer.is_success:
        return
    said = answer.json()
    names = ("detail", "message", "error_code", "errorCode")
    assert isinstance(said, dict), what
    assert any(name in said for name in names), what


def _json(path: str, body: Any, content_type: str = "application/json") -> tuple[str, str, dict[str, Any]]:
    return "POST", path, {"json": body, "headers": {"Content-Type": content_type}}


_EVENT: Final = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": {"n": 1}}
_REQUESTS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    _json(f"/v1/topics/{TOPIC}/records", {"records": [{"value": n} for n in range(5)]}),
    _json(f"/v1/topics/{TOPIC}/records", {"records": [{"key": "k", "value": 1, "partition": 2}]}),
    _json(f"/topics/{TOPIC}", {"records": [{"value": 1}]}, "application/vnd.kafka.json.v2+json"),
    _json(f"/cloudevents/{TOPIC}", _EVENT, "application/cloudevents+json"),
    _json(f"/v1.0/publish/pubsub/{TOPIC}", {"a": 1}),
    _json("/v1/leaders", {"lookups": [{"topic": TOPIC, "partition": 0}, {"topic": "none", "key": "k"}]}),
    (
        "POST",
        f"/v1/topics/{TOPIC}/records",
        {"content": b'{"value":1}\n{"value":2}\n', "headers": {"Content-Type": "application/x-ndjson"}},
    ),
    (
        "POST",
        f"/v1/topics/{TOPIC}/records",
        {"content": b"x" * 2_000, "headers": {"Content-Type": "application/octet-stream"}},
    ),
    ("GET", f"/v1/topics/{TOPIC}/leader?key=a", {}),
    ("GET", f"/v1/topics/{TOPIC}?max_age_ms=0", {}),
    ("GET", "/v1/topics", {}),
    ("GET", "/v1/topics/nowhere", {}),
    ("GET", "/v1/cluster", {}),
    ("GET", f"/topics/{TOPIC}", {}),
    ("GET", "/v3/clusters", {}),
    ("GET", "/v1/status", {}),
)
