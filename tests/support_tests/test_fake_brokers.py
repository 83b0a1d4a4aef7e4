"""The broker's side by itself: the controller's decisions and each broker's cache of them, and a partition
that accepts and refuses batches like a real 4.3.1 broker.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final
from uuid import UUID

import pytest

from client_core.error_codes import Errors
from client_core.testing import FakeCluster, StoredRecord, TopicConfig
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
from client_core.testing.partition_log import Appended, PartitionLog, read_batch, records_of
from tests.support_tests.batches import TIMESTAMP_MS, batch

_NOW_MS: Final = TIMESTAMP_MS + 1_000
_GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden" / "data" / "record_batches.json"


class Cluster:
    """A controller and the caches of its brokers."""

    def __init__(self, brokers: int = 3) -> None:
        self.controller = Controller(Random(1))
        self.caches: dict[int, MetadataCache] = {}
        for broker_id in range(1, brokers + 1):
            self.start(broker_id)

    def partition(self, broker_id: int) -> PartitionState | None:
        """What a broker has heard of partition 0 of the topic t."""
        return self.caches[broker_id].partition("t", 0)

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
    assert [cache.partition("b", out_of_range) for out_of_range in (-1, 1)] == [None, None]
    assert cache.controller_id == 2


def test_a_deleted_topic_is_gone_by_name_and_by_id_and_one_made_anew_is_found_by_its_new_id_only() -> None:
    cache = MetadataCache()
    cache.update_cache(_update(a=_topic("a", 1, topic_id=7)))
    assert cache.name_of(UUID(int=7)) == "a"
    cache.update_cache(_update(a=None))
    assert cache.topic("a") is None
    assert cache.name_of(UUID(int=7)) is None
    assert cache.partition("a", 0) is None
    for topic_id in (7, 8):
        cache.update_cache(_update(a=_topic("a", 1, topic_id=topic_id)))
    assert (cache.name_of(UUID(int=7)), cache.name_of(UUID(int=8))) == (None, "a")


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


def test_a_replaced_controller_is_not_heard() -> None:
    cache = MetadataCache()
    cache.update_cache(_update(epoch=5, a=_topic("a", 1)))
    with pytest.raises(StaleControllerError):
        cache.update_cache(_update(epoch=4, a=None))
    assert cache.topic_names == ["a"]


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
    assert cluster.partition(2) == expected
    assert [broker.id for broker in cluster.caches[2].alive_brokers] == [2, 3]


def test_a_failed_follower_leaves_the_isr_and_the_epoch_stays() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[1, 2]])
    cluster.controller.broker_failed(2)
    assert cluster.partition(1) == PartitionState(1, 0, (1,), (1, 2), 1)


def test_a_broker_that_catches_up_first_is_in_no_other_isr_than_before() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[1, 2]])
    cluster.controller.set_isr("t", 0, [1])
    cluster.controller.broker_failed(2)
    cluster.controller.broker_failed(1)
    cache = cluster.caches[2]
    cluster.controller.broker_started(AliveBroker(2, "h", 9002), cache, catches_up_first=True)
    assert cluster.partition(2) == PartitionState(None, 1, (1,), (1, 2), 2), "it may lack records"
    cluster.controller.broker_started(AliveBroker(1, "h", 9001), cluster.caches[1], catches_up_first=True)
    assert cluster.partition(2) == PartitionState(1, 2, (1,), (1, 2), 2)


def test_the_last_replica_in_sync_stays_so_and_leads_again_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[2]])
    cluster.controller.broker_failed(2)
    assert cluster.partition(1) == PartitionState(None, 1, (2,), (2,), 1)
    cluster.start(2)
    assert cluster.partition(1) == PartitionState(2, 2, (2,), (2,), 1)


def test_an_unnoticed_failure_changes_nothing() -> None:
    with FakeCluster(brokers=2) as cluster:
        cluster.create_topic("t", assignment=[[1, 2]])
        cluster.kill(1, elect=False)
        assert cluster.partition("t", 0) == PartitionState(1, 0, (1, 2), (1, 2), 1)


def test_a_broker_that_comes_back_receives_every_change() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("before")
    cluster.controller.broker_failed(3)
    cluster.controller.create_topic("while")
    cluster.start(3)
    assert cluster.caches[3].topic_names == ["before", "while"]
    assert cluster.controller.alive == {1, 2, 3}


def test_a_frozen_broker_answers_with_old_metadata_until_it_thaws() -> None:
    cluster = Cluster()
    cluster.controller.create_topic("t", assignment=[[1, 2]])
    cluster.controller.freeze(3)
    cluster.controller.move_leader("t", 0, 2)
    cluster.controller.delete_topic("t")
    cluster.controller.create_topic("u")
    old = cluster.partition(3)
    assert old is not None
    assert old.leader == 1
    cluster.controller.thaw(3)
    assert cluster.caches[3].topic_names == ["u"]


def test_a_topic_deleted_and_made_again_has_another_id() -> None:
    cluster = Cluster()
    first = cluster.controller.create_topic("t")
    cluster.controller.delete_topic("t")
    assert cluster.controller.create_topic("t").topic_id != first.topic_id


def test_all_brokers_get_a_deletion_before_the_topic_is_gone() -> None:
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
    assert cluster.partition(1) == PartitionState(2, 1, (1, 2), (1, 2), 1)
    cluster.controller.move_leader("t", 0, 1, epoch=0)
    assert cluster.partition(1) == PartitionState(1, 0, (1, 2), (1, 2), 1)
    cluster.controller.move_leader("t", 0, None)
    assert cluster.partition(1) == PartitionState(None, 1, (1, 2), (1, 2), 1)


def test_topic_names_are_legal_as_kafka_has_it() -> None:
    legal, illegal = ("a.b_c-D9", "x" * 249), ("x" * 250, "", ".", "..", "bad topic!", "é")
    assert [name for name in (*legal, *illegal) if is_legal_name(name)] == list(legal)


# -- a partition ---------------------------------------------------------------------------------------------


def _append(log: PartitionLog, data: bytes | None, config: TopicConfig | None = None) -> Appended:
    return log.append(data, config or TopicConfig(), _NOW_MS)


def test_offsets_go_on_from_batch_to_batch_and_records_come_back() -> None:
    log = PartitionLog()
    assert _append(log, batch(b"a", None)) == Appended(Errors.NONE, 0)
    assert _append(log, batch(b"c", key=b"k", headers=[("h", b"1"), ("n", None)])) == Appended(Errors.NONE, 2)
    assert log.end_offset == 3
    assert log.records(5) == [
        StoredRecord(5, 0, TIMESTAMP_MS, None, b"a", ()),
        StoredRecord(5, 1, TIMESTAMP_MS, None, None, ()),
        StoredRecord(5, 2, TIMESTAMP_MS, b"k", b"c", (("h", b"1"), ("n", None))),
    ]


def test_anything_but_exactly_one_whole_batch_within_the_limit_is_refused() -> None:
    whole = batch(b"value")
    log = PartitionLog()
    for data in (None, b"", batch(b"a") + batch(b"b")):
        assert _append(log, data).error is Errors.INVALID_RECORD, data
    for byte in (17, 21, 40, 60, 65):
        damaged = bytearray(whole)
        damaged[byte] ^= 1
        assert _append(log, bytes(damaged)).error is Errors.CORRUPT_MESSAGE, byte
    for length in (1, 60, 61, 67):
        assert _append(log, whole[:length]).error is Errors.CORRUPT_MESSAGE, length
    limited = TopicConfig(max_message_bytes=100)
    assert _append(log, batch(b"x" * 100), limited).error is Errors.MESSAGE_TOO_LARGE
    assert not log.batches


def test_a_timestamp_more_than_an_hour_ahead_is_invalid_and_an_old_one_is_not() -> None:
    hour_ms = 3_600_000
    assert _append(PartitionLog(), batch(b"a", timestamp_ms=_NOW_MS + hour_ms)).error is Errors.NONE
    late = batch(b"a", timestamp_ms=_NOW_MS + hour_ms + 1)
    assert _append(PartitionLog(), late).error is Errors.INVALID_TIMESTAMP
    assert _append(PartitionLog(), batch(b"a", timestamp_ms=-1)).error is Errors.NONE


def test_a_topic_of_log_append_time_stamps_records_and_answer() -> None:
    log = PartitionLog()
    assert _append(log, batch(b"a"), TopicConfig(log_append_time=True)) == Appended(Errors.NONE, 0, _NOW_MS)
    assert [record.timestamp_ms for record in log.records(0)] == [_NOW_MS]


# -- replicas ------------------------------------------------------------------------------------------------


def test_a_replica_gets_batches_and_producers_of_the_leader_and_drops_what_is_cut_off() -> None:
    leader, follower = PartitionLog(), PartitionLog()
    for base in range(3):
        _sequence(leader, base)
    follower.replicate(leader.batches)
    assert follower.records(0) == leader.records(0)
    assert _sequence(follower, 1) == Appended(Errors.NONE, 1, TIMESTAMP_MS), "it knows the batch"
    follower.truncate(1)
    assert follower.end_offset == 1
    assert follower.records(0) == leader.records(0)[:1]
    assert _sequence(follower, 2).error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, "it knows the first alone"
    assert _sequence(follower, 1) == Appended(Errors.NONE, 1)


# -- idempotence ---------------------------------------------------------------------------------------------


def _sequence(log: PartitionLog, base: int, *, epoch: int = 0, count: int = 1) -> Appended:
    return _append(log, batch(*[b"v"] * count, producer=(7, epoch, base)))


def test_a_duplicate_of_one_of_the_last_five_batches_gets_its_first_offset_again() -> None:
    log = PartitionLog()
    for base in range(6):
        assert _sequence(log, base).base_offset == base
    assert _sequence(log, 1) == Appended(Errors.NONE, 1, TIMESTAMP_MS)
    assert _sequence(log, 5) == Appended(Errors.NONE, 5, TIMESTAMP_MS)
    assert _sequence(log, 0).error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, "as a real broker has it"
    assert log.end_offset == 6


def test_a_gap_is_out_of_order_and_stores_nothing() -> None:
    log = PartitionLog()
    _sequence(log, 0, count=3)
    assert _sequence(log, 4).error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _sequence(log, 3).base_offset == 3


def test_a_new_epoch_begins_at_zero_and_an_old_one_is_fenced() -> None:
    log = PartitionLog()
    _sequence(log, 0)
    assert _sequence(log, 1, epoch=1).error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _sequence(log, 0, epoch=1).base_offset == 1
    assert _sequence(log, 1, epoch=0).error is Errors.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = PartitionLog()
    assert _sequence(log, 5).error is Errors.NONE
    log.forget_producers()
    assert _sequence(log, 77).error is Errors.NONE


def test_after_a_kill_the_last_batch_is_known_and_those_before_it_are_out_of_order() -> None:
    log = PartitionLog()
    for sequence in range(3):
        _sequence(log, sequence)
    log.recover_producers()
    assert _sequence(log, 2).base_offset == 2
    assert _sequence(log, 1).error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _sequence(log, 3).base_offset == 3


def test_sequences_go_round_behind_the_largest_int32() -> None:
    log = PartitionLog()
    assert _sequence(log, (1 << 31) - 2, count=3).error is Errors.NONE
    assert _sequence(log, 1).error is Errors.NONE


# -- against Java --------------------------------------------------------------------------------------------


def test_batches_of_the_java_client_are_read_as_it_wrote_them() -> None:
    codecs = Counter[int]()
    for case in json.loads(_GOLDEN.read_text(encoding="utf-8")):
        stored = read_batch(bytes.fromhex(case["batch"]))
        records = records_of(stored)
        assert len(records) == len(case["records"])
        for record, expected in zip(records, case["records"], strict=True):
            key, value = (
                None if text is None else bytes.fromhex(text)
                for text in (expected.get("key"), expected.get("value"))
            )
            if "value_repeat" in expected:
                piece, times = expected["value_repeat"]
                value = bytes.fromhex(piece) * times
            assert (record.key, record.value) == (key, value)
        codecs[stored.codec] += 1
    assert sorted(codecs) == [0, 1, 2, 3, 4]
    assert codecs.total() >= 50  # the file is there
