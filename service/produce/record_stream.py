"""Produces records of a request that stays open, and reports outcomes as brokers acknowledge them.

    put       submits all items of one read to the client together: this keeps their order, and wakes the
              event loop once. Waits while too much is open
    iterate   (index, outcome) of each item, in order, as many at a time as are known
    finish    accepts nothing more; the iteration ends with the last outcome

One failure never ends a stream: an invalid item is put as its Problem, and keeps its index. Deadlines count
from the read that completed an item, since a stream may live for days. Submitted records are delivered even
if the caller leaves, and their bytes count in admission control until then. A stream accepts nothing new
after its caller left or a shutdown began.

`converse` serves such a request: it reads and reports at the same time. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Final, NamedTuple, TypeVar

from client_core import Clock, IllegalStateError, KafkaError, ProducerRecord, RecordTooLargeError, Result
from service.admission.admission_control import (
    FAIR_SHARE,
    AdmissionControl,
    Permit,
    bytes_of_records,
    is_one_too_many,
)
from service.admission.caller import Caller
from service.admission.drain import Drain
from service.base.producer_protocol import Producer
from service.base.settings import Settings
from service.observe.http_metrics import HttpMetrics
from service.produce.producing import Producing, RecordOutcome, Times, outcome_of
from service.wire.asgi import Receive
from service.wire.errors import Problem, ProblemError, problem_of_bug
from service.wire.waiting import CallerGoneError, refusal_of

_log: Final = logging.getLogger(__name__)

#: Why a stream ended. COMPLETE: the caller sent everything.
IDLE: Final = "idle"
SHUTDOWN: Final = "shutdown"
COMPLETE: Final = "complete"

#: The interval of attempts to get a permit: admission control does not report released ones.
_LOOK_AGAIN_S: Final = 0.02

#: The memory of an outcome that its caller has not read yet.
OUTCOME_BYTES: Final = 160

#: Outcomes reported at once, a chunk more or less: about 2 ms of encoding.
_REPORTED_AT_ONCE: Final = 1_000

Item = ProducerRecord | Problem

_T = TypeVar("_T")


class StreamEndedError(Exception):
    """The stream has ended: nothing of the `put` was accepted."""


class StreamLimits(NamedTuple):
    """Limits of one stream, and of the number of streams.

    `records` limits those put and not reported yet, `body_bytes` those not acknowledged yet. A stream ends if
    nothing arrives for `idle_timeout_ms`, or its caller reads nothing for `stall_timeout_ms`.
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
            settings.stream_line_bytes,
            settings.stream_idle_timeout_ms,
            settings.internal.stall_timeout_ms,
        )


class Streams:
    """The open streams of one sidecar, and their shared parts."""

    def __init__(
        self,
        producer: Producer,
        producing: Producing,
        admission: AdmissionControl,
        drain: Drain,
        http: HttpMetrics,
        limits: StreamLimits,
    ) -> None:
        self.producer: Final = producer
        self.producing: Final = producing
        self.admission: Final = admission
        self.drain: Final = drain
        self.limits: Final = limits
        #: The number of open streams, in total and by caller.
        self.open_now = 0
        self.open_by: Final[Counter[str]] = Counter()
        self._http = http

    def open(self, topic: str, caller: Caller, times: Callable[[], Times]) -> RecordStream:
        """Returns a stream to use in a `with` statement. `times()` is called for each submit.

        The caller's right to the topic must have been checked. Raises ProblemError (429) if there are too
        many streams or waiting requests.
        """
        if self.open_now >= self.limits.streams:
            detail = f"{self.open_now} streams are open already (max_streams); try again"
            raise ProblemError(Problem(429, detail, retriable=True, written="no"))
        own = self.open_by[caller.name]
        if is_one_too_many(caller, own, self.open_now, self.limits.streams):
            detail = f"{own} streams of {caller.name} are open already: {FAIR_SHARE}; try again"
            raise ProblemError(Problem(429, detail, retriable=True, written="no"))
        return RecordStream(self, topic, caller, times, self.admission.acquire(0, caller))

    def count(self, outcomes: Sequence[RecordOutcome], took_s: float) -> None:
        """Counts a chunk as a produce request, which it is for the client."""
        self._http.produced(outcome_of(outcomes)).observe(took_s)


@dataclass(eq=False, slots=True)
class _Chunk:
    """Items that were put together. `outcomes` is None until each item has one."""

    first: int
    items: Sequence[Item]
    body_bytes: int
    since_s: float
    outcomes: Sequence[RecordOutcome] | None = None
    are_counted: bool = False


