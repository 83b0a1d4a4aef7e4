"""RecordAccumulator: which batches a node gets, in which order and under which sequences (ACC-09).

Twins of RecordAccumulatorTest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.cluster import Cluster
from client_core.errors import IllegalStateError
from client_core.producer.accumulator.batch_drain import DrainOrder
from client_core.producer.accumulator.partition_sequences import PartitionSequences, is_later
from client_core.producer.accumulator.producer_batch import ProducerBatch, ProducerIdAndEpoch
from client_core.producer.results.producer_record import ProducerRecord
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_batch import HEADER_SIZE, decode_record_batch
from tests.golden.adapters_producer import Leaders, cluster_of
from tests.producer.batches import (
    LARGER,
    RECORD,
    TOPIC,
    Bench,
    BrokenCodec,
    CountingSequences,
    body_size_of,
    has_undrained,
    node,
    queued,
    size_of,
    tp,
)
from tests.support.sender_rig import ORDERS_0

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def partitions_of(batches: Iterable[ProducerBatch]) -> list[int]:
    return [batch.topic_partition.partition for batch in batches]


@pytest.mark.behaviour("ACC-09")
def test_a_full_request_leaves_the_rest_for_the_next_drain_and_starves_none() -> None:
    bench = Bench(batch_bytes=size_of(LARGER), leaders=(0, 0, 0, 1))
    for partition in (0, 1, 2):
        bench.append([LARGER] * 3, partition)
    drained = [partitions_of(bench.drain(0, max_bytes=size_of(LARGER))) for _ in range(10)]
    assert drained == [[2], [1], [0]] * 3 + [[]]


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

    append(first, second, third, fourth)
    assert partitions_of(bench.drain(max_bytes=batch_bytes)) == [first, third], "full after one batch"
    append(first, third)
    assert partitions_of(bench.drain(max_bytes=batch_bytes)) == [second, fourth]
    assert partitions_of(bench.drain(max_bytes=batch_bytes)) == [first, third]
    append(second, third, fourth)
    bench.accumulator.mute_partition(tp(fourth))
    assert partitions_of(bench.drain(max_bytes=batch_bytes)) == [second, third]
    append(first, second, third)
    bench.accumulator.unmute_partition(tp(fourth))
    assert partitions_of(bench.drain(max_bytes=2**31)) == [first, second, third, fourth]


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


@pytest.mark.behaviour("ACC-09")
def test_one_batch_per_partition_and_as_many_partitions_as_fit_but_one_at_least() -> None:
    bench = Bench(batch_bytes=size_of(LARGER), leaders=(0, 0, 0))
    for partition in (0, 1, 2):
        bench.append([LARGER] * 2, partition)
    assert len(set(partitions_of(bench.drain(max_bytes=2 * size_of(LARGER))))) == 2
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
def test_each_node_gets_what_it_leads_and_one_without_partitions_an_empty_drain() -> None:
    bench = Bench(leaders=(0, 1, 1))
    for partition in range(3):
        bench.append([RECORD], partition)
    assert bench.accumulator.drain(bench.leaders, [node(7)], 1000, bench.now_ms) == {7: []}
    assert bench.accumulator.drain(bench.leaders, [], 1000, bench.now_ms) == {}
    drained = bench.accumulator.drain(bench.leaders, [node(0), node(1)], 10**6, bench.now_ms)
    assert {n: sorted(partitions_of(batches)) for n, batches in drained.items()} == {0: [0], 1: [1, 2]}


def test_a_batch_that_can_not_be_encoded_is_skipped_and_the_others_are_drained() -> None:
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


def test_a_drained_batch_is_closed_and_takes_no_more_records() -> None:
    bench = Bench()
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    assert batch.is_closed
    bench.append([RECORD])
    assert batch.record_count == 1
    assert queued(bench, 0) == [1]


# -- the order of partitions ---------------------------------------------------------------------------------


def order_of(*leaders: int | None, place: Callable[[int], int] | None = None) -> DrainOrder:
    """The order of one topic's partitions, which have these leaders."""
    order = DrainOrder() if place is None else DrainOrder(place)
    order.use(cluster_of(leaders, TOPIC), {TOPIC})
    return order


def arranged(order: DrainOrder, node_id: int, *numbers: int) -> list[int]:
    return [one.partition for one in order.arranged(node_id, [tp(number) for number in numbers])]


