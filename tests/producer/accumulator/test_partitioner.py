"""Where records without a key go: the partitioner, the accumulator, and brokers that died.

Twins of BuiltInPartitionerTest and of RecordAccumulatorTest; tests/golden compares the exact choices with
Java's.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import NO_EVENTS, KafkaProducer, MetadataResult, ProducerRecord, RecordMetadata
from client_core.clock import FOREVER_MS
from client_core.errors import IllegalArgumentError, IllegalStateError
from client_core.events import NodeDisconnected, NodeReady
from client_core.producer.accumulator.partitioner import (
    BuiltInPartitioner,
    LostLeaders,
    PartitionLoad,
    murmur2,
    partition_for_key,
)
from client_core.protocol.api_keys import ApiKey
from tests.golden.adapters_producer import GivenRandom, cluster_of
from tests.producer.batches import RECORD, TOPIC, Bench, Leaders, Owner, numbered, queued, record, size_of, tp
from tests.support.live_producer import PATIENCE_S, look_up, producing, submit
from tests.support.producer_rig import ProducerRig
from tests.support.recorded_events import RecordedEvents
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from client_core import EventSink
    from client_core.cluster import Cluster
    from client_core.testing import FakeCluster

LEFT_OUT: Final = {
    "RoundRobinPartitionerTest.RoundRobinWithUnavailablePartitions": (
        "A pluggable partitioner.class is not offered: a caller that wants its own order names the partition."
    ),
    "RoundRobinPartitionerTest.RoundRobinWithKeyBytes": (
        "A pluggable partitioner.class is not offered: a caller that wants its own order names the partition."
    ),
}

M, MASK = 0x5BD1E995, 0xFFFFFFFF


def plain_murmur2(data: bytes) -> int:
    """MurmurHash2 step by step, as its author wrote it down."""
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * M & MASK
        k = (k ^ k >> 24) * M & MASK
        h = (h * M & MASK) ^ k
    tail = data[whole:]
    for i, byte in enumerate(tail):
        h ^= byte << 8 * i
    if tail:
        h = h * M & MASK
    h = (h ^ h >> 13) * M & MASK
    return h ^ h >> 15


@pytest.mark.behaviour("ACC-18")
@given(st.binary(max_size=300), st.integers(1, 1000))
def test_the_hash_is_murmur2_and_a_keys_partition_is_one_of_the_topics(data: bytes, count: int) -> None:
    assert murmur2(data) == plain_murmur2(data)
    assert 0 <= partition_for_key(data, count) < count


@pytest.mark.behaviour("ACC-18")
def test_an_empty_key_is_a_key() -> None:
    assert partition_for_key(b"", 1000) == 681


# -- sticky ------------------------------------------------------------------------------------------------


@pytest.mark.java("BuiltInPartitionerTest.StickyBatchSizeMoreThatZero")
def test_the_batch_size_must_be_positive() -> None:
    with pytest.raises(IllegalArgumentError, match="stickyBatchSize must be >= 1 but got 0"):
        BuiltInPartitioner("t", 0, Random(1))
    assert BuiltInPartitioner("t", 1, Random(1)).sticky_batch_bytes == 1


def partitioner_at(partition: int, batch_bytes: int = 100) -> tuple[BuiltInPartitioner, GivenRandom]:
    random = GivenRandom()
    random.number = partition
    partitioner = BuiltInPartitioner("t", batch_bytes, random)
    return partitioner, random


@pytest.mark.behaviour("ACC-15")
@pytest.mark.java("BuiltInPartitionerTest.StickyPartitioning")
def test_records_stick_until_a_batch_size_is_appended() -> None:
    cluster = cluster_of([0, 1, 0])
    partitioner, random = partitioner_at(2)
    assert partitioner.current_partition(cluster) == 2
    random.number = 1
    partitioner.update(99, cluster, enable_switch=True)
    assert partitioner.current_partition(cluster) == 2
    partitioner.update(1, cluster, enable_switch=True)
    assert partitioner.current_partition(cluster) == 1


@pytest.mark.behaviour("ACC-15")
@pytest.mark.java("BuiltInPartitionerTest.StickyPartitioning")
def test_the_only_partition_is_chosen_again_and_again() -> None:
    cluster = cluster_of([0])
    partitioner, _ = partitioner_at(0, batch_bytes=1)
    for _ in range(10):
        assert partitioner.current_partition(cluster) == 0
        partitioner.update(1, cluster, enable_switch=True)


@pytest.mark.behaviour("ACC-15")
def test_a_batch_that_is_not_full_delays_the_switch_up_to_twice_the_size() -> None:
    cluster = cluster_of([0, 1, 0])
    partitioner, random = partitioner_at(0)
    partitioner.current_partition(cluster)
    random.number = 1
    partitioner.update(199, cluster, enable_switch=False)
    assert partitioner.current_partition(cluster) == 0
    assert partitioner.bytes_before_forced_switch == 1
    partitioner.update(1, cluster, enable_switch=False)
    assert partitioner.current_partition(cluster) == 1
    assert partitioner.bytes_before_forced_switch == 200
    random.number = 2
    partitioner.update(150, cluster, enable_switch=False)
    assert partitioner.current_partition(cluster) == 1
    partitioner.update(0, cluster, enable_switch=True)
    assert partitioner.current_partition(cluster) == 2, "a delayed switch is made as soon as it may"


@pytest.mark.behaviour("ACC-15")
def test_every_chosen_partition_gets_a_whole_batch_size() -> None:
    partitioner, _ = partitioner_at(0)
    cluster = cluster_of([0, 1, 0])
    partitioner.current_partition(cluster)
    partitioner.update(60, cluster, enable_switch=True)
    partitioner.move_on(cluster, lambda partition: partition == 2)
    assert partitioner.current_partition(cluster) == 2
    assert partitioner.bytes_before_forced_switch == 200


# -- choosing ----------------------------------------------------------------------------------------------


class Counting(GivenRandom):
    """Answers 0, 1, 2, ..."""

    def getrandbits(self, bits: int, /) -> int:
        self.number += 1
        return self.number - 1


def choices(partitioner: BuiltInPartitioner, cluster: Cluster, count: int) -> Counter[int]:
    chosen: Counter[int] = Counter()
    for _ in range(count):
        chosen[partitioner.current_partition(cluster)] += 1
        partitioner.update(10**6, cluster, enable_switch=True)
    return chosen


@pytest.mark.behaviour("ACC-16")
@pytest.mark.java("BuiltInPartitionerTest.unavailablePartitionsTest")
def test_partitions_without_a_leader_are_not_chosen_unless_there_are_no_others() -> None:
    def chosen_of(*leaders: int | None) -> Counter[int]:
        return choices(BuiltInPartitioner("t", 1, Random(7)), cluster_of(leaders), 400)

    some = chosen_of(0, None, 1, None)
    assert some.keys() == {0, 2}
    assert min(some.values()) > 130
    assert chosen_of(None, 0).keys() == {1}
    assert chosen_of(None).keys() == {0}
    assert chosen_of(None, None, None).keys() == {0, 1, 2}


def test_a_leader_whose_broker_is_unknown_does_not_count() -> None:
    cluster = cluster_of([0, 1])
    without_broker_1 = type(cluster)("c", {0: cluster.nodes_by_id[0]}, cluster.topic_partitions)
    partitioner = BuiltInPartitioner("t", 1, Random(7))
    assert list(partitioner.available_partitions(cluster)) == [0, 1]
    assert list(partitioner.available_partitions(without_broker_1)) == [0]


def test_an_unknown_topic_cant_be_partitioned() -> None:
    partitioner = BuiltInPartitioner("other", 1, Random(7))
    with pytest.raises(IllegalStateError, match="topic other has no partitions"):
        partitioner.current_partition(cluster_of([0]))


def test_short_queues_are_chosen_in_proportion() -> None:
    partitioner = BuiltInPartitioner("t", 1, Random(7))
    partitioner.load = PartitionLoad({1: 3, 2: 1}, (0, 1, 2), 3)  # weights 4, 1, 3
    chosen = choices(partitioner, cluster_of([0, 1, 0]), 8000)
    assert [round(chosen[p] / 1000) for p in range(3)] == [4, 1, 3]


@pytest.mark.behaviour("ACC-16")
@pytest.mark.java("BuiltInPartitionerTest.adaptivePartitionsTest")
def test_each_partition_is_chosen_as_often_as_its_queue_is_short() -> None:
    queue_sizes = [5, 0, 3, 0, 1]
    partitioner = BuiltInPartitioner("t", 1, Counting())
    load = partitioner.load = PartitionLoad(dict(enumerate(queue_sizes)), range(5), 5)
    cycles = 2
    count = load.cumulative_frequencies()[-1] * cycles
    chosen = choices(partitioner, cluster_of([0, 1, 2, 11, 0]), count)
    assert [chosen[partition] for partition in range(5)] == [(6 - size) * cycles for size in queue_sizes]


#: The sizes of queues, the partitions that count, of how many, and the table: none where nothing is adapted.
FREQUENCIES: Final[list[tuple[dict[int, int], tuple[int, ...], int, tuple[int, ...]]]] = [
    ({1: 3, 2: 1}, (0, 1, 2), 3, (4, 5, 8)),
    ({}, (0, 1, 2), 3, ()),  # all empty
    ({0: 2, 1: 2}, (0, 1), 2, ()),  # all equal
    ({0: 2, 1: 2}, (0, 1), 3, (1, 2)),  # equal, but one partition is left out
    ({0: 9}, (0,), 1, ()),  # one partition
    ({0: 9, 1: 1}, (1,), 2, (1,)),  # one of two is left out
    ({0: 9, 1: 1}, (), 2, ()),  # all are left out
]


def test_the_frequency_table() -> None:
    for sizes, ids, count, table in FREQUENCIES:
        load = PartitionLoad(sizes, ids, count)
        assert tuple(load.cumulative_frequencies()) == table, (sizes, ids, count)
        assert (load.choose(0) is None) == (table == ()), (sizes, ids, count)


# -- the accumulator (ACC-15 .. ACC-17) ----------------------------------------------------------------------


def queues(bench: Bench, count: int = 3) -> list[int]:
    """How many batches wait for each partition."""
    return [len(queued(bench, partition)) for partition in range(count)]


@pytest.mark.behaviour("ACC-15")
@pytest.mark.java("RecordAccumulatorTest.UniformBuiltInPartitioner")
def test_records_without_a_key_stick_until_their_batches_are_full() -> None:
    bench = Bench(batch_bytes=1024, leaders=(0, 0, 1), random=Counting())
    large = record(bytes(1024))
    appended_to = []
    for r in (record(), large, large, large, large):
        before = [sum(queued(bench, p)) for p in range(3)]
        bench.append([r], None)
        after = [sum(queued(bench, p)) for p in range(3)]
        appended_to.append(next(p for p in range(3) if after[p] != before[p]))
    assert appended_to == [0, 0, 1, 2, 0]


def shape(bench: Bench, partition: int) -> list[tuple[int, bool]]:
    """How many records each of a partition's batches has, and whether it takes no more."""
    return [(batch.record_count, batch.is_full) for batch in bench.accumulator.batches_of(tp(partition))]


