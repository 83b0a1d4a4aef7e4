"""Sender's sequences, answer by answer: several batches in flight, gaps, new epochs. Twins of SenderTest.

As Java tests it, but that the first batch of a partition goes alone: see sequence_rig.py.
"""

from __future__ import annotations

import pytest

from client_core.error_codes import Errors
from tests.producer.sequence_rig import (
    LAST_EPOCH,
    acknowledged_rig,
    answer,
    epoch_of,
    in_flight,
    new_rig,
    queued,
    send,
    send_and_acknowledge,
    state_of,
)
from tests.support.sender_rig import (
    ORDERS_0,
    ORDERS_1,
    PRODUCER_ID,
    SenderRig,
    produced,
    producer_id_given,
    together,
)

# -- several in flight ---------------------------------------------------------------------------------------


@pytest.mark.behaviour("IDM-02")
@pytest.mark.java("SenderTest.SequenceNumberIncrement")
def test_a_record_takes_one_sequence() -> None:
    rig = new_rig(guarantee_message_order=True, retries=10)
    future = send(rig)
    (batch,) = rig.sent()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (PRODUCER_ID, 0, 0)
    answer(rig, 0, offset=0)
    assert future.done()
    assert state_of(rig) == (0, 1, 0)


@pytest.mark.behaviour("IDM-02")
@pytest.mark.java("SenderTest.IdempotenceWithMultipleInflights")
def test_two_batches_in_flight_are_acknowledged_one_after_the_other() -> None:
    rig = acknowledged_rig()
    first = send(rig)
    assert (in_flight(rig), state_of(rig)) == (1, (0, 2, 0))
    second = send(rig)
    assert (in_flight(rig), state_of(rig)) == (2, (0, 3, 0))
    answer(rig, 1, offset=1)
    assert (in_flight(rig), state_of(rig)) == (1, (0, 3, 1))
    assert (first.result(0).offset, second.done()) == (1, False)
    answer(rig, 2, offset=2)
    assert (in_flight(rig), state_of(rig)) == (0, (0, 3, 2))
    assert second.result(0).offset == 2
    assert rig.sender.in_flight_batches == 0


@pytest.mark.behaviour("IDM-03")
@pytest.mark.java("SenderTest.IdempotenceWithMultipleInflightsRetriedInOrder")
def test_what_was_in_flight_together_is_retried_one_by_one_and_then_the_next_goes() -> None:
    rig = acknowledged_rig()
    first, second, third = send(rig), send(rig), send(rig)
    assert (in_flight(rig), state_of(rig)) == (3, (0, 4, 0))
    answer(rig, 1, error=Errors.LEADER_NOT_AVAILABLE)
    fourth = rig.append()
    assert in_flight(rig) == 2
    answer(rig, 2, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)  # the turn sends the first again
    answer(rig, 3, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
    rig.turn()
    assert (in_flight(rig), state_of(rig)) == (1, (0, 4, 0)), "the fourth must wait"
    for sequence, future in ((1, first), (2, second), (3, third)):
        answer(rig, sequence, offset=sequence)
        assert future.result(0).offset == sequence
        assert state_of(rig)[2] == sequence
        rig.turn()
        assert (in_flight(rig), rig.sender.in_flight_batches) == (1, 1)
    answer(rig, 4, offset=4)
    assert fourth.result(0).offset == 4


@pytest.mark.behaviour("IDM-03")
@pytest.mark.java("SenderTest.CorrectHandlingOfOutOfOrderResponses")
def test_answers_out_of_order_are_put_in_order_again() -> None:
    rig = acknowledged_rig()
    first, second = send(rig), send(rig)
    to_first, to_second = rig.client.requests
    rig.client.respond_to_request(to_second, produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER))
    rig.turn()
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([2], 1, (0, 3, 0))
    rig.client.respond_to_request(to_first, produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER))
    rig.turn()
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([1, 2], 0, (0, 3, 0))
    assert not first.done()
    assert not second.done()
    rig.turn(2)
    assert in_flight(rig) == 1, "one at a time while there are retries"
    answer(rig, 1, offset=1)
    assert (in_flight(rig), state_of(rig), first.result(0).offset) == (0, (0, 3, 1), 1)
    rig.turn()
    answer(rig, 2, offset=2)
    assert (in_flight(rig), state_of(rig), second.result(0).offset) == (0, (0, 3, 2), 2)