def two_topics(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> Cluster:
    nodes = {node_id: node(node_id) for node_id in (0, 1)}
    return Cluster("c", nodes, {"a": Leaders(a), "b": Leaders(b)})


def test_each_round_begins_one_partition_earlier_in_the_circle_from_the_highest() -> None:
    assert arranged(order_of(0, 0, 0, 0), 0, 1, 0, 3) == [3, 1, 0]
    order, begun_with = order_of(0, 0, 0), []
    for _ in range(4):
        begun_with.append(arranged(order, 0, 0, 1, 2)[0])
        order.got_round(0)
    assert begun_with == [2, 0, 1, 2]


def test_the_order_may_be_another_one() -> None:
    order = order_of(0, 0, 0, place=[2, 0, 1].index)
    assert arranged(order, 0, 0, 1, 2) == [2, 0, 1]
    order.got_round(0)
    assert arranged(order, 0, 0, 1, 2) == [1, 2, 0]


def test_partitions_without_batches_count_in_the_circle_and_each_node_has_one_of_its_own() -> None:
    order = order_of(0, 0, 0, 0)
    order.got_round(0)  # the next one begins at 0
    order.got_round(0)  # and the one after it at 1
    assert arranged(order, 0, 3, 0) == [0, 3]
    order = order_of(0, 1, 0, 1)
    order.got_round(0)
    assert arranged(order, 0, 0, 2) == [0, 2]
    assert arranged(order, 1, 1, 3) == [3, 1]
    order = order_of(None, None)  # nothing is known of the node
    order.got_round(7)
    order.stopped(7, tp(0))
    assert arranged(order, 7, 0, 1) == [1, 0]


def test_a_drain_that_was_stopped_goes_on_where_it_was_unless_its_leader_moved() -> None:
    order = order_of(0, 0, 0, 0)
    order.stopped(0, tp(1))
    assert arranged(order, 0, 0, 1, 2, 3) == [1, 0, 3, 2]
    order = order_of(0, 0, 1)
    order.stopped(0, tp(0))
    order.use(cluster_of([1, 0, 1], TOPIC), {TOPIC})
    assert arranged(order, 0, 1) == [1]
    assert arranged(order, 1, 0, 2) == [2, 0]


def test_topics_are_in_the_circle_by_name_and_one_that_is_new_or_gone_changes_it() -> None:
    order = DrainOrder()
    order.use(two_topics((0, 0), (0, 1)), {"a", "b"})
    waiting = [tp(0, "b"), tp(0, "a"), tp(1, "a")]
    assert [str(place) for place in order.arranged(0, waiting)] == ["a-1", "a-0", "b-0"]
    order.stopped(0, tp(0, "b"))
    assert [str(place) for place in order.arranged(0, waiting)] == ["b-0", "a-1", "a-0"]

    order, both = DrainOrder(), two_topics((0, 0), (0, 0))
    order.use(both, {"b"})
    order.stopped(0, tp(0, "b"))  # the second of two
    order.use(both, {"a", "b"})  # now the second of four: a-0
    assert [str(place) for place in order.arranged(0, [tp(0, "a"), tp(1, "a")])] == ["a-0", "a-1"]
    order.use(Cluster("c", both.nodes_by_id, {"b": both.topic_partitions["b"]}), {"a", "b"})
    assert [str(place) for place in order.arranged(0, [tp(1, "b"), tp(0, "b")])] == ["b-0", "b-1"]


def test_only_topics_that_changed_are_placed_again() -> None:
    placed: list[int] = []

    def place(partition: int) -> int:
        placed.append(partition)
        return partition

    order, both = DrainOrder(place), two_topics((0, 0), (0, 0, 0))
    order.use(both, {"a", "b"})
    placed.clear()
    order.use(Cluster("c", both.nodes_by_id, {**both.topic_partitions, "a": Leaders((0,))}), {"a", "b"})
    assert set(placed) == {0}


# -- with idempotence: sequences, and what must wait for another ---------------------------------------------


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
def test_retried_batches_queue_in_the_order_of_their_sequences_also_over_the_wrap() -> None:
    for first_sequence in (0, 2**31 - 2):
        for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1), (2, 0, 1)):
            bench, sequences = idempotent_bench(4)
            sequences.next[tp(0)] = first_sequence
            drained = [batch for _ in range(3) for batch in bench.drain(0)]
            bases = [batch.base_sequence for batch in drained]
            assert bases == ([0, 2, 4] if first_sequence == 0 else [2**31 - 2, 0, 2])
            for number in order:
                bench.accumulator.reenqueue(drained[number], bench.now_ms)
            queue = list(bench.accumulator.batches_of(tp(0)))
            assert queue[:3] == drained, order
            assert queue[3].base_sequence is None


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
    for waiting, other in ((0, 1), (1, 0)):  # behind the other in the node's circle, and before it
        bench, sequences = idempotent_bench(1)
        bench.append([LARGER], 1)
        sequences.unresolved = {tp(waiting)}
        assert partitions_of(bench.drain(0)) == [other]


def test_the_parts_of_a_split_batch_are_in_flight_in_its_stead() -> None:
    bench, sequences = idempotent_bench(2)
    (batch,) = bench.drain(0)
    sequences.finished(batch)
    bench.accumulator.split_and_reenqueue(batch)
    assert [part.base_sequence for part in bench.accumulator.batches_of(tp(0))] == [0, 1, None]
    assert sorted(part.base_sequence or 0 for part in sequences.in_flight[tp(0)]) == [0, 1]


