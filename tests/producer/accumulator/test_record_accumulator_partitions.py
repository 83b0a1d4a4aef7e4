"""RecordAccumulator: where records without a key go (ACC-15 .. ACC-17). Twins of RecordAccumulatorTest."""

from __future__ import annotations

from random import Random

import pytest

from tests.golden.adapters_producer import GivenRandom
from tests.producer.batches import Bench, numbered, queued, record, size_of, tp


class Counting(GivenRandom):
    """Answers 0, 1, 2, ..."""

    def getrandbits(self, bits: int, /) -> int:
        self.number += 1
        return self.number - 1


def partitions_used(bench: Bench) -> list[int]:
    return [batch.topic_partition.partition for batch in bench.drain()]


@pytest.mark.behaviour("ACC-15")
@pytest.mark.java("RecordAccumulatorTest.UniformBuiltInPartitioner")
def test_records_without_a_key_stick_until_their_batches_are_full() -> None:
    random = Counting()
    bench = Bench(batch_bytes=1024, leaders=(0, 0, 1), random=random)
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


@pytest.mark.behaviour("ACC-16", "ACC-17")
@pytest.mark.java("RecordAccumulatorTest.AdaptiveBuiltInPartitioner")
def test_short_queues_get_more_records_without_a_key() -> None:
    bench = Bench(
        batch_bytes=128, leaders=(0, 0, 1), adaptive=True, availability_timeout_ms=100, random=Counting()
    )
    large = record(bytes(128))
    for partition, size in enumerate((1, 7, 2)):
        bench.append([large] * size, partition)
    bench.ready()
    bench.append([large], None)
    before = [len(queued(bench, p)) for p in range(3)]
    for _ in range(2 * (7 + 1 + 6)):
        bench.append([large], None)
    assert [len(queued(bench, p)) - before[p] for p in range(3)] == [2 * 7, 2 * 1, 2 * 6]

    bench.accumulator.update_node_latency_stats(0, bench.now_ms - 200, True)
    bench.accumulator.update_node_latency_stats(0, bench.now_ms, False)
    bench.ready()
    bench.append([large], None)  # it was chosen before
    before = [len(queued(bench, p)) for p in range(3)]
    bench.append([large] * 10, None)
    assert [len(queued(bench, p)) - before[p] for p in range(3)] == [0, 0, 10]


@pytest.mark.behaviour("ACC-16")
def test_queues_do_not_count_before_each_partition_was_used() -> None:
    bench = Bench(batch_bytes=128, leaders=(0, 0, 0), adaptive=True, random=Counting())
    large = record(bytes(128))
    bench.append([large] * 9, 0)
    bench.append([large] * 9, 1)
    bench.ready()
    for _ in range(6):
        bench.append([large], None)
    assert [len(queued(bench, p)) for p in range(3)] == [11, 11, 2]


def test_the_batches_of_one_call_go_where_nothing_waits() -> None:
    for seed in range(20):
        bench = Bench(batch_bytes=128, leaders=(0, 1, 2, 0, 1, 2), adaptive=True, random=Random(seed))
        bench.append([record(bytes([n]) * 128) for n in range(6)], None)
        assert [len(queued(bench, p)) for p in range(6)] == [1] * 6
        assert len(bench.drain()) == 6, "one request for each node takes them all"


def test_the_batches_of_one_call_go_anywhere_where_all_wait() -> None:
    bench = Bench(batch_bytes=128, leaders=(0, 1, 2), adaptive=True, random=Random(1))
    bench.append([record(bytes(128))] * 10, None)
    assert sum(len(queued(bench, p)) for p in range(3)) == 10
    assert all(queued(bench, p) for p in range(3))


def test_the_batches_of_one_call_are_spread_by_chance_where_nothing_is_to_be_adapted() -> None:
    bench = Bench(batch_bytes=128, leaders=(0, 1, 2, 0, 1, 2), random=Counting())
    bench.append([record(bytes(128))] * 3, None)
    assert [len(queued(bench, p)) for p in range(6)] == [1, 1, 1, 0, 0, 0]


def test_queues_do_not_count_any_more_when_all_are_empty() -> None:
    bench = Bench(batch_bytes=128, leaders=(0, 0), adaptive=True, random=Counting())
    large = record(bytes(128))
    bench.append([large] * 5, 0)
    bench.append([large], 1)
    bench.ready()
    bench.drain_and_finish_all()
    bench.ready()
    for _ in range(8):
        bench.append([large], None)
    assert [len(queued(bench, p)) for p in range(2)] == [4, 4]


def test_of_so_many_nodes_the_first_seen_is_forgotten_for_a_new_one_only() -> None:
    bench = Bench(availability_timeout_ms=100)
    latency = bench.accumulator._drain._node_latency
    for node_id in (*range(1_000), 0, 999):
        bench.accumulator.update_node_latency_stats(node_id, bench.now_ms, True)
    assert list(latency) == list(range(1_000))
    bench.accumulator.update_node_latency_stats(1_000, bench.now_ms, True)
    assert list(latency) == list(range(1, 1_001))
