"""RecordAccumulator: flush, abort, split, and memory that comes back once. Twins of RecordAccumulatorTest."""

from __future__ import annotations

import threading
from typing import SupportsIndex

import pytest

from client_core.clock import FOREVER_MS
from client_core.errors import IllegalStateError, KafkaError, ProducerClosedError
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Written
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_batch import HEADER_SIZE, decode_record_batch
from tests.producer.batches import (
    RECORD,
    Bench,
    Owner,
    has_incomplete,
    has_undrained,
    numbered,
    queued,
    record,
    size_of,
    tp,
    values_in,
)
from tests.support.mock_clock import MockClock
from tests.support.waiting import patient

# -- flush and abort (ACC-12, ACC-13) ----------------------------------------------------------------------


@pytest.mark.behaviour("ACC-05", "ACC-12")
@pytest.mark.java("RecordAccumulatorTest.Flush")
def test_a_flush_makes_everything_ready_until_it_is_done() -> None:
    bench = Bench(linger_ms=FOREVER_MS)
    for n in range(100):
        bench.append([RECORD], n % 3)
    assert bench.ready_ids == set()
    flush = bench.accumulator.begin_flush()
    assert bench.accumulator.flush_in_progress
    assert bench.ready_ids == {0, 1}
    bench.drain_and_finish_all()
    assert flush.is_done
    bench.append([RECORD])
    assert bench.ready_ids == set()


@pytest.mark.behaviour("ACC-12")
def test_a_flush_waits_for_batches_in_flight_and_for_split_ones() -> None:
    bench = Bench(batch_bytes=400)
    bench.append([record(bytes(90))] * 3)
    (batch,) = bench.drain(0)
    done: list[bool] = []
    flush = bench.accumulator.begin_flush(lambda: done.append(True))
    bench.accumulator.split_and_reenqueue(batch)
    bench.accumulator.complete_and_deallocate_batch(batch)
    assert not flush.is_done
    bench.drain_and_finish_all()
    assert done == [True]


@pytest.mark.behaviour("ACC-13")
@pytest.mark.java("RecordAccumulatorTest.AbortIncompleteBatches")
def test_an_abort_fails_all_that_is_incomplete() -> None:
    bench = Bench(linger_ms=FOREVER_MS, batch_bytes=256)
    owner = Owner()
    bench.append(numbered(100), 0, owner)
    bench.append(numbered(100), 2, owner, indices=range(100))
    drained = bench.drain(0)
    bench.accumulator.close()
    flush = bench.accumulator.begin_flush()
    error = ProducerClosedError("Producer is closed forcefully.")
    bench.accumulator.abort_incomplete_batches(error)
    assert owner.times_told == dict.fromkeys(range(100), 2)
    assert set(owner.errors.values()) == {error}
    assert drained[0].is_done
    assert not has_incomplete(bench)
    assert not has_undrained(bench)
    assert flush.is_done
    assert bench.pool.available_bytes == 2**20


def test_an_abort_waits_for_an_append_that_began_before_the_close() -> None:
    bench, owner = Bench(), Owner()
    is_closed = threading.Event()

    def close_by_force() -> None:
        bench.accumulator.close()
        is_closed.set()
        bench.accumulator.abort_incomplete_batches(ProducerClosedError("Producer is closed forcefully."))

    closing = threading.Thread(target=close_by_force)

    class ClosedMeanwhile(list[ProducerRecord]):
        """Has the producer closed while a record of it is being appended to a new batch."""

        looked_at = 0

        def __getitem__(self, index: SupportsIndex, /) -> ProducerRecord:  # type: ignore[override]
            self.looked_at += 1
            if self.looked_at == 2:
                closing.start()
                assert is_closed.wait(10)
                closing.join(0.05)  # it is to wait for us
            return super().__getitem__(index)

    assert bench.append(ClosedMeanwhile([RECORD]), 0, owner).appended == 1
    closing.join(patient(30))
    assert owner.times_told == {0: 1}
    assert not has_incomplete(bench)


