"""MetadataTest: one snapshot after another. Twins of Java's cases bear its names."""

from __future__ import annotations

from random import Random

import pytest

from client_core.cluster import Cluster, TopicPartition
from client_core.metadata.metadata import Metadata
from client_core.metadata.metadata_response import read_metadata_response
from tests.metadata.metadata_builders import CONFIG, TP, HoldingSome, answer
from tests.metadata.test_refresh_schedule import Unjittered
from tests.support.metadata_responses import metadata_response, partition, topic, topic_id_of


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(CONFIG, Unjittered(0))


@pytest.mark.java("MetadataTest.ClusterCopy")
def test_cluster_copy(metadata: Metadata) -> None:
    described = [topic("topic1", 2), topic("topic2", 3), topic("__consumer_offsets", 3, is_internal=True)]
    failed = [topic("topic3", 0, error=17), topic("topic4", 0, error=29)]
    answer(metadata, 4, [*described, *failed])
    cluster = metadata.fetch()
    assert cluster.cluster_id == "dummy"
    assert len(cluster.nodes) == 4
    assert cluster.invalid_topics == {"topic3"}
    assert cluster.unauthorized_topics == {"topic4"}
    assert cluster.internal_topics == {"__consumer_offsets"}
    assert len(cluster.topics) == 3
    assert len(cluster.partitions_for_topic("topic1")) == 2
    assert len(cluster.partitions_for_topic("topic2")) == 3

    metadata.bootstrap([("localhost", 0)])
    assert metadata.fetch() == Cluster.bootstrap([("localhost", 0)])
    assert Metadata(CONFIG, Random(0)).fetch() == Cluster.empty()


@pytest.mark.behaviour("CLU-02")
def test_nodes_are_shuffled_per_snapshot() -> None:
    metadata = Metadata(CONFIG, Random(0))
    orders = set()
    for _ in range(20):
        answer(metadata, 3)
        orders.add(tuple(n.id for n in metadata.fetch().nodes))
    assert len(orders) > 1


@pytest.mark.behaviour("META-17", "META-18", "META-24")
@pytest.mark.java("MetadataTest.MetadataMerge")
def test_metadata_merge() -> None:
    kinds = ("Invalid", "Unauthorized", "Valid")
    metadata = HoldingSome(f"{age}{kind}Topic" for age in ("old", "keep") for kind in kinds)
    errors = {"oldInvalidTopic": 17, "keepInvalidTopic": 17, "oldUnauthorizedTopic": 29}
    answer(
        metadata,
        2,
        {"oldValidTopic": 2, "keepValidTopic": 3},
        errors=errors | {"keepUnauthorizedTopic": 29},
        cluster_id="oldClusterId",
        epoch=100,
        is_partial=True,
    )
    cluster = metadata.fetch()
    assert cluster.cluster_id == "oldClusterId"
    assert len(cluster.nodes) == 2
    assert cluster.invalid_topics == {"oldInvalidTopic", "keepInvalidTopic"}
    assert cluster.unauthorized_topics == {"oldUnauthorizedTopic", "keepUnauthorizedTopic"}
    assert set(cluster.topics) == {"oldValidTopic", "keepValidTopic"}
    assert len(cluster.partitions_for_topic("oldValidTopic")) == 2
    assert len(cluster.partitions_for_topic("keepValidTopic")) == 3
    assert cluster.topic_ids == {name: topic_id_of(name) for name in cluster.topics}

    metadata.held = {f"{age}{kind}Topic" for age in ("keep", "new") for kind in kinds}
    newer = {"keepValidTopic": 2, "newValidTopic": 4}
    new_errors = {"newInvalidTopic": 17, "newUnauthorizedTopic": 29}
    answer(metadata, 3, newer, errors=new_errors, cluster_id="newClusterId", epoch=200, is_partial=True)
    cluster = metadata.fetch()
    assert cluster.cluster_id == "newClusterId"
    assert len(cluster.nodes) == 3
    assert cluster.invalid_topics == {"keepInvalidTopic", "newInvalidTopic"}
    assert cluster.unauthorized_topics == {"keepUnauthorizedTopic", "newUnauthorizedTopic"}
    assert set(cluster.topics) == {"keepValidTopic", "newValidTopic"}
    assert len(cluster.partitions_for_topic("keepValidTopic")) == 2
    assert len(cluster.partitions_for_topic("newValidTopic")) == 4
    assert cluster.topic_ids == {name: topic_id_of(name) for name in cluster.topics}
    assert metadata.last_seen_leader_epoch(TopicPartition("oldValidTopic", 0)) is None

    metadata.held = set()
    answer(metadata, 3, newer, errors=new_errors, cluster_id="newClusterId", epoch=300, is_partial=True)
    cluster = metadata.fetch()
    assert len(cluster.nodes) == 3
    assert not cluster.invalid_topics
    assert not cluster.unauthorized_topics
    assert not cluster.topics
    assert not cluster.topic_ids
    assert metadata.last_seen_leader_epoch(TopicPartition("keepValidTopic", 0)) is None


@pytest.mark.behaviour("META-18")
@pytest.mark.java("MetadataTest.MetadataMergeOnIdDowngrade")
def test_metadata_merge_on_id_downgrade() -> None:
    """A controller with an older metadata version sends no id any more."""
    metadata = HoldingSome(["validTopic1", "validTopic2"])
    answer(metadata, 2, {"validTopic1": 2, "validTopic2": 3}, epoch=100, is_partial=True)
    assert metadata.cache.topic_ids.keys() == {"validTopic1", "validTopic2"}
    described = [
        topic("validTopic1", 2, epoch=200),
        topic("validTopic2", 3, epoch=200, topic_id=topic_id_of("validTopic2")),
    ]
    answer(metadata, 2, described, is_partial=True)
    assert set(metadata.fetch().topics) == {"validTopic1", "validTopic2"}
    assert len(metadata.fetch().partitions_for_topic("validTopic1")) == 2
    assert metadata.cache.topic_ids == {"validTopic2": topic_id_of("validTopic2")}
    assert metadata.cache.topic_id("validTopic1") is None


@pytest.mark.behaviour("META-16", "META-17")
def test_a_topic_answered_with_an_error_loses_its_partitions(metadata: Metadata) -> None:
    for is_partial in (True, False):
        answer(metadata, 1, {"topic": 2, "other": 1})
        answer(metadata, 1, {}, errors={"topic": 5}, is_partial=is_partial)
        assert metadata.fetch().partition(TP) is None
        assert (metadata.fetch().partition_count_for_topic("other") == 1) == is_partial


def test_an_unchanged_topic_is_the_same_object_in_each_snapshot(metadata: Metadata) -> None:
    answer(metadata, 3, {"same": 3, "changed": 3})
    before = metadata.cache
    answer(metadata, 3, {"same": 3, "changed": 4})
    assert metadata.cache is not before
    assert metadata.cache.topics["same"] is before.topics["same"]
    assert metadata.cache.topics["changed"] is not before.topics["changed"]
    assert metadata.cache.topic_ids == before.topic_ids
    assert before.partition_count("changed") == 3


def test_an_update_answers_with_the_snapshot_in_numbers(metadata: Metadata) -> None:
    described = [topic("a", 3, nodes=(0, 1)), topic("b", [partition(0, leader=None, error=5)])]
    for topics, numbers in (([], (1, 0, 0, 0)), (described, (2, 2, 4, 1))):
        response = read_metadata_response(metadata_response(2, topics), 13)
        assert metadata.update(0, response, False, 0) == (*numbers, "cluster")
