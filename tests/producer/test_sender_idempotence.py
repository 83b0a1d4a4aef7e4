"""Sender with idempotence: the producer id first, sequences in order, no gap that stays.

Twins of SenderTest's idempotence cases.
"""

from __future__ import annotations

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    ClusterAuthorizationError,
    RecordTooLargeError,
    TimeoutError,
    UnsupportedVersionError,
)
from client_core.producer.transaction_manager import State
from tests.support.metadata_responses import metadata_response
from tests.support.sender_rig import (
    DELIVERY_TIMEOUT_MS,
    ORDERS_0,
    PRODUCER_ID,
    RETRY_BACKOFF_MS,
    SenderRig,
    produced,
    producer_id_given,
    producer_id_refused,
)


def waiting_rig() -> SenderRig:
    """A sender that has no producer id yet."""
    return SenderRig(idempotent=True, has_producer_id=False)


# -- the producer id -----------------------------------------------------------------------------------------


def test_a_producer_id_is_asked_for_before_anything_is_drained() -> None:  # testInitProducerIdRequest
    rig = waiting_rig()
    rig.append()
    rig.turn(3)
    assert [request.builder.api.name for request in rig.client.requests] == ["InitProducerId"]
    assert rig.accumulator.has_undrained
    rig.respond(producer_id_given())
    rig.turn()
    assert rig.idempotence.producer_id == PRODUCER_ID
    rig.turn()
    assert rig.sent_sequence() == (0, 0)


def test_an_id_is_asked_for_even_when_nothing_is_to_be_sent() -> None:
    rig = waiting_rig()
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


@pytest.mark.parametrize("error", [Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE])
def test_a_cluster_that_has_just_started_is_asked_again(error: Errors) -> None:
    rig = waiting_rig()
    rig.turn()
    rig.respond(producer_id_refused(error))
    rig.turn(2)
    assert rig.client.in_flight_request_count() == 0  # not before the backoff
    rig.clock.advance(RETRY_BACKOFF_MS)
    rig.turn()
    rig.respond(producer_id_given())
    rig.turn()
    assert rig.idempotence.has_producer_id


def test_a_connection_lost_meanwhile_is_no_end() -> None:
    rig = waiting_rig()
    rig.turn()
    rig.client.disconnect(rig.node.id)
    rig.turn()
    rig.clock.advance(RETRY_BACKOFF_MS)
    rig.turn()
    rig.respond(producer_id_given())
    rig.turn()
    assert rig.idempotence.has_producer_id


def test_a_refusal_fails_what_waits_and_the_next_record_asks_again() -> None:
    # testClusterAuthorizationExceptionInInitProducerIdRequest (IDM-01)
    rig = waiting_rig()
    future = rig.append()
    rig.turn()
    rig.respond(producer_id_refused(Errors.CLUSTER_AUTHORIZATION_FAILED))
    rig.turn(2)
    assert isinstance(future.exception(0), ClusterAuthorizationError)
    rig.clock.advance(10 * RETRY_BACKOFF_MS)
    rig.turn(3)
    assert rig.client.in_flight_request_count() == 0  # nobody has records: nobody is asked in vain
    second = rig.append()
    rig.turn()
    rig.respond(producer_id_given())
    rig.turn(2)
    rig.respond(produced(ORDERS_0, offset=0))
    rig.turn()
    assert second.result(0).offset == 0


def test_a_broker_that_is_too_old_fails_everything_from_now_on() -> None:
    rig = waiting_rig()
    future = rig.append()
    rig.client.prepare_unsupported_version_response()
    rig.turn(2)
    assert isinstance(future.exception(0), UnsupportedVersionError)
    assert rig.idempotence.state is State.FATAL_ERROR
    later = rig.append()
    rig.turn()
    assert isinstance(later.exception(0), UnsupportedVersionError)


def test_batches_expire_while_there_is_no_producer_id() -> None:
    rig = waiting_rig()
    rig.client.set_unreachable(rig.node, 10 * DELIVERY_TIMEOUT_MS)
    future = rig.append()
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    assert isinstance(future.exception(0), TimeoutError)


def test_cluster_authorization_in_a_produce_answer_is_fatal_and_ends_what_is_in_flight() -> None:
    # testClusterAuthorizationExceptionInProduceRequest, testCancelInFlightRequestAfterFatalError
    rig = SenderRig(idempotent=True)
    first = rig.append(0)
    rig.turn()
    second = rig.append(1)
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.CLUSTER_AUTHORIZATION_FAILED))
    rig.turn()
    assert isinstance(first.exception(0), ClusterAuthorizationError)
    rig.turn()
    assert isinstance(second.exception(0), ClusterAuthorizationError)
    third = rig.append(0)
    rig.turn()
    assert isinstance(third.exception(0), ClusterAuthorizationError)


# -- sequences -----------------------------------------------------------------------------------------------


