"""What it costs to have a sidecar: start to ready, memory with nothing and with 10,000 partitions, idle CPU.

Readiness counts from the start of the process to the first 200 of /readyz, brokers up. The peer is a FastAPI
app on uvicorn that knows no Kafka.
"""

from __future__ import annotations

import statistics
import time
from typing import Final

from benchmarks.brokers import three_brokers
from benchmarks.load import await_answer, free_port, process
from benchmarks.measure import ROUNDS, goal, process_cpu_s, report, rss_bytes, table

TOPICS: Final = 100
PARTITIONS: Final = 100
IDLE_S: Final = 10.0
MB: Final = 1_000_000


def main() -> None:
    with three_brokers(replication_factor=1) as kafka:
        names = [f"wide-{n}" for n in range(TOPICS)]
        for name in names:
            kafka.admin.create_topic(name, partitions=PARTITIONS, replication_factor=1)
        bootstrap = ("--kafka", f"bootstrap.servers={kafka.bootstrap_servers}")
        ready, plain = [], []
        for _ in range(ROUNDS):
            api, admin, fastapi = free_port(), free_port(), free_port()
            started = time.perf_counter()
            sidecar = [
                "-m",
                "service",
                "serve",
                "--api-port",
                str(api),
                "--admin-port",
                str(admin),
                *bootstrap,
            ]
            with process(sidecar, admin, "/readyz"):
                ready.append(time.perf_counter() - started)
            started = time.perf_counter()
            with process(["-m", "benchmarks.plain_fastapi", str(fastapi)], fastapi, "/"):
                plain.append(time.perf_counter() - started)

        api, admin = free_port(), free_port()
        sidecar = ["-m", "service", "serve", "--api-port", str(api), "--admin-port", str(admin), *bootstrap]
        with process(sidecar, admin, "/readyz") as server:
            empty = rss_bytes(server.pid)
            for name in names:
                await_answer(server, api, f"/v1/topics/{name}/leader?partition=0")
            full = rss_bytes(server.pid)
            cpu = process_cpu_s(server.pid)
            time.sleep(IDLE_S)
            idle = (process_cpu_s(server.pid) - cpu) / IDLE_S
    start_s, fastapi_s = statistics.median(ready), statistics.median(plain)
    table(
        "footprint",
        ("what", "figure"),
        [
            ("start to ready, s", start_s),
            ("start of a FastAPI app without Kafka, s", fastapi_s),
            ("RSS with no topic, MB", empty / MB),
            (f"RSS with {TOPICS * PARTITIONS:,} partitions, MB", full / MB),
            ("idle CPU, %", idle * 100),
        ],
    )
    report(
        [
            goal(
                "start to ready against a FastAPI app without Kafka",
                ours=start_s,
                peer=fastapi_s,
                at_most=1.5,
            ),
            goal("start to ready against one second", ours=start_s, peer=1.0, at_most=1.0),
            goal("RSS with 10k partitions against 70 MB", ours=full / MB, peer=70.0, at_most=1.0),
        ]
    )


if __name__ == "__main__":
    main()
