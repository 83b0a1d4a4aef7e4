"""Twins of RecordAccumulatorTest, and what Java's does not test: many at once, cancelling, sequences.

Not twinned: AppendLargeCompressed, SplitFrequency and the ratio in SplitBatchOffAccumulator need a codec;
TransactionCompleting and the old message formats do not exist here; ProduceRequestResultAwaitAllDependents is
in test_incomplete_batches.py.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import SupportsIndex

import pytest

from client_core.clock import FOREVER_MS
from client_core.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    ProducerClosedError,
    TimeoutError,
)
from client_core.producer.producer_record import ProducerRecord
from client_core.producer.status import Unacknowledged
from client_core.producer.ticket import Written
from client_core.record.record_batch import HEADER_SIZE, decode_record_batch
from tests.golden.adapters_producer import GivenRandom
from tests.producer.batches import (
    TOPIC,
    Bench,
    CountingSequences,
    Leaders,
    Owner,
    body_size_of,
    node,
    record,
    size_of,
    tp,
    values_in,
)

RECORD = record(b"value", b"key")
#: Two of these never fit into the memory of one: that has some room for what the estimate of a size allows
#: for.
LARGER = record(bytes(100))


def numbered(count: int, start: int = 0) -> list[ProducerRecord]:
    """Records that can be told apart, all of one size."""
    return [record(b"%05d" % n) for n in range(start, start + count)]


def queued(bench: Bench, partition: int) -> list[int]:
    """How many records stand in each of a partition's batches."""
    return [batch.record_count for batch in bench.accumulator.batches_of(tp(partition))]


def has_incomplete(bench: Bench) -> bool:
    return bench.accumulator.has_incomplete


def has_undrained(bench: Bench) -> bool:
    return bench.accumulator.has_undrained


# -- appending (ACC-01 .. ACC-04) --------------------------------------------------------------------------


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


def test_many_records_at_once_fill_the_same_batches_as_one_by_one() -> None:
    records = numbered(55)
    at_once, one_by_one = (Bench(batch_bytes=size_of(*numbered(10))) for _ in range(2))
    assert at_once.append(records).appended == 55
    for r in records:
        one_by_one.append([r])
    assert queued(at_once, 0) == queued(one_by_one, 0) == [10, 10, 10, 10, 10, 5]
    assert at_once.pool.available_bytes == one_by_one.pool.available_bytes


def test_nothing_to_append_is_nothing_to_do() -> None:
    bench = Bench()
    result = bench.append([])
    assert (result.appended, result.needed_bytes, result.new_batch_created) == (0, None, False)
    assert not has_incomplete(bench)


def test_a_record_larger_than_a_batch_has_one_for_itself_and_its_memory() -> None:
    bench = Bench(batch_bytes=512)
    large = record(bytes(1024), b"key")
    bench.append([large])
    assert 1024 < 2**20 - bench.pool.available_bytes < 1024 + 100
    assert bench.ready_ids == {0}
    assert queued(bench, 0) == [1]
    (batch,) = bench.drain()
    assert values_in(batch) == [large.value]


def test_a_batch_size_of_zero_sends_each_record_alone() -> None:
    bench = Bench(batch_bytes=0)
    bench.append([LARGER] * 3)
    assert queued(bench, 0) == [1, 1, 1]


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


def test_reserved_memory_is_used_before_the_pools() -> None:
    bench = Bench(batch_bytes=100, total_bytes=250)
    assert bench.pool.try_allocate(100)
    result = bench.append([RECORD], reserved_bytes=100)
    assert (result.appended, result.reserved_left) == (1, 0)
    assert bench.pool.available_bytes == 150


def test_reserved_memory_that_no_batch_needs_is_the_callers_again() -> None:
    bench = Bench(batch_bytes=200)
    bench.append([RECORD])
    assert bench.pool.try_allocate(200)
    result = bench.append([RECORD], reserved_bytes=200)  # another thread had made a batch
    assert (result.appended, result.new_batch_created, result.reserved_left) == (1, False, 200)


def test_reserved_memory_that_is_too_little_stays_reserved() -> None:
    bench = Bench(batch_bytes=100, total_bytes=5000)
    assert bench.pool.try_allocate(5000)
    result = bench.append([record(bytes(1000))], reserved_bytes=100)
    assert result.appended == 0
    assert result.needed_bytes is not None
    assert result.needed_bytes > 1000
    assert result.reserved_left == 100


def test_after_close_nothing_is_appended_and_everything_is_ready() -> None:
    bench = Bench(linger_ms=100)
    bench.append([RECORD])
    assert bench.ready_ids == set()
    bench.accumulator.close()
    with pytest.raises(ProducerClosedError, match="Producer closed while send in progress"):
        bench.append([RECORD])
    assert bench.ready_ids == {0}


