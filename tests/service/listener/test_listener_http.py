"""HTTP/1.1 at its edges: pipelines, bodies that were not asked for, trailers, codings, targets, HEAD."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from service.listener.http_exchange import MAX_TARGET_BYTES
from service.listener.http_protocol import MAX_HEAD_BYTES, MAX_PIPELINED
from service.wire.asgi import ABORT, as_get, head_of
from tests.support.coroutine_tests import until
from tests.support.http_app import HttpApp
from tests.support.served import LOOPS, Served, on_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.wire.asgi import Message, Receive, Scope, Send
    from tests.support.served import Caller

HOST = b"Host: localhost\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
CLOSING = b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
POST = b"POST /post HTTP/1.1\r\n" + HOST


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Echo:
    """Answers with what it was asked, as JSON. `gate` holds answers back; `reads` says whose body is read."""

    def __init__(self, *, reads: Callable[[Scope], bool] = lambda _: True) -> None:
        self.gate: asyncio.Event | None = None
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
            await self._wait(receive)
        said = {"method": scope["method"], "path": scope["path"], "body": body.decode()}
        text = json.dumps(said).encode()
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"%d" % len(text))],
            }
        )
        await send({"type": "http.response.body", "body": text})

    async def _wait(self, receive: Receive) -> None:
        """Until the gate opens or the caller is gone."""
        assert self.gate is not None
        opened, left = asyncio.ensure_future(self.gate.wait()), asyncio.ensure_future(receive())
        self.waiting += 1
        await asyncio.wait({opened, left}, return_when=asyncio.FIRST_COMPLETED)
        if left.done():
            self.gone += 1
        for task in (opened, left):
            task.cancel()
        await asyncio.gather(opened, left, return_exceptions=True)
        self.waiting -= 1


async def read_each(caller: Caller, count: int) -> list[Any]:
    return [json.loads((await caller.answer())[2]) for _ in range(count)]


def ask(loop: str, app: Any, *written: bytes, ends: bool = False) -> bytes:
    """What is said to who writes this, in as many reads, and closes nothing."""

    async def scenario() -> bytes:
        async with Served(app) as served:
            caller = await served.call()
            for part in written:
                caller.send(part)
                await asyncio.sleep(0.005)  # so that it comes as a read of its own
            if ends:
                return await caller.until_closed()
            head = await caller.reader.readuntil(b"\r\n\r\n")
            return head

    return on_loop(loop, scenario())


def statuses(said: bytes) -> list[int]:
    return [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]]


# -- pipelines -----------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order_however_many_come_at_once(loop: str) -> None:
    paths = [f"/{number}" for number in range(MAX_PIPELINED)]
    written = b"".join(b"GET %s HTTP/1.1\r\n%s\r\n" % (path.encode(), HOST) for path in paths)

    async def scenario() -> list[str]:
        async with Served(Echo()) as served:
            caller = await served.call()
            caller.send(written)
            return [said["path"] for said in await read_each(caller, len(paths))]

    assert on_loop(loop, scenario()) == paths


def test_a_longer_pipeline_is_answered_to_its_limit_and_then_ended(loop: str) -> None:
    echo = Echo()
    said = ask(loop, echo, GET * (MAX_PIPELINED * 3), ends=True)
    assert statuses(said) == [200] * (MAX_PIPELINED + 1)
    assert said.count(b"connection: close") == 1
    assert b"connection: close" in said.rpartition(b"HTTP/1.1 200")[2]
    assert len(echo.scopes) == MAX_PIPELINED + 1


def test_what_is_no_http_is_refused_behind_the_answers_that_are_due(loop: str) -> None:
    echo = Echo()

    async def scenario() -> bytes:
        echo.gate = asyncio.Event()
        async with Served(echo) as served:
            caller = await served.call()
            caller.send(GET + GET + b"\x00 nonsense\r\n\r\n" + GET)
            await until(lambda: echo.waiting == 1)
            echo.gate.set()
            return await caller.until_closed()

    said = on_loop(loop, scenario())
    assert statuses(said) == [200, 200, 400]
    assert len(echo.scopes) == 2


def test_a_body_in_broken_chunks_is_refused_and_its_request_told_that_the_caller_left(loop: str) -> None:
    echo = Echo()
    said = ask(loop, echo, POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nxyz\r\n", ends=True)
    assert statuses(said) == [400]
    assert echo.gone == 1


def test_a_queued_request_in_broken_chunks_is_refused_in_its_turn_and_never_begun(loop: str) -> None:
    echo = Echo()

    async def scenario() -> bytes:
        echo.gate = asyncio.Event()
        async with Served(echo) as served:
            caller = await served.call()
            caller.send(GET + POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n")
            await until(lambda: echo.waiting == 1)
            echo.gate.set()
            return await caller.until_closed()

    assert statuses(on_loop(loop, scenario())) == [200, 400]
    assert len(echo.scopes) == 1


def test_who_hangs_up_ends_the_request_that_runs_though_others_are_queued_behind_it(loop: str) -> None:
    echo = Echo()

    async def scenario() -> None:
        echo.gate = asyncio.Event()
        async with Served(echo) as served:
            caller = await served.call()
            caller.send(GET * 3)
            await until(lambda: echo.waiting == 1)
            await caller.hang_up()
            await until(lambda: echo.gone == 1)
            await until(lambda: not served.connections.open)

    on_loop(loop, scenario())
    assert len(echo.scopes) == 1


def test_after_connection_close_nothing_more_is_served(loop: str) -> None:
    echo = Echo()
    said = ask(loop, echo, CLOSING + GET, ends=True)
    assert statuses(said) == [200]


# -- bodies --------------------------------------------------------------------------------------------------


def test_a_body_is_asked_for_where_the_caller_waits_to_be_asked(loop: str) -> None:
    async def scenario() -> list[int]:
        async with Served(Echo()) as served:
            caller = await served.call()
            caller.send(POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            reported = [(await caller.answer())[0]]
            caller.send(b"{}" + GET)
            return reported + [(await caller.answer())[0] for _ in range(2)]

    assert on_loop(loop, scenario()) == [100, 200, 200]


def test_nobody_is_asked_for_a_body_that_was_refused_already(
    loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The question went out behind the last answer, or failed, with a stack in the log for each."""
    echo = Echo()
    head = POST + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    said = ask(loop, echo, head + b"FFFFFFFFFFFFFFFFF\r\n", ends=True)
    assert statuses(said) == [400]
    assert echo.gone == 1
    assert not caplog.records


