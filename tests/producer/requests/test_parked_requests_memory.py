"""Requests that wait for buffer memory: they are served in order, and unused memory is released."""

from __future__ import annotations

import pytest

from client_core.cluster import TopicPartition
from client_core.errors import BufferExhaustedError, TopicAuthorizationError
from client_core.events import WaitFinished
from client_core.producer.results.future_record_metadata import FutureRecordMetadata
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Phase, Written
from tests.support.producer_rig import ProducerRig, full_buffer_rig
from tests.support.sender_rig import ORDERS_0, produced

UNKNOWN, UNAUTHORIZED = 3, 29


@pytest.mark.behaviour("BUF-02")
def test_a_request_waits_for_memory_and_goes_on_when_some_is_freed() -> None:
    rig = full_buffer_rig()
    waiting = rig.submit("orders", b"y" * 800, turns=1)
    status = rig.producer.status()
    assert (status.waiting_for_buffer, status.buffer.waiters) == (1, 1)
    rig.turn_after(10_000)
    rig.answer(produced(ORDERS_0, offset=0), turns=2)
    assert rig.producer.status().waiting_for_buffer == 0
    rig.answer(produced(ORDERS_0, offset=1))
    assert waiting.offsets == [1]
    assert rig.producer.status().buffer.available_bytes == 1_000


@pytest.mark.behaviour("BUF-03")
def test_memory_that_does_not_come_fails_with_javas_words_and_frees_the_place() -> None:  # BUF-03
    rig = full_buffer_rig()
    waiting = rig.submit("other", b"y" * 800, block_ms=300, turns=1)
    rig.turn_after(300)
    (failure,) = waiting.failures
    assert isinstance(failure.error, BufferExhaustedError)
    assert str(failure.error) == (
        "Failed to allocate 1000 bytes within the configured max blocking time 300 ms. Total memory: 1000 "
        "bytes. Available memory: 0 bytes. Poolable size: 1000 bytes"
    )
    assert (failure.phase, failure.written) == (Phase.BUFFER, Written.NO)
    assert rig.producer.status().buffer.waiters == 0
    assert rig.events.of(WaitFinished) == [WaitFinished("buffer", "timeout", 300)]


@pytest.mark.behaviour("BUF-02")
def test_when_the_first_of_a_queue_gives_up_the_next_one_takes_its_place() -> None:
    rig = full_buffer_rig()
    first = rig.submit("other", b"y" * 800, block_ms=300)
    second = rig.submit("other", b"z" * 800, turns=1)
    rig.turn_after(300)
    assert first.reported
    assert second.reported == []
    assert rig.producer.status().buffer.waiters == 1
    rig.turn_after(10_000)
    rig.answer(produced(ORDERS_0, offset=0), turns=2)
    rig.answer(produced(TopicPartition("other", 0), offset=4))
    assert second.offsets == [4]


def test_a_request_that_needs_more_memory_than_there_ever_is_goes_in_parts() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=1_000)
    waiting = rig.submit("orders", *(b"x" * 700 for _ in range(3)))
    for offset in range(3):
        rig.turn(2)
        rig.respond(produced(ORDERS_0, offset=offset))
    rig.turn(2)
    assert waiting.offsets == [0, 1, 2]
    assert rig.producer.status().buffer.available_bytes == 1_000


def test_memory_granted_to_a_cancelled_request_goes_back() -> None:
    rig = full_buffer_rig()
    waiting = rig.submit("other", b"y" * 800, turns=1)
    rig.turn_after(10_000)
    rig.answer(produced(ORDERS_0, offset=0))  # the parked request has the memory now, but has not resumed yet
    waiting.cancel()
    rig.turn(2)
    assert rig.producer.status().buffer.available_bytes == 1_000


