"""Two thousand requests blocked on unknown topics, in a real sidecar on real sockets, delay no other request.

Each ends at its own deadline, no thread waits for any of them, and look-ups are answered before the first of
them has ended. tests/speed/test_lookups_do_not_grow.py counts the cost of a look-up meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from client_core.testing import FakeCluster
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterator

WAITING: Final = 2_000
TOPICS: Final = 50
#: Shortest and longest max_block_ms: long enough for all of them to wait at the same time.
FIRST_MS: Final = patient(15_000)
LAST_MS: Final = FIRST_MS + 3_000
LOOK_UPS: Final = 300

#: How late an answer may be: who overlooks max_block_ms waits for a minute.
LATE_MS: Final = patient(20_000)
EARLY_MS: Final = 100

_BODY: Final = '{"records":[{"value":1}]}'
_LOOK_UP: Final = b"GET /v1/topics/orders/leader?partition=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Ended(NamedTuple):
    """A request that waited: how long it was willing to, how long it did, its status and its problem."""

    max_block_ms: int
    took_ms: float
    status: int
    problem: dict[str, Any]


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with FakeCluster(3) as cluster:
            cluster.create_topic("orders", partitions=3)
            with Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers) as process:
                yield process
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def ask(port: int, request: bytes) -> tuple[int, dict[str, Any]]:
    """One request on a connection of its own: status and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return int(head.split()[1]), json.loads(await reader.readexactly(int(length.split(b":")[1])))
    finally:
        writer.close()


async def block(port: int, number: int) -> Ended:
    """A produce to a topic that nobody knows; every other one a look-up of it."""
    max_block_ms = FIRST_MS + (LAST_MS - FIRST_MS) * number // WAITING
    path = f"/v1/topics/missing-{number % TOPICS}"
    if number % 2:
        request = f"GET {path}?max_block_ms={max_block_ms} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    else:
        request = (
            f"POST {path}/records?max_block_ms={max_block_ms} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n{_BODY}"
        )
    started = time.perf_counter()
    status, problem = await ask(port, request.encode())
    return Ended(max_block_ms, (time.perf_counter() - started) * 1_000, status, problem)


async def look_up_often(port: int) -> None:
    """Look-ups from memory, one after the other, each answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(LOOK_UPS):
        writer.write(_LOOK_UP)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        await reader.readuntil(b'"leader_epoch":0}')
    writer.close()


def threads_of(sidecar: Sidecar) -> int:
    return len(list(Path(f"/proc/{sidecar.process.pid}/task").iterdir()))


def test_two_thousand_blocked_requests_delay_no_other_and_each_ends_at_its_own_deadline(
    sidecar: Sidecar,
) -> None:
    port = sidecar.api_port
    assert sidecar.api.get("/v1/topics/orders").status_code == 200

    async def status() -> dict[str, Any]:
        return (await ask(port, b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"))[1]

    async def scenario() -> list[Ended]:
        threads = threads_of(sidecar)
        blocked = [asyncio.create_task(block(port, number)) for number in range(WAITING)]
        while (await status())["waiting_requests"] < WAITING:
            assert not any(task.done() for task in blocked), "not all of them waited at the same time"
            await asyncio.sleep(0.05)
        await look_up_often(port)
        assert threads_of(sidecar) == threads
        assert (await status())["waiting_requests"] == WAITING
        return await asyncio.gather(*blocked)

    ended = asyncio.run(asyncio.wait_for(scenario(), patient(120)))
    assert {(e.status, e.problem["kafka_error"], e.problem["phase"]) for e in ended} == {
        (404, "UNKNOWN_TOPIC_OR_PARTITION", "metadata")
    }
    late_ms = [e.problem["waited_ms"] - e.max_block_ms for e in ended]
    # A look-up's wait is measured from the moment it got its ticket, a little after it came.
    assert min(late_ms) >= -EARLY_MS
    assert max(late_ms) < LATE_MS
    assert all(e.took_ms >= e.max_block_ms for e in ended)
    left = sidecar.api.get("/v1/status").json()
    assert (left["waiting_requests"], left["waiting_bytes"], left["waiting_for_metadata"]) == (0, 0, 0)
