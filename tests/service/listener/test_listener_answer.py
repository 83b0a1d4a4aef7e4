"""A ready answer is sent at once, before the application is called, with the same bytes as by ASGI."""

from __future__ import annotations

import asyncio
import gc
import gzip
from functools import cache
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from service.wire.asgi import ANSWER
from tests.support.coroutine_tests import until
from tests.support.http_app import NativeApp
from tests.support.served import Served, on_each_loop
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from service.process.app import App
    from service.wire.asgi import Receive, Scope, Send

LEADER = "/v1/topics/orders/leader?partition=1"
RECORDS = "/v1/topics/orders/records"
BODY_OF_TWO = b'{"value_format":"text","records":[{"value":"a"},{"value":"b"}]}'


class Ways:
    """An application that records the path of each answer; without `short` there is only the long one.

    A look-up goes the short way if it is answered at once.
    """

    def __init__(self, app: App, *, short: bool) -> None:
        self._app = app
        self._short = short
        self.went: list[bool] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = scope.pop(ANSWER)

        def noted(*response: Any) -> bool:
            self.went.append(answer(*response))
            return self.went[-1]

        if self._short:
            scope[ANSWER] = noted
        if scope["method"] == "GET":
            self.went.append(False)
        await self._app(scope, receive, send)

    def answer_at_once(self, *asked: Any) -> bool:
        is_answered = self._short and self._app.answer_at_once(*asked)
        if is_answered:
            self.went.append(True)
        return is_answered


def request(path: str, *lines: str, method: str = "GET") -> bytes:
    head = [f"{method} {path} HTTP/1.1", "host: localhost", *lines]
    return "\r\n".join([*head, "", ""]).encode()


def posted(body: bytes, *lines: str) -> bytes:
    head = ("content-type: application/json", f"content-length: {len(body)}", *lines)
    return request(RECORDS, *head, method="POST") + body


@cache
def with_orders() -> NativeApp:
    """One for all: to make one takes longer than to ask it."""
    web = NativeApp()
    web.app.sidecar.table._boot = "boot"
    web.producer.set_topics({"orders": 3})
    return web


async def said(requests: bytes, answers: int, *, short: bool) -> tuple[list[Any], list[bool]]:
    """The answers, and which of them went the short way."""
    ways = Ways(with_orders().app, short=short)
    async with Served(ways, answer_at_once=ways.answer_at_once) as served:
        served.put_into_every_head([(b"date", b"Sat, 31 Jan 2026 09:26:53 GMT"), (b"via", b"1.1 here")])
        caller = await served.call()
        caller.send(requests)
        heard = [await caller.answer() for _ in range(answers)]
        if b"connection: close" in requests:
            assert await caller.until_closed() == b""
    assert all(headers["via"] == "1.1 here" for _, headers, _ in heard)
    return heard, ways.went


async def host_known() -> None:
    """From now on this Host is known to be allowed: what is not known yet is never answered at once."""
    await said(request("/v1/status"), 1, short=False)


async def said_either_way(asked: bytes, *, short: bool) -> tuple[int, dict[str, str], bytes]:
    """The one answer, which is the same on both paths, and takes the expected one."""
    await host_known()
    (quick,), went = await said(asked, 1, short=True)
    assert ([quick], went) == ((await said(asked, 1, short=False))[0], [short]), asked
    status, headers, body = quick
    return status, headers, body


@on_each_loop
async def test_it_is_the_same_in_one_piece_as_in_two() -> None:
    for path in (LEADER, "/v1/topics/orders", "/v1/cluster", "/v1/topics/orders/partitions/2"):
        status, _, body = await said_either_way(request(path), short=True)
        assert status == 200, path
        assert len(body) > 20, path


@on_each_loop
async def test_an_unchanged_answer_is_304_either_way() -> None:
    (first,), _ = await said(request(LEADER), 1, short=True)
    again = request(LEADER, f"if-none-match: {first[1]['etag']}")
    status, _, body = await said_either_way(again, short=True)
    assert (status, body) == (304, b"")


@on_each_loop
async def test_requests_behind_each_other_are_answered_in_their_order() -> None:
    await host_known()
    paths = [LEADER, "/v1/topics/orders", "/v1/nothing", "/v1/cluster", "/v1/status", LEADER] * 3
    quick, went = await said(b"".join(map(request, paths)), len(paths), short=True)
    assert [status for status, _, _ in quick] == [200, 200, 404, 200, 200, 200] * 3
    # Behind a request that is not answered at once, the others wait for their turn.
    assert went == [True] * 2 + [False] * 16
    assert quick[0] == quick[5] == quick[-1]


@on_each_loop
async def test_an_answer_that_needs_more_than_bytes_takes_the_long_path() -> None:
    """The connection is to end, or there is a body, asked for or not."""
    for lines, body in (
        (["connection: close"], b""),
        (["expect: 100-continue", "content-length: 0"], b""),
        (["content-length: 2"], b"{}"),
    ):
        assert (await said_either_way(request(LEADER, *lines) + body, short=False))[0] == 200


@on_each_loop
async def test_a_head_has_no_body_and_does_not_go_that_way() -> None:
    ways = Ways(with_orders().app, short=True)
    async with Served(ways) as served:
        caller = await served.call()
        caller.send(request(LEADER, "connection: close", method="HEAD"))
        answer = await caller.until_closed()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert ways.went == []


# -- produce -------------------------------------------------------------------------------------------------


@on_each_loop
async def test_a_produce_is_answered_the_same_in_one_piece_as_in_two() -> None:
    for body in (BODY_OF_TWO, b'{"records":[]}', b"no JSON"):
        await said_either_way(posted(body), short=True)
    await said_either_way(posted(BODY_OF_TWO, "connection: close"), short=False)


