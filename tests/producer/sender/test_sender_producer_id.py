"""Sender and the producer id: asked for first, asked for again, refused. Twins of SenderTest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core.client.kafka_client import LeastLoadedNode
from client_core.error_codes import Errors
from client_core.errors import ClusterAuthorizationError, TimeoutError, UnsupportedVersionError
from client_core.producer.accumulator.producer_batch import ProducerIdAndEpoch
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.sender.transaction_manager import State
from tests.support.mock_client import MockClient
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import (
    DELIVERY_TIMEOUT_MS,
    ORDERS_0,
    ORDERS_1,
    PRODUCER_ID,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    SenderRig,
    SleepRecorder,
    produced,
    producer_id_given,
    producer_id_refused,
    together,
)

if TYPE_CHECKING:
    from client_core.cluster import Node

LEFT_OUT: Final = {
    "SenderTest.DoNotPollWhenNoRequestSent": (
        "It counts the polls between the requests to a transaction's coordinator; there is none here, and a "
        "turn of ours polls once, whatever it sent."
    ),
    "SenderTest.InitProducerIdWithMaxInFlightOne": (
        "It is of a transactional producer; for an idempotent one see "
        "test_an_id_is_asked_for_when_the_only_node_has_answered_about_metadata."
    ),
    "SenderTest.AbortableErrorIsConvertedToFatalErrorDuringAbort": "There are no transactions to abort.",
}


def waiting_rig() -> SenderRig:
    """A sender that has no producer id yet."""
    return SenderRig(idempotent=True, has_producer_id=False)


@pytest.mark.java("TransactionManagerTest.FailIfNotReadyForSendIdempotentProducer")
def test_a_send_is_not_refused_while_there_is_no_producer_id() -> None:
    rig = ProducerRig(topics={"orders": 1}, enable_idempotence=True)
    futures = []
    for state in (State.UNINITIALIZED, State.INITIALIZING):
        assert rig.producer._transaction_manager is not None
        assert rig.producer._transaction_manager.state is state
        futures.append(rig.producer.send(ProducerRecord("orders", b"v")))
        rig.turn()
    assert not any(future.done() for future in futures)
    rig.answer(producer_id_given(), turns=2)
    rig.answer(produced(ORDERS_0, offset=0))
    assert [future.result(0).offset for future in futures] == [0, 1]


@pytest.mark.behaviour("IDM-01")
@pytest.mark.java("SenderTest.InitProducerIdRequest")
def test_a_producer_id_is_asked_for_before_anything_is_drained() -> None:
    rig = waiting_rig()
    rig.send(turns=3)
    assert [request.builder.api.name for request in rig.client.requests] == ["InitProducerId"]
    assert rig.accumulator.has_undrained
    rig.answer(producer_id_given())
    assert rig.idempotence.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 0)
    rig.turn()
    assert rig.sent_sequence() == (0, 0)


@pytest.mark.behaviour("IDM-01")
@pytest.mark.java("TransactionManagerTest.RetriableErrors")
def test_an_id_is_asked_for_though_nothing_is_to_be_sent_and_again_of_a_cluster_that_just_started() -> None:
    for error in (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, None):
        rig = waiting_rig()
        rig.turn()
        assert rig.client.in_flight_request_count() == 1
        if error is None:
            rig.client.disconnect(rig.node.id)  # a connection lost meanwhile is no end
            rig.turn(2)
        else:
            rig.answer(producer_id_refused(error), turns=2)
        assert rig.client.in_flight_request_count() == 0  # not before the backoff
        rig.turn_after(RETRY_BACKOFF_MS)
        rig.answer(producer_id_given())
        assert rig.idempotence.has_producer_id, error


@pytest.mark.behaviour("IDM-01")
@pytest.mark.java("SenderTest.ClusterAuthorizationExceptionInInitProducerIdRequest")
def test_a_refusal_fails_what_waits_and_the_next_record_asks_again() -> None:
    rig = waiting_rig()
    future = rig.send()
    rig.answer(producer_id_refused(Errors.CLUSTER_AUTHORIZATION_FAILED))
    assert not rig.idempotence.has_producer_id
    assert isinstance(rig.idempotence.last_error, ClusterAuthorizationError)
    rig.turn()
    assert isinstance(future.exception(0), ClusterAuthorizationError)
    rig.turn_after(10 * RETRY_BACKOFF_MS, 3)
    assert rig.client.in_flight_request_count() == 0  # there are no records, so no request is sent
    second = rig.send()
    rig.answer(producer_id_given(), turns=2)
    assert not rig.idempotence.has_fatal_error
    assert rig.idempotence.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 0)
    rig.answer(produced(ORDERS_0, offset=0))
    assert second.result(0).offset == 0


@pytest.mark.java(
    "TransactionManagerTest.FailIfNotReadyForSendIdempotentProducerFatalError",
    "SenderTest.UnsupportedVersionInProduceRequest",
)
def test_a_broker_that_is_too_old_for_an_id_or_for_a_batch_fails_everything_from_now_on() -> None:
    """Java's `send` itself raises then; ours fails the record in the next turn, with the same error."""
    for rig in (waiting_rig(), SenderRig(idempotent=True)):
        future = rig.append()
        rig.client.prepare_unsupported_version_response()
        rig.turn(2)
        assert isinstance(future.exception(0), UnsupportedVersionError)
        assert rig.idempotence.state is State.FATAL_ERROR
        assert rig.idempotence.has_fatal_error
        later = rig.send()
        assert isinstance(later.exception(0), UnsupportedVersionError)


