"""Records that come one by one on a request that stays open, told of as brokers acknowledge them.

    put       what one read brought goes to the client as one submit, however many records it holds: order is
              kept, and the event loop is woken once for all of them. Waits while too much is open
    iterate   (index, outcome) of each item, in order, as many at a time as are known
    finish    nothing more comes; the iteration ends with the last outcome

One failure never ends a stream: an item that is no record is put as the Problem that it is, and keeps its
place. Deadlines count from when a record was put, since the stream itself may live for days. What was
submitted is delivered, whoever still listens, and its bytes count in the waiting room until then; a stream
whose caller left, or that is cut off by a shutdown, takes nothing new.

`converse` is the whole of such a request: it reads and tells at the same time. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from types import TracebackType
from typing import Final, NamedTuple, TypeVar

from client_core import (
    Clock,
    IllegalStateError,
    KafkaError,
    ProducerRecord,
    RecordTooLargeError,
    Result,
)
from service.admission.admission_control import FAIR_SHARE, AdmissionControl, Place, is_one_too_many
from service.admission.caller import Caller
from service.admission.drain import Drain
from service.base.producer_protocol import Producer
from service.base.settings import Settings
from service.observe.http_metrics import HttpMetrics
from service.produce.producing import Producing, RecordOutcome, Times, outcome_of
from service.wire.asgi import Receive
from service.wire.errors import Problem, ProblemError
from service.wire.waiting import CallerGoneError, refusal_of

#: Why a stream took no more, besides that its caller had no more to say.
IDLE: Final = "idle"
SHUTDOWN: Final = "shutdown"
COMPLETE: Final = "complete"

#: Between two looks at a waiting room that others have filled. Their leaving is told to nobody.
_LOOK_AGAIN_S: Final = 0.02

#: Outcomes that are told at once at most: about 2 ms of encoding.
_REPORTED_AT_ONCE: Final = 1_000

Item = ProducerRecord | Problem

_T = TypeVar("_T")


class StreamEndedError(Exception):
    """The stream takes no more: of what was put, nothing was taken on."""


class StreamLimits(NamedTuple):
    """How much one stream may have open, and how many there may be.

    `records` are those that were put and not told of yet, `body_bytes` those that are not acknowledged. A
    stream ends when nothing came for `idle_timeout_ms`, or its caller took nothing for `stall_timeout_ms`.
    """

    records: int
    body_bytes: int
    streams: int
    max_line_bytes: int
    idle_timeout_ms: int
    stall_timeout_ms: int

    @staticmethod
    def of(settings: Settings) -> StreamLimits:
        return StreamLimits(
            settings.internal.stream_open_records,
            settings.internal.stream_open_bytes,
            settings.max_streams,
            settings.stream_max_line_bytes,
            settings.stream_idle_timeout_ms,
            settings.stall_timeout_ms,
        )


class Streams:
    """The open streams of one sidecar, and what they share."""

    def __init__(
        self,
        producer: Producer,
        producing: Producing,
        room: AdmissionControl,
        drain: Drain,
        http: HttpMetrics,
        limits: StreamLimits,
    ) -> None:
        self.producer: Final = producer
        self.producing: Final = producing
        self.room: Final = room
        self.drain: Final = drain
        self.limits: Final = limits
        #: How many are open now, and how many of them are each caller's.
        self.open_now = 0
        self.open_by: Final[Counter[str]] = Counter()
        self._http = http

    def open(self, topic: str, caller: Caller, times: Callable[[], Times]) -> RecordStream:
        """A stream, to be left by `with`. `times` is asked whenever records are submitted.

        The caller's right to the topic must have been checked. Raises a 429 where there are too many streams
        or too many requests waiting.
        """
        if self.open_now >= self.limits.streams:
            detail = f"{self.open_now} streams are open already (max_streams); try again"
            raise ProblemError(Problem(429, detail, retriable=True, written="no"))
        own = self.open_by[caller.name]
        if is_one_too_many(caller, own, self.open_now, self.limits.streams):
            detail = f"{own} streams of {caller.name} are open already: {FAIR_SHARE}; try again"
            raise ProblemError(Problem(429, detail, retriable=True, written="no"))
        return RecordStream(self, topic, caller, times, self.room.enter(0, caller))

    def count(self, outcomes: Sequence[RecordOutcome], took_s: float) -> None:
        """What was put together counts as a produce request does, which it is to the client."""
        self._http.produced(outcome_of(outcomes)).observe(took_s)


@dataclass(eq=False, slots=True)
class _Chunk:
    """Items that were put together: `told` is None until each has its outcome."""

    first: int
    items: Sequence[Item]
    body_bytes: int
    since_s: float
    outcomes: Sequence[RecordOutcome] | None = None


class RecordStream:
    """One stream. One task puts, one iterates."""

    def __init__(
        self, streams: Streams, topic: str, caller: Caller, times: Callable[[], Times], place: Place
    ) -> None:
        self._streams = streams
        self._producing = streams.producing
        self._clock: Clock = streams.producer.clock
        self._topic = topic
        self._caller = caller
        self._times = times
        self._place = place
        self._chunks: deque[_Chunk] = deque()
        self._progress = asyncio.Event()
        self._outcome = asyncio.Event()
        self._open_bytes = 0
        self._open_records = 0
        self._abandoned = False
        #: Items that were taken on, failed ones too: the next one's index.
        self.records = 0
        #: Why nothing more is taken on; None while it is.
        self.ended: str | None = None
        streams.open_now += 1
        streams.open_by[caller.name] += 1

    def __enter__(self) -> RecordStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Lets go: nobody listens any more. What was submitted is delivered all the same."""
        self.finish()
        self._abandoned = True
        self._chunks.clear()
        self._streams.open_now -= 1
        self._streams.open_by[self._caller.name] -= 1
        if not self._streams.open_by[self._caller.name]:
            del self._streams.open_by[self._caller.name]
        self._place.leave()

    # -- taking on -------------------------------------------------------------------------------------------

    async def put(self, items: Sequence[Item], body_bytes: int) -> None:
        """Takes on what one read brought, `body_bytes` of body altogether; waits while too much is open.

        Returns when it is submitted, not when it is acknowledged. Raises StreamEndedError where the stream
        has ended, before or meanwhile: none of it was taken on.
        """
        since_ms, since_s = self._clock.now_ms(), perf_counter()
        await self._until_it_fits(len(items), body_bytes)
        records = [item for item in items if not isinstance(item, Problem)]
        place: Place | Problem | None = None
        if records:
            place = await self._find_room(lambda: self._place.part(body_bytes), since_ms)
        if self.ended is not None:
            if isinstance(place, Place):
                place.settled()
            raise StreamEndedError(self.ended)
        chunk = _Chunk(self.records, items, body_bytes, since_s)
        self._chunks.append(chunk)
        self.records += len(items)
        self._open_records += len(items)
        self._open_bytes += body_bytes
        if isinstance(place, Place):
            self._submit(chunk, records, place, since_ms)
        else:
            self._fail(chunk, place)

    async def hold(self, body_bytes: int) -> Problem | None:
        """Counts what has come of an item whose end has not, in place of what was said before.

        Waits for room as `put` does, and returns the waiting room's 429 where there is none in time. Raises
        StreamEndedError.
        """
        if body_bytes < self._place.bytes:
            self._place.settled()
        if body_bytes <= self._place.bytes:
            return None
        found = await self._find_room(lambda: self._place.grow_to(body_bytes), self._clock.now_ms())
        if self.ended is not None:
            raise StreamEndedError(self.ended)
        return found

    def finish(self, why: str = COMPLETE) -> None:
        """Takes no more on; the iteration ends when all outcomes are told. What was said first holds."""
        if self.ended is None:
            self.ended = why
        self._wake()

    # -- telling ---------------------------------------------------------------------------------------------

    def __aiter__(self) -> RecordStream:
        """The index and outcome of each item, in order: all that are known, as soon as they are."""
        return self

    async def __anext__(self) -> Sequence[tuple[int, RecordOutcome]]:
        while True:
            self._outcome.clear()
            outcomes = self._known()
            if outcomes:
                self._progress.set()
                return outcomes
            if self.ended is not None and not self._chunks:
                raise StopAsyncIteration
            await self._outcome.wait()

    def _known(self) -> list[tuple[int, RecordOutcome]]:
        outcomes: list[tuple[int, RecordOutcome]] = []
        while self._chunks and self._chunks[0].outcomes is not None and len(outcomes) < _REPORTED_AT_ONCE:
            chunk = self._chunks.popleft()
            outcomes.extend(enumerate(chunk.outcomes or (), chunk.first))
        self._open_records -= len(outcomes)
        return outcomes

    # -- room ------------------------------------------------------------------------------------------------

    async def _until_it_fits(self, records: int, body_bytes: int) -> None:
        """Waits for the caller to read and for brokers to acknowledge. What alone is too much fits alone."""
        limits = self._streams.limits
        while self.ended is None and (
            (self._open_records and self._open_records + records > limits.records)
            or (self._open_bytes and self._open_bytes + body_bytes > limits.body_bytes)
        ):
            self._progress.clear()
            await self._progress.wait()

    async def _find_room(self, take: Callable[[], _T], since_ms: int) -> _T | Problem | None:
        """What `take` took; the room's 429 where there is none in time; None where the stream ends."""
        give_up_ms = since_ms + min(self._times())
        while self.ended is None:
            try:
                return take()
            except ProblemError as e:
                if self._clock.now_ms() >= give_up_ms:
                    return e.problem
            self._progress.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await self._progress.wait()
        return None

    # -- the way of a chunk ----------------------------------------------------------------------------------

    def _submit(self, chunk: _Chunk, records: list[ProducerRecord], place: Place, since_ms: int) -> None:
        """Hands the records to the client; one that is too large fails alone, not the others with it."""
        items = list(chunk.items)
        chunk.items = items
        problem: Problem | None = None
        while records and problem is None:
            try:
                self._producing.launch(
                    self._topic,
                    records,
                    self._times(),
                    since_ms=since_ms,
                    place=place,
                    done=lambda result: self._report(chunk, records, result),
                )
                return
            except RecordTooLargeError as e:
                at = e.record_index or 0
                items[_position(items, records.pop(at), at)] = replace(refusal_of(e), place=None)
            except (KafkaError, IllegalStateError) as e:
                problem = refusal_of(e)
            except ProblemError as e:
                problem = e.problem
        place.settled()
        self._fail(chunk, problem)

    def _report(self, chunk: _Chunk, records: Sequence[ProducerRecord], result: Result) -> None:
        """The client has accounted for the chunk's records."""
        if self._abandoned:
            return
        outcomes = self._producing.outcomes(records, result)
        if len(outcomes) < len(chunk.items):
            of_records = iter(outcomes)
            outcomes = [item if isinstance(item, Problem) else next(of_records) for item in chunk.items]
        self._end(chunk, outcomes)

    def _fail(self, chunk: _Chunk, problem: Problem | None) -> None:
        """None of the chunk's records was taken by the client; None: it has none."""
        outcomes = [item if isinstance(item, Problem) else problem for item in chunk.items]
        self._end(chunk, [one for one in outcomes if one is not None])

    def _end(self, chunk: _Chunk, outcomes: Sequence[RecordOutcome]) -> None:
        chunk.outcomes = outcomes
        chunk.items = ()
        self._open_bytes -= chunk.body_bytes
        self._streams.count(outcomes, perf_counter() - chunk.since_s)
        self._wake()

    def _wake(self) -> None:
        self._progress.set()
        self._outcome.set()


