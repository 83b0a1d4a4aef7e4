"""ASGI in three types and four small functions, for the callables that stand in front of FastAPI.

A header list is what uvicorn hands in and takes: pairs of bytes, names in lower case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
HeaderPairs = list[tuple[bytes, bytes]]

#: Where in a scope the server leaves a way to end the connection without waiting for its last bytes.
ABORT: Final = "pilotfish.abort"

#: Where a server of ours leaves a short way out for an answer that lies ready as bytes: see `Answer`. Whoever
#: hands on another `send` than it was given takes this out.
ANSWER: Final = "pilotfish.answer"

#: Writes a whole response: its status, its `header_lines` with the empty line behind them, and its body.
#: False: nothing was done, and it is to be sent as ASGI has it.
Answer = Callable[[int, bytes, bytes], bool]

#: Where a server of ours says whether a request's body is here already: a function that gives it, once, or
#: None. Whoever hands on another `receive` than it was given takes this out.
BODY: Final = "pilotfish.body"

Body = Callable[[], bytes | None]

#: A request's headers by their names, made when the first is asked for.
_BY_NAME: Final = "pilotfish.headers"

#: There in a scope whose request came over a Unix domain socket.
UNIX: Final = "pilotfish.unix"


def header_lines(headers: HeaderPairs) -> bytes:
    """Headers as they stand in a response."""
    return b"".join([b"%s: %s\r\n" % pair for pair in headers])


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """The headers of that lower-case name, in order."""
    pairs: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value for own_name, value in pairs if own_name == name]


def header(scope: Scope, name: bytes) -> bytes | None:
    """The header of that lower-case name. One that is given twice is a list (RFC 9110 section 5.3)."""
    by_name: dict[bytes, bytes] | None = scope.get(_BY_NAME)
    if by_name is None:
        pairs = scope["headers"]
        by_name = dict(pairs)
        if len(by_name) != len(pairs):
            by_name = {each: b", ".join(header_values(scope, each)) for each in by_name}
        scope[_BY_NAME] = by_name
    return by_name.get(name)


def answer_at_once(scope: Scope, status: int, headers: HeaderPairs, body: bytes) -> bool:
    """Writes one whole response in one piece where the server can; False: nothing was done, see `respond`.

    One that ends the connection is the server's to send: it has to know.
    """
    answer: Answer | None = scope.get(ANSWER)
    if answer is None or any(name == b"connection" for name, _ in headers):
        return False
    return answer(status, header_lines(headers) + b"\r\n", body)


async def respond(send: Send, status: int, headers: HeaderPairs, body: bytes) -> None:
    """One whole response; its content-length is the caller's to have among the headers."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def respond_with(send: Send, status: int, media_type: bytes, body: bytes, headers: HeaderPairs) -> None:
    """One whole response, its type and length put in front of the given headers."""
    own = [(b"content-type", media_type), (b"content-length", b"%d" % len(body))]
    await respond(send, status, own + headers, body)


# -- HEAD: what GET would answer, without the body (RFC 9110 section 9.3.2) ----------------------------------
#
# The request goes on as a GET, so that every path that can be read knows HEAD, the prepared ones included. An
# answer that goes on, such as a watch, ends with its head too: its writer finds that the caller has left.


def as_get(scope: Scope) -> Scope:
    """The same request as a GET. The server keeps its own, which says HEAD."""
    got = {**scope, "method": "GET"}
    got.pop(ANSWER, None)
    return got


def head_of(send: Send) -> Send:
    """Sends the head of an answer and nothing that comes after it."""

    async def head_only(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})

    return head_only