@pytest.mark.behaviour("ACC-11")
def test_batches_expire_while_there_is_no_producer_id() -> None:
    rig = waiting_rig()
    rig.client.set_unreachable(rig.node, 10 * DELIVERY_TIMEOUT_MS)
    future = rig.send()
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert isinstance(future.exception(0), TimeoutError)


@pytest.mark.behaviour("SND-14")
@pytest.mark.java(
    "SenderTest.ClusterAuthorizationExceptionInProduceRequest",
    "SenderTest.CancelInFlightRequestAfterFatalError",
)
def test_cluster_authorization_in_a_produce_answer_is_fatal_and_ends_what_is_in_flight() -> None:
    rig = SenderRig(idempotent=True)
    first, second = rig.send(0), rig.send(1)
    rig.answer(produced(ORDERS_0, error=Errors.CLUSTER_AUTHORIZATION_FAILED))
    assert rig.idempotence.has_fatal_error
    assert isinstance(first.exception(0), ClusterAuthorizationError)
    rig.turn()
    assert isinstance(second.exception(0), ClusterAuthorizationError)
    third = rig.send(0)
    assert isinstance(third.exception(0), ClusterAuthorizationError)
    assert rig.pool.available_bytes < rig.pool.total_bytes, "not before its request is answered"
    rig.answer(produced(ORDERS_1, offset=0))
    assert rig.pool.available_bytes == rig.pool.total_bytes


def test_who_restarts_goes_on_with_another_id_after_what_ends_others() -> None:
    """A false answer about versions, or a right that was missing for a moment, once ended the producer."""
    rig = SenderRig(idempotent=True, restarts=True)
    ended = [rig.send(0), rig.send(1)]
    rig.answer(produced(ORDERS_0, error=Errors.CLUSTER_AUTHORIZATION_FAILED), turns=2)
    assert [type(future.exception(0)) for future in ended] == [ClusterAuthorizationError] * 2
    assert not rig.idempotence.has_fatal_error
    rig.answer(produced(ORDERS_1, offset=0))  # to a batch that was given up
    assert rig.pool.available_bytes == rig.pool.total_bytes
    third = rig.append(0)
    rig.turn_after(2 * RETRY_BACKOFF_MS)
    rig.answer(producer_id_given(2_000), turns=2)
    rig.answer(produced(ORDERS_0, offset=5))
    assert third.result(0).offset == 5


@pytest.mark.behaviour("IDM-01")
@pytest.mark.java("SenderTest.SenderShouldRetryWithBackoffOnRetriableError")
def test_an_id_that_is_not_to_be_had_yet_is_asked_for_after_each_backoff() -> None:
    rig = waiting_rig()
    sleeps = SleepRecorder(rig)
    not_yet = producer_id_refused(Errors.COORDINATOR_LOAD_IN_PROGRESS)
    for answer in (not_yet, not_yet, producer_id_given()):
        assert not rig.idempotence.has_producer_id
        rig.client.prepare_response(answer)
        rig.turn()
        assert rig.client.awaiting_responses == 0, "it was not asked for"
        rig.turn()
        if not rig.idempotence.has_producer_id:
            assert sleeps.last_ms() == RETRY_BACKOFF_MS
            rig.clock.advance(RETRY_BACKOFF_MS)
    assert rig.idempotence.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 0)


@pytest.mark.behaviour("IDM-01")
@pytest.mark.java("SenderTest.NodeNotReady")
def test_a_node_that_is_not_ready_for_longer_than_a_request_may_take_is_waited_for() -> None:
    for is_throttled in (True, False):
        rig = waiting_rig()
        if is_throttled:
            rig.client.ready(rig.node, rig.clock.now_ms())
            rig.client.throttle(rig.node, REQUEST_TIMEOUT_MS + 20)
        else:
            rig.client.delay_ready(rig.node, REQUEST_TIMEOUT_MS + 20)
        rig.client.prepare_response(producer_id_given())
        for _ in range(2):
            rig.turn()
            assert not rig.idempotence.has_producer_id
            rig.clock.advance(REQUEST_TIMEOUT_MS // 2)
        rig.turn_after(20, 2)
        assert rig.idempotence.producer_id == PRODUCER_ID


@pytest.mark.behaviour("IDM-01")
def test_while_a_node_does_not_answer_another_one_is_asked_once_and_the_first_answer_counts() -> None:
    rig = waiting_rig()
    for after_ms, in_flight in ((0, 1), (999, 1), (1, 2), (2_000, 2)):
        rig.turn_after(after_ms)
        assert rig.client.in_flight_request_count() == in_flight, after_ms
    silent, answering = rig.client.requests
    rig.client.respond_to_request(answering, producer_id_given())
    rig.turn()
    assert rig.idempotence.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 0)
    rig.client.respond_to_request(silent, producer_id_given(PRODUCER_ID + 1))
    rig.turn()
    assert rig.idempotence.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 0)


