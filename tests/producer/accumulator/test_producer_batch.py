"""ProducerBatch: the owners of its records, and how it ends; IncompleteBatches: what a flush waits for.

Twins of ProducerBatchTest.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import IllegalStateError, InvalidRecordError, KafkaError, TopicAuthorizationError
from client_core.producer.accumulator.incomplete_batches import FlushTicket, IncompleteBatches
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.producer.results.batch_outcome import FinalState
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Written
from client_core.record.codecs import compression_for
from client_core.record.compression import Codec
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_batch import decode_record_batch
from tests.producer.batches import TOPIC, WALL_MS, Owner, record, size_of, tp, values_in
from tests.support.counted_work import python_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.producer.results.batch_outcome import BatchOutcome

LEFT_OUT: Final = {
    "ProducerBatchTest.CompleteExceptionallyWithNullRecordErrors": (
        "Java refuses null here; None is a value in ours, and means that all records fail as the batch does: "
        "see test_without_errors_of_their_own_all_records_hear_the_batchs."
    ),
}

NOW_MS = 5_000


def new_batch(write_limit_bytes: int = 10_000, codec: Codec = Codec.NONE) -> ProducerBatch:
    builder = MemoryRecordsBuilder(write_limit_bytes, compression=compression_for(codec))
    return ProducerBatch(tp(1), builder, NOW_MS)


def append(
    batch: ProducerBatch,
    records: Sequence[ProducerRecord],
    owner: Owner,
    indices: Sequence[int] | None = None,
) -> int:
    indices = range(len(records)) if indices is None else indices
    return batch.append_many(records, indices, 0, owner, wall_ms=WALL_MS)


def batch_with(count: int, owner: Owner) -> ProducerBatch:
    batch = new_batch()
    append(batch, [record(b"%d" % n) for n in range(count)], owner)
    return batch


def leadership(batch: ProducerBatch) -> tuple[int | None, int]:
    return batch.current_leader_epoch, batch.attempts_when_leader_last_changed


def leader_changed(batch: ProducerBatch) -> bool:
    return batch.has_leader_changed_for_the_ongoing_retry


def was_reset(batch: ProducerBatch) -> bool:
    return batch.sequence_has_been_reset


def queue_time_ms(batch: ProducerBatch) -> int:
    return batch.queue_time_ms


def was_drained(batch: ProducerBatch) -> bool:
    return batch.was_drained


# -- the end -----------------------------------------------------------------------------------------------


def test_an_acknowledged_batch_gives_each_record_its_receipt() -> None:
    received = {}
    for base_offset, log_append_time_ms in ((500, None), (500, 10), (None, None)):
        first, second = Owner(), Owner()
        batch = new_batch()
        append(batch, [record(timestamp_ms=7), record(timestamp_ms=8)], first)
        append(batch, [record()] * 3, second, indices=[2, 0])
        assert batch.complete(base_offset, log_append_time_ms)
        assert batch.final_state is FinalState.SUCCEEDED
        received[base_offset, log_append_time_ms] = [
            {index: (receipt.offset, receipt.timestamp_ms) for index, receipt in owner.receipts.items()}
            for owner in (first, second)
        ]
        assert {(r.topic, r.partition) for r in first.receipts.values()} == {(TOPIC, 1)}
    assert received == {
        (500, None): [{0: (500, 7), 1: (501, 8)}, {2: (502, WALL_MS), 0: (503, WALL_MS)}],
        (500, 10): [{0: (500, 10), 1: (501, 10)}, {2: (502, 10), 0: (503, 10)}],
        (None, None): [{0: (None, 7), 1: (None, 8)}, {2: (None, WALL_MS), 0: (None, WALL_MS)}],
    }


@pytest.mark.behaviour("BAT-01")
@pytest.mark.java("ProducerBatchTest.BatchAbort", "ProducerBatchTest.BatchCannotAbortTwice")
def test_an_abort_fails_all_records_once() -> None:
    owner = Owner()
    batch = batch_with(2, owner)
    error = KafkaError("gone")
    batch.abort(error)
    assert owner.errors == {0: error, 1: error}
    assert not batch.complete(500, 2342342341)
    assert not batch.complete_exceptionally(KafkaError("late"))
    with pytest.raises(IllegalStateError, match="already been completed in final state ABORTED"):
        batch.abort(KafkaError("second"))
    with pytest.raises(IllegalStateError, match="A ABORTED batch must not"):
        batch.split(1)
    assert owner.errors == {0: error, 1: error}
    assert owner.times_reported == {0: 1, 1: 1}
    assert batch.final_state is FinalState.ABORTED


@pytest.mark.behaviour("BAT-01")
@pytest.mark.java("ProducerBatchTest.BatchCannotCompleteTwice")
def test_a_batch_cannot_succeed_and_then_end_otherwise() -> None:
    owner = Owner()
    batch = batch_with(1, owner)
    batch.complete(500, 10)
    with pytest.raises(IllegalStateError, match="A SUCCEEDED batch must not attempt another state change"):
        batch.complete(1000, 20)
    with pytest.raises(IllegalStateError):
        batch.complete_exceptionally(KafkaError("late"))
    assert (owner.receipts[0].offset, owner.receipts[0].timestamp_ms) == (500, 10)
    assert owner.times_reported == {0: 1}
    batch = batch_with(1, failed := Owner())
    assert batch.complete_exceptionally(KafkaError("timed out"))
    assert not batch.complete(500, None), "a late success is ignored"
    assert failed.receipts == {}


@pytest.mark.behaviour("SND-10")
@pytest.mark.java("ProducerBatchTest.CompleteExceptionallyWithRecordErrors")
def test_each_record_hears_its_own_error() -> None:
    owner = Owner()
    batch = batch_with(5, owner)
    whole = InvalidRecordError("others were invalid")
    own = {0: InvalidRecordError("a"), 3: InvalidRecordError("b")}
    batch.complete_exceptionally(whole, lambda position: own.get(position, whole))
    assert owner.errors == {0: own[0], 1: whole, 2: whole, 3: own[3], 4: whole}


def test_without_errors_of_their_own_all_records_hear_the_batchs() -> None:
    owner, error = Owner(), KafkaError("gone")
    batch_with(5, owner).complete_exceptionally(error, None)
    assert owner.errors == dict.fromkeys(range(5), error)


def test_errors_go_by_the_place_in_the_batch_and_not_in_the_request() -> None:
    first, second = Owner(), Owner()
    batch = batch_with(2, first)
    append(batch, [record()] * 10, second, indices=[9])
    errors = {2: InvalidRecordError("the third in the batch")}
    batch.complete_exceptionally(KafkaError("x"), lambda position: errors.get(position, KafkaError("x")))
    assert second.errors == {9: errors[2]}


def test_a_failed_batch_may_be_in_the_log_once_it_was_drained() -> None:
    rows = ((False, None, Written.NO), (True, None, Written.UNKNOWN), (True, Written.NO, Written.NO))
    for drained, said, written in rows:
        owner = Owner()
        batch = batch_with(1, owner)
        if drained:
            batch.drained(NOW_MS)
        batch.complete_exceptionally(TopicAuthorizationError("no"), written=said)
        assert [outcome.written for outcome in owner.outcomes] == [written], (drained, said)


@pytest.mark.behaviour("BAT-02")
def test_owners_hear_in_the_order_of_appending_and_one_that_raises_keeps_no_other_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[str] = []

    class Listener(Owner):
        def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
            heard.append(f"{self.name} {list(indices)} from {first_in_batch}")
            if self.name == "two":
                raise ValueError("not my day")

    batch = new_batch()
    one, two = Listener("one"), Listener("two")
    append(batch, [record()] * 2, one)
    append(batch, [record()], two)
    append(batch, [record()] * 4, one, indices=[2, 3])
    with caplog.at_level(logging.ERROR):
        batch.complete(0, None)
    assert heard == ["one [0, 1] from 0", "two [0] from 2", "one [2, 3] from 3"]
    assert "not my day" in caplog.text


# -- appending ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ACC-01")
@pytest.mark.java("ProducerBatchTest.ShouldNotAttemptAppendOnceRecordsBuilderIsClosedForAppends")
def test_a_batch_takes_what_fits_and_one_closed_for_appends_takes_nothing() -> None:
    records = [record(bytes(20))] * 5
    batch = new_batch(size_of(*records[:3]))
    assert append(batch, records, Owner()) == 3
    assert batch.is_full
    owner = Owner()
    batch = batch_with(1, owner)
    assert append(batch, [record()], owner, indices=[0]) == 1
    batch.close_for_record_appends()
    assert batch.is_full
    assert append(batch, [record()], owner) == 0
    assert len(batch.spans) == 2
    batch.remove_owners({id(owner)})
    assert batch.is_full
    assert append(batch, [record()], Owner()) == 0


# -- time --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ACC-11")
@pytest.mark.java("ProducerBatchTest.BatchExpiration", "ProducerBatchTest.BatchExpirationAfterReenqueue")
def test_the_delivery_timeout_counts_from_the_creation() -> None:
    batch = new_batch()
    assert not batch.has_reached_delivery_timeout(10_240, NOW_MS - 2)
    assert not batch.has_reached_delivery_timeout(10_240, NOW_MS + 10_239)
    assert batch.has_reached_delivery_timeout(10_240, NOW_MS + 10_240)
    batch.reenqueued(NOW_MS + 10_000, 100)
    assert batch.has_reached_delivery_timeout(10_240, NOW_MS + 10_240)
    assert not batch.has_reached_delivery_timeout(10_240, NOW_MS - 2)


def test_waiting_begins_anew_with_each_attempt_and_queue_time_runs_to_the_last_drain() -> None:
    batch = new_batch()
    assert (queue_time_ms(batch), was_drained(batch)) == (0, False)
    assert [batch.waited_ms(NOW_MS + passed_ms) for passed_ms in (7, -7)] == [7, 0]
    batch.drained(NOW_MS + 5)
    batch.drained(NOW_MS + 3)
    assert (queue_time_ms(batch), was_drained(batch)) == (5, True)
    batch.reenqueued(NOW_MS + 100, 50)
    assert batch.waited_ms(NOW_MS + 130) == 30
    assert [batch.retry_backoff_left_ms(NOW_MS + passed_ms) for passed_ms in (130, 150)] == [20, 0]
    assert batch.in_retry


@pytest.mark.behaviour("ACC-08")
@pytest.mark.java("ProducerBatchTest.WithLeaderChangesAcrossRetries")
def test_a_changed_leader_ends_the_backoff_of_the_ongoing_retry_only() -> None:
    batch = new_batch()
    batch.maybe_update_leader_epoch(None)
    assert leadership(batch) == (None, 0)
    assert not leader_changed(batch)
    batch.maybe_update_leader_epoch(100)
    assert not leader_changed(batch)  # the first attempt is no retry
    assert leadership(batch) == (100, 0)

    batch.reenqueued(NOW_MS, 1000)
    assert batch.retry_backoff_left_ms(NOW_MS) == 1000
    for _ in range(2):
        batch.maybe_update_leader_epoch(101)
        assert leader_changed(batch)
        assert batch.retry_backoff_left_ms(NOW_MS) == 0
        assert leadership(batch) == (101, 1)

    batch.reenqueued(NOW_MS, 1000)
    for epoch in (101, 100, None):
        batch.maybe_update_leader_epoch(epoch)
        assert not leader_changed(batch)
        assert leadership(batch) == (101, 1)


# -- sequences ---------------------------------------------------------------------------------------------


def test_a_batch_has_a_sequence_once_it_was_given_one_and_a_reset_shows_until_the_next_drain() -> None:
    batch = batch_with(3, Owner())
    assert (batch.base_sequence, batch.last_sequence) == (None, None)
    batch.set_producer_state(7, 1, 2**31 - 2)
    assert (batch.base_sequence, batch.last_sequence) == (2**31 - 2, 0)
    assert (batch.producer_id, batch.producer_epoch) == (7, 1)
    batch.close()
    batch.reset_producer_state(7, 2, 0)
    assert was_reset(batch)
    assert not batch.is_closed
    batch.close()
    assert not was_reset(batch)
    assert decode_record_batch(batch.records()).producer_epoch == 2


# -- splitting ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ACC-14")
@pytest.mark.java(
    "ProducerBatchTest.SplitPreservesHeaders", "ProducerBatchTest.SplitPreservesMagicAndCompressionType"
)
def test_a_split_keeps_headers_codec_age_and_order() -> None:
    headers = (("header-key", b"header-value"),)
    for codec in Codec:
        batch = new_batch(codec=codec)
        append(batch, [ProducerRecord(TOPIC, b"there", b"hi", headers=headers)] * 20, Owner())
        batch.drained(NOW_MS + 1)
        parts = batch.split(200)
        assert len(parts) > 2
        assert sum(part.record_count for part in parts) == 20
        for part in parts:
            assert len(part.records()) <= 200
            assert (part.is_split_batch, part.is_full, part.was_drained) == (True, True, True)
            assert (part.created_ms, part.allocated_bytes, part.attempts) == (NOW_MS, 0, 0)
            decoded = decode_record_batch(part.records())
            assert (decoded.base_offset, decoded.codec) == (0, codec)
            assert {read.headers for read in decoded.records()} == {headers}


def test_a_record_larger_than_the_split_size_has_a_batch_for_itself_and_its_size_is_known() -> None:
    batch = new_batch()
    append(batch, [record(bytes(10)), record(bytes(300)), record(bytes(20))], Owner())
    assert 300 + 61 < batch.max_record_size_bytes < 300 + 61 + 30
    assert [part.record_count for part in batch.split(100)] == [1, 1, 1]


@pytest.mark.behaviour("ACC-14")
def test_the_parts_of_a_split_have_sequences_one_after_the_other() -> None:
    batch = batch_with(10, Owner())
    batch.set_producer_state(7, 1, 2**31 - 3)
    parts = batch.split(size_of(*[record(b"0")] * 4))
    assert [part.base_sequence for part in parts] == [2**31 - 3, 1, 5]
    assert {part.producer_id for part in parts} == {7}


def test_a_split_batch_has_ended_and_its_repr_says_how() -> None:
    owner = Owner()
    batch = batch_with(3, owner)
    assert repr(batch) == "<ProducerBatch orders-1 open records=3 attempts=0>"
    batch.split(1)
    assert batch.final_state is FinalState.SPLIT
    with pytest.raises(IllegalStateError):
        batch.complete(0, None)
    assert owner.times_reported == {}
    batch = batch_with(2, owner)
    batch.complete(0, None)
    assert repr(batch) == "<ProducerBatch orders-1 succeeded records=2 attempts=0>"


SPANS = st.lists(st.integers(1, 6), min_size=1, max_size=8)


@given(SPANS, st.integers(60, 200))
def test_after_a_split_each_owner_hears_of_each_record_once(counts: list[int], split_bytes: int) -> None:
    batch = new_batch()
    owners = [Owner(str(n)) for n in range(len(counts))]
    expected = []
    for number, (owner, count) in enumerate(zip(owners, counts, strict=True)):
        records = [record(b"%d:%d" % (number, n)) for n in range(count)]
        assert append(batch, records, owner) == count
        expected += [(owner, n, records[n].value) for n in range(count)]
    log: list[bytes | None] = []
    for part in batch.split(split_bytes):
        base = len(log)
        log += values_in(part)
        part.complete(base, None)
    for owner, index, value in expected:
        assert owner.times_reported[index] == 1
        assert log[owner.receipts[index].offset or 0] == value


# -- taking owners out -------------------------------------------------------------------------------------


def test_the_records_of_an_owner_are_taken_out_of_the_batch() -> None:
    leaving, staying = Owner("leaving"), Owner("staying")
    batch = new_batch()
    append(batch, [record(b"l0", timestamp_ms=1), record(b"l1", timestamp_ms=1)], leaving)
    append(batch, [record(b"s0", timestamp_ms=2)], staying)
    append(batch, [record(b"x")] * 9, leaving, indices=[8])
    append(batch, [record(b"x"), record(b"s1", timestamp_ms=3)], staying, indices=[1])
    removed = batch.remove_owners({id(leaving)})
    assert [(owner, list(indices)) for owner, indices in removed] == [(leaving, [0, 1]), (leaving, [8])]
    assert batch.record_count == 2
    assert append(batch, [record(b"x")] * 2 + [record(b"s2", timestamp_ms=4)], staying, indices=[2]) == 1
    assert values_in(batch) == [b"s0", b"s1", b"s2"]
    batch.complete(100, None)
    assert leaving.times_reported == {}
    assert [(i, r.offset, r.timestamp_ms) for i, r in staying.receipts.items()] == [
        (0, 100, 2),
        (1, 101, 3),
        (2, 102, 4),
    ]


def test_owners_who_leave_one_after_the_other_leave_the_rest_in_order() -> None:
    for is_closed in (False, True):
        owners = [Owner(str(n)) for n in range(50)]
        batch = new_batch()
        for number, owner in enumerate(owners):
            append(batch, [record(b"%d" % number)], owner)
        if is_closed:
            batch.close_for_record_appends()
        for number, owner in enumerate(owners):
            if number % 7:
                assert batch.remove_owners({id(owner)}) == [(owner, range(1))]
                assert batch.remove_owners({id(owner)}) == []
        assert batch.record_count == 8
        batch.drop_removed()
        batch.drop_removed()
        assert batch.is_full == is_closed
        assert values_in(batch) == [b"%d" % number for number in range(0, 50, 7)]
        batch.complete(100, None)
        reported = {int(owner.name): owner.receipts[0].offset for owner in owners if owner.times_reported}
        assert reported == {number: 100 + place for place, number in enumerate(range(0, 50, 7))}


def test_owners_who_leave_one_after_the_other_cost_two_encodings_of_the_batch_and_not_one_each() -> None:
    owners = [Owner(str(n)) for n in range(200)]
    batch = new_batch(20_000)
    for owner in owners:
        append(batch, [record(b"x" * 50)], owner)
    records = batch.record_count
    once = python_calls(lambda: batch.remove_owners({id(owners.pop())}))

    def leave() -> None:
        while len(owners) > 1:
            batch.remove_owners({id(owners.pop())})
        batch.drop_removed()

    assert once < 20
    # A record is copied without a call: the count is that of look-ups, for each owner that leaves.
    assert python_calls(leave) < 20 * records


def test_leaving_a_large_open_batch_costs_no_encoding_of_the_rest_until_the_drain() -> None:
    """One request whose time is up must not take a turn of a hundred milliseconds."""
    leaving, staying = Owner("leaving"), Owner("staying")
    batch = new_batch(1 << 20)
    append(batch, [record(b"x")] * 900, leaving)
    append(batch, [record(b"%d" % number) for number in range(600)], staying)
    assert python_calls(lambda: batch.remove_owners({id(leaving)})) < 20
    assert (batch.record_count, append(batch, [record(b"600")], staying)) == (600, 1)
    assert python_calls(batch.drop_removed) < 100, "records are copied, and neither decoded nor encoded"
    assert values_in(batch) == [b"%d" % number for number in range(601)]


def test_a_batch_without_the_owner_stays_as_it_is() -> None:
    batch = batch_with(2, Owner())
    assert batch.remove_owners({id(Owner())}) == []
    assert append(batch, [record()], Owner()) == 1


# -- incomplete batches and flushes (ACC-12) -----------------------------------------------------------------


def is_done(flush: FlushTicket) -> bool:
    return flush.is_done


def in_progress(incomplete: IncompleteBatches) -> bool:
    return incomplete.flush_in_progress


def filled(count: int) -> tuple[IncompleteBatches, list[ProducerBatch]]:
    incomplete, batches = IncompleteBatches(), [new_batch() for _ in range(count)]
    for batch in batches:
        incomplete.add(batch)
    return incomplete, batches


def test_batches_are_kept_in_their_order_until_they_are_removed() -> None:
    incomplete, batches = filled(3)
    assert list(incomplete.snapshot()) == batches
    incomplete.remove(batches[1])
    incomplete.remove(batches[1])
    assert list(incomplete.snapshot()) == [batches[0], batches[2]]
    assert (len(incomplete), batches[0] in incomplete, batches[1] in incomplete) == (2, True, False)


@pytest.mark.behaviour("ACC-12")
def test_a_flush_waits_for_what_was_incomplete_when_it_began() -> None:
    incomplete, batches = filled(2)
    done: list[bool] = []
    flush = incomplete.begin_flush(lambda: done.append(True))
    late = new_batch()
    incomplete.add(late)
    assert in_progress(incomplete)
    incomplete.remove(batches[0])
    assert not is_done(flush)
    incomplete.remove(batches[1])
    assert is_done(flush)
    assert done == [True]
    assert not in_progress(incomplete)
    incomplete.remove(late)
    assert done == [True]
    assert incomplete.begin_flush(lambda: done.append(True)).is_done, "a flush of nothing is done at once"
    assert done == [True, True]
    assert not in_progress(incomplete)


@pytest.mark.behaviour("ACC-12")
def test_a_flush_waits_for_the_parts_of_a_split_batch() -> None:
    incomplete, (batch,) = filled(1)
    flush = incomplete.begin_flush(None)
    parts = [new_batch(), new_batch()]
    incomplete.split(batch, parts)
    incomplete.remove(batch)
    incomplete.remove(parts[0])
    assert not is_done(flush)
    deeper = [new_batch()]
    incomplete.split(parts[1], deeper)
    incomplete.remove(parts[1])
    assert not is_done(flush)
    incomplete.remove(deeper[0])
    assert is_done(flush)


@pytest.mark.behaviour("ACC-12")
@pytest.mark.java("RecordAccumulatorTest.ProduceRequestResultAwaitAllDependents")
def test_what_waits_for_a_batch_is_called_after_all_its_parts() -> None:
    incomplete, (batch,) = filled(1)
    done: list[bool] = []
    incomplete.begin_flush(lambda: done.append(True))
    parts = [new_batch(), new_batch()]
    incomplete.split(batch, parts)
    incomplete.remove(batch)
    incomplete.remove(parts[0])
    assert done == []
    incomplete.remove(parts[1])
    assert done == [True]


def test_flushes_wait_neither_for_each_other_nor_for_the_parts_of_a_later_batch() -> None:
    incomplete, (first,) = filled(1)
    early = incomplete.begin_flush(None)
    second, part = new_batch(), new_batch()
    incomplete.add(second)
    both = incomplete.begin_flush(None)
    incomplete.split(second, [part])
    incomplete.remove(first)
    assert (early.is_done, both.is_done) == (True, False)
    assert in_progress(incomplete)
    incomplete.remove(second)
    assert not both.is_done
    incomplete.remove(part)
    assert both.is_done
