"""Finds the nodes with batches ready to send, and drains those batches.

A partition is ready when one of its batches is full or older than linger.ms, unless it backs off or is muted.
A drain takes one batch per partition, and as many partitions as fit into a request. An idempotent producer's
batch gets its sequence when it is drained. `ready` also records queue lengths for the adaptive partitioner.

Each drain of a node begins at another partition, so that small requests starve no partition (ACC-09). All
partitions that a node leads form a ring: topics by name, partitions in descending order. After a full round
the next drain begins one partition earlier. A drain stopped by the request's size is continued where it
stopped. Java's order is that of its hash map. Only partitions with batches are walked; the ring is only used
to compute positions. It covers topics with queues, and is rebuilt for topics whose partitions changed.

I/O thread only. Takes each topic's lock briefly, because appending threads hold it too.
RecordAccumulator has its `drain`. Source: RecordAccumulator.ready, drain, partitionReady,
drainBatchesForOneNode, Kafka 4.3.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import neg
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from client_core.clock import FOREVER_MS
from client_core.cluster import TopicPartition
from client_core.producer.accumulator.partitioner import PartitionLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
    from uuid import UUID

    from client_core.cluster import Cluster, Node, TopicPartitions
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.accumulator.topic_queues import TopicQueues, WaitingQueues


#: A partition's position in the ring: the topic, and the partition's rank in it.
_Rank = tuple[str, int]


class DrainOrder:
    """The rings of all nodes, and where each one's next drain begins."""

    __slots__ = ("_circles", "_cluster", "_places", "_rank", "_starts", "_topic_count")

    def __init__(self, rank: Callable[[int], int] = neg) -> None:
        """`rank` of a partition's number: the lowest is first in its topic."""
        self._rank = rank
        self._cluster: Cluster | None = None
        self._topic_count = 0
        self._places: dict[str, tuple[TopicPartitions, Mapping[int, Sequence[_Rank]]]] = {}
        self._circles: dict[int, list[_Rank]] = {}
        self._starts: dict[int, int] = {}

    def use(self, cluster: Cluster, topics: Set[str]) -> None:
        """Updates the rings for a snapshot, and for the topics that have queues."""
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

    def arranged(self, node_id: int, topic_partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Returns the partitions in the order in which the node's drain visits them."""
        if len(topic_partitions) < 2:
            return topic_partitions
        ordered = sorted(topic_partitions, key=self._place)
        circle = self._circles.get(node_id)
        if not circle:
            return ordered
        start = bisect_left(ordered, circle[self._starts.get(node_id, 0) % len(circle)], key=self._place)
        return ordered[start:] + ordered[:start]

    def stopped(self, node_id: int, at: TopicPartition) -> None:
        """Begins the next drain at this partition: the request was full before it."""
        circle = self._circles.get(node_id)
        if circle:
            self._starts[node_id] = bisect_left(circle, self._place(at))

    def got_round(self, node_id: int) -> None:
        """Notes that every partition was visited."""
        circle = self._circles.get(node_id)
        if circle:
            self._starts[node_id] = (self._starts.get(node_id, 0) % len(circle) - 1) % len(circle)

    def _place(self, topic_partition: TopicPartition) -> _Rank:
        return topic_partition.topic, self._rank(topic_partition.partition)

    def _by_leader(self, topic: str, partitions: TopicPartitions) -> Mapping[int, Sequence[_Rank]]:
        places: dict[int, list[_Rank]] = {}
        for partition in sorted(partitions.numbers, key=self._rank):
            leader_id = partitions.leader_id(partition)
            if leader_id is not None:
                places.setdefault(leader_id, []).append((topic, self._rank(partition)))
        return places


class PartitionLeaders(Protocol):
    """The metadata that drain and ready read: one snapshot."""

    @property
    def cluster(self) -> Cluster: ...

    def leader_for(self, topic_partition: TopicPartition, /) -> Node | None: ...

    def leader_and_epoch_for(self, topic_partition: TopicPartition, /) -> tuple[Node | None, int | None]: ...


class Sequences(Protocol):
    """The idempotence interface for drain and re-enqueue: TransactionManager. I/O thread only."""

    def must_wait(self, batch: ProducerBatch, /) -> bool: ...

    def assign_sequence(self, batch: ProducerBatch, /) -> None: ...

    def has_in_flight_batches(self, topic_partition: TopicPartition, /) -> bool: ...

    def add_in_flight_batch(self, batch: ProducerBatch, /) -> None: ...

    def leave(self, partitions: Iterable[TopicPartition], /) -> None: ...

    def follow(self, topic_ids: Mapping[str, UUID], /) -> None: ...


class Unbuildable(NamedTuple):
    """A drained batch that could not be encoded: only this batch fails."""

    batch: ProducerBatch
    error: Exception


class ReadyCheckResult(NamedTuple):
    """The nodes to send to now, when to check again, and the topics whose leaders must be found."""

    ready_nodes: Sequence[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: frozenset[str]


#: More brokers than a cluster has.
_MOST_NODES: Final = 1_000


@dataclass(slots=True)
class _NodeLatency:
    """When a node last had a ready batch, and when it last could accept one (ACC-17)."""

    ready_ms: int
    drain_ms: int


class BatchDrain:
    """Ready and drain over the queues that hold batches."""

    def __init__(
        self,
        queues: WaitingQueues,
        sequences: Sequences | None,
        *,
        linger_ms: int,
        adaptive_partitioning: bool,
        partition_availability_timeout_ms: int,
        drain_order: DrainOrder,
    ) -> None:
        self.muted: Final[set[TopicPartition]] = set()
        self.unbuildable: Final[list[Unbuildable]] = []
        self._queues = queues
        self._sequences = sequences
        self._linger_ms = linger_ms
        self._adaptive_partitioning = adaptive_partitioning
        self._availability_timeout_ms = partition_availability_timeout_ms
        self._drain_order = drain_order
        self._node_latency: dict[int, _NodeLatency] = {}
        self._topics_with_load: set[TopicQueues] = set()
        # The results of `ready`, for the drain that follows it with the same snapshot.
        self._placed_by: PartitionLeaders | None = None
        self._placed: dict[TopicPartition, tuple[Node | None, int | None]] = {}

    def ready(self, leaders: PartitionLeaders, now_ms: int, *, send_all: bool) -> ReadyCheckResult:
        """See RecordAccumulator.ready. `send_all`: each batch not in backoff is ready, full or not."""
        self._placed_by, self._placed = leaders, {}
        ready_nodes: dict[int, Node] = {}
        unknown_leader_topics: set[str] = set()
        queue_sizes: dict[TopicQueues, dict[int, int]] = {}
        slow: set[TopicPartition] = set()
        next_check_delay_ms = FOREVER_MS
        for topic_partition in sorted(self._queues.waiting):
            queue = self._queues.waiting.get(topic_partition)
            if queue is None:
                continue  # its only batch was cancelled meanwhile
            leader, leader_epoch = self._placed[topic_partition] = leaders.leader_and_epoch_for(
                topic_partition
            )
            with queue.lock:
                if not queue.batches:
                    continue
                batch = queue.batches[0]
                batch.maybe_update_leader_epoch(leader_epoch)
                backoff_left_ms = batch.retry_backoff_left_ms(now_ms) if batch.attempts else 0
                linger_left_ms = self._linger_ms and max(0, self._linger_ms - batch.waited_ms(now_ms))
                is_due = send_all or not linger_left_ms or queue.is_ready
                size = len(queue.batches)
            if leader is None:
                unknown_leader_topics.add(topic_partition.topic)
                continue
            queue_sizes.setdefault(queue.topic_queues, {})[topic_partition.partition] = size
            if self._node_latency and self._is_slow(leader.id):
                slow.add(topic_partition)
            if leader.id in ready_nodes or topic_partition in self.muted:
                continue
            if backoff_left_ms:
                next_check_delay_ms = min(next_check_delay_ms, backoff_left_ms)
            elif is_due:
                ready_nodes[leader.id] = leader
            else:
                next_check_delay_ms = min(next_check_delay_ms, linger_left_ms)
        if self._adaptive_partitioning and (queue_sizes or self._topics_with_load):
            self._update_load(leaders.cluster, queue_sizes, slow)
        return ReadyCheckResult(
            tuple(ready_nodes.values()), next_check_delay_ms, frozenset(unknown_leader_topics)
        )

    def drain(
        self, leaders: PartitionLeaders, nodes: Iterable[Node], max_size_bytes: int, now_ms: int
    ) -> dict[int, list[ProducerBatch]]:
        """Drains a request's worth of batches per node: closed, and removed from their queues (ACC-09)."""
        waiting: dict[int, list[TopicPartition]] = {node.id: [] for node in nodes}
        if not waiting:
            return {}
        if leaders is not self._placed_by:
            self._placed_by, self._placed = leaders, {}
        if self._sequences is not None:
            self._sequences.follow(leaders.cluster.topic_ids)
        for topic_partition in tuple(self._queues.waiting):
            place = self._placed.get(topic_partition)
            if place is None:
                place = self._placed[topic_partition] = leaders.leader_and_epoch_for(topic_partition)
            leader = place[0]
            if leader is not None and leader.id in waiting and topic_partition not in self.muted:
                waiting[leader.id].append(topic_partition)
        self._drain_order.use(leaders.cluster, self._queues.topics.keys())
        return {
            node_id: self._drain_node(node_id, topic_partitions, max_size_bytes, now_ms)
            for node_id, topic_partitions in waiting.items()
        }

    def leave(self, leaders: PartitionLeaders, node_ids: Collection[int]) -> None:
        """See RecordAccumulator.leave_lost_leaders."""
        for topic_partition, queue in tuple(self._queues.waiting.items()):
            leader = leaders.leader_for(topic_partition)
            if leader is None or leader.id not in node_ids:
                continue
            queues, cluster = queue.topic_queues, leaders.cluster
            with queue.lock:
                if topic_partition.partition in queues.partitioner.available_partitions(cluster):
                    continue  # all leaders are lost, so moving has no benefit
                for batch in [each for each in queue.batches if each.may_move]:
                    self._queues.remove(queue, batch)
                    target = queues.partition(queues.partitioner.existing_partition(cluster))
                    batch.move_to(target.topic_partition)
                    self._queues.insert(target, len(target.batches), batch)
                    queues.partitioner.update(batch.estimated_size_bytes, cluster, enable_switch=True)

    def _drain_node(
        self,
        node_id: int,
        topic_partitions: Sequence[TopicPartition],
        max_size_bytes: int,
        now_ms: int,
    ) -> list[ProducerBatch]:
        sequences = self._sequences
        drained: list[ProducerBatch] = []
        size_bytes = 0
        for topic_partition in self._drain_order.arranged(node_id, topic_partitions):
            queue = self._queues.waiting.get(topic_partition)
            if queue is None:
                continue
            leader_epoch = self._placed[topic_partition][1]
            with queue.lock:
                if not queue.batches:
                    continue
                batch = queue.batches[0]
                batch.maybe_update_leader_epoch(leader_epoch)
                if batch.attempts and batch.retry_backoff_left_ms(now_ms):
                    continue
                if drained and size_bytes + batch.estimated_size_bytes > max_size_bytes:
                    self._drain_order.stopped(node_id, topic_partition)
                    return drained
                if sequences is not None and sequences.must_wait(batch):
                    continue  # Java ends the whole node's drain here; other partitions need not wait for it
                batch.drained(now_ms)
                self._queues.remove(queue, batch)
            # From here on only this thread owns the batch, so it must complete it on any error.
            try:
                batch.drop_removed()
                if sequences is not None and batch.base_sequence is None:
                    sequences.assign_sequence(batch)
                batch.close()
            except Exception as error:  # noqa: BLE001 -- a codec's, or a lack of memory; others continue
                self.unbuildable.append(Unbuildable(batch, error))
                continue
            size_bytes += batch.estimated_size_bytes
            drained.append(batch)
        self._drain_order.got_round(node_id)
        return drained

    # -- adaptive partitioning -----------------------------------------------------------------------------

    def update_node_latency_stats(self, node_id: int, now_ms: int, can_drain: bool) -> None:
        """Notes that a node had a ready batch, and whether it could accept it (ACC-17)."""
        if self._availability_timeout_ms <= 0:
            return
        if len(self._node_latency) >= _MOST_NODES and node_id not in self._node_latency:
            del self._node_latency[next(iter(self._node_latency))]
        latency = self._node_latency.setdefault(node_id, _NodeLatency(now_ms, now_ms))
        latency.ready_ms = now_ms
        if can_drain:
            latency.drain_ms = now_ms

    def _is_slow(self, node_id: int) -> bool:
        latency = self._node_latency.get(node_id)
        return latency is not None and latency.ready_ms - latency.drain_ms > self._availability_timeout_ms

    def _update_load(
        self,
        cluster: Cluster,
        queue_sizes: Mapping[TopicQueues, Mapping[int, int]],
        slow: Collection[TopicPartition],
    ) -> None:
        """Passes the queue lengths to the partitioners (ACC-16), once each partition was used."""
        for queues in self._topics_with_load - queue_sizes.keys():
            queues.partitioner.load = None
        self._topics_with_load = set()
        for queues, sizes in queue_sizes.items():
            used = len(queues.partitions)
            if used < (cluster.partition_count_for_topic(queues.name) or 0):
                queues.partitioner.load = None
                continue
            with queues.lock:
                choice = queues.partitioner.available_partitions(cluster)
                if slow:
                    choice = [p for p in choice if TopicPartition(queues.name, p) not in slow]
                queues.partitioner.load = PartitionLoad(sizes, choice, used)
            self._topics_with_load.add(queues)