def test_many_records_without_a_key_go_where_they_would_go_one_by_one() -> None:
    records = [record(bytes(20 + n % 7)) for n in range(300)]
    at_once, one_by_one = (Bench(batch_bytes=300, leaders=(0, 1, 0, 1), random=Counting()) for _ in range(2))
    for start in range(0, 300, 5):
        indices = range(start, start + 5)
        at_once.append(records, None, indices=indices)
        for index in indices:
            one_by_one.append([records[index]], None)
        for partition in range(4):
            assert shape(at_once, partition) == shape(one_by_one, partition)
        if start % 10 == 0:  # batches that are sent before they are full delay the switch
            assert len(at_once.drain()) == len(one_by_one.drain())


@pytest.mark.behaviour("ACC-15")
def test_a_forced_switch_leaves_the_batch_open_for_others() -> None:
    bench = Bench(batch_bytes=size_of(*numbered(10)), leaders=(0, 0), random=Counting())
    for keyless, keyed in ((6, 5), (6, 4), (6, 4)):  # keyed records fill the batches and begin the next
        bench.append(numbered(keyless), None)
        bench.append(numbered(keyed), 0)
    assert queued(bench, 0) == [10, 10, 10, 1]
    bench.append(numbered(9), None)  # reaches twice the batch size on the way
    assert shape(bench, 0)[-1] == (9, False)
    assert queued(bench, 1) == [1]
    bench.append(numbered(1), 0)
    assert queued(bench, 0) == [10, 10, 10, 10]


