"""Queues of batches to drain: one per partition, with one lock per topic.

The lock is per topic, not per partition: keyless records move between partitions inside one call, and Python
runs one thread at a time anyway. It is held briefly, never over a callback, I/O, or encoding. Source:
RecordAccumulator.TopicInfo, Kafka 4.3.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from client_core.cluster import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.producer.accumulator.partitioner import BuiltInPartitioner
    from client_core.producer.accumulator.producer_batch import ProducerBatch


class PartitionQueue:
    """Batches of one partition in sending order. `lock` is its topic's."""

    __slots__ = ("batches", "lock", "topic_partition", "topic_queues")

    def __init__(self, topic_partition: TopicPartition, topic_queues: TopicQueues) -> None:
        self.topic_partition: Final = topic_partition
        self.topic_queues: Final = topic_queues
        self.lock: Final = topic_queues.lock
        self.batches: Final[deque[ProducerBatch]] = deque()

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.topic_partition} batches={len(self.batches)}>"

    @property
    def is_ready(self) -> bool:
        """Returns whether a batch is full: the only one, or all before the last (ACC-05)."""
        return len(self.batches) > 1 or (len(self.batches) == 1 and self.batches[0].is_full)

    @property
    def all_full(self) -> bool:
        """Returns whether no batch has room: only the last may have some."""
        return not self.batches or self.batches[-1].is_full


class TopicQueues:
    """Every partition of a topic that records were appended to since it is held. Partitions are added, and
    removed only together with the topic.
    """

    __slots__ = ("is_forgotten", "lock", "name", "partitioner", "partitions")

    def __init__(self, name: str, partitioner: BuiltInPartitioner) -> None:
        self.name: Final = name
        self.lock: Final = threading.Lock()
        self.partitioner: Final = partitioner
        self.partitions: Final[dict[int, PartitionQueue]] = {}
        #: The topic has new queues: an appending thread must look them up again.
        self.is_forgotten = False

    def partition(self, partition: int) -> PartitionQueue:
        """Returns the queue of a partition, made on first use. Under the lock."""
        queue = self.partitions.get(partition)
        if queue is None:
            queue = self.partitions[partition] = PartitionQueue(TopicPartition(self.name, partition), self)
        return queue


class WaitingQueues:
    """All topics, and their partitions with batches. Any thread may read the dicts."""

    __slots__ = ("_new_partitioner", "topics", "waiting")

    def __init__(self, new_partitioner: Callable[[str], BuiltInPartitioner]) -> None:
        self._new_partitioner = new_partitioner
        self.topics: Final[dict[str, TopicQueues]] = {}
        self.waiting: Final[dict[TopicPartition, PartitionQueue]] = {}

    def topic(self, name: str) -> TopicQueues:
        """Returns a topic's queues, made on first use. No lock: the loser of a race discards its own."""
        queues = self.topics.get(name)
        if queues is None:
            queues = self.topics.setdefault(name, TopicQueues(name, self._new_partitioner(name)))
        return queues

    def of(self, topic_partition: TopicPartition) -> PartitionQueue:
        """Returns a partition's queue. Takes its lock. I/O thread: only that thread forgets topics."""
        queues = self.topic(topic_partition.topic)
        with queues.lock:
            return queues.partition(topic_partition.partition)

    def forget(self, name: str) -> Sequence[TopicPartition] | None:
        """Drops a topic's queues and returns their partitions; None, without a change, while a batch waits.

        Java keeps them as long as the process lives. I/O thread.
        """
        queues = self.topics[name]
        with queues.lock:
            if any(queue.batches for queue in queues.partitions.values()):
                return None
            partitions = tuple(queue.topic_partition for queue in queues.partitions.values())
            queues.is_forgotten = True
            queues.partitions.clear()
            del self.topics[name]
        return partitions

    def insert(self, queue: PartitionQueue, place: int, batch: ProducerBatch) -> None:
        """Puts a batch into its queue. Under the lock."""
        queue.batches.insert(place, batch)
        self.waiting[queue.topic_partition] = queue

    def remove(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Takes a batch out of its queue, if it is there. Under the lock."""
        if batch in queue.batches:
            queue.batches.remove(batch)
        if not queue.batches:
            self.waiting.pop(queue.topic_partition, None)
