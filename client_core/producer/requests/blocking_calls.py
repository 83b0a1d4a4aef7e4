"""Java's blocking calls: wait for metadata, append one record, flush; and a flush that blocks no thread.

KafkaProducer's `send`, `partitions_for` and `flush` delegate to this. The I/O thread runs callbacks and must
not block: on it, missing metadata or memory fails at once, and a flush is refused. Any thread. Source:
KafkaProducer.doSend, waitOnMetadata, flush, Kafka 4.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS
from client_core.errors import ApiError, KafkaError, ProducerClosedError
from client_core.events import WaitFinished
from client_core.latch import Latch
from client_core.producer.requests.appending import append_blocking
from client_core.producer.requests.least_loaded_call import CLOSED_WHILE_WAITING
from client_core.producer.requests.metadata_wait import BlockingMetadataWait
from client_core.producer.requests.record_checks import check_arguments, check_topics, ensure_valid_size
from client_core.producer.results.ticket import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.accumulator.buffer_pool import BufferPool
    from client_core.producer.accumulator.incomplete_batches import FlushTicket
    from client_core.producer.accumulator.record_accumulator import RecordAccumulator
    from client_core.producer.requests.least_loaded_call import IoExecutor
    from client_core.producer.requests.ordering_gate import OrderingGate
    from client_core.producer.results.future_record_metadata import FutureRecordMetadata
    from client_core.producer.results.producer_record import ProducerRecord
    from client_core.producer.results.ticket import Completions
    from client_core.producer.settings.config import ProducerConfig

_log: Final = logging.getLogger(__name__)

#: A flush's name in WaitFinished.
FLUSH: Final = "flush"

_FLUSH_IN_CALLBACK: Final = (
    "KafkaProducer.flush() invocation inside a callback is not permitted because it may lead to deadlock."
)


class BlockingCalls:
    """Blocks the caller's thread, by the producer's clock."""

    def __init__(
        self,
        config: ProducerConfig,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        pool: BufferPool,
        io_thread: IoExecutor,
        gate: OrderingGate,
        completions: Completions,
        clock: Clock,
        events: EventSink,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._accumulator = accumulator
        self._pool = pool
        self._io_thread = io_thread
        self._gate = gate
        self._completions = completions
        self._clock = clock
        self._events = events
        self._metadata_wait = BlockingMetadataWait(metadata, clock, events, io_thread)

    def wait_on_metadata(
        self, topic: str, partition: int | None, max_wait_ms: int
    ) -> tuple[MetadataCache, int]:
        """Returns a snapshot with the topic, and the partition if named; and the wait in ms."""
        if topic not in self._metadata.cache.topics:
            check_topics((topic,))
        can_wait = not self._io_thread.is_current
        return self._metadata_wait.for_topic(topic, partition, max_wait_ms if can_wait else 0)

    def send(self, record: ProducerRecord, future: FutureRecordMetadata) -> None:
        """Appends one record, waiting for what it needs. Java's ApiExceptions become the future's error."""
        try:
            check_arguments(record)
            self._append(record, future)
        except ApiError as error:
            _log.debug("A record for topic %s was not appended: %s", record.topic, error)
            if not self._accumulator.failed.add_if_open(record.topic):  # so it was never accepted
                raise ProducerClosedError(CLOSED_WHILE_WAITING) from error
            future.fail(error)
        except KafkaError:
            self._accumulator.failed.notify(record.topic, 1)
            raise

    def _append(self, record: ProducerRecord, future: FutureRecordMetadata) -> None:
        config = self._config
        try:
            cache, waited_ms = self.wait_on_metadata(record.topic, record.partition, config.max_block_ms)
        except KafkaError as error:
            if self._metadata.is_closed:
                raise ProducerClosedError(CLOSED_WHILE_WAITING) from error
            raise
        ensure_valid_size(record, config.max_request_size, config.buffer_memory)
        if record.topic in self._gate.topics:
            waited_ms += self._wait_behind_parked(record.topic, waited_ms)
        left_ms = 0 if self._io_thread.is_current else max(config.max_block_ms - waited_ms, 0)
        try:
            wakes = append_blocking(
                record,
                future,
                self._accumulator,
                self._pool,
                cache,
                self._clock,
                left_ms,  # PROD-05: metadata has used up its share
                ignore_keys=config.partitioner_ignore_keys,
            )
            if wakes:
                self._io_thread.wakeup()
        except BaseException:
            # It may be interrupted with a batch begun, and later records of that batch would not wake.
            self._io_thread.wakeup()
            raise

    def _wait_behind_parked(self, topic: str, waited_ms: int) -> int:
        """Waits until earlier submitted requests of the topic are appended (ORD-01); returns the wait in ms.

        A callback can't wait: it overtakes requests of others, and fails behind another callback's.
        """
        gate, pool = self._gate, self._pool
        if self._io_thread.is_current:
            if gate.has_callbacks(topic):
                raise pool.exhausted(pool.poolable_bytes, 0)
            return 0
        max_block_ms, began_ms = self._config.max_block_ms, self._clock.now_ms()
        deadline_ms = min(began_ms + max(max_block_ms - waited_ms, 0), FOREVER_MS)
        outcome = "error"
        try:
            outcome = "success" if gate.wait_behind(topic, self._clock, deadline_ms) else "timeout"
        finally:
            behind_ms = self._clock.now_ms() - began_ms
            self._events.emit(WaitFinished(Phase.BUFFER.value, outcome, behind_ms))
        if outcome == "timeout":
            raise pool.exhausted(pool.poolable_bytes, max_block_ms)
        return behind_ms

    def flush(self) -> None:
        """Waits for all records accepted before (ACC-12, ORD-02). Raises KafkaError on the I/O thread."""
        if self._io_thread.is_current:
            raise KafkaError(_FLUSH_IN_CALLBACK)
        done = Latch()
        flush = self.request_flush(done.set)
        try:
            done.wait()
        except BaseException:
            flush.cancel()
            raise

    def request_flush(self, done: Callable[[], None]) -> PendingFlush:
        """Begins a flush that blocks no thread, and returns it. Any thread, also the I/O thread."""
        flush = PendingFlush(
            self._accumulator,
            self._io_thread,
            self._gate,
            self._completions,
            self._clock,
            self._events,
            done,
        )
        flush.begin()
        return flush


class PendingFlush:
    """A flush in progress, for which no thread waits: the end of each step begins the next one.

    With a thread per flush, one that is cancelled would leave its thread waiting for as long as the records
    are under way, and callers cancel and repeat.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        io_thread: IoExecutor,
        gate: OrderingGate,
        completions: Completions,
        clock: Clock,
        events: EventSink,
        done: Callable[[], None],
    ) -> None:
        """`done` is called once, when the results of earlier records are posted; not after `cancel`."""
        self._accumulator = accumulator
        self._io_thread = io_thread
        self._gate = gate
        self._completions = completions
        self._clock = clock
        self._events = events
        self._done = done
        self._began_ms = clock.now_ms()
        self._last_parked = gate.last_number
        self._is_parked = bool(gate.topics)
        self._batches: FlushTicket | None = None
        self._is_cancelled = False

    def begin(self) -> None:
        """Flushes what is appended, then what is parked now. Once."""
        self._flush_appended(self._flush_parked if self._is_parked else self._wait_for_results)

    def cancel(self) -> None:
        """Ends the flush: lingering batches linger again. `done` is not called any more. Any thread."""
        self._is_cancelled = True
        if self._batches is not None:
            self._batches.abandon()

    def _flush_parked(self) -> None:
        self._gate.call_after_parked(self._last_parked, lambda: self._flush_appended(self._wait_for_results))

    def _flush_appended(self, then: Callable[[], None]) -> None:
        self._batches = self._accumulator.begin_flush(then)
        if self._is_cancelled:  # read after the line above is stored: `cancel` does the reverse
            self._batches.abandon()
        self._io_thread.wakeup()

    def _wait_for_results(self) -> None:
        if self._completions.is_reported:
            self._end()
            return
        self._completions.call_when_posted(self._end)
        self._io_thread.wakeup()

    def _end(self) -> None:
        if self._is_cancelled:
            return
        self._events.emit(WaitFinished(FLUSH, "success", self._clock.now_ms() - self._began_ms))
        self._done()
