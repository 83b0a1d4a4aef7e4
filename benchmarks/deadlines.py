"""Measures how late produces are answered after their deadline, from outside of the sidecar's process.

    python -m benchmarks.deadlines [--requests-per-s 600] [--kafka batch.size=1048576]

Callers send at a fixed rate, whether or not earlier requests have been answered. Each request has its own
`timeout_ms` and one to a hundred records. First the brokers are healthy, then all are paused, then one after
the other is killed and restarted. The lateness of an answer is the time since the request's head, less
`timeout_ms`; only answers after the deadline count. The callers run in their own process, which also measures
the delay of its own event loop: that delay is not the sidecar's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.brokers import TOPIC, three_brokers
from benchmarks.load import await_answer, free_port, process
from benchmarks.measure import goal, report, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.kraft import KraftCluster

REQUESTS_PER_S: Final = 200.0
PHASE_S: Final = 20.0
TIMEOUTS_MS: Final = (20, 3_000)
SIZES: Final = (1, 1, 1, 10, 100)
#: Longer than any deadline: a request without an answer by then is lost.
PATIENCE_S: Final = 30.0
_TICK_S: Final = 0.005


class Late(NamedTuple):
    """The results of one phase: milliseconds after the deadline, and the delay of the callers' own loop."""

    sent: int
    after_deadline: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    callers_longest_ms: float


def main(words: Sequence[str] = ()) -> None:
    options = argparse.ArgumentParser(prog="benchmarks.deadlines")
    options.add_argument("--requests-per-s", type=float, default=REQUESTS_PER_S)
    options.add_argument("--kafka", action="append", default=[], help="a setting of the sidecar's client")
    given = options.parse_args(words)
    rate: float = given.requests_per_s
    with three_brokers() as kafka:
        api, admin = free_port(), free_port()
        settings = [f"bootstrap.servers={kafka.bootstrap_servers}", *given.kafka]
        sidecar = ["-m", "service", "serve", "--api-port", str(api), "--admin-port", str(admin)]
        sidecar += [word for setting in settings for word in ("--kafka", setting)]
        with process(sidecar, admin, "/readyz") as server:
            await_answer(server, api, f"/v1/topics/{TOPIC}/leader?partition=0")
            phases = {
                "brokers healthy": _phase(api, rate, lambda: None),
                "all brokers paused": _paused(api, rate, kafka),
                "brokers killed and back": _phase(api, rate, lambda: _kill_each(kafka)),
            }
    table(
        "answers after their own deadline",
        ("phase", *Late._fields),
        [(name, *late) for name, late in phases.items()],
    )
    if words:  # not the configuration whose figures are kept
        return
    report(
        [
            goal(
                f"produces answered after their deadline, {name}, {percent} ms, against {limit_ms}",
                ours=figure,
                peer=float(limit_ms),
                at_most=1.0,
            )
            for name, late in phases.items()
            for percent, figure, limit_ms in (("p99", late.p99_ms, 50), ("longest", late.longest_ms, 100))
        ]
    )


def _phase(port: int, requests_per_s: float, trouble: Callable[[], None]) -> Late:
    """Returns the callers' report; calls `trouble` while they send."""
    callers = [sys.executable, "-m", "benchmarks.deadlines", "--callers", str(port), str(requests_per_s)]
    with subprocess.Popen(callers, stdout=subprocess.PIPE, text=True) as sending:
        assert sending.stdout is not None
        sending.stdout.readline()  # they have begun to send
        trouble()
        return Late(*json.loads(sending.stdout.read()))


def _paused(port: int, requests_per_s: float, kafka: KraftCluster) -> Late:
    def pause_all() -> None:
        for broker_id in kafka.broker_ids:
            kafka.pause(broker_id)

    try:
        return _phase(port, requests_per_s, pause_all)
    finally:
        for broker_id in kafka.broker_ids:
            kafka.resume(broker_id)
        kafka.heal()


def _kill_each(kafka: KraftCluster) -> None:
    for broker_id in kafka.broker_ids:
        kafka.kill(broker_id)
        time.sleep(PHASE_S / 10)
        kafka.restart(broker_id)


# -- the callers: a process of its own -----------------------------------------------------------------------


async def _callers(port: int, requests_per_s: float) -> None:
    draw = random.Random(1)
    stall_ms = [0.0]
    watching = asyncio.create_task(_watch_own_loop(stall_ms))
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    asked = []
    print("sending", flush=True)
    begun_s = time.monotonic()
    for number in range(int(requests_per_s * PHASE_S)):
        await asyncio.sleep(max(0.0, begun_s + number / requests_per_s - time.monotonic()))
        timeout_ms = draw.randint(*TIMEOUTS_MS)
        asked.append(asyncio.create_task(_ask(port, timeout_ms, draw.choice(SIZES), idle)))
    late_ms = sorted(late for late in await asyncio.gather(*asked) if late > 0)
    watching.cancel()
    for _, writer in idle:
        writer.close()
    at = [
        late_ms[min(len(late_ms) * percent // 100, len(late_ms) - 1)] for percent in (50, 99, 100) if late_ms
    ]
    print(json.dumps((len(asked), len(late_ms), *(at or (0.0, 0.0, 0.0)), stall_ms[0])))


async def _watch_own_loop(longest_ms: list[float]) -> None:
    while True:
        due_s = time.monotonic() + _TICK_S
        await asyncio.sleep(_TICK_S)
        longest_ms[0] = max(longest_ms[0], (time.monotonic() - due_s) * 1_000)


async def _ask(
    port: int, timeout_ms: int, count: int, idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
) -> float:
    """Sends one produce; returns milliseconds from its deadline to its answer, negative if it was in time."""
    reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"records": [{"value": number} for number in range(count)]}).encode()
    head = (
        f"POST /v1/topics/{TOPIC}/records?timeout_ms={timeout_ms} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    begun_s = time.perf_counter()
    writer.write(head.encode() + body)
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.readuntil(b"\r\n\r\n")
    late_ms = (time.perf_counter() - begun_s) * 1_000 - timeout_ms
    length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    if b"connection: close" in answer.lower():
        writer.close()
    else:
        idle.append((reader, writer))
    return late_ms


if __name__ == "__main__":
    if sys.argv[1:2] == ["--callers"]:
        asyncio.run(_callers(int(sys.argv[2]), float(sys.argv[3])))
    else:
        main(sys.argv[1:])
