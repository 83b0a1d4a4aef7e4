"""gzip over HTTP: packs long answers, and unpacks bodies.

    answers   a builder marks an answer above LONG_BYTES with `Vary: Accept-Encoding` (`vary_of`). If the
              caller accepts gzip, the marked answer is packed, and its ETag gets a suffix: an ETag per
              encoding. A caller's If-None-Match loses the suffix, so that routes know only their own ETags
    bodies    unpacked in pieces of PIECE_BYTES as they are read, so that the limits of a body hold for what
              comes out, and nothing is in memory before they are checked

Both yield to the event loop between pieces. Streams are neither packed nor unpacked, and answers to HTTP/1.0
are not packed. Event loop only. Source: RFC 9110 sections 8.4, 8.8.3 and 12.5.3; RFC 1952.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, Final

from service.wire.asgi import ANSWER, Answer, HeaderPairs, Message, Receive, Scope, Send, forget_headers
from service.wire.errors import WHOLE_BODY, ProblemError, refused

#: Shorter answers are never packed: one or two packets carry them.
LONG_BYTES: Final = 8 * 1024

#: Packed or unpacked at once: a third of a millisecond.
PIECE_BYTES: Final = 64 * 1024

VARY: Final = (b"vary", b"Accept-Encoding")
_PACKED: Final = (b"content-encoding", b"gzip")
#: Its names, in lower case (RFC 9110, 8.4.1.3).
GZIP: Final = frozenset({b"gzip", b"x-gzip"})

#: JSON becomes an eighth of its size at this level; level 6 would take three times as long for a tenth.
_LEVEL: Final = 1
#: The window of zlib, with gzip's head and checksum.
_GZIP: Final = 31

_SUFFIX: Final = b'-gzip"'


def vary_of(length: int) -> HeaderPairs:
    """Returns the mark of an answer that may be packed, for a body of this length."""
    return [VARY] if length > LONG_BYTES else []


@lru_cache(maxsize=64)
def accepts_gzip(accepted: bytes) -> bool:
    """Returns whether Accept-Encoding allows gzip: by name, or by `*` if it is not named."""
    by_star = False
    for part in accepted.lower().split(b","):
        coding, _, parameters = part.partition(b";")
        weight = parameters.replace(b" ", b"").partition(b"q=")[2]
        allows = weight.strip(b"0.") != b"" or weight == b""
        if coding.strip() in GZIP:
            return allows
        by_star = by_star or (coding.strip() == b"*" and allows)
    return by_star


def packing(scope: Scope, send: Send) -> Send:
    """Returns a `send` that packs marked answers, for a caller that accepts gzip.

    Also changes the scope: the server's fast way takes short answers only, and If-None-Match loses the
    suffix.
    """
    held = b""
    for name, value in scope["headers"]:
        if name == b"if-none-match" and _SUFFIX in value:
            held += value
    if held:
        scope["headers"] = [
            (name, value.replace(_SUFFIX, b'"') if name == b"if-none-match" else value)
            for name, value in scope["headers"]
        ]
        forget_headers(scope)
        scope.pop(ANSWER, None)  # a 304 needs the suffix, too
    answer: Answer | None = scope.get(ANSWER)
    if answer is not None:
        at_once = answer
        scope[ANSWER] = lambda status, head, body: len(body) <= LONG_BYTES and at_once(status, head, body)
    return _Packing(send, held, is_head=scope["method"] == "HEAD").send


class _Packing:
    """The answer to one request."""

    __slots__ = ("_held", "_is_head", "_packer", "_send", "_start")

    def __init__(self, send: Send, held: bytes, *, is_head: bool) -> None:
        """`held`: the values of If-None-Match with a suffix."""
        self._send = send
        self._held = held
        self._is_head = is_head
        self._start: Message | None = None
        self._packer: Any = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: HeaderPairs = message.get("headers", [])
            if message["status"] == 304:
                if self._held:
                    message["headers"] = [_with_suffix(pair, self._held) for pair in headers]
            elif VARY in headers and self._is_head:
                message = _packed(message, None)
            elif VARY in headers:
                self._start = message  # how it goes on depends on the body
                return
            await self._send(message)
        elif self._start is None and self._packer is None:
            await self._send(message)
        else:
            await self._pack(message)

    async def _pack(self, message: Message) -> None:
        body: bytes = message.get("body", b"")
        is_last = not message.get("more_body", False)
        if self._start is not None:
            start, self._start = self._start, None
            if is_last and len(body) <= PIECE_BYTES:
                packed = zlib.compress(body, _LEVEL, _GZIP)
                await self._send(_packed(start, len(packed)))
                await self._send({"type": "http.response.body", "body": packed})
                return
            await self._send(_packed(start, None))
            self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        for at in range(0, len(body), PIECE_BYTES):
            packed = self._packer.compress(body[at : at + PIECE_BYTES])
            if packed:
                await self._send({"type": "http.response.body", "body": packed, "more_body": True})
            await asyncio.sleep(0)
        if is_last:
            await self._send({"type": "http.response.body", "body": self._packer.flush()})


def _packed(start: MutableMapping[str, Any], length: int | None) -> Message:
    """Returns the start of the packed answer; without a length it is sent in chunks."""
    headers = [_with_suffix(pair, b"") for pair in start["headers"] if pair[0] != b"content-length"]
    headers.append(_PACKED)
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    return {**start, "headers": headers}


def _with_suffix(pair: tuple[bytes, bytes], held: bytes) -> tuple[bytes, bytes]:
    """Returns an ETag with the suffix, if it is among those that the caller holds, or if none is given."""
    if pair[0] != b"etag":
        return pair
    suffixed = pair[1][:-1] + _SUFFIX
    return (b"etag", suffixed) if not held or suffixed in held else pair


# -- bodies --------------------------------------------------------------------------------------------------


def without_coding(scope: Scope) -> None:
    """Takes gzip off the head of a request whose body is unpacked: its length is not known any more."""
    scope["headers"] = [
        pair for pair in scope["headers"] if pair[0] not in (b"content-encoding", b"content-length")
    ]
    if not any(name == b"transfer-encoding" for name, _ in scope["headers"]):
        scope["headers"].append((b"transfer-encoding", b"chunked"))
    forget_headers(scope)


def unpacking(receive: Receive) -> Receive:
    """Returns a `receive` of the unpacked body. Raises ProblemError (400) if it is no gzip."""
    return _Unpacking(receive).receive


class _Unpacking:
    """The body of one request."""

    __slots__ = ("_has_ended", "_more", "_packed", "_receive", "_unpacker")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._unpacker = zlib.decompressobj(_GZIP)
        self._packed = b""
        self._more = True
        self._has_ended = False

    async def receive(self) -> Message:
        while True:
            if self._packed:
                piece = self._piece()
                if piece:
                    await asyncio.sleep(0)
                    return {"type": "http.request", "body": piece, "more_body": True}
            elif self._more:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._packed = message.get("body", b"")
                self._more = message.get("more_body", False)
            elif not self._has_ended:
                if not self._unpacker.eof:
                    raise _no_gzip("it ends early")
                self._has_ended = True
                return {"type": "http.request", "body": b"", "more_body": False}
            else:
                return await self._receive()

    def _piece(self) -> bytes:
        if self._unpacker.eof:
            raise _no_gzip("bytes follow its end")
        try:
            piece = self._unpacker.decompress(self._packed, PIECE_BYTES)
        except zlib.error as e:
            raise _no_gzip(str(e)) from e
        self._packed = self._unpacker.unconsumed_tail or self._unpacker.unused_data
        # More may be in the unpacker; it comes with the next bytes, because a checksum follows all of it.
        return piece


def _no_gzip(why: str) -> ProblemError:
    return refused(400, f"is not a single gzip member: {why}", place=WHOLE_BODY)
