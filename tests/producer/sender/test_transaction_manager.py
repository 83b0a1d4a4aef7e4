"""TransactionManager: the producer id's life, and which sequences may go out.

Twins of TransactionManagerTest, as far as they are about idempotence.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core.backoff import ExponentialBackoff
from client_core.error_codes import Errors
from client_core.errors import (
    ClusterAuthorizationError,
    IllegalStateError,
    InvalidRequestError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    TimeoutError,
    UnsupportedVersionError,
    error_for,
)
from client_core.producer.accumulator.producer_batch import ProducerBatch, ProducerIdAndEpoch
from client_core.producer.sender.produce_request import ProduceRequestBuilder
from client_core.producer.sender.transaction_manager import State, TransactionManager
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.producer.sequence_rig import (
    PRODUCER,
    acknowledged_rig,
    drain,
    first_in_flight_sequence,
    in_flight,
    is_unresolved,
    manager,
    next_sequence,
    sequence_of,
)
from tests.support.sender_rig import ORDERS_0, ORDERS_1, produced, together

if TYPE_CHECKING:
    from client_core.client.kafka_client import ClientRequest
    from tests.support.sender_rig import SenderRig

LEFT_OUT: Final = {
    "TransactionManagerTest.ForegroundInvalidStateTransitionIsRecoverable": (
        "No caller's thread ever moves the state here: there is no transaction to begin or to end."
    ),
}

# -- the producer id -----------------------------------------------------------------------------------------


def asking(*, restarts: bool = False) -> TransactionManager:
    """Which has asked for its first producer id."""
    made = manager(ready=False, restarts=restarts)
    made.init_sent()
    return made


def epoch_of(made: TransactionManager) -> int:
    """Its epoch, once it has begun another where it was asked to."""
    made.bump_epoch_if_required()
    producer = made.producer_id_and_epoch
    assert producer is not None
    assert producer.producer_id == PRODUCER.producer_id
    return producer.epoch


def test_there_is_no_id_before_a_broker_gave_one_and_it_is_not_asked_for_twice_at_a_time() -> None:
    made = manager(ready=False)
    assert not made.has_producer_id
    made.init_sent()
    assert (made.state.value, made.init_in_flight) == ("initializing", True)
    with pytest.raises(IllegalStateError, match="InitProducerId can't be sent"):
        made.init_sent()
    made = asking()
    made.init_succeeded(PRODUCER)
    assert (made.producer_id, made.state.value, made.init_in_flight) == (77, "ready", False)


@pytest.mark.behaviour("IDM-01")
@pytest.mark.java("TransactionManagerTest.RetriableErrors")
def test_a_retriable_error_is_tried_again_after_its_backoff() -> None:
    for error in (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NETWORK_EXCEPTION, Errors.REQUEST_TIMED_OUT):
        made = asking()
        made.init_failed(error_for(error.code), now_ms=1_000)
        assert made.state is State.INITIALIZING, error
        assert [made.init_delay_ms(now_ms) for now_ms in (1_000, 1_100)] == [100, 0]
        made.init_sent()


@pytest.mark.behaviour("IDM-01")
def test_the_pauses_grow_until_there_is_an_id_and_begin_anew_for_the_next() -> None:
    made = TransactionManager(ExponentialBackoff(100, 1_000, Random(0), jitter=0))
    delays_ms = []
    for failures in (3, 1):
        for _ in range(failures):
            made.init_sent()
            made.init_failed(error_for(Errors.NETWORK_EXCEPTION.code), now_ms=0)
            delays_ms.append(made.init_delay_ms(0))
        made.init_sent()
        made.init_succeeded(PRODUCER._replace(epoch=2**15 - 1))
        made.request_epoch_bump(ORDERS_0)
        made.bump_epoch_if_required()  # there is no epoch left
    assert delays_ms == [100, 200, 400, 100]


@pytest.mark.behaviour("IDM-01")
def test_a_refusal_fails_what_waits_and_leaves_the_producer_usable() -> None:
    made = asking()
    made.init_failed(ClusterAuthorizationError(), now_ms=0)
    assert (made.state.value, made.init_was_refused) == ("unauthorized", True)
    assert isinstance(made.last_error, ClusterAuthorizationError)
    made.waiting_batches_failed()
    assert made.state.value == "uninitialized"
    made.init_sent()
    made.init_succeeded(PRODUCER)
    assert not made.init_was_refused


def test_any_other_error_is_fatal() -> None:
    for error, message in (
        (UnsupportedVersionError("too old"), "too old"),
        (InvalidRequestError("odd"), "Unexpected error in InitProducerIdResponse; odd"),
    ):
        made = asking()
        made.init_failed(error, now_ms=0)
        assert (made.has_fatal_error, str(made.last_error)) == (True, message)


def test_a_fatal_error_is_never_left() -> None:
    made = manager()
    batch = drain(made)
    made.handle_failed_batch(batch, ClusterAuthorizationError("first"), adjust_sequences=True)
    made.handle_failed_batch(batch, ClusterAuthorizationError("second"), adjust_sequences=True)
    assert str(made.last_error) == "first"


def test_a_fatal_error_is_left_where_a_producer_restarts() -> None:
    for name in (
        *("CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "PRODUCER_FENCED"),
        *("UNSUPPORTED_VERSION", "INVALID_PRODUCER_ID_MAPPING"),
    ):
        error = error_for(Errors[name].code)
        made = manager(restarts=True)
        made.handle_failed_batch(drain(made), error, adjust_sequences=True)
        assert made.has_fatal_error
        assert made.can_restart
        made.restart(now_ms=1_000)
        assert (made.state, made.has_producer_id, made.last_error) == (State.UNINITIALIZED, False, None)
        assert made.init_was_refused, "an id is asked for when somebody has records"
        assert made.init_delay_ms(1_000) > 0, "a broker that refuses every batch is not asked for each"
        made.init_sent()
        made.init_succeeded(PRODUCER._replace(producer_id=78))
        assert next_sequence(made, ORDERS_0) == 0


def test_an_unexpected_error_is_tried_again_after_growing_pauses() -> None:
    made = TransactionManager(ExponentialBackoff(100, 1_000, Random(0), jitter=0), restarts=True)
    delays_ms = []
    for _ in range(3):
        made.init_sent()
        made.init_failed(InvalidRequestError("odd"), now_ms=0)
        made.restart(now_ms=0)
        delays_ms.append(made.init_delay_ms(0))
    assert delays_ms == [100, 200, 400]


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
@pytest.mark.java(
    "TransactionManagerTest.DefaultSequenceNumber", "TransactionManagerTest.SequenceNumberOverflow"
)
def test_sequences_begin_at_zero_count_records_and_overflow_to_zero() -> None:
    made = manager()
    counted = [next_sequence(made, ORDERS_0)]
    for records in (3, 2**31 - 4, 100, 2**31 - 1):
        batch = ProducerBatch(ORDERS_0, MemoryRecordsBuilder(100), 0)
        batch.record_count = records
        made.assign_sequence(batch)
        made.handle_completed_batch(batch, 0)
        assert batch.base_sequence == counted[-1]
        counted.append(next_sequence(made, ORDERS_0))
    assert counted == [0, 3, 2**31 - 1, 99, 98]
    assert next_sequence(made, ORDERS_1) == 0


def test_a_batch_without_sequence_is_not_tracked_and_resolves_nothing() -> None:
    made, batch = manager(), ProducerBatch(ORDERS_0, MemoryRecordsBuilder(100), 0)
    with pytest.raises(IllegalStateError, match="when sequence is not set"):
        made.add_in_flight_batch(batch)
    made.mark_sequence_unresolved(batch)
    assert not is_unresolved(made, ORDERS_0)


@pytest.mark.behaviour("IDM-03")
def test_the_lowest_unfinished_sequence_is_returned() -> None:  # IDM-03
    made = manager()
    first, second = drain(made), drain(made)
    assert first_in_flight_sequence(made, ORDERS_0) == 0
    made.handle_completed_batch(first, 0)
    assert first_in_flight_sequence(made, ORDERS_0) == 1
    made.handle_completed_batch(second, 1)
    assert first_in_flight_sequence(made, ORDERS_0) is None
    assert not made.has_in_flight_batches(ORDERS_0)


@pytest.mark.behaviour("IDM-04")
def test_a_refused_batch_leaves_a_gap_and_so_bumps_the_epoch() -> None:
    made = manager()
    first, second = drain(made, records=2), drain(made)
    made.handle_failed_batch(first, RecordTooLargeError(), adjust_sequences=True)
    assert epoch_of(made) == 0  # the one behind it may be in the log all the same
    assert is_unresolved(made, ORDERS_0)
    assert made.can_retry(second, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)  # it is not
    assert epoch_of(made) == 1
    assert sequence_of(second) == (1, 0)  # the one behind it closes the gap
    assert next_sequence(made, ORDERS_0) == 1


def test_a_batch_behind_a_refused_one_that_is_in_the_log_closes_the_gap_without_a_new_epoch() -> None:
    made = manager()
    first, second = drain(made, records=2), drain(made)
    made.handle_failed_batch(first, RecordTooLargeError(), adjust_sequences=True)
    made.handle_completed_batch(second, 7)
    made.maybe_resolve_sequences()
    assert epoch_of(made) == 0
    assert not is_unresolved(made, ORDERS_0)


def test_of_batches_given_up_around_it_one_that_nothing_precedes_any_more_shows_the_gap() -> None:
    made = manager()
    first, second, third = drain(made), drain(made), drain(made)
    for given_up in (first, third):
        made.handle_failed_batch(given_up, RecordTooLargeError(), adjust_sequences=True)
    assert made.can_retry(second, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    made.bump_epoch_if_required()
    assert sequence_of(second) == (1, 0)


def test_an_epoch_is_bumped_once_for_several_failures_and_only_when_asked() -> None:
    made = manager()
    assert epoch_of(made) == 0
    for batch in (drain(made), drain(made)):
        made.handle_failed_batch(batch, RecordTooLargeError(), adjust_sequences=True)
    assert [epoch_of(made), epoch_of(made)] == [1, 1]


def test_a_late_answer_under_an_old_epoch_says_nothing_about_the_new_one() -> None:
    for fresh_is_acknowledged, epoch in ((False, 2), (True, 1)):
        made = manager()
        late = drain(made, records=5)
        made.remove_in_flight_batch(late)  # expired
        made.mark_sequence_unresolved(late)
        made.maybe_resolve_sequences()
        assert epoch_of(made) == 1
        fresh = drain(made)
        assert sequence_of(fresh) == (1, 0)
        made.handle_completed_batch(late, 0)
        if fresh_is_acknowledged:
            made.handle_completed_batch(fresh, 5)
        made.mark_sequence_unresolved(fresh)
        made.remove_in_flight_batch(fresh)
        made.maybe_resolve_sequences()
        assert epoch_of(made) == epoch


# -- unresolved sequences ------------------------------------------------------------------------------------


def test_of_several_expired_batches_the_last_sequence_counts() -> None:
    made = manager()
    first, second, third = drain(made), drain(made), drain(made)
    for batch in (second, first):
        time_out(made, batch)
        made.mark_sequence_unresolved(batch)
    # Out of order for the one right behind the expired ones: there really is a gap.
    assert made.can_retry(third, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    made.bump_epoch_if_required()
    assert sequence_of(third) == (1, 0)


# -- may it be tried again? ----------------------------------------------------------------------------------


@pytest.mark.behaviour("IDM-04")
def test_out_of_order_is_retried_while_an_earlier_batch_may_still_come_and_is_a_gap_when_it_came() -> None:
    made = manager()
    first, second = drain(made), drain(made)
    assert made.can_retry(second, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    made.bump_epoch_if_required()
    assert sequence_of(first) == (0, 0)
    made.handle_completed_batch(first, 0)
    assert made.can_retry(second, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    made.bump_epoch_if_required()
    assert sequence_of(second) == (1, 0)


def test_other_errors_are_retried_if_they_are_retriable() -> None:
    made = manager()
    for error, retriable in ((Errors.NOT_ENOUGH_REPLICAS, True), (Errors.INVALID_REQUEST, False)):
        assert made.can_retry(drain(made), error, None) is retriable


# -- several batches, as answers and timeouts come in --------------------------------------------------------

LAST_EPOCH: Final = 2**15 - 1


def last_acked(made: TransactionManager) -> int | None:
    return made._partitions[ORDERS_0].last_acked_sequence


def unresolved(made: TransactionManager) -> bool:
    return is_unresolved(made, ORDERS_0)


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("TransactionManagerTest.BumpEpochAndResetSequenceNumbersAfterUnknownProducerId")
def test_a_forgotten_producer_numbers_what_is_in_flight_from_zero_once() -> None:
    made = manager(epoch=1)
    first, *others = [drain(made) for _ in range(5)]
    assert next_sequence(made, ORDERS_0) == 5
    first.complete(500, 0)
    made.handle_completed_batch(first, 500)
    assert made.can_retry(others[0], Errors.UNKNOWN_PRODUCER_ID, None)
    assert epoch_of(made) == 1, "the log's start is not known"
    for batch in others:  # each of them meets it
        assert made.can_retry(batch, Errors.UNKNOWN_PRODUCER_ID, 500)
        assert epoch_of(made) == 2
    assert [sequence_of(batch) for batch in others] == [(2, 0), (2, 1), (2, 2), (2, 3)]
    assert made.can_retry(others[0], Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, None)
    assert epoch_of(made) == 2, "the answer was about its earlier sequence"


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("TransactionManagerTest.BatchFailureAfterProducerReset")
def test_of_two_partitions_only_the_one_that_asked_for_it_begins_anew() -> None:
    made = manager(epoch=LAST_EPOCH)
    acknowledged = [drain(made, topic_partition=one) for one in (ORDERS_0, ORDERS_1)]
    for batch in acknowledged:
        made.handle_completed_batch(batch, None)
    second = {one: drain(made, topic_partition=one) for one in (ORDERS_0, ORDERS_1)}
    assert [next_sequence(made, one) for one in second] == [2, 2]
    assert made.can_retry(acknowledged[0], Errors.UNKNOWN_PRODUCER_ID, 400)
    made.handle_completed_batch(acknowledged[1], None)
    made.bump_epoch_if_required()
    made.init_sent()  # its epochs are used up
    made.init_succeeded(ProducerIdAndEpoch(78, 0))
    assert [next_sequence(made, one) for one in second] == [1, 2]
    assert [first_in_flight_sequence(made, one) for one in second] == [0, 1]
    assert [made._partitions[one].in_flight for one in second] == [[batch] for batch in second.values()]


@pytest.mark.behaviour("IDM-05")
@pytest.mark.java("TransactionManagerTest.BatchCompletedAfterProducerReset")
def test_a_partition_goes_on_under_its_old_id_until_all_is_answered() -> None:
    made = manager(epoch=LAST_EPOCH)
    first = drain(made)
    drain(made, topic_partition=ORDERS_1)
    second = drain(made)
    made.request_epoch_bump(ORDERS_1)
    made.bump_epoch_if_required()
    made.init_sent()
    made.init_succeeded(ProducerIdAndEpoch(78, 0))
    made.handle_completed_batch(first, 500)
    assert (next_sequence(made, ORDERS_0), last_acked(made)) == (2, 0)
    assert made._partitions[ORDERS_0].in_flight == [second]
    assert sequence_of(second) == (LAST_EPOCH, 1)
    made.handle_completed_batch(second, 500)
    assert not made.has_in_flight_batches(ORDERS_0)
    assert drain(made).base_sequence == 0
    assert (next_sequence(made, ORDERS_0), last_acked(made)) == (1, None)


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("TransactionManagerTest.ProducerIdReset")
def test_a_new_id_sets_back_the_partition_that_asked_for_it() -> None:
    made = manager(epoch=LAST_EPOCH)
    for one in (ORDERS_0, ORDERS_1):
        assert next_sequence(made, one) == 0
        made.handle_completed_batch(drain(made, records=3, topic_partition=one), 0)
        assert next_sequence(made, one) == 3
    made.request_epoch_bump(ORDERS_0)
    made.bump_epoch_if_required()
    assert made.state is State.UNINITIALIZED
    made.init_sent()
    made.init_succeeded(ProducerIdAndEpoch(78, 0))
    assert [next_sequence(made, one) for one in (ORDERS_0, ORDERS_1)] == [0, 3]


def time_out(made: TransactionManager, batch: ProducerBatch) -> None:
    made.handle_failed_batch(batch, TimeoutError("expired"), adjust_sequences=False)


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java("TransactionManagerTest.BumpEpochAfterTimeoutWithoutPendingInflightRequests")
def test_a_timeout_with_nothing_else_in_flight_begins_a_new_epoch() -> None:
    made = manager(epoch=5)
    assert epoch_of(made) == 5
    first = drain(made)
    made.handle_completed_batch(first, 500)
    assert last_acked(made) == 0
    made.mark_sequence_unresolved(first)
    made.maybe_resolve_sequences()
    assert epoch_of(made) == 5, "all is acknowledged"
    assert not unresolved(made)

    second = drain(made)
    assert next_sequence(made, ORDERS_0) == 2
    made.mark_sequence_unresolved(second)
    time_out(made, second)
    assert unresolved(made)
    made.maybe_resolve_sequences()
    assert not unresolved(made)
    assert epoch_of(made) == 6
    assert next_sequence(made, ORDERS_0) == 0


@pytest.mark.behaviour("IDM-05")
@pytest.mark.java("TransactionManagerTest.NoProducerIdResetAfterLastInFlightBatchSucceeds")
def test_a_success_behind_two_timeouts_needs_no_new_epoch() -> None:
    made = manager(epoch=5)
    first, second, third = (drain(made) for _ in range(3))
    assert next_sequence(made, ORDERS_0) == 3
    made.mark_sequence_unresolved(first)
    for batch in (first, second):
        time_out(made, batch)
        made.maybe_resolve_sequences()
        assert epoch_of(made) == 5
        assert unresolved(made)
        assert not is_unresolved(made, ORDERS_1)
    made.handle_completed_batch(third, 500)  # so the expired ones are in the log, too
    made.maybe_resolve_sequences()
    assert epoch_of(made) == 5
    assert not unresolved(made)
    assert next_sequence(made, ORDERS_0) == 3


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java("TransactionManagerTest.EpochBumpAfterLastInFlightBatchFailsIdempotentProducer")
def test_a_timeout_behind_a_success_begins_a_new_epoch() -> None:
    made = manager(epoch=1)
    first, second, third = (drain(made) for _ in range(3))
    made.mark_sequence_unresolved(first)
    time_out(made, first)
    assert unresolved(made)
    made.handle_completed_batch(second, 500)
    made.maybe_resolve_sequences()
    assert epoch_of(made) == 1
    assert unresolved(made)
    time_out(made, third)
    made.maybe_resolve_sequences()
    assert epoch_of(made) == 2
    assert not unresolved(made)
    assert drain(made).base_sequence == 0


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("TransactionManagerTest.NoFailedBatchHandlingWhenTxnManagerIsInFatalError")
def test_a_fatal_error_ends_the_raising_of_epochs() -> None:
    made = manager(epoch=5)
    made.handle_failed_batch(drain(made), OutOfOrderSequenceError(), adjust_sequences=False)
    assert epoch_of(made) == 6
    batch, other = drain(made), drain(made)
    made.handle_failed_batch(other, UnsupportedVersionError(), adjust_sequences=True)
    assert made.has_fatal_error
    for error in (TimeoutError("expired"), RecordTooLargeError()):
        made.handle_failed_batch(batch, error, adjust_sequences=True)
        made.maybe_resolve_sequences()
        assert epoch_of(made) == 6


@pytest.mark.java("TransactionManagerTest.BackgroundInvalidStateTransitionIsFatal")
def test_an_impossible_transition_is_a_bug_and_fatal() -> None:
    made = manager()
    with pytest.raises(IllegalStateError, match="Invalid transition attempted from READY to READY"):
        made.init_succeeded(ProducerIdAndEpoch(78, 0))
    assert made.has_fatal_error
    assert str(made.last_error) == "Invalid transition attempted from READY to READY"
    with pytest.raises(IllegalStateError):
        made.init_sent()
    made.request_epoch_bump(ORDERS_0)
    made.handle_failed_batch(drain(made), ClusterAuthorizationError(), adjust_sequences=True)
    assert str(made.last_error) == "Invalid transition attempted from READY to READY"


def request_with(rig: SenderRig, batch: ProducerBatch) -> ClientRequest:
    """The request that bears the batch."""
    for request in rig.client.requests:
        builder = request.builder
        assert isinstance(builder, ProduceRequestBuilder)
        if batch.records() in [sent.records for sent in builder.batches]:
            return request
    raise AssertionError(f"{batch!r} is not on its way")


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java(
    "TransactionManagerTest.HealthyPartitionRetriesDuringEpochBump",
    "TransactionManagerTest.FailedInflightBatchAfterEpochBump",
)
def test_a_healthy_partition_retries_under_its_old_epoch_and_then_begins_the_new_one() -> None:
    rig = acknowledged_rig()
    rig.send(1)
    rig.answer(produced(ORDERS_1, offset=0))
    for _ in range(2):  # in flight to both, and more behind it to the first
        rig.send(0)
    rig.send(1)
    made = rig.idempotence
    forgotten, behind = rig.sender.in_flight_batches_of(ORDERS_0)
    (healthy,) = rig.sender.in_flight_batches_of(ORDERS_1)
    rig.answer(produced(ORDERS_0, error=Errors.UNKNOWN_PRODUCER_ID, log_start_offset=500), turns=2)
    assert made.producer_id_and_epoch is not None
    assert made.producer_id_and_epoch.epoch == 1
    assert [sequence_of(forgotten), sequence_of(behind)] == [(1, 0), (1, 1)]
    assert behind.sequence_has_been_reset
    assert first_in_flight_sequence(made, ORDERS_0) == 0
    assert sequence_of(healthy) == (0, 1)
    assert not healthy.sequence_has_been_reset
    assert first_in_flight_sequence(made, ORDERS_1) == 1

    rig.send(1)
    assert len(rig.accumulator.batches_of(ORDERS_1)) == 1, "not while the old epoch is in flight"

    to_healthy = request_with(rig, healthy)
    rig.client.respond_to_request(to_healthy, produced(ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER))
    rig.turn(2)
    (waiting,) = rig.accumulator.batches_of(ORDERS_1)
    assert waiting is not healthy
    assert sequence_of(healthy) == (0, 1)
    assert list(rig.sender.in_flight_batches_of(ORDERS_1)) == [healthy]

    to_healthy = request_with(rig, healthy)
    rig.client.respond_to_request(to_healthy, produced(ORDERS_1, offset=500))
    rig.turn()
    assert not made.has_in_flight_batches(ORDERS_1)
    rig.turn()
    assert rig.accumulator.batches_of(ORDERS_1) == ()
    (new,) = rig.sender.in_flight_batches_of(ORDERS_1)
    assert new is waiting
    assert sequence_of(new) == (1, 0)
    assert next_sequence(made, ORDERS_1) == 1
    while in_flight(rig):
        rig.answer(together(produced(ORDERS_0, offset=1), produced(ORDERS_1, offset=1)), turns=2)
    assert not made.has_in_flight_batches(ORDERS_1)
    assert next_sequence(made, ORDERS_1) == 1