def rig_with_one_acknowledged() -> SenderRig:
    """A partition that has one record already: from then on several batches may be in flight to it."""
    rig = SenderRig(idempotent=True)
    rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, offset=0))
    rig.turn()
    assert rig.client.in_flight_request_count() == 0
    return rig


def test_the_first_batch_of_a_partition_goes_alone_and_then_five_at_a_time() -> None:
    rig = SenderRig(idempotent=True)
    for sent in (1, 1, 1):
        rig.append()
        rig.turn()
        assert len(rig.client.requests) == sent
    rig.respond(produced(ORDERS_0, offset=0))
    for _ in range(9):
        rig.append()
        rig.turn(2)
    assert rig.idempotence.first_in_flight_sequence(ORDERS_0) == 1
    assert len(rig.sender.in_flight_batches_of(ORDERS_0)) <= 5


def test_sequences_count_records_over_batches() -> None:  # testSequenceNumberIncrement
    rig = rig_with_one_acknowledged()
    rig.append(count=3)
    rig.turn()
    rig.append(count=2)
    rig.turn()
    assert [rig.sent_sequence(0), rig.sent_sequence(1)] == [(0, 1), (0, 4)]


def test_a_retry_keeps_its_sequence() -> None:  # IDM-02
    rig = SenderRig(idempotent=True)
    future = rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.turn()
    rig.back_off()
    rig.turn()
    assert rig.sent_sequence() == (0, 0)
    rig.respond(produced(ORDERS_0, offset=0))
    rig.turn()
    assert future.result(0).offset == 0


def test_several_in_flight_are_retried_one_by_one_in_order() -> None:
    # testIdempotenceWithMultipleInflights, testIdempotenceWithMultipleInflightsRetriedInOrder (IDM-03)
    rig = rig_with_one_acknowledged()
    futures = []
    for _ in range(3):
        futures.append(rig.append())
        rig.turn()
    for error in (
        Errors.LEADER_NOT_AVAILABLE,
        Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Errors.NOT_ENOUGH_REPLICAS,
    ):
        rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
        rig.respond(produced(ORDERS_0, error=error))
    rig.turn()
    rig.back_off()
    for offset in range(3):
        rig.turn(2)
        assert rig.client.in_flight_request_count() == 1
        assert rig.sent_sequence() == (0, 1 + offset)
        rig.respond(produced(ORDERS_0, offset=offset))
        rig.turn()
    assert [future.result(0).offset for future in futures] == [0, 1, 2]


def test_answers_out_of_order_end_in_the_right_order() -> None:  # testCorrectHandlingOfOutOfOrderResponses
    rig = rig_with_one_acknowledged()
    first = rig.append()
    rig.turn()
    second = rig.append()
    rig.turn()
    to_first, to_second = rig.client.requests
    rig.client.respond_to_request(to_second, produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER))
    rig.turn()
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.client.respond_to_request(to_first, produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER))
    rig.turn()
    assert [batch.base_sequence for batch in rig.accumulator.batches_of(ORDERS_0)] == [1, 2]
    rig.back_off()
    for offset in range(2):
        rig.turn(2)
        assert rig.sent_sequence() == (0, 1 + offset)
        rig.respond(produced(ORDERS_0, offset=offset))
        rig.turn()
    assert [first.result(0).offset, second.result(0).offset] == [0, 1]


def test_a_duplicate_keeps_the_sequence_going() -> None:  # testCorrectHandlingOfDuplicateSequenceError
    rig = rig_with_one_acknowledged()
    first = rig.append()
    rig.turn()
    second = rig.append()
    rig.turn()
    to_first, to_second = rig.client.requests
    rig.client.respond_to_request(to_second, produced(ORDERS_0, offset=1_000))
    rig.turn()
    rig.client.respond_to_request(to_first, produced(ORDERS_0, error=Errors.DUPLICATE_SEQUENCE_NUMBER))
    rig.turn()
    assert (first.result(0).offset, second.result(0).offset) == (None, 1_000)
    assert rig.idempotence.sequence_number(ORDERS_0) == 3
    assert not rig.idempotence.has_in_flight_batches(ORDERS_0)


def test_a_batch_that_the_broker_refuses_bumps_the_epoch_and_the_next_begins_at_zero() -> None:
    # testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted
    rig = rig_with_one_acknowledged()
    first = rig.append()
    rig.turn()
    second = rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
    rig.turn()
    assert isinstance(first.exception(0), RecordTooLargeError)
    rig.respond(produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER))
    rig.turn()
    rig.back_off()
    rig.turn(2)
    assert rig.sent_sequence() == (1, 0)
    rig.respond(produced(ORDERS_0, offset=0))
    rig.turn()
    assert second.result(0).offset == 0


def test_a_real_gap_bumps_the_epoch() -> None:  # testEpochBumpOnOutOfOrderSequenceForNextBatch
    rig = SenderRig(idempotent=True)
    rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, offset=0))
    rig.turn()
    future = rig.append(count=2)
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER))
    rig.turn()
    rig.back_off()
    rig.turn(2)
    assert rig.sent_sequence() == (1, 0)
    rig.respond(produced(ORDERS_0, offset=1))
    rig.turn()
    assert future.result(0).offset == 2