def test_putting_back_what_never_got_a_sequence_or_is_not_tracked_as_in_flight_is_a_bug() -> None:
    bench, sequences = idempotent_bench(1)
    (batch,) = bench.accumulator.batches_of(tp(0))
    with pytest.raises(IllegalStateError, match="without a sequence"):
        bench.accumulator.reenqueue(batch, bench.now_ms)
    assert bench.drain(0) == [batch]
    sequences.finished(batch)
    with pytest.raises(IllegalStateError, match="not tracked as in flight"):
        bench.accumulator.reenqueue(batch, bench.now_ms)


# -- one partition's sequences: order, acknowledgements and the wrap -----------------------------------------

LAST = 2**31 - 1


def sequenced(base_sequence: int, *, epoch: int = 0, records: int = 1, producer_id: int = 1) -> ProducerBatch:
    builder = MemoryRecordsBuilder(10_000)
    builder.append_many([ProducerRecord("t", b"v")] * records, range(records), 0, 0)
    made = ProducerBatch(ORDERS_0, builder, 0)
    made.set_producer_state(producer_id, epoch, base_sequence)
    return made


def tracked(*batches: ProducerBatch) -> PartitionSequences:
    sequences = PartitionSequences()
    for one in batches:
        sequences.add_in_flight(one)
    return sequences


def bases(sequences: PartitionSequences) -> list[int | None]:
    return [one.base_sequence for one in sequences.in_flight]


def test_later_is_decided_across_the_wrap() -> None:
    pairs = ((5, 4), (4, 4), (3, 4), (0, LAST), (LAST, 0))
    assert [is_later(one, than=other) for one, other in pairs] == [True, False, False, True, False]


def test_batches_in_flight_are_in_the_order_of_epochs_and_sequences() -> None:
    assert bases(tracked(sequenced(2), sequenced(0), sequenced(1))) == [0, 1, 2]
    assert bases(tracked(sequenced(1), sequenced(LAST), sequenced(0))) == [LAST, 0, 1]
    assert bases(tracked(sequenced(0, epoch=1), sequenced(9, epoch=0))) == [9, 0]


def test_a_batch_is_removed_by_identity() -> None:
    old, new = sequenced(0), sequenced(0)
    sequences = tracked(old, new)
    sequences.remove_in_flight(new)
    assert sequences.in_flight == [old]


def test_those_behind_the_oldest_count_even_when_they_are_finished() -> None:
    first, second, third = sequenced(0), sequenced(1), sequenced(2)
    sequences = tracked(first, second)
    assert sequences.batches_since_oldest == 2
    sequences.remove_in_flight(second)
    sequences.add_in_flight(third)
    assert sequences.batches_since_oldest == 3
    sequences.remove_in_flight(first)
    assert sequences.batches_since_oldest == 1
    sequences.remove_in_flight(third)
    assert sequences.batches_since_oldest == 0


def test_the_parts_of_a_split_batch_come_before_the_batches_after_it() -> None:
    split, behind = sequenced(0, records=2), sequenced(2)
    sequences = tracked(split, behind)
    sequences.remove_in_flight(split)
    for part in (sequenced(0), sequenced(1)):
        sequences.add_in_flight(part)
    assert bases(sequences) == [0, 1, 2]
    assert sequences.batches_since_oldest == 3


def test_under_a_new_epoch_only_those_in_flight_count() -> None:
    first, second = sequenced(0), sequenced(1)
    sequences = tracked(first, second, sequenced(2))
    sequences.remove_in_flight(sequences.in_flight[-1])
    sequences.start_at_beginning(ProducerIdAndEpoch(1, 1))
    assert sequences.batches_since_oldest == 2


def test_the_last_acknowledged_sequence_never_goes_back_but_over_the_wrap() -> None:
    def next_after(*acknowledged: int, of: tuple[int, ...]) -> tuple[int | None, list[bool]]:
        sequences = PartitionSequences()
        for sequence in acknowledged:
            sequences.acked(sequence)
        return sequences.last_acked_sequence, [sequences.is_next(one) for one in of]

    assert next_after(of=(0, 1)) == (None, [True, False])
    assert next_after(4, 1, of=(5, 6)) == (4, [True, False])
    assert next_after(LAST, of=(0,)) == (LAST, [True])
    assert next_after(LAST, 0, of=(1,)) == (0, [True])


def test_a_new_beginning_numbers_what_is_in_flight_from_zero_in_its_old_order() -> None:
    first, second = sequenced(7, records=3), sequenced(10, records=2)
    sequences = tracked(first, second)
    sequences.acked(6)
    sequences.start_at_beginning(ProducerIdAndEpoch(1, 1))
    assert [(b.producer_epoch, b.base_sequence) for b in (first, second)] == [(1, 0), (1, 3)]
    assert sequences.next_sequence == 5
    assert sequences.last_acked_sequence is None
    assert first.sequence_has_been_reset


def test_the_greatest_acknowledged_offset_is_kept() -> None:
    sequences = PartitionSequences()
    sequences.acked_offset(9)
    sequences.acked_offset(3)
    assert sequences.last_acked_offset == 9
