"""RecordAccumulator: which batches a node gets, in which order (ACC-09). Twins of RecordAccumulatorTest."""

from __future__ import annotations

import pytest

from client_core.record.record_batch import HEADER_SIZE
from tests.producer.batches import (
    LARGER,
    RECORD,
    Bench,
    BrokenCodec,
    body_size_of,
    has_undrained,
    node,
    queued,
    record,
    size_of,
    tp,
)


@pytest.mark.behaviour("ACC-09")
def test_a_full_request_leaves_the_rest_for_the_next_drain_and_starves_none() -> None:
    bench = Bench(batch_bytes=size_of(LARGER), leaders=(0, 0, 0, 1))
    for partition in (0, 1, 2):
        bench.append([LARGER] * 3, partition)
    drained = []
    for _ in range(9):
        (batch,) = bench.drain(0, max_bytes=size_of(LARGER))
        drained.append(batch.topic_partition.partition)
    assert drained == [2, 1, 0] * 3
    assert bench.drain(0) == []


@pytest.mark.behaviour("ACC-09")
@pytest.mark.java("RecordAccumulatorTest.DrainBatches")
def test_a_drain_begins_where_the_last_one_was_stopped() -> None:
    # Java drains in the order of its metadata, we from the highest partition of a node to the lowest.
    first, second, third, fourth = 1, 0, 3, 2
    batch_bytes = HEADER_SIZE + len(b"value")
    bench = Bench(batch_bytes=batch_bytes, linger_ms=10, leaders=(0, 0, 1, 1))

    def append(*partitions: int) -> None:
        for partition in partitions:
            bench.append([RECORD], partition)

    def drained(max_bytes: int = batch_bytes) -> list[int]:
        return [batch.topic_partition.partition for batch in bench.drain(max_bytes=max_bytes)]

    append(first, second, third, fourth)
    assert drained() == [first, third]  # the request is full after one batch
    append(first, third)
    assert drained() == [second, fourth]
    assert drained() == [first, third]
    append(second, third, fourth)
    bench.accumulator.mute_partition(tp(fourth))
    assert drained() == [second, third]
    append(first, second, third)
    bench.accumulator.unmute_partition(tp(fourth))
    assert drained(2**31) == [first, second, third, fourth]


@pytest.mark.behaviour("ACC-09")
@pytest.mark.java("RecordAccumulatorTest.PartialDrain")
def test_a_small_request_takes_one_partition_of_two() -> None:
    bench = Bench(batch_bytes=1024 + HEADER_SIZE, total_bytes=10 * 1024, linger_ms=10)
    for partition in (0, 1):
        bench.append([RECORD] * (1024 // body_size_of(RECORD) + 1), partition)
    assert bench.ready_ids == {0}
    assert len(bench.drain(0, max_bytes=1024)) == 1


def test_the_batches_of_a_partition_are_drained_in_the_order_of_their_records() -> None:
    bench = Bench(batch_bytes=size_of(LARGER))
    bench.append([LARGER] * 3)
    waiting = list(bench.accumulator.batches_of(tp(0)))
    assert len(waiting) == 3
    assert [bench.drain() for _ in range(4)] == [[waiting[0]], [waiting[1]], [waiting[2]], []]


def test_one_batch_per_partition_and_as_many_partitions_as_fit() -> None:
    bench = Bench(batch_bytes=size_of(LARGER), leaders=(0, 0, 0))
    for partition in (0, 1, 2):
        bench.append([LARGER] * 2, partition)
    batches = bench.drain(max_bytes=2 * size_of(LARGER))
    assert len({batch.topic_partition for batch in batches}) == len(batches) == 2


@pytest.mark.behaviour("ACC-09")
def test_a_batch_larger_than_a_request_is_drained_alone() -> None:
    bench = Bench(leaders=(0, 0))
    bench.append([record(bytes(500))], 0)
    bench.append([record(bytes(500))], 1)
    assert len(bench.drain(max_bytes=10)) == 1


@pytest.mark.behaviour("ACC-05", "ACC-09")
@pytest.mark.java("RecordAccumulatorTest.MutedPartitions")
def test_a_muted_partition_is_neither_ready_nor_drained() -> None:
    bench = Bench(leaders=(0,))
    bench.append([RECORD])
    bench.accumulator.mute_partition(tp(0))
    assert bench.ready_ids == set()
    assert bench.drain(0) == []
    bench.accumulator.unmute_partition(tp(0))
    assert bench.ready_ids == {0}
    assert len(bench.drain(0)) == 1


@pytest.mark.java("RecordAccumulatorTest.DrainWithANodeThatDoesntHostAnyPartitions")
def test_a_node_without_partitions_has_an_empty_drain() -> None:
    bench = Bench(leaders=(0,))
    bench.append([RECORD])
    assert bench.accumulator.drain(bench.leaders, [node(7)], 1000, bench.now_ms) == {7: []}
    assert bench.accumulator.drain(bench.leaders, [], 1000, bench.now_ms) == {}


def test_a_batch_that_can_not_be_made_into_bytes_is_set_aside_and_the_others_are_drained() -> None:
    bench = Bench(leaders=(0, 0))
    bench.append([RECORD], 0)
    bench.append([RECORD], 1)
    (broken,) = bench.accumulator.batches_of(tp(1))
    broken._builder.compression = BrokenCodec()
    assert [batch.topic_partition for batch in bench.drain()] == [tp(0)]
    ((batch, error),) = bench.accumulator.take_unbuildable()
    assert batch is broken
    assert isinstance(error, MemoryError)
    assert bench.accumulator.take_unbuildable() == ()
    assert not has_undrained(bench)


def test_each_node_gets_what_it_leads() -> None:
    bench = Bench(leaders=(0, 1, 1))
    for partition in range(3):
        bench.append([RECORD], partition)
    drained = bench.accumulator.drain(bench.leaders, [node(0), node(1)], 10**6, bench.now_ms)
    partitions = {n: sorted(b.topic_partition.partition for b in batches) for n, batches in drained.items()}
    assert partitions == {0: [0], 1: [1, 2]}


def test_a_drained_batch_is_closed_and_takes_no_more_records() -> None:
    bench = Bench()
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    assert batch.is_closed
    bench.append([RECORD])
    assert batch.record_count == 1
    assert queued(bench, 0) == [1]