class RecordStream:
    """One stream. One task calls `put`, another iterates."""

    def __init__(
        self, streams: Streams, topic: str, caller: Caller, times: Callable[[], Times], permit: Permit
    ) -> None:
        self._streams = streams
        self._producing = streams.producing
        self._clock: Clock = streams.producer.clock
        self._topic = topic
        self._caller = caller
        self._times = times
        self._permit = permit
        #: Of the outcomes that were acknowledged and not reported yet, and how many these are.
        self._unread_permit = permit.beside()
        self._unread = 0
        self._chunks: deque[_Chunk] = deque()
        self._progress = asyncio.Event()
        self._outcome = asyncio.Event()
        self._open_bytes = 0
        self._open_records = 0
        self._abandoned = False
        #: Accepted items, with failed ones: the next item's index.
        self.records = 0
        #: Why the stream ended; None while it accepts items.
        self.ended: str | None = None
        streams.open_now += 1
        streams.open_by[caller.name] += 1

    def __enter__(self) -> RecordStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the stream, and drops its outcomes. Submitted records are still delivered."""
        self.finish()
        self._abandoned = True
        self._chunks.clear()
        self._streams.open_now -= 1
        self._streams.open_by[self._caller.name] -= 1
        if not self._streams.open_by[self._caller.name]:
            del self._streams.open_by[self._caller.name]
        self._unread_permit.release_bytes()
        self._permit.release()

    # -- accepting -------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Returns the time by the clock of deadlines."""
        return self._clock.now_ms()

    async def put(self, items: Sequence[Item], body_bytes: int, read_ms: int | None = None) -> None:
        """Accepts items of one read, `body_bytes` in total; waits while too much is open.

        Their deadlines count from `read_ms`, when they were read (None: now): a read may need several calls,
        and each may wait. Returns when they are submitted, not when they are acknowledged. Raises
        StreamEndedError if the stream ended before or meanwhile: none was accepted.
        """
        since_s = perf_counter()
        if read_ms is None:
            read_ms = self.now_ms()
        await self._until_it_fits(len(items), body_bytes)
        records = [item for item in items if not isinstance(item, Problem)]
        permit: Permit | Problem | None = None
        if records:
            counted = max(body_bytes, self._bytes_of_more(len(records)))
            permit = await self._wait_for_permit(lambda: self._permit.part(counted), read_ms)
        if self.ended is not None:  # then there is no permit
            raise StreamEndedError(self.ended)
        chunk = _Chunk(self.records, items, body_bytes, since_s)
        self._chunks.append(chunk)
        self.records += len(items)
        self._open_records += len(items)
        self._open_bytes += body_bytes
        if isinstance(permit, Permit):
            self._submit(chunk, records, permit, read_ms)
        else:
            self._fail(chunk, permit)

    def _bytes_of_more(self, records: int) -> int:
        """Returns what so many records count as beside those that are open: a stream is one request."""
        return bytes_of_records(self._open_records + records) - bytes_of_records(self._open_records)

    async def hold(self, body_bytes: int) -> Problem | None:
        """Counts the bytes of an incomplete item, instead of the number of the last call.

        Waits for a permit as `put` does; returns admission control's 429 if there is none in time. Raises
        StreamEndedError.
        """
        if body_bytes < self._permit.bytes:
            self._permit.release_bytes()
        if body_bytes <= self._permit.bytes:
            return None
        found = await self._wait_for_permit(lambda: self._permit.grow_to(body_bytes), self.now_ms())
        if self.ended is not None:
            raise StreamEndedError(self.ended)
        return found

    def finish(self, why: str = COMPLETE) -> None:
        """Accepts nothing more; the iteration ends after the last outcome. The first reason is kept."""
        if self.ended is None:
            self.ended = why
        self._wake()

    # -- reporting -------------------------------------------------------------------------------------------

    def __aiter__(self) -> RecordStream:
        """Iterates over index and outcome of each item, in order, as soon as they are known."""
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
            if chunk.are_counted:
                self._count_unread(-len(chunk.outcomes or ()))
        self._open_records -= len(outcomes)
        return outcomes

    def _count_unread(self, more: int) -> None:
        """Counts acknowledged records as waiting, until the caller reads their outcomes."""
        self._unread += more
        self._unread_permit.count(OUTCOME_BYTES * self._unread)

    # -- permits ---------------------------------------------------------------------------------------------

    async def _until_it_fits(self, records: int, body_bytes: int) -> None:
        """Waits until the caller has read and brokers have acknowledged enough. A large put fits alone."""
        limits = self._streams.limits
        while self.ended is None and (
            (self._open_records and self._open_records + records > limits.records)
            or (self._open_bytes and self._open_bytes + body_bytes > limits.body_bytes)
        ):
            self._progress.clear()
            await self._progress.wait()

    async def _wait_for_permit(self, acquire: Callable[[], _T], since_ms: int) -> _T | Problem | None:
        """Returns what `acquire` returns; its 429 if no permit is free in time; None if the stream ends."""
        give_up_ms = since_ms + self._times().block_ms
        while self.ended is None:
            try:
                return acquire()
            except ProblemError as e:
                if self._clock.now_ms() >= give_up_ms:
                    return e.problem
            self._progress.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await self._progress.wait()
        return None

    # -- submitting a chunk ----------------------------------------------------------------------------------

    def _submit(self, chunk: _Chunk, records: list[ProducerRecord], permit: Permit, read_ms: int) -> None:
        """Passes the records to the client. A record that is too large fails alone, without the others."""
        items = list(chunk.items)
        chunk.items = items
        problem: Problem | None = None
        while records and problem is None:
            try:
                self._producing.launch(
                    self._topic,
                    records,
                    self._times(),
                    since_ms=read_ms,
                    permit=permit,
                    done=lambda result: self._report(chunk, records, result),
                )
                return
            except RecordTooLargeError as e:
                at = e.record_index or 0
                position = _position(items, records.pop(at), at)
                e.record_index = chunk.first + position  # as the caller counts
                items[position] = refusal_of(e)
            except (KafkaError, IllegalStateError) as e:
                problem = refusal_of(e)
            except ProblemError as e:
                problem = e.problem
            except Exception:  # noqa: BLE001 -- a bug, or a lack of memory: the permit must end
                problem = _unknown()
        permit.release_bytes()
        self._fail(chunk, problem)

    def _report(self, chunk: _Chunk, records: Sequence[ProducerRecord], result: Result) -> None:
        """Ends the chunk with the client's result for its records."""
        if self._abandoned:
            return
        try:
            outcomes = self._producing.outcomes(records, result)
            if len(outcomes) < len(chunk.items):
                of_records = iter(outcomes)
                outcomes = [item if isinstance(item, Problem) else next(of_records) for item in chunk.items]
        except Exception:  # noqa: BLE001 -- a bug, or a lack of memory: the caller waits for the outcomes
            self._fail(chunk, _unknown())
            return
        chunk.are_counted = True
        self._count_unread(len(outcomes))
        self._end(chunk, outcomes)

    def _fail(self, chunk: _Chunk, problem: Problem | None) -> None:
        """Ends a chunk whose records all have the same problem. It is None if there are no records."""
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