@pytest.mark.behaviour("ACC-15")
@pytest.mark.java("RecordAccumulatorTest.BuiltInPartitionerFractionalBatches")
def test_a_batch_that_was_sent_unfilled_does_not_leave_fractions_behind() -> None:
    bench = Bench(batch_bytes=512, linger_ms=10)
    for _ in range(10):
        bench.append([record(bytes(32))] * 10, None)
        bench.clock.advance(10)
        assert len(bench.ready_ids) == 1
        (batch,) = bench.drain()
        assert 256 < len(batch.records()) < 512
        bench.finish(batch)


#: It fills a batch of the benches below.
FULL: Final = record(bytes(128))


def adaptive_bench(
    leaders: Sequence[int], random: Random, *, adaptive: bool = True, availability_timeout_ms: int = 0
) -> Bench:
    return Bench(
        batch_bytes=128,
        leaders=leaders,
        adaptive=adaptive,
        random=random,
        availability_timeout_ms=availability_timeout_ms,
    )


@pytest.mark.behaviour("ACC-16", "ACC-17")
@pytest.mark.java("RecordAccumulatorTest.AdaptiveBuiltInPartitioner")
def test_short_queues_get_more_records_without_a_key() -> None:
    bench = adaptive_bench((0, 0, 1), Counting(), availability_timeout_ms=100)
    for partition, size in enumerate((1, 7, 2)):
        bench.append([FULL] * size, partition)
    bench.ready()
    bench.append([FULL], None)
    before = queues(bench)
    for _ in range(2 * (7 + 1 + 6)):
        bench.append([FULL], None)
    assert [now - then for now, then in zip(queues(bench), before, strict=True)] == [2 * 7, 2 * 1, 2 * 6]

    bench.accumulator.update_node_latency_stats(0, bench.now_ms - 200, True)
    bench.accumulator.update_node_latency_stats(0, bench.now_ms, False)
    bench.ready()
    bench.append([FULL], None)  # it was chosen before
    before = queues(bench)
    bench.append([FULL] * 10, None)
    assert [now - then for now, then in zip(queues(bench), before, strict=True)] == [0, 0, 10]