def _position(items: Sequence[Item], record: ProducerRecord, at: int) -> int:
    """Where the record stands among the items, of which `at` records stand before it."""
    return next(n for n in range(at, len(items)) if items[n] is record)


async def converse(
    stream: RecordStream,
    drain: Drain,
    receive: Receive,
    read: Callable[[], Awaitable[None]],
    report: Callable[[Sequence[tuple[int, RecordOutcome]]], Awaitable[None]],
) -> None:
    """Reads and tells at once, until all that was taken on is told.

    `read` puts what comes and returns where nothing more does; it may call `stream.finish` to say why. It is
    cancelled where the sidecar shuts down. From then on the caller's leaving is watched for. Raises
    CallerGoneError, and whatever `read` or `tell` raises.
    """

    async def reading() -> None:
        with contextlib.suppress(StreamEndedError):
            await read()
        stream.finish()
        while (await receive())["type"] != "http.disconnect":
            continue  # what comes behind the end is read, so that the caller gets to reading
        raise CallerGoneError("the caller closed the connection")

    async def reporting() -> None:
        async for outcomes in stream:
            await report(outcomes)

    tasks = (asyncio.ensure_future(reading()), asyncio.ensure_future(reporting()))

    def shut_down() -> None:
        stream.finish(SHUTDOWN)
        tasks[0].cancel()

    drain.listen(shut_down)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[1].done() and not tasks[0].cancelled():
            await tasks[0]  # which has failed: it has no other end
        await tasks[1]
    finally:
        drain.leave(shut_down)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
