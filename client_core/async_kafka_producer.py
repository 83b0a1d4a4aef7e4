"""AsyncKafkaProducer: the producer for asyncio. No call blocks the event loop.

    async with AsyncKafkaProducer(config) as producer:
        receipt = await producer.send_and_wait(ProducerRecord("orders", b"value"))

It is a second API of KafkaProducer: the same I/O thread, batches and settings. The event loop and the I/O
thread share one interpreter lock. If one wakes the other in the middle of a turn, both compete for the lock
until the turn ends. So each wakes the other once a turn. Results come back by one call_soon_threadsafe at the
end of the I/O thread's turn; the I/O thread is woken at the end of the loop's turn.

`LoopCompletions` does that for one event loop. All of AsyncKafkaProducer's methods are for the thread of its
loop, but for what a docstring says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from concurrent.futures import Future as ConcurrentFuture
from functools import partial
from typing import TYPE_CHECKING, Final, Generic

from client_core.clock import FOREVER_MS
from client_core.errors import ApiError, IllegalStateError, KafkaError
from client_core.events import NO_EVENTS
from client_core.producer.kafka_producer import KafkaProducer
from client_core.producer.requests.preparation import Preparation
from client_core.producer.results.producer_record import K, RecordMetadata, V
from client_core.producer.results.results import MetadataResult, ProduceResult
from client_core.producer.sender import unclosed_producers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from client_core.cluster import PartitionInfo
    from client_core.events import EventSink
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.producer.requests.preparation import ProducerInterceptor
    from client_core.producer.results.batch_outcome import BatchOutcome
    from client_core.producer.results.producer_record import ProducerRecord
    from client_core.producer.results.status import ClientStatus, CloseReport
    from client_core.producer.results.ticket import Done, Result
    from client_core.producer.settings.config import ProducerConfig

    #: Takes a record's receipt; or its partition, if one was chosen, and its error.
    OnEnd = Callable[[RecordMetadata | None, int | None, Exception | None], None]

_log: Final = logging.getLogger(__name__)

#: Records that `send` appends before it yields to the loop's other tasks: about half a millisecond.
_SENDS_PER_TURN: Final = 100


class LoopCompletions:
    """A CompletionSink over one event loop. `bind` once, before the first request.

    `post` runs on the I/O thread, the callbacks and `wake_soon` on the loop.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup: Callable[[], None] | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wakeup = None

    def wake_soon(self, wakeup: Callable[[], None]) -> None:
        """Calls `wakeup` once, after what the loop has to do in this turn. Off the loop: at once."""
        if self._wakeup is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            wakeup()
            return
        loop.call_soon(self._wake)
        self._wakeup = wakeup  # last: nothing would be woken for good if call_soon had raised

    def _wake(self) -> None:
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            wakeup()

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        """Calls each `done` on the loop. Does nothing after the loop has ended: nobody waits then."""
        if self._loop is None:
            _log.error("%d results came before an event loop was bound; they are lost", len(finished))
            return
        try:
            self._loop.call_soon_threadsafe(_call_each, finished)
        except RuntimeError:
            _log.debug("%d results came after the event loop had closed", len(finished))

    def call(self, function: Callable[[], None]) -> None:
        """Calls a function on the loop. Does nothing after the loop has ended: nobody waits then."""
        if self._loop is None:
            _log.error("a completion was posted before an event loop was bound; it is lost")
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            _log.debug("a completion was posted after the event loop had closed")


def _call_each(finished: Sequence[tuple[Done, Result]]) -> None:
    for done, result in finished:
        try:
            done(result)
        except (Exception, asyncio.CancelledError):  # noqa: BLE001
            # One caller's exception must not affect the others.
            _log.exception("a completion failed")