def test_a_record_that_the_pool_could_never_hold_is_refused() -> None:
    bench = Bench(batch_bytes=100, total_bytes=500)
    with pytest.raises(IllegalArgumentError, match="hard limit of 500"):
        bench.append([record(bytes(1000))])
    assert not has_incomplete(bench)


def test_records_before_one_that_is_refused_are_appended_and_the_next_call_raises() -> None:
    bench = Bench(batch_bytes=100, total_bytes=500)
    records = [record(bytes(30)), record(bytes(1000))]
    result = bench.append(records)
    assert (result.appended, result.needed_bytes) == (1, None)
    with pytest.raises(IllegalArgumentError):
        bench.append(records, indices=[1])


@pytest.mark.parametrize(
    "bad", [ProducerRecord(TOPIC, b"v", headers=(("\ud800", None),)), record(timestamp_ms=-2)]
)
def test_a_record_that_cant_be_encoded_leaves_no_batch_and_no_lost_memory(bad: ProducerRecord) -> None:
    bench = Bench(batch_bytes=100)
    assert bench.pool.try_allocate(100)
    for reserved_bytes in (0, 100):
        with pytest.raises(ValueError, match=r"surrogates|negative timestamp"):
            bench.append([bad], reserved_bytes=reserved_bytes)
        assert bench.pool.available_bytes == 2**20 - 100  # what was reserved is still the caller's
    assert not has_incomplete(bench)
    assert not has_undrained(bench)


# -- ready (ACC-05 .. ACC-07) ------------------------------------------------------------------------------


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


def test_a_node_that_is_ready_does_not_ask_for_another_check() -> None:
    bench = Bench(linger_ms=10, batch_bytes=size_of(*numbered(5)))
    bench.append(numbered(5), 0)
    bench.append(numbered(1), 1)
    assert bench.ready().next_ready_check_delay_ms == FOREVER_MS


def test_waiting_for_memory_makes_everything_ready() -> None:
    bench = Bench(linger_ms=10, batch_bytes=100, total_bytes=100)
    bench.append([RECORD])
    assert bench.ready_ids == set()
    waiter = bench.pool.wait_for(1, lambda: None)
    assert bench.ready_ids == {0}
    waiter.cancel()
    assert bench.ready_ids == set()


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
        def leader_epoch_for(self, topic_partition: object, /) -> int | None:
            assert isinstance(topic_partition, tuple)
            asked.append(topic_partition[1])
            return None

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


# -- drain (ACC-09) ----------------------------------------------------------------------------------------


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


def test_one_batch_per_partition_and_as_many_partitions_as_fit() -> None:
    bench = Bench(batch_bytes=size_of(LARGER), leaders=(0, 0, 0))
    for partition in (0, 1, 2):
        bench.append([LARGER] * 2, partition)
    batches = bench.drain(max_bytes=2 * size_of(LARGER))
    assert len({batch.topic_partition for batch in batches}) == len(batches) == 2


def test_a_batch_larger_than_a_request_is_drained_alone() -> None:
    bench = Bench(leaders=(0, 0))
    bench.append([record(bytes(500))], 0)
    bench.append([record(bytes(500))], 1)
    assert len(bench.drain(max_bytes=10)) == 1


def test_a_muted_partition_is_neither_ready_nor_drained() -> None:
    bench = Bench(leaders=(0,))
    bench.append([RECORD])
    bench.accumulator.mute_partition(tp(0))
    assert bench.ready_ids == set()
    assert bench.drain(0) == []
    bench.accumulator.unmute_partition(tp(0))
    assert bench.ready_ids == {0}
    assert len(bench.drain(0)) == 1


def test_a_node_without_partitions_has_an_empty_drain() -> None:
    bench = Bench(leaders=(0,))
    bench.append([RECORD])
    assert bench.accumulator.drain(bench.leaders, [node(7)], 1000, bench.now_ms) == {7: []}
    assert bench.accumulator.drain(bench.leaders, [], 1000, bench.now_ms) == {}


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


# -- retries (ACC-08, ACC-10) ------------------------------------------------------------------------------


def test_a_failed_batch_goes_first_after_its_backoff() -> None:
    bench = Bench(retry_backoff_ms=100, retry_backoff_max_ms=100)
    owner = Owner()
    bench.append([record(b"first")], 0, owner)
    (batch,) = bench.drain(0)
    bench.append([record(b"second")], 0)
    bench.clock.advance(30)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    assert (batch.attempts, batch.created_ms) == (1, 5_000)
    bench.clock.advance(99)
    assert bench.ready() == ((), 1, frozenset())
    assert bench.drain(0) == []
    bench.clock.advance(1)
    assert bench.ready_ids == {0}
    (again,) = bench.drain(0)
    assert again is batch
    (behind,) = bench.drain(0)
    assert values_in(behind) == [b"second"]


