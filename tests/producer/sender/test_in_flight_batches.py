"""Batches on their way, and when the first of them is too old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.clock import FOREVER_MS
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.producer.sender.batch_settlement import InFlightBatches
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.sender_rig import ORDERS_0, ORDERS_1

if TYPE_CHECKING:
    from client_core.cluster import TopicPartition


def batch(created_ms: int, topic_partition: TopicPartition = ORDERS_0) -> ProducerBatch:
    return ProducerBatch(topic_partition, MemoryRecordsBuilder(100), created_ms)


def test_nothing_in_flight_never_expires() -> None:
    in_flight = InFlightBatches(100)
    assert in_flight.next_expiry_ms == FOREVER_MS
    assert in_flight.expired(10**12) == []


def test_the_oldest_batch_sets_the_next_expiry() -> None:
    in_flight = InFlightBatches(100)
    for one in (batch(50), batch(10, ORDERS_1), batch(70)):
        in_flight.add(one)
    assert in_flight.next_expiry_ms == 110
    assert len(in_flight) == 3


def test_expired_batches_are_told_until_they_are_removed() -> None:
    in_flight = InFlightBatches(100)
    old, young = batch(10), batch(50)
    in_flight.add(old)
    in_flight.add(young)
    assert in_flight.expired(109) == []
    assert in_flight.expired(110) == [old]
    in_flight.remove(old)
    assert in_flight.next_expiry_ms == 150
    assert in_flight.expired(150) == [young]


def test_an_expiry_of_what_was_removed_is_set_right_when_it_comes() -> None:
    in_flight = InFlightBatches(100)
    gone = batch(10)
    in_flight.add(gone)
    in_flight.remove(gone)
    in_flight.remove(gone)
    assert len(in_flight) == 0
    assert in_flight.expired(110) == []
    assert in_flight.next_expiry_ms == FOREVER_MS


def test_batches_of_a_partition_are_told_oldest_first_and_cleared_together() -> None:
    in_flight = InFlightBatches(100)
    first, second = batch(1), batch(2)
    in_flight.add(first)
    in_flight.add(second)
    assert in_flight.of(ORDERS_0) == (first, second)
    assert in_flight.of(ORDERS_1) == ()
    in_flight.clear()
    assert (len(in_flight), in_flight.next_expiry_ms) == (0, FOREVER_MS)