def test_who_is_answered_without_being_asked_for_its_body_is_not_listened_to_any_more(loop: str) -> None:
    """It may send the body or another request next, and nobody could tell."""
    echo = Echo(reads=lambda _: False)
    smuggled = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
    head = POST + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(smuggled)
    said = ask(loop, echo, head, smuggled + smuggled, ends=True)
    assert statuses(said) == [200]
    assert b"connection: close" in said
    assert [scope["path"] for scope in echo.scopes] == ["/post"]


def test_an_answer_that_ends_the_connection_reaches_who_is_still_sending_its_body(loop: str) -> None:
    web = HttpApp(max_body_bytes=1_000)
    length = 8 * 1024 * 1024

    async def scenario() -> tuple[int, bytes]:
        async with Served(web.app) as served:
            caller = await served.call()
            caller.send(
                b"POST /v1/topics/orders/records HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n" % (HOST, length)
            )
            status, headers, _ = await caller.answer()
            assert headers["connection"] == "close"
            for _ in range(8):
                caller.send(b" " * (length // 8))
                await caller.writer.drain()  # which fails where the connection was reset
            return status, await caller.until_closed()

    assert on_loop(loop, scenario()) == (413, b"")


def test_trailers_do_not_become_headers(loop: str) -> None:
    echo = Echo()
    trailers = b"0\r\nHost: evil.example\r\nAuthorization: Bearer stolen\r\n\r\n"
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" + trailers

    async def scenario() -> list[Any]:
        async with Served(echo) as served:
            caller = await served.call()
            caller.send(chunked + GET)
            return await read_each(caller, 2)

    reported = on_loop(loop, scenario())
    assert reported[0] == {"method": "POST", "path": "/post", "body": "abc"}
    names = [name for name, _ in echo.scopes[0]["headers"]]
    assert names == [b"host", b"transfer-encoding"]
    assert [name for name, _ in echo.scopes[1]["headers"]] == [b"host"]


@pytest.mark.parametrize("where", ["extension", "trailer"])
def test_what_stands_between_chunks_and_behind_them_is_bounded(loop: str, where: str) -> None:
    begin = b"3;x=" if where == "extension" else b"3\r\nabc\r\n0\r\nX: "
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    pieces = [b"a" * 8_192] * (MAX_HEAD_BYTES // 8_192 + 2)
    said = ask(loop, Echo(), head + begin, *pieces, ends=True)
    assert statuses(said) == [431]


def test_a_body_in_many_small_chunks_is_not_taken_for_that(loop: str) -> None:
    head = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    pieces = [b"1\r\na\r\n" * 4_000] * 10
    said = ask(loop, Echo(), head, *pieces, b"0\r\n\r\n", ends=True)
    assert statuses(said) == [200]
    assert b"a" * 40_000 in said


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", 400),
        (b"Transfer-Encoding: chunked, chunked\r\n", 400),
        (b"Transfer-Encoding: identity\r\n", 501),
        (b"Transfer-Encoding: xchunked\r\n", 501),
        (b"Transfer-Encoding: gzip, chunked\r\n", 501),
        (b"Transfer-Encoding : chunked\r\n", 400),
        (b"Content-Length: 3\r\nContent-Length: 3\r\n", 400),
        (b"Content-Length: +3\r\n", 400),
        (b"Content-Length:\r\n", 400),
        (b"X: folded\r\n over two lines\r\n", 400),
    ],
)
def test_a_body_whose_length_or_coding_is_in_doubt_is_refused(loop: str, headers: bytes, status: int) -> None:
    echo = Echo()
    said = ask(loop, echo, POST + headers + b"\r\n3\r\nabc\r\n0\r\n\r\n", ends=True)
    assert statuses(said) == [status]
    assert not echo.scopes


# -- targets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://localhost:8085/v1/topics?prefix=a", "/v1/topics", b"prefix=a"),
        (b"HTTPS://localhost?x", "/", b"x"),
        (b"http://[::1]:8085", "/", b""),
        (b"//double/x", "//double/x", b""),
    ],
)
def test_targets_in_absolute_form_are_taken_apart(loop: str, target: bytes, path: str, query: bytes) -> None:
    echo = Echo()
    said = ask(loop, echo, b"GET %s HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n" % target, ends=True)
    assert statuses(said) == [200]
    scope = echo.scopes[0]
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, path.encode(), query)


