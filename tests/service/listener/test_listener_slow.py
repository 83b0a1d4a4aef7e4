"""Slow callers: each is ended in its time, none of them slows anybody else, and what they hold is bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from service.wire.asgi import respond
from tests.support.coroutine_tests import until
from tests.support.counted_work import PythonCalls
from tests.support.served import LOOPS, Caller, Served, limits, on_loop

if TYPE_CHECKING:
    from service.listener.connections import Connections
    from service.wire.asgi import Receive, Scope, Send

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"

#: More than the kernel's buffers hold of it, with the small ones that the tests ask for.
LARGE = 4 * 1024 * 1024
SMALL_BUFFERS = 4_096


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def quick(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 200, [(b"content-length", b"2")], b"ok")


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    size = LARGE if scope["path"] == "/" else 2
    await respond(send, 200, [(b"content-length", b"%d" % size)], bytes(size))


class Waiting:
    """Answers when it is let to."""

    def __init__(self) -> None:
        self.begun = 0
        self.gate = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        await self.gate.wait()
        await respond(send, 200, [(b"content-length", b"2")], b"ok")


def ended(connections: Connections, reason: str) -> int:
    family = next(f for f in connections.collect() if f.name == "pilotfish_http_connections_ended")
    return int(next(s.value for s in family.samples if s.labels.get("reason") == reason))


# -- heads and bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begun",
    [b"", b"\r\n", b"GET", b"GET / HTTP/1.1\r\nHost: loc", GET + b"GET / HTTP/1.1\r\n"],
    ids=["nothing", "an empty line", "a method", "half a head", "half a second head"],
)
def test_a_head_that_does_not_come_whole_is_answered_408_and_closed(loop: str, begun: bytes) -> None:
    async def scenario() -> tuple[bytes, int]:
        async with Served(quick, limits=limits(head_s=0.05)) as served:
            caller = await served.call()
            caller.send(begun)
            return await caller.until_closed(), ended(served.connections, "slow_head")

    said, count = on_loop(loop, scenario())
    *before, last = said.split(b"HTTP/1.1 ")[1:]
    assert [part[:3] for part in before] == ([b"200"] if begun.startswith(GET) else [])
    assert last.startswith(b"408")
    assert b"no whole head of a request came within 50 ms (request_timeout_ms)" in last
    assert b"connection: close" in last
    assert b'"written":"no"' in last
    assert count == 1


def test_a_head_that_dribbles_in_is_not_a_head(loop: str) -> None:
    async def scenario() -> bytes:
        async with Served(quick, limits=limits(head_s=0.1)) as served:
            caller = await served.call()
            caller.send(b"GET / HTTP/1.1\r\n")
            dribbling = asyncio.create_task(dribble(caller))
            said = await caller.until_closed()
            dribbling.cancel()
            return said

    async def dribble(caller: Caller) -> None:
        while True:
            caller.send(b"X: y\r\n")
            await asyncio.sleep(0.01)

    assert on_loop(loop, scenario()).startswith(b"HTTP/1.1 408")


def test_who_is_served_or_idle_between_requests_is_not_slow(loop: str) -> None:
    waiting = Waiting()

    async def scenario() -> list[int]:
        waiting.gate = asyncio.Event()
        async with Served(waiting, limits=limits(head_s=0.03)) as served:
            caller = await served.call()
            caller.send(GET)
            other = await served.call()
            assert (await other.until_closed()).startswith(b"HTTP/1.1 408")  # so long it took
            waiting.gate.set()
            first = (await caller.answer())[0]
            other = await served.call()
            await other.until_closed()
            caller.send(GET)
            return [first, (await caller.answer())[0]]

    assert on_loop(loop, scenario()) == [200, 200]


def test_who_asks_nothing_more_is_closed_without_a_word(loop: str) -> None:
    async def scenario() -> bytes:
        async with Served(quick, limits=limits(keep_alive_s=0.05)) as served:
            caller = await served.call()
            caller.send(GET)
            return await caller.until_closed()

    assert on_loop(loop, scenario()).count(b"HTTP/1.1") == 1


def test_who_has_its_answer_may_not_send_the_rest_of_its_body_for_ever(loop: str) -> None:
    async def scenario() -> tuple[bytes, int]:
        async with Served(quick, limits=limits(head_s=0.05)) as served:
            caller = await served.call()
            caller.send(POST + b"some")
            return await caller.until_closed(), ended(served.connections, "slow_body")

    said, count = on_loop(loop, scenario())
    assert (said.count(b"HTTP/1.1"), said[9:12], count) == (1, b"200", 1)


# -- answers -------------------------------------------------------------------------------------------------


def test_who_takes_nothing_of_a_whole_answer_is_cut_off(loop: str) -> None:
    async def scenario() -> int:
        async with Served(large, limits=limits(stall_s=0.1), send_buffer_bytes=SMALL_BUFFERS) as served:
            caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
            caller.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's has it
            caller.send(GET)
            await until(lambda: ended(served.connections, "stalled"))
            await until(lambda: not served.connections.open)
            return served.connections.unsent_bytes

    assert on_loop(loop, scenario()) == 0


def test_who_takes_nothing_of_the_last_answer_is_cut_off_too(loop: str) -> None:
    """Its transport is closing, which without a bound lasts as long as the caller likes."""

    async def scenario() -> None:
        async with Served(large, limits=limits(stall_s=0.1), send_buffer_bytes=SMALL_BUFFERS) as served:
            caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
            caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
            caller.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await until(lambda: ended(served.connections, "stalled"))
            await until(lambda: not served.connections.open)

    on_loop(loop, scenario())


def test_who_takes_its_answer_slowly_gets_all_of_it(loop: str) -> None:
    async def scenario() -> int:
        async with Served(large, limits=limits(stall_s=0.4), send_buffer_bytes=SMALL_BUFFERS) as served:
            caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
            caller.send(GET)
            await caller.reader.readuntil(b"\r\n\r\n")
            taken = 0
            while taken < LARGE:
                taken += len(await caller.reader.read(64 * 1024))
                await asyncio.sleep(0.01)  # slower altogether than a stall may last
            return taken

    assert on_loop(loop, scenario()) == LARGE


def test_a_stream_whose_caller_takes_nothing_ends_without_a_bound_of_its_own(loop: str) -> None:
    over = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1_000):
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        over.set()

    async def scenario() -> None:
        async with Served(stream, limits=limits(stall_s=0.1), send_buffer_bytes=SMALL_BUFFERS) as served:
            caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
            caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
            caller.send(GET)
            await over.wait()

    on_loop(loop, scenario())


def test_what_waits_for_callers_who_take_nothing_is_bounded(loop: str) -> None:
    bound = 3 * LARGE

    def behind(served: Served) -> int:
        """How many had more than they take, and are there or cut off."""
        there = sum(protocol.flow.write_paused for protocol in served.protocols)
        return there + ended(served.connections, "unsent_bytes")

    async def scenario() -> list[int]:
        roomy = limits(max_unsent_bytes=bound)
        held = []
        async with Served(large, limits=roomy, send_buffer_bytes=SMALL_BUFFERS) as served:
            for number in range(1, 13):
                caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
                caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
                caller.send(GET)
                await until(lambda count=number: behind(served) == count)
                held.append(served.connections.unsent_bytes)
            assert ended(served.connections, "unsent_bytes") >= 8
        return [*held, served.connections.unsent_bytes]

    held = on_loop(loop, scenario())
    assert max(held) <= bound
    assert held[-1] == 0


def test_one_answer_always_fits_however_large(loop: str) -> None:
    async def scenario() -> int:
        async with Served(
            large, limits=limits(max_unsent_bytes=1), send_buffer_bytes=SMALL_BUFFERS
        ) as served:
            caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
            caller.send(GET)
            return len((await caller.answer())[2])

    assert on_loop(loop, scenario()) == LARGE


def test_two_hundred_slow_callers_do_not_slow_anybody() -> None:
    async def scenario() -> tuple[int, int]:
        async with Served(large, send_buffer_bytes=SMALL_BUFFERS) as served:
            caller = await served.call()
            await calls_of_answers(caller)
            alone = await calls_of_answers(caller)
            for number in range(200):
                slow = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
                slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
                slow.send((GET, POST + b"a", GET[:-10], b"")[number % 4])
            await until(lambda: served.connections.open == 201)
            return alone, await calls_of_answers(caller)

    async def calls_of_answers(caller: Caller) -> int:
        """How many Python functions the loop's thread enters for 100 answers."""
        with PythonCalls() as counted:
            for _ in range(100):
                caller.send(GET.replace(b"/ ", b"/quick ", 1))
                await caller.answer()
        return counted.calls

    alone, among_them = on_loop("uvloop", scenario())
    assert among_them < 1.5 * alone