@pytest.mark.behaviour("SND-14")
def test_the_memory_of_a_batch_in_flight_comes_back_when_the_client_is_done_with_it() -> None:
    bench = Bench(batch_bytes=100)
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    batch.is_in_flight = True
    bench.accumulator.abort_incomplete_batches(KafkaError("enough"))
    assert not has_incomplete(bench)
    assert bench.pool.available_bytes == 2**20 - 100
    batch.is_in_flight = False  # the answer is here
    assert not batch.complete(7, None)
    bench.accumulator.deallocate(batch)
    assert bench.pool.available_bytes == 2**20


def test_only_what_was_never_drained_can_be_aborted_alone() -> None:
    bench = Bench(batch_bytes=size_of(*numbered(5)), linger_ms=FOREVER_MS)
    owner = Owner()
    for partition in range(3):
        bench.append(numbered(30), partition, owner, indices=range(10 * partition, 10 * partition + 10))
    drained = bench.drain(*(n.id for n in bench.ready().ready_nodes))
    retried = drained[0]
    bench.accumulator.reenqueue(retried, bench.now_ms)
    bench.accumulator.abort_undrained_batches(KafkaError("enough"))
    in_request = sum(batch.record_count for batch in drained)
    assert in_request == 15
    assert len(owner.errors) == 15
    assert {outcome.written for outcome in owner.outcomes} == {Written.NO}
    assert not any(batch.is_done for batch in drained)
    assert queued(bench, retried.topic_partition.partition) == [5]


def test_memory_is_given_back_once() -> None:
    bench = Bench()
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    bench.finish(batch)
    bench.accumulator.deallocate(batch)
    assert bench.pool.available_bytes == 2**20


def test_giving_back_the_memory_of_a_batch_in_flight_is_a_bug() -> None:
    bench = Bench()
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    batch.is_in_flight = True
    with pytest.raises(IllegalStateError, match="Attempting to deallocate a batch that is inflight"):
        bench.accumulator.deallocate(batch)


# -- splitting (ACC-14) ------------------------------------------------------------------------------------


@pytest.mark.behaviour("ACC-14")
def test_a_batch_that_was_too_large_comes_back_in_parts_ahead_of_the_rest() -> None:
    bench = Bench(batch_bytes=4096)
    owner = Owner()
    bench.append(numbered(100), 0, owner)
    (batch,) = bench.drain(0)
    small = Bench(batch_bytes=size_of(*numbered(30)))  # as if batch.size had been this
    small.append(numbered(1, 100), 0, owner, indices=[0])
    assert small.accumulator.split_and_reenqueue(batch) == 4
    assert [b.record_count for b in small.accumulator.batches_of(tp(0))] == [30, 30, 30, 10, 1]
    log: list[bytes | None] = []
    while has_undrained(small):
        (part,) = small.drain(0)
        base = len(log)
        log += values_in(part)
        small.finish(part, base)
    assert log == [r.value for r in numbered(101)]
    assert [owner.receipts[n].offset for n in range(1, 100)] == list(range(1, 100))


@pytest.mark.behaviour("ACC-14")
def test_parts_that_are_too_large_again_are_halved_down_to_single_records() -> None:
    bench = Bench(batch_bytes=4096)
    bench.append(numbered(64))
    (batch,) = bench.drain(0)
    while batch.record_count > 1:
        before = batch.record_count
        bench.accumulator.split_and_reenqueue(batch)
        bench.accumulator.complete_and_deallocate_batch(batch)
        (batch,) = bench.drain(0)
        assert batch.record_count <= (before + 1) // 2
    log = values_in(batch)
    bench.finish(batch)
    while has_undrained(bench):
        (part,) = bench.drain(0)
        log += values_in(part)
        bench.finish(part)
    assert log == [r.value for r in numbered(64)]


def test_a_part_that_is_too_large_again_comes_back_in_few() -> None:
    bench = Bench(batch_bytes=4096)
    bench.append(numbered(64))
    (batch,) = bench.drain(0)
    bench.accumulator.split_and_reenqueue(batch)
    (part,) = bench.drain(0)
    records = part.record_count
    assert bench.accumulator.split_and_reenqueue(part) <= 3 < records