@pytest.mark.behaviour("ACC-16")
def test_queues_count_when_each_partition_was_used_and_no_more_when_all_are_empty() -> None:
    bench = adaptive_bench((0, 0, 0), Counting())
    bench.append([FULL] * 9, 0)
    bench.append([FULL] * 9, 1)
    bench.ready()
    for _ in range(6):
        bench.append([FULL], None)
    assert queues(bench) == [11, 11, 2]

    bench = adaptive_bench((0, 0), Counting())
    bench.append([FULL] * 5, 0)
    bench.append([FULL], 1)
    bench.ready()
    bench.drain_and_finish_all()
    bench.ready()
    for _ in range(8):
        bench.append([FULL], None)
    assert queues(bench, 2) == [4, 4]


def test_the_batches_of_one_call_go_where_nothing_waits_and_anywhere_where_all_wait() -> None:
    for seed in range(20):
        bench = adaptive_bench((0, 1, 2, 0, 1, 2), Random(seed))
        bench.append([record(bytes([n]) * 128) for n in range(6)], None)
        assert queues(bench, 6) == [1] * 6
        assert len(bench.drain()) == 6, "one request for each node takes them all"
    bench = adaptive_bench((0, 1, 2), Random(1))
    bench.append([FULL] * 10, None)
    assert sum(queues(bench)) == 10
    assert min(queues(bench)) > 0
    by_chance = adaptive_bench((0, 1, 2, 0, 1, 2), Counting(), adaptive=False)
    by_chance.append([FULL] * 3, None)
    assert queues(by_chance, 6) == [1, 1, 1, 0, 0, 0]


def test_of_so_many_nodes_the_first_seen_is_forgotten_for_a_new_one_only() -> None:
    bench = Bench(availability_timeout_ms=100)
    latency = bench.accumulator._drain._node_latency
    for node_id in (*range(1_000), 0, 999):
        bench.accumulator.update_node_latency_stats(node_id, bench.now_ms, True)
    assert list(latency) == list(range(1_000))
    bench.accumulator.update_node_latency_stats(1_000, bench.now_ms, True)
    assert list(latency) == list(range(1, 1_001))


#: Batches so small that each record or two goes to another partition.
ON: Final = {"partitioner.lost.leader.probe.interval.ms": 20, "batch.size": 1_000}


# -- lost leaders --------------------------------------------------------------------------------------------


