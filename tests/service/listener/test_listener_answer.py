"""An answer that lies ready goes out in one piece, byte for byte as it would in two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from service.wire.asgi import ANSWER
from tests.support.coroutine_tests import until
from tests.support.http_app import HttpApp
from tests.support.served import LOOPS, Served, on_loop

if TYPE_CHECKING:
    from service.wire.asgi import ASGIApp, Receive, Scope, Send

LEADER = "/v1/topics/orders/leader?partition=1"


class Ways:
    """An application that notes which way its answers go; without `short` there is only the long one."""

    def __init__(self, app: ASGIApp, *, short: bool) -> None:
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
        await self._app(scope, receive, send)


def request(path: str, *lines: str, method: str = "GET") -> bytes:
    head = [f"{method} {path} HTTP/1.1", "host: localhost", *lines]
    return "\r\n".join([*head, "", ""]).encode()


def said(loop: str, requests: bytes, answers: int, *, short: bool) -> tuple[list[Any], list[bool]]:
    """The answers, and which of them went the short way."""
    web = HttpApp()
    web.app.sidecar.table._boot = "boot"
    web.producer.set_topics({"orders": 3})
    ways = Ways(web.app, short=short)

    async def scenario() -> list[Any]:
        async with Served(ways) as served:
            served.put_into_every_head([(b"date", b"Sat, 31 Jan 2026 09:26:53 GMT"), (b"via", b"1.1 here")])
            caller = await served.call()
            caller.send(requests)
            heard = [await caller.answer() for _ in range(answers)]
            if b"connection: close" in requests:
                assert await caller.until_closed() == b""
            return heard

    heard = on_loop(loop, scenario())
    assert all(headers["via"] == "1.1 here" for _, headers, _ in heard)
    return heard, ways.went


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "path", [LEADER, "/v1/topics/orders", "/v1/cluster", "/v1/topics/orders/partitions/2"]
)
def test_it_is_the_same_in_one_piece_as_in_two(loop: str, path: str) -> None:
    quick, went = said(loop, request(path), 1, short=True)
    plain, _ = said(loop, request(path), 1, short=False)
    assert quick == plain
    assert went == [True]
    assert quick[0][0] == 200
    assert len(quick[0][2]) > 20


@pytest.mark.parametrize("loop", LOOPS)
def test_what_the_caller_holds_is_told_so_either_way(loop: str) -> None:
    (first,), _ = said(loop, request(LEADER), 1, short=True)
    again = request(LEADER, f"if-none-match: {first[1]['etag']}")
    quick, went = said(loop, again, 1, short=True)
    plain, _ = said(loop, again, 1, short=False)
    assert quick == plain
    assert went == [True]
    assert (quick[0][0], quick[0][2]) == (304, b"")


@pytest.mark.parametrize("loop", LOOPS)
def test_requests_behind_each_other_are_answered_in_their_order(loop: str) -> None:
    paths = [LEADER, "/v1/topics/orders", "/v1/nothing", "/v1/cluster", "/v1/status", LEADER] * 3
    requests = b"".join(map(request, paths))
    quick, went = said(loop, requests, len(paths), short=True)
    assert [status for status, _, _ in quick] == [200, 200, 404, 200, 200, 200] * 3
    assert went == [True] * 12
    assert quick[0] == quick[5] == quick[-1]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (request(LEADER, "connection: close"), "the connection is to end"),
        (request(LEADER, "expect: 100-continue", "content-length: 0"), "a body was not asked for"),
    ],
    ids=["close", "expect"],
)
def test_what_needs_more_than_bytes_goes_the_long_way(loop: str, asked: bytes, reason: str) -> None:
    quick, went = said(loop, asked, 1, short=True)
    plain, _ = said(loop, asked, 1, short=False)
    assert quick == plain, reason
    assert went == [False], reason
    assert quick[0][0] == 200


@pytest.mark.parametrize("loop", LOOPS)
def test_a_head_has_no_body_and_does_not_go_that_way(loop: str) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    ways = Ways(web.app, short=True)

    async def scenario() -> bytes:
        async with Served(ways) as served:
            caller = await served.call()
            caller.send(request(LEADER, "connection: close", method="HEAD"))
            return await caller.until_closed()

    answer = on_loop(loop, scenario())
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert ways.went == []


# -- produce -------------------------------------------------------------------------------------------------

RECORDS = "/v1/topics/orders/records"
BODY_OF_TWO = b'{"value_format":"text","records":[{"value":"a"},{"value":"b"}]}'


def posted(body: bytes, *lines: str) -> bytes:
    head = ("content-type: application/json", f"content-length: {len(body)}", *lines)
    return request(RECORDS, *head, method="POST") + body


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("body", [BODY_OF_TWO, b'{"records":[]}', b"no JSON"])
def test_a_produce_is_answered_the_same_in_one_piece_as_in_two(loop: str, body: bytes) -> None:
    quick, went = said(loop, posted(body), 1, short=True)
    plain, _ = said(loop, posted(body), 1, short=False)
    assert quick == plain
    assert went == [True]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_produce_that_ends_the_connection_goes_the_long_way(loop: str) -> None:
    quick, went = said(loop, posted(BODY_OF_TWO, "connection: close"), 1, short=True)
    plain, _ = said(loop, posted(BODY_OF_TWO, "connection: close"), 1, short=False)
    assert quick == plain
    assert went == [False]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("cut", [0, 1, len(BODY_OF_TWO) - 1, len(BODY_OF_TWO)])
def test_a_body_is_the_same_all_at_once_or_in_pieces(loop: str, cut: int) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    whole = posted(BODY_OF_TWO)
    end = len(whole) - len(BODY_OF_TWO) + cut

    async def scenario() -> None:
        async with Served(web.app) as served:
            caller = await served.call()
            for _ in range(2):  # the connection is kept, and the next body is another one
                caller.send(whole[:end])
                if end < len(whole):
                    await until(lambda: any(protocol.cycle is not None for protocol in served.protocols))
                    caller.send(whole[end:])
                status, _, _ = await caller.answer()
                assert status == 200

    on_loop(loop, scenario())
    produced = [asked["records"] for kind, asked in web.producer.calls if kind == "records"]
    assert [[record.value for record in records] for records in produced] == [[b"a", b"b"]] * 2


@pytest.mark.parametrize("loop", LOOPS)
def test_a_refusal_that_ends_the_connection_does_end_it(loop: str) -> None:
    """A body that does not come in its time: the rest of it must not be taken for a request."""
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    head = ("content-type: application/json", "content-length: 100")
    asked = request(f"{RECORDS}?timeout_ms=20", *head, method="POST") + b"{"

    async def scenario() -> bytes:
        async with Served(web.app) as served:
            caller = await served.call()
            caller.send(asked)
            return await caller.until_closed()

    answer = on_loop(loop, scenario())
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("loop", LOOPS)
def test_a_caller_who_asks_for_leave_and_does_not_wait_for_it_has_its_connection_kept(loop: str) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    asking = posted(BODY_OF_TWO, "expect: 100-continue")

    async def scenario() -> list[int]:
        async with Served(web.app) as served:
            caller = await served.call()
            caller.send(asking + posted(BODY_OF_TWO))
            return [(await caller.answer())[0] for _ in range(3)]

    assert on_loop(loop, scenario()) == [100, 200, 200]