def test_what_is_given_up_can_not_be_sent_any_more() -> None:
    bench = Bench(delivery_timeout_ms=1_000)
    bench.append(numbered(1))
    bench.clock.advance(1_000)
    (expired,) = bench.accumulator.expired_batches(bench.now_ms)
    with pytest.raises(IllegalStateError):
        expired.records()
    bench.append(numbered(1))
    (aborted,) = bench.accumulator.batches_of(tp(0))
    bench.accumulator.abort_incomplete_batches(KafkaError("over"))
    with pytest.raises(IllegalStateError):
        aborted.records()


def test_what_stands_behind_a_batch_that_came_back_is_taken_back() -> None:
    bench = Bench()
    bench.append(numbered(1), 0, Owner())
    (sent,) = bench.drain(0)
    bench.accumulator.reenqueue(sent, bench.now_ms)
    owner = Owner()
    bench.append(numbered(1), 0, owner)
    assert bench.accumulator.cancel([owner]) == [(owner, range(1))]
    assert list(bench.accumulator.batches_of(tp(0))) == [sent]


def test_once_closed_nobody_blocks_for_memory_and_only_what_was_parked_is_appended() -> None:
    bench = Bench()
    bench.accumulator.close()
    with pytest.raises(ProducerClosedError):
        bench.pool.allocate(1, 0)
    with pytest.raises(ProducerClosedError):
        bench.append(numbered(1))
    accumulator = bench.accumulator
    appended = accumulator.append_many(
        RECORD.topic, 0, (RECORD,), (0,), Owner(), bench.leaders.cluster, bench.now_ms, 0, was_parked=True
    )
    assert appended.appended == 1


def test_at_the_end_nothing_is_appended_and_no_memory_is_given() -> None:
    bench = Bench()
    bench.append(numbered(1))  # a batch with room, which needs no memory
    bench.accumulator.end()
    with pytest.raises(ProducerClosedError):
        bench.pool.try_allocate(1)
    for was_parked in (False, True):
        with pytest.raises(ProducerClosedError):
            bench.accumulator.append_many(
                RECORD.topic,
                0,
                (RECORD,),
                (0,),
                Owner(),
                bench.leaders.cluster,
                bench.now_ms,
                0,
                was_parked=was_parked,
            )


def test_the_records_of_batches_that_are_given_up_are_counted_once() -> None:
    bench = Bench()
    bench.append(numbered(3))
    bench.accumulator.failed.begin_close()
    bench.accumulator.abort_undrained_batches(KafkaError("over"))
    assert [left.records for left in bench.accumulator.failed.report().unacknowledged] == [3]


def test_split_batches_hold_no_memory_of_the_pool() -> None:
    bench = Bench(batch_bytes=1024, total_bytes=1024)
    bench.append(numbered(50))
    (batch,) = bench.drain(0)
    bench.accumulator.split_and_reenqueue(batch)
    bench.accumulator.complete_and_deallocate_batch(batch)
    assert bench.pool.available_bytes == 1024
    bench.drain_and_finish_all()
    assert bench.pool.available_bytes == 1024


@pytest.mark.behaviour("ACC-14")
@pytest.mark.java("RecordAccumulatorTest.SplitAndReenqueue")
def test_a_batch_that_was_too_large_is_acknowledged_part_by_part() -> None:
    bench, owner = Bench(batch_bytes=1024, total_bytes=10 * 1024, linger_ms=10), Owner()
    batch = ProducerBatch(tp(0), MemoryRecordsBuilder(4096), bench.now_ms, is_split_batch=True)
    batch.append_many([record(bytes(1024))] * 2, (0, 1), 0, owner, wall_ms=bench.clock.wall_ms())
    batch.close()
    bench.accumulator.reenqueue(batch, bench.now_ms)  # as if it had been made by the accumulator
    bench.clock.advance(121)  # a first retry waits for up to 100 ms and a fifth of it
    assert bench.ready_ids == {0}
    assert bench.drain(0) == [batch]
    bench.accumulator.split_and_reenqueue(batch)
    for offset in range(2):
        (part,) = bench.drain(0)
        part.complete(offset, 100)
        assert owner.times_told == dict.fromkeys(range(offset + 1), 1)
        assert owner.receipts[offset].offset == offset


