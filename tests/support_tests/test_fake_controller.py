"""The broker's side of metadata: what the controller decides, and what each broker has heard of it."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from client_core.testing.controller import Controller, is_legal_name
from client_core.testing.metadata_cache import (
    LEADER_DURING_DELETE,
    AliveBroker,
    MetadataCache,
    PartitionState,
    StaleControllerError,
    TopicMetadata,
    UpdateMetadata,
)


class Cluster:
    """A controller and the caches of its brokers."""

    def __init__(self, brokers: int = 3) -> None:
        self.controller = Controller(Random(1))
        self.caches: dict[int, MetadataCache] = {}
        for broker_id in range(1, brokers + 1):
            self.start(broker_id)

    def start(self, broker_id: int) -> None:
        self.caches[broker_id] = MetadataCache()
        self.controller.broker_started(AliveBroker(broker_id, "h", 9000 + broker_id), self.caches[broker_id])


def _topic(name: str, *leaders: int | None, topic_id: int = 1) -> TopicMetadata:
    partitions = tuple(PartitionState(leader, 0, (1,), (1,)) for leader in leaders)
    return TopicMetadata(name, UUID(int=topic_id), False, partitions)


def _update(epoch: int = 1, **topics: TopicMetadata | None) -> UpdateMetadata:
    return UpdateMetadata(1, epoch, (AliveBroker(1, "h", 9001),), topics)


# -- MetadataCache -------------------------------------------------------------------------------------------


def test_an_update_replaces_the_living_brokers_and_the_named_topics_only() -> None:
    cache = MetadataCache()
    cache.update_cache(_update(a=_topic("a", 1), b=_topic("b", 1, topic_id=2)))
    cache.update_cache(UpdateMetadata(2, 1, (AliveBroker(2, "h", 1),), {"a": _topic("a", None, 1)}))
    assert [broker.id for broker in cache.alive_brokers] == [2]
    assert cache.topic_names == ["a", "b"]
    assert cache.partition("a", 0) == PartitionState(None, 0, (1,), (1,))
    assert cache.partition("b", 0) == PartitionState(1, 0, (1,), (1,))
    assert cache.controller_id == 2


def test_a_deleted_topic_is_gone_by_name_and_by_id() -> None:
    cache = MetadataCache()
    cache.update_cache(_update(a=_topic("a", 1, topic_id=7)))
    assert cache.name_of(UUID(int=7)) == "a"
    cache.update_cache(_update(a=None))
    assert cache.topic("a") is None
    assert cache.name_of(UUID(int=7)) is None
    assert cache.partition("a", 0) is None


def test_a_partition_that_is_being_deleted_is_gone_and_the_others_keep_their_numbers() -> None:
    cache = MetadataCache()
    cache.update_cache(_update(a=_topic("a", 1, LEADER_DURING_DELETE, 1)))
    assert list(cache.partitions("a")) == [0, 2]
    assert cache.partition("a", 1) is None
    assert cache.partition("a", 2) == PartitionState(1, 0, (1,), (1,))


def test_a_topic_all_of_which_is_being_deleted_is_unknown() -> None:
    cache = MetadataCache()
    cache.update_cache(_update(a=_topic("a", 1, 1, topic_id=7)))
    cache.update_cache(_update(a=_topic("a", LEADER_DURING_DELETE, LEADER_DURING_DELETE, topic_id=7)))
    assert cache.topic_names == []
    assert cache.name_of(UUID(int=7)) is None
    assert cache.partitions("a") == {}


def test_a_topic_made_anew_is_found_by_its_new_id_only() -> None:
    cache = MetadataCache()
    cache.update_cache(_update(a=_topic("a", 1, topic_id=7)))
    cache.update_cache(_update(a=_topic("a", 1, topic_id=8)))
    assert (cache.name_of(UUID(int=7)), cache.name_of(UUID(int=8))) == (None, "a")


def test_a_replaced_controller_is_not_heard() -> None:
    cache = MetadataCache()
    cache.update_cache(_update(epoch=5, a=_topic("a", 1)))
    with pytest.raises(StaleControllerError):
        cache.update_cache(_update(epoch=4, a=None))
    assert cache.topic_names == ["a"]


@pytest.mark.parametrize("partition", [-1, 1])
def test_a_partition_out_of_range_is_unknown(partition: int) -> None:
    cache = MetadataCache()
    cache.update_cache(_update(a=_topic("a", 1)))
    assert cache.partition("a", partition) is None


# -- Controller ----------------------------------------------------------------------------------------------


def test_leaders_and_replicas_go_round_the_brokers() -> None:
    cluster = Cluster()
    topic = cluster.controller.create_topic("t", partitions=4, replication_factor=2)
    assert [p.replicas for p in topic.partitions] == [(1, 2), (2, 3), (3, 1), (1, 2)]
    assert [p.leader for p in topic.partitions] == [1, 2, 3, 1]
    assert all(cache.topic("t") == topic for cache in cluster.caches.values())


def test_a_failed_leader_is_followed_by_the_next_replica_in_sync_at_the_next_epoch() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[1, 2, 3]])
    cluster.controller.set_isr("t", 0, [1, 3])
    cluster.controller.broker_failed(1)
    expected = PartitionState(3, 1, (3,), (1, 2, 3), 2)  # broker 1 was the controller as well: its epoch rose
    assert cluster.caches[2].partition("t", 0) == expected
    assert [broker.id for broker in cluster.caches[2].alive_brokers] == [2, 3]


def test_a_failed_follower_leaves_the_isr_and_the_epoch_stays() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[1, 2]])
    cluster.controller.broker_failed(2)
    assert cluster.caches[1].partition("t", 0) == PartitionState(1, 0, (1,), (1, 2), 1)


def test_the_last_replica_in_sync_stays_so_and_leads_again_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[2]])
    cluster.controller.broker_failed(2)
    assert cluster.caches[1].partition("t", 0) == PartitionState(None, 1, (2,), (2,), 1)
    cluster.start(2)
    assert cluster.caches[1].partition("t", 0) == PartitionState(2, 2, (2,), (2,), 1)


def test_a_failure_that_nobody_noticed_changes_nothing() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[1, 2]])
    cluster.controller.broker_failed(1, elect=False)
    assert cluster.caches[2].partition("t", 0) == PartitionState(1, 0, (1, 2), (1, 2), 1)


def test_a_broker_that_comes_back_is_told_everything() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("before")
    cluster.controller.broker_failed(3)
    cluster.controller.create_topic("while")
    cluster.start(3)
    assert cluster.caches[3].topic_names == ["before", "while"]
    assert cluster.controller.alive == {1, 2, 3}


def test_a_frozen_broker_tells_yesterday_until_it_thaws() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[1, 2]])
    cluster.controller.freeze(3)
    cluster.controller.move_leader("t", 0, 2)
    cluster.controller.delete_topic("t")
    cluster.controller.create_topic("u")
    old = cluster.caches[3].partition("t", 0)
    assert old is not None
    assert old.leader == 1
    cluster.controller.thaw(3)
    assert cluster.caches[3].topic_names == ["u"]


def test_a_topic_deleted_and_made_again_has_another_id() -> None:
    cluster = Cluster()
    first = cluster.controller.create_topic("t")
    cluster.controller.delete_topic("t")
    assert cluster.controller.create_topic("t").topic_id != first.topic_id


def test_a_deletion_is_told_to_all_brokers_before_the_topic_is_gone() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", partitions=2)
    cluster.controller.begin_deletion("t", 1)
    assert all(list(cache.partitions("t")) == [0] for cache in cluster.caches.values())
    cluster.controller.begin_deletion("t")
    assert all(cache.topic("t") is None for cache in cluster.caches.values())
    assert cluster.controller.topic("t") is not None
    cluster.controller.delete_topic("t")
    assert cluster.controller.topic("t") is None


def test_added_partitions_leave_the_others_as_they_are() -> None:
    cluster = Cluster()
    first = cluster.controller.create_topic("t", partitions=2, replication_factor=2)
    cluster.controller.add_partitions("t", 4)
    grown = cluster.caches[1].topic("t")
    assert grown is not None
    assert grown.partitions[:2] == first.partitions
    assert [p.replicas for p in grown.partitions[2:]] == [(3, 1), (1, 2)]
    assert grown.topic_id == first.topic_id


def test_a_leader_can_be_moved_to_any_broker_at_any_epoch() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[1]])
    cluster.controller.move_leader("t", 0, 2)
    assert cluster.caches[1].partition("t", 0) == PartitionState(2, 1, (1, 2), (1, 2), 1)
    cluster.controller.move_leader("t", 0, 1, epoch=0)
    assert cluster.caches[1].partition("t", 0) == PartitionState(1, 0, (1, 2), (1, 2), 1)
    cluster.controller.move_leader("t", 0, None)
    assert cluster.caches[1].partition("t", 0) == PartitionState(None, 1, (1, 2), (1, 2), 1)


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("a.b_c-D9", True),
        ("x" * 249, True),
        ("x" * 250, False),
        ("", False),
        (".", False),
        ("..", False),
        ("bad topic!", False),
        ("é", False),
    ],
)
def test_topic_names_are_legal_as_kafka_has_it(name: str, legal: bool) -> None:
    assert is_legal_name(name) is legal
