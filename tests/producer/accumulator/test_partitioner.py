"""Twins of BuiltInPartitionerTest; the exact choices are held to Java's by tests/golden."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import IllegalArgumentError, IllegalStateError
from client_core.producer.accumulator.partitioner import (
    BuiltInPartitioner,
    PartitionLoad,
    murmur2,
    partition_for_key,
)
from tests.golden.adapters_producer import GivenRandom, cluster_of

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
@given(st.binary(max_size=300))
def test_the_hash_is_murmur2(data: bytes) -> None:
    assert murmur2(data) == plain_murmur2(data)


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_a_keys_partition_is_one_of_the_topics(key: bytes, count: int) -> None:
    assert 0 <= partition_for_key(key, count) < count


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


def test_a_delayed_switch_is_made_as_soon_as_it_may() -> None:
    cluster = cluster_of([0, 1, 0])
    partitioner, random = partitioner_at(0)
    partitioner.current_partition(cluster)
    random.number = 2
    partitioner.update(150, cluster, enable_switch=False)
    partitioner.update(0, cluster, enable_switch=True)
    assert partitioner.current_partition(cluster) == 2


# -- choosing ----------------------------------------------------------------------------------------------


def choices(partitioner: BuiltInPartitioner, leaders: list[int | None], count: int) -> Counter[int]:
    cluster = cluster_of(leaders)
    chosen: Counter[int] = Counter()
    for _ in range(count):
        partitioner.update(10**6, cluster, enable_switch=True)
        chosen[partitioner.current_partition(cluster)] += 1
    return chosen


@pytest.mark.behaviour("ACC-16")
@pytest.mark.java("BuiltInPartitionerTest.unavailablePartitionsTest")
def test_partitions_without_a_leader_are_not_chosen() -> None:
    chosen = choices(BuiltInPartitioner("t", 1, Random(7)), [0, None, 1, None], 400)
    assert chosen.keys() == {0, 2}
    assert min(chosen.values()) > 130
    assert choices(BuiltInPartitioner("t", 1, Random(7)), [None, 0], 100).keys() == {1}
    assert choices(BuiltInPartitioner("t", 1, Random(7)), [None], 10).keys() == {0}


@pytest.mark.behaviour("ACC-16")
def test_without_any_leader_all_partitions_are_chosen_from() -> None:
    chosen = choices(BuiltInPartitioner("t", 1, Random(7)), [None, None, None], 300)
    assert chosen.keys() == {0, 1, 2}


def test_a_leader_whose_broker_is_unknown_does_not_count() -> None:
    cluster = cluster_of([0, 1])
    without_broker_1 = type(cluster)("c", {0: cluster.nodes_by_id[0]}, cluster.topic_partitions)
    partitioner = BuiltInPartitioner("t", 1, Random(7))
    assert list(partitioner.available_partitions(cluster)) == [0, 1]
    assert list(partitioner.available_partitions(without_broker_1)) == [0]


def test_a_topic_that_nobody_knows_cant_be_partitioned() -> None:
    partitioner = BuiltInPartitioner("other", 1, Random(7))
    with pytest.raises(IllegalStateError, match="topic other has no partitions"):
        partitioner.current_partition(cluster_of([0]))


def test_short_queues_are_chosen_in_proportion() -> None:
    partitioner = BuiltInPartitioner("t", 1, Random(7))
    partitioner.load = PartitionLoad({1: 3, 2: 1}, (0, 1, 2), 3)  # weights 4, 1, 3
    chosen = choices(partitioner, [0, 1, 0], 8000)
    assert [round(chosen[p] / 1000) for p in range(3)] == [4, 1, 3]


@pytest.mark.behaviour("ACC-16")
@pytest.mark.java("BuiltInPartitionerTest.adaptivePartitionsTest")
def test_each_partition_is_chosen_as_often_as_its_queue_is_short() -> None:
    class Sequential(GivenRandom):
        """0, 1, 2, ..."""

        def getrandbits(self, bits: int, /) -> int:
            self.number += 1
            return self.number - 1

    queue_sizes = [5, 0, 3, 0, 1]
    partitioner = BuiltInPartitioner("t", 1, Sequential())
    load = partitioner.load = PartitionLoad(dict(enumerate(queue_sizes)), range(5), 5)
    cluster = cluster_of([0, 1, 2, 11, 0])
    cycles = 2
    chosen: Counter[int] = Counter()
    for _ in range(load.cumulative_frequencies()[-1] * cycles):
        chosen[partitioner.current_partition(cluster)] += 1
        partitioner.update(1, cluster, enable_switch=True)
    assert [chosen[partition] for partition in range(5)] == [(6 - size) * cycles for size in queue_sizes]


@pytest.mark.parametrize(
    ("sizes", "ids", "count", "table"),
    [
        ({1: 3, 2: 1}, (0, 1, 2), 3, (4, 5, 8)),
        ({}, (0, 1, 2), 3, ()),  # all empty
        ({0: 2, 1: 2}, (0, 1), 2, ()),  # all equal
        ({0: 2, 1: 2}, (0, 1), 3, (1, 2)),  # equal, but one partition is left out
        ({0: 9}, (0,), 1, ()),  # one partition
        ({0: 9, 1: 1}, (1,), 2, (1,)),  # one of two is left out
        ({0: 9, 1: 1}, (), 2, ()),  # all are left out
    ],
)
def test_the_frequency_table(
    sizes: dict[int, int], ids: tuple[int, ...], count: int, table: tuple[int, ...]
) -> None:
    load = PartitionLoad(sizes, ids, count)
    assert tuple(load.cumulative_frequencies()) == table
    assert (load.choose(0) is None) == (table == ())
