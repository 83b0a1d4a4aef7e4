"""ClusterTest: the snapshot that callers see."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from client_core.cluster import Cluster, Node, PartitionInfo, TopicPartition, missing_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NODES = {n: Node(n, f"host{n}", 9092) for n in range(3)}


@dataclass(frozen=True, slots=True)
class PlainPartitions:
    """A topic whose partitions are led by the given nodes."""

    name: str
    leaders: tuple[int | None, ...]

    @property
    def partition_count(self) -> int:
        return len(self.leaders)

    @property
    def numbers(self) -> Sequence[int]:
        return range(len(self.leaders))

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


@pytest.mark.behaviour("CLU-01")
@pytest.mark.java("ClusterTest.Bootstrap")
def test_bootstrap_numbers_the_addresses_downwards_from_minus_one() -> None:
    bootstrap = Cluster.bootstrap([("a", 1), ("b", 2)])
    assert bootstrap.is_bootstrap_configured
    assert [(n.id, n.host, n.port) for n in bootstrap.nodes] == [(-1, "a", 1), (-2, "b", 2)]
    assert bootstrap.cluster_id is None
    assert not bootstrap.topics


@pytest.mark.behaviour("CLU-02")
def test_an_unknown_topic_has_no_partitions_no_count_and_no_leader() -> None:
    assert cluster().partitions_for_topic("x") == ()
    assert cluster().partition_count_for_topic("x") is None
    assert cluster().leader_for(TopicPartition("x", 0)) is None
    assert cluster().partition(TopicPartition("x", 0)) is None


@pytest.mark.behaviour("CLU-03")
def test_a_leader_without_a_broker_entry_counts_as_none() -> None:
    assert cluster().leader_for(TopicPartition("b", 1)) is None
    assert [p.partition for p in cluster().available_partitions_for_topic("b")] == [0]


@pytest.mark.behaviour("CLU-04")
def test_partitions_for_node_are_those_that_it_leads() -> None:
    assert [(p.topic, p.partition) for p in cluster().partitions_for_node(1)] == [("a", 1), ("b", 0)]
    assert cluster().partitions_for_node(2) == ()


@pytest.mark.behaviour("CLU-04")
@pytest.mark.java("ClusterTest.ReturnUnmodifiableCollections")
def test_collections_can_not_be_changed() -> None:
    """None of them has a way to be changed: there is no `add`, no `append` and no item to set."""
    full = replace(
        cluster(),
        unauthorized_topics=frozenset({"c"}),
        invalid_topics=frozenset({"d"}),
        internal_topics=frozenset({"e"}),
    )
    collections: list[object] = [
        full.invalid_topics,
        full.internal_topics,
        full.unauthorized_topics,
        full.topics,
        full.nodes,
        full.partitions_for_topic("a"),
        full.available_partitions_for_topic("b"),
        full.partitions_for_node(1),
    ]
    for collection in collections:
        for change in ("add", "append", "insert", "remove", "discard", "clear", "__setitem__"):
            assert not hasattr(collection, change), (collection, change)
    with pytest.raises(TypeError):
        full.nodes_by_id[5] = Node(5, "h", 1)  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        full.cluster_id = "other"  # type: ignore[misc]


FIRST_ID, SECOND_ID = UUID(int=1), UUID(int=2)


def described() -> Cluster:
    """A cluster of which everything is known; each call makes all of it anew."""
    return Cluster(
        "clusterId1",
        {0: Node(0, "host0", 100)},
        {"topic1": PlainPartitions("topic1", (0,))},
        frozenset({"topic1"}),
        frozenset({"topic1"}),
        frozenset({"topic3"}),
        Node(2, "host2", 100),
        {"topic1": FIRST_ID},
    )


@pytest.mark.java("ClusterTest.NotEquals")
def test_clusters_that_differ_in_anything_are_not_equal() -> None:
    others = [
        replace(described(), topic_ids={"topic2": SECOND_ID}),
        replace(described(), controller=Node(3, "host3", 100)),
        replace(described(), internal_topics=frozenset({"topic4"})),
        replace(described(), invalid_topics=frozenset({"topic2"})),
        replace(described(), unauthorized_topics=frozenset({"topic2"})),
        replace(described(), topic_partitions={"topic2": PlainPartitions("topic2", (0,))}),
        replace(described(), nodes_by_id={0: Node(0, "host0", 100), 1: Node(1, "host1", 100)}),
        replace(described(), cluster_id="clusterId2"),
    ]
    for other in others:
        assert other != described()


@pytest.mark.java("ClusterTest.Equals")
def test_clusters_of_the_same_content_are_equal() -> None:
    assert described() == described()
    assert Cluster.bootstrap([("a", 1)]) == Cluster.bootstrap([("a", 1)])


@pytest.mark.java("PartitionInfoTest.ToString")
def test_a_partition_is_described_by_node_ids() -> None:
    leader, first, second = (Node(n, "localhost", 9092 + n) for n in range(3))
    info = PartitionInfo("sample", 0, leader, 7, (leader, first, second), (leader, first), (second,))
    assert str(info) == (
        "Partition(topic = sample, partition = 0, leader = 0, replicas = [0,1,2], isr = [0,1], "
        "offlineReplicas = [2])"
    )
    assert "leader = none" in str(info._replace(leader=None))


def test_given_nodes_override_known_ones() -> None:
    merged = cluster().with_nodes([Node(1, "moved", 1), Node(7, "new", 2)])
    assert merged[1].host == "moved"
    assert sorted(merged) == [0, 1, 2, 7]


@pytest.mark.behaviour("CLU-03")
def test_a_replica_without_a_broker_entry_is_an_empty_node() -> None:
    assert missing_node(4).is_empty
    assert not NODES[0].is_empty
    assert Node(4, "", 9092).is_empty
    assert Node(4, "kafka", -1).is_empty


def test_people_read_addresses_and_names() -> None:
    assert str(Node(1, "h", 9092, "r1")) == "h:9092 (id 1 rack r1)"
    assert str(TopicPartition("orders", 3)) == "orders-3"
