"""Batches in flight: when the first one expires; and the log lines of those that fail."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from client_core.clock import FOREVER_MS
from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.producer.sender.batch_settlement import (
    MOST_LINES,
    WINDOW_MS,
    FailureLogLimiter,
    InFlightBatches,
)
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import ORDERS_0, ORDERS_1, produced

if TYPE_CHECKING:
    import pytest


def batch(created_ms: int, topic_partition: TopicPartition = ORDERS_0) -> ProducerBatch:
    return ProducerBatch(topic_partition, MemoryRecordsBuilder(100), created_ms)


def in_flight_of(*batches: ProducerBatch) -> InFlightBatches:
    in_flight = InFlightBatches(100)
    for one in batches:
        in_flight.add(one)
    return in_flight


def test_the_oldest_batch_sets_the_next_expiry_and_without_any_nothing_expires() -> None:
    nothing = in_flight_of()
    assert (nothing.next_expiry_ms, nothing.expired(10**12)) == (FOREVER_MS, [])
    in_flight = in_flight_of(batch(50), batch(10, ORDERS_1), batch(70))
    assert (in_flight.next_expiry_ms, len(in_flight)) == (110, 3)


def test_expired_batches_are_returned_until_they_are_removed() -> None:
    old, young, youngest = batch(10), batch(50), batch(70)
    in_flight = in_flight_of(old, young, youngest)
    assert in_flight.expired(109) == []
    assert in_flight.expired(110) == [old]
    in_flight.remove(old)
    assert in_flight.next_expiry_ms == 150
    assert in_flight.expired(150) == [young]
    assert in_flight.next_expiry_ms == 170


def test_an_expiry_of_what_was_removed_is_set_right_when_it_comes() -> None:
    gone = batch(10)
    in_flight = in_flight_of(gone)
    in_flight.remove(gone)
    in_flight.remove(gone)
    assert len(in_flight) == 0
    assert in_flight.expired(110) == []
    assert in_flight.next_expiry_ms == FOREVER_MS


def test_batches_of_a_partition_are_returned_oldest_first_and_cleared_together() -> None:
    first, second = batch(1), batch(2)
    in_flight = in_flight_of(first, second)
    assert (in_flight.of(ORDERS_0), in_flight.of(ORDERS_1)) == ((first, second), ())
    in_flight.clear()
    assert (len(in_flight), in_flight.next_expiry_ms) == (0, FOREVER_MS)


# -- failing batches in the log ------------------------------------------------------------------------------

DEBUG, WARNING = logging.DEBUG, logging.WARNING
MOVED, FEW = Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_ENOUGH_REPLICAS


def test_a_partition_is_logged_once_for_each_error_and_again_when_it_is_given_up() -> None:
    limiter = FailureLogLimiter()
    assert [limiter.failed(ORDERS_0, MOVED, 0) for _ in range(3)] == [WARNING, DEBUG, DEBUG]
    assert limiter.failed(ORDERS_0, FEW, 0) == WARNING
    assert [limiter.failed(ORDERS_0, FEW, 0, for_good=True) for _ in range(2)] == [WARNING, DEBUG]


def test_recovery_is_logged_and_later_failures_are_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    limiter = FailureLogLimiter()
    limiter.succeeded(ORDERS_0)
    assert caplog.messages == []
    limiter.failed(ORDERS_0, MOVED, 0)
    limiter.succeeded(ORDERS_0)
    limiter.succeeded(ORDERS_0)
    assert caplog.messages == ["Produce to orders-0 works again"]
    assert limiter.failed(ORDERS_0, MOVED, 0) == WARNING


def test_a_thousand_partitions_that_fail_together_are_a_few_lines_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limiter = FailureLogLimiter()
    partitions = [TopicPartition("orders", n) for n in range(1_000)]
    levels = [limiter.failed(partition, MOVED, 100_000) for partition in partitions]
    assert levels.count(WARNING) == MOST_LINES
    assert caplog.messages == [
        f"Produce fails for more partitions than are logged: at most {MOST_LINES} per minute"
    ]
    assert limiter.failed(partitions[-1], MOVED, 100_000 + WINDOW_MS) == WARNING


def test_remembered_failures_are_bounded() -> None:
    limiter = FailureLogLimiter()
    for n in range(3_000):
        limiter.failed(TopicPartition("orders", n), MOVED, n * WINDOW_MS)
        limiter.too_large(f"topic-{n}")
    assert (len(limiter.reported), len(limiter._reported_too_large)) == (1_000, 1_000)


def test_batches_that_are_split_are_logged_once_a_topic() -> None:
    limiter = FailureLogLimiter()
    assert [limiter.too_large("a"), limiter.too_large("a"), limiter.too_large("b")] == [
        WARNING,
        DEBUG,
        WARNING,
    ]


def test_a_producer_logs_a_partition_that_fails_and_works_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", b"a", turns=1)
    for _ in range(3):
        rig.answer(produced(ORDERS_0, error=FEW))
        rig.turn_after(100)
    rig.answer(produced(ORDERS_0, offset=7))
    assert waiting.offsets == [7]
    reported = [message for message in caplog.messages if "orders-0" in message]
    assert reported == [
        "Produce to orders-0 by node 0 failed and is retried: NOT_ENOUGH_REPLICAS",
        "Produce to orders-0 works again",
    ]


def test_a_producer_logs_the_records_that_it_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", b"a", b"b", turns=1)
    rig.answer(produced(ORDERS_0, error=Errors.TOPIC_AUTHORIZATION_FAILED))
    assert len(waiting.failures) == 2
    assert "2 records of orders-0 are given up: Not authorized to access topics: [orders]" in caplog.text