class AsyncKafkaProducer(Generic[K, V]):
    """A producer for one event loop. Its records have bytes, or the types of its serializers.

    Use it as an async context manager, or call `start()` and `close()`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        key_serializer: Callable[[K], bytes | None] | None = None,
        value_serializer: Callable[[V], bytes | None] | None = None,
        interceptors: Sequence[ProducerInterceptor[K, V]] = (),
        events: EventSink = NO_EVENTS,
    ) -> None:
        """Reads certificates, keys and credentials; asks no DNS server. Raises ConfigError.

        Serializers and interceptors are those of KafkaProducer; all of an interceptor's methods are called on
        the event loop.
        """
        self._completions = LoopCompletions()
        self._preparation = Preparation(key_serializer, value_serializer, interceptors)
        self._prepares = not self._preparation.changes_nothing
        self._producer = KafkaProducer(
            config,
            events=events,
            completions=self._completions,
            wake_soon=self._completions.wake_soon,
            resolves_later=True,
        )
        self._preparation.count_refused = self._producer.count_refused
        self._resolved = _Resolved(self._producer.post_at_end_of_turn)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sends_in_a_row = 0
        self._has_closed_interceptors = False

    def __repr__(self) -> str:
        return f"<Async{repr(self._producer)[1:]}"

    def start(self) -> None:
        """Starts the I/O thread, and belongs to the running event loop from now on. Once."""
        loop = asyncio.get_running_loop()
        self._producer.start()  # first: it refuses a second start, of another loop perhaps
        self._completions.bind(loop)
        self._loop = loop

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes without a time limit, as KafkaProducer's context manager does."""
        await self.close()

    # -- records ---------------------------------------------------------------------------------------------

    async def send(self, record: ProducerRecord[K, V]) -> asyncio.Future[RecordMetadata]:
        """Appends one record, and returns the future of its receipt.

        Waits for metadata and memory, for at most max.block.ms. Cancelled while it waits, it drops the
        record, unless that was appended just then: then it is delivered. Cancelling the future changes
        nothing for the record. As in KafkaProducer.send, timeouts, authorization and size are the future's
        error; a closed producer, a wrong argument and a serializer's error are raised.
        """
        loop = self._ensure_loop()
        if self._prepares:
            future = await self._send_prepared(record, loop)
        else:
            plain: ProducerRecord = record  # type: ignore[assignment]  # no serializer: bytes
            future = RecordFuture(self._resolved, loop)
            if not self._producer.try_append(plain, future):
                await self._append(plain, future)
        self._sends_in_a_row += 1
        if self._sends_in_a_row >= _SENDS_PER_TURN:
            self._sends_in_a_row = 0
            await asyncio.sleep(0)  # after the append: sends of later tasks must not overtake this one
        return future

    async def _send_prepared(
        self, record: ProducerRecord[K, V], loop: asyncio.AbstractEventLoop
    ) -> RecordFuture:
        preparation = self._preparation
        plain = preparation.prepared(record)
        future = RecordFuture(self._resolved, loop, partial(preparation.ended, plain))
        if not self._producer.try_append(plain, future):
            try:
                await self._append(plain, future)
            except Exception as error:
                preparation.failed(plain, error)
                raise
        return future

    async def _append(self, record: ProducerRecord, future: RecordFuture) -> None:
        """Appends what `try_append` can't, and waits while the record is parked."""
        now_ms = self._producer.clock.now_ms()
        loop = future.get_loop()
        appended: asyncio.Future[None] = loop.create_future()

        has_ended = False

        def ended(result: Result) -> None:
            nonlocal has_ended
            has_ended = True
            outcome = result.outcomes[0]
            if isinstance(outcome, RecordMetadata):
                future.succeed(outcome)
            else:
                future.fail(outcome.error, outcome.partition)
            unparked(result)  # also where the producer has ended before it took the record

        def unparked(_: Result) -> None:
            if not appended.done():
                appended.set_result(None)

        def settled(result: Result) -> None:
            if not has_ended:  # cancelled: interceptors see what became of the record all the same
                ended(result)

        try:
            ticket = self._producer.submit(
                record.topic,
                (record,),
                block_deadline_ms=min(now_ms + self._producer.config.max_block_ms, FOREVER_MS),
                deadline_ms=FOREVER_MS,
                done=ended,
                settled=None if future.on_end is None else settled,
                appended=unparked,
            )
        except ApiError as error:
            future.fail(error)
            return
        if ticket.is_parked:
            try:
                await appended
            except asyncio.CancelledError:
                ticket.cancel()
                raise

    async def send_and_wait(self, record: ProducerRecord[K, V]) -> RecordMetadata:
        """Returns the record's receipt; raises what it failed with.

        Cancelled after the record was appended, it leaves the record to be delivered.
        """
        return await (await self.send(record))

    async def submit(
        self,
        topic: str,
        records: Sequence[ProducerRecord[K, V]],
        *,
        timeout_ms: int | None = None,
        max_block_ms: int | None = None,
    ) -> ProduceResult:
        """Returns one outcome per record, in order, when all are known or after `timeout_ms`.

        `max_block_ms` limits the wait for metadata and memory; its default is the setting's. Without
        `timeout_ms`, delivery.timeout.ms limits the rest. At the timeout unsent records are removed, and
        those in flight have an unknown outcome. Cancelled, it removes unsent records too. Raises what
        KafkaProducer.submit raises.
        """
        loop = self._ensure_loop()
        now_ms = self._producer.clock.now_ms()
        block_ms = self._producer.config.max_block_ms if max_block_ms is None else max_block_ms
        preparation = self._preparation
        plain = preparation.all_prepared(records)
        finished: asyncio.Future[ProduceResult] = loop.create_future()

        def end(result: Result) -> None:
            assert isinstance(result, ProduceResult)
            if not finished.done():
                finished.set_result(result)

        done, settled = preparation.notified(plain, end)
        try:
            ticket = self._producer.submit(
                topic,
                plain,
                block_deadline_ms=min(now_ms + block_ms, FOREVER_MS),
                deadline_ms=FOREVER_MS if timeout_ms is None else min(now_ms + timeout_ms, FOREVER_MS),
                done=done,
                settled=settled,
            )
        except Exception as error:
            preparation.all_failed(plain, error)
            raise
        try:
            return await finished
        except asyncio.CancelledError:
            ticket.cancel()
            raise

    async def flush(self) -> None:
        """Sends all accepted records without linger, and waits until each is acknowledged or failed.

        The futures of earlier sends are done when it returns. Cancelled, it leaves the records to be
        delivered.
        """
        finished: asyncio.Future[None] = self._ensure_loop().create_future()

        def end() -> None:
            if not finished.done():
                finished.set_result(None)

        ticket = self._producer.request_flush(partial(self._completions.call, end))
        try:
            await finished
        except asyncio.CancelledError:
            ticket.cancel()
            raise

    # -- producer --------------------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> Sequence[PartitionInfo]:
        """Returns a topic's partitions. Waits up to max.block.ms until the topic is known."""
        loop = self._ensure_loop()
        finished: asyncio.Future[MetadataResult] = loop.create_future()

        def end(result: Result) -> None:
            assert isinstance(result, MetadataResult)
            if not finished.done():
                finished.set_result(result)

        producer = self._producer
        deadline_ms = min(producer.clock.now_ms() + producer.config.max_block_ms, FOREVER_MS)
        ticket = producer.request_topics(
            (topic,), deadline_ms=deadline_ms, create=True, settle=False, done=end
        )
        try:
            result = await finished
        except asyncio.CancelledError:
            ticket.cancel()
            raise
        error = result.topic_errors.get(topic, result.error)
        if error is not None:
            raise error
        return result.cache.cluster.partitions_for_topic(topic)

    @property
    def cache(self) -> MetadataCache:
        """The current snapshot of the cluster's metadata. Any thread."""
        return self._producer.cache

    def status(self) -> ClientStatus:
        """Returns the client's state. Any thread."""
        return self._producer.status()

    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Returns the metrics: see KafkaProducer. Any thread."""
        return self._producer.metrics()

    async def close(self, timeout_ms: int = FOREVER_MS) -> CloseReport:
        """Sends accepted records for up to timeout_ms, fails the rest, and returns the report.

        A cancelled close continues in its thread, and closes the interceptors when it is done. The log has
        the number of records that it gave up.
        """
        io_thread = self._producer.io_thread
        unclosed_producers.hold(io_thread)
        closing = asyncio.wrap_future(_in_thread(partial(self._producer.close, timeout_ms)))
        closing.add_done_callback(self._close_interceptors)
        try:
            report = await asyncio.shield(closing)
        except asyncio.CancelledError:
            unclosed_producers.abandon(io_thread)
            raise
        unclosed_producers.release(io_thread)
        return report

    def _close_interceptors(self, _: object) -> None:
        """Once: `close` may be called again. Event loop."""
        if not self._has_closed_interceptors:
            self._has_closed_interceptors = True
            self._preparation.close()

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            raise IllegalStateError(
                "This AsyncKafkaProducer was not started: call start(), or use `async with`."
                if self._loop is None
                else "This AsyncKafkaProducer belongs to another event loop: create one for each loop."
            )
        return loop


def _in_thread(close: Callable[[], CloseReport]) -> ConcurrentFuture[CloseReport]:
    """Calls `close` on a thread of its own, and returns the future of its report.

    The loop's executor has few threads, which the caller may have filled with waits of any length. A daemon:
    the process's end waits for exit.flush.timeout.ms, not for this thread.
    """
    report: ConcurrentFuture[CloseReport] = ConcurrentFuture()

    def run() -> None:
        report.set_running_or_notify_cancel()  # from now on nobody can cancel it
        try:
            report.set_result(close())
        except BaseException as error:  # noqa: BLE001 -- the waiter's
            report.set_exception(error)

    threading.Thread(target=run, name="pilotfish-close", daemon=True).start()
    return report


_NOTHING: Final = ProduceResult(0, (), 0)


class _Resolved:
    """Completed futures on their way to the loop: all of an I/O thread's turn at once."""

    def __init__(self, post: Callable[[Done, Result], None]) -> None:
        """`post`: KafkaProducer's function, not the producer: a waiting record must not keep that alive."""
        self._post = post
        self._futures: deque[RecordFuture] = deque()
        self._is_posted = False

    def add(self, future: RecordFuture) -> None:
        """Adds a completed future. I/O thread."""
        self._futures.append(future)
        if not self._is_posted:  # read after the append: `_resolve` does the reverse
            self._is_posted = True
            self._post(self._resolve, _NOTHING)

    def _resolve(self, _: Result) -> None:
        self._is_posted = False
        futures = self._futures
        while futures:
            future = futures.popleft()
            try:
                future.resolve()
            except Exception as error:  # noqa: BLE001 -- no memory for a receipt: others must not wait for it
                if not future.done():
                    future.set_exception(error)


