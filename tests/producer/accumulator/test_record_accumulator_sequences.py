"""RecordAccumulator with idempotence: which sequence a batch gets, and what must wait for another."""

from __future__ import annotations

import pytest

from client_core.errors import IllegalStateError
from client_core.record.record_batch import decode_record_batch
from tests.producer.batches import LARGER, Bench, CountingSequences, size_of, tp


def idempotent_bench(batches: int) -> tuple[Bench, CountingSequences]:
    """Batches of two records each in partition 0."""
    sequences = CountingSequences()
    bench = Bench(
        batch_bytes=size_of(LARGER, LARGER), retry_backoff_ms=0, sequences=sequences, leaders=(0, 0)
    )
    bench.append([LARGER] * 2 * batches, 0)
    return bench, sequences


@pytest.mark.behaviour("IDM-02")
def test_a_batch_gets_its_sequence_at_its_first_drain_and_keeps_it() -> None:
    bench, sequences = idempotent_bench(2)
    (first,) = bench.drain(0)
    (second,) = bench.drain(0)
    assert (first.base_sequence, second.base_sequence) == (0, 2)
    assert decode_record_batch(second.records()).base_sequence == 2
    assert sequences.in_flight[tp(0)] == [first, second]
    bench.accumulator.reenqueue(first, bench.now_ms)
    assert bench.drain(0) == [first]
    assert (first.base_sequence, sequences.next[tp(0)]) == (0, 4)


@pytest.mark.behaviour("ACC-10")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_retried_batches_queue_in_the_order_of_their_sequences(order: tuple[int, ...]) -> None:
    bench, _ = idempotent_bench(4)
    drained = [batch for _ in range(3) for batch in bench.drain(0)]
    for number in order:
        bench.accumulator.reenqueue(drained[number], bench.now_ms)
    queue = list(bench.accumulator.batches_of(tp(0)))
    assert queue[:3] == drained
    assert not queue[3].has_sequence


def test_sequences_that_wrapped_stand_behind_those_that_did_not() -> None:
    bench, sequences = idempotent_bench(3)
    sequences.next[tp(0)] = 2**31 - 2
    drained = [batch for _ in range(3) for batch in bench.drain(0)]
    assert [batch.base_sequence for batch in drained] == [2**31 - 2, 0, 2]
    for batch in (drained[2], drained[0], drained[1]):
        bench.accumulator.reenqueue(batch, bench.now_ms)
    assert list(bench.accumulator.batches_of(tp(0))) == drained


@pytest.mark.behaviour("IDM-03")
def test_of_several_retries_only_the_lowest_unacknowledged_is_sent() -> None:
    bench, sequences = idempotent_bench(3)
    first, second, third = (batch for _ in range(3) for batch in bench.drain(0))
    bench.accumulator.reenqueue(second, bench.now_ms)
    assert bench.drain(0) == []  # the first is not answered yet
    bench.accumulator.reenqueue(first, bench.now_ms)
    assert bench.drain(0) == [first]
    assert bench.drain(0) == []
    sequences.finished(first)
    assert bench.drain(0) == [second]
    sequences.finished(second)
    sequences.finished(third)
    bench.append([LARGER], 0)
    (new,) = bench.drain(0)
    assert new.base_sequence == 6


@pytest.mark.behaviour("IDM-01")
def test_nothing_is_drained_before_there_is_a_producer_id() -> None:
    bench, sequences = idempotent_bench(1)
    sequences.producer_id_and_epoch = None
    assert bench.drain(0) == []
    assert bench.ready_ids == {0}


@pytest.mark.behaviour("IDM-05")
def test_nothing_new_is_drained_while_an_earlier_sequence_is_unresolved() -> None:
    bench, sequences = idempotent_bench(2)
    (first,) = bench.drain(0)
    sequences.unresolved.add(tp(0))
    assert bench.drain(0) == []
    bench.accumulator.reenqueue(first, bench.now_ms)
    assert bench.drain(0) == [first]  # what has its sequence may go


@pytest.mark.behaviour("IDM-05")
def test_nothing_new_is_drained_while_something_is_in_flight_under_another_epoch() -> None:
    bench, sequences = idempotent_bench(2)
    (first,) = bench.drain(0)
    sequences.stale.add(tp(0))
    assert bench.drain(0) == []
    sequences.finished(first)
    assert len(bench.drain(0)) == 1


def test_a_partition_that_waits_for_its_sequence_does_not_hold_up_the_nodes_others() -> None:
    bench, sequences = idempotent_bench(1)
    bench.append([LARGER], 1)
    for waiting in (0, 1):
        sequences.unresolved = {tp(waiting)}
        other = 1 - waiting
        assert [batch.topic_partition.partition for batch in bench.drain(0)] == [other]
        bench.append([LARGER], other)


def test_the_parts_of_a_split_batch_are_in_flight_in_its_stead() -> None:
    bench, sequences = idempotent_bench(2)
    (batch,) = bench.drain(0)
    sequences.finished(batch)
    bench.accumulator.split_and_reenqueue(batch)
    assert [part.base_sequence for part in bench.accumulator.batches_of(tp(0))] == [0, 1, None]
    assert sorted(part.base_sequence or 0 for part in sequences.in_flight[tp(0)]) == [0, 1]


def test_putting_back_what_is_not_tracked_as_in_flight_is_a_bug() -> None:
    bench, sequences = idempotent_bench(1)
    (batch,) = bench.drain(0)
    sequences.finished(batch)
    with pytest.raises(IllegalStateError, match="not tracked as in flight"):
        bench.accumulator.reenqueue(batch, bench.now_ms)


def test_putting_back_what_never_got_a_sequence_is_a_bug() -> None:
    bench, _ = idempotent_bench(1)
    (batch,) = bench.accumulator.batches_of(tp(0))
    with pytest.raises(IllegalStateError, match="without a sequence"):
        bench.accumulator.reenqueue(batch, bench.now_ms)
