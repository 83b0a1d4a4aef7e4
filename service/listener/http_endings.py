"""How an answer ends its connection: after a refusal, and where it comes before the request's body was read.

RFC 9112 section 9.6: who closes while something is still coming resets the connection, and the caller may
never read the answer. RFC 9110 section 10.1.1: who waits to be asked for its body (Expect) and gets an
answer may send the body or not, and nobody could tell whether what comes next is that body or another
request. Event loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from service.wire.asgi import HeaderPairs, Message, Receive, Scope, Send, header_lines
from service.wire.errors import PROBLEM_TYPE, Problem

if TYPE_CHECKING:
    import asyncio

    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


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