@pytest.mark.behaviour("ACC-11")
def test_while_no_node_answers_about_an_id_it_sleeps_until_a_batch_expires() -> None:
    rig = waiting_rig()
    sleeps = SleepRecorder(rig)
    future = rig.send()
    rig.turn_after(1_000)  # the other node is asked, and nothing else is due
    assert rig.client.in_flight_request_count() == 2
    assert sleeps.last_ms() == DELIVERY_TIMEOUT_MS - 1_000
    rig.turn_after(sleeps.last_ms())
    assert isinstance(future.exception(0), TimeoutError)


class OneAtATime(MockClient):
    """A client whose one node takes one request at a time, and which has no other node to ask."""

    def least_loaded_node(self, now_ms: int, avoid: int | None = None) -> LeastLoadedNode:
        return LeastLoadedNode(None, True) if self.requests else super().least_loaded_node(now_ms)


@pytest.mark.behaviour("IDM-01")
def test_no_address_of_bootstrap_servers_is_asked_for_an_id() -> None:
    """The client leaves it when brokers are known, and would have no connection to any of them."""
    rig = waiting_rig()
    rig.metadata.bootstrap([("localhost", 9092)])
    rig.turn(3)  # one of them brings metadata
    assert [request.destination for request in rig.client.requests] == [rig.node.id]


@pytest.mark.behaviour("IDM-01")
@pytest.mark.java("SenderTest.IdempotentInitProducerIdWithMaxInFlightOne")
def test_an_id_is_asked_for_when_the_only_node_has_answered_about_metadata() -> None:
    rig = SenderRig(idempotent=True, has_producer_id=False, client_type=OneAtATime)
    now_ms = rig.clock.now_ms()
    assert rig.client.ready(rig.node, now_ms)
    asked = rig.metadata.new_metadata_request_and_version(now_ms)
    about_metadata = rig.client.new_client_request(0, asked.builder, now_ms, expect_response=True)
    rig.client.send(about_metadata, now_ms)
    rig.turn(2)
    assert list(rig.client.requests) == [about_metadata]
    rig.answer(object(), turns=2)
    assert [request.builder.api.name for request in rig.client.requests] == ["InitProducerId"]
    rig.answer(producer_id_given())
    assert rig.idempotence.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 0)


@pytest.mark.behaviour("IDM-01")
def test_after_a_refusal_nothing_is_waited_for_that_had_a_sequence_of_an_earlier_id() -> None:
    rig = SenderRig(idempotent=True, producer_epoch=2**15 - 1, retry_backoff_ms=0)
    first, other = rig.append(0), rig.append(1)
    rig.turn()
    rig.answer(
        together(
            produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER),
            produced(ORDERS_1, error=Errors.NOT_ENOUGH_REPLICAS),
        )
    )
    rig.client.prepare_response(producer_id_refused(Errors.CLUSTER_AUTHORIZATION_FAILED))
    rig.turn(2)  # the last epoch is used up, and a new id is not given
    assert isinstance(first.exception(0), ClusterAuthorizationError)
    assert isinstance(other.exception(0), ClusterAuthorizationError)
    rig.clock.advance(RETRY_BACKOFF_MS)
    later = [rig.append(0), rig.append(1)]
    rig.client.prepare_response(producer_id_given(PRODUCER_ID + 1))
    rig.turn(3)
    rig.answer(together(produced(ORDERS_0, offset=0), produced(ORDERS_1, offset=0)))
    assert [future.result(0).offset for future in later] == [0, 0]


class NeverReady(MockClient):
    """A client whose node can't be sent to, and could be tried again at once."""

    def ready(self, node: Node, now_ms: int) -> bool:
        return False

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return 0


@pytest.mark.behaviour("IDM-01")
def test_while_the_node_to_ask_takes_nothing_it_sleeps_as_long_as_that_or_for_the_retry_backoff() -> None:
    connecting, throttled = waiting_rig(), waiting_rig()
    connecting.client.delay_ready(connecting.node, 1_000)
    throttled.client.ready(throttled.node, throttled.clock.now_ms())
    throttled.client.throttle(throttled.node, RETRY_BACKOFF_MS - 20)
    never_ready = SenderRig(idempotent=True, has_producer_id=False, client_type=NeverReady)
    slept = []
    for rig in (connecting, throttled, never_ready):
        sleeps = SleepRecorder(rig)
        rig.turn()
        slept.append(sleeps.last_ms())
    assert slept == [RETRY_BACKOFF_MS, RETRY_BACKOFF_MS - 20, 1]
