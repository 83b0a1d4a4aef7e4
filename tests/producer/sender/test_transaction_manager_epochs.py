"""TransactionManager over several batches: sequences and epochs as answers and timeouts come in.

Twins of TransactionManagerTest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    ClusterAuthorizationError,
    IllegalStateError,
    OutOfOrderSequenceError,
    TimeoutError,
    UnsupportedVersionError,
)
from client_core.producer.accumulator.producer_batch import ProducerIdAndEpoch
from client_core.producer.sender.produce_request import ProduceRequestBuilder
from client_core.producer.sender.transaction_manager import State, TransactionManager
from tests.producer.sequence_rig import acknowledged_rig, drain, in_flight, manager, sequence_of
from tests.support.sender_rig import ORDERS_0, ORDERS_1, produced, together

if TYPE_CHECKING:
    from client_core.client.kafka_client import ClientRequest
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from tests.support.sender_rig import SenderRig

LAST_EPOCH: Final = 2**15 - 1


def last_acked(made: TransactionManager) -> int | None:
    return made._entry(ORDERS_0).last_acked_sequence


def unresolved(made: TransactionManager) -> bool:
    return made.has_unresolved_sequence(ORDERS_0)


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("TransactionManagerTest.BumpEpochAndResetSequenceNumbersAfterUnknownProducerId")
def test_a_forgotten_producer_numbers_what_is_in_flight_from_zero() -> None:
    made = manager(epoch=1)
    first, *others = [drain(made) for _ in range(5)]
    assert made.sequence_number(ORDERS_0) == 5
    first.complete(500, 0)
    made.handle_completed_batch(first, 500)
    assert made.can_retry(others[0], Errors.UNKNOWN_PRODUCER_ID, 500)
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 2)
    assert [sequence_of(batch) for batch in others] == [(2, 0), (2, 1), (2, 2), (2, 3)]


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("TransactionManagerTest.BatchFailureAfterProducerReset")
def test_of_two_partitions_only_the_one_that_asked_for_it_begins_anew() -> None:
    made = manager(epoch=LAST_EPOCH)
    acknowledged = [drain(made, topic_partition=one) for one in (ORDERS_0, ORDERS_1)]
    for batch in acknowledged:
        made.handle_completed_batch(batch, None)
    second = {one: drain(made, topic_partition=one) for one in (ORDERS_0, ORDERS_1)}
    assert [made.sequence_number(one) for one in second] == [2, 2]
    assert made.can_retry(acknowledged[0], Errors.UNKNOWN_PRODUCER_ID, 400)
    made.handle_completed_batch(acknowledged[1], None)
    made.bump_epoch_if_required()
    made.init_sent()  # its epochs are used up
    made.init_succeeded(ProducerIdAndEpoch(78, 0))
    assert [made.sequence_number(one) for one in second] == [1, 2]
    assert [made.first_in_flight_sequence(one) for one in second] == [0, 1]
    assert [made._entry(one).in_flight for one in second] == [[batch] for batch in second.values()]


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
    assert (made.sequence_number(ORDERS_0), last_acked(made)) == (2, 0)
    assert made._entry(ORDERS_0).in_flight == [second]
    assert sequence_of(second) == (LAST_EPOCH, 1)
    made.handle_completed_batch(second, 500)
    made.maybe_update_producer_id_and_epoch(ORDERS_0)
    assert (made.sequence_number(ORDERS_0), last_acked(made)) == (0, None)
    assert not made.has_in_flight_batches(ORDERS_0)


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("TransactionManagerTest.ProducerIdReset")
def test_a_new_id_sets_back_the_partition_that_asked_for_it() -> None:
    made = manager(epoch=LAST_EPOCH)
    for one in (ORDERS_0, ORDERS_1):
        assert made.sequence_number(one) == 0
        made.increment_sequence_number(one, 3)
        assert made.sequence_number(one) == 3
    made.request_epoch_bump(ORDERS_0)
    made.bump_epoch_if_required()
    assert made.state is State.UNINITIALIZED
    made.init_sent()
    made.init_succeeded(ProducerIdAndEpoch(78, 0))
    assert [made.sequence_number(one) for one in (ORDERS_0, ORDERS_1)] == [0, 3]


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java("TransactionManagerTest.BumpEpochAfterTimeoutWithoutPendingInflightRequests")
def test_a_timeout_with_nothing_else_in_flight_begins_a_new_epoch() -> None:
    made = manager(epoch=5)
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 5)
    first = drain(made)
    made.handle_completed_batch(first, 500)
    assert last_acked(made) == 0
    made.mark_sequence_unresolved(first)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 5), "all is acknowledged"
    assert not unresolved(made)

    second = drain(made)
    assert made.sequence_number(ORDERS_0) == 2
    made.mark_sequence_unresolved(second)
    made.handle_failed_batch(second, TimeoutError("expired"), adjust_sequences=False)
    assert unresolved(made)
    made.maybe_resolve_sequences()
    assert not unresolved(made)
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 6)


@pytest.mark.behaviour("IDM-05")
@pytest.mark.java("TransactionManagerTest.NoProducerIdResetAfterLastInFlightBatchSucceeds")
def test_a_success_behind_two_timeouts_needs_no_new_epoch() -> None:
    made = manager(epoch=5)
    first, second, third = (drain(made) for _ in range(3))
    assert made.sequence_number(ORDERS_0) == 3
    made.mark_sequence_unresolved(first)
    for batch in (first, second):
        made.handle_failed_batch(batch, TimeoutError("expired"), adjust_sequences=False)
        made.maybe_resolve_sequences()
        made.bump_epoch_if_required()
        assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 5)
        assert unresolved(made)
    made.handle_completed_batch(third, 500)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 5)
    assert not unresolved(made)
    assert made.sequence_number(ORDERS_0) == 3


@pytest.mark.behaviour("IDM-04", "IDM-05")
@pytest.mark.java("TransactionManagerTest.EpochBumpAfterLastInFlightBatchFailsIdempotentProducer")
def test_a_timeout_behind_a_success_begins_a_new_epoch() -> None:
    made = manager(epoch=1)
    first, second, third = (drain(made) for _ in range(3))
    made.mark_sequence_unresolved(first)
    made.handle_failed_batch(first, TimeoutError("expired"), adjust_sequences=False)
    assert unresolved(made)
    made.handle_completed_batch(second, 500)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 1)
    assert unresolved(made)
    made.handle_failed_batch(third, TimeoutError("expired"), adjust_sequences=False)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 2)
    assert not unresolved(made)
    made.maybe_update_producer_id_and_epoch(ORDERS_0)
    assert made.sequence_number(ORDERS_0) == 0


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java("TransactionManagerTest.NoFailedBatchHandlingWhenTxnManagerIsInFatalError")
def test_a_fatal_error_ends_the_raising_of_epochs() -> None:
    made = manager(epoch=5)
    made.handle_failed_batch(drain(made), OutOfOrderSequenceError(), adjust_sequences=False)
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 6)
    batch, other = drain(made), drain(made)
    made.handle_failed_batch(other, UnsupportedVersionError(), adjust_sequences=True)
    assert made.has_fatal_error
    made.handle_failed_batch(batch, TimeoutError("expired"), adjust_sequences=True)
    made.maybe_resolve_sequences()
    made.bump_epoch_if_required()
    assert made.producer_id_and_epoch == ProducerIdAndEpoch(77, 6)


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
    assert made.first_in_flight_sequence(ORDERS_0) == 0
    assert sequence_of(healthy) == (0, 1)
    assert not healthy.sequence_has_been_reset
    assert made.first_in_flight_sequence(ORDERS_1) == 1

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
    assert made.sequence_number(ORDERS_1) == 1
    while in_flight(rig):
        rig.answer(together(produced(ORDERS_0, offset=1), produced(ORDERS_1, offset=1)), turns=2)
    assert not made.has_in_flight_batches(ORDERS_1)
    assert made.sequence_number(ORDERS_1) == 1