@pytest.mark.behaviour("ACC-14")
@pytest.mark.java("RecordAccumulatorTest.SplitAndReenqueuePreventInfiniteRecursion")
def test_splitting_goes_on_down_to_single_records_and_ends_there() -> None:
    bench = Bench(batch_bytes=1024 * 1024, total_bytes=10 * 1024 * 1024, linger_ms=10)
    batch = ProducerBatch(tp(0), MemoryRecordsBuilder(1024 * 1024), bench.now_ms, is_split_batch=True)
    records = [record(bytes(1024), n.to_bytes(4)) for n in range(100)]
    batch.append_many(records, range(100), 0, Owner(), wall_ms=bench.clock.wall_ms())
    batch.close()
    bench.clock.advance(101)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    queues = bench.accumulator._queues
    queue = queues.of(tp(0))
    splits = 0
    while (largest := max(queue.batches, key=lambda one: one.record_count)).record_count > 1:
        queues.remove(queue, largest)
        assert bench.accumulator.split_and_reenqueue(largest) > 1
        splits += 1
        assert splits < 100, "it does not end"
    keys = [read.key for one in queue.batches for read in decode_record_batch(one.records()).records()]
    assert {one.record_count for one in queue.batches} == {1}
    assert sorted(key for key in keys if key is not None) == [one.key for one in records]


@pytest.mark.java("RecordAccumulatorTest.AbortUnsentBatches")
def test_what_was_never_drained_is_aborted_and_what_was_goes_on() -> None:
    bench, owner = Bench(batch_bytes=128 + HEADER_SIZE, linger_ms=FOREVER_MS, total_bytes=64 * 1024), Owner()
    for number in range(100):
        bench.append([RECORD] * 100, number % 3, owner, indices=[number])
    drained = bench.drain(*(n.id for n in bench.ready().ready_nodes))
    assert has_undrained(bench)
    assert has_incomplete(bench)
    cause = KafkaError("enough")
    bench.accumulator.abort_undrained_batches(cause)
    assert all(batch.is_closed and not batch.is_done for batch in drained)
    in_requests = sum(batch.record_count for batch in drained)
    assert in_requests > 0
    assert set(owner.errors.values()) == {cause}
    assert len(owner.errors) == 100 - in_requests
    assert not has_undrained(bench)
    assert has_incomplete(bench)


@pytest.mark.behaviour("ACC-12")
@pytest.mark.java("RecordAccumulatorTest.AwaitFlushComplete")
def test_a_flush_whose_wait_is_interrupted_is_over() -> None:
    class Interrupted(MockClock):
        def wait_for(self, *_: object) -> bool:
            raise KeyboardInterrupt

    bench = Bench(batch_bytes=4096, linger_ms=FOREVER_MS)
    bench.append([RECORD])
    flush = bench.accumulator.begin_flush()
    assert bench.ready_ids == {0}
    with pytest.raises(KeyboardInterrupt):
        flush.wait(Interrupted(), FOREVER_MS)
    assert not bench.accumulator.flush_in_progress
    assert bench.ready_ids == set()
    bench.drain_and_finish_all()


def test_a_batch_that_a_cancel_has_emptied_is_not_given_up_by_a_close_at_the_same_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, owner = Bench(), Owner()
    bench.append([RECORD], owner=owner)
    complete = bench.accumulator.complete_and_deallocate_batch

    def close_first(batch: ProducerBatch) -> None:
        bench.accumulator.abort_incomplete_batches(KafkaError("closed"))
        complete(batch)

    bench.accumulator.complete_and_deallocate_batch = close_first  # type: ignore[method-assign]
    assert bench.accumulator.cancel([owner]) == [(owner, range(1))]
    assert (owner.errors, has_incomplete(bench), caplog.messages) == ({}, False, [])
    assert bench.pool.available_bytes == bench.pool.total_bytes
