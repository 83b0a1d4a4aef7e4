"""MetadataTest: when to refresh, whom to believe, what to keep. Twins of Java's cases bear its names."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.cluster import Cluster, TopicPartition
from client_core.errors import (
    AuthenticationError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidTopicError,
    TopicAuthorizationError,
)
from client_core.metadata.metadata import LeaderAndEpoch, LeaderIdAndEpoch, Metadata, MetadataConfig
from client_core.metadata.metadata_response import MetadataResponse, read_metadata_response
from tests.metadata.strategies import VERSIONS
from tests.metadata.test_refresh_schedule import Unjittered
from tests.support.metadata_responses import metadata_response, node, partition, topic, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from client_core.cluster import Node, PartitionInfo
    from client_core.metadata.metadata_request import MetadataRequestBuilder
    from client_core.protocol.messages.metadata_response import MetadataResponseTopic

CONFIG = MetadataConfig(refresh_backoff_ms=100, refresh_backoff_max_ms=1_000, max_age_ms=1_000)
TP = TopicPartition("topic", 0)


class HoldingSome(Metadata):
    """Metadata of a set of topics that a test changes; asks for all in a partial request too, if told so."""

    def __init__(self, held: Iterable[str] | None = None, *, is_partial_supported: bool = False) -> None:
        super().__init__(CONFIG, Unjittered(0))
        self.held = None if held is None else set(held)
        self._is_partial_supported = is_partial_supported

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:
        return self.held is None or topic in self.held

    def _new_partial_request(self, is_enough: bool) -> MetadataRequestBuilder | None:
        return self._new_request() if is_enough and self._is_partial_supported else None


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(CONFIG, Unjittered(0))


def answer(
    metadata: Metadata,
    nodes: int | Iterable[Node] = 1,
    topics: Mapping[str, int] | Iterable[MetadataResponseTopic] = (),
    *,
    version: int = 13,
    errors: Mapping[str, int] | None = None,
    cluster_id: str | None = "dummy",
    epoch: int | None = 0,
    is_partial: bool = False,
    now_ms: int = 0,
) -> None:
    """A response to the newest request, read against what is known."""
    body = metadata_response(
        nodes, topics, version=version, errors=errors, cluster_id=cluster_id, epoch=epoch
    )
    response = read_metadata_response(body, version, metadata.cache.topics)
    metadata.update(metadata.request_version, response, is_partial, now_ms)


def info(metadata: Metadata, topic_partition: TopicPartition = TP) -> PartitionInfo:
    found = metadata.fetch().partition(topic_partition)
    assert found is not None
    return found


def is_update_requested(metadata: Metadata) -> bool:
    return metadata.update_requested


# -- when ----------------------------------------------------------------------------------------------------


def test_metadata_update_after_close(metadata: Metadata) -> None:
    metadata.close()
    with pytest.raises(IllegalStateError, match="Update requested after metadata close"):
        answer(metadata)


def test_update_metadata_allowed_immediately_after_bootstrap(metadata: Metadata) -> None:
    metadata.bootstrap([("localhost", 9002)])
    assert metadata.time_to_allow_update(0) == 0
    assert metadata.time_to_next_update(0) == 0
    assert metadata.update_version == 1
    assert metadata.cache.is_bootstrap


@pytest.mark.parametrize(
    ("backoff_ms", "max_age_ms"), [(100, 1_000), (1_000, 100), (0, 0), (0, 100), (100, 0)]
)
def test_time_to_next_update(backoff_ms: int, max_age_ms: int) -> None:
    metadata = Metadata(MetadataConfig(backoff_ms, backoff_ms, max_age_ms), Random(0))
    larger_ms = max(backoff_ms, max_age_ms)
    now_ms = 10_000
    assert metadata.time_to_next_update(now_ms) == 0
    answer(metadata, now_ms=now_ms)
    assert metadata.time_to_next_update(now_ms) == larger_ms
    metadata.request_update(True)
    assert metadata.time_to_next_update(now_ms) == backoff_ms
    answer(metadata, now_ms=now_ms)
    assert metadata.time_to_next_update(now_ms) == larger_ms
    assert metadata.time_to_next_update(now_ms + larger_ms) == 0
    assert metadata.time_to_next_update(now_ms + larger_ms + 1) == 0


def test_time_to_next_update_retry_backoff() -> None:
    """The draws differ from call to call, and stay within a fifth of the backoff."""
    metadata = Metadata(CONFIG, Random(1))
    metadata.failed_update(10_000)
    assert 80 <= metadata.time_to_next_update(10_000) <= 120
    metadata.request_update(True)
    assert 80 <= metadata.time_to_next_update(10_000) <= 120
    assert metadata.time_to_next_update(10_120) == 0


def test_failed_update(metadata: Metadata) -> None:
    answer(metadata, now_ms=100)
    assert metadata.time_to_next_update(1_000) == 100
    metadata.request_update(True)
    version = metadata.update_version
    metadata.failed_update(1_100)
    assert metadata.time_to_next_update(1_100) == 100
    assert metadata.last_successful_refresh_ms == 100
    assert is_update_requested(metadata)
    assert metadata.update_version == version


def test_request_update(metadata: Metadata) -> None:
    assert not is_update_requested(metadata)
    answer(metadata, 1, [topic("topic", 1)], now_ms=10)
    asked = {}
    for step, epoch in enumerate([42, 42, 41, 41, 42, 43, 43, 42, 41, 44]):
        metadata.update_last_seen_epoch_if_newer(TP, epoch)
        asked[step] = is_update_requested(metadata)
        answer(metadata)
        assert not is_update_requested(metadata)
    assert [step for step, was_asked in asked.items() if was_asked] == [0, 5, 9]


def test_request_version(metadata: Metadata) -> None:
    metadata.request_update(True)
    first = metadata.new_metadata_request_and_version(0)
    response = _read(metadata, {"topic": 1})
    metadata.update(first.request_version, response, False, 0)
    assert not is_update_requested(metadata)
    metadata.request_update_for_new_topics()
    under_way = metadata.new_metadata_request_and_version(0)
    metadata.request_update_for_new_topics()
    metadata.update(under_way.request_version, response, True, 0)
    assert is_update_requested(metadata)
    newest = metadata.new_metadata_request_and_version(0)
    metadata.update(newest.request_version, response, True, 0)
    assert not is_update_requested(metadata)


def test_partial_metadata_update() -> None:
    metadata = HoldingSome(is_partial_supported=True)
    metadata.request_update(True)
    asked = metadata.new_metadata_request_and_version(0)
    assert (asked.is_partial, asked.reason) == (False, "manual")
    answer(metadata, 1, {"topic": 1})
    assert not is_update_requested(metadata)

    metadata.request_update_for_new_topics()
    asked = metadata.new_metadata_request_and_version(0)
    assert (asked.is_partial, asked.reason) == (True, "topic_missing")
    answer(metadata, 1, {"topic": 1}, is_partial=True)
    assert not is_update_requested(metadata)

    metadata.request_update(True)
    metadata.request_update_for_new_topics()
    assert not metadata.new_metadata_request_and_version(0).is_partial
    answer(metadata, 1, {"topic": 1})
    assert not is_update_requested(metadata)

    metadata.request_update_for_new_topics()
    assert not metadata.new_metadata_request_and_version(CONFIG.max_age_ms).is_partial
    answer(metadata, 1, {"topic": 1}, is_partial=True, now_ms=CONFIG.max_age_ms)
    assert not is_update_requested(metadata)

    metadata.request_update_for_new_topics()
    first = metadata.new_metadata_request_and_version(0)
    metadata.request_update_for_new_topics()
    second = metadata.new_metadata_request_and_version(0)
    assert first.is_partial
    assert second.is_partial
    metadata.update(first.request_version, _read(metadata, {"topic-1": 1}), True, 0)
    assert is_update_requested(metadata)
    metadata.update(second.request_version, _read(metadata, {"topic-2": 1}), True, 0)
    assert not is_update_requested(metadata)


def _read(metadata: Metadata, topics: Mapping[str, int]) -> MetadataResponse:
    return read_metadata_response(metadata_response(1, topics), 13, metadata.cache.topics)


def test_a_request_without_topics_to_hold_is_for_all(metadata: Metadata) -> None:
    asked = metadata.new_metadata_request_and_version(0)
    assert asked.builder.is_all_topics
    assert (asked.request_version, asked.is_partial, asked.reason) == (0, False, "initial")


def test_a_bootstrap_after_a_success_is_its_own_reason(metadata: Metadata) -> None:
    answer(metadata)
    metadata.bootstrap([("localhost", 9002)])
    metadata.request_update(False, "leader_error")
    assert metadata.new_metadata_request_and_version(0).reason == "bootstrap"


@pytest.mark.parametrize(
    ("error", "reason"), [(3, "topic_missing"), (5, "leader_error"), (29, "expired"), (17, "expired")]
)
def test_a_topic_error_of_stale_metadata_asks_for_another_update(
    metadata: Metadata, error: int, reason: str
) -> None:
    answer(metadata, 1, {}, errors={"t": error})
    assert is_update_requested(metadata) == (reason != "expired")
    assert metadata.new_metadata_request_and_version(0).reason == reason


def test_a_partition_error_of_stale_metadata_asks_for_another_update_each_time(metadata: Metadata) -> None:
    for _ in range(3):
        answer(metadata, 1, [topic("t", [partition(0, error=9), partition(1, error=1)])])
        assert is_update_requested(metadata)
        assert metadata.fetch().partition_count_for_topic("t") == 2


def test_an_error_code_from_the_future_asks_for_nothing(metadata: Metadata) -> None:
    answer(metadata, 1, [topic("t", [partition(0, error=999)])], errors={"u": 999})
    assert not is_update_requested(metadata)
    assert info(metadata, TopicPartition("t", 0)).error_code == 999


# -- epochs and ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_ignore_leader_epoch_in_older_metadata_response(metadata: Metadata, version: int) -> None:
    answer(metadata, 0, [topic("topic", [partition(0, leader=5, epoch=10)])], version=version)
    found = metadata.partition_metadata_if_current(TP)
    assert found is not None
    assert found.leader_epoch == (10 if version >= 9 else None)


def test_stale_metadata(metadata: Metadata) -> None:
    answer(metadata, 0, [topic("topic", [partition(0, leader=1, epoch=10)])])
    answer(metadata, 0, [topic("topic", [partition(0, leader=1, epoch=9, isr=(1, 2))])])
    assert metadata.last_seen_leader_epoch(TP) == 10
    found = metadata.partition_metadata_if_current(TP)
    assert found is not None
    assert found.in_sync_replica_ids == (0, 1, 2)
    assert found.leader_epoch == 10


def test_update_last_epoch(metadata: Metadata) -> None:
    answer(metadata)
    assert not any(metadata.update_last_seen_epoch_if_newer(TP, epoch) for epoch in (0, 1, 2))
    assert metadata.last_seen_leader_epoch(TP) is None

    answer(metadata, 1, [topic("topic", 1, epoch=10)])
    assert metadata.last_seen_leader_epoch(TP) == 10
    assert not metadata.update_last_seen_epoch_if_newer(TP, 1)
    assert not metadata.update_last_seen_epoch_if_newer(TP, 10)
    assert metadata.update_last_seen_epoch_if_newer(TP, 12)
    assert metadata.last_seen_leader_epoch(TP) == 12

    answer(metadata, 1, [topic("topic", 1, epoch=12)])
    assert metadata.last_seen_leader_epoch(TP) == 12
    answer(metadata, 1, [topic("topic", 1, epoch=11)])
    assert metadata.last_seen_leader_epoch(TP) == 12


def test_a_negative_epoch_is_refused(metadata: Metadata) -> None:
    with pytest.raises(IllegalArgumentError, match=r"Invalid leader epoch -1 \(must be non-negative\)"):
        metadata.update_last_seen_epoch_if_newer(TP, -1)


def with_id(topic_id: UUID | None, epoch: int) -> list[MetadataResponseTopic]:
    return [topic("topic", 1, epoch=epoch, topic_id=topic_id)]


def test_epoch_update_after_topic_deletion(metadata: Metadata) -> None:
    answer(metadata, 1, with_id(topic_id_of("first"), 10))
    answer(metadata, 1, {}, errors={"topic": 3})
    assert metadata.last_seen_leader_epoch(TP) == 10
    answer(metadata, 1, with_id(topic_id_of("second"), 5))
    assert metadata.last_seen_leader_epoch(TP) == 5


def test_epoch_update_on_changed_topic_ids(metadata: Metadata) -> None:
    seen = []
    for topic_id, epoch in [
        (None, 100),
        (topic_id_of("1"), 10),
        (topic_id_of("1"), 10),
        (topic_id_of("1"), 12),
        (topic_id_of("2"), 3),
        (topic_id_of("3"), 20),
    ]:
        answer(metadata, 1, with_id(topic_id, epoch))
        seen.append(metadata.last_seen_leader_epoch(TP))
    assert seen == [100, 10, 10, 12, 3, 20]


def test_reject_old_metadata(metadata: Metadata) -> None:
    answer(metadata, 1, [topic("topic", [partition(0, epoch=100, replicas=(0,))])])
    assert metadata.last_seen_leader_epoch(TP) == 100

    answer(metadata, 1, [topic("topic", [partition(0, epoch=99, replicas=(0,), isr=())])])
    assert len(info(metadata).in_sync_replicas) == 1
    assert metadata.last_seen_leader_epoch(TP) == 100

    answer(metadata, 1, [topic("topic", [partition(0, epoch=100, replicas=(0,), isr=())])])
    assert info(metadata).in_sync_replicas == ()

    answer(metadata)
    assert metadata.fetch().partition(TP) is None
    assert metadata.last_seen_leader_epoch(TP) == 100

    answer(metadata, 1, [topic("topic", [partition(0, epoch=99)])])
    assert metadata.fetch().partition(TP) is None
    assert metadata.fetch().partition_count_for_topic("topic") is None
    assert metadata.last_seen_leader_epoch(TP) == 100


def test_out_of_band_epoch_update(metadata: Metadata) -> None:
    assert not metadata.update_last_seen_epoch_if_newer(TP, 99)
    answer(metadata, 1, [topic("topic", 5, epoch=100)])
    assert metadata.update_last_seen_epoch_if_newer(TP, 101)

    for epoch, is_current in [(None, False), (100, False), (101, True)]:
        if epoch is not None:
            answer(metadata, 1, [topic("topic", 5, epoch=epoch)])
        assert metadata.fetch().partition(TP) is not None
        assert metadata.fetch().partition_count_for_topic("topic") == 5
        assert (metadata.partition_metadata_if_current(TP) is not None) == is_current
        assert metadata.current_leader(TP) == LeaderAndEpoch(node(0) if is_current else None, 101)
        assert metadata.last_seen_leader_epoch(TP) == 101


def test_no_epoch(metadata: Metadata) -> None:
    answer(metadata, 1, [topic("topic", 1, epoch=None)])
    assert metadata.last_seen_leader_epoch(TP) is None
    metadata.update_last_seen_epoch_if_newer(TP, 10)
    found = metadata.partition_metadata_if_current(TP)
    assert found is not None
    assert (found.leader_id, found.leader_epoch) == (0, None)
    assert metadata.current_leader(TP) == LeaderAndEpoch(node(0), None)


def test_leader_metadata_inconsistent_with_broker_metadata(metadata: Metadata) -> None:
    first = topic("topic", [partition(0, leader=0, epoch=10)])
    second = topic("topic", [partition(0, leader=1, epoch=8, isr=(1, 2), offline=(0,))])
    answer(metadata, 3, [first])
    answer(metadata, [node(1), node(2)], [second])
    assert metadata.fetch().leader_for(TP) is None
    assert metadata.last_seen_leader_epoch(TP) == 10
    assert metadata.current_leader(TP).leader is None


# -- one snapshot after another ------------------------------------------------------------------------------


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


def test_nodes_are_shuffled_per_snapshot() -> None:
    metadata = Metadata(CONFIG, Random(0))
    orders = set()
    for _ in range(20):
        answer(metadata, 3)
        orders.add(tuple(n.id for n in metadata.fetch().nodes))
    assert len(orders) > 1


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
    assert metadata.cache.topic_ids == {"validTopic2": topic_id_of("validTopic2")}
    assert metadata.cache.topic_id("validTopic1") is None


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
    assert metadata.cache.topic_ids is before.topic_ids
    assert before.partition_count("changed") == 3


def test_an_update_answers_with_the_snapshot_in_numbers(metadata: Metadata) -> None:
    described = [topic("a", 3, nodes=(0, 1)), topic("b", [partition(0, leader=None, error=5)])]
    response = read_metadata_response(metadata_response(2, described), 13)
    assert metadata.update(0, response, False, 0) == (1, 2, 4, 1, "cluster")


# -- leaders named by produce answers ------------------------------------------------------------------------


def test_topic_metadata_on_update_partition_leadership(metadata: Metadata) -> None:
    described = [partition(p, leader=1, epoch=1, replicas=(1, 2)) for p in range(2)]
    brokers = [node(1, port=9091), node(2, port=9091)]
    answer(metadata, brokers, [topic("topic", described, topic_id=topic_id_of("topic"))])
    version, cache = metadata.update_version, metadata.cache
    named = {TopicPartition("topic", 1): LeaderIdAndEpoch(2, 3)}
    assert metadata.update_partition_leadership(named, [brokers[0]]) == named.keys()
    assert [leader_id(metadata, p) for p in range(2)] == [1, 2]
    assert metadata.last_seen_leader_epoch(TopicPartition("topic", 1)) == 3
    assert info(metadata, TopicPartition("topic", 1)).replicas == (brokers[0], brokers[1])
    assert metadata.update_version == metadata.cache.update_version == version
    assert metadata.cache.topic_id("topic") == topic_id_of("topic")
    assert cache.leader_for(TopicPartition("topic", 1)) == brokers[0]


def leader_id(metadata: Metadata, number: int) -> int | None:
    leader = metadata.fetch().leader_for(TopicPartition("topic", number))
    return None if leader is None else leader.id


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


def test_a_leader_of_a_partition_that_is_not_cached_is_ignored(metadata: Metadata) -> None:
    answer(metadata, 2, [topic("topic", 1, epoch=5)])
    unknown = {
        TopicPartition("topic", 1): LeaderIdAndEpoch(1, 9),
        TopicPartition("other", 0): LeaderIdAndEpoch(1, 9),
    }
    assert metadata.update_partition_leadership(unknown, []) == set()


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


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "expected"), [(17, InvalidTopicError), (29, TopicAuthorizationError)])
def test_invalid_topic_and_authorization_errors(
    metadata: Metadata, code: int, expected: type[Exception]
) -> None:
    answer(metadata, 1, {}, errors={"topic dfsa": code})
    with pytest.raises(expected, match="topic dfsa"):
        metadata.maybe_throw_any_exception()
    metadata.maybe_throw_any_exception()
    answer(metadata, 1, {}, errors={"topic dfsa": code})
    answer(metadata)
    metadata.maybe_throw_any_exception()


def test_metadata_topic_errors(metadata: Metadata) -> None:
    errors = {"invalidTopic": 17, "sensitiveTopic1": 29, "sensitiveTopic2": 29}
    for name, expected in [
        ("sensitiveTopic1", TopicAuthorizationError),
        ("sensitiveTopic2", TopicAuthorizationError),
        ("invalidTopic", InvalidTopicError),
    ]:
        answer(metadata, 1, {}, errors=errors)
        with pytest.raises(expected, match=rf"\[{name}\]"):
            metadata.maybe_throw_exception_for_topic(name)
        metadata.maybe_throw_any_exception()
    answer(metadata, 1, {}, errors=errors)
    metadata.maybe_throw_exception_for_topic("anotherTopic")
    metadata.maybe_throw_any_exception()
    assert metadata.fetch().invalid_topics == {"invalidTopic"}


def test_a_fatal_error_is_raised_once(metadata: Metadata) -> None:
    metadata.fatal_error(AuthenticationError("no"))
    with pytest.raises(AuthenticationError):
        metadata.maybe_throw_fatal_exception()
    metadata.maybe_throw_fatal_exception()


# -- telling, and threads ------------------------------------------------------------------------------------


def test_listeners_are_told_of_updates_fatal_errors_and_close_without_the_lock(metadata: Metadata) -> None:
    told: list[int] = []

    def listen() -> None:
        other = threading.Thread(target=lambda: told.append(metadata.time_to_next_update(0)))
        other.start()
        other.join(10)

    metadata.on_change(listen)
    metadata.bootstrap([("localhost", 9092)])
    metadata.failed_update(0)
    assert len(told) == 0
    answer(metadata, 1, {"topic": 1})
    metadata.update_partition_leadership({TP: LeaderIdAndEpoch(0, 1)}, [])
    assert len(told) == 1
    metadata.fatal_error(AuthenticationError())
    metadata.close()
    assert len(told) == 3
    assert metadata.is_closed


def test_rebootstrap_begins_with_the_first_addresses_again(metadata: Metadata) -> None:
    metadata.bootstrap([("first", 1), ("second", 2)])
    answer(metadata, 3, {"topic": 1}, now_ms=70)
    metadata.rebootstrap()
    assert metadata.fetch() == Cluster.bootstrap([("first", 1), ("second", 2)])
    assert metadata.cache.topics == {}
    assert metadata.cache.last_successful_refresh_ms == 70
    assert metadata.update_version == 3
    assert is_update_requested(metadata)


def test_concurrent_update_and_fetch_for_snapshot_and_cluster(metadata: Metadata) -> None:
    """Readers see whole snapshots only: here all numbers of one grow together."""
    answer(metadata, 10, {"topic": 10}, epoch=10)
    is_over = threading.Event()
    torn: list[tuple[int, int | None, int | None]] = []

    def look() -> None:
        while not is_over.is_set():
            cache = metadata.cache
            seen = len(cache.cluster.nodes), cache.partition_count("topic"), cache.leader_epoch_for(TP)
            if len(set(seen)) != 1:
                torn.append(seen)

    readers = [threading.Thread(target=look) for _ in range(3)]
    for reader in readers:
        reader.start()
    for size in range(11, 60):
        answer(metadata, size, {"topic": size}, epoch=size)
    is_over.set()
    for reader in readers:
        reader.join(30)
    assert torn == []
    assert metadata.cache.leader_epoch_for(TP) == 59


def test_what_was_known_goes_on_being_served_after_a_rebootstrap(metadata: Metadata) -> None:
    metadata.bootstrap([("first", 1)])
    assert metadata.answered_cache is metadata.cache
    answer(metadata, 3, {"topic": 2})
    known = metadata.cache
    metadata.rebootstrap()
    assert metadata.cache.is_bootstrap
    assert metadata.answered_cache is known
    answer(metadata, 3, {"topic": 3})
    assert metadata.answered_cache is metadata.cache
