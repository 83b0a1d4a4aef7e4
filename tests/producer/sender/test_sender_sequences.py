"""Sender with idempotence: several batches in flight, gaps, new epochs, and batches that nobody knows of.

Twins of SenderTest, but that the first batch of a partition goes alone: see sequence_rig.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client_core.error_codes import Errors
from client_core.errors import RecordTooLargeError, TimeoutError
from client_core.events import BatchSplit
from client_core.producer.accumulator.producer_batch import ProducerIdAndEpoch
from client_core.record.compression import Codec
from client_core.record.compression_ratio import IMPROVING_STEP
from client_core.record.gzip_compression import GzipCompression
from tests.producer.sequence_rig import (
    LAST_EPOCH,
    acknowledged_rig,
    answer,
    epoch_of,
    first_in_flight_sequence,
    in_flight,
    is_unresolved,
    new_rig,
    next_sequence,
    queued,
    send,
    send_and_acknowledge,
    state_of,
)
from tests.support.metadata_responses import metadata_response, topic, topic_id_of
from tests.support.sender_rig import (
    DELIVERY_TIMEOUT_MS,
    ORDERS_0,
    ORDERS_1,
    PRODUCER_ID,
    RETRY_BACKOFF_MS,
    SenderRig,
    SleepRecorder,
    produced,
    producer_id_given,
    together,
)

if TYPE_CHECKING:
    from client_core.client.kafka_client import ClientRequest
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.results.future_record_metadata import FutureRecordMetadata

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
    assert (in_flight(rig), state_of(rig), second.result(0).offset) == (0, (0, 3, 2), 2)
    assert rig.sender.in_flight_batches == 0


@pytest.mark.behaviour("IDM-03")
@pytest.mark.java("SenderTest.IdempotenceWithMultipleInflightsRetriedInOrder")
def test_batches_that_were_in_flight_together_are_retried_one_by_one_and_then_the_next_goes() -> None:
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


def second_answered(
    **said: Any,
) -> tuple[SenderRig, FutureRecordMetadata, FutureRecordMetadata, ClientRequest]:
    """Two are in flight, and the second is answered so; the futures of both, and the request of the first."""
    rig = acknowledged_rig()
    first, second = send(rig), send(rig)
    to_first, to_second = rig.client.requests
    rig.client.respond_to_request(to_second, produced(ORDERS_0, **said))
    rig.turn()
    return rig, first, second, to_first


def hear(rig: SenderRig, request: ClientRequest, error: Errors) -> None:
    rig.client.respond_to_request(request, produced(ORDERS_0, error=error))
    rig.turn()


@pytest.mark.behaviour("IDM-03")
@pytest.mark.java("SenderTest.CorrectHandlingOfOutOfOrderResponses")
def test_answers_out_of_order_are_put_in_order_again() -> None:
    rig, first, second, to_first = second_answered(error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([2], 1, (0, 3, 0))
    hear(rig, to_first, Errors.NOT_LEADER_OR_FOLLOWER)
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([1, 2], 0, (0, 3, 0))
    assert (first.done(), second.done()) == (False, False)
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
    rig, first, second, to_first = second_answered(offset=2)
    assert (first.done(), second.result(0).offset) == (False, 2)
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([], 1, (0, 3, 2))
    hear(rig, to_first, Errors.REQUEST_TIMED_OUT)
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([1], 0, (0, 3, 2))
    rig.turn()
    assert in_flight(rig) == 1
    answer(rig, 1, offset=1)
    assert (queued(rig), in_flight(rig), state_of(rig)) == ([], 0, (0, 3, 2))
    assert first.result(0).offset == 1


@pytest.mark.behaviour("SND-11", "IDM-02")
@pytest.mark.java("SenderTest.CorrectHandlingOfDuplicateSequenceError")
def test_a_duplicate_behind_a_success_leaves_what_is_acknowledged() -> None:
    rig, first, _, to_first = second_answered(offset=1_000)
    assert state_of(rig) == (0, 3, 2)
    hear(rig, to_first, Errors.DUPLICATE_SEQUENCE_NUMBER)
    assert state_of(rig) == (0, 3, 2)
    assert rig.idempotence._partitions[ORDERS_0].last_acked_offset == 1_000
    assert (in_flight(rig), first.result(0).offset) == (0, None)


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
    assert next_sequence(rig.idempotence, ORDERS_0) == 1
    assert first_in_flight_sequence(rig.idempotence, ORDERS_0) == 0


def is_stale(rig: SenderRig) -> bool:
    """Whether partition 1 goes on under an older epoch."""
    manager = rig.idempotence
    return manager._partitions[ORDERS_1].producer != manager.producer_id_and_epoch


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
    assert (epoch_of(rig), state_of(rig)) == (1, (1, 1, None))
    assert (state_of(rig, ORDERS_1), is_stale(rig)) == ((0, 1, 0), True)
    answer(rig, 0, offset=1, epoch=1)
    assert state_of(rig) == (1, 1, 0)
    send(rig, partition=1)
    assert (state_of(rig, ORDERS_1), is_stale(rig)) == ((1, 1, None), False)
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
    assert (state_of(rig, ORDERS_1), is_stale(rig)) == ((0, 2, 0), True)
    answer(rig, 1, ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER, epoch=0)
    rig.turn()
    assert state_of(rig, ORDERS_1) == (0, 2, 0)
    answer(rig, 0, offset=1, epoch=1)
    assert state_of(rig) == (1, 1, 0)
    answer(rig, 1, ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER, epoch=0)
    assert failing.done()
    assert (state_of(rig, ORDERS_1), is_stale(rig)) == ((0, 2, 0), True)
    send(rig, partition=1)
    assert (state_of(rig, ORDERS_1), is_stale(rig)) == ((1, 1, None), False)
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
    assert next_sequence(rig.idempotence, ORDERS_1) == 1


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
def test_queued_records_go_on_under_a_new_id_after_the_last_epoch() -> None:
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
    assert next_sequence(rig.idempotence, ORDERS_1) == 1


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
    assert next_sequence(rig.idempotence, ORDERS_0) == 1


# -- a broker that forgot the producer -----------------------------------------------------------------------


def last_acked_offset(rig: SenderRig) -> int | None:
    return rig.idempotence._partitions[ORDERS_0].last_acked_offset


def second_sent(*, records: int) -> tuple[SenderRig, FutureRecordMetadata]:
    """One record is acknowledged at offset 1000; the next batch is on its way."""
    rig = new_rig()
    send(rig)
    answer(rig, 0, offset=1_000, log_start=10)
    assert (state_of(rig), last_acked_offset(rig)) == ((0, 1, 0), 1_000)
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
    assert (future.result(0).offset, last_acked_offset(rig)) == (1_012, 1_012)


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("SenderTest.UnknownProducerErrorShouldBeRetriedWhenLogStartOffsetIsUnknown")
def test_a_forgotten_producer_keeps_its_sequences_while_the_logs_start_is_unknown() -> None:
    rig, future = second_sent(records=1)
    answer(rig, 1, error=Errors.UNKNOWN_PRODUCER_ID)
    assert (state_of(rig), future.done(), in_flight(rig)) == ((0, 2, 0), False, 0)
    rig.turn()
    answer(rig, 1, offset=1_011, log_start=1_010)
    assert (state_of(rig), in_flight(rig)) == ((0, 2, 1), 0)
    assert (future.result(0).offset, last_acked_offset(rig)) == (1_011, 1_011)


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
    assert last_acked_offset(rig) == 1_012


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
    assert is_unresolved(rig.idempotence, ORDERS_0)
    assert rig.sender.in_flight_batches == 0
    return rig, second


def unresolved(rig: SenderRig) -> bool:
    return is_unresolved(rig.idempotence, ORDERS_0)


@pytest.mark.behaviour("IDM-05")
@pytest.mark.java(
    "SenderTest.ExpiryOfFirstBatchShouldNotCauseUnresolvedSequencesIfFutureBatchesSucceed",
    "SenderTest.UnresolvedSequencesAreNotFatal",
)
def test_a_success_behind_an_expired_batch_lets_the_next_go() -> None:
    rig, second = first_of_two_expired(Errors.REQUEST_TIMED_OUT)
    third = rig.append()
    rig.turn_after(20)
    assert (rig.idempotence.has_fatal_error, rig.idempotence.has_producer_id) == (False, True)
    assert rig.sender.in_flight_batches == 1
    answer(rig, 2, offset=2)
    assert second.result(0).offset == 2
    assert (queued(rig), in_flight(rig)) == ([None], 0)
    assert next_sequence(rig.idempotence, ORDERS_0) == 3
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
    assert (epoch_of(rig), next_sequence(rig.idempotence, ORDERS_0), unresolved(rig)) == (1, 1, False)


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java("SenderTest.ExpiryOfAllSentBatchesShouldCauseUnresolvedSequences")
def test_when_all_that_was_sent_is_too_old_a_new_epoch_resolves_it() -> None:
    rig = new_rig()
    future = send(rig)
    answer(rig, 0, error=Errors.NOT_LEADER_OR_FOLLOWER)
    assert next_sequence(rig.idempotence, ORDERS_0) == 1
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
def test_the_batch_after_one_that_expired_on_its_second_attempt_begins_a_new_epoch() -> None:
    request_timeout_ms, rest_ms = 5_000, 2_500
    rig = SenderRig(idempotent=True, retry_backoff_ms=0, delivery_timeout_ms=request_timeout_ms + rest_ms)
    first = send(rig)
    assert next_sequence(rig.idempotence, ORDERS_0) == 1
    rig.clock.advance(request_timeout_ms)
    for expected in (0, 1):  # it times out, and is sent again
        rig.turn()
        assert in_flight(rig) == expected
        assert rig.idempotence.has_in_flight_batches(ORDERS_0)
        assert next_sequence(rig.idempotence, ORDERS_0) == 1
    rig.turn_after(rest_ms)
    assert "Expiring 1 record(s) for orders-0" in str(first.exception(0))
    assert in_flight(rig) == 1, "the request is still on its way"
    rig.turn()
    assert (epoch_of(rig), next_sequence(rig.idempotence, ORDERS_0)) == (1, 0)
    second = rig.send(turns=2)
    assert first_in_flight_sequence(rig.idempotence, ORDERS_0) == 0
    assert next_sequence(rig.idempotence, ORDERS_0) == 1
    rig.turn_after(rest_ms)  # the first one's request times out, and takes the second with it
    assert rig.idempotence.has_in_flight_batches(ORDERS_0)
    assert not second.done()


# -- with a backoff ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("IDM-03")
def test_the_first_batch_of_a_partition_goes_alone_and_then_five_at_a_time() -> None:
    rig = SenderRig(idempotent=True)
    for sent in (1, 1, 1):
        rig.send()
        assert len(rig.client.requests) == sent
    rig.respond(produced(ORDERS_0, offset=0))
    for _ in range(9):
        rig.send(turns=2)
    assert first_in_flight_sequence(rig.idempotence, ORDERS_0) == 1
    assert len(rig.sender.in_flight_batches_of(ORDERS_0)) <= 5


@pytest.mark.behaviour("IDM-03")
def test_the_first_batch_goes_alone_again_when_the_topic_was_made_again() -> None:
    """Its brokers know no producer, and would accept the second one first."""
    rig = acknowledged_rig()
    rig.send()
    rig.send()
    for topic_id in ("orders", "another", "another"):
        found = topic("orders", 2, topic_id=topic_id_of(topic_id))
        rig.client.update_metadata(metadata_response(nodes=1, topics=[found]), 13)
        rig.send(turns=2)
    assert [len(rig.client.requests), next_sequence(rig.idempotence, ORDERS_0)] == [3, 4]
    for offset in (1, 2):
        rig.respond(produced(ORDERS_0, offset=offset))
        rig.turn()
    assert len(rig.client.requests) == 1, "what the old topic acknowledges says nothing of the new one"
    rig.respond(produced(ORDERS_0, offset=3))
    for _ in range(3):
        rig.send(turns=2)
    assert len(rig.client.requests) == 1
    rig.respond(produced(ORDERS_0, offset=0))
    for _ in range(3):
        rig.send(turns=2)
    assert len(rig.client.requests) > 1


@pytest.mark.behaviour("IDM-03")
@pytest.mark.parametrize("is_refused", [False, True], ids=["acknowledged", "renumbered"])
def test_several_go_again_as_soon_as_one_record_of_a_topic_made_again_is_acknowledged(
    is_refused: bool,
) -> None:
    rig = acknowledged_rig()
    for topic_id in ("orders", "another"):
        found = topic("orders", 2, topic_id=topic_id_of(topic_id))
        rig.client.update_metadata(metadata_response(nodes=1, topics=[found]), 13)
        rig.send(count=1 if topic_id == "another" else 5)
        if topic_id == "orders":
            rig.answer(produced(ORDERS_0, offset=1))
    if is_refused:  # it begins at 0 under another epoch
        rig.answer(produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER))
        rig.turn(2)
        assert rig.sent_sequence() == (1, 0)
    rig.answer(produced(ORDERS_0, offset=0))
    for _ in range(3):
        rig.send(turns=2)
    assert len(rig.client.requests) == 3


@pytest.mark.behaviour("IDM-02")
def test_a_retry_keeps_its_sequence() -> None:
    rig = SenderRig(idempotent=True)
    future = rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.back_off()
    rig.turn()
    assert rig.sent_sequence() == (0, 0)
    rig.answer(produced(ORDERS_0, offset=0))
    assert future.result(0).offset == 0


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java(
    "SenderTest.IdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted"
)
def test_a_batch_that_the_broker_refuses_bumps_the_epoch_and_the_next_begins_at_zero() -> None:
    rig = acknowledged_rig()
    first, second = rig.send(), rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
    assert isinstance(first.exception(0), RecordTooLargeError)
    rig.answer(produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER))
    rig.turn()
    assert rig.sent_sequence() == (1, 0)
    rig.answer(produced(ORDERS_0, offset=0))
    assert second.result(0).offset == 0


@pytest.mark.behaviour("IDM-05")
@pytest.mark.java("SenderTest.ExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences")
def test_a_batch_that_expired_unsent_leaves_no_trace() -> None:
    rig = SenderRig(idempotent=True)
    rig.client.set_unreachable(rig.node, DELIVERY_TIMEOUT_MS)
    future = rig.send()
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert isinstance(future.exception(0), TimeoutError)
    assert not unresolved(rig)
    rig.append()
    rig.turn_after(RETRY_BACKOFF_MS * 2, 2)
    assert rig.sent_sequence() == (0, 0)


def test_when_all_that_was_sent_expired_the_partition_begins_anew() -> None:
    rig = SenderRig(idempotent=True)
    future = rig.send(count=2)
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert isinstance(future.exception(0), TimeoutError)
    rig.send(turns=2)
    assert rig.sent_sequence() == (1, 0)


@pytest.mark.behaviour("SND-02")
def test_it_does_not_spin_while_a_retry_waits_for_its_turn_in_the_sequence() -> None:
    rig, _, _, _ = second_answered(error=Errors.NOT_ENOUGH_REPLICAS)
    sleeps = SleepRecorder(rig)
    rig.turn(2)  # the second may not go before the first is answered
    assert sleeps.last_ms() == RETRY_BACKOFF_MS


def is_in_flight(batch: ProducerBatch) -> bool:
    return batch.is_in_flight


@pytest.mark.behaviour("ACC-14", "SND-09", "IDM-02")
@pytest.mark.java("SenderTest.IdempotentSplitBatchAndSend")
def test_a_batch_that_packed_worse_than_expected_is_sent_in_parts_under_its_sequences() -> None:
    rig = SenderRig(
        idempotent=True,
        guarantee_message_order=True,
        retries=1,
        delivery_timeout_ms=3_000,
        retry_backoff_ms=0,
        compression=GzipCompression(),
    )
    ratios, manager = rig.accumulator._ratios, rig.idempotence
    ratios.set_estimation("orders", Codec.GZIP, 0.2)
    rig.update_leaders(2, nodes=2)
    first, second = (rig.append(1, value=bytes(16_384 // 2)) for _ in range(2))
    rig.turn()
    assert next_sequence(manager, ORDERS_1) == 2
    assert [request.builder.api.name for request in rig.client.requests] == ["Produce"]
    (batch,) = rig.sender.in_flight_batches_of(ORDERS_1)
    assert is_in_flight(batch)
    rig.answer(produced(ORDERS_1, error=Errors.MESSAGE_TOO_LARGE))
    assert not is_in_flight(batch)
    assert ratios.estimation("orders", Codec.GZIP) == pytest.approx(1 - IMPROVING_STEP, abs=0.01)
    for offset, future in enumerate((first, second)):
        rig.turn()
        assert not future.done()
        assert rig.sent_sequence(0) == (0, offset)
        rig.answer(produced(ORDERS_1, offset=offset))
        assert future.result(0).offset == offset
        assert next_sequence(manager, ORDERS_1) == 2
        assert manager._partitions[ORDERS_1].last_acked_sequence == offset
    assert rig.accumulator.batches_of(ORDERS_1) == ()
    assert rig.events.of(BatchSplit) == [BatchSplit("orders", 1, 2)]
