"""Long answers: JSON that is made in slices, between which others have their turn, and sent in pieces.

    slices    work on all long answers together takes at most SLICE_S of a turn of the event loop: of several
              that are made at a time each has its part. An item that takes long is its maker's to divide
    pieces    the bytes are never put together: a body of 50 MB would take 100 ms to join, hash and copy. Its
              length and its ETag are known when it is whole, so they are the same as those of one piece

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

#: What the making of long answers takes of one turn, all of them together. Twice as long still harms nobody.
SLICE_S: Final = 0.004

#: What is handed to the connection at once: as much as it holds before it says that it has enough.
CHUNK_BYTES: Final = 64 * 1024

#: Names that are sorted at once: about half a millisecond.
_NAMES_AT_ONCE: Final = 2_000


class LongBody(NamedTuple):
    """A body in pieces, which is never put together."""

    chunks: tuple[bytes, ...]
    length: int
    etag: bytes

    @classmethod
    def of(cls, chunks: Sequence[bytes]) -> LongBody:
        """Of bytes that are there. Hashes them at once: `Slices.body` does not."""
        digest = etag_digest()
        for chunk in chunks:
            digest.update(chunk)
        return cls(tuple(chunks), sum(map(len, chunks)), etag_of_digest(digest))


class Slices:
    """What is made in slices at this moment. One for an app, so that all of its work shares each turn."""

    def __init__(self) -> None:
        self._at_work = 0

    async def each(self, items: Iterable[T], take: Callable[[T], object]) -> None:
        """Draws the items one by one and takes each; others have their turn in between."""
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
        """The pieces in chunks, with their length and ETag. An empty piece is a place to let others on."""
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
        """The names in order: sorted in runs, which are then merged."""
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
    """The items of a JSON array without its brackets. An empty one is no item, and lets others on."""
    comma = b""
    for item in items:
        if item:
            yield comma + item
            comma = b","
        else:
            yield item


class LongAnswer(Response):
    """A response of several pieces, between which others have their turn."""

    def __init__(self, status: int, headers: HeaderPairs, chunks: Sequence[bytes]) -> None:
        """The headers are whole, content-length among them."""
        super().__init__(status_code=status)
        self.raw_headers = headers
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends as fast as the caller takes it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        with contextlib.suppress(CallerGoneError):  # its token was withdrawn: nobody is left to end it for
            for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b""})