# -- too many ------------------------------------------------------------------------------------------------


def test_who_has_been_idle_longest_makes_room(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> tuple[bytes, list[int]]:
        async with Served(quick, limits=limits(max_connections=3)) as served:
            callers = []
            for _ in range(3):
                caller = await served.call()
                caller.send(GET)
                await caller.answer()
                callers.append(caller)
                now_s = asyncio.get_running_loop().time()
                await until(lambda was_s=now_s: asyncio.get_running_loop().time() > was_s)  # in whole ms
            late = await served.call()
            late.send(GET)
            statuses = [(await late.answer())[0]]
            said = await callers[0].until_closed()
            for caller in callers[1:]:
                caller.send(GET)
                statuses.append((await caller.answer())[0])
            assert served.connections.open == 3
            assert ended(served.connections, "made_room") == 1
            return said, statuses

    assert on_loop(loop, scenario()) == (b"", [200, 200, 200])
    assert [r.getMessage() for r in caplog.records if "max_connections" in r.getMessage()] == [
        "3 connections are open, and no more are taken (max_connections) until some end"
    ]


def test_where_everybody_is_served_new_ones_wait_until_somebody_leaves(loop: str) -> None:
    waiting = Waiting()

    async def scenario() -> list[int]:
        waiting.gate = asyncio.Event()
        async with Served(waiting, limits=limits(max_connections=2)) as served:
            callers = [await served.call() for _ in range(3)]
            for caller in callers:
                caller.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await until(lambda: waiting.begun == 2)
            assert served.connections.open == 2
            waiting.gate.set()
            return [(await caller.answer())[0] for caller in callers]

    assert on_loop(loop, scenario()) == [200, 200, 200]


def test_a_listener_that_closes_leaves_nothing_open(loop: str) -> None:
    async def scenario() -> int:
        async with Served(quick) as served:
            callers = [await served.call() for _ in range(5)]
            served.listener.close()
            for caller in callers:
                caller.writer.transport.abort()
            await until(lambda: not served.connections.open)
            return served.connections.open

    assert on_loop(loop, scenario()) == 0


def test_at_the_end_idle_connections_go_at_once_and_answers_go_out(loop: str) -> None:
    waiting = Waiting()

    async def scenario() -> tuple[list[bytes], tuple[int, str]]:
        waiting.gate = asyncio.Event()
        async with Served(waiting) as served:
            idle = [await served.call() for _ in range(5)]
            busy = await served.call()
            busy.send(GET)
            await until(lambda: waiting.begun == 1 and served.connections.open == 6)
            served.shut_down()
            said = [await caller.until_closed() for caller in idle]
            waiting.gate.set()
            status, headers, _ = await busy.answer()
            await busy.until_closed()
            return said, (status, headers["connection"])

    assert on_loop(loop, scenario()) == ([b""] * 5, (200, "close"))
