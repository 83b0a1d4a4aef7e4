"""Serves application/x-ndjson on the native produce path: record lines in, outcome lines out.

    in    {"key":"customer-7","value":{"total":12.5}}
    out   {"index":0,"partition":3,"offset":17,"timestamp":1700000000000}
    last  {"summary":{"records":1,"acknowledged":1,"failed":0,"ended":"complete"}}

A fault in the head gets an ordinary problem document. Later the status is already sent, so each fault is
reported in the line of its record, also that of an unreadable or too long line. A stream without its last
line was cut off: records without a line have an unknown outcome. Event loop only.

`LineSplitter` finds the same lines however the body is divided into pieces. A line ends with LF; a CR before
it is white space in JSON. The last line needs no LF, and blank lines are skipped. A line above the limit is
reported as soon as it exceeds it, and skipped to its end. So never more than one line of that length is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from service.admission.caller import caller_of
from service.admission.guards import CLOSE
from service.produce.body_threads import BodyThreads, is_light
from service.produce.produce_answers import line_of
from service.produce.produce_forms import (
    DELIVERY,
    STREAM_NOT_SPOOLED,
    format_of,
    is_spooled,
    parameters,
    refuse_parts_of_one,
    times_of,
)
from service.produce.producing import Producing, RecordOutcome
from service.produce.record_stream import IDLE, Item, RecordStream, Streams, converse
from service.produce.records_codec import LineCodec
from service.wire.asgi import HeaderPairs, Receive, Scope, header
from service.wire.errors import Problem, problem_of_body, refused
from service.wire.media_type import JSON, NDJSON, OCTET_STREAM, check_media_type, media_type_of
from service.wire.payload import Format
from service.wire.streaming import AskedBody, Outlet, StreamedAnswer
from service.wire.strict_json import BodyError
from service.wire.waiting import CallerGoneError

PARAMETERS: Final = ("key_format", "value_format")

#: Lines and bytes that are parsed and submitted together (a longer line alone): about 2 ms of the event loop.
_LINES_AT_ONCE: Final = 500
_BYTES_AT_ONCE: Final = 64 * 1024

#: A shorter incomplete line is not counted by admission control: it fits into a connection's buffer.
_HELD_UNCOUNTED_BYTES: Final = 64 * 1024

JSON_HEADER: Final = (b"content-type", JSON)
_BEFORE: Final = "/v1/topics/"
_AFTER: Final = "/records"
#: The end of the path that takes nothing but streams, also as application/octet-stream: many generated
#: clients can send no other media type.
STREAM: Final = "/stream"


_WHITE: Final = b" \t\r"


class LineSplitter:
    """Splits one body into lines. Pure."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._begun: bytes | bytearray = b""
        self._passes_over = False
        #: Bytes held of an incomplete line.
        self.held_bytes = 0

    def feed(self, piece: bytes) -> list[bytes | None]:
        """Returns the lines that end in this piece; None for a line that is too long, ended or not."""
        first, *others = piece.split(b"\n")
        lines = self._add(first)
        if others:
            lines += self.end()
            rest, limit = others.pop(), self._max_line_bytes
            # Must be fast: a read may bring a hundred thousand lines, if they are blank.
            lines += [
                line if len(line) <= limit else None
                for line in others
                if line.strip(_WHITE) or len(line) > limit
            ]
            lines += self._add(rest)
        return lines

    def end(self) -> list[bytes | None]:
        """Ends the incomplete line, and returns it unless it is blank."""
        line = bytes(self._begun)
        self._begun = b""
        self.held_bytes = 0
        self._passes_over = False
        return [line] if line.strip(_WHITE) else []

    def pass_over(self) -> None:
        """Drops the incomplete line, and skips the rest of it."""
        self._begun = b""
        self.held_bytes = 0
        self._passes_over = True

    def _add(self, part: bytes) -> list[bytes | None]:
        if self._passes_over or not part:
            return []
        if self.held_bytes + len(part) > self._max_line_bytes:
            self.pass_over()
            return [None]
        if self._begun:
            if isinstance(self._begun, bytes):  # most lines arrive whole, and are not copied
                self._begun = bytearray(self._begun)
            self._begun += part  # not a list of parts, which may be a byte each
        else:
            self._begun = part
        self.held_bytes += len(part)
        return []


