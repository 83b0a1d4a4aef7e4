"""Measures how thousands of requests that wait for a missing topic affect other requests.

Half of the waiting requests are produces, half look-ups. Each has its own connection; their deadlines are
spread over ten seconds. Measured: the time of look-ups of a known topic before and meanwhile (99th
percentile), the memory of the waiting requests, and how long after its deadline each is answered. The waiting
requests come from their own process, so only the sidecar and the looking-up process share the two cores.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
import sys
import time
from typing import Final

from benchmarks.brokers import TOPIC, three_brokers
from benchmarks.load import await_answer, free_port, process
from benchmarks.measure import goal, process_cpu_s, report, rss_bytes, table

WAITING: Final = 5_000
FIRST_MS: Final = 10_000
SPREAD_MS: Final = 10_000
#: Connections are opened at a limited rate: accepting them is not measured.
ARRIVE_PER_S: Final = 1_000
ARRIVE_AT_ONCE: Final = 20
LOOK_UPS: Final = 10_000
#: Between look-ups there is a pause for the other requests: without it the loop would measure itself.
PAUSE_S: Final = 0.0005

_BODY: Final = '{"records":[{"value":1}]}'
MB: Final = 1_000_000


def main() -> None:
    _raise_file_limit()
    with three_brokers() as kafka:
        api, admin = free_port(), free_port()
        bootstrap = ("--kafka", f"bootstrap.servers={kafka.bootstrap_servers}")
        sidecar = ["-m", "service", "serve", "--api-port", str(api), "--admin-port", str(admin), *bootstrap]
        with process(sidecar, admin, "/readyz") as server:
            await_answer(server, api, f"/v1/topics/{TOPIC}/leader?partition=0")
            _look_ups_ms(api, LOOK_UPS // 4)
            before_ms, before_bytes = _look_ups_ms(api, LOOK_UPS), rss_bytes(server.pid)
            crowd = [sys.executable, "-m", "benchmarks.waiting", "--crowd", str(api)]
            with subprocess.Popen(crowd, stdout=subprocess.PIPE, text=True) as waiting:
                assert waiting.stdout is not None
                waiting.stdout.readline()  # all of them wait
                meanwhile_bytes = rss_bytes(server.pid)
                cpu_s, began = process_cpu_s(server.pid), time.perf_counter()
                meanwhile_ms = []
                while waiting.poll() is None:
                    meanwhile_ms += _look_ups_ms(api, 200)
                cores = (process_cpu_s(server.pid) - cpu_s) / (time.perf_counter() - began)
                late_ms = json.loads(waiting.stdout.read())
    before, meanwhile = _percentile(before_ms, 99), _percentile(meanwhile_ms, 99)
    grown_mb = (meanwhile_bytes - before_bytes) / MB
    table(
        f"{WAITING:,} requests that wait",
        ("what", "figure"),
        [
            ("look-up before, median ms", _percentile(before_ms, 50)),
            ("look-up before, p99 ms", before),
            ("look-up meanwhile, median ms", _percentile(meanwhile_ms, 50)),
            ("look-up meanwhile, p99 ms", meanwhile),
            ("answered after the own deadline, p50 ms", late_ms["p50"]),
            ("answered after the own deadline, p99 ms", late_ms["p99"]),
            ("memory of the waiting, MB", grown_mb),
            ("CPU of the sidecar meanwhile, cores", cores),
        ],
    )
    report(
        [
            goal("look-up p99 with 5,000 waiting against none", ours=meanwhile, peer=before, at_most=2.0),
            goal(
                "end of a wait after its deadline, p99 ms, against 100",
                ours=late_ms["p99"],
                peer=100.0,
                at_most=1.0,
            ),
            goal("memory of 5,000 waiting, MB, against 100", ours=grown_mb, peer=100.0, at_most=1.0),
        ]
    )


def _look_ups_ms(port: int, count: int) -> list[float]:
    """Returns the durations of `count` look-ups, one after the other on one connection."""
    request = f"GET /v1/topics/{TOPIC}/leader?partition=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    took_ms = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            started = time.perf_counter()
            connection.sendall(request)
            answer = connection.recv(65536)
            while not answer.endswith(b"}"):  # head and body may come separately
                answer += connection.recv(65536)
            took_ms.append((time.perf_counter() - started) * 1_000)
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            time.sleep(PAUSE_S)
    return took_ms


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# -- the crowd: a process of its own -------------------------------------------------------------------------


async def _crowd(port: int) -> None:
    """Sends all requests; prints a line when all wait, and the lateness of each answer at the end."""
    waits = []
    for number in range(WAITING):
        waits.append(asyncio.create_task(_wait(port, number)))
        if number % ARRIVE_AT_ONCE == 0:
            await asyncio.sleep(ARRIVE_AT_ONCE / ARRIVE_PER_S)
    path = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"
    while (await _ask(port, path))["waiting_requests"] < WAITING:
        assert not any(wait.done() for wait in waits), "not all of them waited at the same time"
        await asyncio.sleep(0.1)
    print("waiting", flush=True)
    late_ms = await asyncio.gather(*waits)
    print(json.dumps({f"p{percent}": _percentile(late_ms, percent) for percent in (50, 99)}))


async def _wait(port: int, number: int) -> float:
    """Sends one waiting request; returns the milliseconds from its deadline to its answer."""
    max_block_ms = FIRST_MS + SPREAD_MS * number // WAITING
    path = f"/v1/topics/not-there/records?max_block_ms={max_block_ms}"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(_BODY)}\r\n\r\n{_BODY}"
    if number % 2:
        path = f"/v1/topics/not-there?max_block_ms={max_block_ms}"
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started = time.perf_counter()
    writer.write(request.encode())
    head_line = await reader.readline()
    took_ms = (time.perf_counter() - started) * 1_000
    writer.close()
    assert head_line.startswith(b"HTTP/1.1 404"), head_line
    return took_ms - max_block_ms


async def _ask(port: int, request: bytes) -> dict[str, int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    answer: dict[str, int] = json.loads(await reader.readexactly(int(length.split(b":")[1])))
    writer.close()
    return answer


if __name__ == "__main__":
    if sys.argv[1:2] == ["--crowd"]:
        asyncio.run(_crowd(int(sys.argv[2])))
    else:
        main()