@pytest.mark.behaviour("IDM-03")
@pytest.mark.java("SenderTest.CorrectHandlingOfOutOfOrderResponsesWhenSecondSucceeds")
def test_a_retry_behind_a_success_does_not_set_the_acknowledged_sequence_back() -> None:
    rig = acknowledged_rig()
    first, second = send(rig), send(rig)
    to_first, to_second = rig.client.requests
    rig.client.respond_to_request(to_second, produced(ORDERS_0, offset=2))
    rig.turn()
    assert (first.done(), second.result(0).offset) == (False, 2)
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([], 1, (0, 3, 2))
    rig.client.respond_to_request(to_first, produced(ORDERS_0, error=Errors.REQUEST_TIMED_OUT))
    rig.turn()
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([1], 0, (0, 3, 2))
    rig.turn()
    assert in_flight(rig) == 1
    answer(rig, 1, offset=1)
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([], 0, (0, 3, 2))
    assert first.result(0).offset == 1


@pytest.mark.behaviour("SND-11", "IDM-02")
@pytest.mark.java("SenderTest.CorrectHandlingOfDuplicateSequenceError")
def test_a_duplicate_behind_a_success_leaves_what_is_acknowledged() -> None:
    rig = acknowledged_rig()
    first, _ = send(rig), send(rig)
    to_first, to_second = rig.client.requests
    rig.client.respond_to_request(to_second, produced(ORDERS_0, offset=1_000))
    rig.turn()
    assert state_of(rig) == (0, 3, 2)
    rig.client.respond_to_request(to_first, produced(ORDERS_0, error=Errors.DUPLICATE_SEQUENCE_NUMBER))
    rig.turn()
    assert state_of(rig) == (0, 3, 2)
    assert rig.idempotence._entry(ORDERS_0).last_acked_offset == 1_000
    assert in_flight(rig) == 0
    assert first.result(0).offset is None


