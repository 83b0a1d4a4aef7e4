"""Records that come for as long as the caller likes, each answered as the brokers acknowledge it, in order.

The last object may be about the stream itself: 408 nothing came for too long, 503 the sidecar shuts down, 400
the brackets of the text don't match any more. What has no answer by then was not written. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import msgspec

from service.admission.drain import Drain
from service.admission.guards import CLOSE
from service.dialects.rest_v3.concatenated_json import ConcatenatedJson
from service.dialects.rest_v3.delivery_reports import SEPARATOR, Awaited, Reports
from service.dialects.rest_v3.errors import error_json
from service.dialects.rest_v3.posted_body import PIECE_BYTES, RECORDS_AT_ONCE, understand
from service.dialects.rest_v3.requests import SPACE, ToUtf8, empty_body
from service.produce.body_threads import BodyThreads, is_light
from service.produce.producing import Producing, RecordOutcome, Times
from service.produce.record_stream import IDLE, SHUTDOWN, RecordStream, converse
from service.wire.asgi import Receive
from service.wire.errors import Problem, refused
from service.wire.streaming import Outlet
from service.wire.strict_json import BodyError
from service.wire.waiting import CallerGoneError

#: A begun record that is shorter is not counted among what waits: it is still in a buffer of the connection.
_HELD_UNCOUNTED_BYTES: Final = 64 * 1024

#: What the last object says where the stream ended before its body.
_LAST_WORDS: Final = {
    IDLE: Problem(408, "nothing came for too long (stream_idle_timeout_ms): the stream ends"),
    SHUTDOWN: Problem(
        503, "the sidecar is shutting down: the stream ends, and what has no answer was not written"
    ),
}

_encode = msgspec.json.Encoder().encode


class _Piece(NamedTuple):
    """What one read brought, in UTF-8, and whether more may come."""

    body: bytes
    more: bool


_NOTHING_YET: Final = _Piece(b"", True)


class PostedStream:
    """What is read of one stream, and what is told. `stream` is put in before it begins."""

    stream: RecordStream

    def __init__(
        self,
        topic: str,
        reports: Reports,
        receive: Receive,
        to_utf8: ToUtf8,
        *,
        producing: Producing,
        body_threads: BodyThreads,
        drain: Drain,
        idle_timeout_ms: int,
        max_record_bytes: int,
    ) -> None:
        self._topic = topic
        self._reports = reports
        self._producing = producing
        self._body_threads = body_threads
        self._drain = drain
        self._idle_ms = idle_timeout_ms
        self._receive = receive
        self._to_utf8 = to_utf8
        self._records = ConcatenatedJson(max_record_bytes)
        #: What is to be said of each record that was put and not told of yet.
        self._awaited: deque[Awaited] = deque()
        #: The greatest partition that is named among those which are being put.
        self._partition: int | None = None
        #: What was read before the head of the answer went out.
        self._first = _NOTHING_YET

    def times(self) -> Times:
        """How long records may take that are submitted now."""
        return self._producing.dialect_times(self._topic, self._partition)

    async def begin(self) -> None:
        """Waits for the first byte that says anything.

        Raises ProblemError where none comes: 422 for an empty body, 408 after too long a wait, 503 in a
        shutdown; CallerGoneError where the caller leaves.
        """
        try:
            async with asyncio.timeout(self._idle_ms / 1000) as patience:
                with _called_at_drain(self._drain, partial(_end_now, patience)):
                    while self._first.more and not self._first.body.strip(SPACE):
                        self._first = await self._next()
        except TimeoutError as e:
            if self._drain.begun:
                raise refused(503, "the sidecar is shutting down", CLOSE, retriable=True) from e
            raise refused(408, f"no record came within {self._idle_ms} ms", CLOSE, retriable=True) from e
        if not self._first.body.strip(SPACE):
            raise empty_body()

    async def converse(self, outlet: Outlet) -> None:
        """Reads and tells until the end, and says why where that is not the body's own.

        Raises CallerGoneError.
        """
        await converse(self.stream, self._drain, self._receive, self._read, partial(self._report, outlet))
        last = _LAST_WORDS.get(self.stream.ended or "")
        if last is not None:
            await outlet.write(_encode(error_json(last)) + SEPARATOR)

    # -- reading ---------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        piece, self._first = self._first, _NOTHING_YET
        while True:
            await self._take(piece)
            if not piece.more or self._records.is_broken:
                return
            try:
                async with asyncio.timeout(self._idle_ms / 1000):
                    piece = await self._next()
            except TimeoutError:
                self.stream.finish(IDLE)
                return

    async def _next(self) -> _Piece:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise CallerGoneError("the caller closed the connection within its stream")
        return _Piece(self._to_utf8(message.get("body", b"")), message.get("more_body", False))

    async def _take(self, piece: _Piece) -> None:
        """Puts what is whole, others having their turn between; counts what is not."""
        for start in range(0, len(piece.body), PIECE_BYTES):
            found = self._records.feed(piece.body[start : start + PIECE_BYTES])
            for first in range(0, len(found), RECORDS_AT_ONCE):
                await self._put(found[first : first + RECORDS_AT_ONCE])
                await asyncio.sleep(0)
        if not piece.more:
            await self._put(self._records.end())
        await self._count_what_is_held()

    async def _put(self, found: Sequence[bytes | BodyError]) -> None:
        if not found:
            return
        read = partial(understand, self._topic, found)
        is_heavy = not all(isinstance(one, BodyError) or is_light(one) for one in found)
        items, awaited = await self._body_threads.do(read) if is_heavy else read()
        self._awaited += awaited
        self._partition = max((one.partition for one in awaited if one.partition is not None), default=None)
        await self.stream.put(items, sum(len(one) for one in found if isinstance(one, bytes)))

    async def _count_what_is_held(self) -> None:
        """Counts a long record that has begun; where there is no room for it, it fails, and others go on."""
        held_bytes = self._records.held_bytes
        problem = await self.stream.hold(held_bytes if held_bytes > _HELD_UNCOUNTED_BYTES else 0)
        if problem is not None:
            self._records.pass_over()
            self._awaited.append(Awaited())
            await self.stream.put([problem], 0)

    # -- telling ---------------------------------------------------------------------------------------------

    async def _report(self, outlet: Outlet, outcomes: Sequence[tuple[int, RecordOutcome]]) -> None:
        reports = [_encode(self._reports.of(self._awaited.popleft(), outcome)) for _, outcome in outcomes]
        await outlet.write(SEPARATOR.join([*reports, b""]))


@contextmanager
def _called_at_drain(drain: Drain, listener: Callable[[], None]) -> Iterator[None]:
    drain.listen(listener)
    try:
        yield
    finally:
        drain.leave(listener)


def _end_now(patience: asyncio.Timeout) -> None:
    if not patience.expired():
        patience.reschedule(0)
