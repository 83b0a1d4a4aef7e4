"""Measures a sidecar's cost: start to ready, memory by known partitions, idle CPU, memory after a load.

Startup is the time from the start of the process to the first 200 of /readyz, with three real brokers up. A
FastAPI app on uvicorn without Kafka is started for comparison. Memory and idle CPU are measured on idle
sidecars whose brokers have 1,000 topics with 100 partitions each. Each sidecar knows the stated number of
them and has built no answers; all are idle at the same time. The I/O thread's CPU is the kernel's counter for
that thread. The load is a million look-ups over 1,000 partitions' leaders, whose answers were built before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks import named_threads
from benchmarks.brokers import three_brokers
from benchmarks.load import free_port, load, process
from benchmarks.measure import ROUNDS, goal, process_cpu_s, report, rss_bytes, table
from benchmarks.sidecar import serve_command, sidecar
from benchmarks.wide_brokers import topic_name, wide_brokers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Goal
    from benchmarks.sidecar import Sidecar

TOPICS: Final = 1_000
PARTITIONS: Final = 100
#: The number of topics that a sidecar knows.
SIZES: Final = (0, 10, 100, TOPICS)
#: Longer than the work after the start, and a run of the collector, which is every five seconds.
SETTLE_S: Final = 6.0
IDLE_S: Final = 10.0
REQUESTS: Final = 1_000_000
_PIECE_S: Final = 5
MB: Final = 1_000_000

#: A script with which wrk requests one path after the other.
_LUA: Final = """
local paths, requests, last = {%s}, {}, 0
function init()
  for i, path in ipairs(paths) do requests[i] = wrk.format("GET", path) end
end
function request()
  last = last %% #requests + 1
  return requests[last]
end
"""


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true", help="one start, short waits: no figures to keep")
    quick = arguments.parse_args().quick
    goals = [
        *_starts(1 if quick else ROUNDS),
        *_at_rest(IDLE_S / 5 if quick else IDLE_S, REQUESTS // 20 if quick else REQUESTS),
    ]
    report(goals)


def _starts(rounds: int) -> Sequence[Goal]:
    ready, plain = [], []
    with three_brokers(replication_factor=1) as kafka:
        for _ in range(rounds):
            api, admin, fastapi = free_port(), free_port(), free_port()
            ready.append(_started_s(serve_command(api, admin, kafka.bootstrap_servers), admin, "/readyz"))
            plain.append(_started_s(["-m", "benchmarks.plain_fastapi", str(fastapi)], fastapi, "/"))
    start_s, fastapi_s = statistics.median(ready), statistics.median(plain)
    table(
        "start, brokers up",
        ("what", "seconds"),
        [("start to ready", start_s), ("a FastAPI app without Kafka", fastapi_s)],
    )
    return [
        goal("start to ready against a FastAPI app without Kafka", ours=start_s, peer=fastapi_s, at_most=1.5),
        goal("start to ready against one second", ours=start_s, peer=1.0, at_most=1.0),
    ]


def _started_s(command: Sequence[str], port: int, path: str) -> float:
    """Returns the seconds from the start of a program to its first 200."""
    started_s = time.perf_counter()
    with process(command, port, path):
        return time.perf_counter() - started_s


class _Idle(NamedTuple):
    """CPU of an idle sidecar, as fractions of one core."""

    io_thread: float
    process: float


def _at_rest(idle_s: float, requests: int) -> Sequence[Goal]:
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(wide_brokers(TOPICS, PARTITIONS))
        threads_file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "threads.json"
        names = [topic_name(n) for n in range(TOPICS)]
        running = {size: stack.enter_context(sidecar(servers, {}, names[:size])) for size in SIZES}
        reported = {named_threads.FILE_VARIABLE: str(threads_file)}
        watched = stack.enter_context(
            sidecar(servers, {}, names[:10], module="benchmarks.named_threads", **reported)
        )
        for size, ours in running.items():
            ours.await_partitions(size * PARTITIONS)
        time.sleep(SETTLE_S)
        idle = _idle(watched.pid, json.loads(threads_file.read_text())[named_threads.IO_THREAD], idle_s)
        rss_mb = {size: rss_bytes(ours.pid) / MB for size, ours in running.items()}
        before_mb, after_mb, answered = _loaded(running[10], names[:10], requests)
    table(
        "at rest",
        ("what", "figure"),
        [
            *((f"RSS with {size * PARTITIONS:,} partitions, MB", mb) for size, mb in rss_mb.items()),
            (f"idle CPU of the I/O thread, % of a core, {idle_s:g} s", idle.io_thread * 100),
            (f"idle CPU of the process, % of a core, {idle_s:g} s", idle.process * 100),
            ("RSS with 1,000 answers built, MB", before_mb),
            (f"RSS after {answered:,} look-ups, MB", after_mb),
        ],
    )
    return [
        goal(
            "idle CPU of the I/O thread, %, against 0.05", ours=idle.io_thread * 100, peer=0.05, at_most=1.0
        ),
        goal("RSS with 1k partitions against 70 MB", ours=rss_mb[10], peer=70.0, at_most=1.0),
        goal("RSS with 10k partitions against 70 MB", ours=rss_mb[100], peer=70.0, at_most=1.0),
        goal(
            "RSS with 100k partitions above that with 1k, MB, against 10",
            ours=rss_mb[TOPICS] - rss_mb[10],
            peer=10.0,
            at_most=1.0,
        ),
        goal("RSS after a million look-ups against before", ours=after_mb, peer=before_mb, at_most=1.05),
    ]


def _idle(pid: int, thread_id: int, seconds: float) -> _Idle:
    """Returns the CPU used within `seconds`."""
    thread_s, process_s = _thread_cpu_s(pid, thread_id), process_cpu_s(pid)
    time.sleep(seconds)
    return _Idle(
        (_thread_cpu_s(pid, thread_id) - thread_s) / seconds, (process_cpu_s(pid) - process_s) / seconds
    )


def _thread_cpu_s(pid: int, thread_id: int) -> float:
    """Returns a thread's CPU seconds. Not from `stat`, whose 10 ms ticks equal its share of 20 seconds."""
    return int(Path(f"/proc/{pid}/task/{thread_id}/schedstat").read_text().split()[0]) / 1e9


def _loaded(ours: Sidecar, topics: Sequence[str], requests: int) -> tuple[float, float, int]:
    """Returns the memory in MB before and after the look-ups, and their number."""
    paths = [f"/v1/topics/{name}/leader?partition={n}" for name in topics for n in range(PARTITIONS)]
    for path in paths:
        ours.get(path)
    before_mb = rss_bytes(ours.pid) / MB
    answered = 0
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "paths.lua"
        script.write_text(_LUA % ",".join(f'"{path}"' for path in paths))
        while answered < requests:
            answered += load(ours.url, ours.pid, seconds=_PIECE_S, script=script).sample.operations
    return before_mb, rss_bytes(ours.pid) / MB, answered


if __name__ == "__main__":
    main()