@on_each_loop
async def test_a_packed_body_is_unpacked_where_it_comes_with_its_head() -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3})
    async with Served(web.app) as served:
        caller = await served.call()
        caller.send(posted(gzip.compress(BODY_OF_TWO), "content-encoding: gzip"))
        assert (await caller.answer())[0] == 200
    assert [record.value for record in web.producer.submitted[0]] == [b"a", b"b"]


@on_each_loop
async def test_a_body_is_the_same_all_at_once_or_in_pieces() -> None:
    whole = posted(BODY_OF_TWO)
    for cut in (0, 1, len(BODY_OF_TWO) - 1, len(BODY_OF_TWO)):
        web = with_orders()
        web.producer.calls.clear()
        end = len(whole) - len(BODY_OF_TWO) + cut
        async with Served(web.app) as served:
            caller = await served.call()
            for _ in range(2):  # the connection is kept, and the next body is another one
                caller.send(whole[:end])
                if end < len(whole):
                    await until(lambda: any(p.cycle is not None for p in served.protocols))
                    caller.send(whole[end:])
                assert (await caller.answer())[0] == 200
        produced = [asked["records"] for kind, asked in web.producer.calls if kind == "records"]
        assert [[record.value for record in records] for records in produced] == [[b"a", b"b"]] * 2, cut


@on_each_loop
async def test_a_refusal_that_ends_the_connection_does_end_it() -> None:
    """A body that comes too late: the rest of it must not be read as a request."""
    head = ("content-type: application/json", "content-length: 100")
    async with Served(with_orders().app) as served:
        caller = await served.call()
        caller.send(request(f"{RECORDS}?timeout_ms=20", *head, method="POST") + b"{")
        assert (await caller.until_closed()).startswith(b"HTTP/1.1 408 ")


def kept_bodies() -> list[int]:
    """The sizes of the bodies that requests still have, also those of closed connections."""
    return [len(it.body) for it in gc.get_objects() if isinstance(it, RequestResponseCycle) and it.body]


@on_each_loop
async def test_a_body_that_nobody_reads_is_not_kept() -> None:
    """Refused by its announced length: the bytes that came with the head have no reader."""
    gc.freeze()  # bodies of other tests
    head = ("content-type: application/json", "content-length: 100000000")
    sent = request(RECORDS, *head, method="POST") + b"x" * 60_000
    try:
        async with Served(with_orders().app) as served:
            callers = [await served.call() for _ in range(3)]
            for caller in callers:
                caller.send(sent)
            for caller in callers:
                assert (await caller.answer())[0] == 413
            assert kept_bodies() == []
    finally:
        gc.unfreeze()


@on_each_loop
async def test_a_body_whose_caller_goes_away_is_not_kept() -> None:
    gc.freeze()
    called, ends = asyncio.Event(), asyncio.Event()

    async def reads_nothing(scope: Scope, receive: Receive, send: Send) -> None:
        called.set()
        await ends.wait()

    try:
        async with Served(reads_nothing) as served:
            caller = await served.call()
            caller.send(request(RECORDS, "content-length: 100000", method="POST") + b"x" * 60_000)
            await called.wait()
            await until(lambda: bool(kept_bodies()))
            await caller.hang_up()
            await until(lambda: not kept_bodies())
            ends.set()
    finally:
        gc.unfreeze()


@on_each_loop
async def test_a_caller_who_expects_100_continue_and_does_not_wait_keeps_its_connection() -> None:
    async with Served(with_orders().app) as served:
        caller = await served.call()
        caller.send(posted(BODY_OF_TWO, "expect: 100-continue") + posted(BODY_OF_TWO))
        assert [(await caller.answer())[0] for _ in range(3)] == [100, 200, 200]


async def test_where_tokens_are_in_use_an_answer_in_one_piece_says_that_it_depends_on_them(
    tmp_path: Path,
) -> None:
    tokens = TokensFile(tmp_path, shop={"read": ["orders"], "produce": ["orders"]})
    shown = f"authorization: Bearer {tokens.token('shop')}"
    web = NativeApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 3})
    async with Served(web.app, answer_at_once=web.app.answer_at_once) as served:
        caller = await served.call()
        look_up = request(LEADER, shown)
        for asked in (look_up, look_up, posted(BODY_OF_TWO, shown)):  # the second is answered at once
            caller.send(asked)
            status, headers, _ = await caller.answer()
            assert (status, headers["vary"]) == (200, "Authorization")
        wrong = "authorization: Bearer wrong"
        caller.send(request(LEADER, wrong))
        assert (await caller.answer())[0] == 401
        for two in ((wrong, shown), (shown, wrong), (shown, shown)):
            caller.send(request(LEADER, *two))
            assert (await caller.answer())[0] == 400, two


async def test_a_bug_in_a_ready_answer_ends_that_connection_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: Any) -> bool:
        raise RuntimeError("a bug")

    async with Served(with_orders().app, answer_at_once=broken) as served:
        caller = await served.call()
        caller.send(request(LEADER))
        assert await caller.until_closed() == b""
        other = await served.call()
        other.send(request(LEADER, "connection: close", method="HEAD"))
        assert (await other.until_closed()).startswith(b"HTTP/1.1 200 ")
    assert "Exception in a look-up that is answered at once" in caplog.text


@on_each_loop
async def test_a_second_question_mark_is_part_of_the_first_parameter() -> None:
    """And not another way to name a partition."""
    status, _, _ = await said_either_way(request("/v1/topics/orders/leader?partition=0?key=a"), short=False)
    assert status == 422
