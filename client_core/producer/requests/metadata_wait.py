"""Decides whether a record's metadata is known, awaited or failed; and blocks for it.

`judge_metadata_wait` decides for blocking calls and for parked requests alike, so both raise the same
TimeoutError. It is pure. `BlockingMetadataWait` blocks `send` and `partitions_for` for up to max.block.ms, on
any thread but the I/O thread. Submitted requests wait in `parked_requests.py`. Source:
KafkaProducer.waitOnMetadata, Kafka 4.3 (PROD-01..04).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from client_core.errors import (
    InvalidTopicError,
    KafkaError,
    NoBrokersError,
    TimeoutError,
    TopicAuthorizationError,
    error_for,
)
from client_core.events import WaitFinished
from client_core.producer.results.ticket import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.clock import Clock
    from client_core.errors import Cause
    from client_core.events import EventSink
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.requests.least_loaded_call import IoExecutor


def mark_used(cache: MetadataCache, topic: str) -> None:
    """Renews the topic's idle expiry by a plain store: no lock, no clock."""
    table = cache.topics.get(topic)
    if table is not None:
        table.use.touched = True


_NOT_STARTED: Final = (
    "The producer is not started, so no broker was asked: call start() first, or use it in a with statement."
)


class BlockingMetadataWait:
    """Waits for topics and partitions, requesting updates as often as Metadata allows."""

    def __init__(
        self, metadata: ProducerMetadata, clock: Clock, events: EventSink, io_thread: IoExecutor
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._events = events
        self._io_thread = io_thread

    def for_topic(self, topic: str, partition: int | None, max_wait_ms: int) -> tuple[MetadataCache, int]:
        """Returns a snapshot with the topic, and with the partition if given; and the wait in ms."""
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
            self._io_thread.wakeup()
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
        """Returns whether an update came in time. Raises other ends of the wait."""
        try:
            self._metadata.await_update(last_version, timeout_ms)
        except TimeoutError:
            return False
        return True

    def timeout(self, topic: str, partition: int | None, max_wait_ms: int) -> TimeoutError:
        """Returns the error of a timed out wait, with the broker's last error as its cause."""
        if self._metadata.cache.is_bootstrap and not self._io_thread.was_started:
            said = f"Topic {topic} not present in metadata after {max_wait_ms} ms."
            return TimeoutError(f"{said} {_NOT_STARTED}")
        code = self._metadata.settled_error_code(topic)
        metadata = self._metadata
        error = metadata_timeout(
            metadata.cache,
            topic,
            partition,
            max_wait_ms,
            code,
            metadata.last_disconnection,
            metadata.cause_of_silence,
        )
        return with_cause_of_silence(error, metadata)


class Known(NamedTuple):
    """The topic's partition count; the requested partition exists."""

    partition_count: int


class Fail(NamedTuple):
    """Waiting does not help: the broker reported a final error."""

    error: KafkaError


class Wait(Enum):
    """The topic or the requested partition does not exist yet."""

    FOR_TOPIC = "topic"
    FOR_PARTITION = "partition"


Judgement = Known | Wait | Fail


def judge_metadata_wait(
    cache: MetadataCache, topic: str, partition: int | None, *, answered: bool
) -> Judgement:
    """Decides whether a record for a topic, or for its partition if given, can be appended now.

    `answered`: the snapshot has a response to our own request. Before that, an invalid topic stays invalid,
    but a topic without authorization is requested again: ACLs change.
    """
    cluster = cache.cluster
    if topic in cluster.invalid_topics:
        return Fail(InvalidTopicError(f"Invalid topics: [{topic}]"))
    if answered and topic in cluster.unauthorized_topics:
        return Fail(TopicAuthorizationError(f"Not authorized to access topics: [{topic}]"))
    count = cluster.partition_count_for_topic(topic)
    if count is None:
        return Wait.FOR_TOPIC
    if partition is not None and partition >= count:
        return Wait.FOR_PARTITION
    return Known(count)


def metadata_timeout(
    cache: MetadataCache,
    topic: str,
    partition: int | None,
    max_wait_ms: int,
    last_error_code: int | None,
    last_disconnection: str | None = None,
    cause_of_silence: Callable[[], Cause | None] = lambda: None,
) -> TimeoutError:
    """Returns the error of a timed out wait, with Java's text (PROD-02, PROD-03).

    Its cause is the brokers' last error of the topic; or that no broker has answered, and why. Without both
    it is that of `cause_of_silence`, if no broker has answered for the topic.
    """
    count = cache.cluster.partition_count_for_topic(topic)
    if count is None or partition is None:
        error = TimeoutError(f"Topic {topic} not present in metadata after {max_wait_ms} ms.")
    else:
        error = TimeoutError(
            f"Partition {partition} of topic {topic} with partition count {count} is not present in metadata "
            f"after {max_wait_ms} ms."
        )
    if last_error_code:
        error.__cause__ = error_for(last_error_code)
    elif cache.is_bootstrap:
        error.__cause__ = no_brokers(last_disconnection)
    elif count is None:
        error.because_of(cause_of_silence())
    return error


_E = TypeVar("_E", bound=KafkaError)


def with_cause_of_silence(error: _E, metadata: ProducerMetadata) -> _E:
    """Returns the error of a wait; if no broker has answered, with the connections' cause."""
    for one in (error, error.__cause__):
        if isinstance(one, NoBrokersError):
            one.cause = metadata.cause_of_silence()
    return error


#: Added if no broker is known: none has answered since the client started, or rebootstrapped.
_NO_BROKERS: Final = "No broker of bootstrap.servers has answered"


def no_brokers(last_disconnection: str | None, *, waited_ms: int | None = None) -> NoBrokersError:
    """Returns the error: no broker has answered, within which time, and how the last attempt ended."""
    said = _NO_BROKERS if waited_ms is None else f"{_NO_BROKERS}, within {waited_ms} ms"
    return NoBrokersError(said if last_disconnection is None else f"{said}; last: {last_disconnection}")
