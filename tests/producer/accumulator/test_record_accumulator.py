"""RecordAccumulator: what is appended, and what is ready to be sent. Twins of RecordAccumulatorTest.

It also tests cases that Java's tests lack: many records at once, and taking them back. The drain, retries and
expiry, flush, abort and split, sequences, codecs and the choice of partitions have files of their own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.clock import FOREVER_MS
from client_core.errors import IllegalArgumentError, ProducerClosedError
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.status import Unacknowledged
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_batch import HEADER_SIZE, decode_record_batch
from tests.producer.batches import (
    LARGER,
    RECORD,
    TOPIC,
    WALL_MS,
    Bench,
    CountingSequences,
    Leaders,
    Owner,
    body_size_of,
    has_incomplete,
    has_undrained,
    numbered,
    queued,
    record,
    size_of,
    tp,
    values_in,
)

if TYPE_CHECKING:
    from client_core.cluster import Node, TopicPartition

# -- appending (ACC-01 .. ACC-04) --------------------------------------------------------------------------


@pytest.mark.behaviour("ACC-01", "ACC-03")
@pytest.mark.java("RecordAccumulatorTest.Full")
def test_records_fill_a_batch_and_the_next_one_begins_another() -> None:
    bench = Bench(batch_bytes=size_of(*numbered(10)) + 5, linger_ms=10)
    for n in range(10):
        result = bench.append(numbered(1, n))
        assert (result.appended, result.new_batch_created, result.batch_is_full) == (1, n == 0, False)
        assert bench.ready_ids == set()
    result = bench.append(numbered(1, 10))
    assert (result.appended, result.new_batch_created, result.batch_is_full) == (1, True, True)
    assert queued(bench, 0) == [10, 1]
    assert bench.ready_ids == {0}
    (batch,) = bench.drain(0)
    assert values_in(batch) == [r.value for r in numbered(10)]


@pytest.mark.behaviour("ACC-01")
def test_many_records_at_once_fill_the_same_batches_as_one_by_one() -> None:
    records = numbered(55)
    at_once, one_by_one = (Bench(batch_bytes=size_of(*numbered(10))) for _ in range(2))
    assert at_once.append(records).appended == 55
    for r in records:
        one_by_one.append([r])
    assert queued(at_once, 0) == queued(one_by_one, 0) == [10, 10, 10, 10, 10, 5]
    assert at_once.pool.available_bytes == one_by_one.pool.available_bytes


def test_records_of_one_call_have_a_batch_that_is_made_for_them() -> None:
    ten_bytes = size_of(*numbered(10))
    bench = Bench(batch_bytes=ten_bytes, submit_batch_bytes=10 * ten_bytes)
    bench.append(numbered(55))
    assert queued(bench, 0) == [55]
    assert 10 * ten_bytes >= 2**20 - bench.pool.available_bytes > 5 * ten_bytes
    bench = Bench(batch_bytes=ten_bytes, submit_batch_bytes=3 * ten_bytes)
    bench.append(numbered(85))
    assert queued(bench, 0) == [40, 40, 5]  # a header less for each ten
    assert all(batch.estimated_size_bytes <= 3 * ten_bytes for batch in bench.accumulator.batches_of(tp(0)))
    bench.drain_and_finish_all()
    assert bench.pool.available_bytes == 2**20


def test_the_last_records_of_a_call_and_a_single_one_have_a_batch_of_the_usual_size() -> None:
    ten_bytes = size_of(*numbered(10))
    bench = Bench(batch_bytes=ten_bytes, submit_batch_bytes=10 * ten_bytes)
    for n in range(25):
        bench.append(numbered(1, n))
    assert queued(bench, 0) == [10, 10, 5]
    assert bench.pool.available_bytes == 2**20 - 3 * ten_bytes


def test_a_batch_that_is_made_for_a_call_takes_no_memory_that_others_wait_for() -> None:
    ten_bytes = size_of(*numbered(10))

    def bench_of() -> Bench:
        return Bench(total_bytes=20 * ten_bytes, batch_bytes=ten_bytes, submit_batch_bytes=10 * ten_bytes)

    bench = bench_of()
    assert bench.pool.try_allocate(17 * ten_bytes)
    result = bench.append(numbered(45))
    assert queued(bench, 0) == [10, 10, 10]  # not one that has to wait
    assert (result.appended, result.needed_bytes) == (30, ten_bytes)
    bench = bench_of()
    assert bench.pool.try_allocate(2 * ten_bytes)
    result = bench.append(numbered(20), reserved_bytes=2 * ten_bytes)
    assert result.reserved_left == 2 * ten_bytes  # what was made came from the pool: all of it is given back


def test_keyless_records_of_one_call_stay_together_and_the_next_ones_go_elsewhere() -> None:
    ten_bytes = size_of(*numbered(10))
    bench = Bench(batch_bytes=ten_bytes, submit_batch_bytes=10 * ten_bytes)
    bench.append(numbered(55), partition=None)
    assert sorted(queued(bench, partition) for partition in range(3)) == [[], [], [55]]
    for n in range(1, 12):
        bench.append(numbered(55, 55 * n), partition=None)
    assert all(queued(bench, partition) for partition in range(3))


def test_a_batch_size_of_zero_sends_each_record_alone_and_nothing_to_append_is_nothing_to_do() -> None:
    bench = Bench(batch_bytes=0)
    result = bench.append([])
    assert (result.appended, result.needed_bytes, result.new_batch_created) == (0, None, False)
    assert not has_incomplete(bench)
    bench.append([LARGER] * 3)
    assert queued(bench, 0) == [1, 1, 1]


@pytest.mark.behaviour("ACC-02")
@pytest.mark.java("RecordAccumulatorTest.AppendLargeNonCompressed")
def test_a_record_larger_than_a_batch_has_one_for_itself_and_its_memory() -> None:
    bench = Bench(batch_bytes=512)
    large = record(bytes(1024), b"key")
    wall_ms = bench.clock.wall_ms()
    bench.append([large])
    assert 1024 < 2**20 - bench.pool.available_bytes < 1024 + 100
    assert bench.ready_ids == {0}
    assert queued(bench, 0) == [1]
    (batch,) = bench.drain()
    (read,) = decode_record_batch(batch.records()).records()
    assert (read.offset, read.key, read.value, read.timestamp_ms) == (0, b"key", large.value, wall_ms)


@pytest.mark.java("RecordAccumulatorTest.HasRoomForAllowsOversizedFirstRecordButRejectsSubsequentRecords")
def test_the_first_record_always_fits_and_none_behind_one_that_is_too_large() -> None:
    builder = MemoryRecordsBuilder(1024)
    records = [ProducerRecord("t", bytes(size), b"key") for size in (4 * 1024, 4 * 1024, 100)]
    assert [builder.append_many(records, (index,), 0, WALL_MS) for index in range(3)] == [1, 0, 0]
    assert builder.record_count == 1


def test_appending_goes_as_far_as_there_is_memory_and_says_what_is_lacking() -> None:
    batch_bytes = size_of(*numbered(10))
    bench = Bench(batch_bytes=batch_bytes, total_bytes=2 * batch_bytes + 7)
    owner, records = Owner(), numbered(25)
    result = bench.append(records, owner=owner)
    assert (result.appended, result.needed_bytes) == (20, batch_bytes)
    bench.drain_and_finish_all()
    assert sorted(owner.receipts) == list(range(20))
    rest = bench.append(records, owner=owner, indices=range(20, 25))
    assert (rest.appended, rest.needed_bytes) == (5, None)


@pytest.mark.behaviour("ACC-02")
def test_reserved_memory_is_used_before_the_pools_or_is_the_callers_again() -> None:
    bench = Bench(batch_bytes=100, total_bytes=5000)
    assert bench.pool.try_allocate(100)
    result = bench.append([RECORD], reserved_bytes=100)
    assert (result.appended, result.reserved_left, bench.pool.available_bytes) == (1, 0, 4900)
    bench = Bench(batch_bytes=200)
    bench.append([RECORD])
    assert bench.pool.try_allocate(200)
    result = bench.append([RECORD], reserved_bytes=200)  # another thread had made a batch
    assert (result.appended, result.new_batch_created, result.reserved_left) == (1, False, 200)
    bench = Bench(batch_bytes=100, total_bytes=5000)
    assert bench.pool.try_allocate(5000)
    result = bench.append([record(bytes(1000))], reserved_bytes=100)  # too little
    assert (result.appended, result.reserved_left) == (0, 100)
    assert result.needed_bytes is not None
    assert result.needed_bytes > 1000


@pytest.mark.behaviour("ACC-04", "ACC-05")
def test_after_close_nothing_is_appended_and_everything_is_ready() -> None:
    bench = Bench(linger_ms=100)
    bench.append([RECORD])
    assert bench.ready_ids == set()
    bench.accumulator.close()
    with pytest.raises(ProducerClosedError, match="Producer closed while send in progress"):
        bench.append([RECORD])
    assert bench.ready_ids == {0}


@pytest.mark.behaviour("BUF-01")
def test_a_record_that_the_pool_could_never_hold_is_refused_and_those_before_it_are_appended() -> None:
    bench = Bench(batch_bytes=100, total_bytes=500)
    records = [record(bytes(30)), record(bytes(1000))]
    with pytest.raises(IllegalArgumentError, match="hard limit of 500"):
        bench.append(records, indices=[1])
    assert not has_incomplete(bench)
    result = bench.append(records)
    assert (result.appended, result.needed_bytes) == (1, None)
    with pytest.raises(IllegalArgumentError):
        bench.append(records, indices=[1])


def test_a_record_that_cant_be_encoded_leaves_no_batch_and_no_lost_memory() -> None:
    for bad in (ProducerRecord(TOPIC, b"v", headers=(("\ud800", None),)), record(timestamp_ms=-2)):
        bench = Bench(batch_bytes=100)
        assert bench.pool.try_allocate(100)
        for reserved_bytes in (0, 100):
            with pytest.raises(ValueError, match=r"surrogates|negative timestamp"):
                bench.append([bad], reserved_bytes=reserved_bytes)
            assert bench.pool.available_bytes == 2**20 - 100  # what was reserved is still the caller's
        assert not has_incomplete(bench)
        assert not has_undrained(bench)


def test_records_that_are_in_a_batch_stay_in_it_though_no_next_partition_can_be_chosen() -> None:
    bench, owner = Bench(batch_bytes=1000, leaders=(0,)), Owner()
    known = bench.leaders
    bench.append([record()], None)
    bench.drain_and_finish_all()
    bench.leaders = Leaders(())  # the topic is gone from this snapshot
    result = bench.append([record(bytes(1000))], None, owner)
    assert (result.appended, result.new_batch_created) == (1, True)
    bench.leaders = known
    bench.drain_and_finish_all()
    assert owner.times_reported == {0: 1}
    assert bench.pool.available_bytes == 2**20


# -- ready (ACC-05 .. ACC-07) ------------------------------------------------------------------------------


@pytest.mark.behaviour("ACC-05")
@pytest.mark.java("RecordAccumulatorTest.Linger")
def test_a_batch_is_ready_when_it_has_lingered() -> None:
    bench = Bench(linger_ms=10)
    bench.append([RECORD])
    assert bench.ready_ids == set()
    bench.clock.advance(9)
    assert bench.ready().next_ready_check_delay_ms == 1
    bench.clock.advance(1)
    assert bench.ready_ids == {0}
    (batch,) = bench.drain()
    assert values_in(batch) == [b"value"]


@pytest.mark.behaviour("ACC-06")
@pytest.mark.java("RecordAccumulatorTest.NextReadyCheckDelay")
def test_the_next_check_is_when_the_first_batch_has_lingered() -> None:
    bench = Bench(linger_ms=10, batch_bytes=size_of(*numbered(5)))
    assert bench.ready().next_ready_check_delay_ms == FOREVER_MS
    bench.append(numbered(4), 0)
    assert bench.ready().next_ready_check_delay_ms == 10
    bench.clock.advance(5)
    bench.append(numbered(4), 2)
    assert bench.ready() == ((), 5, frozenset())
    bench.append(numbered(6), 1)
    ready = bench.ready()
    assert [n.id for n in ready.ready_nodes] == [0]
    assert ready.next_ready_check_delay_ms <= 10


@pytest.mark.behaviour("ACC-06")
def test_a_node_that_is_ready_does_not_ask_for_another_check() -> None:
    bench = Bench(linger_ms=10, batch_bytes=size_of(*numbered(5)))
    bench.append(numbered(5), 0)
    bench.append(numbered(1), 1)
    assert bench.ready().next_ready_check_delay_ms == FOREVER_MS


@pytest.mark.behaviour("ACC-05")
def test_waiting_for_memory_makes_everything_ready() -> None:
    bench = Bench(linger_ms=10, batch_bytes=100, total_bytes=100)
    bench.append([RECORD])
    assert bench.ready_ids == set()
    waiter = bench.pool.wait_for(1, lambda: None)
    assert bench.ready_ids == {0}
    waiter.cancel()
    assert bench.ready_ids == set()


@pytest.mark.behaviour("ACC-07")
def test_a_topic_whose_leader_is_unknown_is_named() -> None:
    bench = Bench(leaders=(0, None))
    bench.append([RECORD], 1)
    ready = bench.ready()
    assert ready.unknown_leader_topics == {TOPIC}
    assert ready.ready_nodes == ()
    assert bench.drain(0) == []


def test_only_partitions_with_batches_are_asked_for() -> None:
    asked: list[int] = []

    class Counting(Leaders):
        def leader_and_epoch_for(self, topic_partition: TopicPartition, /) -> tuple[Node | None, int | None]:
            asked.append(topic_partition.partition)
            return super().leader_and_epoch_for(topic_partition)

    bench = Bench()
    bench.leaders = Counting((0,) * 50)
    bench.append([RECORD], 7)
    bench.append([RECORD], 9)
    bench.ready()
    assert asked == [7, 9]
    bench.drain_and_finish_all()
    asked.clear()
    bench.ready()
    bench.drain(0)
    assert asked == []


# -- cancelling --------------------------------------------------------------------------------------------


def test_records_that_were_not_drained_can_be_taken_back() -> None:
    bench = Bench(linger_ms=100)
    leaving, staying = Owner("leaving"), Owner("staying")
    bench.append(numbered(3), 0, leaving)
    bench.append(numbered(3, 50), 0, staying)
    bench.append(numbered(8), 2, leaving, indices=[5, 7])
    cancelled = bench.accumulator.cancel([leaving])
    assert sorted(index for _, indices in cancelled for index in indices) == [0, 1, 2, 5, 7]
    assert {owner.name for owner, _ in cancelled} == {"leaving"}  # type: ignore[attr-defined]
    assert queued(bench, 0) == [3]
    assert queued(bench, 2) == []
    bench.clock.advance(100)
    assert bench.ready_ids == {0}
    (batch,) = bench.drain()
    assert values_in(batch) == [r.value for r in numbered(3, 50)]
    bench.finish(batch)
    assert leaving.times_reported == {}
    assert staying.times_reported == {0: 1, 1: 1, 2: 1}
    assert not has_incomplete(bench)
    assert bench.pool.available_bytes == 2**20


def test_records_taken_back_have_no_sequence_are_not_sent_and_end_a_flush() -> None:
    sequences = CountingSequences()
    bench, leaving = Bench(sequences=sequences), Owner("leaving")
    bench.append(numbered(1, 50), 1, leaving)
    flush = bench.accumulator.begin_flush()
    bench.append(numbered(4), 0)
    bench.append(numbered(1, 50), 0, leaving)
    was_done = flush.is_done
    bench.accumulator.cancel([leaving])
    assert (was_done, flush.is_done) == (False, True)
    assert bench.accumulator.status(bench.now_ms).records == 4
    (batch,) = bench.drain(0)
    assert values_in(batch) == [r.value for r in numbered(4)]
    assert sequences.next[tp(0)] == 4
    assert batch.last_sequence == 3


def test_a_batch_that_was_drained_once_is_not_taken_back() -> None:
    bench, owner = Bench(), Owner()
    bench.append(numbered(3), 0, owner)
    (batch,) = bench.drain(0)
    assert bench.accumulator.cancel([owner]) == []
    bench.accumulator.reenqueue(batch, bench.now_ms)
    assert bench.accumulator.cancel([owner]) == []
    later = Owner()
    bench.append(numbered(1), 0, later)
    assert bench.accumulator.cancel([later]) == [(later, range(1))], "records appended after it are"
    bench.clock.advance(2000)
    assert bench.drain(0) == [batch]
    assert bench.accumulator.split_and_reenqueue(batch) == 2
    assert bench.accumulator.cancel([owner]) == []


def test_status_says_what_waits_and_for_how_long() -> None:
    bench = Bench(batch_bytes=100, total_bytes=1000)
    assert bench.accumulator.status(bench.now_ms).oldest_batch_age_ms is None
    bench.append(numbered(3), 0)
    bench.clock.advance(20)
    bench.append(numbered(2), 2)
    bench.clock.advance(10)
    status = bench.accumulator.status(bench.now_ms)
    assert (status.total_bytes, status.available_bytes, status.waiters) == (1000, 800, 0)
    assert (status.batches, status.records, status.oldest_batch_age_ms) == (2, 5, 30)
    unacknowledged = {Unacknowledged(TOPIC, 0, 3), Unacknowledged(TOPIC, 2, 2)}
    assert set(bench.accumulator.unacknowledged()) == unacknowledged
    assert repr(bench.accumulator) == "<RecordAccumulator waiting=2 incomplete=2>"


# -- status ------------------------------------------------------------------------------------------------


# -- many threads ------------------------------------------------------------------------------------------


@pytest.mark.java("RecordAccumulatorTest.StressfulSituation")
def test_threads_that_append_while_another_drains_lose_nothing() -> None:
    bench = Bench(batch_bytes=256, total_bytes=2048, random=Random(3))
    threads, per_thread, step = 5, 400, 7
    owners = [Owner(str(n)) for n in range(threads)]

    def append_all(number: int) -> None:
        records = [record(b"%d/%d" % (number, n)) for n in range(per_thread)]
        done, reserved = 0, 0
        while done < per_thread:
            indices = range(done, min(done + step, per_thread))
            partition = None if number % 2 else number % 3
            result = bench.append(records, partition, owners[number], indices, reserved)
            done, reserved = done + result.appended, result.reserved_left
            if result.needed_bytes is not None:
                bench.pool.allocate(result.needed_bytes, FOREVER_MS)
                reserved += result.needed_bytes
        if reserved:
            bench.pool.deallocate(reserved)

    with ThreadPoolExecutor(threads) as executor:
        futures = [executor.submit(append_all, number) for number in range(threads)]
        while not all(future.done() for future in futures) or has_incomplete(bench):
            for batch in bench.drain(*(n.id for n in bench.ready().ready_nodes)):
                bench.finish(batch)
        for future in futures:
            future.result()
    for owner in owners:
        assert owner.times_reported == dict.fromkeys(range(per_thread), 1)
    assert (bench.pool.available_bytes, bench.pool.waiters) == (2048, 0)


def test_sizes_in_these_tests_are_what_they_seem() -> None:
    assert size_of(RECORD) == HEADER_SIZE + body_size_of(RECORD)
    bench = Bench(leaders=(0,))
    bench.append([RECORD])
    (batch,) = bench.drain()
    assert decode_record_batch(batch.records()).size_bytes == size_of(RECORD)
