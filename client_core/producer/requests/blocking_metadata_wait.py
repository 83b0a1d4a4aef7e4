"""max.block.ms for metadata: the wait of a thread that has nothing better to do until a topic is known.

Java's way, for `send` and `partitions_for`. Submitted requests wait in `parked_requests.py`, by the same
judgement. Any thread but the I/O thread. Source: KafkaProducer.waitOnMetadata, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.errors import TimeoutError
from client_core.events import WaitFinished
from client_core.producer.requests.metadata_wait import Fail, Known, judge_metadata_wait, metadata_timeout
from client_core.producer.results.ticket import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.producer_metadata import ProducerMetadata


def mark_used(cache: MetadataCache, topic: str) -> None:
    """Renews the topic's idle expiry by a plain store: no lock, no look at the clock."""
    table = cache.topic(topic)
    if table is not None:
        table.use.touched = True


class BlockingMetadataWait:
    """Waits for topics and partitions, asking for them as often as Metadata allows."""

    def __init__(
        self, metadata: ProducerMetadata, clock: Clock, events: EventSink, wakeup: Callable[[], None]
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._events = events
        self._wakeup = wakeup

    def for_topic(self, topic: str, partition: int | None, max_wait_ms: int) -> tuple[MetadataCache, int]:
        """A snapshot that knows the topic, and the partition if one is named; and how long that took."""
        began_ms = self._clock.now_ms()
        cache = self._metadata.cache
        judged = judge_metadata_wait(cache, topic, partition, answered=False)
        if isinstance(judged, Fail):
            raise judged.error
        if isinstance(judged, Known):
            mark_used(cache, topic)
            return cache, 0
        outcome = "error"
        try:
            cache = self._wait(topic, partition, max_wait_ms, began_ms)
            outcome = "success"
        except TimeoutError:
            outcome = "timeout"
            raise
        finally:
            waited_ms = self._clock.now_ms() - began_ms
            self._events.emit(WaitFinished(Phase.METADATA.value, outcome, waited_ms))
        return cache, waited_ms

    def _wait(self, topic: str, partition: int | None, max_wait_ms: int, began_ms: int) -> MetadataCache:
        metadata = self._metadata
        elapsed_ms = 0
        while True:
            metadata.add(topic, began_ms + elapsed_ms)
            version = metadata.request_update_for_topic(topic)
            self._wakeup()
            if not self._is_answered(version, max_wait_ms - elapsed_ms):
                raise self.timeout(topic, partition, max_wait_ms)
            elapsed_ms = self._clock.now_ms() - began_ms
            if elapsed_ms >= max_wait_ms:
                raise self.timeout(topic, partition, max_wait_ms)
            metadata.maybe_throw_exception_for_topic(topic)
            judged = judge_metadata_wait(metadata.cache, topic, partition, answered=True)
            if isinstance(judged, Fail):
                raise judged.error
            if isinstance(judged, Known):
                return metadata.cache

    def _is_answered(self, last_version: int, timeout_ms: int) -> bool:
        """Whether an update came in time. What else ends the wait is raised."""
        try:
            self._metadata.await_update(last_version, timeout_ms)
        except TimeoutError:
            return False
        return True

    def timeout(self, topic: str, partition: int | None, max_wait_ms: int) -> TimeoutError:
        """The error of a wait in vain, with the broker's last word as its cause."""
        code = self._metadata.settled_error_code(topic)
        last_disconnection = self._metadata.last_disconnection
        return metadata_timeout(self._metadata.cache, topic, partition, max_wait_ms, code, last_disconnection)
