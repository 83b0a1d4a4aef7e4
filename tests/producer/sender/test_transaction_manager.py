"""TransactionManager: the producer id's life, and which sequences may go out.

Twins of TransactionManagerTest, as far as they are about idempotence.
"""

from __future__ import annotations

from typing import Final

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    ClusterAuthorizationError,
    IllegalStateError,
    InvalidRequestError,
    KafkaError,
    RecordTooLargeError,
    TimeoutError,
    UnsupportedVersionError,
    error_for,
)
from client_core.producer.accumulator.producer_batch import ProducerBatch, ProducerIdAndEpoch
from client_core.producer.sender.transaction_manager import State
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.producer.sequence_rig import PRODUCER, drain, manager, sequence_of
from tests.support.sender_rig import ORDERS_0, ORDERS_1

LEFT_OUT: Final = {
    "TransactionManagerTest.ForegroundInvalidStateTransitionIsRecoverable": (
        "No caller's thread ever moves the state here: there is no transaction to begin or to end."
    ),
}

# -- the producer id -----------------------------------------------------------------------------------------


def test_there_is_no_id_before_a_broker_gave_one() -> None:
    made = manager(ready=False)
    assert not made.has_producer_id
    made.init_sent()
    assert (made.state.value, made.init_in_flight) == ("initializing", True)
    made.init_succeeded(PRODUCER)
    assert (made.producer_id, made.state.value, made.init_in_flight) == (77, "ready", False)


def test_it_is_not_asked_for_twice_at_a_time() -> None:
    made = manager(ready=False)
    made.init_sent()
    with pytest.raises(IllegalStateError, match="InitProducerId can't be sent"):
        made.init_sent()


@pytest.mark.behaviour("IDM-01")
@pytest.mark.java("TransactionManagerTest.RetriableErrors")
@pytest.mark.parametrize(
    "error", [Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NETWORK_EXCEPTION, Errors.REQUEST_TIMED_OUT]
)
def test_a_retriable_error_is_tried_again_after_its_backoff(error: Errors) -> None:  # testRetriableErrors
    made = manager(ready=False)
    made.init_sent()
    made.init_failed(error_for(error.code), now_ms=1_000)
    assert made.state is State.INITIALIZING
    assert made.init_delay_ms(1_000) == 100
    assert made.init_delay_ms(1_100) == 0
    made.init_sent()


@pytest.mark.behaviour("IDM-01")
def test_a_refusal_fails_what_waits_and_leaves_the_producer_usable() -> None:  # IDM-01
    made = manager(ready=False)
    made.init_sent()
    made.init_failed(ClusterAuthorizationError(), now_ms=0)
    assert made.state.value == "unauthorized"
    assert made.init_was_refused
    assert isinstance(made.last_error, ClusterAuthorizationError)
    made.waiting_batches_failed()
    assert made.state.value == "uninitialized"
    made.init_sent()
    made.init_succeeded(PRODUCER)
    assert not made.init_was_refused


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UnsupportedVersionError("too old"), "too old"),
        (InvalidRequestError("odd"), "Unexpected error in InitProducerIdResponse; odd"),
    ],
)
def test_any_other_error_is_fatal(error: KafkaError, message: str) -> None:
    made = manager(ready=False)
    made.init_sent()
    made.init_failed(error, now_ms=0)
    assert made.has_fatal_error
    assert str(made.last_error) == message


def test_a_fatal_error_is_never_left() -> None:
    made = manager()
    batch = drain(made)
    made.handle_failed_batch(batch, ClusterAuthorizationError("first"), adjust_sequences=True)
    made.handle_failed_batch(batch, ClusterAuthorizationError("second"), adjust_sequences=True)
    assert str(made.last_error) == "first"