def _unknown() -> Problem:
    """Returns the outcome of records for which an unexpected exception is handled."""
    _log.exception("the outcome of records of a stream is unknown")
    return problem_of_bug(written="unknown")


def _position(items: Sequence[Item], record: ProducerRecord, at: int) -> int:
    """Returns the index of the record among the items; `at` records are before it."""
    return next(n for n in range(at, len(items)) if items[n] is record)


async def converse(
    stream: RecordStream,
    drain: Drain,
    receive: Receive,
    read: Callable[[], Awaitable[None]],
    report: Callable[[Sequence[tuple[int, RecordOutcome]]], Awaitable[None]],
) -> None:
    """Reads and reports at the same time, until all accepted items are reported.

    `read` puts what arrives, and returns at its end; it may call `stream.finish` with a reason. It is
    cancelled if the reports end first, as at a shutdown. After it returned, this watches for the caller's
    leaving. Raises CallerGoneError, and whatever `read` or `report` raises.
    """

    async def reading() -> None:
        with contextlib.suppress(StreamEndedError):
            await read()
        stream.finish()
        while (await receive())["type"] != "http.disconnect":
            continue  # discards what follows the end, so that the caller begins to read
        raise CallerGoneError("the caller closed the connection")

    async def reporting() -> None:
        async for outcomes in stream:
            await report(outcomes)

    tasks = (asyncio.ensure_future(reading()), asyncio.ensure_future(reporting()))

    def shut_down() -> None:
        stream.finish(SHUTDOWN)

    drain.listen(shut_down)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[1].done():
            await tasks[0]  # raises: only an error ends this task
        await tasks[1]
    finally:
        drain.unlisten(shut_down)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