def test_a_lost_leader_is_tried_again_every_interval_until_it_is_found() -> None:
    lost = LostLeaders(300)
    assert (lost.node_ids, lost.next_probe_ms, lost.due(10**9)) == (frozenset(), FOREVER_MS, [])
    lost.lost(1, now_ms=1_000)
    lost.lost(2, now_ms=1_100)
    before = lost.node_ids
    lost.lost(1, now_ms=1_200)  # which does not put it off
    assert lost.node_ids is before == {1, 2}
    assert lost.next_probe_ms == 1_300
    assert lost.due(1_299) == []
    assert lost.due(1_300) == [1]
    assert lost.next_probe_ms == 1_400
    assert lost.due(1_400) == [2]
    assert lost.due(1_600) == [1]
    lost.found(1)
    lost.found(7)
    assert lost.node_ids == {2}
    assert repr(lost) == "<LostLeaders [2]>"


def test_without_an_interval_no_leader_counts_as_lost() -> None:
    lost = LostLeaders(0)
    lost.lost(1, now_ms=5)
    assert (lost.node_ids, lost.next_probe_ms) == (frozenset(), FOREVER_MS)


# -- where records without a key go --------------------------------------------------------------------------


def test_partitions_of_lost_leaders_are_not_chosen_unless_there_are_no_others() -> None:
    cluster, lost = Leaders((0, 0, 1, None)).cluster, LostLeaders(300)
    partitioner = BuiltInPartitioner(TOPIC, 1, Random(5), lost)
    assert choices(partitioner, cluster, 200).keys() == {0, 1, 2}
    lost.lost(0, 0)
    assert choices(partitioner, cluster, 200).keys() == {2}
    lost.lost(1, 0)
    assert choices(partitioner, cluster, 200).keys() == {0, 1, 2}
    lost.found(0)
    assert choices(partitioner, cluster, 200).keys() == {0, 1}
    lost.found(1)
    assert choices(partitioner, cluster, 200).keys() == {0, 1, 2}


def test_the_queues_lengths_of_before_choose_no_lost_leader() -> None:
    cluster, lost = Leaders((0, 1)).cluster, LostLeaders(300)
    partitioner = BuiltInPartitioner(TOPIC, 1, Random(5), lost)
    partitioner.load = PartitionLoad({0: 0, 1: 90}, (0, 1), 2)
    assert 0 in choices(partitioner, cluster, 200)
    lost.lost(0, 0)
    assert choices(partitioner, cluster, 200).keys() == {1}


def test_the_sticky_partition_is_left_at_once_when_its_leader_is_lost_and_kept_otherwise() -> None:
    leaders, lost = Leaders((0, 1)), LostLeaders(300)
    partitioner = BuiltInPartitioner(TOPIC, 1_000, Random(5), lost)
    first = partitioner.current_partition(leaders.cluster)
    partitioner.update(100, leaders.cluster, enable_switch=True)
    lost.lost(1 - first, 0)
    assert partitioner.current_partition(leaders.cluster) == first
    lost.found(1 - first)
    lost.lost(first, 0)
    other = partitioner.current_partition(leaders.cluster)
    assert other == 1 - first
    assert partitioner.bytes_before_forced_switch == 2_000, "the records before went elsewhere"
    lost.found(first)
    assert partitioner.current_partition(leaders.cluster) == other


# -- records that wait already -------------------------------------------------------------------------------


def bench_of(**settings: Any) -> Bench:
    return Bench(lost_leader_probe_interval_ms=300, leaders=(0, 0, 1), **settings)


def sticky_partition(bench: Bench) -> int:
    """The partition of a first record without a key; its leader is the one to lose."""
    bench.append([RECORD], partition=None)
    (partition,) = [p for p in range(3) if queued(bench, p)]
    return partition


def leave(bench: Bench, node_id: int) -> None:
    bench.accumulator.lost_leaders.lost(node_id, bench.now_ms)
    bench.accumulator.leave_lost_leaders(bench.leaders)


def leader_of(partition: int) -> int:
    return (0, 0, 1)[partition]


