"""Measures HTTP produce on three real brokers: the complete sidecar against bridges that do less.

    pilotfish       idempotence, retries, deadlines, validation, metrics
    bridge          uvicorn and confluent-kafka (librdkafka): idempotence and retries; stdlib json
    bare Python     uvicorn and a bare producer's thread: no idempotence, no retries, no checks. A ceiling
    REST proxy      any server with REST Proxy's v2 API, if a URL is given; its CPU is not known here

All: acks=all, linger.ms=0, batch.size=16384, no compression, keyless 100-byte text values, six partitions,
replication factor 3, min.insync.replicas 2. CPU is that of the server's process. After each turn the records
in the topic are counted. There must be as many as were acknowledged, plus at most the requests in flight when
wrk closed its connections.

A proxy has its own brokers, so give their addresses too. They need a topic `bench`:

    python -m benchmarks.produce_http --rest-proxy http://127.0.0.1:8082 --kafka 127.0.0.1:9092
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from functools import partial
from pathlib import Path
from statistics import median as median_of
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.brokers import TOPIC, three_brokers
from benchmarks.load import Load, free_port, load, process
from benchmarks.measure import ROUNDS, goal, in_turns, median, report, table
from benchmarks.sidecar import sidecar
from tests.support.kafka_admin import KafkaAdmin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.measure import Goal, Sample

#: (records per request, connections)
SHAPES: Final = ((1, 1), (1, 16), (1, 64), (100, 4), (1_000, 4))
SECONDS: Final = 2
VALUE: Final = "x" * 100
SETTINGS: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": "0",
    "batch.size": "16384",
    "compression.type": "none",
}

_OURS: Final = "pilotfish"
_BRIDGE: Final = "bridge"
_BARE: Final = "bare Python"
_PROXY: Final = "REST proxy"
_IDEMPOTENCE: Final = {_OURS: "yes", _BRIDGE: "yes", _BARE: "no", _PROXY: "its own"}


class Contestant(NamedTuple):
    """A server: the path for a topic's records, and their format."""

    url: str
    pid: int | None
    content_type: str = "application/json"
    extra: Mapping[str, str] = {"value_format": "text"}

    def script(self, folder: Path, records: int) -> Path:
        """Returns wrk's script."""
        envelope = {"records": [{"value": VALUE}] * records, **self.extra}
        body = json.dumps(envelope, separators=(",", ":"))
        path = folder / f"post-{len(self.extra)}-{records}.lua"
        path.write_text(
            f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "{self.content_type}"\n'
            f"wrk.body = [==[{body}]==]\n"
        )
        return path


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rest-proxy", metavar="URL", help="a REST proxy that takes part")
    arguments.add_argument("--kafka", metavar="SERVERS", help=f"brokers that run, with a topic {TOPIC}")
    arguments.add_argument("--quick", action="store_true", help="one round: no figures worth keeping")
    given = arguments.parse_args()
    if given.rest_proxy and not given.kafka:
        arguments.error("--rest-proxy needs --kafka: the proxy's brokers, for all to produce to the same")
    goals: list[Goal] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = given.kafka or stack.enter_context(three_brokers()).bootstrap_servers
        contestants = stack.enter_context(_contestants(servers, given.rest_proxy))
        admin = KafkaAdmin(servers)
        for records, connections in SHAPES:
            goals += _shape(admin, contestants, folder, records, connections, 1 if given.quick else ROUNDS)
    report(goals)


@contextlib.contextmanager
def _contestants(servers: str, rest_proxy: str | None) -> Iterator[Mapping[str, Contestant]]:
    bridge, bare = free_port(), free_port()
    path = f"/v1/topics/{TOPIC}/records"
    with (
        sidecar(servers, SETTINGS, [TOPIC]) as ours,
        process(["-m", "benchmarks.librdkafka_bridge", str(bridge), servers, "all"], bridge, "/") as theirs,
        process(["-m", "benchmarks.bare_python_bridge", str(bare), servers, TOPIC], bare, "/") as ceiling,
    ):
        ours.get(f"/v1/topics/{TOPIC}")
        found = {
            _OURS: Contestant(f"{ours.url}{path}", ours.pid),
            _BRIDGE: Contestant(f"http://127.0.0.1:{bridge}{path}", theirs.pid),
            _BARE: Contestant(f"http://127.0.0.1:{bare}{path}", ceiling.pid),
        }
        if rest_proxy is not None:
            form = "application/vnd.kafka.json.v2+json"
            found[_PROXY] = Contestant(f"{rest_proxy.rstrip('/')}/topics/{TOPIC}", None, form, {})
        yield found


