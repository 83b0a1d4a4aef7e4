"""ASGI types and small functions, for the callables in front of FastAPI.

Header lists have uvicorn's form: pairs of bytes, names in lower case.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, NamedTuple

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
HeaderPairs = list[tuple[bytes, bytes]]

#: Scope key: the server's function that closes the connection without sending the remaining bytes.
ABORT: Final = "pilotfish.abort"

#: Scope key: our server's fast path for a complete response, see `Answer`. Remove it when you pass on another
#: `send`.
ANSWER: Final = "pilotfish.answer"

#: Writes a whole response: status, `header_lines` plus the empty line, and body. Returns False when it did
#: nothing; the caller then sends the response by ASGI.
Answer = Callable[[int, bytes, bytes], bool]


class Peer(NamedTuple):
    """The other end of a connection."""

    scheme: str
    client: tuple[str, int] | None
    is_unix: bool


#: Answers a GET with this target and these headers, which has no body, through an `Answer` without the fixed
#: lines of each response. Returns False, having done nothing, if the request must take the usual way.
AnswerAtOnce = Callable[[bytes, HeaderPairs, Peer, Answer], bool]

#: Scope key: our server's function that returns the body, once, if it has arrived, else None. Remove it when
#: you pass on another `receive`.
BODY: Final = "pilotfish.body"

Body = Callable[[], bytes | None]

#: Scope key: the headers by name, built on first use.
_BY_NAME: Final = "pilotfish.headers"

#: Scope key: the method that the caller sent, where `method` is another.
ASKED_METHOD: Final = "pilotfish.method"

#: Scope key: present when the request came over a Unix domain socket.
UNIX: Final = "pilotfish.unix"


def header_lines(headers: HeaderPairs) -> bytes:
    """Returns the header lines as bytes, for a response."""
    return b"".join([b"%s: %s\r\n" % pair for pair in headers])


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """Returns all values of this lower-case name, in order."""
    pairs: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value for own_name, value in pairs if own_name == name]


def has_body(scope: Scope) -> bool:
    """Returns whether the head announces a body, which may still be empty if its length is unknown."""
    length = header(scope, b"content-length")
    return header(scope, b"transfer-encoding") is not None if length is None else int(length) > 0


def header(scope: Scope, name: bytes) -> bytes | None:
    """Returns the value of this lower-case name, or None; joins repeated headers by commas (RFC 9110 5.3)."""
    by_name: dict[bytes, bytes] | None = scope.get(_BY_NAME)
    if by_name is None:
        pairs = scope["headers"]
        by_name = dict(pairs)
        if len(by_name) != len(pairs):
            by_name = {each: b", ".join(header_values(scope, each)) for each in by_name}
        scope[_BY_NAME] = by_name
    return by_name.get(name)


def forget_headers(scope: Scope) -> None:
    """Drops what `header` has kept. Call it after a change of the scope's headers."""
    scope.pop(_BY_NAME, None)


def base_of(scope: Scope) -> str:
    """Returns what absolute links to the sidecar begin with: the request's scheme and Host."""
    host = header(scope, b"host") or b"localhost"
    return f"{scope['scheme']}://{host.decode('latin-1')}"


def answer_at_once(scope: Scope, status: int, headers: HeaderPairs, body: bytes) -> bool:
    """Writes a whole response in one piece; returns False, having done nothing, where the server can't.

    A response with a Connection header goes through `send`: the server must see that it ends the connection.
    """
    answer: Answer | None = scope.get(ANSWER)
    if answer is None:
        return False
    for name, _ in headers:
        if name == b"connection":
            return False
    return answer(status, header_lines(headers) + b"\r\n", body)


class WatchedStatus:
    """Notes the status of a request's answer, whichever way it goes out. None until it begins."""

    def __init__(self, scope: Scope, send: Send) -> None:
        """Replaces the scope's `ANSWER`. Pass on `self.send` in place of `send`."""
        self.status: int | None = None
        self._send = send
        self._answer: Answer | None = scope.get(ANSWER)
        if self._answer is not None:
            scope[ANSWER] = self._answer_at_once

    async def send(self, message: Message) -> None:
        if message["type"] != "http.response.start":
            await self._send(message)
            return
        self.status = message["status"]
        await self._send(message)
        self.status = message["status"]  # `access.py` may send a refusal instead

    def _answer_at_once(self, status: int, head: bytes, body: bytes) -> bool:
        assert self._answer is not None
        is_written = self._answer(status, head, body)
        if is_written:
            self.status = status
        return is_written


async def respond(send: Send, status: int, headers: HeaderPairs, body: bytes) -> None:
    """Sends one whole response; the caller's headers must include content-length."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def respond_with(send: Send, status: int, media_type: bytes, body: bytes, headers: HeaderPairs) -> None:
    """Sends one whole response; puts content-type and content-length before the given headers."""
    own = [(b"content-type", media_type), (b"content-length", b"%d" % len(body))]
    await respond(send, status, own + headers, body)


# -- HEAD: what GET would answer, without the body (RFC 9110 section 9.3.2) ----------------------------------
#
# The request continues as a GET, so every readable path supports HEAD, prepared ones included. A streamed
# answer, such as a watch, ends after its head: its writer sees that the caller left.


def as_get(scope: Scope) -> Scope:
    """Returns the same request as a GET. The server keeps its own scope, and `method_of` it, with HEAD."""
    got = {**scope, "method": "GET", ASKED_METHOD: scope["method"]}
    got.pop(ANSWER, None)
    return got


def method_of(scope: Scope) -> str:
    """Returns the method that the caller sent, for metrics and spans."""
    method: str = scope.get(ASKED_METHOD, scope["method"])
    return method


def head_of(send: Send) -> Send:
    """Returns a `send` that passes the head of an answer and drops its body."""

    async def head_only(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b""})

    return head_only
