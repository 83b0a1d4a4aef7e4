"""One partition's sequences: order, acknowledgements and the wrap."""

from __future__ import annotations

from client_core.producer.accumulator.partition_sequences import PartitionSequences, is_later
from client_core.producer.accumulator.producer_batch import ProducerBatch, ProducerIdAndEpoch
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.sender_rig import ORDERS_0

LAST = 2**31 - 1


def batch(base_sequence: int, *, epoch: int = 0, records: int = 1, producer_id: int = 1) -> ProducerBatch:
    builder = MemoryRecordsBuilder(10_000)
    for _ in range(records):
        builder.append(0, None, b"v", ())
    made = ProducerBatch(ORDERS_0, builder, 0)
    made.set_producer_state(producer_id, epoch, base_sequence)
    return made


def in_flight(*batches: ProducerBatch) -> PartitionSequences:
    sequences = PartitionSequences()
    for one in batches:
        sequences.add_in_flight(one)
    return sequences


def bases(sequences: PartitionSequences) -> list[int | None]:
    return [one.base_sequence for one in sequences.in_flight]


def test_later_is_told_over_the_wrap() -> None:
    assert is_later(5, than=4)
    assert not is_later(4, than=4)
    assert not is_later(3, than=4)
    assert is_later(0, than=LAST)
    assert not is_later(LAST, than=0)


def test_batches_in_flight_stand_in_the_order_of_their_sequences() -> None:
    assert bases(in_flight(batch(2), batch(0), batch(1))) == [0, 1, 2]


def test_the_order_holds_over_the_wrap() -> None:
    assert bases(in_flight(batch(1), batch(LAST), batch(0))) == [LAST, 0, 1]


def test_an_older_epoch_comes_first_whatever_its_sequence() -> None:
    assert bases(in_flight(batch(0, epoch=1), batch(9, epoch=0))) == [9, 0]


def test_a_batch_is_removed_by_identity() -> None:
    old, new = batch(0), batch(0)
    sequences = in_flight(old, new)
    sequences.remove_in_flight(new)
    assert sequences.in_flight == [old]


def test_those_behind_the_oldest_count_even_when_they_are_finished() -> None:
    first, second, third = batch(0), batch(1), batch(2)
    sequences = in_flight(first, second)
    assert sequences.batches_since_oldest == 2
    sequences.remove_in_flight(second)
    sequences.add_in_flight(third)
    assert sequences.batches_since_oldest == 3
    sequences.remove_in_flight(first)
    assert sequences.batches_since_oldest == 1
    sequences.remove_in_flight(third)
    assert sequences.batches_since_oldest == 0


def test_the_parts_of_a_split_batch_stand_before_those_behind_it() -> None:
    split, behind = batch(0, records=2), batch(2)
    sequences = in_flight(split, behind)
    sequences.remove_in_flight(split)
    for part in (batch(0), batch(1)):
        sequences.add_in_flight(part)
    assert bases(sequences) == [0, 1, 2]
    assert sequences.batches_since_oldest == 3


def test_under_a_new_epoch_only_those_in_flight_count() -> None:
    first, second = batch(0), batch(1)
    sequences = in_flight(first, second, batch(2))
    sequences.remove_in_flight(sequences.in_flight[-1])
    sequences.start_at_beginning(ProducerIdAndEpoch(1, 1))
    assert sequences.batches_since_oldest == 2


def test_sequences_wrap_to_zero() -> None:
    sequences = PartitionSequences(next_sequence=LAST)
    sequences.increment(1)
    assert sequences.next_sequence == 0


def test_the_last_acknowledged_sequence_never_goes_back() -> None:
    sequences = PartitionSequences()
    sequences.acked(4)
    sequences.acked(1)
    assert sequences.last_acked_sequence == 4
    assert sequences.is_next(5)
    assert not sequences.is_next(6)


def test_the_last_acknowledged_sequence_goes_over_the_wrap() -> None:
    sequences = PartitionSequences()
    sequences.acked(LAST)
    assert sequences.is_next(0)
    sequences.acked(0)
    assert sequences.last_acked_sequence == 0


def test_before_any_acknowledgement_zero_is_next() -> None:
    assert PartitionSequences().is_next(0)
    assert not PartitionSequences().is_next(1)


def test_a_new_beginning_numbers_what_is_in_flight_from_zero_in_its_old_order() -> None:
    first, second = batch(7, records=3), batch(10, records=2)
    sequences = in_flight(first, second)
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