def test_a_batch_that_expired_unsent_leaves_no_trace() -> None:
    # testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences
    rig = SenderRig(idempotent=True)
    rig.client.set_unreachable(rig.node, DELIVERY_TIMEOUT_MS)
    future = rig.append()
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    assert isinstance(future.exception(0), TimeoutError)
    assert not rig.idempotence.has_unresolved_sequence(ORDERS_0)
    rig.append()
    rig.clock.advance(RETRY_BACKOFF_MS * 2)
    rig.turn(2)
    assert rig.sent_sequence() == (0, 0)


def expire_first_of_two(rig: SenderRig) -> tuple[object, object]:
    """Two batches were sent, each failed once; the first has expired, the second is not yet sent again."""
    first = rig.append()
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS - 2 * RETRY_BACKOFF_MS)
    second = rig.append()
    rig.turn()
    for _ in range(2):
        rig.respond(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.turn()
    rig.client.set_unreachable(rig.node, 2 * RETRY_BACKOFF_MS)
    rig.clock.advance(2 * RETRY_BACKOFF_MS)
    rig.turn()
    assert isinstance(first.exception(0), TimeoutError)
    assert rig.idempotence.has_unresolved_sequence(ORDERS_0)
    return first, second


def test_a_success_behind_an_expired_batch_resolves_its_sequence() -> None:
    # testExpiryOfFirstBatchShouldNotCauseUnresolvedSequencesIfFutureBatchesSucceed
    rig = rig_with_one_acknowledged()
    expire_first_of_two(rig)
    rig.clock.advance(RETRY_BACKOFF_MS * 3)
    rig.turn(2)
    assert rig.sent_sequence() == (0, 2)
    rig.respond(produced(ORDERS_0, offset=1))
    rig.turn(2)
    assert not rig.idempotence.has_unresolved_sequence(ORDERS_0)
    rig.append()
    rig.turn()
    assert rig.sent_sequence() == (0, 3)


def test_a_failure_behind_an_expired_batch_bumps_the_epoch() -> None:
    # testExpiryOfFirstBatchShouldCauseEpochBumpIfFutureBatchesFail
    rig = rig_with_one_acknowledged()
    expire_first_of_two(rig)
    rig.clock.advance(RETRY_BACKOFF_MS * 3)
    rig.turn(2)
    rig.respond(produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER))
    rig.turn()
    rig.back_off()
    rig.turn(2)
    assert rig.sent_sequence() == (1, 0)


def test_nothing_new_goes_to_a_partition_while_an_expired_batch_is_unresolved() -> None:  # IDM-05
    rig = rig_with_one_acknowledged()
    expire_first_of_two(rig)
    rig.append(value=b"new")
    rig.clock.advance(RETRY_BACKOFF_MS * 3)
    rig.turn(3)
    assert rig.client.in_flight_request_count() == 1
    assert rig.sent_sequence() == (0, 2)


def test_when_all_that_was_sent_expired_the_partition_begins_anew() -> None:
    # testExpiryOfAllSentBatchesShouldCauseUnresolvedSequences, and of a first attempt that was never answered
    rig = SenderRig(idempotent=True)
    future = rig.append(count=2)
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    assert isinstance(future.exception(0), TimeoutError)
    rig.append()
    rig.turn(2)
    assert rig.sent_sequence() == (1, 0)


def test_a_batch_that_was_split_keeps_its_place_in_the_sequence() -> None:  # testIdempotentSplitBatchAndSend
    rig = SenderRig(idempotent=True, batch_bytes=4_096)
    futures = [rig.append(value=b"x" * 1_000) for _ in range(3)]
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
    sequences = []
    for _ in range(20):
        rig.turn()
        if rig.client.requests:
            (batch,) = rig.sent(0)
            if batch.record_count > 1:
                rig.respond(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
            else:
                sequences.append((batch.producer_epoch, batch.base_sequence))
                rig.respond(produced(ORDERS_0, offset=len(sequences) - 1))
    assert sequences == [(0, 0), (0, 1), (0, 2)]
    assert [future.result(0).offset for future in futures] == [0, 1, 2]


def test_it_does_not_spin_while_a_retry_waits_for_its_turn_in_the_sequence() -> None:
    rig = rig_with_one_acknowledged()
    timeouts_ms: list[int] = []
    poll = rig.client.poll

    def record(timeout_ms: int, now_ms: int) -> object:
        timeouts_ms.append(timeout_ms)
        return poll(timeout_ms, now_ms)

    rig.client.poll = record  # type: ignore[method-assign, assignment]
    rig.append()
    rig.turn()
    rig.append()
    rig.turn()
    _, to_second = rig.client.requests
    rig.client.respond_to_request(to_second, produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.turn()
    rig.back_off()
    rig.turn(2)  # the second may not go before the first is answered
    assert timeouts_ms[-1] == RETRY_BACKOFF_MS