def test_records_without_a_key_that_were_not_sent_move_to_another_partition_and_report_it() -> None:
    bench, owner = bench_of(), Owner()
    lost = sticky_partition(bench)
    bench.append(numbered(3), partition=None, owner=owner)
    assert queued(bench, lost) == [4]
    leave(bench, leader_of(lost))
    assert queued(bench, lost) == []
    (batch,) = bench.drain(1 - leader_of(lost))
    assert leader_of(batch.topic_partition.partition) != leader_of(lost)
    bench.finish(batch, base_offset=70)
    assert {receipt.partition for receipt in owner.receipts.values()} == {batch.topic_partition.partition}
    assert [owner.receipts[n].offset for n in range(3)] == [71, 72, 73]
    assert not bench.accumulator.has_incomplete
    assert bench.pool.available_bytes == bench.pool.total_bytes


@pytest.mark.parametrize("keyed_first", [True, False])
def test_a_batch_in_which_a_record_chose_its_partition_stays(keyed_first: bool) -> None:
    bench = bench_of()
    lost = sticky_partition(bench)
    if keyed_first:
        bench.drain_and_finish_all()
    bench.append([RECORD], partition=lost)
    bench.append([RECORD], partition=None)
    waiting = queued(bench, lost)
    assert len(waiting) == 1
    leave(bench, leader_of(lost))
    assert queued(bench, lost) == waiting


def test_sent_records_stay_with_their_partition() -> None:
    bench = bench_of()
    lost = sticky_partition(bench)
    (batch,) = bench.drain(leader_of(lost))
    bench.accumulator.reenqueue(batch, bench.now_ms)
    leave(bench, leader_of(lost))
    assert queued(bench, lost) == [1]


@pytest.mark.parametrize("all_are_lost", [False, True])
def test_several_batches_are_spread_over_those_that_are_left_and_stay_where_none_is(
    all_are_lost: bool,
) -> None:
    bench = Bench(
        batch_bytes=128, lost_leader_probe_interval_ms=300, leaders=(0, 1, 2, 2, 2), random=Random(2)
    )
    for number in range(200):
        bench.append(numbered(1, number), partition=None)
    before = queues(bench, 5)
    assert before[0] > 3
    for node_id in (1, 2) if all_are_lost else ():
        bench.accumulator.lost_leaders.lost(node_id, bench.now_ms)
    leave(bench, 0)
    after = queues(bench, 5)
    if all_are_lost:
        assert after == before
    else:
        assert (after[0], sum(after)) == (0, sum(before))
        assert sum(now > then for then, now in zip(before, after, strict=True)) > 1
    assert sum(sum(queued(bench, p)) for p in range(5)) == 200


def test_a_flush_waits_for_what_moved() -> None:
    bench = bench_of(linger_ms=10_000)
    lost = sticky_partition(bench)
    flush = bench.accumulator.begin_flush()
    leave(bench, leader_of(lost))
    assert not flush.is_done
    bench.drain_and_finish_all()
    assert flush.is_done


# -- a whole producer ----------------------------------------------------------------------------------------


@contextmanager
def six_partitions(
    settings: dict[str, Any] | None = None, events: EventSink = NO_EVENTS
) -> Iterator[tuple[FakeCluster, KafkaProducer]]:
    """Of which each of three brokers leads two, and no other broker has a replica."""
    with producing({**ON, **(settings or {})}, brokers=3, partitions=6, events=events) as (cluster, producer):
        look_up(producer, "orders").result(MetadataResult)
        yield cluster, producer


def partitions_of(cluster: FakeCluster, broker_id: int) -> set[int]:
    return {p for p in range(6) if cluster.partition("orders", p).leader == broker_id}


def written_to(producer: KafkaProducer, count: int = 40) -> set[int]:
    """The partitions of so many records without a key, each sent when the one before was acknowledged."""
    went = set()
    for number in range(count):
        (outcome,) = submit(producer, "orders", [b"%0900d" % number]).outcomes()
        assert isinstance(outcome, RecordMetadata), outcome
        went.add(outcome.partition)
    return went


def test_records_without_a_key_go_on_while_a_broker_is_dead_and_to_it_when_it_is_back() -> None:
    with producing(ON, brokers=3, partitions=6) as (cluster, producer):
        assert written_to(producer, 200) == set(range(6))
        lost = partitions_of(cluster, 2)
        cluster.kill(2, elect=False)
        assert not written_to(producer, 200) & lost
        keyed = submit(producer, "orders", [b"keyed"], partition=min(lost))
        assert not written_to(producer, 50) & lost
        assert not keyed.is_reported
        cluster.revive(2)
        keyed.offsets()
        assert written_to(producer, 200) == set(range(6))


