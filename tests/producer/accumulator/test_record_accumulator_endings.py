"""RecordAccumulator: retries, expiry, flush, abort, split, and memory that comes back once.

Twins of RecordAccumulatorTest.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, SupportsIndex

import pytest

from client_core.clock import FOREVER_MS
from client_core.error_codes import Errors
from client_core.errors import IllegalStateError, KafkaError, ProducerClosedError
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Written
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_batch import HEADER_SIZE, decode_record_batch
from tests.producer.batches import (
    LARGER,
    RECORD,
    Bench,
    Leaders,
    Owner,
    has_incomplete,
    has_undrained,
    node,
    numbered,
    queued,
    record,
    size_of,
    tp,
    values_in,
)
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import ORDERS_0, produced
from tests.support.waiting import patient

if TYPE_CHECKING:
    from client_core.producer.accumulator.batch_appender import AppendResult


# -- retries (ACC-08, ACC-10) ------------------------------------------------------------------------------


def drained_one(bench: Bench, *, count: int = 1) -> ProducerBatch:
    """A batch of partition 0 that was appended and drained."""
    bench.append([RECORD] * count)
    (batch,) = bench.drain(0)
    return batch


@pytest.mark.behaviour("ACC-08", "ACC-10")
def test_a_failed_batch_goes_first_after_its_backoff() -> None:
    bench = Bench(retry_backoff_ms=100, retry_backoff_max_ms=100)
    batch = drained_one(bench)
    bench.append([record(b"second")], 0)
    bench.clock.advance(30)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    assert (batch.attempts, batch.created_ms) == (1, 5_000)
    bench.clock.advance(99)
    assert bench.ready() == ((), 1, frozenset())
    assert bench.drain(0) == []
    bench.clock.advance(1)
    assert bench.ready_ids == {0}
    assert bench.drain(0) == [batch]
    (behind,) = bench.drain(0)
    assert values_in(behind) == [b"second"]


@pytest.mark.behaviour("ACC-08")
@pytest.mark.java("RecordAccumulatorTest.ExponentialRetryBackoff")
def test_the_backoff_doubles_up_to_its_maximum() -> None:
    bench = Bench(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    batch = drained_one(bench)
    for low, high in ((80, 120), (160, 240), (320, 480), (640, 960), (800, 1000), (800, 1000)):
        bench.accumulator.reenqueue(batch, bench.now_ms)
        delay = bench.ready().next_ready_check_delay_ms
        assert low <= delay <= high
        assert bench.ready().next_ready_check_delay_ms == delay  # drawn once per attempt
        bench.clock.advance(delay - 1)
        assert bench.drain(0) == []
        bench.clock.advance(1)
        assert bench.drain(0) == [batch]


def test_a_new_leader_without_epoch_does_not_end_the_backoff() -> None:
    bench = Bench()
    bench.accumulator.reenqueue(drained_one(bench), bench.now_ms)
    bench.leaders = Leaders((1,))
    assert bench.ready_ids == set()
    bench.clock.advance(120)
    assert bench.ready_ids == {1}


# -- expiry (ACC-11) ---------------------------------------------------------------------------------------


@pytest.mark.java(
    "RecordAccumulatorTest.ExpiredBatchSingle", "RecordAccumulatorTest.ExpiredBatchSingleMaxValue"
)
def test_a_queued_batch_expires_when_its_delivery_timeout_is_over() -> None:
    for delivery_timeout_ms, is_muted in itertools.product((3200, 2**31 - 1), (True, False)):
        bench = Bench(linger_ms=300, delivery_timeout_ms=delivery_timeout_ms)
        bench.append([RECORD])
        bench.clock.advance(300)
        assert bench.ready_ids == {0}
        assert bench.accumulator.expired_batches(bench.now_ms) == []
        assert bench.accumulator.next_batch_expiry_ms == 5_000 + delivery_timeout_ms
        if is_muted:
            bench.accumulator.mute_partition(tp(0))
        bench.clock.advance(delivery_timeout_ms - 300)
        (batch,) = bench.accumulator.expired_batches(bench.now_ms)
        assert batch.topic_partition == tp(0)
        assert bench.ready_ids == set()
        assert not has_undrained(bench)
        assert has_incomplete(bench)  # until its owners know


@pytest.mark.behaviour("ACC-11")
def test_all_batches_of_a_partition_expire_in_their_order() -> None:
    bench = Bench(batch_bytes=size_of(*numbered(2)), delivery_timeout_ms=100)
    bench.append(numbered(4))
    bench.clock.advance(50)
    bench.append(numbered(2))
    bench.clock.advance(50)
    expired = bench.accumulator.expired_batches(bench.now_ms)
    assert [batch.record_count for batch in expired] == [2, 2]
    assert queued(bench, 0) == [2]
    assert bench.accumulator.next_batch_expiry_ms == 5_000 + 50 + 100


@pytest.mark.behaviour("ACC-11")
def test_a_retried_batch_expires_as_if_it_had_not_been_sent() -> None:
    bench = Bench(delivery_timeout_ms=3200)
    batch = drained_one(bench)
    bench.clock.advance(1000)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    bench.clock.advance(2199)
    assert bench.accumulator.expired_batches(bench.now_ms) == []
    bench.clock.advance(1)
    assert bench.accumulator.expired_batches(bench.now_ms) == [batch]


@pytest.mark.behaviour("ACC-11")
def test_the_next_expiry_is_forgotten_at_each_reset() -> None:
    bench = Bench(delivery_timeout_ms=100)
    bench.append([RECORD])
    bench.accumulator.expired_batches(bench.now_ms)
    assert bench.accumulator.next_batch_expiry_ms == 5_100
    bench.drain_and_finish_all()
    bench.clock.advance(1000)
    bench.accumulator.next_batch_expiry_ms = FOREVER_MS
    assert bench.accumulator.expired_batches(bench.now_ms) == []
    assert bench.accumulator.next_batch_expiry_ms == FOREVER_MS


# -- as Java tests it --------------------------------------------------------------------------------------


def drained_at(bench: Bench, now_ms: int, leaders: Leaders | None = None) -> list[ProducerBatch]:
    """The batches that a turn at that time would send, to the nodes that are ready then and no others."""
    leaders = leaders or bench.leaders
    ready = bench.accumulator.ready(leaders, now_ms)
    drained = bench.accumulator.drain(leaders, ready.ready_nodes, 2**31, now_ms)
    return [batch for batches in drained.values() for batch in batches]


@pytest.mark.behaviour("ACC-08", "ACC-09")
@pytest.mark.java("RecordAccumulatorTest.RetryBackoff")
def test_a_partition_that_backs_off_is_passed_over_until_its_backoff_is_over() -> None:
    linger_ms, backoff_ms = (2**31 - 1) // 16, (2**31 - 1) // 8
    bench = Bench(
        linger_ms=linger_ms,
        retry_backoff_ms=backoff_ms,
        retry_backoff_max_ms=10 * backoff_ms,
        delivery_timeout_ms=2**31 - 1,
    )
    now_ms = bench.now_ms
    bench.append([RECORD], 0)
    (batch,) = drained_at(bench, now_ms + linger_ms + 1)
    bench.accumulator.reenqueue(batch, now_ms)
    bench.append([RECORD], 1)
    (other,) = drained_at(bench, now_ms + linger_ms + 1)
    assert other.topic_partition == tp(1)
    assert drained_at(bench, now_ms + int(backoff_ms * 1.2) + 1) == [batch]


@pytest.mark.behaviour("ACC-08")
@pytest.mark.java("RecordAccumulatorTest.ExponentialRetryBackoffLeaderChange")
def test_the_backoff_grows_regardless_of_the_partitions_leader() -> None:
    bench = Bench(linger_ms=(2**31 - 1) // 16, delivery_timeout_ms=2**31 - 1)
    moved = Leaders((1, 0, 1))
    now_ms = bench.now_ms
    bench.append([RECORD], 0)
    (batch,) = drained_at(bench, now_ms + (2**31 - 1) // 16 + 1)
    for low_ms, high_ms, leaders in (
        (80, 120, bench.leaders),
        (160, 240, bench.leaders),
        (320, 480, moved),
        (640, 1000, moved),
    ):
        bench.accumulator.reenqueue(batch, now_ms)
        assert drained_at(bench, now_ms + low_ms - 1, leaders) == []
        assert drained_at(bench, now_ms + high_ms + 1, leaders) == [batch]


@pytest.mark.behaviour("ACC-08")
@pytest.mark.java("RecordAccumulatorTest.ReadyAndDrainWhenABatchIsBeingRetried")
def test_a_retry_waits_unless_the_leader_epoch_has_grown_since_the_last_attempt() -> None:
    bench = Bench(batch_bytes=10, linger_ms=10, total_bytes=10 * 1024, delivery_timeout_ms=2**31 - 1)
    now_ms, epoch = bench.now_ms, 100
    bench.leaders = Leaders((0,), {0: epoch})
    bench.append([RECORD], 0)

    now_ms += 11
    (batch,) = drained_at(bench, now_ms)
    assert leadership(batch) == (100, 0)
    bench.accumulator.reenqueue(batch, now_ms)

    now_ms += 1  # too soon, and the same leader
    assert drained_at(bench, now_ms) == []
    assert bench.accumulator.drain(bench.leaders, [node(0)], 999_999, now_ms) == {0: []}

    now_ms += 1  # too soon, but another epoch
    bench.leaders = Leaders((0,), {0: epoch + 1})
    assert drained_at(bench, now_ms) == [batch]
    assert leadership(batch) == (101, 1)
    bench.accumulator.reenqueue(batch, now_ms)
    assert drained_at(bench, now_ms) == []
    assert bench.accumulator.drain(bench.leaders, [node(0)], 999_999, now_ms) == {0: []}
    now_ms += 2_000  # waited for long enough
    assert drained_at(bench, now_ms) == [batch]
    assert leadership(batch) == (101, 1)
    bench.accumulator.reenqueue(batch, now_ms)

    now_ms += 2_000  # both
    bench.leaders = Leaders((0,), {0: epoch + 2})
    assert drained_at(bench, now_ms) == [batch]
    assert leadership(batch) == (102, 3)


def leadership(batch: ProducerBatch) -> tuple[int | None, int]:
    return batch.current_leader_epoch, batch.attempts_when_leader_last_changed


def expired(bench: Bench) -> int:
    """How many batches expire now."""
    return len(bench.accumulator.expired_batches(bench.now_ms))


@pytest.mark.behaviour("ACC-11")
@pytest.mark.java("RecordAccumulatorTest.ExpiredBatchesRetry")
def test_a_retried_batch_expires_only_while_it_is_queued() -> None:
    bench = Bench(linger_ms=3_000, delivery_timeout_ms=3_200, batch_bytes=1025 + HEADER_SIZE)
    for is_muted in (False, True):
        bench.append([RECORD])
        bench.clock.advance(3_000)
        (batch,) = bench.drain(0)
        bench.clock.advance(1_000)
        bench.accumulator.reenqueue(batch, bench.now_ms)
        if is_muted:
            bench.accumulator.mute_partition(tp(0))
        else:
            bench.accumulator.unmute_partition(tp(0))
        bench.clock.advance(2_200)
        assert bench.drain(0) == ([] if is_muted else [batch])
        assert expired(bench) == (1 if is_muted else 0)


@pytest.mark.behaviour("ACC-11")
@pytest.mark.java("RecordAccumulatorTest.ExpiredBatches")
def test_batches_expire_by_their_age_be_they_muted_retried_or_full() -> None:
    linger_ms, request_timeout_ms, delivery_timeout_ms = 30, 60, 3_200
    bench = Bench(
        batch_bytes=size_of(*numbered(5)), linger_ms=linger_ms, delivery_timeout_ms=delivery_timeout_ms
    )

    # Never sent: one batch that is full, and one that is not.
    bench.append(numbered(5))
    assert bench.ready_ids == {0}
    bench.append(numbered(1))
    bench.clock.advance(delivery_timeout_ms + 1)
    bench.accumulator.mute_partition(tp(0))
    assert expired(bench) == 2
    bench.accumulator.unmute_partition(tp(0))
    assert expired(bench) == 0
    assert bench.ready_ids == set()

    # In retry, and far from its timeout.
    bench.append(numbered(1))
    bench.clock.advance(linger_ms)
    (batch,) = bench.drain(0)
    bench.clock.advance(1_000)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    bench.clock.advance(request_timeout_ms + 101)
    for switch in (bench.accumulator.mute_partition, bench.accumulator.unmute_partition):
        switch(tp(0))
        assert expired(bench) == 0

    # Behind it one that has lingered, while its node is throttled.
    bench.append(numbered(1))
    bench.clock.advance(linger_ms)
    assert bench.ready_ids == {0}
    bench.clock.advance(request_timeout_ms + 1)
    for switch in (bench.accumulator.mute_partition, bench.accumulator.unmute_partition):
        switch(tp(0))
        assert expired(bench) == 0
    bench.clock.advance(100)
    assert expired(bench) == 0
    assert bench.ready_ids == {0}


@pytest.mark.java("RecordAccumulatorTest.SoonToExpireBatchesArePickedUpForExpiry")
def test_a_batch_that_expires_soon_is_drained_all_the_same() -> None:
    bench = Bench(linger_ms=500, delivery_timeout_ms=3_200)
    bench.append([RECORD], 0)
    assert drained_at(bench, bench.now_ms) == []
    bench.clock.advance(501)
    assert len(drained_at(bench, bench.now_ms)) == 1
    bench.append([RECORD], 1)
    bench.clock.advance(2_000)
    (batch,) = drained_at(bench, bench.now_ms)
    assert batch.topic_partition == tp(1)


def younger_before_older(*, expires_behind_younger: bool) -> tuple[Bench, ProducerBatch, ProducerBatch]:
    """Without sequences a retried batch goes to the front: here the younger one is ahead of the older."""
    bench = Bench(
        batch_bytes=size_of(LARGER),
        delivery_timeout_ms=3_200,
        retry_backoff_ms=0,
        leaders=(0,),
        expires_behind_younger=expires_behind_younger,
    )
    bench.append([LARGER])
    bench.clock.advance(1_000)
    bench.append([LARGER] * 2)
    older, younger = bench.drain(0) + bench.drain(0)
    for batch in (older, younger):
        bench.accumulator.reenqueue(batch, bench.now_ms)
    assert list(bench.accumulator.batches_of(tp(0)))[:2] == [younger, older]
    bench.clock.advance(2_200)
    return bench, older, younger


@pytest.mark.behaviour("ACC-11")
def test_an_older_batch_that_came_back_before_a_younger_one_expires_in_time() -> None:
    bench, older, younger = younger_before_older(expires_behind_younger=True)
    assert bench.accumulator.expired_batches(bench.now_ms) == [older]
    assert bench.accumulator.next_batch_expiry_ms == younger.created_ms + 3_200


def test_it_may_expire_with_the_younger_one_as_in_java() -> None:
    bench, older, younger = younger_before_older(expires_behind_younger=False)
    assert bench.accumulator.expired_batches(bench.now_ms) == []
    bench.clock.advance(1_000)
    assert bench.accumulator.expired_batches(bench.now_ms)[:2] == [younger, older]


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
def test_a_flush_waits_for_batches_in_flight_and_for_split_ones_which_hold_no_memory_of_the_pool() -> None:
    bench = Bench(batch_bytes=400, total_bytes=400)
    bench.append([record(bytes(90))] * 3)
    (batch,) = bench.drain(0)
    done: list[bool] = []
    flush = bench.accumulator.begin_flush(lambda: done.append(True))
    bench.accumulator.split_and_reenqueue(batch)
    bench.accumulator.complete_and_deallocate_batch(batch)
    assert bench.pool.available_bytes == 400
    assert not flush.is_done
    bench.drain_and_finish_all()
    assert done == [True]
    assert bench.pool.available_bytes == 400


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
    assert owner.times_reported == dict.fromkeys(range(100), 2)
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
    assert owner.times_reported == {0: 1}
    assert not has_incomplete(bench)


@pytest.mark.behaviour("SND-14")
def test_the_memory_of_a_batch_in_flight_comes_back_when_the_client_is_done_with_it_and_once() -> None:
    bench = Bench(batch_bytes=100)
    batch = drained_one(bench)
    batch.is_in_flight = True
    bench.accumulator.abort_incomplete_batches(KafkaError("enough"))
    assert not has_incomplete(bench)
    assert bench.pool.available_bytes == 2**20 - 100
    with pytest.raises(IllegalStateError, match="Attempting to deallocate a batch that is inflight"):
        bench.accumulator.deallocate(batch)
    batch.is_in_flight = False  # the answer is here
    assert not batch.complete(7, None)
    for _ in range(2):
        bench.accumulator.deallocate(batch)
        assert bench.pool.available_bytes == 2**20


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
    parts: list[tuple[int, int]] = []
    while batch.record_count > 1:
        before = batch.record_count
        parts.append((bench.accumulator.split_and_reenqueue(batch), before))
        bench.accumulator.complete_and_deallocate_batch(batch)
        (batch,) = bench.drain(0)
        assert batch.record_count <= (before + 1) // 2
    assert parts[1][0] <= 3 < parts[1][1], "what is too large again comes back in few"
    log = values_in(batch)
    bench.finish(batch)
    while has_undrained(bench):
        (part,) = bench.drain(0)
        log += values_in(part)
        bench.finish(part)
    assert log == [r.value for r in numbered(64)]


def test_a_batch_that_is_given_up_can_not_be_sent_any_more_and_is_counted_once() -> None:
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
    bench.append(numbered(3))
    bench.accumulator.failed.begin_close()
    bench.accumulator.abort_undrained_batches(KafkaError("over"))
    assert [left.records for left in bench.accumulator.failed.report().unacknowledged] == [3]


def append_late(bench: Bench, *, was_parked: bool) -> AppendResult:
    return bench.accumulator.append_many(
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


def test_once_closed_only_what_was_parked_is_appended_and_at_the_end_nothing() -> None:
    bench = Bench()
    bench.accumulator.close()
    with pytest.raises(ProducerClosedError):
        bench.pool.allocate(1, 0)
    with pytest.raises(ProducerClosedError):
        append_late(bench, was_parked=False)
    assert append_late(bench, was_parked=True).appended == 1  # a batch with room, which needs no memory
    bench.accumulator.end()
    with pytest.raises(ProducerClosedError):
        bench.pool.try_allocate(1)
    for was_parked in (False, True):
        with pytest.raises(ProducerClosedError):
            append_late(bench, was_parked=was_parked)


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
        assert owner.times_reported == dict.fromkeys(range(offset + 1), 1)
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
def test_an_abort_ends_batches_that_were_never_drained_and_the_others_go_on() -> None:
    bench, owner = Bench(batch_bytes=128 + HEADER_SIZE, linger_ms=FOREVER_MS, total_bytes=64 * 1024), Owner()
    for number in range(100):
        bench.append([RECORD] * 100, number % 3, owner, indices=[number])
    drained = bench.drain(*(n.id for n in bench.ready().ready_nodes))
    retried = drained[0]
    bench.accumulator.reenqueue(retried, bench.now_ms)
    assert has_undrained(bench)
    assert has_incomplete(bench)
    cause = KafkaError("enough")
    bench.accumulator.abort_undrained_batches(cause)
    assert all(batch.is_closed and not batch.is_done for batch in drained)
    in_requests = sum(batch.record_count for batch in drained)
    assert in_requests > 0
    assert set(owner.errors.values()) == {cause}
    assert len(owner.errors) == 100 - in_requests
    assert {outcome.written for outcome in owner.outcomes} == {Written.NO}
    assert queued(bench, retried.topic_partition.partition) == [retried.record_count]
    assert has_incomplete(bench)


@pytest.mark.behaviour("ACC-12")
@pytest.mark.java("RecordAccumulatorTest.AwaitFlushComplete")
def test_an_abandoned_flush_is_over() -> None:
    bench = Bench(batch_bytes=4096, linger_ms=FOREVER_MS)
    bench.append([RECORD])
    flush = bench.accumulator.begin_flush()
    assert bench.ready_ids == {0}
    flush.abandon()
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


# -- whole requests: what one submit has for a partition is written or refused together ----------------------

BATCH_BYTES = 500


def rig_of(*, whole_requests: bool, codec: str = "none", submit_batch_bytes: int = 0) -> ProducerRig:
    return ProducerRig(
        topics={"orders": 1},
        whole_requests=whole_requests,
        batch_size=BATCH_BYTES,
        submit_batch_size=submit_batch_bytes,
        compression_type=codec,
    )


def keyed(count: int) -> list[ProducerRecord]:
    return [ProducerRecord("orders", bytes([n]) * 100, b"k") for n in range(count)]


def test_the_records_of_a_request_for_a_partition_are_one_batch_or_as_many_as_it_takes() -> None:
    for whole_requests, codec, submit_batch_bytes, offsets in (
        (True, "none", 0, [[*range(7, 47)]]),
        (True, "gzip", 0, [[*range(7, 47)]]),
        (False, "none", 0, []),  # not all is answered
        (False, "none", 10 * BATCH_BYTES, [[*range(7, 47)]]),
        (False, "none", 8 * BATCH_BYTES, []),
    ):
        rig = rig_of(whole_requests=whole_requests, codec=codec, submit_batch_bytes=submit_batch_bytes)
        result = rig.submit("orders", *keyed(40), turns=1)
        rig.answer(produced(ORDERS_0, offset=7))
        assert [result.offsets for _ in result.reported] == offsets, (codec, submit_batch_bytes)


def test_a_batch_that_is_too_large_is_refused_whole_or_sent_again_in_parts() -> None:
    rig = rig_of(whole_requests=True)
    result = rig.submit("orders", *keyed(4), turns=1)
    rig.answer(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE), turns=3)
    assert [failure.error.error for failure in result.failures] == [Errors.MESSAGE_TOO_LARGE] * 4
    assert not rig.client.requests

    for submit_batch_bytes in (0, 10 * BATCH_BYTES):
        assert_is_sent_again_in_parts(rig_of(whole_requests=False, submit_batch_bytes=submit_batch_bytes))


def assert_is_sent_again_in_parts(rig: ProducerRig) -> None:
    result = rig.submit("orders", *keyed(2), turns=1)
    rig.respond(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
    for offset in (7, 8):
        rig.turn(2)
        rig.respond(produced(ORDERS_0, offset=offset))
    rig.turn()
    assert result.offsets == [7, 8]
