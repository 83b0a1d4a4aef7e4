"""One connection of the API over TCP: what is no HTTP, heads without an end, and requests in a row."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from typing import TYPE_CHECKING, Any, Final

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from service.listener.http_protocol import MAX_HEAD_BYTES
from service.wire.asgi import BODY as TAKE_BODY
from service.wire.asgi import respond
from tests.support.coroutine_tests import run, until
from tests.support.http_app import HttpApp
from tests.support.served import Served

if TYPE_CHECKING:
    from service.wire.asgi import ASGIApp, Receive, Scope, Send

HOST = b"Host: localhost\r\n"
GET = b"GET /v1/topics/orders HTTP/1.1\r\n" + HOST
BODY = b'{"records":[{"value":1}]}'
POST = (
    b"POST /v1/topics/orders/records HTTP/1.1\r\n"
    + HOST
    + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    + BODY
)


@pytest.fixture
def app() -> ASGIApp:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    return web.app


def exchange(app: ASGIApp, *written: bytes) -> bytes:
    """What a server says until it closes the connection, to whom writes this."""

    async def scenario() -> bytes:
        async with Served(app) as served:
            caller = await served.call()
            for part in written:
                caller.send(part)
                await asyncio.sleep(0.01)  # so that it comes as a read of its own
            return await caller.until_closed()

    return run(scenario())


def problem(said: bytes) -> dict[str, Any]:
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    reported: dict[str, Any] = json.loads(body)
    return reported


@pytest.mark.parametrize(
    "written",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"BREW /v1/cluster HTTP/1.1\r\n" + HOST + b"\r\n",
        GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        GET + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        GET + b"Content-Length: -1\r\n\r\n",
        b"GET /v1/topics/\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    ],
)
def test_what_is_no_http_is_a_problem_document(app: ASGIApp, written: bytes) -> None:
    assert problem(exchange(app, written))["status"] == 400


async def test_a_refused_caller_who_leaves_takes_all_of_the_connection_along(app: ASGIApp) -> None:
    """Kept until the moment for the answer was over, thousands of them were megabytes."""
    async with Served(app) as served:
        caller = await served.call()
        caller.send(b"no http\r\n\r\n")
        assert (await caller.answer())[0] == 400
        kept = weakref.ref(served.protocols[0].transport)
        await caller.hang_up()
        await until(lambda: not served.protocols)
        gc.collect()
        assert kept() is None


def test_a_head_without_an_end_is_refused(app: ASGIApp) -> None:
    pieces = [b"X-%d: " % n + b"a" * 8_192 + b"\r\n" for n in range(MAX_HEAD_BYTES // 8_192)]
    assert problem(exchange(app, GET, *pieces))["status"] == 431


def test_heads_are_bounded_one_by_one_and_bodies_not_at_all(app: ASGIApp) -> None:
    padding = b"X: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n"
    space = b" " * MAX_HEAD_BYTES * 2
    head = POST.partition(b"\r\n\r\n")[0].replace(b": %d" % len(BODY), b": %d" % (len(BODY) + len(space)))
    said = exchange(
        app,
        GET,
        padding,
        b"\r\n" + GET,
        padding,
        b"\r\n" + head + b"\r\n\r\n",
        space,
        BODY + GET,
        b"Connection: close\r\n\r\n",
    )
    assert said.count(b"HTTP/1.1 200 OK") == 4


def test_requests_in_a_row_are_answered_in_their_order(app: ASGIApp) -> None:
    last = b"GET /v1/cluster HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    said = exchange(app, GET + b"\r\n" + POST + POST + last)
    bodies = [part.partition(b"\r\n\r\n")[2][:10] for part in said.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b'{"name":"o', b'{"topic":"', b'{"topic":"', b'{"cluster_']


@pytest.mark.parametrize("offered", ["h2c", "websocket"])
@pytest.mark.parametrize("together", [True, False])
def test_who_offers_another_protocol_is_answered_in_this_one(
    app: ASGIApp, offered: str, together: bool
) -> None:
    offer = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {offered}\r\nHTTP2-Settings: AAMAAABk\r\n"
    produce = POST.replace(b"\r\n\r\n", b"\r\n" + offer.encode() + b"\r\n", 1)
    look_up = GET + offer.replace("Upgrade,", "close, Upgrade,").encode() + b"\r\n"
    parts = (
        produce[:-1] if together else produce.removesuffix(BODY),
        BODY[-1:] if together else BODY,
        look_up,
    )
    said = exchange(app, *parts)
    assert said.count(b"HTTP/1.1 200 OK") == 2
    assert b'"results":[{"partition":0,' in said


# -- reading goes on -----------------------------------------------------------------------------------------

#: More than is kept of a body before reading pauses.
LARGE: Final = b"x" * (4 * HIGH_WATER_LIMIT)


#: The same, and little enough to come in one read.
IN_ONE_READ: Final = b"x" * (HIGH_WATER_LIMIT + 1_000)


def head_of(length: int, path: bytes = b"/") -> bytes:
    return b"POST %s HTTP/1.1\r\n" % path + HOST + b"Content-Length: %d\r\n\r\n" % length


async def answered(send: Send, body: bytes = b"") -> None:
    await respond(send, 200, [(b"content-length", b"%d" % len(body))], body)


def test_a_request_is_read_behind_a_large_body_that_nobody_wanted() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answered(send, scope["path"].encode())

    async def scenario() -> None:
        async with Served(app) as served:
            caller = await served.call()
            for path in (b"/first", b"/second", b"/third"):
                caller.send(head_of(len(LARGE), path) + LARGE)
                assert (await caller.answer())[2] == path

    run(scenario())


def test_reading_goes_on_as_soon_as_a_large_body_was_taken_whole() -> None:
    """Else nobody would hear that the caller leaves, as long as the application waits for something else."""
    seen: list[Any] = []
    taken, may_end = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(len(scope[TAKE_BODY]() or b""))
        taken.set()
        await may_end.wait()

    async def scenario() -> None:
        async with Served(app) as served:
            caller = await served.call()
            caller.send(head_of(len(IN_ONE_READ)) + IN_ONE_READ)
            await taken.wait()
            await caller.hang_up()
            await until(lambda: not served.protocols)
            may_end.set()

    run(scenario())
    assert seen == [len(IN_ONE_READ)]


def test_who_leaves_while_a_pipelined_request_is_worked_on_is_missed() -> None:
    may_answer, began, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/first":
            await may_answer.wait()
            await answered(send)
            return
        began.set()
        await may_end.wait()

    async def scenario() -> None:
        async with Served(app) as served:
            caller = await served.call()
            caller.send(head_of(0, b"/first") + head_of(0, b"/second"))
            await until(lambda: bool(served.protocols) and bool(served.protocols[0].pipeline))
            may_answer.set()
            await began.wait()
            await caller.hang_up()
            await until(lambda: not served.protocols)
            may_end.set()

    run(scenario())


def test_the_body_of_a_pipelined_request_is_read_when_its_turn_has_come() -> None:
    may_answer = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/first":
            await may_answer.wait()
            await answered(send)
            return
        body = b""
        while len(body) < len(BODY):
            body += (await receive())["body"]
        await answered(send, body)

    async def scenario() -> None:
        async with Served(app) as served:
            caller = await served.call()
            caller.send(head_of(0, b"/first") + head_of(len(BODY), b"/second"))
            await until(lambda: bool(served.protocols) and bool(served.protocols[0].pipeline))
            caller.send(BODY)
            may_answer.set()
            assert (await caller.answer())[0] == 200
            assert (await caller.answer())[2] == BODY

    run(scenario())


def test_what_comes_behind_a_refusal_is_taken_from_its_caller_and_thrown_away() -> None:
    """The body before it had paused reading; a caller who is still sending would never read the refusal."""
    may_end = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await may_end.wait()

    async def scenario() -> None:
        async with Served(app) as served:
            caller = await served.call()
            chunk = b"%x\r\n%s\r\n" % (len(IN_ONE_READ), IN_ONE_READ)
            head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
            caller.send(head + chunk + b"no length\r\n")
            assert (await caller.answer())[0] == 400
            protocol = served.protocols[0]
            for _ in range(64):
                caller.send(LARGE)
                await caller.writer.drain()
            assert not protocol.flow.read_paused
            may_end.set()

    run(scenario())