@pytest.mark.parametrize("error", [ClusterAuthorizationError("no"), UnsupportedVersionError("what?")])
def test_a_fatal_error_is_left_where_a_producer_restarts(error: KafkaError) -> None:
    made = manager(restarts=True)
    made.handle_failed_batch(drain(made), error, adjust_sequences=True)
    assert made.has_fatal_error
    assert made.can_restart
    made.restart(now_ms=1_000)
    assert (made.state, made.has_producer_id, made.last_error) == (State.UNINITIALIZED, False, None)
    assert made.init_was_refused, "an id is asked for when somebody has records"
    assert made.init_delay_ms(1_000) > 0, "a broker that refuses every batch is not asked for an id for each"
    made.init_sent()
    made.init_succeeded(PRODUCER._replace(producer_id=78))
    assert made.sequence_number(ORDERS_0) == 0


def test_an_error_that_nobody_foresaw_is_tried_again_after_pauses_that_grow() -> None:
    made = manager(ready=False, restarts=True)
    delays = []
    for _ in range(3):
        made.init_sent()
        made.init_failed(InvalidRequestError("odd"), now_ms=0)
        made.restart(now_ms=0)
        delays.append(made.init_delay_ms(0))
    assert min(delays) > 0


def test_a_bug_of_ours_is_not_left_by_a_restart() -> None:
    made = manager(restarts=True)
    with pytest.raises(IllegalStateError, match="Invalid transition"):
        made.init_succeeded(PRODUCER)
    assert made.has_fatal_error
    assert not made.can_restart
    with pytest.raises(IllegalStateError, match="nothing to restart"):
        made.restart(now_ms=0)


# -- sequences -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("IDM-02")
@pytest.mark.java("TransactionManagerTest.DefaultSequenceNumber")
def test_sequences_begin_at_zero_and_count_records() -> None:  # testDefaultSequenceNumber
    made = manager()
    assert made.sequence_number(ORDERS_0) == 0
    made.increment_sequence_number(ORDERS_0, 3)
    assert made.sequence_number(ORDERS_0) == 3
    assert made.sequence_number(ORDERS_1) == 0


@pytest.mark.java("TransactionManagerTest.SequenceNumberOverflow")
def test_sequences_overflow_to_zero() -> None:  # testSequenceNumberOverflow
    made = manager()
    made.increment_sequence_number(ORDERS_0, 2**31 - 1)
    assert made.sequence_number(ORDERS_0) == 2**31 - 1
    made.increment_sequence_number(ORDERS_0, 100)
    assert made.sequence_number(ORDERS_0) == 99
    made.increment_sequence_number(ORDERS_0, 2**31 - 1)
    assert made.sequence_number(ORDERS_0) == 98


def test_a_batch_without_sequence_is_not_tracked() -> None:
    batch = ProducerBatch(ORDERS_0, MemoryRecordsBuilder(100), 0)
    with pytest.raises(IllegalStateError, match="when sequence is not set"):
        manager().add_in_flight_batch(batch)


@pytest.mark.behaviour("IDM-03")
def test_the_lowest_unfinished_sequence_is_told() -> None:  # IDM-03
    made = manager()
    first, second = drain(made), drain(made)
    assert made.first_in_flight_sequence(ORDERS_0) == 0
    made.handle_completed_batch(first, 0)
    assert made.first_in_flight_sequence(ORDERS_0) == 1
    made.handle_completed_batch(second, 1)
    assert made.first_in_flight_sequence(ORDERS_0) is None
    assert not made.has_in_flight_batches(ORDERS_0)


@pytest.mark.behaviour("IDM-04")
def test_a_refused_batch_leaves_a_gap_and_so_bumps_the_epoch() -> None:
    # testEpochBumpAfterLastInFlightBatchFailsIdempotentProducer
    made = manager()
    first, second = drain(made, records=2), drain(made)
    made.handle_failed_batch(first, RecordTooLargeError(), adjust_sequences=True)
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == PRODUCER  # the one behind it may be in the log all the same
    assert made.has_unresolved_sequence(ORDERS_0)
    assert made.can_retry(second, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)  # it is not
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 1)
    assert sequence_of(second) == (1, 0)  # the one behind it closes the gap
    assert made.sequence_number(ORDERS_0) == 1


