"""The head of a request, judged when it is complete: its target, its coding, its offer to upgrade. Pure.

    /path?query          as it is
    http://host/path     the path, and the host instead of Host (RFC 9112 section 3.2.2)
    *                    with OPTIONS only
    anything else        400: a fragment, for one, would be dropped silently
    Transfer-Encoding    chunked, or 501: the body would be taken for what it is not

Who calls: `http_protocol.py`, within the parser's callbacks, which it ends by RefusedError.

How an answer ends its connection: after a refusal, and where it comes before the request's body was read.

RFC 9112 section 9.6: who closes while something is still coming resets the connection, and the caller may
never read the answer. RFC 9110 section 10.1.1: who waits to be asked for its body (Expect) and gets an
answer may send the body or not, and nobody could tell whether what comes next is that body or another
request. Event loop only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from service.wire.asgi import HeaderPairs, Message, Receive, Scope, Send, header_lines
from service.wire.errors import PROBLEM_TYPE, Problem

if TYPE_CHECKING:
    import asyncio

    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


#: A target that no key and no list of topics needs.
MAX_TARGET_BYTES: Final = 32 * 1024

#: What belongs to the offer of another protocol; the words of Connection that speak of it too.
_OFFER: Final = frozenset({b"upgrade", b"http2-settings"})

#: `http://host:port/path?query`, without the userinfo that must not be there.
_ABSOLUTE: Final = re.compile(rb"https?://([^/?@]+)(/[^?]*)?(\?.*)?", re.IGNORECASE)

NO_URL: Final = Problem(400, "not HTTP/1.1: the target is no URL", written="no")
TOO_LONG: Final = Problem(414, f"the target is longer than {MAX_TARGET_BYTES} bytes", written="no")
_FRAGMENT: Final = Problem(400, "not HTTP/1.1: the target has a fragment (#)", written="no")
_CODING: Final = Problem(501, "Transfer-Encoding: only chunked is served", written="no")


NOTHING_ADDED: Final[HeaderPairs] = []


def spelled(problem: Problem, added: HeaderPairs = NOTHING_ADDED) -> bytes:
    """A whole response, for a connection that ends with it; `added` are further headers."""
    body = problem.body()
    status = HTTPStatus(problem.status)
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    headers = b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n" % (PROBLEM_TYPE, len(body))
    return head + headers + header_lines(added) + b"\r\n" + body


class LingeringTransport:
    """What uvicorn needs of a transport, for a request with a body; `close` may take its time."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


def closing_if_not_asked_for(app: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """The same application, for a caller who waits to be asked for its body; unasked, it is not kept."""

    async def closing(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if cycle.waiting_for_100_continue:
                cycle.keep_alive = False
            await send(message)

        await app(scope, receive, sent)  # type: ignore[arg-type]  # uvicorn's types of the same

    return closing  # type: ignore[return-value]


class RefusedError(Exception):
    """Ends the reading of a connection."""

    def __init__(self, problem: Problem | None) -> None:
        """None: nothing is wrong with what came, but no more is read."""
        self.problem = problem
        super().__init__()


def settled(target: bytes, method: bytes, headers: HeaderPairs) -> bytes:
    """The path and query of a target that is more than that; its host, if any, becomes that of the headers.

    Raises RefusedError.
    """
    if len(target) > MAX_TARGET_BYTES:
        raise RefusedError(TOO_LONG)
    if b"#" in target:
        raise RefusedError(_FRAGMENT)
    if method == b"CONNECT" or (method == b"OPTIONS" and target == b"*"):
        return target  # to be refused by others
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise RefusedError(NO_URL)
    authority, path, query = absolute.groups(b"")
    # In place: the scope has this list already.
    headers[:] = [(b"host", authority), *(pair for pair in headers if pair[0] != b"host")]
    return (path or b"/") + query


def check_coding(headers: HeaderPairs) -> None:
    """Raises RefusedError for a body that is more than chunked."""
    for name, value in headers:
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            raise RefusedError(_CODING)


def without_offer(method: bytes, target: bytes, version: str, headers: HeaderPairs) -> bytes:
    """The head again, as if it had not offered to speak something else."""
    lines = [b"%s %s HTTP/%s" % (method, target, version.encode())]
    for name, value in headers:
        if name == b"connection":
            words = [word.strip() for word in value.split(b",")]
            value = b", ".join(word for word in words if word.lower() not in _OFFER)
        if name not in _OFFER and value:
            lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
