"""The line of a request: its time, and its status where the application fails or its caller leaves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from service.base.logs import ACCESS_LOG, FIELDS
from service.listener.access_log import AccessLogged
from service.wire.asgi import Peer, respond
from service.wire.waiting import CALLER_GONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.wire.asgi import Answer, HeaderPairs, Receive, Scope, Send

SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/v1/leaders",
    "query_string": b"",
    "headers": [],
    "http_version": "1.1",
    "client": ("10.0.0.7", 4711),
}


class Lines(logging.Handler):
    """Keeps the text and the fields of each line."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []
        self.fields: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.fields.append(getattr(record, FIELDS))


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, level = Lines(), ACCESS_LOG.level
    ACCESS_LOG.addHandler(handler)
    ACCESS_LOG.setLevel(logging.INFO)
    yield handler
    ACCESS_LOG.setLevel(level)
    ACCESS_LOG.removeHandler(handler)


def clock(*times_s: float) -> Any:
    """Returns these times, one at each call."""
    return iter(times_s).__next__


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 200, [], b"")


async def fails(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("a bug")


async def is_silent(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()


async def nothing(*_: object) -> Any:
    return {"type": "http.disconnect"}


async def test_a_request_is_timed_to_a_microsecond(lines: Lines) -> None:
    await AccessLogged(ok, clock(5.0, 5.0004123))(SCOPE, nothing, nothing)
    assert lines.fields == [{"method": "POST", "path": "/v1/leaders", "status": 200, "duration_ms": 0.412}]


async def test_an_application_that_fails_goes_on_failing_with_a_line_of_500(lines: Lines) -> None:
    with pytest.raises(ValueError, match="a bug"):
        await AccessLogged(fails, clock(5.0, 6.0))(SCOPE, nothing, nothing)
    assert [line["status"] for line in lines.fields] == [500]


async def test_a_request_whose_caller_left_has_a_line(lines: Lines) -> None:
    await AccessLogged(is_silent, clock(5.0, 6.0))(SCOPE, nothing, nothing)
    assert [line["status"] for line in lines.fields] == [CALLER_GONE]


async def test_what_is_no_request_has_no_line(lines: Lines) -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await AccessLogged(app)({"type": "lifespan"}, nothing, nothing)
    assert (seen, lines.fields) == (["lifespan"], [])


@pytest.mark.parametrize("is_ready", [True, False])
def test_what_is_answered_at_once_has_its_line_at_once(lines: Lines, is_ready: bool) -> None:
    def ready(target: bytes, headers: HeaderPairs, peer: Peer, write: Answer) -> bool:
        return is_ready and write(304, b"", b"")

    logged = AccessLogged(ok, clock(5.0, 5.001)).at_once(ready)
    peer = Peer("http", ("10.0.0.7", 4711), False)
    assert logged(b"/v1/topics/a?x=1", [], peer, lambda code, head, body: True) is is_ready
    expected = {"method": "GET", "path": "/v1/topics/a", "status": 304, "duration_ms": 1.0}
    assert lines.fields == ([expected] if is_ready else [])
    assert lines.texts == (['10.0.0.7:4711 - "GET /v1/topics/a?x=1 HTTP/1.1" 304'] if is_ready else [])