def test_records_that_wait_when_the_broker_dies_are_written_elsewhere_once() -> None:
    events = RecordedEvents()
    with six_partitions({"linger.ms": 9_000}, events) as (cluster, producer):
        # Else its broker may be the one that is asked for it.
        wait_until(lambda: producer.status().producer_id is not None, what="a producer id")
        first = producer.send(ProducerRecord("orders", b"first"))
        (waiting,) = [b.topic_partition.partition for b in producer._accumulator.incomplete()]
        broker_id = cluster.partition("orders", waiting).leader
        assert broker_id is not None
        cluster.kill(broker_id, elect=False)
        if any(ready.node_id == broker_id for ready in events.of(NodeReady)):
            # Else it could be sent before the end of the connection is seen, and then it is bound to it.
            events.wait_for(NodeDisconnected, lambda ended: ended.node_id == broker_id)
        second = producer.send(ProducerRecord("orders", b"second"))
        producer.flush()
        assert first.result(PATIENCE_S).partition not in partitions_of(cluster, broker_id)
        second.result(PATIENCE_S)
        written = [record.value for record in cluster.records("orders")]
        assert (written.count(b"first"), written.count(b"second")) == (1, 1)


def test_sent_records_wait_for_their_broker_and_are_written_once() -> None:
    with six_partitions() as (cluster, producer):
        hold = cluster.hold_next(ApiKey.PRODUCE)
        sent = submit(producer, "orders", [b"sent"])
        hold.wait_until_held()
        (batch,) = producer._accumulator.incomplete()
        broker_id = batch.sent_to
        assert broker_id is not None
        cluster.kill(broker_id, elect=False)
        hold.release()
        assert not written_to(producer) & partitions_of(cluster, broker_id)
        assert not sent.is_reported
        cluster.revive(broker_id)
        (outcome,) = sent.outcomes()
        assert isinstance(outcome, RecordMetadata)
        assert outcome.partition == batch.topic_partition.partition
        assert [r.value for r in cluster.records("orders")].count(b"sent") == 1


def test_a_new_leader_is_sent_to_although_the_old_one_is_lost() -> None:
    with producing({**ON, "metadata.max.age.ms": 200}, brokers=3, partitions=6, replication_factor=3) as (
        cluster,
        producer,
    ):
        assert written_to(producer, 200) == set(range(6))
        cluster.kill(2)
        assert written_to(producer, 200) == set(range(6))


def test_where_no_broker_is_left_records_wait_for_any() -> None:
    with six_partitions() as (cluster, producer):
        for broker_id in (1, 2, 3):
            cluster.kill(broker_id, elect=False)
        reported = [submit(producer, "orders", [b"%d" % n]) for n in range(5)]
        for broker_id in (1, 2, 3):
            cluster.revive(broker_id)
        for one in reported:
            one.offsets()


@pytest.mark.parametrize("has_option", [True, False])
def test_while_records_wait_for_a_lost_leader_another_is_asked_for_at_every_probe(has_option: bool) -> None:
    rig = ProducerRig(
        topics={"orders": 1},
        partitioner_lost_leader_probe_interval_ms=300 if has_option else 0,
        retry_backoff_max_ms=9_000,
    )
    node = rig.client.least_loaded_node(rig.clock.now_ms()).node
    assert node is not None
    rig.client.set_unreachable(node, 60_000)
    rig.submit("orders", b"a", turns=1)
    for _ in range(8):
        rig.metadata.request_update(False)
        rig.know({"orders": 1})  # who leads it is still the lost one, and the pauses grow
    assert rig.metadata.time_to_allow_update(rig.clock.now_ms()) > 1_000
    rig.turn_after(300)
    is_due = rig.metadata.time_to_next_update(rig.clock.now_ms()) == 0
    assert is_due is has_option


def test_without_the_option_records_wait_for_the_leader_that_they_were_given() -> None:
    settings = {"linger.ms": 9_000, "partitioner.lost.leader.probe.interval.ms": 0}
    with six_partitions(settings) as (cluster, producer):
        future = producer.send(ProducerRecord("orders", b"first"))
        (batch,) = producer._accumulator.incomplete()
        broker_id = cluster.partition("orders", batch.topic_partition.partition).leader
        assert broker_id is not None
        cluster.kill(broker_id, elect=False)
        cluster.revive(broker_id)
        producer.flush()
        assert future.result(PATIENCE_S).partition == batch.topic_partition.partition
