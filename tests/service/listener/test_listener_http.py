"""HTTP/1.1 at its edges: pipelines, bodies that were not asked for, codings, targets, HEAD, and no HTTP."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from service.admission.guards import is_of_another_page
from service.listener.http_exchange import (
    MAX_TARGET_BYTES,
    RefusedError,
    check_coding,
    settled,
    without_offer,
)
from service.listener.http_protocol import MAX_HEAD_BYTES, MAX_PIPELINED
from service.wire.asgi import ABORT, as_get, head_of, respond
from service.wire.asgi import BODY as TAKE_BODY
from tests.support.coroutine_tests import until
from tests.support.http_app import NativeApp
from tests.support.served import Caller, Served, on_each_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.wire.asgi import ASGIApp, Receive, Scope, Send

HOST: Final = b"Host: localhost\r\n"
GET: Final = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
CLOSING: Final = b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
POST: Final = b"POST /post HTTP/1.1\r\n" + HOST
CHUNKED: Final = POST + b"Transfer-Encoding: chunked\r\n"

TOPIC: Final = b"GET /v1/topics/orders HTTP/1.1\r\n" + HOST
BODY: Final = b'{"records":[{"value":1}]}'
PRODUCE: Final = (
    b"POST /v1/topics/orders/records HTTP/1.1\r\n"
    + HOST
    + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    + BODY
)

#: More than is kept of a body before reading pauses.
LARGE: Final = b"x" * (4 * HIGH_WATER_LIMIT)
#: The same, and little enough to come in one read.
IN_ONE_READ: Final = b"x" * (HIGH_WATER_LIMIT + 1_000)


class Echo:
    """Answers with what it was asked, as JSON. `gate` holds answers back; `reads` says whose body is read."""

    def __init__(self, *, reads: Callable[[Scope], bool] = lambda _: True, is_held: bool = False) -> None:
        self.gate = asyncio.Event() if is_held else None
        self.waiting = 0
        self.gone = 0
        self.scopes: list[Scope] = []
        self._reads = reads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        body = b""
        more = self._reads(scope)
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone += 1
                return
            body += message["body"]
            more = message["more_body"]
        if self.gate is not None:
            await self._wait(receive, self.gate)
        said = {"method": scope["method"], "path": scope["path"], "body": body.decode()}
        await answered(send, json.dumps(said).encode())

    async def _wait(self, receive: Receive, gate: asyncio.Event) -> None:
        """Until the gate opens or the caller is gone."""
        opened, left = asyncio.ensure_future(gate.wait()), asyncio.ensure_future(receive())
        self.waiting += 1
        await asyncio.wait({opened, left}, return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            self.gone += 1
        for task in (opened, left):
            task.cancel()
        await asyncio.gather(opened, left, return_exceptions=True)
        self.waiting -= 1

    async def ask_held(self, written: bytes) -> bytes:
        """The answers to these bytes, where the first answer waits until all of them were read."""
        assert self.gate is not None
        async with Served(self) as served:
            caller = await self.held(served, written)
            self.gate.set()
            return await caller.until_closed()

    async def held(self, served: Served, written: bytes) -> Caller:
        """A caller who has sent these bytes, and whose first answer waits."""
        caller = await served.call()
        caller.send(written)
        await until(lambda: self.waiting == 1)
        return caller


async def answered(send: Send, body: bytes = b"") -> None:
    await respond(send, 200, [(b"content-length", b"%d" % len(body))], body)


async def ask(app: ASGIApp, *written: bytes) -> bytes:
    """The answers to these bytes, one read for each piece, until the server ends the connection."""
    async with Served(app) as served:
        caller = await served.call()
        for part in written:
            caller.send(part)
            await asyncio.sleep(0.005)  # so that it comes as a read of its own; nothing is wrong if not
        return await caller.until_closed()


def statuses(said: bytes) -> list[int]:
    return [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]


@cache
def with_orders() -> NativeApp:
    """One for all that change nothing of it: to make one takes longer than to ask it."""
    web = NativeApp()
    web.producer.set_topics({"orders": 3})
    return web


# -- pipelines -----------------------------------------------------------------------------------------------


@on_each_loop
async def test_a_caller_of_a_long_answer_who_leaves_is_noticed_with_a_request_behind_it() -> None:
    echo = Echo(is_held=True)
    async with Served(echo) as served:
        caller = await echo.held(served, GET)
        caller.send(GET)
        await until(lambda: len(served.protocols[0].pipeline) == 1)
        await caller.hang_up()
        await until(lambda: (echo.gone, len(served.protocols)) == (1, 0))
    assert len(echo.scopes) == 1, "the one behind it is not begun"


async def test_a_large_body_behind_a_long_answer_is_read_no_further_than_any() -> None:
    echo = Echo(is_held=True)
    async with Served(echo) as served:
        caller = await echo.held(served, GET)
        caller.send(POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(LARGE))
        caller.send(LARGE)
        (protocol,) = served.protocols
        await until(lambda: protocol.flow.read_paused)
        assert echo.gate is not None
        echo.gate.set()
        assert statuses(await caller.until_closed()) == [200, 200]


@on_each_loop
async def test_pipelined_requests_are_answered_in_order_however_many_come_at_once() -> None:
    paths = [f"/{number}" for number in range(MAX_PIPELINED)]
    async with Served(Echo()) as served:
        caller = await served.call()
        caller.send(b"".join(b"GET %s HTTP/1.1\r\n%s\r\n" % (path.encode(), HOST) for path in paths))
        assert [json.loads((await caller.answer())[2])["path"] for _ in paths] == paths


@on_each_loop
async def test_a_body_that_is_no_http_is_refused_behind_all_answers_of_its_pipeline() -> None:
    said = await Echo(is_held=True).ask_held(GET * 3 + CHUNKED + b"\r\nno size\r\n")
    assert statuses(said) == [200, 200, 200, 400]


@on_each_loop
async def test_a_longer_pipeline_is_answered_to_its_limit_and_then_ended() -> None:
    echo = Echo()
    said = await ask(echo, GET * (MAX_PIPELINED * 3))
    assert statuses(said) == [200] * (MAX_PIPELINED + 1)
    assert said.count(b"connection: close") == 1
    assert b"connection: close" in said.rpartition(b"HTTP/1.1 200")[2]
    assert len(echo.scopes) == MAX_PIPELINED + 1


@on_each_loop
async def test_bytes_that_are_no_http_are_refused_after_the_answers_that_are_due() -> None:
    echo = Echo(is_held=True)
    said = await echo.ask_held(GET + GET + b"\x00 nonsense\r\n\r\n" + GET)
    assert (statuses(said), len(echo.scopes)) == ([200, 200, 400], 2)


@on_each_loop
async def test_a_body_in_broken_chunks_is_refused_and_its_handler_sees_a_disconnect() -> None:
    echo = Echo()
    async with Served(echo) as served:
        caller = await served.call()
        caller.send(CHUNKED + b"\r\n3\r\nabc\r\n")
        await until(lambda: bool(echo.scopes))
        caller.send(b"xyz\r\n")
        assert (await caller.answer())[0] == 400
        await until(lambda: echo.gone == 1)
        assert served.protocols  # it did not wait for the end of the connection


@on_each_loop
async def test_a_queued_request_in_broken_chunks_is_refused_in_its_turn_and_never_begun() -> None:
    echo = Echo(is_held=True)
    said = await echo.ask_held(GET + CHUNKED + b"\r\nxyz\r\n")
    assert (statuses(said), len(echo.scopes)) == ([200, 400], 1)


@on_each_loop
async def test_a_disconnect_ends_the_running_request_though_others_are_queued_behind_it() -> None:
    echo = Echo(is_held=True)
    async with Served(echo) as served:
        caller = await echo.held(served, GET * 3)
        await caller.hang_up()
        await until(lambda: echo.gone == 1)
        await until(lambda: not served.connections.open)
    assert len(echo.scopes) == 1


@on_each_loop
async def test_after_connection_close_nothing_more_is_served() -> None:
    assert statuses(await ask(Echo(), CLOSING + GET)) == [200]


async def test_requests_in_a_row_are_answered_in_their_order() -> None:
    last = b"GET /v1/cluster HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    said = await ask(with_orders().app, TOPIC + b"\r\n" + PRODUCE + PRODUCE + last)
    bodies = [part.partition(b"\r\n\r\n")[2][:10] for part in said.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b'{"name":"o', b'{"topic":"', b'{"topic":"', b'{"cluster_']


async def test_an_upgrade_to_another_protocol_is_answered_in_this_one() -> None:
    for offered in (b"h2c", b"websocket"):
        offer = (
            b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABk\r\n" % offered
        )
        produce = PRODUCE.replace(b"\r\n\r\n", b"\r\n" + offer + b"\r\n", 1)
        look_up = TOPIC + offer.replace(b"Upgrade,", b"close, Upgrade,") + b"\r\n"
        for sent in (produce[:-1], produce.removesuffix(BODY)):
            said = await ask(with_orders().app, sent, produce.removeprefix(sent), look_up)
            assert said.count(b"HTTP/1.1 200 OK") == 2, (offered, sent)
            assert b'"results":[{"partition":0,' in said, (offered, sent)


@on_each_loop
async def test_an_offer_costs_no_empty_header() -> None:
    """Once a record with an empty key had none if it was the first of a connection of Java's client."""
    echo = Echo()
    offer = b"Connection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    await ask(echo, b"GET / HTTP/1.1\r\n" + HOST + offer + b"Pilotfish-Key:\r\n\r\n")
    names = [name for name, _ in echo.scopes[0]["headers"]]
    assert names == [b"host", b"connection", b"pilotfish-key"]


