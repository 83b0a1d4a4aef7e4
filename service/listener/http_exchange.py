"""Checks a request's head: target, transfer coding, upgrade offer. Ends connections safely.

    /path?query          as it is
    http://host/path     the path; the host replaces Host (RFC 9112 section 3.2.2)
    *                    with OPTIONS only
    anything else        400: a fragment, for example, would be dropped silently
    Transfer-Encoding    chunked, or 501: the body would be misread
    HTTP/2.0, HTTP/0.9   505

The head checks are pure. `http_protocol.py` calls them in the parser's callbacks, and RefusedError stops the
parser.

An answer ends its connection after a refusal, or when it comes before the body was read. RFC 9112 section
9.6: closing while data still arrives resets the connection, and the caller may never read the answer. RFC
9110 section 10.1.1: a caller that sent Expect and gets a final answer may or may not send the body. The next
bytes could then be that body or another request. Event loop only.
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

    from httptools import HttpParserCallbackError
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


#: More than any key or list of topics needs.
MAX_TARGET_BYTES: Final = 32 * 1024

#: Headers of an upgrade offer, and the Connection options that name them.
_OFFER: Final = frozenset({b"upgrade", b"http2-settings"})

#: `http://host:port/path?query`, without userinfo, which is not allowed.
_ABSOLUTE: Final = re.compile(rb"https?://([^/?@]+)(/[^?]*)?(\?.*)?", re.IGNORECASE)

NO_URL: Final = Problem(400, "not HTTP/1.1: the target is not a URL", written="no")
TOO_LONG: Final = Problem(414, f"the target is longer than {MAX_TARGET_BYTES} bytes", written="no")
TOO_MANY_LARGE: Final = Problem(
    429,
    "the headers of unanswered requests take too much memory; send fewer or shorter ones, or try again",
    retriable=True,
    written="no",
    headers=((b"retry-after", b"1"),),
)
_FRAGMENT: Final = Problem(400, "not HTTP/1.1: the target has a fragment (#)", written="no")
_VERSIONS: Final = frozenset({"1.0", "1.1"})
_VERSION: Final = Problem(505, "only HTTP/1.1 and HTTP/1.0 are served", written="no")
_CODING: Final = Problem(501, "Transfer-Encoding: only chunked is served", written="no")


NOTHING_ADDED: Final[HeaderPairs] = []


def spelled(problem: Problem, added: HeaderPairs = NOTHING_ADDED) -> bytes:
    """Returns a whole response that ends its connection; `added` are further headers."""
    body = problem.body()
    status = HTTPStatus(problem.status)
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    headers = b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n" % (PROBLEM_TYPE, len(body))
    return head + headers + header_lines([*problem.headers, *added]) + b"\r\n" + body


class LingeringTransport:
    """uvicorn's view of the transport while a request is incomplete; `close` may linger."""

    __slots__ = ("close", "is_closing", "write")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close


def closing_if_not_asked_for(app: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """Returns the application for a caller with Expect.

    The connection closes after the answer, unless the application asked for the body.
    """

    async def closing(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if cycle.waiting_for_100_continue:
                cycle.keep_alive = False
            await send(message)

        await app(scope, receive, sent)  # type: ignore[arg-type]  # uvicorn's types of the same

    return closing  # type: ignore[return-value]


def without_chunks(app: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """Returns the application for an HTTP/1.0 caller.

    An answer without Content-Length ends with its connection. uvicorn would send chunks, which such a caller
    takes for content (RFC 9112 section 6.1).
    """

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        is_endless = False

        async def sent(message: Message) -> None:
            nonlocal is_endless
            if message["type"] == "http.response.start":
                is_endless = all(name != b"content-length" for name, _ in message["headers"])
                if is_endless:
                    cycle.chunked_encoding = False
            elif is_endless:
                cycle.expected_content_length = len(message.get("body", b""))  # uvicorn counts down to 0
            await send(message)

        await app(scope, receive, sent)  # type: ignore[arg-type]  # uvicorn's types of the same

    return whole  # type: ignore[return-value]


class RefusedError(Exception):
    """Stops reading from a connection."""

    def __init__(self, problem: Problem | None) -> None:
        """`problem` is None if the input is fine, but no more is read."""
        self.problem = problem


def problem_within(error: HttpParserCallbackError) -> Problem | None:
    """Returns the problem that a callback raised: ours, or uvicorn's for an unparsable target."""
    cause = error.__context__
    return cause.problem if isinstance(cause, RefusedError) else NO_URL


def check_version(version: str) -> None:
    """Raises RefusedError for HTTP/2.0 and 0.9. The parser accepts these and 1.x, and refuses all others."""
    if version not in _VERSIONS:
        raise RefusedError(_VERSION)


def settled(target: bytes, method: bytes, headers: HeaderPairs) -> bytes:
    """Returns the path and query of an unusual target; a host in it replaces the Host header.

    Raises RefusedError.
    """
    if len(target) > MAX_TARGET_BYTES:
        raise RefusedError(TOO_LONG)
    if b"#" in target:
        raise RefusedError(_FRAGMENT)
    if method == b"CONNECT" or (method == b"OPTIONS" and target == b"*"):
        return target  # refused later, elsewhere
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise RefusedError(NO_URL)
    authority, path, query = absolute.groups(b"")
    # In place: the scope already holds this list.
    headers[:] = [(b"host", authority), *(pair for pair in headers if pair[0] != b"host")]
    return (path or b"/") + query


def check_coding(headers: HeaderPairs) -> None:
    """Raises RefusedError for any transfer coding but chunked."""
    for name, value in headers:
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            raise RefusedError(_CODING)


def without_offer(method: bytes, target: bytes, version: str, headers: HeaderPairs) -> bytes:
    """Returns the same head without the upgrade offer."""
    lines = [b"%s %s HTTP/%s" % (method, target, version.encode())]
    for name, value in headers:
        if name == b"connection":
            words = [word.strip() for word in value.split(b",")]
            value = b", ".join(word for word in words if word.lower() not in _OFFER)
            if not value:
                continue
        if name not in _OFFER:
            lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
