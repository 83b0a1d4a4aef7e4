"""Nodes, topics, partitions and their leaders, as immutable values.

`Cluster` is Java's view of them; its partitions may be decoded lazily (`TopicPartitions` is the interface,
`metadata/topic_table.py` the implementation). Read by any thread without a lock. Source: Node,
TopicPartition, PartitionInfo, Cluster, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class Node:
    """A broker: its id, address and rack. Ids of bootstrap addresses are -1, -2, ..."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no address: a replica id without a broker entry."""
        return not self.host or self.port < 0

    def __str__(self) -> str:
        rack = f" rack {self.rack}" if self.rack else ""
        return f"{self.host}:{self.port} (id {self.id}{rack})"


def missing_node(node_id: int) -> Node:
    """Returns the placeholder for a replica whose broker is not in the response.

    Source: MetadataResponse.toBrokerNodes.
    """
    return Node(node_id, "", -1)


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionInfo(NamedTuple):
    """A partition's leader and replicas.

    `leader` is None without a leader, or while its broker is not in the response. `leader_epoch` is None if
    the broker sent no reliable one. `error_code` is the partition's own wire code, 0 for none.
    """

    topic: str
    partition: int
    leader: Node | None
    leader_epoch: int | None
    replicas: tuple[Node, ...]
    in_sync_replicas: tuple[Node, ...]
    offline_replicas: tuple[Node, ...]
    error_code: int = 0

    def __str__(self) -> str:
        leader = "none" if self.leader is None else self.leader.id
        return (
            f"Partition(topic = {self.topic}, partition = {self.partition}, leader = {leader}, "
            f"replicas = {_ids(self.replicas)}, isr = {_ids(self.in_sync_replicas)}, "
            f"offlineReplicas = {_ids(self.offline_replicas)})"
        )


def _ids(nodes: tuple[Node, ...]) -> str:
    return f"[{','.join(str(node.id) for node in nodes)}]"


class TopicPartitions(Protocol):
    """The partitions of one topic, however they are stored."""

    @property
    def partition_count(self) -> int: ...

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the partitions, ascending: 0 to n - 1, unless a response omitted some."""
        ...

    def partition(self, partition: int, nodes: Mapping[int, Node]) -> PartitionInfo | None:
        """Returns one partition, its node ids resolved by `nodes`; None if there is no such partition."""
        ...

    def leader_id(self, partition: int) -> int | None:
        """Returns the leader's node id, even if its broker is unknown; None if there is none."""
        ...


_NO_TOPICS: Mapping[str, TopicPartitions] = MappingProxyType({})


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Cluster:
    """An immutable view of (a part of) a cluster. For what is unknown, look-ups return None or nothing."""

    cluster_id: str | None
    nodes_by_id: Mapping[int, Node]
    topic_partitions: Mapping[str, TopicPartitions] = field(default_factory=lambda: _NO_TOPICS)
    unauthorized_topics: frozenset[str] = frozenset()
    invalid_topics: frozenset[str] = frozenset()
    internal_topics: frozenset[str] = frozenset()
    controller: Node | None = None
    topic_ids: Mapping[str, UUID] = field(default_factory=lambda: MappingProxyType({}))
    is_bootstrap_configured: bool = False

    @staticmethod
    def empty() -> Cluster:
        """Returns a cluster without any data."""
        return Cluster(cluster_id=None, nodes_by_id=MappingProxyType({}))

    @staticmethod
    def bootstrap(addresses: Sequence[tuple[str, int]]) -> Cluster:
        """Returns the cluster before the first response: nodes -1, -2, ... in the order of `addresses`.

        See META-04, CLU-01.
        """
        nodes = {-n: Node(-n, host, port) for n, (host, port) in enumerate(addresses, start=1)}
        return Cluster(cluster_id=None, nodes_by_id=MappingProxyType(nodes), is_bootstrap_configured=True)

    @property
    def nodes(self) -> Collection[Node]:
        """All brokers, in no particular order."""
        return self.nodes_by_id.values()

    @property
    def topics(self) -> Collection[str]:
        """The names of the topics with known partitions."""
        return self.topic_partitions.keys()

    def node_by_id(self, node_id: int) -> Node | None:
        return self.nodes_by_id.get(node_id)

    def partition_count_for_topic(self, topic: str) -> int | None:
        """Returns the number of partitions of the topic; None if it is unknown."""
        partitions = self.topic_partitions.get(topic)
        return None if partitions is None else partitions.partition_count

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        """Returns a partition's metadata; None if it is unknown."""
        partitions = self.topic_partitions.get(topic_partition.topic)
        return (
            None if partitions is None else partitions.partition(topic_partition.partition, self.nodes_by_id)
        )

    def leader_for(self, topic_partition: TopicPartition) -> Node | None:
        """Returns the partition's leader; None without one, or if its broker or the partition is unknown."""
        partitions = self.topic_partitions.get(topic_partition.topic)
        if partitions is None:
            return None
        leader_id = partitions.leader_id(topic_partition.partition)
        return None if leader_id is None else self.nodes_by_id.get(leader_id)

    def partitions_for_topic(self, topic: str) -> Sequence[PartitionInfo]:
        """Returns all partitions of a topic by number; empty if it is unknown (CLU-02)."""
        partitions = self.topic_partitions.get(topic)
        if partitions is None:
            return ()
        found = (partitions.partition(number, self.nodes_by_id) for number in partitions.numbers)
        return tuple(info for info in found if info is not None)

    def available_partitions_for_topic(self, topic: str) -> Sequence[PartitionInfo]:
        """Returns the topic's partitions with a known leader (CLU-03)."""
        return tuple(info for info in self.partitions_for_topic(topic) if info.leader is not None)

    def partitions_for_node(self, node_id: int) -> Sequence[PartitionInfo]:
        """Returns the partitions that a broker leads (CLU-04).

        Visits every topic: for status pages, not for a hot path.
        """
        return tuple(
            info for info in self._every_partition() if info.leader is not None and info.leader.id == node_id
        )

    def _every_partition(self) -> Iterator[PartitionInfo]:
        for topic in self.topic_partitions:
            yield from self.partitions_for_topic(topic)

    def with_nodes(self, nodes: Iterable[Node]) -> Mapping[int, Node]:
        """Returns the known nodes, updated with the given ones (META-22)."""
        return MappingProxyType({**self.nodes_by_id, **{node.id: node for node in nodes}})