# -- bodies --------------------------------------------------------------------------------------------------


@on_each_loop
async def test_a_body_is_asked_for_where_the_caller_waits_to_be_asked() -> None:
    async with Served(Echo()) as served:
        caller = await served.call()
        caller.send(POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await caller.answer())[0] == 100
        caller.send(b"{}" + GET)
        assert [(await caller.answer())[0] for _ in range(2)] == [200, 200]


@on_each_loop
async def test_a_caller_of_http_1_0_is_not_asked_for_its_body() -> None:
    """It would take the 100 for the answer (RFC 9110 section 10.1.1)."""
    head = POST.replace(b"1.1", b"1.0") + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    assert statuses(await ask(Echo(), head, b"{}")) == [200]


@on_each_loop
async def test_nobody_is_asked_for_a_body_that_was_refused_already(caplog: pytest.LogCaptureFixture) -> None:
    """Once the 100 Continue was sent after the last answer, or failed with a stack in the log."""
    echo = Echo()
    said = await ask(echo, CHUNKED + b"Expect: 100-continue\r\n\r\nFFFFFFFFFFFFFFFFF\r\n")
    assert (statuses(said), echo.gone) == ([400], 1)
    assert not caplog.records


@on_each_loop
async def test_after_an_answer_without_100_continue_the_connection_is_not_read_any_more() -> None:
    """It may send the body or another request next, and these can't be distinguished."""
    echo = Echo(reads=lambda _: False)
    smuggled = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
    head = POST + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(smuggled)
    said = await ask(echo, head, smuggled + smuggled)
    assert statuses(said) == [200]
    assert b"connection: close" in said
    assert [scope["path"] for scope in echo.scopes] == ["/post"]


