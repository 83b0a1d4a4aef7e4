"""Fast path: appends one record to an open batch that has room.

The cost of `KafkaProducer.send` is Python's: calls, checks and small objects. The full path
(`blocking_calls.py`, `appending.py`, `batch_appender.py`) waits for metadata and memory, begins and fills
batches, and moves the sticky partition. Of a thousand records that fill a batch, all but the first and the
last need none of that. They are appended here at a third of the cost.

It appends, or changes nothing and says so; then the record takes the full path. The result equals the full
path's, and a test holds the two equal, record by record. Any thread. Source: RecordAccumulator.append, its
first tryAppend, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client_core.producer.accumulator.partitioner import partition_for_key
from client_core.producer.requests.metadata_wait import Known, judge_metadata_wait

if TYPE_CHECKING:
    from collections.abc import Collection

    from client_core.clock import Clock
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.metadata.topic_table import TopicUse
    from client_core.producer.accumulator.batch_appender import BatchAppender
    from client_core.producer.accumulator.topic_queues import TopicQueues
    from client_core.producer.results.batch_outcome import RecordOwner
    from client_core.producer.results.producer_record import ProducerRecord


class _KnownTopic(NamedTuple):
    """One snapshot's data of a topic, looked up once."""

    partition_count: int
    use: TopicUse
    queues: TopicQueues


class _Known(NamedTuple):
    """The known topics and their snapshot, which is dropped with the next one."""

    cache: MetadataCache
    topics: dict[str, _KnownTopic]


class QuickAppend:
    """The fast path. `most_bytes`: the largest size of key plus value."""

    def __init__(
        self,
        metadata: ProducerMetadata,
        appender: BatchAppender,
        clock: Clock,
        *,
        most_bytes: int,
        ignore_keys: bool,
        held_topics: Collection[str] = (),
    ) -> None:
        """`held_topics`: the topics with parked requests, which must not be overtaken (ORD-01)."""
        self._metadata = metadata
        self._appender = appender
        self._clock = clock
        self._most_bytes = most_bytes
        self._ignore_keys = ignore_keys
        self._held_topics = held_topics
        self._known = _Known(metadata.cache, {})

    def append(self, record: ProducerRecord, owner: RecordOwner) -> bool:
        """Returns whether the record is in a batch now. If not, nothing has changed."""
        topic, value, key, partition, timestamp_ms, headers = record
        if self._held_topics and topic in self._held_topics:
            return False
        cache, topics = self._known
        known = topics.get(topic) if cache is self._metadata.cache else None
        if known is None:
            cache = self._metadata.cache
            known = self._look_up(topic, cache)
        if known is None or timestamp_ms is not None or headers or type(value) is not bytes:
            return False
        size_bytes = len(value)
        if key is not None:
            if type(key) is not bytes:
                return False
            size_bytes += len(key)
            if partition is None and not self._ignore_keys:
                partition = partition_for_key(key, known.partition_count)
        if size_bytes > self._most_bytes:
            return False
        if partition is not None and not (type(partition) is int and partition < known.partition_count):
            return False
        wall_ms = self._clock.wall_ms()
        queues = known.queues
        with queues.lock:
            sticky = queues.partitioner if partition is None else None
            if sticky is not None:
                partition = None if sticky.lost.node_ids else sticky.partition
                if partition is not None and partition >= known.partition_count:
                    return False
            queue = None if partition is None else queues.partitions.get(partition)
            if queue is None or not queue.batches or self._appender.closed:
                return False
            batch = queue.batches[-1]
            taken_bytes = batch.append_one(record, size_bytes, owner, wall_ms)
            if taken_bytes is None:
                return False
            if sticky is None:
                batch.keyless_only = False
            else:
                sticky.update(taken_bytes, cache.cluster, enable_switch=False)
        known.use.touched = True
        return True

    def _look_up(self, topic: str, cache: MetadataCache) -> _KnownTopic | None:
        """Returns the topic in the present snapshot; None if it is unknown or rejected."""
        judged = judge_metadata_wait(cache, topic, None, answered=False)
        table = cache.topic(topic)
        if not isinstance(judged, Known) or table is None:
            return None
        held = self._known
        if held.cache is not cache:
            held = self._known = _Known(cache, {})
        known = _KnownTopic(judged.partition_count, table.use, self._appender.queues_of(topic))
        held.topics[topic] = known
        return known
