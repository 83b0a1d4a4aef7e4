"""Sender with idempotence: the producer id first, sequences in order, no gap that stays.

Twins of SenderTest's idempotence cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.error_codes import Errors
from client_core.errors import RecordTooLargeError, TimeoutError
from client_core.events import BatchSplit
from client_core.record.compression import Codec
from client_core.record.compression_ratio import IMPROVING_STEP
from client_core.record.gzip_compression import GzipCompression
from tests.support.metadata_responses import metadata_response
from tests.support.sender_rig import (
    DELIVERY_TIMEOUT_MS,
    ORDERS_0,
    ORDERS_1,
    RETRY_BACKOFF_MS,
    SenderRig,
    SleepRecorder,
    produced,
)

if TYPE_CHECKING:
    from client_core.producer.accumulator.producer_batch import ProducerBatch


def rig_with_one_acknowledged() -> SenderRig:
    """A partition that has one record already: from then on several batches may be in flight to it."""
    rig = SenderRig(idempotent=True)
    rig.send()
    rig.answer(produced(ORDERS_0, offset=0))
    assert rig.client.in_flight_request_count() == 0
    return rig


@pytest.mark.behaviour("IDM-03")
def test_the_first_batch_of_a_partition_goes_alone_and_then_five_at_a_time() -> None:
    rig = SenderRig(idempotent=True)
    for sent in (1, 1, 1):
        rig.send()
        assert len(rig.client.requests) == sent
    rig.respond(produced(ORDERS_0, offset=0))
    for _ in range(9):
        rig.send(turns=2)
    assert rig.idempotence.first_in_flight_sequence(ORDERS_0) == 1
    assert len(rig.sender.in_flight_batches_of(ORDERS_0)) <= 5


def test_sequences_count_records_over_batches() -> None:  # testSequenceNumberIncrement
    rig = rig_with_one_acknowledged()
    rig.send(count=3)
    rig.send(count=2)
    assert [rig.sent_sequence(0), rig.sent_sequence(1)] == [(0, 1), (0, 4)]


@pytest.mark.behaviour("IDM-02")
def test_a_retry_keeps_its_sequence() -> None:  # IDM-02
    rig = SenderRig(idempotent=True)
    future = rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.back_off()
    rig.turn()
    assert rig.sent_sequence() == (0, 0)
    rig.answer(produced(ORDERS_0, offset=0))
    assert future.result(0).offset == 0


@pytest.mark.behaviour("IDM-03")
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
        rig.answer(produced(ORDERS_0, offset=offset))
    assert [future.result(0).offset for future in futures] == [0, 1, 2]


@pytest.mark.behaviour("IDM-04")
@pytest.mark.java(
    "SenderTest.IdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted"
)
def test_a_batch_that_the_broker_refuses_bumps_the_epoch_and_the_next_begins_at_zero() -> None:
    # testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted
    rig = rig_with_one_acknowledged()
    first = rig.send()
    second = rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
    assert isinstance(first.exception(0), RecordTooLargeError)
    rig.answer(produced(ORDERS_0, error=Errors.OUT_OF_ORDER_SEQUENCE_NUMBER))
    rig.back_off()
    rig.turn(2)
    assert rig.sent_sequence() == (1, 0)
    rig.answer(produced(ORDERS_0, offset=0))
    assert second.result(0).offset == 0


@pytest.mark.behaviour("IDM-05")
@pytest.mark.java("SenderTest.ExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences")
def test_a_batch_that_expired_unsent_leaves_no_trace() -> None:
    # testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences
    rig = SenderRig(idempotent=True)
    rig.client.set_unreachable(rig.node, DELIVERY_TIMEOUT_MS)
    future = rig.send()
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert isinstance(future.exception(0), TimeoutError)
    assert not rig.idempotence.has_unresolved_sequence(ORDERS_0)
    rig.append()
    rig.turn_after(RETRY_BACKOFF_MS * 2, 2)
    assert rig.sent_sequence() == (0, 0)


def expire_first_of_two(rig: SenderRig) -> tuple[object, object]:
    """Two batches were sent, each failed once; the first has expired, the second is not yet sent again."""
    first = rig.send()
    rig.clock.advance(DELIVERY_TIMEOUT_MS - 2 * RETRY_BACKOFF_MS)
    second = rig.send()
    for _ in range(2):
        rig.respond(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.turn()
    rig.client.set_unreachable(rig.node, 2 * RETRY_BACKOFF_MS)
    rig.turn_after(2 * RETRY_BACKOFF_MS)
    assert isinstance(first.exception(0), TimeoutError)
    assert rig.idempotence.has_unresolved_sequence(ORDERS_0)
    return first, second


@pytest.mark.behaviour("IDM-05")
def test_nothing_new_goes_to_a_partition_while_an_expired_batch_is_unresolved() -> None:  # IDM-05
    rig = rig_with_one_acknowledged()
    expire_first_of_two(rig)
    rig.append(value=b"new")
    rig.turn_after(RETRY_BACKOFF_MS * 3, 3)
    assert rig.client.in_flight_request_count() == 1
    assert rig.sent_sequence() == (0, 2)


def test_when_all_that_was_sent_expired_the_partition_begins_anew() -> None:
    # testExpiryOfAllSentBatchesShouldCauseUnresolvedSequences, and of a first attempt that was never answered
    rig = SenderRig(idempotent=True)
    future = rig.send(count=2)
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert isinstance(future.exception(0), TimeoutError)
    rig.send(turns=2)
    assert rig.sent_sequence() == (1, 0)


@pytest.mark.behaviour("ACC-14", "SND-09")
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


@pytest.mark.behaviour("SND-02")
def test_it_does_not_spin_while_a_retry_waits_for_its_turn_in_the_sequence() -> None:
    rig = rig_with_one_acknowledged()
    sleeps = SleepRecorder(rig)
    rig.send()
    rig.send()
    _, to_second = rig.client.requests
    rig.client.respond_to_request(to_second, produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.turn()
    rig.back_off()
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
    assert manager.sequence_number(ORDERS_1) == 2
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
        assert manager.sequence_number(ORDERS_1) == 2
        assert manager._entry(ORDERS_1).last_acked_sequence == offset
    assert rig.accumulator.batches_of(ORDERS_1) == ()
    assert rig.events.of(BatchSplit) == [BatchSplit("orders", 1, 2)]
