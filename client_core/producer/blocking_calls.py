"""Java's calls that block their caller: waiting for metadata, appending one record, flushing.

KafkaProducer's `send`, `partitions_for` and `flush` hand on to this. None of them may block the I/O thread,
on which callbacks run: there metadata and memory are there at once or not at all, and a flush is refused.
Any thread. Source: KafkaProducer.doSend, waitOnMetadata, flush, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS
from client_core.errors import KafkaError, ProducerClosedError
from client_core.events import WaitFinished
from client_core.producer.appending import append_blocking
from client_core.producer.blocking_metadata_wait import BlockingMetadataWait
from client_core.producer.io_thread import CLOSED_WHILE_WAITING
from client_core.producer.record_checks import check_topics, ensure_valid_size

if TYPE_CHECKING:
    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.buffer_pool import BufferPool
    from client_core.producer.config import ProducerConfig
    from client_core.producer.future_record_metadata import FutureRecordMetadata
    from client_core.producer.io_thread import IoThread
    from client_core.producer.producer_record import ProducerRecord
    from client_core.producer.record_accumulator import RecordAccumulator

#: What a flush is called in WaitFinished.
FLUSH: Final = "flush"

_FLUSH_IN_CALLBACK: Final = (
    "KafkaProducer.flush() invocation inside a callback is not permitted because it may lead to deadlock."
)


class BlockingCalls:
    """Waits on the caller's thread, by the producer's clock."""

    def __init__(
        self,
        config: ProducerConfig,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        pool: BufferPool,
        io_thread: IoThread,
        clock: Clock,
        events: EventSink,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._accumulator = accumulator
        self._pool = pool
        self._io_thread = io_thread
        self._clock = clock
        self._events = events
        self._metadata_wait = BlockingMetadataWait(metadata, clock, events, io_thread.wakeup)

    def wait_on_metadata(
        self, topic: str, partition: int | None, max_wait_ms: int
    ) -> tuple[MetadataCache, int]:
        """A snapshot that knows the topic, and the partition if one is named; and how long that took."""
        if topic not in self._metadata.cache.topics:
            check_topics((topic,))
        can_wait = not self._io_thread.is_current
        return self._metadata_wait.for_topic(topic, partition, max_wait_ms if can_wait else 0)

    def send(self, record: ProducerRecord, future: FutureRecordMetadata) -> None:
        """Appends a record whose arguments are checked. What it raises, `KafkaProducer.send` sorts."""
        config = self._config
        try:
            cache, waited_ms = self.wait_on_metadata(record.topic, record.partition, config.max_block_ms)
        except KafkaError as error:
            if self._metadata.is_closed:
                raise ProducerClosedError(CLOSED_WHILE_WAITING) from error
            raise
        ensure_valid_size(record, config.max_request_size, config.buffer_memory)
        left_ms = 0 if self._io_thread.is_current else max(config.max_block_ms - waited_ms, 0)
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

    def flush(self) -> None:
        """Waits for what is incomplete now. Raises KafkaError on the I/O thread (PROD-09)."""
        if self._io_thread.is_current:
            raise KafkaError(_FLUSH_IN_CALLBACK)
        began_ms = self._clock.now_ms()
        flush = self._accumulator.begin_flush()
        self._io_thread.wakeup()
        flush.wait(self._clock, FOREVER_MS)
        self._events.emit(WaitFinished(FLUSH, "success", self._clock.now_ms() - began_ms))