class RecordFuture(asyncio.Future[RecordMetadata]):
    """The future of one record's receipt, and its owner in the batch (RecordOwner).

    asyncio does not log an error that is never retrieved: the client itself logs failed records, with a
    limited number of lines.
    """

    __slots__ = ("_outcome", "_position", "_resolved", "on_end")

    #: Always False: a future waits for its record without a time limit.
    was_given_up: Final = False

    def __init__(
        self, resolved: _Resolved, loop: asyncio.AbstractEventLoop, on_end: OnEnd | None = None
    ) -> None:
        """`on_end` gets the receipt or the error, before the waiters do. Event loop."""
        super().__init__(loop=loop)
        self._resolved = resolved
        self._outcome: BatchOutcome | None = None
        self._position = 0
        self.on_end = on_end

    def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
        """Stores the outcome. I/O thread."""
        self._outcome = outcome
        self._position = first_in_batch
        self._resolved.add(self)

    def resolve(self) -> None:
        """Ends with the batch's outcome. Event loop."""
        outcome, position = self._outcome, self._position
        assert outcome is not None
        error = outcome.error_for(position)
        if error is None:
            self.succeed(outcome.metadata_for(position))
        else:
            self.fail(error, outcome.partition)

    def succeed(self, receipt: RecordMetadata) -> None:
        if self.on_end is not None:
            self.on_end(receipt, None, None)
        if not self.done():
            self.set_result(receipt)

    def fail(self, error: KafkaError, partition: int | None = None) -> None:
        """Fails the record. `partition`: where it was appended, if it was."""
        if self.on_end is not None:
            self.on_end(None, partition, error)
        if not self.done():
            self.set_exception(error)
            self._log_traceback = False
