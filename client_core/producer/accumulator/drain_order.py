"""Where a node's drain begins: elsewhere each time, so that small requests starve no partition (ACC-09).

All partitions that a node leads stand in a circle: topics by name, partitions from the highest to the lowest.
A drain that got round begins one partition earlier the next time, one that was stopped by the request's size
begins where it was stopped. So says Java, whose partitions stand as its hash map has them; but here only the
partitions that hold batches are walked, and the circle is there to be counted. It covers the topics that have
queues, and is rebuilt for topics whose partitions changed.

I/O thread only. Source: RecordAccumulator.drainBatchesForOneNode, Kafka 4.3.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import neg
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from client_core.cluster import Cluster, TopicPartition, TopicPartitions

#: A partition's place in the circle: the topic, and the partition's rank in it.
_Place = tuple[str, int]


class DrainOrder:
    """The circles of all nodes, and where each one's next drain begins."""

    __slots__ = ("_circles", "_cluster", "_places", "_rank", "_starts", "_topic_count")

    def __init__(self, rank: Callable[[int], int] = neg) -> None:
        """`rank` of a partition's number: the least one stands first in its topic."""
        self._rank = rank
        self._cluster: Cluster | None = None
        self._topic_count = 0
        self._places: dict[str, tuple[TopicPartitions, Mapping[int, Sequence[_Place]]]] = {}
        self._circles: dict[int, list[_Place]] = {}
        self._starts: dict[int, int] = {}

    def use(self, cluster: Cluster, topics: Set[str]) -> None:
        """Takes note of a snapshot, and of the topics that have queues."""
        if cluster is self._cluster and len(topics) == self._topic_count:
            return
        self._cluster, self._topic_count = cluster, len(topics)
        self._circles = {}
        self._starts = {node_id: at for node_id, at in self._starts.items() if node_id in cluster.nodes_by_id}
        for topic in self._places.keys() - topics:
            del self._places[topic]
        for topic in sorted(topics):
            partitions = cluster.topic_partitions.get(topic)
            if partitions is None:
                self._places.pop(topic, None)
                continue
            known = self._places.get(topic)
            if known is None or known[0] is not partitions:
                known = self._places[topic] = partitions, self._by_leader(topic, partitions)
            for node_id, places in known[1].items():
                if node_id in cluster.nodes_by_id:
                    self._circles.setdefault(node_id, []).extend(places)

    def arranged(self, node_id: int, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions in the order in which the node's drain is to look at them."""
        ordered = sorted(topic_partitions, key=self._place)
        circle = self._circles.get(node_id)
        if not circle:
            return ordered
        start = bisect_left(ordered, circle[self._starts.get(node_id, 0) % len(circle)], key=self._place)
        return ordered[start:] + ordered[:start]

    def stopped(self, node_id: int, at: TopicPartition) -> None:
        """The request was full before this partition: it is the first one the next time."""
        circle = self._circles.get(node_id)
        if circle:
            self._starts[node_id] = bisect_left(circle, self._place(at))

    def got_round(self, node_id: int) -> None:
        """Every partition was looked at."""
        circle = self._circles.get(node_id)
        if circle:
            self._starts[node_id] = (self._starts.get(node_id, 0) % len(circle) - 1) % len(circle)

    def _place(self, topic_partition: TopicPartition) -> _Place:
        return topic_partition.topic, self._rank(topic_partition.partition)

    def _by_leader(self, topic: str, partitions: TopicPartitions) -> Mapping[int, Sequence[_Place]]:
        places: dict[int, list[_Place]] = {}
        for partition in sorted(partitions.numbers, key=self._rank):
            leader_id = partitions.leader_id(partition)
            if leader_id is not None:
                places.setdefault(leader_id, []).append((topic, self._rank(partition)))
        return places
