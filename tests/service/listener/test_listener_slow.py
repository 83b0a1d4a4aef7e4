"""Slow callers: each is ended in time, none of them slows other callers, and their memory is bounded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from service.wire.asgi import respond
from tests.support.coroutine_tests import until
from tests.support.counted_work import PythonCalls
from tests.support.served import Caller, Served, ended, limits, on_each_loop, on_loop

if TYPE_CHECKING:
    import pytest

    from service.wire.asgi import ASGIApp, Receive, Scope, Send

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUICK = b"GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n"
CLOSING = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"

#: More than the kernel's buffers hold of it, with the small ones that the tests ask for.
LARGE = 4 * 1024 * 1024
SMALL_BUFFERS = 4_096


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
        await quick(scope, receive, send)


def small(app: ASGIApp, **given: float) -> Served:
    """A server with small buffers, and some limits."""
    return Served(app, limits=limits(**given), send_buffer_bytes=SMALL_BUFFERS)


async def taking_nothing(served: Served, written: bytes = GET) -> None:
    """A caller who asks this, and takes nothing of the answer."""
    caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
    caller.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's has it
    caller.send(written)


# -- heads and bodies ----------------------------------------------------------------------------------------


@on_each_loop
async def test_a_head_that_does_not_come_whole_is_answered_408_and_closed() -> None:
    begun = (b"", b"\r\n", b"GET", b"GET / HTTP/1.1\r\nHost: loc", GET + b"GET / HTTP/1.1\r\n")
    async with Served(quick, limits=limits(head_s=0.05)) as served:
        callers = [await served.call() for _ in begun]
        for caller, written in zip(callers, begun, strict=True):
            caller.send(written)
        for caller, written in zip(callers, begun, strict=True):
            *before, last = (await caller.until_closed()).split(b"HTTP/1.1 ")[1:]
            assert [part[:3] for part in before] == ([b"200"] if written.startswith(GET) else [])
            assert last.startswith(b"408"), written
            assert b"no complete request head arrived within 50 ms" in last
            assert b"connection: close" in last
            assert b'"written":"no"' in last
        assert ended(served.connections)["slow_head"] == len(begun)


@on_each_loop
async def test_a_head_that_dribbles_in_is_not_a_head() -> None:
    async def dribble(caller: Caller) -> None:
        while True:
            caller.send(b"X: y\r\n")
            await asyncio.sleep(0.01)

    async with Served(quick, limits=limits(head_s=0.1)) as served:
        caller = await served.call()
        caller.send(b"GET / HTTP/1.1\r\n")
        dribbling = asyncio.create_task(dribble(caller))
        assert (await caller.until_closed()).startswith(b"HTTP/1.1 408")
        dribbling.cancel()


@on_each_loop
async def test_a_served_or_idle_caller_is_not_slow() -> None:
    waiting = Waiting()
    async with Served(waiting, limits=limits(head_s=0.03)) as served:
        caller = await served.call()
        caller.send(GET)
        other = await served.call()
        assert (await other.until_closed()).startswith(b"HTTP/1.1 408")  # so long it took
        waiting.gate.set()
        assert (await caller.answer())[0] == 200
        other = await served.call()
        await other.until_closed()
        caller.send(GET)
        assert (await caller.answer())[0] == 200


@on_each_loop
async def test_a_caller_without_a_further_request_is_closed_silently() -> None:
    async with Served(quick, limits=limits(keep_alive_s=0.05)) as served:
        caller = await served.call()
        caller.send(GET)
        assert (await caller.until_closed()).count(b"HTTP/1.1") == 1


@on_each_loop
async def test_a_caller_with_its_answer_may_not_send_the_rest_of_its_body_for_ever() -> None:
    async with Served(quick, limits=limits(head_s=0.05)) as served:
        caller = await served.call()
        caller.send(POST + b"some")
        said = await caller.until_closed()
        assert (said.count(b"HTTP/1.1"), said[9:12], ended(served.connections)["slow_body"]) == (1, b"200", 1)


# -- answers -------------------------------------------------------------------------------------------------


@on_each_loop
async def test_a_caller_that_takes_nothing_of_a_whole_answer_is_cut_off_be_it_the_last_or_not() -> None:
    """The transport of a last answer is closing. Without a bound this lasts as long as the caller likes."""
    for written in (GET, CLOSING):
        async with small(large, stall_s=0.1) as served:
            await taking_nothing(served, written)
            await until(lambda: ended(served.connections)["stalled"])
            await until(lambda: not served.connections.open)
            assert served.connections.unsent_bytes == 0


@on_each_loop
async def test_a_caller_that_takes_its_answer_slowly_gets_all_of_it() -> None:
    async with small(large, stall_s=0.4) as served:
        caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
        caller.send(GET)
        await caller.reader.readuntil(b"\r\n\r\n")
        taken = 0
        while taken < LARGE:
            taken += len(await caller.reader.read(64 * 1024))
            await asyncio.sleep(0.01)  # slower altogether than a stall may last
    assert taken == LARGE


@on_each_loop
async def test_a_stream_whose_caller_takes_nothing_ends_without_a_bound_of_its_own() -> None:
    over = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1_000):
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        over.set()

    async with small(stream, stall_s=0.1) as served:
        await taking_nothing(served)
        await over.wait()


@on_each_loop
async def test_answers_that_wait_for_stalled_callers_are_bounded() -> None:
    bound = 3 * LARGE
    async with small(large, max_unsent_bytes=bound) as served:

        def behind() -> int:
            """How many had more than they take, and are there or cut off."""
            there = sum(protocol.flow.write_paused for protocol in served.protocols)
            return there + ended(served.connections)["unsent_bytes"]

        for number in range(1, 13):
            await taking_nothing(served)
            await until(lambda count=number: behind() == count)
            assert served.connections.unsent_bytes <= bound
        assert ended(served.connections)["unsent_bytes"] >= 8
    assert served.connections.unsent_bytes == 0


@on_each_loop
async def test_one_answer_always_fits_however_large() -> None:
    async with small(large, max_unsent_bytes=1) as served:
        caller = await served.call(receive_buffer_bytes=SMALL_BUFFERS)
        caller.send(GET)
        assert len((await caller.answer())[2]) == LARGE


def test_two_hundred_slow_callers_do_not_slow_anybody() -> None:
    async def scenario() -> tuple[int, int]:
        async with Served(large, send_buffer_bytes=SMALL_BUFFERS) as served:
            caller = await served.call()
            await calls_of_answers(caller)
            alone = await calls_of_answers(caller)
            for number in range(200):
                await taking_nothing(served, (GET, POST + b"a", GET[:-10], b"")[number % 4])
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


@on_each_loop
async def test_the_longest_idle_connection_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    time_s = asyncio.get_running_loop().time
    async with Served(quick, limits=limits(max_connections=3)) as served:
        callers = []
        for _ in range(3):
            callers.append(await served.call())
            callers[-1].send(GET)
            await callers[-1].answer()
            now_s = time_s()
            await until(lambda was_s=now_s: time_s() > was_s)  # in whole ms
        callers.append(await served.call())
        callers[-1].send(GET)
        assert (await callers[-1].answer())[0] == 200
        assert await callers[0].until_closed() == b""
        for caller in callers[1:3]:
            caller.send(GET)
            assert (await caller.answer())[0] == 200
        assert served.connections.open == 3
        assert ended(served.connections)["made_room"] == 1
    assert [said for said in caplog.messages if "are accepted until" in said] == [
        "3 connections are open; no more are accepted until some end"
    ]


@on_each_loop
async def test_a_closed_connection_whose_caller_takes_nothing_makes_room_only_once() -> None:
    time_s = asyncio.get_running_loop().time
    async with Served(large, limits=limits(max_connections=2), send_buffer_bytes=SMALL_BUFFERS) as served:
        await taking_nothing(served)
        await until(lambda: served.connections.unsent_bytes)
        now_s = time_s()
        await until(lambda: time_s() > now_s)  # in whole ms
        idle = await served.call()
        idle.send(QUICK)
        await idle.answer()
        new = await served.call()
        new.send(QUICK)
        assert (await new.answer())[0] == 200
        assert await idle.until_closed() == b""
        assert ended(served.connections)["made_room"] == 2


@on_each_loop
async def test_where_all_callers_are_served_new_ones_wait_until_one_leaves() -> None:
    waiting = Waiting()
    async with Served(waiting, limits=limits(max_connections=2)) as served:
        callers = [await served.call() for _ in range(3)]
        for caller in callers:
            caller.send(CLOSING)
        await until(lambda: waiting.begun == 2)
        assert served.connections.open == 2
        waiting.gate.set()
        assert [(await caller.answer())[0] for caller in callers] == [200, 200, 200]


@on_each_loop
async def test_a_listener_that_closes_leaves_nothing_open() -> None:
    async with Served(quick) as served:
        callers = [await served.call() for _ in range(5)]
        served.listener.close()
        for caller in callers:
            caller.writer.transport.abort()
        await until(lambda: not served.connections.open)


@on_each_loop
async def test_at_the_end_idle_connections_go_at_once_and_answers_go_out() -> None:
    waiting = Waiting()
    async with Served(waiting) as served:
        idle = [await served.call() for _ in range(5)]
        busy = await served.call()
        busy.send(GET)
        await until(lambda: waiting.begun == 1 and served.connections.open == 6)
        served.shut_down()
        assert [await caller.until_closed() for caller in idle] == [b""] * 5
        waiting.gate.set()
        status, headers, _ = await busy.answer()
        await busy.until_closed()
        assert (status, headers["connection"]) == (200, "close")
