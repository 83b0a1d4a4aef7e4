"""Sender where nobody knows what became of a batch: a forgotten producer, and batches that expired.

Twins of SenderTest, but that the first batch of a partition goes alone: see sequence_rig.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.error_codes import Errors
from client_core.errors import TimeoutError
from client_core.producer.accumulator.producer_batch import ProducerIdAndEpoch
from tests.producer.sequence_rig import (
    acknowledged_rig,
    answer,
    epoch_of,
    in_flight,
    new_rig,
    queued,
    send,
    state_of,
)
from tests.support.sender_rig import ORDERS_0, PRODUCER_ID, SenderRig, produced

if TYPE_CHECKING:
    from client_core.producer.results.future_record_metadata import FutureRecordMetadata

# -- a broker that forgot the producer -----------------------------------------------------------------------


def second_sent(*, records: int) -> tuple[SenderRig, FutureRecordMetadata]:
    """One record is acknowledged at offset 1000; the next batch is on its way."""
    rig = new_rig()
    send(rig)
    answer(rig, 0, offset=1_000, log_start=10)
    assert state_of(rig) == (0, 1, 0)
    assert rig.idempotence._entry(ORDERS_0).last_acked_offset == 1_000
    future = send(rig, records=records)
    assert state_of(rig) == (0, 1 + records, 0)
    return rig, future


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("SenderTest.IdempotentUnknownProducerHandlingWhenRetentionLimitReached")
def test_a_producer_forgotten_by_retention_begins_a_new_epoch() -> None:
    rig, future = second_sent(records=2)
    answer(rig, 1, error=Errors.UNKNOWN_PRODUCER_ID, log_start=1_010)
    rig.turn()
    assert state_of(rig) == (1, 2, None)
    assert (future.done(), in_flight(rig), epoch_of(rig)) == (False, 1, 1)
    answer(rig, 0, offset=1_011, log_start=1_010)
    assert (state_of(rig), in_flight(rig)) == ((1, 2, 1), 0)
    assert future.result(0).offset == 1_012
    assert rig.idempotence._entry(ORDERS_0).last_acked_offset == 1_012


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("SenderTest.UnknownProducerErrorShouldBeRetriedWhenLogStartOffsetIsUnknown")
def test_a_forgotten_producer_keeps_its_sequences_while_the_logs_start_is_unknown() -> None:
    rig, future = second_sent(records=1)
    answer(rig, 1, error=Errors.UNKNOWN_PRODUCER_ID)
    assert state_of(rig) == (0, 2, 0)
    assert (future.done(), in_flight(rig)) == (False, 0)
    rig.turn()
    answer(rig, 1, offset=1_011, log_start=1_010)
    assert (state_of(rig), in_flight(rig)) == ((0, 2, 1), 0)
    assert future.result(0).offset == 1_011
    assert rig.idempotence._entry(ORDERS_0).last_acked_offset == 1_011


@pytest.mark.behaviour("IDM-03", "IDM-04")
@pytest.mark.java("SenderTest.UnknownProducerErrorShouldBeRetriedForFutureBatchesWhenFirstFails")
def test_a_batch_behind_one_of_a_forgotten_producer_is_retried_behind_it() -> None:
    rig, second = second_sent(records=1)
    third = send(rig)
    assert (state_of(rig), in_flight(rig)) == ((0, 3, 0), 2)
    answer(rig, 1, error=Errors.UNKNOWN_PRODUCER_ID, log_start=1_010)
    rig.turn()
    assert (state_of(rig), in_flight(rig), epoch_of(rig)) == ((1, 2, None), 2, 1)
    answer(rig, 2, error=Errors.UNKNOWN_PRODUCER_ID, log_start=1_010, epoch=0)  # it was sent so
    assert (state_of(rig), in_flight(rig)) == ((1, 2, None), 1)
    answer(rig, 0, offset=1_011, log_start=1_010, epoch=1)
    assert (second.result(0).offset, third.done()) == (1_011, False)
    assert (state_of(rig), in_flight(rig)) == ((1, 2, 0), 0)
    rig.turn()
    answer(rig, 1, offset=1_012, log_start=1_010, epoch=1)
    assert (third.result(0).offset, in_flight(rig)) == (1_012, 0)
    assert rig.idempotence._entry(ORDERS_0).last_acked_offset == 1_012


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("SenderTest.ShouldRaiseOutOfOrderSequenceExceptionToUserIfLogWasNotTruncated")
def test_a_producer_forgotten_though_its_records_are_there_begins_a_new_epoch() -> None:
    rig, future = second_sent(records=1)
    answer(rig, 1, error=Errors.UNKNOWN_PRODUCER_ID, log_start=10)
    rig.turn()
    assert (epoch_of(rig), state_of(rig)[2], future.done()) == (1, None, False)


# -- batches that expire -------------------------------------------------------------------------------------


def first_of_two_expired(answered: Errors) -> tuple[SenderRig, FutureRecordMetadata]:
    """Two were in flight; the first was answered so and is too old now, the second lost its connection."""
    rig = acknowledged_rig()
    first = send(rig)
    rig.clock.advance(1_000)
    second = send(rig)
    assert (in_flight(rig), rig.sender.in_flight_batches) == (2, 2)
    rig.answer(produced(ORDERS_0, error=answered))
    assert rig.sender.in_flight_batches == 1
    rig.clock.advance(600)
    rig.client.disconnect(rig.node.id)
    rig.client.backoff(rig.node, 10)
    rig.turn()
    assert isinstance(first.exception(0), TimeoutError)
    assert rig.idempotence.has_unresolved_sequence(ORDERS_0)
    assert rig.sender.in_flight_batches == 0
    return rig, second


def unresolved(rig: SenderRig) -> bool:
    return rig.idempotence.has_unresolved_sequence(ORDERS_0)


@pytest.mark.behaviour("IDM-05")
@pytest.mark.java("SenderTest.ExpiryOfFirstBatchShouldNotCauseUnresolvedSequencesIfFutureBatchesSucceed")
def test_a_success_behind_an_expired_batch_lets_the_next_go() -> None:
    rig, second = first_of_two_expired(Errors.REQUEST_TIMED_OUT)
    third = rig.append()
    rig.turn_after(20)
    assert rig.sender.in_flight_batches == 1
    answer(rig, 2, offset=2)
    assert second.result(0).offset == 2
    assert (queued(rig), in_flight(rig)) == ([None], 0)
    assert rig.idempotence.sequence_number(ORDERS_0) == 3
    assert unresolved(rig)
    rig.turn()
    assert not unresolved(rig)
    assert (queued(rig), in_flight(rig), third.done()) == ([], 1, False)


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java("SenderTest.ExpiryOfFirstBatchShouldCauseEpochBumpIfFutureBatchesFail")
def test_a_gap_behind_an_expired_batch_begins_a_new_epoch() -> None:
    rig, second = first_of_two_expired(Errors.NOT_LEADER_OR_FOLLOWER)
    rig.append()
    rig.clock.advance(20)
    assert not second.done()
    rig.turn()
    answer(rig, 2, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert len(queued(rig)) == 2
    rig.turn()
    assert (epoch_of(rig), rig.idempotence.sequence_number(ORDERS_0), unresolved(rig)) == (1, 1, False)


@pytest.mark.behaviour("IDM-05")
@pytest.mark.java("SenderTest.UnresolvedSequencesAreNotFatal")
def test_not_to_know_what_became_of_a_batch_is_not_fatal() -> None:
    rig, _ = first_of_two_expired(Errors.NOT_LEADER_OR_FOLLOWER)
    rig.turn()
    assert not rig.idempotence.has_fatal_error
    assert rig.idempotence.has_producer_id


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java("SenderTest.ExpiryOfAllSentBatchesShouldCauseUnresolvedSequences")
def test_when_all_that_was_sent_is_too_old_a_new_epoch_resolves_it() -> None:
    rig = new_rig()
    future = send(rig)
    answer(rig, 0, error=Errors.NOT_LEADER_OR_FOLLOWER)
    assert rig.idempotence.sequence_number(ORDERS_0) == 1
    rig.clock.advance(15_000)
    rig.client.disconnect(rig.node.id)
    rig.client.backoff(rig.node, 10)
    rig.turn()
    assert isinstance(future.exception(0), TimeoutError)
    assert unresolved(rig)
    assert (in_flight(rig), queued(rig)) == (0, [])
    assert rig.idempotence.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 0)
    rig.turn()
    assert (epoch_of(rig), unresolved(rig)) == (1, False)


@pytest.mark.behaviour("IDM-04", "SND-14")
@pytest.mark.java("TransactionManagerTest.DuplicateSequenceAfterProducerReset")
def test_what_follows_a_batch_that_expired_on_its_second_attempt_begins_a_new_epoch() -> None:
    request_timeout_ms, rest_ms = 5_000, 2_500
    rig = SenderRig(idempotent=True, retry_backoff_ms=0, delivery_timeout_ms=request_timeout_ms + rest_ms)
    first = send(rig)
    assert rig.idempotence.sequence_number(ORDERS_0) == 1
    rig.clock.advance(request_timeout_ms)
    for expected in (0, 1):  # it times out, and is sent again
        rig.turn()
        assert in_flight(rig) == expected
        assert rig.idempotence.has_in_flight_batches(ORDERS_0)
        assert rig.idempotence.sequence_number(ORDERS_0) == 1
    rig.turn_after(rest_ms)
    assert "Expiring 1 record(s) for orders-0" in str(first.exception(0))
    assert in_flight(rig) == 1, "the request is still on its way"
    rig.turn()
    assert (epoch_of(rig), rig.idempotence.sequence_number(ORDERS_0)) == (1, 0)
    second = rig.send(turns=2)
    assert rig.idempotence.first_in_flight_sequence(ORDERS_0) == 0
    assert rig.idempotence.sequence_number(ORDERS_0) == 1
    rig.turn_after(rest_ms)  # the first one's request times out, and takes the second with it
    assert rig.idempotence.has_in_flight_batches(ORDERS_0)
    assert not second.done()
