"""A stream of records of any length, each answered once acknowledged, in order.

The last object may concern the stream itself: 408 idle for too long, 503 the sidecar shuts down, 400 the
brackets do not match. Records without an answer by then were not written. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from service.admission.guards import CLOSE
from service.dialects.rest_v3.concatenated_json import ConcatenatedJson
from service.dialects.rest_v3.delivery_reports import SEPARATOR, Awaited, Reports
from service.dialects.rest_v3.errors import error_json
from service.dialects.rest_v3.posted_body import PIECE_BYTES, RECORDS_AT_ONCE, understand
from service.dialects.rest_v3.requests import SPACE, ToUtf8, empty_body
from service.produce.body_threads import is_light
from service.produce.producing import RecordOutcome, Times
from service.produce.record_stream import IDLE, SHUTDOWN, RecordStream, converse
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import Receive
from service.wire.errors import Problem, refused
from service.wire.streaming import Outlet
from service.wire.strict_json import BodyError
from service.wire.waiting import CallerGoneError

#: A shorter incomplete record is not counted as waiting: the connection's buffer still holds it.
_HELD_UNCOUNTED_BYTES: Final = 64 * 1024

#: The last object of a stream that ended before its body.
_LAST_WORDS: Final = {
    IDLE: Problem(408, "no data arrived for stream_idle_timeout_ms: the stream ends"),
    SHUTDOWN: Problem(
        503, "the sidecar is shutting down: the stream ends; records without an answer were not written"
    ),
}

_encode = msgspec.json.Encoder().encode


class _Piece(NamedTuple):
    """One read's input in UTF-8, and whether more may follow."""

    body: bytes
    more: bool


_NOTHING_YET: Final = _Piece(b"", True)


class PostedStream:
    """Reads one stream and writes its reports. Set `stream` before it begins."""

    stream: RecordStream

    def __init__(
        self, topic: str, reports: Reports, receive: Receive, to_utf8: ToUtf8, sidecar: Sidecar
    ) -> None:
        self._topic = topic
        self._reports = reports
        self._producing = sidecar.producing
        self._body_threads = sidecar.body_threads
        self._drain = sidecar.drain
        self._idle_ms = sidecar.settings.stream_idle_timeout_ms
        self._receive = receive
        self._to_utf8 = to_utf8
        self._records = ConcatenatedJson(sidecar.settings.stream_line_bytes)
        #: The report data of each submitted record without a report.
        self._awaited: deque[Awaited] = deque()
        #: The greatest partition named in the current submit.
        self._partition: int | None = None
        #: Input read before the answer's head was sent.
        self._first = _NOTHING_YET
        #: When the last read ended.
        self._read_ms = 0

    def times(self) -> Times:
        """Returns the time limits of records submitted now."""
        return self._producing.dialect_times(self._topic, self._partition, since_ms=self._read_ms)

    async def begin(self) -> None:
        """Waits for the first byte that is not white space.

        Raises ProblemError if none comes: 422 for an empty body, 408 when idle for too long, 503 in a
        shutdown. Raises CallerGoneError if the caller leaves.
        """
        try:
            async with asyncio.timeout(self._idle_ms / 1000) as patience:
                with self._drain.ending(patience):
                    while self._first.more and not self._first.body.strip(SPACE):
                        self._first = await self._next()
        except TimeoutError as e:
            if self._drain.begun:
                raise refused(503, "the sidecar is shutting down", CLOSE, retriable=True) from e
            raise refused(408, f"no record came within {self._idle_ms} ms", CLOSE, retriable=True) from e
        if not self._first.body.strip(SPACE):
            raise empty_body()

    async def converse(self, outlet: Outlet) -> None:
        """Reads and reports until the end; adds the reason if the stream ended before its body.

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
            del piece  # an idle stream must not hold it
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
        self._read_ms = self.stream.now_ms()
        return _Piece(self._to_utf8(message.get("body", b"")), message.get("more_body", False))

    async def _take(self, piece: _Piece) -> None:
        """Submits complete records, yielding between slices; counts an incomplete one."""
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
        body_bytes = sum(len(one) for one in found if isinstance(one, bytes))
        await self.stream.put(items, body_bytes, self._read_ms)

    async def _count_what_is_held(self) -> None:
        """Counts a long incomplete record; without memory for it, it fails, and later records continue."""
        held_bytes = self._records.held_bytes
        problem = await self.stream.hold(held_bytes if held_bytes > _HELD_UNCOUNTED_BYTES else 0)
        if problem is not None:
            self._records.pass_over()
            self._awaited.append(Awaited())
            await self.stream.put([problem], 0, self._read_ms)

    # -- reporting -------------------------------------------------------------------------------------------

    async def _report(self, outlet: Outlet, outcomes: Sequence[tuple[int, RecordOutcome]]) -> None:
        reports = [_encode(self._reports.of(self._awaited.popleft(), outcome)) for _, outcome in outcomes]
        await outlet.write(SEPARATOR.join([*reports, b""]))
