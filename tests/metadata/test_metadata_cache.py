"""MetadataSnapshotTest: one snapshot of the cluster, and the next one made from it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from random import Random

import pytest

from client_core.cluster import Node, TopicPartition
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_cache import ClusterAnswer, MetadataCache, RefreshTime
from client_core.metadata.topic_answers import TopicAnswers
from client_core.metadata.topic_table import TopicTable
from client_core.protocol.primitives import ZERO_UUID
from tests.support.metadata_responses import node, partition, read, topic, topic_id_of

NODES = {n: node(n) for n in (6, 7, 8)}
CLUSTER = ClusterAnswer("clusterId", NODES, None)


def tables(*topics: TopicTable) -> TopicAnswers:
    """What a response with these topics says."""
    return TopicAnswers(
        names={table.name for table in topics},
        tables={table.name: table for table in topics},
    )


def table(name: str, number: int = 0, *, epoch: int | None = 10, has_id: bool = True) -> TopicTable:
    """A topic with one partition, led by node 5, which is not there."""
    described = [partition(number, leader=5, epoch=epoch, replicas=(5, 6, 7))]
    [found] = read(1, [topic(name, described, topic_id=topic_id_of(name) if has_id else None)]).topics
    assert isinstance(found, TopicTable)
    return found


def snapshot(*topics: TopicTable) -> MetadataCache:
    return MetadataCache.empty().replaced_by(CLUSTER, tables(*topics))


@pytest.mark.behaviour("CLU-03")
@pytest.mark.java("MetadataSnapshotTest.MissingLeaderEndpoint")
def test_missing_leader_endpoint() -> None:
    """A partition of an earlier response may be led by a broker that the last one did not name."""
    cache = snapshot(table("topic"))
    topic_partition = TopicPartition("topic", 0)
    assert cache.leader_for(topic_partition) is None
    found = cache.cluster.partition(topic_partition)
    assert found is not None
    assert found.leader is None
    assert [replica.is_empty for replica in found.replicas] == [True, False, False]
    assert found.replicas[1:] == (NODES[6], NODES[7])


@pytest.mark.behaviour("META-17")
@pytest.mark.java("MetadataSnapshotTest.MergeWithThatPreExistingPartitionIsRetainedPostMerge")
def test_merge_with_that_pre_existing_partition_is_retained_post_merge() -> None:
    merged = snapshot(table("topic1", 1)).merge_with(CLUSTER, tables(table("topic2", 2)), lambda name: True)
    assert set(merged.cluster.topics) == {"topic1", "topic2"}
    for name in ("topic1", "topic2"):
        assert merged.topic_id(name) == topic_id_of(name)
        assert merged.topic_name(topic_id_of(name)) == name


def test_a_merge_drops_what_is_not_retained() -> None:
    merged = snapshot(table("topic1"), table("topic2")).merge_with(
        CLUSTER, tables(table("topic3")), lambda name: name == "topic2"
    )
    assert set(merged.topics) == {"topic2", "topic3"}
    assert merged.topic_name(topic_id_of("topic1")) is None


@pytest.mark.behaviour("META-17")
def test_a_merge_takes_brokers_and_cluster_id_from_the_response() -> None:
    newer = ClusterAnswer("other", {1: node(1)}, node(1))
    merged = snapshot(table("topic")).merge_with(newer, TopicAnswers(), lambda name: True)
    assert (merged.cluster_id, merged.nodes_by_id, merged.controller) == ("other", {1: node(1)}, node(1))


@pytest.mark.behaviour("META-18")
@pytest.mark.java("MetadataSnapshotTest.TopicNamesCacheBuiltFromTopicIds")
def test_topic_names_cache_built_from_topic_ids() -> None:
    cache = snapshot(table("topic1"), table("topic2"))
    assert cache.topic_names == {topic_id_of("topic1"): "topic1", topic_id_of("topic2"): "topic2"}


@pytest.mark.java("MetadataResponseTest.buildClusterTest")
def test_a_topic_without_an_id_has_no_name_by_id() -> None:
    metadata = Metadata(MetadataConfig(), Random(0))
    described = [
        topic("topic1", 0),
        topic("topic2", 0, topic_id=ZERO_UUID),
        topic("topic3", 0, topic_id=topic_id_of("topic3")),
    ]
    metadata.update(0, read((), described), False, 0)
    assert metadata.cache.topic_name(ZERO_UUID) is None
    assert metadata.cache.topic_name(topic_id_of("topic3")) == "topic3"


@pytest.mark.java("MetadataSnapshotTest.EmptyTopicNamesCacheBuiltFromTopicIds")
def test_empty_topic_names_cache_built_from_topic_ids() -> None:
    assert snapshot(table("topic", has_id=False)).topic_names == {}


@pytest.mark.java("MetadataSnapshotTest.LeaderEpochFor")
def test_leader_and_epoch_for() -> None:
    cache = snapshot(table("known"), table("unknown", epoch=None))
    assert cache.leader_and_epoch_for(TopicPartition("known", 0))[1] == 10
    assert cache.leader_and_epoch_for(TopicPartition("unknown", 0))[1] is None
    assert cache.leader_and_epoch_for(TopicPartition("topic_missing", 0))[1] is None


def test_what_is_unknown_is_none() -> None:
    cache = MetadataCache.empty()
    assert cache.topic("t") is None
    assert cache.partition_count("t") is None
    assert cache.topic_id("t") is None
    assert cache.leader_for(TopicPartition("t", 0)) is None
    assert cache.refreshed_ms("t") is None
    assert cache.refresh_time("t") is None
    assert cache.last_successful_refresh_ms is None


@pytest.mark.behaviour("META-04", "CLU-01")
def test_bootstrap_addresses_are_nodes() -> None:
    cache = MetadataCache.bootstrap([("boot", 9092)], 4)
    assert cache.is_bootstrap
    assert cache.nodes_by_id == {-1: Node(-1, "boot", 9092)}
    assert cache.update_version == 4


@pytest.mark.behaviour("META-21")
def test_nothing_can_be_patched() -> None:
    cache = snapshot(table("topic"))
    with pytest.raises(FrozenInstanceError):
        cache.update_version = 9  # type: ignore[misc]
    with pytest.raises(TypeError):
        cache.topics["other"] = cache.topics["topic"]  # type: ignore[index]
    with pytest.raises(TypeError):
        cache.topic_ids["other"] = topic_id_of("other")  # type: ignore[index]


def test_a_topic_lacks_a_partition_if_a_response_was_recent_enough() -> None:
    cache = snapshot(table("a")).refreshed_at(RefreshTime(100, 1_100), 1, None)
    count = cache.partition_count("a")
    assert count is not None
    assert [cache.lacks_partition("a", count, since_ms) for since_ms in (99, 100, 101)] == [True, True, False]
    others = [("a", count - 1), ("a", None), ("unknown", count)]
    assert not any(cache.lacks_partition(topic, partition, 0) for topic, partition in others)


def test_each_topic_has_the_time_of_the_last_response_that_held_it() -> None:
    first, partly, second = RefreshTime(100, 1_100), RefreshTime(200, 1_200), RefreshTime(300, 1_300)
    cache = snapshot(table("a"), table("b")).refreshed_at(first, 1, None)
    answered = tables(table("b"), table("c"))
    merged = cache.merge_with(CLUSTER, answered, lambda name: True).refreshed_at(partly, 2, answered)
    assert [merged.refreshed_ms(name) for name in "abc"] == [100, 200, 200]
    assert [merged.refresh_time(name) for name in "abc"] == [first, partly, partly]
    assert merged.last_successful_refresh_ms == 100
    assert merged.update_version == 2

    fewer = tables(table("a"))
    dropped = merged.merge_with(CLUSTER, fewer, lambda name: name == "b").refreshed_at(second, 3, fewer)
    assert [dropped.refreshed_ms(name) for name in "abc"] == [300, 200, None]
    assert dropped.refreshed_apart.keys() == {"a", "b"}

    again = merged.merge_with(CLUSTER, answered, lambda name: True).refreshed_at(second, 3, answered)
    assert [again.refreshed_ms(name) for name in "abc"] == [100, 300, 300]

    whole = dropped.replaced_by(CLUSTER, tables(table("a"), table("b"))).refreshed_at(second, 4, None)
    assert [whole.refreshed_ms(name) for name in "ab"] == [300, 300]
    assert whole.last_successful_refresh_ms == 300


def test_tables_of_an_earlier_snapshot_come_with_their_ids_and_are_as_old_as_they_were() -> None:
    then, now = RefreshTime(1, None), RefreshTime(9, None)
    earlier = snapshot(table("doubted"), table("other")).refreshed_at(then, 1, None)
    later = snapshot(table("new")).refreshed_at(now, 2, None)
    both = later.with_tables_of(earlier, ["doubted"])
    assert both.topics.keys() == {"doubted", "new"}
    assert both.topics["doubted"] is earlier.topics["doubted"]
    assert (both.refreshed_ms("doubted"), both.refreshed_ms("new")) == (1, 9)
    assert both.topic_name(topic_id_of("doubted")) == "doubted"
    assert both.topic_id("doubted") == topic_id_of("doubted")
    assert both.cluster.partition_count_for_topic("doubted") == 1
    assert both.update_version == 2


def test_the_age_of_several_topics_is_that_of_the_oldest() -> None:
    first, second, third = (RefreshTime(ms, None) for ms in (1, 5, 9))
    cache = snapshot(table("a"), table("b"), table("c"))
    assert cache.oldest is None
    cache = cache.refreshed_at(first, 1, None)
    assert (cache.oldest, cache.answered) == (first, first)
    cache = cache.refreshed_at(second, 2, tables(cache.topics["a"]))
    assert (cache.oldest, cache.answered) == (first, second)
    assert cache.oldest_of(["a"]) == second
    assert cache.oldest_of(["a", "b", "unknown"]) == first
    assert cache.oldest_of(["unknown"]) == second
    cache = cache.refreshed_at(third, 3, tables(cache.topics["b"], cache.topics["c"]))
    assert (cache.oldest, cache.answered) == (second, third)
    assert snapshot().refreshed_at(third, 1, tables()).oldest == third
