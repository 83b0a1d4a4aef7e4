"""HTTP look-ups per second against bare uvicorn with a fixed body, the most that this server can do.

The sidecar runs as a user runs it: metrics, freshness headers and the I/O thread on, an embedded cluster.
"""

from __future__ import annotations

from benchmarks.load import free_port, process, wrk
from benchmarks.measure import goal, in_turns, median, report, table


def main() -> None:
    api, admin, bare = free_port(), free_port(), free_port()
    sidecar = ["-m", "service", "serve", "--embedded", "--api-port", str(api), "--admin-port", str(admin)]
    path = "/v1/topics/demo/leader?partition=0"
    with (
        process(sidecar, api, path) as ours,
        process(["-m", "benchmarks.bare_uvicorn", str(bare)], bare, "/") as ceiling,
    ):
        samples = in_turns(
            {
                "bare uvicorn": lambda: wrk(bare, "/", ceiling.pid),
                "GET leader": lambda: wrk(api, path, ours.pid),
                "GET topic": lambda: wrk(api, "/v1/topics/demo", ours.pid),
            }
        )
    table(
        "look-ups, 16 connections",
        ("what", "requests/s", "CPU us/request"),
        [
            (name, median(turns, lambda s: s.per_wall_s), median(turns, lambda s: s.cpu_us_per_operation))
            for name, turns in samples.items()
        ],
    )
    rate = {name: median(turns, lambda s: s.per_wall_s) for name, turns in samples.items()}
    cpu = {name: median(turns, lambda s: s.cpu_us_per_operation) for name, turns in samples.items()}
    report(
        [
            goal(
                "look-ups/s, leader, against bare uvicorn",
                ours=rate["GET leader"],
                peer=rate["bare uvicorn"],
                at_least=0.9,
            ),
            goal(
                "look-ups/s, topic, against bare uvicorn",
                ours=rate["GET topic"],
                peer=rate["bare uvicorn"],
                at_least=0.9,
            ),
            goal(
                "look-up CPU, leader, against bare uvicorn",
                ours=cpu["GET leader"],
                peer=cpu["bare uvicorn"],
                at_most=1.15,
            ),
        ]
    )


if __name__ == "__main__":
    main()
