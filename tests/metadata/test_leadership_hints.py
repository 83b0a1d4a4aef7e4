"""MetadataTest: leaders that produce answers name, and which of them are believed (META-22)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.cluster import TopicPartition
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
from client_core.metadata.metadata import Metadata
from tests.metadata.metadata_builders import CONFIG, TP, answer, info
from tests.metadata.test_refresh_schedule import Unjittered
from tests.support.metadata_responses import node, partition, topic, topic_id_of

if TYPE_CHECKING:
    from client_core.cluster import Node


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(CONFIG, Unjittered(0))


@pytest.mark.behaviour("META-22")
@pytest.mark.java("MetadataTest.TopicMetadataOnUpdatePartitionLeadership")
def test_topic_metadata_on_update_partition_leadership(metadata: Metadata) -> None:
    described = [partition(p, leader=1, epoch=1, replicas=(1, 2)) for p in range(2)]
    brokers = [node(1, port=9091), node(2, port=9091)]
    answer(metadata, brokers, [topic("topic", described, topic_id=topic_id_of("topic"))])
    version, cache = metadata.update_version, metadata.cache
    named = {TopicPartition("topic", 1): LeaderIdAndEpoch(2, 3)}
    assert metadata.update_partition_leadership(named, [brokers[0]]) == named.keys()
    assert [leader_id(metadata, p) for p in range(2)] == [1, 2]
    assert len(metadata.fetch().partitions_for_topic("topic")) == 2
    assert metadata.last_seen_leader_epoch(TopicPartition("topic", 1)) == 3
    assert info(metadata, TopicPartition("topic", 1)).replicas == (brokers[0], brokers[1])
    assert metadata.update_version == metadata.cache.update_version == version
    assert metadata.cache.topic_id("topic") == topic_id_of("topic")
    assert cache.leader_for(TopicPartition("topic", 1)) == brokers[0]


def leader_id(metadata: Metadata, number: int) -> int | None:
    leader = metadata.fetch().leader_for(TopicPartition("topic", number))
    return None if leader is None else leader.id


@pytest.mark.behaviour("META-22")
@pytest.mark.parametrize(
    ("named", "nodes"),
    [
        pytest.param(LeaderIdAndEpoch(None, 9), [], id="no id"),
        pytest.param(LeaderIdAndEpoch(1, None), [], id="no epoch"),
        pytest.param(LeaderIdAndEpoch(1, 5), [], id="no newer epoch"),
        pytest.param(LeaderIdAndEpoch(7, 9), [node(8)], id="a node that nobody knows"),
    ],
)
def test_a_leader_that_can_not_be_believed_is_ignored(
    metadata: Metadata, named: LeaderIdAndEpoch, nodes: list[Node]
) -> None:
    answer(metadata, 2, [topic("topic", 1, epoch=5)])
    cache = metadata.cache
    assert metadata.update_partition_leadership({TP: named}, nodes) == set()
    assert metadata.cache is cache


@pytest.mark.behaviour("META-22")
def test_a_leader_of_a_partition_that_is_not_cached_is_ignored(metadata: Metadata) -> None:
    answer(metadata, 2, [topic("topic", 1, epoch=5)])
    unknown = {
        TopicPartition("topic", 1): LeaderIdAndEpoch(1, 9),
        TopicPartition("other", 0): LeaderIdAndEpoch(1, 9),
    }
    assert metadata.update_partition_leadership(unknown, []) == set()


@pytest.mark.behaviour("META-22")
def test_given_nodes_override_known_ones(metadata: Metadata) -> None:
    answer(metadata, 2, [topic("topic", 1, epoch=5)])
    moved = node(1, host="elsewhere")
    metadata.update_partition_leadership({TP: LeaderIdAndEpoch(1, 6)}, [moved])
    assert metadata.fetch().leader_for(TP) == moved
    assert metadata.fetch().node_by_id(0) == node(0)


def test_an_identical_stale_response_does_not_bring_the_old_leader_back(metadata: Metadata) -> None:
    answer(metadata, 2, [topic("topic", 2, epoch=5)])
    metadata.update_partition_leadership({TP: LeaderIdAndEpoch(1, 6)}, [])
    hinted = metadata.cache.topics["topic"]
    answer(metadata, 2, [topic("topic", 2, epoch=5)])
    assert leader_id(metadata, 0) == 1
    assert metadata.cache.topics["topic"] is hinted
    answer(metadata, 2, [topic("topic", [partition(0, leader=1, epoch=6), partition(1, epoch=5)])])
    assert leader_id(metadata, 0) == 1
    assert metadata.cache.topics["topic"].overlay == {}