def test_a_batch_behind_a_refused_one_that_is_in_the_log_closes_the_gap_without_a_new_epoch() -> None:
    made = manager()
    first, second = drain(made, records=2), drain(made)
    made.handle_failed_batch(first, RecordTooLargeError(), adjust_sequences=True)
    made.handle_completed_batch(second, 7)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == PRODUCER
    assert not made.has_unresolved_sequence(ORDERS_0)


def test_of_batches_given_up_around_it_one_that_nothing_precedes_any_more_shows_the_gap() -> None:
    made = manager()
    first, second, third = drain(made), drain(made), drain(made)
    made.handle_failed_batch(first, RecordTooLargeError(), adjust_sequences=True)
    made.handle_failed_batch(third, RecordTooLargeError(), adjust_sequences=True)
    assert made.can_retry(second, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    made.bump_epoch_if_required()
    assert sequence_of(second) == (1, 0)


def test_an_epoch_is_bumped_once_for_several_failures_and_only_when_asked() -> None:
    made = manager()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == PRODUCER
    for batch in (drain(made), drain(made)):
        made.handle_failed_batch(batch, RecordTooLargeError(), adjust_sequences=True)
    made.bump_epoch_if_required()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 1)


def test_healthy_partitions_go_on_under_the_old_epoch_until_they_are_empty() -> None:
    # testHealthyPartitionRetriesDuringEpochBump (IDM-05)
    made = manager()
    healthy = drain(made)
    made.request_epoch_bump(ORDERS_1)
    made.bump_epoch_if_required()
    assert sequence_of(healthy) == (0, 0)
    assert made.has_stale_producer_id_and_epoch(ORDERS_0)
    made.maybe_update_producer_id_and_epoch(ORDERS_0)
    assert made.sequence_number(ORDERS_0) == 1  # something is in flight: no new beginning
    made.handle_completed_batch(healthy, 0)
    made.maybe_update_producer_id_and_epoch(ORDERS_0)
    assert made.sequence_number(ORDERS_0) == 0
    assert not made.has_stale_producer_id_and_epoch(ORDERS_0)


def test_an_answer_under_an_old_epoch_says_nothing_about_the_new_one() -> None:
    # testBatchCompletedAfterProducerReset
    made = manager()
    late = drain(made, records=5)
    made.remove_in_flight_batch(late)  # expired
    made.mark_sequence_unresolved(late)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    fresh = drain(made)
    assert sequence_of(fresh) == (1, 0)
    made.handle_completed_batch(late, 0)
    made.mark_sequence_unresolved(fresh)
    made.remove_in_flight_batch(fresh)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 2)


@pytest.mark.behaviour("IDM-04")
def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    made = manager(epoch=2**15 - 1)
    first, second = drain(made), drain(made)
    made.handle_failed_batch(first, RecordTooLargeError(), adjust_sequences=True)
    assert made.can_retry(second, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    made.bump_epoch_if_required()
    assert not made.has_producer_id
    assert made.state is State.UNINITIALIZED
    made.init_sent()
    made.init_succeeded(ProducerIdAndEpoch(78, 0))
    assert (second.producer_id, *sequence_of(second)) == (78, 0, 0)


# -- unresolved sequences ------------------------------------------------------------------------------------


@pytest.mark.behaviour("IDM-05")
def test_nothing_new_may_go_to_a_partition_whose_past_is_not_known() -> None:
    made = manager()
    expired, waiting = drain(made), drain(made)
    made.handle_failed_batch(expired, TimeoutError("expired"), adjust_sequences=False)
    made.mark_sequence_unresolved(expired)
    made.maybe_resolve_sequences()
    assert made.has_unresolved_sequence(ORDERS_0)
    assert not made.has_unresolved_sequence(ORDERS_1)
    made.handle_completed_batch(waiting, 1)  # so the expired one is in the log, too
    made.maybe_resolve_sequences()
    assert not made.has_unresolved_sequence(ORDERS_0)
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == PRODUCER


def test_when_all_that_was_sent_expired_the_epoch_is_bumped() -> None:
    # testBumpEpochAfterTimeoutWithoutPendingInflightRequests
    made = manager()
    expired = drain(made)
    made.handle_failed_batch(expired, TimeoutError("expired"), adjust_sequences=False)
    made.mark_sequence_unresolved(expired)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 1)
    assert made.sequence_number(ORDERS_0) == 0