def _shape(
    admin: KafkaAdmin,
    contestants: Mapping[str, Contestant],
    folder: Path,
    records: int,
    connections: int,
    rounds: int,
) -> Sequence[Goal]:
    """Runs all in turn, at one number of records and connections."""
    loads: dict[str, list[Load]] = {name: [] for name in contestants}

    def turn(name: str) -> Sample:
        contestant = contestants[name]
        script = contestant.script(folder, records)
        before = _stored(admin)
        loaded = load(contestant.url, contestant.pid, connections=connections, seconds=SECONDS, script=script)
        stored, acknowledged = _stored(admin) - before, loaded.sample.operations * records
        # Requests cut off at the end of this turn; those of the previous turn may have been stored in it.
        if not acknowledged <= stored <= acknowledged + 2 * connections * records:
            raise SystemExit(f"{name}: {acknowledged} records were acknowledged, and {stored} are stored")
        loads[name].append(loaded)
        return loaded.sample

    samples = in_turns({name: partial(turn, name) for name in contestants}, rounds)
    rate = {name: median(turns, lambda s: s.per_wall_s) for name, turns in samples.items()}
    cpu_us = {name: median(turns, lambda s: s.cpu_us_per_operation) for name, turns in samples.items()}
    p50_ms = {name: median_of(one.p50_ms for one in loads[name]) for name in samples}
    table(
        f"{records} record(s) a request, {connections} connection(s); "
        f"all: acks=all, linger.ms=0, batch.size=16384; idempotence as shown",
        (
            "server",
            "idem.",
            "requests/s",
            "records/s",
            "CPU us/request",
            "p50 ms",
            "rate, ratio",
            "CPU, ratio",
        ),
        [
            (
                name,
                _IDEMPOTENCE[name],
                rate[name],
                rate[name] * records,
                cpu_us[name],
                p50_ms[name],
                rate[_OURS] / rate[name],
                cpu_us[_OURS] / cpu_us[name],
            )
            for name in samples
        ],
    )
    return _goals(f"HTTP produce, {records} x {connections} connections", rate, cpu_us, p50_ms)


def _goals(
    shape: str, rate: Mapping[str, float], cpu_us: Mapping[str, float], p50_ms: Mapping[str, float]
) -> Sequence[Goal]:
    """Returns the goals of a shape."""
    alone = " 1 x 1 " in shape
    goals = [
        goal(
            f"{shape}, requests/s against the bridge" + (" (stretch)" if alone else ""),
            ours=rate[_OURS],
            peer=rate[_BRIDGE],
            at_least=5.0 if "1000 x" in shape else 1.0 if alone else 1.5,
        ),
        goal(
            f"{shape}, CPU per request against the bridge" + (" (stretch)" if alone else ""),
            ours=cpu_us[_OURS],
            peer=cpu_us[_BRIDGE],
            at_most=1.0,
        ),
    ]
    if alone:
        goals.append(
            goal(
                f"{shape}, p50 against the bare producer",
                ours=p50_ms[_OURS],
                peer=p50_ms[_BARE],
                at_most=1.2,
            )
        )
    if " 1 x 64 " in shape:
        goals.append(
            goal(
                f"{shape}, requests/s against the bare producer (stretch)",
                ours=rate[_OURS],
                peer=rate[_BARE],
                at_least=0.7,
            )
        )
    return goals


def _stored(admin: KafkaAdmin) -> int:
    return sum(admin.high_watermarks(TOPIC).values())


if __name__ == "__main__":
    main()
