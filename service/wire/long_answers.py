"""Builds long JSON answers in slices, and sends them in pieces.

    slices    all long answers together take at most SLICE_S of an event loop turn, shared equally. An item
              that takes long must be divided by its producer
    pieces    the bytes are never joined: for 50 MB, join, hash and copy would take 100 ms. Length and ETag
              are known once the body is complete; they equal those of the joined body

A list that fits into one piece is answered like any other body. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

from fastapi import Response

from service.wire.asgi import HeaderPairs, Receive, Scope, Send
from service.wire.freshness import etag_digest, etag_of_digest
from service.wire.waiting import CallerGoneError

T = TypeVar("T")

#: Time per turn for all long answers together. Twice this is still harmless.
SLICE_S: Final = 0.004

#: Written to the connection at once: its buffer's high-water mark.
CHUNK_BYTES: Final = 64 * 1024

#: Names sorted at once: about half a millisecond.
_NAMES_AT_ONCE: Final = 2_000


class LongBody(NamedTuple):
    """A body in pieces, never joined."""

    chunks: tuple[bytes, ...]
    length: int
    etag: bytes

    @classmethod
    def of(cls, chunks: Sequence[bytes]) -> LongBody:
        """Returns a body from bytes in memory. Hashes them at once; `Slices.body` does not."""
        digest = etag_digest()
        for chunk in chunks:
            digest.update(chunk)
        return cls(tuple(chunks), sum(map(len, chunks)), etag_of_digest(digest))


class Slices:
    """Builds long answers in slices. One per app, so that all such work shares each turn."""

    def __init__(self) -> None:
        self._at_work = 0

    async def each(self, items: Iterable[T], take: Callable[[T], object]) -> None:
        """Draws the items one by one and calls `take` with each; yields to the event loop between slices."""
        self._at_work += 1
        try:
            ends_s = perf_counter() + SLICE_S / self._at_work
            for item in items:
                take(item)
                if perf_counter() >= ends_s:
                    await asyncio.sleep(0)
                    ends_s = perf_counter() + SLICE_S / self._at_work
        finally:
            self._at_work -= 1

    async def body(self, pieces: Iterable[bytes]) -> LongBody:
        """Joins the pieces into chunks, with length and ETag. An empty piece only lets other work run."""
        chunks: list[bytes] = []
        digest = etag_digest()
        gathered: list[bytes] = []
        gathered_bytes = length = 0

        def finish() -> None:
            nonlocal gathered_bytes, length
            chunk = b"".join(gathered)
            digest.update(chunk)
            chunks.append(chunk)
            length += len(chunk)
            gathered.clear()
            gathered_bytes = 0

        def take(piece: bytes) -> None:
            nonlocal gathered_bytes
            gathered.append(piece)
            gathered_bytes += len(piece)
            if gathered_bytes >= CHUNK_BYTES:
                finish()

        await self.each(pieces, take)
        finish()
        return LongBody(tuple(chunks), length, etag_of_digest(digest))

    async def sorted(self, names: Collection[str]) -> list[str]:
        """Returns the names in order: sorted in runs, then merged."""
        if len(names) <= _NAMES_AT_ONCE:
            return sorted(names)
        given: list[str] = list(names)
        starts = range(0, len(given), _NAMES_AT_ONCE)
        runs: list[list[str]] = []
        await self.each((sorted(given[at : at + _NAMES_AT_ONCE]) for at in starts), runs.append)
        merged: list[str] = []
        await self.each(heapq.merge(*runs), merged.append)
        return merged


def joined(items: Iterable[bytes]) -> Iterator[bytes]:
    """Yields a JSON array's items with commas, without brackets. An empty item only lets other work run."""
    comma = b""
    for item in items:
        if item:
            yield comma + item
            comma = b","
        else:
            yield item


class LongAnswer(Response):
    """A response of several pieces; yields to the event loop between them."""

    def __init__(self, status: int, headers: HeaderPairs, chunks: Sequence[bytes]) -> None:
        """`headers` must be complete, with content-length."""
        super().__init__(status_code=status)
        self.raw_headers = headers
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends as fast as the caller reads."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with contextlib.suppress(CallerGoneError):  # raised by `send`: the caller's token is no longer valid
            for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b""})