def test_a_batch_that_never_had_a_sequence_resolves_nothing() -> None:
    made = manager()
    made.mark_sequence_unresolved(ProducerBatch(ORDERS_0, MemoryRecordsBuilder(100), 0))
    assert not made.has_unresolved_sequence(ORDERS_0)


def test_of_several_expired_batches_the_last_sequence_counts() -> None:
    made = manager()
    first, second, third = drain(made), drain(made), drain(made)
    for batch in (second, first):
        made.handle_failed_batch(batch, TimeoutError("expired"), adjust_sequences=False)
        made.mark_sequence_unresolved(batch)
    # Out of order for the one right behind the expired ones: there really is a gap.
    assert made.can_retry(third, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    made.bump_epoch_if_required()
    assert sequence_of(third) == (1, 0)


# -- may it be tried again? ----------------------------------------------------------------------------------


@pytest.mark.behaviour("IDM-04")
def test_out_of_order_is_retried_while_an_earlier_batch_may_still_come() -> None:  # IDM-04
    made = manager()
    first, second = drain(made), drain(made)
    assert made.can_retry(second, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    made.bump_epoch_if_required()
    assert sequence_of(first) == (0, 0)


@pytest.mark.behaviour("IDM-04")
def test_out_of_order_of_the_next_expected_batch_is_a_gap() -> None:
    made = manager()
    first, second = drain(made), drain(made)
    made.handle_completed_batch(first, 0)
    assert made.can_retry(second, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    made.bump_epoch_if_required()
    assert sequence_of(second) == (1, 0)


def test_an_unknown_producer_id_is_retried_until_the_log_start_is_known() -> None:
    # testUnknownProducerErrorShouldBeRetriedWhenLogStartOffsetIsUnknown
    made = manager()
    batch = drain(made)
    assert made.can_retry(batch, Errors.UNKNOWN_PRODUCER_ID, None)
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == PRODUCER


def test_an_unknown_producer_id_begins_anew_once_however_many_batches_met_it() -> None:
    # testBumpEpochAndResetSequenceNumbersAfterUnknownProducerId
    made = manager()
    first, second = drain(made), drain(made)
    assert made.can_retry(first, Errors.UNKNOWN_PRODUCER_ID, 10)
    made.bump_epoch_if_required()
    assert made.can_retry(second, Errors.UNKNOWN_PRODUCER_ID, 10)
    made.bump_epoch_if_required()
    assert [sequence_of(first), sequence_of(second)] == [(1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("error", "retriable"), [(Errors.NOT_ENOUGH_REPLICAS, True), (Errors.INVALID_REQUEST, False)]
)
def test_other_errors_are_retried_if_they_are_retriable(error: Errors, retriable: bool) -> None:
    made = manager()
    assert made.can_retry(drain(made), error, None) is retriable


def test_in_a_fatal_state_failed_batches_ask_for_nothing() -> None:
    # testNoFailedBatchHandlingWhenTxnManagerIsInFatalError
    made = manager()
    first, second = drain(made), drain(made)
    made.handle_failed_batch(first, ClusterAuthorizationError(), adjust_sequences=True)
    made.handle_failed_batch(second, RecordTooLargeError(), adjust_sequences=True)
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == PRODUCER


def test_a_late_answer_under_an_old_epoch_raises_the_new_one_no_further() -> None:
    made = manager()
    late = drain(made, records=5)
    made.remove_in_flight_batch(late)
    made.mark_sequence_unresolved(late)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    fresh = drain(made)
    made.handle_completed_batch(late, 0)
    made.handle_completed_batch(fresh, 5)
    made.mark_sequence_unresolved(fresh)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 1)