def is_ndjson(scope: Scope) -> bool:
    """Returns whether the Content-Type of a request is NDJSON."""
    if JSON_HEADER in scope["headers"]:  # the usual case, found without Python code
        return False
    return media_type_of(header(scope, b"content-type")) == NDJSON


def is_ndjson_stream(scope: Scope) -> bool:
    """Returns whether this module serves the request. The guards do not limit its body as a whole."""
    path: str = scope["path"]
    if scope["method"] != "POST" or not path.startswith(_BEFORE):
        return False
    _, *rest = path.removeprefix(_BEFORE).partition("/")
    return rest == ["/", (_AFTER + STREAM)[1:]] or (rest == ["/", _AFTER[1:]] and is_ndjson(scope))


def _media_type_of(scope: Scope) -> bytes:
    """Returns the media type of the answer, which the body must have as well."""
    is_octets = media_type_of(header(scope, b"content-type")) == OCTET_STREAM
    return OCTET_STREAM if is_octets and scope["path"].endswith(STREAM) else NDJSON


class NdjsonProduce:
    """Serves the NDJSON streams of one sidecar."""

    def __init__(
        self,
        producing: Producing,
        streams: Streams,
        body_threads: BodyThreads,
    ) -> None:
        self._producing = producing
        self._streams = streams
        self._body_threads = body_threads
        self._status = 200 if producing.acknowledges else 202

    def answer(self, topic: str, scope: Scope, receive: Receive) -> StreamedAnswer:
        """Opens the stream; returns its response, which must be called. Raises ProblemError."""
        producing = self._producing
        caller = caller_of(scope)
        producing.check(topic, caller)
        given = parameters(scope["query_string"], (DELIVERY, *PARAMETERS))
        if is_spooled(given):
            raise refused(422, STREAM_NOT_SPOOLED, place=f"query.{DELIVERY}")
        times = times_of(given, producing.times)
        codec = LineCodec(
            topic,
            format_of(given, "key_format", Format.TEXT),
            format_of(given, "value_format", Format.JSON),
        )
        media_type = _media_type_of(scope)
        check_media_type(header(scope, b"content-type"), header(scope, b"content-encoding"), media_type)
        refuse_parts_of_one(scope)
        if header(scope, b"idempotency-key") is not None:
            detail = "is not supported for a stream"
            raise refused(400, detail, place="Idempotency-Key")
        body = AskedBody(scope, receive)
        stream = self._streams.open(topic, caller, lambda: times)

        async def serve(outlet: Outlet) -> None:
            await _Conversation(self._streams, self._body_threads, stream, codec, body, outlet).hold()

        return StreamedAnswer(
            self._headers(scope, media_type),
            serve,
            stall_ms=self._streams.limits.stall_timeout_ms,
            status=self._status,
            watch=False,
            begin=body.ask,
            held=stream,
        )

    @staticmethod
    def _headers(scope: Scope, media_type: bytes) -> HeaderPairs:
        headers = [(b"content-type", media_type), (b"cache-control", b"no-store")]
        if header(scope, b"content-length") is None:
            # Otherwise a caller that sends on after an early end would not notice the end.
            headers.append(CLOSE)
        return headers


