"""HTTP produce on three real brokers: the sidecar, everything on, against a uvicorn + librdkafka bridge.

Both: acks=all, idempotence on, linger.ms=0, 100-byte text values, replication factor 3. CPU is that of the
server.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.brokers import TOPIC, three_brokers
from benchmarks.load import free_port, process, wrk
from benchmarks.measure import goal, in_turns, median, report, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Goal, Sample

#: (records per request, connections)
SHAPES: Final = ((1, 1), (1, 16), (1, 64), (100, 4), (1_000, 4))
VALUE: Final = "x" * 100


def script(folder: Path, records: int) -> Path:
    """What wrk sends."""
    body = json.dumps(
        {"records": [{"value": VALUE}] * records, "value_format": "text"}, separators=(",", ":")
    )
    path = folder / f"post-{records}.lua"
    path.write_text(
        f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = [==[{body}]==]\n'
    )
    return path


def outcome(records: int, connections: int, samples: dict[str, list[Sample]]) -> Sequence[Goal]:
    rate = {name: median(turns, lambda s: s.per_wall_s) for name, turns in samples.items()}
    cpu = {name: median(turns, lambda s: s.cpu_us_per_operation) for name, turns in samples.items()}
    table(
        f"{records} record(s) a request, {connections} connection(s)",
        ("server", "requests/s", "records/s", "CPU us/request"),
        [(name, rate[name], rate[name] * records, cpu[name]) for name in samples],
    )
    shape = f"HTTP produce, {records} x {connections} connections"
    bound = 5.0 if records == 1_000 else 1.5
    return [
        goal(
            f"{shape}, requests/s against the bridge",
            ours=rate["pilotfish"],
            peer=rate["bridge"],
            at_least=bound,
        ),
        goal(
            f"{shape}, CPU per request against the bridge",
            ours=cpu["pilotfish"],
            peer=cpu["bridge"],
            at_most=1.0,
        ),
    ]


def main() -> None:
    goals: list[Goal] = []
    api, admin, bridge = free_port(), free_port(), free_port()
    path = f"/v1/topics/{TOPIC}/records"
    with tempfile.TemporaryDirectory() as folder, three_brokers() as kafka:
        servers = kafka.bootstrap_servers
        sidecar = [
            *("-m", "service", "serve", "--api-port", str(api), "--admin-port", str(admin)),
            *("--kafka", f"bootstrap.servers={servers}"),
        ]
        with (
            process(sidecar, api, f"/v1/topics/{TOPIC}") as ours,
            process(["-m", "benchmarks.librdkafka_bridge", str(bridge), servers, "all"], bridge, "/") as peer,
        ):
            for records, connections in SHAPES:
                lua = script(Path(folder), records)

                def turn(port: int, pid: int, lua: Path = lua, connections: int = connections) -> Sample:
                    return wrk(port, path, pid, connections=connections, script=lua)

                samples = in_turns(
                    {"pilotfish": lambda: turn(api, ours.pid), "bridge": lambda: turn(bridge, peer.pid)}
                )
                goals += outcome(records, connections, samples)
    report(goals)


if __name__ == "__main__":
    main()
