"""RecordAccumulator: batches that come back, and batches that are too old. Twins of RecordAccumulatorTest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.clock import FOREVER_MS
from client_core.record.record_batch import HEADER_SIZE
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

if TYPE_CHECKING:
    from client_core.producer.accumulator.producer_batch import ProducerBatch

# -- retries (ACC-08, ACC-10) ------------------------------------------------------------------------------


@pytest.mark.behaviour("ACC-08", "ACC-10")
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


@pytest.mark.behaviour("ACC-09")
def test_other_partitions_do_not_wait_for_one_that_backs_off() -> None:
    bench = Bench(leaders=(0, 0))
    bench.append([RECORD], 0)
    (batch,) = bench.drain(0)
    bench.accumulator.reenqueue(batch, bench.now_ms)
    bench.append([RECORD], 1)
    assert bench.ready_ids == {0}
    assert [b.topic_partition.partition for b in bench.drain(0)] == [1]


@pytest.mark.behaviour("ACC-08")
@pytest.mark.java("RecordAccumulatorTest.ExponentialRetryBackoff")
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


@pytest.mark.behaviour("ACC-08")
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
@pytest.mark.parametrize(
    "delivery_timeout_ms",
    [
        pytest.param(3200, marks=pytest.mark.java("RecordAccumulatorTest.ExpiredBatchSingle")),
        pytest.param(2**31 - 1, marks=pytest.mark.java("RecordAccumulatorTest.ExpiredBatchSingleMaxValue")),
    ],
)
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
    bench.append([RECORD])
    (batch,) = bench.drain(0)
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
    bench.drain_and_finish_all()
    bench.clock.advance(1000)
    bench.accumulator.next_batch_expiry_ms = FOREVER_MS
    assert bench.accumulator.expired_batches(bench.now_ms) == []
    assert bench.accumulator.next_batch_expiry_ms == FOREVER_MS


def test_the_next_expiry_covers_a_batch_in_flight() -> None:
    bench = Bench(delivery_timeout_ms=100)
    bench.append([RECORD])
    (batch,) = bench.drain(0)
    bench.accumulator.next_batch_expiry_ms = FOREVER_MS
    bench.accumulator.maybe_update_next_batch_expiry(batch)
    assert bench.accumulator.next_batch_expiry_ms == 5_100


# -- as Java tests it --------------------------------------------------------------------------------------


def drained_at(bench: Bench, now_ms: int, leaders: Leaders | None = None) -> list[ProducerBatch]:
    """What a turn at that time would send, to the nodes that are ready then and to no other."""
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
def test_the_backoff_grows_whoever_leads_the_partition() -> None:
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


@pytest.mark.behaviour("ACC-11")
def test_an_older_batch_that_came_back_before_a_younger_one_expires_in_time() -> None:
    # Without sequences what comes back stands in front: the younger one ahead of the older one here.
    bench = Bench(batch_bytes=size_of(LARGER), delivery_timeout_ms=3_200, retry_backoff_ms=0, leaders=(0,))
    bench.append([LARGER])
    bench.clock.advance(1_000)
    bench.append([LARGER] * 2)
    older, younger = bench.drain(0) + bench.drain(0)
    for batch in (older, younger):
        bench.accumulator.reenqueue(batch, bench.now_ms)
    assert list(bench.accumulator.batches_of(tp(0)))[:2] == [younger, older]
    bench.clock.advance(2_200)
    assert bench.accumulator.expired_batches(bench.now_ms) == [older]
    assert bench.accumulator.next_batch_expiry_ms == younger.created_ms + 3_200


def test_it_may_expire_with_the_younger_one_as_in_java() -> None:
    bench = Bench(
        batch_bytes=size_of(LARGER),
        delivery_timeout_ms=3_200,
        retry_backoff_ms=0,
        leaders=(0,),
        expires_behind_younger=False,
    )
    bench.append([LARGER])
    bench.clock.advance(1_000)
    bench.append([LARGER] * 2)
    older, younger = bench.drain(0) + bench.drain(0)
    for batch in (older, younger):
        bench.accumulator.reenqueue(batch, bench.now_ms)
    bench.clock.advance(2_200)
    assert bench.accumulator.expired_batches(bench.now_ms) == []
    bench.clock.advance(1_000)
    assert bench.accumulator.expired_batches(bench.now_ms)[:2] == [younger, older]