def test_other_partitions_do_not_wait_for_one_that_backs_off() -> None:
    bench = Bench(leaders=(0, 0))
    bench.append([RECORD], 0)
    (batch,) = bench.drain(0)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    bench.append([RECORD], 1)
    assert bench.ready_ids == {0}
    assert [b.topic_partition.partition for b in bench.drain(0)] == [1]


def test_the_backoff_doubles_up_to_its_maximum() -> None:
    bench = Bench(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    for low, high in ((80, 120), (160, 240), (320, 480), (640, 960), (800, 1000), (800, 1000)):
        bench.accumulator.reenqueue(batch, bench.now_ms)
        delay = bench.ready().next_ready_check_delay_ms
        assert low <= delay <= high
        assert bench.ready().next_ready_check_delay_ms == delay  # drawn once per attempt
        bench.clock.advance(delay - 1)
        assert bench.drain(0) == []
        bench.clock.advance(1)
        assert bench.drain(0) == [batch]


def test_a_new_leader_epoch_ends_the_backoff() -> None:
    bench = Bench()
    bench.leaders = Leaders((0,), {0: 100})
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    assert bench.ready_ids == set()
    bench.leaders = Leaders((0,), {0: 101})
    assert bench.ready_ids == {0}
    assert bench.drain(0) == [batch]
    assert batch.attempts_when_leader_last_changed == 1
    bench.accumulator.reenqueue(batch, bench.now_ms)
    assert bench.ready_ids == set()
    assert bench.drain(0) == []


def test_a_new_leader_without_epoch_does_not_end_the_backoff() -> None:
    bench = Bench()
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    bench.leaders = Leaders((1,))
    assert bench.ready_ids == set()
    bench.clock.advance(120)
    assert bench.ready_ids == {1}


# -- expiry (ACC-11) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_muted", [True, False])
@pytest.mark.parametrize("delivery_timeout_ms", [3200, 2**31 - 1])
def test_a_queued_batch_expires_when_its_delivery_timeout_is_over(
    is_muted: bool, delivery_timeout_ms: int
) -> None:
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


def test_a_retried_batch_expires_as_if_it_had_not_been_sent() -> None:
    bench = Bench(delivery_timeout_ms=3200)
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    bench.clock.advance(1000)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    bench.clock.advance(2199)
    assert bench.accumulator.expired_batches(bench.now_ms) == []
    bench.clock.advance(1)
    assert bench.accumulator.expired_batches(bench.now_ms) == [batch]


def test_the_next_expiry_is_forgotten_at_each_reset() -> None:
    bench = Bench(delivery_timeout_ms=100)
    bench.append([RECORD])
    bench.accumulator.expired_batches(bench.now_ms)
    bench.drain_and_finish_all()
    bench.clock.advance(1000)
    bench.accumulator.reset_next_batch_expiry()
    assert bench.accumulator.expired_batches(bench.now_ms) == []
    assert bench.accumulator.next_batch_expiry_ms == FOREVER_MS


def test_the_next_expiry_covers_a_batch_in_flight() -> None:
    bench = Bench(delivery_timeout_ms=100)
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    bench.accumulator.reset_next_batch_expiry()
    bench.accumulator.maybe_update_next_batch_expiry(batch)
    assert bench.accumulator.next_batch_expiry_ms == 5_100


# -- flush and abort (ACC-12, ACC-13) ----------------------------------------------------------------------


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
    closing.join(10)
    assert owner.times_told == {0: 1}
    assert not has_incomplete(bench)


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


def test_split_batches_hold_no_memory_of_the_pool() -> None:
    bench = Bench(batch_bytes=1024, total_bytes=1024)
    bench.append(numbered(50))
    (batch,) = bench.drain(0)
    bench.accumulator.split_and_reenqueue(batch)
    bench.accumulator.complete_and_deallocate_batch(batch)
    assert bench.pool.available_bytes == 1024
    bench.drain_and_finish_all()
    assert bench.pool.available_bytes == 1024


# -- sequences (IDM-02, IDM-03, IDM-05) --------------------------------------------------------------------


def idempotent_bench(batches: int) -> tuple[Bench, CountingSequences]:
    """Batches of two records each in partition 0."""
    sequences = CountingSequences()
    bench = Bench(
        batch_bytes=size_of(LARGER, LARGER), retry_backoff_ms=0, sequences=sequences, leaders=(0, 0)
    )
    bench.append([LARGER] * 2 * batches, 0)
    return bench, sequences


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


def test_nothing_is_drained_before_there_is_a_producer_id() -> None:
    bench, sequences = idempotent_bench(1)
    sequences.producer_id_and_epoch = None
    assert bench.drain(0) == []
    assert bench.ready_ids == {0}


def test_nothing_new_is_drained_while_an_earlier_sequence_is_unresolved() -> None:
    bench, sequences = idempotent_bench(2)
    (first,) = bench.drain(0)
    sequences.unresolved.add(tp(0))
    assert bench.drain(0) == []
    bench.accumulator.reenqueue(first, bench.now_ms)
    assert bench.drain(0) == [first]  # what has its sequence may go


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


# -- records without a key (ACC-15 .. ACC-17) --------------------------------------------------------------


class Counting(GivenRandom):
    """Answers 0, 1, 2, ..."""

    def getrandbits(self, bits: int, /) -> int:
        self.number += 1
        return self.number - 1


def partitions_used(bench: Bench) -> list[int]:
    return [batch.topic_partition.partition for batch in bench.drain()]


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


def test_a_batch_that_was_sent_unfilled_does_not_leave_fractions_behind() -> None:
    bench = Bench(batch_bytes=512, linger_ms=10)
    for _ in range(10):
        bench.append([record(bytes(32))] * 10, None)
        bench.clock.advance(10)
        assert len(bench.ready_ids) == 1
        (batch,) = bench.drain()
        assert 256 < len(batch.records()) < 512
        bench.finish(batch)


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


def test_queues_do_not_count_before_each_partition_was_used() -> None:
    bench = Bench(batch_bytes=128, leaders=(0, 0, 0), adaptive=True, random=Counting())
    large = record(bytes(128))
    bench.append([large] * 9, 0)
    bench.append([large] * 9, 1)
    bench.ready()
    bench.append([large] * 6, None)
    assert [len(queued(bench, p)) for p in range(3)] == [11, 11, 2]


def test_queues_do_not_count_any_more_when_all_are_empty() -> None:
    bench = Bench(batch_bytes=128, leaders=(0, 0), adaptive=True, random=Counting())
    large = record(bytes(128))
    bench.append([large] * 5, 0)
    bench.append([large], 1)
    bench.ready()
    bench.drain_and_finish_all()
    bench.ready()
    bench.append([large] * 8, None)
    assert [len(queued(bench, p)) for p in range(2)] == [4, 4]


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
    assert leaving.times_told == {}
    assert staying.times_told == {0: 1, 1: 1, 2: 1}
    assert not has_incomplete(bench)
    assert bench.pool.available_bytes == 2**20


def test_what_was_drained_once_is_not_taken_back() -> None:
    bench = Bench()
    owner = Owner()
    bench.append(numbered(3), 0, owner)
    (batch,) = bench.drain(0)
    assert bench.accumulator.cancel([owner]) == []
    bench.accumulator.reenqueue(batch, bench.now_ms)
    assert bench.accumulator.cancel([owner]) == []
    bench.clock.advance(2000)
    assert bench.drain(0) == [batch]
    assert bench.accumulator.split_and_reenqueue(batch) == 2
    assert bench.accumulator.cancel([owner]) == []


def test_cancelling_ends_a_flush_that_waited_for_nothing_else() -> None:
    bench = Bench(linger_ms=100)
    owner = Owner()
    bench.append(numbered(3), 0, owner)
    flush = bench.accumulator.begin_flush()
    bench.accumulator.cancel([owner])
    assert flush.is_done


# -- status ------------------------------------------------------------------------------------------------


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
    assert set(bench.accumulator.unacknowledged()) == {
        Unacknowledged(TOPIC, 0, 3),
        Unacknowledged(TOPIC, 2, 2),
    }
    assert repr(bench.accumulator) == "<RecordAccumulator waiting=2 incomplete=2>"


# -- many threads ------------------------------------------------------------------------------------------


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
        assert owner.times_told == dict.fromkeys(range(per_thread), 1)
    assert (bench.pool.available_bytes, bench.pool.waiters) == (2048, 0)


def test_sizes_in_these_tests_are_what_they_seem() -> None:
    assert size_of(RECORD) == HEADER_SIZE + body_size_of(RECORD)
    bench = Bench(leaders=(0,))
    bench.append([RECORD])
    (batch,) = bench.drain()
    assert decode_record_batch(batch.records()).size_bytes == size_of(RECORD)
    with pytest.raises(TimeoutError):
        raise TimeoutError