def test_a_topic_that_vanishes_while_a_request_waits_for_memory_is_waited_for() -> None:
    rig = full_buffer_rig()
    waiting = rig.submit("other", b"y" * 800, block_ms=60_000, turns=1)
    rig.know({"orders": 1}, errors={"other": UNKNOWN})
    rig.clock.advance(10_000)
    rig.learn({"orders": 1}, errors={"other": UNKNOWN})
    rig.respond(produced(ORDERS_0, offset=0))
    rig.learn({"orders": 1}, errors={"other": UNKNOWN}, turns=2)
    assert (rig.producer.status().waiting_for_metadata, rig.producer.status().waiting_for_buffer) == (1, 0)
    assert rig.producer.status().buffer.available_bytes == 1_000, "it waits for metadata and keeps memory"
    rig.learn({"orders": 1, "other": 1}, turns=3)
    rig.answer(produced(TopicPartition("other", 0), offset=2))
    assert waiting.offsets == [2]


@pytest.mark.behaviour("PROD-04")
def test_requests_for_a_topic_that_is_forbidden_while_they_wait_for_memory_fail_in_their_turn() -> None:
    rig = full_buffer_rig()
    requests = [rig.submit("other", b"y" * 800, block_ms=ms) for ms in (10_000, 60_000, 300)]
    rig.turn()
    rig.know({"orders": 1}, errors={"other": UNAUTHORIZED})
    rig.turn_after(300)
    assert [len(request.reported) for request in requests] == [0, 0, 1]
    rig.turn_after(9_700)  # the next one is the first now
    errors = [type(request.failures[0].error) for request in requests]
    assert errors == [BufferExhaustedError, TopicAuthorizationError, BufferExhaustedError]


@pytest.mark.behaviour("PROD-04")
def test_a_request_for_a_topic_that_is_forbidden_when_its_memory_is_granted_fails_and_returns_it() -> None:
    rig = full_buffer_rig()
    waiting = rig.submit("other", b"y" * 800, turns=1)
    rig.know({"orders": 1}, errors={"other": UNAUTHORIZED})
    rig.turn_after(10_000)
    rig.answer(produced(ORDERS_0, offset=0), turns=2)
    assert isinstance(waiting.failures[0].error, TopicAuthorizationError)
    assert rig.producer.status().buffer.available_bytes == 1_000


def a_blocked_send_goes_on(rig: ProducerRig) -> None:
    """It makes the batch that a parked request has just got the memory for."""
    appended = rig.producer._accumulator.append_many(
        "orders",
        0,
        (ProducerRecord("orders", b"c"),),
        (0,),
        FutureRecordMetadata(),
        rig.metadata.fetch(),
        rig.clock.now_ms(),
        rig.clock.wall_ms(),
    )
    assert appended.new_batch_created


@pytest.mark.behaviour("BUF-02")
def test_memory_that_a_request_got_and_can_not_use_does_not_keep_it_from_what_it_needs() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=400)
    pool = rig.producer._pool
    assert pool.try_allocate(800)
    waiting = rig.submit("orders", b"a" * 100, b"b" * 700, turns=1)
    pool.deallocate(400)  # goes to the request that waits for a batch
    pool.deallocate(400)
    a_blocked_send_goes_on(rig)
    rig.turn()
    rig.answer(produced(ORDERS_0, offset=0), turns=2)
    rig.answer(produced(ORDERS_0, offset=2))
    assert waiting.offsets == [1, 2]
    assert pool.available_bytes == 1_000


@pytest.mark.behaviour("BUF-02")
def test_nor_is_it_kept_while_the_request_waits_for_a_partition() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=400)
    pool = rig.producer._pool
    assert pool.try_allocate(800)
    rig.submit("orders", b"a", ProducerRecord("orders", b"b", partition=1), turns=1)
    pool.deallocate(400)
    pool.deallocate(400)
    a_blocked_send_goes_on(rig)
    rig.turn()
    assert rig.producer.status().waiting_for_metadata == 1
    assert pool.available_bytes == 1_000 - 400


def test_a_record_larger_than_a_batch_fails_with_the_bytes_that_it_needed() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=400)
    assert rig.producer._pool.try_allocate(800)
    waiting = rig.submit("orders", b"b" * 700, block_ms=300, turns=1)
    waiter_bytes = 700 + 86
    rig.turn_after(300)
    assert f"Failed to allocate {waiter_bytes} bytes within" in str(waiting.failures[0].error)