class _Conversation:
    """One stream: reads lines, and reports outcomes."""

    def __init__(
        self,
        streams: Streams,
        body_threads: BodyThreads,
        stream: RecordStream,
        codec: LineCodec,
        receive: Receive,
        outlet: Outlet,
    ) -> None:
        self._body_threads = body_threads
        self._drain = streams.drain
        self._idle_s = streams.limits.idle_timeout_ms / 1000
        self._max_line_bytes = streams.limits.max_line_bytes
        self._stream = stream
        self._codec = codec
        self._receive = receive
        self._outlet = outlet
        self._lines = LineSplitter(self._max_line_bytes)
        self._failed = 0
        #: When the last read ended.
        self._read_ms = stream.now_ms()

    async def hold(self) -> None:
        """Reads and reports until the end, then writes the summary. Raises CallerGoneError."""
        await converse(self._stream, self._drain, self._receive, self._read, self._report)
        records, failed = self._stream.records, self._failed
        summary = {
            "records": records,
            "acknowledged": records - failed,
            "failed": failed,
            "ended": self._stream.ended,
        }
        await self._outlet.write(msgspec.json.encode({"summary": summary}) + b"\n")

    async def _report(self, outcomes: Sequence[tuple[int, RecordOutcome]]) -> None:
        self._failed += sum(isinstance(outcome, Problem) for _, outcome in outcomes)
        await self._outlet.write(b"".join([line_of(index, outcome) for index, outcome in outcomes]))

    # -- reading ---------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        more = True
        while more:
            try:
                async with asyncio.timeout(self._idle_s):
                    body, more = await self._next()
            except TimeoutError:
                self._stream.finish(IDLE)
                return
            await self._take(body)
            del body  # an idle stream must not hold it
        last = self._lines.end()
        await self._count_what_is_held()
        await self._put(last)

    async def _next(self) -> tuple[bytes, bool]:
        """Returns the bytes that came, and whether more can come."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise CallerGoneError("the caller closed the connection within its stream")
        self._read_ms = self._stream.now_ms()
        return message.get("body", b""), message.get("more_body", False)

    async def _take(self, body: bytes) -> None:
        """Submits the lines of a read, slice by slice: a stream that waits must not hold all of it twice."""
        for start in range(0, len(body), _BYTES_AT_ONCE):
            if start:
                await asyncio.sleep(0)  # a read may bring thousands of lines: lets other tasks run
            lines = self._lines.feed(body[start : start + _BYTES_AT_ONCE])
            await self._put(lines)
            problem = await self._count_what_is_held()
            if problem is not None:
                await self._stream.put([problem], 0, self._read_ms)

    async def _put(self, lines: Sequence[bytes | None]) -> None:
        start = 0
        while start < len(lines):
            if start:
                await asyncio.sleep(0)  # a read may bring thousands of lines: lets other tasks run
            some, body_bytes = _some(lines, start)
            start += len(some)
            is_heavy = not all(line is None or is_light(line) for line in some)
            items = await self._body_threads.do(partial(self._items, some)) if is_heavy else self._items(some)
            await self._stream.put(items, body_bytes, self._read_ms)

    def _items(self, lines: Sequence[bytes | None]) -> list[Item]:
        first = self._stream.records
        whole = [line for line in lines if line is not None]
        parsed = (
            self._codec.parse(whole, first) if len(whole) == len(lines) else self._one_by_one(lines, first)
        )
        return [problem_of_body(one) if isinstance(one, BodyError) else one for one in parsed]

    def _one_by_one(self, lines: Sequence[bytes | None], first: int) -> Sequence[Item | BodyError]:
        return [
            self._codec.parse([line], index)[0] if line is not None else self._too_long(index)
            for index, line in enumerate(lines, first)
        ]

    def _too_long(self, index: int) -> BodyError:
        detail = f"the line is longer than {self._max_line_bytes} bytes"
        return BodyError(413, f"records[{index}]", detail)

    async def _count_what_is_held(self) -> Problem | None:
        """Counts a long incomplete line. Without room for it, skips it and returns its problem."""
        held_bytes = self._lines.held_bytes
        problem = await self._stream.hold(held_bytes if held_bytes > _HELD_UNCOUNTED_BYTES else 0)
        if problem is not None:
            self._lines.pass_over()
        return problem


def _some(lines: Sequence[bytes | None], start: int) -> tuple[Sequence[bytes | None], int]:
    """Returns the lines from `start` on to parse together, at least one, and their length."""
    body_bytes = 0
    end = start
    for line in lines[start : start + _LINES_AT_ONCE]:
        size = 0 if line is None else len(line)
        if body_bytes and body_bytes + size > _BYTES_AT_ONCE:
            break
        body_bytes += size
        end += 1
    return lines[start:end], body_bytes
