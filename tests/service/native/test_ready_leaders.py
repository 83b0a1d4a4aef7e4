"""Many leaders from prepared bytes: the answer says which snapshot it is made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from service.admission.caller import Caller, TopicRules, set_caller
from service.native.leaders import ReadyLeaders
from service.wire.asgi import BODY
from tests.support.coroutine_tests import run
from tests.support.http_app import NativeApp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.lookup.lookup_table import LookupTable
    from service.wire.asgi import Message, Receive, Scope, Send


class RefreshedMeanwhile:
    """A sidecar's table; the client has a newer snapshot as soon as leaders were taken from this one."""

    def __init__(self, web: NativeApp) -> None:
        self._web = web
        self._table = web.app.sidecar.table

    def leaders(self, lookups: Sequence[tuple[str, int]]) -> list[bytes] | None:
        found = self._table.leaders(lookups)
        self._web.producer.set_topics({"orders": 4})
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


def test_a_refresh_between_the_look_up_and_its_head_is_not_said_to_be_in_the_answer() -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3})
    asked, sidecar, sent = web.version, web.app.sidecar, list[Any]()

    async def passed_on(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("a plain look-up of a known topic is answered at once")

    async def receive() -> Message:
        raise AssertionError("the body came with the head")

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "raw_path": b"/v1/leaders",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        BODY: lambda: b'{"lookups":[{"topic":"orders","partition":0}]}',
    }
    table = cast("LookupTable", RefreshedMeanwhile(web))
    run(ReadyLeaders(passed_on, table, sidecar.admission, sidecar.http)(scope, receive, send))
    assert dict(sent[0]["headers"])[b"pilotfish-metadata-version"] == asked.encode()
    assert web.version != asked


JSON = (b"content-type", b"application/json")
LOOKUPS = b'{"lookups":[{"topic":"orders","partition":0},{"topic":"other","partition":0}]}'


@pytest.mark.parametrize(
    ("headers", "reads", "is_ready"),
    [
        ([JSON], ["orders", "other"], True),
        ([(b"content-type", b"application/json; charset=utf-8")], ["orders", "other"], True),
        ([(b"content-type", b"text/plain")], ["orders", "other"], False),
        ([(b"content-type", b"application/x-www-form-urlencoded")], ["orders", "other"], False),
        ([JSON, (b"content-encoding", b"br")], ["orders", "other"], False),
        ([JSON], ["orders"], False),
    ],
)
def test_what_a_route_would_refuse_is_left_to_the_route(
    headers: list[tuple[bytes, bytes]], reads: list[str], is_ready: bool
) -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3, "other": 3})
    sidecar, passed, statuses = web.app.sidecar, list[bytes](), list[int]()

    async def pass_on(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append((await receive())["body"])

    async def receive() -> Message:
        raise AssertionError("the body came with the head")

    async def send(message: Message) -> None:
        statuses.append(message.get("status", 0))

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "raw_path": b"/v1/leaders",
        "query_string": b"",
        "headers": headers,
        BODY: lambda: LOOKUPS,
    }
    set_caller(scope, Caller("shop", TopicRules(frozenset(reads)), TopicRules()))
    run(ReadyLeaders(pass_on, sidecar.table, sidecar.admission, sidecar.http)(scope, receive, send))
    assert passed == ([] if is_ready else [LOOKUPS])
    assert statuses[:1] == ([200] if is_ready else [])
    assert (sidecar.admission.requests, sidecar.admission.bytes) == (0, 0)