def test_the_host_of_the_target_is_the_one_that_counts(loop: str) -> None:
    web = HttpApp()
    reported = {
        target: statuses(
            ask(
                loop,
                web.app,
                b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, host),
                ends=True,
            )
        )
        for target, host in (
            (b"http://evil.example/v1/status", b"localhost"),
            (b"http://localhost:8085/v1/status", b"evil.example"),
        )
    }
    assert list(reported.values()) == [[421], [200]]


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/topics/a#b",
        b"v1/topics",
        b"?x",
        b"http:///x",
        b"http://user@localhost/x",
        b"ftp://localhost/x",
        b"*",
    ],
)
def test_targets_that_mean_nothing_here_are_refused(loop: str, target: bytes) -> None:
    echo = Echo()
    said = ask(loop, echo, b"GET %s HTTP/1.1\r\n%s\r\n" % (target, HOST), ends=True)
    assert statuses(said) == [400]
    assert not echo.scopes


@pytest.mark.parametrize("together", [True, False])
def test_a_target_may_be_long_but_not_too_long(loop: str, together: bool) -> None:
    fits = b"GET /%s HTTP/1.1\r\n%sConnection: close\r\n\r\n" % (b"a" * (MAX_TARGET_BYTES - 1), HOST)
    assert statuses(ask(loop, Echo(), fits, ends=True)) == [200]
    pieces = [b"a" * 8_192] * (MAX_HEAD_BYTES // 8_192 + 2)
    written = [b"GET /", *pieces, b" HTTP/1.1\r\n%s\r\n" % HOST]
    said = ask(loop, Echo(), *([b"".join(written)] if together else written), ends=True)
    assert statuses(said) == [414]


# -- methods -------------------------------------------------------------------------------------------------

PATHS = [
    "/v1/cluster",
    "/v1/topics/orders",
    "/v1/topics/orders/partitions/1",
    "/v1/topics/orders/leader?partition=1",
    "/v1/topics/orders/leader?key=a&key_format=text",
    "/v1/topics/bad%20name",
    "/nowhere",
]


@pytest.mark.parametrize("path", PATHS)
def test_head_is_answered_as_get_is_without_the_body(path: str) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    got, head = web.get(path), web.ask("HEAD", path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    varying = {"age", "pilotfish-metadata-refreshed-at"}
    assert {n: v for n, v in head.headers.items() if n not in varying} == {
        n: v for n, v in got.headers.items() if n not in varying
    }


def test_head_leaves_the_connection_as_it_should_be(loop: str) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    head = b"HEAD /v1/topics/orders HTTP/1.1\r\n" + HOST + b"\r\n"
    last = b"GET /v1/cluster HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    said = ask(loop, web.app, head + head + last, ends=True)
    assert statuses(said) == [200, 200, 200]
    assert [part.partition(b"\r\n\r\n")[2] == b"" for part in said.split(b"HTTP/1.1 ")[1:]] == [
        True,
        True,
        False,
    ]


def test_head_holds_what_the_caller_holds() -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    etag = web.get("/v1/topics/orders").headers["etag"]
    assert web.ask("HEAD", "/v1/topics/orders", headers={"if-none-match": etag}).status_code == 304


def test_head_of_what_can_only_be_posted_says_what_is_allowed() -> None:
    web = HttpApp()
    refused = web.ask("HEAD", "/v1/topics/orders/records")
    assert (refused.status_code, refused.headers["allow"], refused.content) == (405, "POST", b"")


def test_head_goes_on_while_the_sidecar_shuts_down() -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    web.app.sidecar.drain.begin()
    assert web.ask("HEAD", "/v1/topics/orders").status_code == 200


def test_head_of_an_answer_that_goes_on_ends_with_its_head(loop: str) -> None:
    chunks = 0

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal chunks
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            chunks += 1
            await send({"type": "http.response.body", "body": b"more", "more_body": True})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await endless(as_get(scope), receive, head_of(send))

    async def scenario() -> bytes:
        async with Served(app) as served:
            caller = await served.call()
            caller.send(b"HEAD / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
            return await caller.until_closed()

    assert statuses(on_loop(loop, scenario())) == [200]
    assert chunks <= 1


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused_with_those_that_are_allowed(method: str) -> None:
    refused = HttpApp().ask(method, "/v1/cluster")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    assert refused.headers["content-type"] == "application/problem+json"


def test_a_request_can_be_cut_off_by_whoever_serves_it(loop: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        message: Message = {"type": "http.response.start", "status": 200, "headers": []}
        await send(message)
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        scope[ABORT]()
        while (await receive())["type"] != "http.disconnect":
            pass

    said = ask(loop, app, GET, ends=True)
    assert b"0\r\n\r\n" not in said
