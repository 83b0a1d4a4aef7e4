"""Which cause a timeout is reported with: the last error of the attempts, or why there is no other attempt.

A whole producer over MockClient, whose connections fail as a test says. Each cause is read from the failure
of the request, from the events, and from the backlog, which the status shows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from client_core.client.connection_status import ConnectionStatus
from client_core.client.node_connection_state import ConnectionState
from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.errors import Cause, TimeoutError
from client_core.events import BatchRetried, ProduceFinished, RecordsCancelled
from client_core.producer.accumulator.causes import Causes
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Phase, Written
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.metadata_responses import metadata_response, partition, topic
from tests.support.producer_rig import ProducerRig, full_buffer_rig
from tests.support.sender_rig import (
    DELIVERY_TIMEOUT_MS,
    ORDERS_0,
    SenderRig,
    produced,
    producer_id_refused,
    together,
)

if TYPE_CHECKING:
    from tests.support.producer_rig import Waiting

FEW = Errors.NOT_ENOUGH_REPLICAS
REFUSED = Cause(Errors.NETWORK_EXCEPTION, 0, 4, 900, "Connection refused", "refused")
WRONG_PASSWORD = Cause(Errors.SASL_AUTHENTICATION_FAILED, 0, 2, 700, "wrong password", "authentication")


def rig_of(**settings: Any) -> ProducerRig:
    return ProducerRig(
        topics={"orders": 1}, delivery_timeout_ms=30_000, request_timeout_ms=20_000, **settings
    )


def connection(rig: ProducerRig, **changed: Any) -> None:
    """Makes the client report this about its connection to broker 0."""
    facts: dict[str, Any] = {"state": ConnectionState.READY, "oldest": None, "throttle_ms": 0, "cause": None}
    facts |= {"connecting_ms": None, **changed}
    status = ConnectionStatus(
        0,
        "localhost",
        9092,
        facts["state"],
        0,
        facts["oldest"],
        0,
        facts["throttle_ms"],
        None,
        None,
        facts["cause"],
        facts["connecting_ms"],
    )
    rig.client.statuses = (status,)


def the_cause(waiting: Waiting) -> Cause | None:
    (failure,) = waiting.failures
    assert isinstance(failure.error, TimeoutError)
    return failure.error.cause


def refuse(rig: ProducerRig, error: Errors, times: int) -> None:
    """Fails so many attempts, with a retry after each."""
    for _ in range(times):
        rig.answer(produced(ORDERS_0, error=error))
        rig.turn_after(100, times=2)


def test_the_last_error_of_the_attempts_is_the_cause() -> None:
    rig = rig_of()
    waiting = rig.submit("orders", b"x", timeout_ms=1_000, turns=2)
    refuse(rig, Errors.NOT_LEADER_OR_FOLLOWER, 1)
    refuse(rig, FEW, 3)
    rig.turn_after(600)
    cause = the_cause(waiting)
    assert cause is not None
    assert cause == Cause(FEW, 0, 3, 900, FEW.message)
    (failure,) = waiting.failures
    assert (failure.phase, failure.written) == (Phase.DELIVERY, Written.UNKNOWN)
    assert type(failure.error.__cause__).__name__ == "NotEnoughReplicasError"
    assert str(cause) == f"NOT_ENOUGH_REPLICAS from node 0, 3 attempts in 900 ms: {FEW.message}"
    assert [event.error for event in rig.events.of(BatchRetried)][-1] is FEW


def test_a_batch_that_expires_is_logged_and_reported_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    rig = SenderRig()
    future = rig.send()
    rig.answer(produced(ORDERS_0, error=FEW))
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    with caplog.at_level(logging.WARNING):
        rig.turn()
    error = future.exception()
    assert isinstance(error, TimeoutError)
    assert error.cause is not None
    assert error.cause.error is FEW
    (finished,) = rig.events.of(ProduceFinished)
    assert (finished.error, finished.cause) == (Errors.REQUEST_TIMED_OUT, FEW)
    assert "The cause: NOT_ENOUGH_REPLICAS from node 0, 1 attempt in 1500 ms" in caplog.text


@pytest.mark.parametrize("cause", [REFUSED, WRONG_PASSWORD])
def test_without_a_connection_to_the_leader_its_failure_is_the_cause(cause: Cause) -> None:
    rig = rig_of()
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 60_000)
    waiting = rig.submit("orders", b"x", b"y", timeout_ms=1_000, turns=2)
    connection(rig, state=ConnectionState.DISCONNECTED, cause=cause)
    assert rig.producer.backlog().queued[0].cause == cause
    rig.turn_after(1_000)
    failures = waiting.failures
    assert {failure.error.cause for failure in failures} == {cause}
    assert {failure.written for failure in failures} == {Written.NO}
    assert rig.events.of(RecordsCancelled) == [
        RecordsCancelled("orders", 2, Errors.REQUEST_TIMED_OUT, cause.error)
    ]


def test_a_connection_that_fails_after_an_attempt_explains_why_there_is_no_other() -> None:
    rig = rig_of()
    waiting = rig.submit("orders", b"x", timeout_ms=1_000, turns=2)
    rig.answer(produced(ORDERS_0, error=FEW))
    connection(rig, state=ConnectionState.AUTHENTICATION_FAILED, cause=WRONG_PASSWORD)
    rig.turn_after(50)
    rig.clock.advance(950)
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 60_000)
    rig.turn()
    assert the_cause(waiting) == WRONG_PASSWORD


def test_a_first_attempt_to_connect_that_has_not_ended_is_the_cause() -> None:
    rig = rig_of()
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 60_000)
    waiting = rig.submit("orders", b"x", timeout_ms=1_000, turns=2)
    connection(rig, state=ConnectionState.CONNECTING, connecting_ms=1_000)
    rig.turn_after(1_000)
    said = "the connection to localhost:9092 is not set up yet"
    assert the_cause(waiting) == Cause(Errors.NETWORK_EXCEPTION, 0, 0, 1_000, said)
    assert rig.producer.status().cause_of_silence == the_cause(waiting)


def test_records_behind_a_batch_that_is_refused_have_its_cause() -> None:
    rig = rig_of(max_in_flight_requests_per_connection=1)
    first = rig.submit("orders", b"x", timeout_ms=1_000, turns=2)
    behind = rig.submit("orders", b"y", timeout_ms=1_000, turns=2)
    refuse(rig, FEW, 3)
    rig.turn_after(900)
    expected = Cause(FEW, 0, 3, 1_200, FEW.message)
    assert (the_cause(first), the_cause(behind)) == (expected, expected)


def test_after_a_success_the_failure_before_it_is_no_cause() -> None:
    rig = rig_of(max_in_flight_requests_per_connection=1)
    rig.submit("orders", b"x", timeout_ms=1_000, turns=2)
    behind = rig.submit("orders", b"y", timeout_ms=1_000, turns=2)
    refuse(rig, FEW, 1)
    rig.answer(produced(ORDERS_0), turns=2)
    rig.turn_after(900)
    assert the_cause(behind) == Cause(Errors.REQUEST_TIMED_OUT, 0, 0, 900, "node 0 has not answered")


def test_a_failure_before_the_records_came_is_not_their_cause() -> None:
    rig = SenderRig()
    rig.send()
    rig.answer(produced(ORDERS_0, error=FEW))
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    later = rig.send()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    error = later.exception()
    assert isinstance(error, TimeoutError)
    assert error.cause is not None
    assert error.cause.error is Errors.REQUEST_TIMED_OUT


def test_the_failures_of_a_thousand_partitions_are_kept_the_oldest_goes_first() -> None:
    rig = SenderRig()
    causes = Causes(rig.metadata, rig.client, lambda now_ms: None)
    partitions = [TopicPartition("orders", number) for number in range(1_001)]
    for place in partitions:
        batch = ProducerBatch(place, MemoryRecordsBuilder(100), 0)
        batch.attempt_failed(FEW, 0, FEW.message, 0)
        causes.attempt_failed(batch)
    assert list(causes.failing) == partitions[1:]


def test_a_partition_without_a_leader_is_the_cause() -> None:
    rig = rig_of()
    rig.client.update_metadata(
        metadata_response(nodes=1, topics=[topic("orders", [partition(leader=None)])]), 13
    )
    waiting = rig.submit("orders", ProducerRecord("orders", b"x", partition=0), timeout_ms=1_000, turns=2)
    rig.turn_after(1_000)
    assert the_cause(waiting) == Cause(
        Errors.LEADER_NOT_AVAILABLE, None, 0, 1_000, "the partition has no leader"
    )


def test_a_leader_that_does_not_answer_is_the_cause() -> None:
    rig = rig_of()
    waiting = rig.submit("orders", b"x", timeout_ms=1_000, turns=2)
    rig.turn_after(1_000)
    cause = the_cause(waiting)
    assert cause == Cause(Errors.REQUEST_TIMED_OUT, 0, 0, 1_000, "node 0 has not answered")
    assert str(cause) == "REQUEST_TIMED_OUT from node 0, for 1000 ms: node 0 has not answered"


def test_records_behind_unanswered_requests_have_the_same_cause() -> None:
    rig = rig_of(max_in_flight_requests_per_connection=1)
    rig.submit("orders", b"x", turns=2)
    waiting = rig.submit("orders", b"y", timeout_ms=1_000, turns=2)
    connection(rig, oldest=1_000)
    rig.turn_after(1_000)
    assert the_cause(waiting) == Cause(Errors.REQUEST_TIMED_OUT, 0, 0, 1_000, "node 0 has not answered")
    said = "localhost:9092 has accepted a request and has not answered"
    assert rig.producer.status().cause_of_silence == Cause(Errors.REQUEST_TIMED_OUT, 0, 0, 1_000, said)


def test_a_quota_is_the_cause() -> None:
    rig = rig_of()
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.throttle(node, 60_000)
    waiting = rig.submit("orders", b"x", timeout_ms=1_000, turns=2)
    connection(rig, throttle_ms=59_000)
    rig.turn_after(1_000)
    cause = the_cause(waiting)
    assert cause is not None
    assert (cause.error, cause.node_id, cause.since_ms) == (Errors.THROTTLING_QUOTA_EXCEEDED, 0, 1_000)


def test_without_a_producer_id_the_error_of_init_producer_id_is_the_cause() -> None:
    rig = SenderRig(idempotent=True, has_producer_id=False)
    future = rig.append()
    rig.turn(2)
    rig.answer(producer_id_refused(Errors.COORDINATOR_LOAD_IN_PROGRESS))
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    error = future.exception()
    assert isinstance(error, TimeoutError)
    assert error.cause is not None
    assert (error.cause.error, error.cause.attempts) == (Errors.COORDINATOR_LOAD_IN_PROGRESS, 1)


def test_a_full_buffer_has_the_cause_of_the_oldest_batch_without_a_brokers_text() -> None:
    rig = full_buffer_rig()
    rig.client.statuses = ()
    rig.turn_after(10_000)
    rig.answer(produced(ORDERS_0, error=FEW, message="the topic of somebody else"))
    waiting = rig.submit("other", b"y", block_ms=1_000, turns=1)
    rig.turn_after(1_000)
    assert the_cause(waiting) == Cause(FEW, 0, 1, 1_000, FEW.message)
    (failure,) = waiting.failures
    assert failure.phase is Phase.BUFFER


def test_a_batch_that_has_only_lingered_has_no_cause() -> None:
    rig = rig_of(linger_ms=10_000)
    waiting = rig.submit("orders", b"x", timeout_ms=1_000, turns=1)
    rig.turn_after(1_000)
    assert the_cause(waiting) is None
    assert rig.events.of(RecordsCancelled) == [
        RecordsCancelled("orders", 1, Errors.REQUEST_TIMED_OUT, Errors.REQUEST_TIMED_OUT)
    ]


def test_each_request_has_the_cause_of_its_own_partition() -> None:
    rig = ProducerRig(topics={"orders": 2}, delivery_timeout_ms=30_000, request_timeout_ms=20_000)
    first, second = (
        rig.submit("orders", ProducerRecord("orders", b"x", partition=p), timeout_ms=1_000) for p in (0, 1)
    )
    rig.turn(2)
    other = produced(TopicPartition("orders", 1), error=Errors.KAFKA_STORAGE_ERROR)
    rig.answer(together(produced(ORDERS_0, error=FEW), other))
    rig.turn_after(1_000)
    causes = [the_cause(waiting) for waiting in (first, second)]
    assert [None if cause is None else cause.error for cause in causes] == [FEW, Errors.KAFKA_STORAGE_ERROR]