# -- gaps and epochs -----------------------------------------------------------------------------------------


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("SenderTest.BumpEpochWhenOutOfOrderSequenceReceived")
def test_out_of_order_for_the_first_batch_begins_a_new_epoch() -> None:
    rig = new_rig(guarantee_message_order=True, retries=10)
    future = send(rig)
    answer(rig, 0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
    rig.turn()
    assert (future.done(), rig.sender.in_flight_batches, epoch_of(rig)) == (False, 1, 1)


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("SenderTest.EpochBumpOnOutOfOrderSequenceForNextBatch")
def test_out_of_order_right_behind_what_is_acknowledged_begins_a_new_epoch() -> None:
    rig = new_rig()
    send(rig, records=2)
    assert state_of(rig) == (0, 2, None)
    answer(rig, 0, offset=0)
    future = send(rig)
    assert (in_flight(rig), state_of(rig), future.done()) == (1, (0, 3, 1), False)
    answer(rig, 2, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
    rig.turn()
    assert epoch_of(rig) == 1
    assert rig.idempotence.sequence_number(ORDERS_0) == 1
    assert rig.idempotence.first_in_flight_sequence(ORDERS_0) == 0


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java("SenderTest.EpochBumpOnOutOfOrderSequenceForNextBatchWhenThereIsNoBatchInFlight")
def test_a_partition_with_nothing_in_flight_begins_the_new_epoch_with_its_next_batch() -> None:
    rig = new_rig()
    for partition in (ORDERS_0, ORDERS_1):
        send_and_acknowledge(rig, partition, offset=0)
        assert state_of(rig, partition) == (0, 1, 0)
    send(rig)
    assert state_of(rig) == (0, 2, 0)
    answer(rig, 1, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, epoch=0)
    rig.turn()
    assert epoch_of(rig) == 1
    assert state_of(rig) == (1, 1, None)
    assert state_of(rig, ORDERS_1) == (0, 1, 0)
    assert rig.idempotence.has_stale_producer_id_and_epoch(ORDERS_1)
    answer(rig, 0, offset=1, epoch=1)
    assert state_of(rig) == (1, 1, 0)
    send(rig, partition=1)
    assert state_of(rig, ORDERS_1) == (1, 1, None)
    assert not rig.idempotence.has_stale_producer_id_and_epoch(ORDERS_1)
    answer(rig, 0, ORDERS_1, offset=1, epoch=1)
    assert state_of(rig, ORDERS_1) == (1, 1, 0)


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java("SenderTest.EpochBumpOnOutOfOrderSequenceForNextBatchWhenBatchInFlightFails")
def test_a_batch_that_fails_under_the_old_epoch_asks_for_no_newer_one() -> None:
    rig = new_rig(retries=1)
    for partition in (ORDERS_0, ORDERS_1):
        send_and_acknowledge(rig, partition, offset=0)
    send(rig)
    failing = send(rig, partition=1)
    assert state_of(rig, ORDERS_1) == (0, 2, 0)
    answer(rig, 1, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, epoch=0)
    rig.turn()
    assert (epoch_of(rig), state_of(rig)) == (1, (1, 1, None))
    assert state_of(rig, ORDERS_1) == (0, 2, 0)
    assert rig.idempotence.has_stale_producer_id_and_epoch(ORDERS_1)
    answer(rig, 1, ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER, epoch=0)
    rig.turn()
    assert state_of(rig, ORDERS_1) == (0, 2, 0)
    answer(rig, 0, offset=1, epoch=1)
    assert state_of(rig) == (1, 1, 0)
    answer(rig, 1, ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER, epoch=0)
    assert failing.done()
    assert state_of(rig, ORDERS_1) == (0, 2, 0)
    assert rig.idempotence.has_stale_producer_id_and_epoch(ORDERS_1)
    send(rig, partition=1)
    assert state_of(rig, ORDERS_1) == (1, 1, None)
    assert not rig.idempotence.has_stale_producer_id_and_epoch(ORDERS_1)
    answer(rig, 0, ORDERS_1, offset=0, epoch=1)
    assert state_of(rig, ORDERS_1) == (1, 1, 0)
    send(rig)
    assert state_of(rig) == (1, 2, 0)
    answer(rig, 1, offset=0, epoch=1)
    assert state_of(rig) == (1, 2, 1)


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("SenderTest.BatchesDrainedWithOldProducerIdShouldSucceedOnSubsequentRetry")
def test_a_batch_under_the_old_epoch_is_retried_until_it_succeeds() -> None:
    rig = new_rig(guarantee_message_order=True, retries=10)
    out_of_order, healthy = rig.append(0), rig.append(1)
    rig.turn()
    refuse_both(rig)
    assert not out_of_order.done()
    rig.turn()
    assert epoch_of(rig) == 1
    for error in (Errors.NOT_LEADER_OR_FOLLOWER, Errors.NONE):
        assert not healthy.done()
        rig.answer(produced(ORDERS_1, error=error, offset=0), turns=2)
    assert healthy.result(0).offset == 0
    assert rig.idempotence.sequence_number(ORDERS_1) == 1


def refuse_both(rig: SenderRig) -> None:
    """Partition 0 is out of order, partition 1 has another leader; both were in one request."""
    assert in_flight(rig) == 1
    rig.answer(
        together(
            produced(ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER),
            produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER),
        )
    )


# -- the last epoch ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("SenderTest.ResetOfProducerStateShouldAllowQueuedBatchesToDrain")
def test_what_is_queued_goes_on_under_a_new_id_after_the_last_epoch() -> None:
    rig = new_rig(guarantee_message_order=True, retries=10, epoch=LAST_EPOCH)
    rig.append(0)
    healthy = rig.send(1)
    refuse_both(rig)
    rig.client.prepare_response(producer_id_given(PRODUCER_ID + 1))
    rig.turn(2)
    assert rig.idempotence.producer_id == PRODUCER_ID + 1
    assert not healthy.done()
    rig.answer(produced(ORDERS_1, offset=10))
    assert healthy.result(0).offset == 10
    assert rig.idempotence.sequence_number(ORDERS_1) == 1


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("SenderTest.RetryWhenProducerIdChanges")
def test_a_batch_is_retried_under_the_new_id() -> None:
    rig = new_rig(guarantee_message_order=True, retries=10, epoch=LAST_EPOCH)
    future = send(rig)
    answer(rig, 0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, epoch=LAST_EPOCH)
    rig.client.prepare_response(producer_id_given(PRODUCER_ID + 1))
    rig.turn(2)
    assert in_flight(rig) == 1
    (batch,) = rig.sent()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (PRODUCER_ID + 1, 0, 0)
    assert not future.done()
    assert rig.idempotence.sequence_number(ORDERS_0) == 1
