"""MetadataTest: which answers to believe, by epochs and topic ids. Twins of Java's cases bear its names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.errors import IllegalArgumentError
from client_core.metadata.leader_epochs import LastSeenEpochs
from client_core.metadata.metadata import LeaderAndEpoch, Metadata
from client_core.metadata.topic_layout import layout_of
from tests.metadata.metadata_builders import CONFIG, TP, answer, info
from tests.metadata.strategies import VERSIONS
from tests.metadata.test_refresh_schedule import Unjittered
from tests.support.counted_work import calls_of
from tests.support.metadata_responses import node, partition, read, topic, topic_id_of

if TYPE_CHECKING:
    from uuid import UUID

    from client_core.protocol.messages.metadata_response import MetadataResponseTopic


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(CONFIG, Unjittered(0))


@pytest.mark.behaviour("META-11", "META-12")
@pytest.mark.java("MetadataTest.IgnoreLeaderEpochInOlderMetadataResponse")
def test_ignore_leader_epoch_in_older_metadata_response(metadata: Metadata) -> None:
    described = [topic("topic", [partition(0, leader=5, epoch=10, replicas=(1, 2, 3))])]
    for version in VERSIONS:
        response = read((), described, version=version, known_topics=metadata.cache.topics)
        assert layout_of(version).has_reliable_epochs == (version >= 9)
        metadata.update(metadata.request_version, response, False, 100)
        found = metadata.partition_metadata_if_current(TP)
        assert found is not None
        assert found.leader_epoch == (10 if version >= 9 else None)


@pytest.mark.behaviour("META-11")
@pytest.mark.java("MetadataTest.StaleMetadata")
def test_stale_metadata(metadata: Metadata) -> None:
    answer(metadata, 0, [topic("topic", [partition(0, leader=1, epoch=10)])])
    answer(metadata, 0, [topic("topic", [partition(0, leader=1, epoch=9, isr=(1, 2))])])
    assert metadata.last_seen_leader_epoch(TP) == 10
    found = metadata.partition_metadata_if_current(TP)
    assert found is not None
    assert found.in_sync_replica_ids == (0, 1, 2)
    assert found.leader_epoch == 10


@pytest.mark.behaviour("META-14")
@pytest.mark.java("MetadataTest.UpdateLastEpoch")
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


@pytest.mark.behaviour("META-14")
def test_a_negative_epoch_is_refused(metadata: Metadata) -> None:
    with pytest.raises(IllegalArgumentError, match=r"Invalid leader epoch -1 \(must be non-negative\)"):
        metadata.update_last_seen_epoch_if_newer(TP, -1)


def with_id(topic_id: UUID | None, epoch: int) -> list[MetadataResponseTopic]:
    return [topic("topic", 1, epoch=epoch, topic_id=topic_id)]


@pytest.mark.behaviour("META-13")
@pytest.mark.java("MetadataTest.EpochUpdateAfterTopicDeletion")
def test_epoch_update_after_topic_deletion(metadata: Metadata) -> None:
    answer(metadata, 1, with_id(topic_id_of("first"), 10))
    answer(metadata, 1, {}, errors={"topic": 3})
    assert metadata.last_seen_leader_epoch(TP) == 10
    answer(metadata, 1, with_id(topic_id_of("second"), 5))
    assert metadata.last_seen_leader_epoch(TP) == 5


@pytest.mark.behaviour("META-11", "META-13")
@pytest.mark.java("MetadataTest.EpochUpdateOnChangedTopicIds")
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


@pytest.mark.behaviour("META-11")
@pytest.mark.java("MetadataTest.RejectOldMetadata")
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


@pytest.mark.behaviour("META-15")
@pytest.mark.java("MetadataTest.OutOfBandEpochUpdate")
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


@pytest.mark.behaviour("META-12")
@pytest.mark.java("MetadataTest.NoEpoch")
def test_no_epoch(metadata: Metadata) -> None:
    answer(metadata, 1, [topic("topic", 1, epoch=None)])
    assert metadata.last_seen_leader_epoch(TP) is None
    metadata.update_last_seen_epoch_if_newer(TP, 10)
    found = metadata.partition_metadata_if_current(TP)
    assert found is not None
    assert (found.leader_id, found.leader_epoch) == (0, None)
    assert metadata.current_leader(TP) == LeaderAndEpoch(node(0), None)


@pytest.mark.behaviour("META-15")
@pytest.mark.java("MetadataTest.LeaderMetadataInconsistentWithBrokerMetadata")
def test_leader_metadata_inconsistent_with_broker_metadata(metadata: Metadata) -> None:
    first = topic("topic", [partition(0, leader=0, epoch=10)])
    second = topic("topic", [partition(0, leader=1, epoch=8, isr=(1, 2), offline=(0,))])
    answer(metadata, 3, [first])
    answer(metadata, [node(1), node(2)], [second])
    assert metadata.fetch().leader_for(TP) is None
    assert metadata.last_seen_leader_epoch(TP) == 10
    assert metadata.current_leader(TP).leader is None


def test_a_topic_that_is_unchanged_is_not_accepted_again(metadata: Metadata) -> None:
    """Most topics of a cluster are unchanged: the lock is held only for a short look at each."""
    answer(metadata, 1, {"a": 1, "b": 1})
    assert calls_of(LastSeenEpochs.accept.__code__, lambda: answer(metadata, 1, {"a": 1, "b": 2})) == 1
    look = Metadata.retain_topic.__code__
    assert calls_of(look, lambda: answer(metadata, 1, {"b": 2}, is_partial=True)) == 1
