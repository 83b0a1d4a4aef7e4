"""ClusterTest: the picture that callers look at."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from client_core.cluster import Cluster, Node, PartitionInfo, TopicPartition, missing_node

if TYPE_CHECKING:
    from collections.abc import Mapping

NODES = {n: Node(n, f"host{n}", 9092) for n in range(3)}


@dataclass(frozen=True, slots=True)
class PlainPartitions:
    """A topic whose partitions are led by the given nodes."""

    name: str
    leaders: tuple[int | None, ...]

    @property
    def partition_count(self) -> int:
        return len(self.leaders)

    def leader_id(self, partition: int) -> int | None:
        return self.leaders[partition] if 0 <= partition < len(self.leaders) else None

    def partition(self, partition: int, nodes: Mapping[int, Node]) -> PartitionInfo | None:
        if not 0 <= partition < len(self.leaders):
            return None
        leader_id = self.leaders[partition]
        leader = None if leader_id is None else nodes.get(leader_id)
        return PartitionInfo(self.name, partition, leader, 0, (), (), ())


def cluster() -> Cluster:
    topics = {"a": PlainPartitions("a", (0, 1, None)), "b": PlainPartitions("b", (1, 99))}
    return Cluster("c", MappingProxyType(NODES), MappingProxyType(topics))


def test_bootstrap_numbers_the_addresses_downwards_from_minus_one() -> None:
    bootstrap = Cluster.bootstrap([("a", 1), ("b", 2)])
    assert bootstrap.is_bootstrap_configured
    assert [(n.id, n.host, n.port) for n in bootstrap.nodes] == [(-1, "a", 1), (-2, "b", 2)]
    assert bootstrap.cluster_id is None
    assert not bootstrap.topics


def test_an_unknown_topic_has_no_partitions_no_count_and_no_leader() -> None:
    assert cluster().partitions_for_topic("x") == ()
    assert cluster().partition_count_for_topic("x") is None
    assert cluster().leader_for(TopicPartition("x", 0)) is None
    assert cluster().partition(TopicPartition("x", 0)) is None


def test_a_leader_without_a_broker_entry_counts_as_none() -> None:
    assert cluster().leader_for(TopicPartition("b", 1)) is None
    assert [p.partition for p in cluster().available_partitions_for_topic("b")] == [0]


def test_partitions_for_node_are_those_that_it_leads() -> None:
    assert [(p.topic, p.partition) for p in cluster().partitions_for_node(1)] == [("a", 1), ("b", 0)]
    assert cluster().partitions_for_node(2) == ()


def test_collections_can_not_be_changed() -> None:
    with pytest.raises(TypeError):
        cluster().nodes_by_id[5] = Node(5, "h", 1)  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        cluster().cluster_id = "other"  # type: ignore[misc]
    assert isinstance(cluster().partitions_for_topic("a"), tuple)


def test_clusters_of_the_same_content_are_equal_and_others_are_not() -> None:
    assert cluster() == cluster()
    assert Cluster.bootstrap([("a", 1)]) != Cluster.bootstrap([("a", 2)])


def test_given_nodes_override_known_ones() -> None:
    merged = cluster().with_nodes([Node(1, "moved", 1), Node(7, "new", 2)])
    assert merged[1].host == "moved"
    assert sorted(merged) == [0, 1, 2, 7]


def test_a_replica_without_a_broker_entry_is_an_empty_node() -> None:
    assert missing_node(4).is_empty
    assert not NODES[0].is_empty


def test_people_read_addresses_and_names() -> None:
    assert str(Node(1, "h", 9092, "r1")) == "h:9092 (id 1 rack r1)"
    assert str(TopicPartition("orders", 3)) == "orders-3"