@on_each_loop
async def test_an_answer_that_ends_the_connection_reaches_who_is_still_sending_its_body() -> None:
    length = 8 * 1024 * 1024
    async with Served(NativeApp(max_body_bytes=1_000).app) as served:
        caller = await served.call()
        caller.send(
            b"POST /v1/topics/orders/records HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n" % (HOST, length)
        )
        status, headers, _ = await caller.answer()
        assert (status, headers["connection"]) == (413, "close")
        for _ in range(8):
            caller.send(b" " * (length // 8))
            await caller.writer.drain()  # which fails where the connection was reset
        assert await caller.until_closed() == b""


@on_each_loop
async def test_a_whole_body_of_unknown_length_that_came_with_its_head_is_no_larger_than_others() -> None:
    web = NativeApp(max_body_bytes=1_000)
    web.producer.set_topics({"orders": 3})
    head = (
        b"POST /v1/topics/orders/records HTTP/1.1\r\n" + HOST + b"Content-Type: application/octet-stream\r\n"
    )
    async with Served(web.app) as served:
        for length, status in ((1_000, 200), (1_001, 413)):
            caller = await served.call()
            chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (length, b"x" * length)
            caller.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
            assert (await caller.answer())[0] == status
    assert len(web.producer.submitted) == 1


@on_each_loop
async def test_white_space_behind_a_header_is_no_part_of_its_value() -> None:
    """Once a key with a space behind it was another key, and a length was too large a body."""
    echo = Echo()
    heads = (
        b"Content-Length: 2 \r\nExpect: 100-continue \t\r\nPilotfish-Key: a b \t \r\n\r\n{}",
        b"Transfer-Encoding: chunked \r\nPilotfish-Key: \t\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    )
    async with Served(echo) as served:
        caller = await served.call()
        for head, expected in zip(heads, ((b"a b", 100, 200), (b"", 200)), strict=True):
            caller.send(POST.replace(b"\r\nHost: localhost", b"\r\nHost:\tlocalhost ") + head)
            key, *answers = expected
            assert [(await caller.answer())[0] for _ in answers] == answers
            headers = dict(echo.scopes[-1]["headers"])
            assert (headers[b"host"], headers[b"pilotfish-key"]) == (b"localhost", key)


@on_each_loop
async def test_a_caller_of_http_1_0_gets_an_answer_of_unknown_length_without_chunks() -> None:
    """Once such a caller had the sizes of the chunks in the content."""

    async def in_pieces(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one\n", b"", b"two\n"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    for method, content in ((b"GET", b"one\ntwo\n"), (b"HEAD", b"")):
        head, _, body = (await ask(in_pieces, method + b" / HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
        assert (head[:12], body) == (b"HTTP/1.1 200", content)
        assert b"connection: close" in head
        assert b"transfer-encoding" not in head
    assert (await ask(Echo(), b"GET / HTTP/1.0\r\n\r\n")).count(b"content-length: ") == 1


async def test_a_stream_of_records_over_http_1_0_is_answered_in_lines() -> None:
    lines = b'{"value":1}\n' * 2
    head = b"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n" % len(lines)
    post = b"POST /v1/topics/orders/records HTTP/1.0\r\n"
    said = await ask(with_orders().app, post + HOST + head + lines)
    answers = [json.loads(line) for line in said.partition(b"\r\n\r\n")[2].splitlines()]
    assert [answer.get("index") for answer in answers] == [0, 1, None]
    assert answers[-1]["summary"]["ended"] == "complete"


@on_each_loop
async def test_trailers_do_not_become_headers() -> None:
    echo = Echo()
    trailers = b"0\r\nHost: evil.example\r\nAuthorization: Bearer stolen\r\n\r\n"
    async with Served(echo) as served:
        caller = await served.call()
        caller.send(CHUNKED + b"\r\n3\r\nabc\r\n" + trailers + GET)
        first, _ = [json.loads((await caller.answer())[2]) for _ in range(2)]
    assert first == {"method": "POST", "path": "/post", "body": "abc"}
    names = [[name for name, _ in scope["headers"]] for scope in echo.scopes]
    assert names == [[b"host", b"transfer-encoding"], [b"host"]]


@on_each_loop
async def test_extensions_and_trailers_of_chunks_are_bounded() -> None:
    pieces = [b"a" * 8_192] * (MAX_HEAD_BYTES // 8_192 + 2)
    for begin in (b"3;x=", b"3\r\nabc\r\n0\r\nX: "):
        assert statuses(await ask(Echo(), CHUNKED + b"\r\n" + begin, *pieces)) == [431], begin


@on_each_loop
async def test_a_body_in_many_small_chunks_is_not_taken_for_that() -> None:
    pieces = [b"1\r\na\r\n" * 4_000] * 10
    said = await ask(Echo(), CHUNKED + b"Connection: close\r\n\r\n", *pieces, b"0\r\n\r\n")
    assert statuses(said) == [200]
    assert b"a" * 40_000 in said


@on_each_loop
async def test_a_body_whose_length_or_coding_is_in_doubt_is_refused() -> None:
    for headers, status in {
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n": 400,
        b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n": 400,
        b"Transfer-Encoding: chunked, chunked\r\n": 400,
        b"Transfer-Encoding: identity\r\n": 501,
        b"Transfer-Encoding: xchunked\r\n": 501,
        b"Transfer-Encoding: gzip, chunked\r\n": 501,
        b"Transfer-Encoding : chunked\r\n": 400,
        b"Content-Length: 3\r\nContent-Length: 3\r\n": 400,
        b"Content-Length: +3\r\n": 400,
        b"Content-Length:\r\n": 400,
        b"X: folded\r\n over two lines\r\n": 400,
    }.items():
        for method in (b"POST", b"GET"):
            echo = Echo()
            head = POST.replace(b"POST", method, 1) + headers
            said = await ask(echo, head + b"\r\n3\r\nabc\r\n0\r\n\r\n")
            assert (statuses(said), echo.scopes) == ([status], []), (method, headers)


async def test_a_request_is_read_after_a_large_unwanted_body() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answered(send, scope["path"].encode())

    async with Served(app) as served:
        caller = await served.call()
        for path in (b"/first", b"/second", b"/third"):
            caller.send(posted(len(LARGE), path) + LARGE)
            assert (await caller.answer())[2] == path


def posted(length: int, path: bytes = b"/") -> bytes:
    return b"POST %s HTTP/1.1\r\n" % path + HOST + b"Content-Length: %d\r\n\r\n" % length


async def test_reading_goes_on_as_soon_as_a_large_body_was_taken_whole() -> None:
    """Otherwise a disconnect goes unnoticed for as long as the application waits for something else."""
    seen: list[Any] = []
    taken, may_end = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(len(scope[TAKE_BODY]() or b""))
        taken.set()
        await may_end.wait()

    async with Served(app) as served:
        caller = await served.call()
        caller.send(posted(len(IN_ONE_READ)) + IN_ONE_READ)
        await taken.wait()
        await caller.hang_up()
        await until(lambda: not served.protocols)
        may_end.set()
    assert seen == [len(IN_ONE_READ)]


class TwoRequests:
    """Of two requests that came at once the first is answered when it may be; `second` works on the other."""

    def __init__(self, second: Callable[[Receive, Send], Any]) -> None:
        self._may_answer = asyncio.Event()
        self._second = second

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/first":
            await self._second(receive, send)
            return
        await self._may_answer.wait()
        await answered(send)

    async def begin_second(self, served: Served, written: bytes, more: bytes = b"") -> None:
        """Answers the first when the second waits behind it, and `more` was sent."""
        caller = await served.call()
        caller.send(posted(0, b"/first") + written)
        await until(lambda: bool(served.protocols) and bool(served.protocols[0].pipeline))
        caller.send(more)
        self._may_answer.set()
        assert (await caller.answer())[0] == 200


async def test_a_disconnect_during_a_pipelined_request_is_noticed() -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def second(receive: Receive, send: Send) -> None:
        began.set()
        await may_end.wait()

    two = TwoRequests(second)
    async with Served(two) as served:
        await two.begin_second(served, posted(0, b"/second"))
        await began.wait()
        await served.callers[0].hang_up()
        await until(lambda: not served.protocols)
        may_end.set()


async def test_the_body_of_a_pipelined_request_is_read_when_its_turn_has_come() -> None:
    async def second(receive: Receive, send: Send) -> None:
        body = b""
        while len(body) < len(BODY):
            body += (await receive())["body"]
        await answered(send, body)

    two = TwoRequests(second)
    async with Served(two) as served:
        await two.begin_second(served, posted(len(BODY), b"/second"), BODY)
        assert (await served.callers[0].answer())[2] == BODY


async def test_bytes_after_a_refusal_are_read_and_dropped() -> None:
    """The body had paused reading; a caller that is still sending would never read the refusal."""
    may_end = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await may_end.wait()

    async with Served(app) as served:
        caller = await served.call()
        chunk = b"%x\r\n%s\r\n" % (len(IN_ONE_READ), IN_ONE_READ)
        caller.send(CHUNKED + b"\r\n" + chunk + b"no length\r\n")
        assert (await caller.answer())[0] == 400
        protocol = served.protocols[0]
        for _ in range(64):
            caller.send(LARGE)
            await caller.writer.drain()
        assert not protocol.flow.read_paused
        may_end.set()


# -- no HTTP -------------------------------------------------------------------------------------------------


async def refused(*written: bytes) -> int:
    """The status of the problem document that ends the connection."""
    head, _, body = (await ask(with_orders().app, *written)).partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    problem = json.loads(body)
    assert problem["written"] == "no"
    assert problem["detail"]
    status: int = problem["status"]
    return status


async def test_bytes_that_are_no_http_get_a_problem_document() -> None:
    for written in (
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"BREW /v1/cluster HTTP/1.1\r\n" + HOST + b"\r\n",
        TOPIC + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        TOPIC + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        TOPIC + b"Content-Length: -1\r\n\r\n",
        b"GET /v1/topics/\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    ):
        assert await refused(written) == 400, written


async def test_a_version_of_http_that_is_not_served_is_505() -> None:
    for line, status in (
        (b"GET / HTTP/2.0", 505),
        (b"GET / HTTP/0.9", 505),
        (b"GET /", 505),  # HTTP/0.9 without a version
        (b"POST / HTTP/2.0", 505),
        (b"GET / HTTP/1.2", 400),  # the parser itself refuses these
        (b"GET / HTTP/3.0", 400),
        (b"GET / HTTP/1.1", 200),
        (b"GET / HTTP/1.0", 200),
    ):
        echo = Echo()
        said = await ask(echo, line + b"\r\n" + HOST + b"Connection: close\r\n\r\n")
        assert (said[:12], len(echo.scopes)) == (b"HTTP/1.1 %d" % status, status == 200), line


async def test_every_refusal_has_a_date() -> None:
    """RFC 9110 section 6.6.1: an origin server with a clock sends it."""
    for written in (b"no HTTP at all\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", GET.replace(b"/", b"x", 1)):
        async with Served(Echo()) as served:
            served.put_into_every_head([(b"date", b"today")])
            caller = await served.call()
            caller.send(written)
            _, headers, _ = await caller.answer()
        assert headers["date"] == "today", written


async def test_after_a_refusal_a_disconnect_frees_the_whole_connection() -> None:
    """Thousands of transports, kept until the time for the answer was over, took megabytes."""
    async with Served(with_orders().app) as served:
        caller = await served.call()
        caller.send(b"no http\r\n\r\n")
        assert (await caller.answer())[0] == 400
        kept = weakref.ref(served.protocols[0].transport)
        await caller.hang_up()
        await until(lambda: not served.protocols)
        gc.collect()
        assert kept() is None


async def test_a_head_without_an_end_is_refused() -> None:
    pieces = [b"X-%d: " % n + b"a" * 8_192 + b"\r\n" for n in range(MAX_HEAD_BYTES // 8_192)]
    assert await refused(TOPIC, *pieces) == 431


async def test_heads_are_bounded_one_by_one_and_bodies_not_at_all() -> None:
    padding = b"X: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n"
    space = b" " * MAX_HEAD_BYTES * 2
    length = b": %d" % (len(BODY) + len(space))
    head = b"\r\n" + PRODUCE.removesuffix(BODY).replace(b": %d" % len(BODY), length)
    parts = (
        TOPIC,
        padding,
        b"\r\n" + TOPIC,
        padding,
        head,
        space,
        BODY + TOPIC,
        b"Connection: close\r\n\r\n",
    )
    assert (await ask(with_orders().app, *parts)).count(b"HTTP/1.1 200 OK") == 4


# -- targets -------------------------------------------------------------------------------------------------


@on_each_loop
async def test_targets_in_absolute_form_are_taken_apart() -> None:
    for target, path, query in (
        (b"http://localhost:8085/v1/topics?prefix=a", "/v1/topics", b"prefix=a"),
        (b"HTTPS://localhost?x", "/", b"x"),
        (b"http://[::1]:8085", "/", b""),
        (b"//double/x", "//double/x", b""),
    ):
        echo = Echo()
        said = await ask(echo, b"GET %s HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n" % target)
        assert statuses(said) == [200], target
        scope = echo.scopes[0]
        assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, path.encode(), query)


@on_each_loop
async def test_the_host_of_the_target_is_the_one_that_counts() -> None:
    app = with_orders().app
    for target, host, status in (
        (b"http://evil.example/v1/status", b"localhost", 421),
        (b"http://localhost:8085/v1/status", b"evil.example", 200),
    ):
        said = await ask(app, b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, host))
        assert statuses(said) == [status], target


@on_each_loop
async def test_targets_that_mean_nothing_here_are_refused() -> None:
    for target in (
        b"/v1/topics/a#b",
        b"v1/topics",
        b"?x",
        b"http:///x",
        b"http://user@localhost/x",
        b"ftp://localhost/x",
        b"*",
    ):
        echo = Echo()
        said = await ask(echo, b"GET %s HTTP/1.1\r\n%s\r\n" % (target, HOST))
        assert (statuses(said), echo.scopes) == ([400], []), target


@on_each_loop
async def test_a_target_may_be_long_but_not_too_long() -> None:
    fits = b"GET /%s HTTP/1.1\r\n%sConnection: close\r\n\r\n" % (b"a" * (MAX_TARGET_BYTES - 1), HOST)
    assert statuses(await ask(Echo(), fits)) == [200]
    pieces = [b"a" * 8_192] * (MAX_HEAD_BYTES // 8_192 + 2)
    written = [b"GET /", *pieces, b" HTTP/1.1\r\n%s\r\n" % HOST]
    assert statuses(await ask(Echo(), b"".join(written))) == [414]
    assert statuses(await ask(Echo(), *written)) == [414]


# -- the head of a request, judged as bytes ------------------------------------------------------------------

LONGEST: Final = b"http://b/".ljust(MAX_TARGET_BYTES, b"a")


def test_a_target_is_its_path_and_its_host_counts() -> None:
    for method, target, path, host in (
        (b"GET", b"http://b:1/c?d=e?f", b"/c?d=e?f", b"b:1"),
        (b"GET", b"https://b", b"/", b"b"),
        (b"GET", b"HTTP://b?c", b"/?c", b"b"),
        (b"GET", LONGEST, LONGEST[8:], b"b"),
        (b"CONNECT", b"b:443", b"b:443", b"a"),
        (b"OPTIONS", b"*", b"*", b"a"),
    ):
        headers = [(b"accept", b"x"), (b"host", b"a"), (b"via", b"y")]
        assert settled(target, method, headers) == path
        assert sorted(headers) == [(b"accept", b"x"), (b"host", host), (b"via", b"y")], target


def refusal(refuse: Callable[[], object]) -> tuple[int, str]:
    """Status and detail; nothing is written."""
    with pytest.raises(RefusedError) as raised:
        refuse()
    problem = raised.value.problem
    assert problem is not None
    assert problem.written == "no"
    return problem.status, problem.detail


def test_a_target_that_is_none_is_refused() -> None:
    for method, target, wanted, said in (
        (b"GET", LONGEST + b"a", 414, "longer than 32768 bytes"),
        (b"CONNECT", b"b:443#x", 400, "fragment"),
        (b"GET", b"/#", 400, "fragment"),
        (b"GET", b"*", 400, "not a URL"),
        (b"OPTIONS", b"**", 400, "not a URL"),
        (b"GET", b"http://u@b/", 400, "not a URL"),
        (b"GET", b"b:443", 400, "not a URL"),
    ):
        headers = [(b"host", b"a")]
        status, detail = refusal(lambda: settled(target, method, headers))  # noqa: B023 - called at once
        assert (status, said in detail, headers) == (wanted, True, [(b"host", b"a")]), target


def test_a_body_is_chunked_and_nothing_more() -> None:
    check_coding([])
    check_coding([(b"transfer-encoding", b"Chunked")])
    check_coding([(b"te", b"gzip"), (b"transfer-encoding", b"chunked")])
    gzip = (b"transfer-encoding", b"gzip")
    assert refusal(lambda: check_coding([gzip]))[0] == 501
    assert refusal(lambda: check_coding([(b"transfer-encoding", b"chunked"), gzip]))[0] == 501


def test_a_head_is_the_same_without_its_offer() -> None:
    for headers, lines in (
        ([(b"host", b"a"), (b"upgrade", b"h2c"), (b"http2-settings", b"A")], b"host: a\r\n"),
        ([(b"connection", b"Upgrade , close,HTTP2-Settings, te")], b"connection: close, te\r\n"),
        ([(b"connection", b"upgrade"), (b"te", b"x")], b"te: x\r\n"),
        ([(b"connection", b""), (b"pilotfish-key", b"")], b"pilotfish-key: \r\n"),
    ):
        assert without_offer(b"PUT", b"/b", "1.0", headers) == b"PUT /b HTTP/1.0\r\n" + lines + b"\r\n"


def test_of_another_page_only_a_followed_link_is_let_in() -> None:
    for site, method, mode, dest, is_let_in in (
        (b"same-origin", "POST", b"no-cors", b"image", True),
        (b"none", "POST", b"no-cors", b"image", True),
        (b"same-site", "GET", b"navigate", b"document", True),
        (b"cross-site", "HEAD", b"navigate", b"document", True),
        (b"cross-site", "POST", b"navigate", b"document", False),
        (b"cross-site", "GET", b"no-cors", b"document", False),
        (b"cross-site", "GET", b"navigate", b"iframe", False),
        (b"", "GET", b"", b"", False),
    ):
        headers = [(b"sec-fetch-mode", mode), (b"sec-fetch-dest", dest)]
        is_refused = is_of_another_page({"method": method, "headers": headers}, site)
        assert is_refused is not is_let_in, (site, method, mode, dest)


# -- methods -------------------------------------------------------------------------------------------------


def test_head_is_answered_as_get_is_without_the_body() -> None:
    web = with_orders()
    varying = {"age", "pilotfish-metadata-refreshed-at"}
    for path in (
        "/v1/cluster",
        "/v1/topics/orders",
        "/v1/topics/orders/partitions/1",
        "/v1/topics/orders/leader?partition=1",
        "/v1/topics/orders/leader?key=a&key_format=text",
        "/v1/topics/bad%20name",
        "/nowhere",
    ):
        got, head = web.get(path), web.ask("HEAD", path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        heads = [{n: v for n, v in answer.headers.items() if n not in varying} for answer in (head, got)]
        assert heads[0] == heads[1], path


@on_each_loop
async def test_head_leaves_the_connection_as_it_should_be() -> None:
    head = b"HEAD /v1/topics/orders HTTP/1.1\r\n" + HOST + b"\r\n"
    last = b"GET /v1/cluster HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    said = await ask(with_orders().app, head + head + last)
    assert statuses(said) == [200, 200, 200]
    bodies = [part.partition(b"\r\n\r\n")[2] for part in said.split(b"HTTP/1.1 ")[1:]]
    assert [bool(body) for body in bodies] == [False, False, True]


def test_head_holds_what_the_caller_holds() -> None:
    web = with_orders()
    etag = web.get("/v1/topics/orders").headers["etag"]
    assert web.ask("HEAD", "/v1/topics/orders", headers={"if-none-match": etag}).status_code == 304


def test_head_of_what_can_only_be_posted_says_what_is_allowed() -> None:
    refused = with_orders().ask("HEAD", "/v1/topics/orders/records")
    assert (refused.status_code, refused.headers["allow"], refused.content) == (405, "POST", b"")


def test_head_goes_on_while_the_sidecar_shuts_down() -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3})
    web.app.sidecar.drain.begin()
    assert web.ask("HEAD", "/v1/topics/orders").status_code == 200


@on_each_loop
async def test_head_of_an_answer_that_goes_on_ends_with_its_head() -> None:
    chunks = 0

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal chunks
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            chunks += 1
            await send({"type": "http.response.body", "body": b"more", "more_body": True})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await endless(as_get(scope), receive, head_of(send))

    assert statuses(await ask(app, b"HEAD / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")) == [200]
    assert chunks <= 1


def test_other_methods_are_refused_with_those_that_are_allowed() -> None:
    web = with_orders()
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        refused = web.ask(method, "/v1/cluster")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD"), method
        assert refused.headers["content-type"] == "application/problem+json", method


@on_each_loop
async def test_a_request_can_be_cut_off_by_its_server() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        scope[ABORT]()
        received.extend([(await receive())["type"] for _ in range(2)])

    received: list[str] = []
    assert b"0\r\n\r\n" not in await ask(app, GET)
    assert received == ["http.request", "http.disconnect"]
