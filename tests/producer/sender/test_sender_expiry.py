"""Sender: batches that get older than delivery.timeout.ms, queued or on their way. Twins of SenderTest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.error_codes import Errors
from client_core.errors import TimeoutError
from client_core.events import ProduceFinished
from tests.support.metadata_responses import metadata_response
from tests.support.sender_rig import (
    DELIVERY_TIMEOUT_MS,
    ORDERS_0,
    REQUEST_TIMEOUT_MS,
    SenderRig,
    SleepRecorder,
    produced,
)

if TYPE_CHECKING:
    from client_core.errors import KafkaError
    from client_core.producer.results.future_record_metadata import FutureRecordMetadata


@pytest.mark.behaviour("SND-03", "ACC-11")
def test_a_batch_that_was_never_sent_expires() -> None:
    rig = SenderRig()
    rig.client.set_unreachable(rig.node, 10 * DELIVERY_TIMEOUT_MS)
    future = rig.send(count=2)
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    with pytest.raises(TimeoutError) as caught:
        future.result(0)
    assert str(caught.value) == (
        "Expiring 2 record(s) for orders-0:1500 ms has passed since batch creation. "
        "The request has not been sent, or no server response has been received yet."
    )
    assert rig.pool.available_bytes == rig.pool.total_bytes


@pytest.mark.behaviour("SND-01")
def test_an_expired_batch_is_not_sent_any_more() -> None:
    rig = SenderRig()
    rig.client.set_unreachable(rig.node, DELIVERY_TIMEOUT_MS - 200)
    rig.send()
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert rig.client.in_flight_request_count() == 0


@pytest.mark.behaviour("SND-14", "SND-03")
@pytest.mark.java("SenderTest.NoBufferReuseWhenBatchExpires")
def test_a_batch_on_its_way_expires_and_keeps_its_memory_until_it_is_answered() -> None:
    # testInflightBatchesExpireOnDeliveryTimeout, testNoBufferReuseWhenBatchExpires (SND-14)
    rig = SenderRig()
    future = rig.send()
    taken_bytes = rig.pool.total_bytes - rig.pool.available_bytes
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert isinstance(future.exception(0), TimeoutError)
    assert rig.sender.in_flight_batches == 0
    assert rig.pool.total_bytes - rig.pool.available_bytes == taken_bytes
    rig.answer(produced(ORDERS_0, offset=0))
    assert rig.pool.available_bytes == rig.pool.total_bytes
    assert isinstance(future.exception(0), TimeoutError)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            Errors.NOT_LEADER_OR_FOLLOWER, marks=pytest.mark.java("SenderTest.ExpiredBatchDoesNotRetry")
        ),
        pytest.param(
            Errors.MESSAGE_TOO_LARGE,
            marks=pytest.mark.java("SenderTest.ExpiredBatchDoesNotSplitOnMessageTooLargeError"),
        ),
        Errors.NONE,
    ],
)
def test_whatever_is_answered_to_an_expired_batch_neither_retries_nor_splits_it(error: Errors) -> None:
    # testExpiredBatchDoesNotRetry, testExpiredBatchDoesNotSplitOnMessageTooLargeError,
    # testNoDoubleDeallocation
    rig = SenderRig()
    rig.send(count=2)
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.answer(produced(ORDERS_0, error=error), turns=2)
    rig.back_off()
    rig.turn()
    assert not rig.accumulator.has_incomplete
    assert rig.client.in_flight_request_count() == 0
    assert rig.pool.available_bytes == rig.pool.total_bytes
    assert len(rig.events.of(ProduceFinished)) == 1


@pytest.mark.behaviour("ACC-11")
@pytest.mark.java("SenderTest.ExpiredBatchesInMultiplePartitions")
def test_batches_of_several_partitions_expire_together() -> None:  # testExpiredBatchesInMultiplePartitions
    rig = SenderRig(guarantee_message_order=True)
    futures = [rig.append(0), rig.append(1)]
    rig.turn()
    assert len(rig.sender.in_flight_batches_of(ORDERS_0)) == 1
    rig.respond(produced(ORDERS_0, offset=0))  # heard too late
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert rig.sender.in_flight_batches == 0
    assert [type(future.exception(0)) for future in futures] == [TimeoutError, TimeoutError]


def test_it_comes_round_at_once_after_an_expiry_for_what_was_held_up() -> None:
    rig = SenderRig()
    rig.append()
    rig.client.set_unreachable(rig.node, 100_000_000)
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    sleeps = SleepRecorder(rig)
    rig.turn()
    assert sleeps.last_ms() == 0


@pytest.mark.behaviour("SND-03")
@pytest.mark.java("SenderTest.AppendInExpiryCallback")
def test_a_record_can_be_appended_in_the_callback_of_an_expired_one() -> None:  # testAppendInExpiryCallback
    rig = SenderRig()
    failures: list[KafkaError | None] = []
    appended: list[FutureRecordMetadata] = []

    def append_again(future: FutureRecordMetadata) -> None:
        failures.append(future.exception(0))
        appended.append(rig.append(value=b"again"))

    for _ in range(10):
        rig.append().add_done_callback(append_again)
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.client.disconnect(rig.node.id)
    rig.client.backoff(rig.node, 100)
    rig.turn()
    assert len(failures) == 10
    assert all("Expiring 10 record(s) for orders-0" in str(failure) for failure in failures)
    assert [batch.record_count for batch in rig.accumulator.batches_of(ORDERS_0)] == [10]
    assert not any(future.done() for future in appended)


@pytest.mark.behaviour("SND-01")
@pytest.mark.java("SenderTest.WhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder")
@pytest.mark.parametrize("error", [Errors.NONE, Errors.REQUEST_TIMED_OUT])
def test_a_muted_partition_stays_so_until_the_expired_batchs_request_is_answered(error: Errors) -> None:
    # testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder
    rig = SenderRig(guarantee_message_order=True, delivery_timeout_ms=1_000)
    rig.send(value=b"first")
    rig.clock.advance(500)
    rig.send(value=b"second")
    rig.turn_after(500, 2)
    assert rig.client.in_flight_request_count() == 1
    rig.answer(produced(ORDERS_0, error=error), turns=2)
    assert [record.value for record in rig.sent()[0].records()] == [b"second"]


@pytest.mark.behaviour("ACC-11")
@pytest.mark.java("SenderTest.InflightBatchesExpireOnDeliveryTimeout")
def test_a_batch_expires_on_its_way_though_its_answer_is_on_the_way_back() -> None:
    rig = SenderRig(guarantee_message_order=True)
    future = rig.send()
    assert len(rig.sender.in_flight_batches_of(ORDERS_0)) == 1
    rig.respond(produced(ORDERS_0, offset=0))
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert rig.sender.in_flight_batches == 0
    assert isinstance(future.exception(0), TimeoutError)


@pytest.mark.behaviour("SND-14")
@pytest.mark.java("SenderTest.NoDoubleDeallocation")
def test_memory_comes_back_once_when_batch_and_request_time_out_together() -> None:
    rig = SenderRig()
    future = rig.send()
    (batch,) = rig.sender.in_flight_batches_of(ORDERS_0)
    rig.clock.advance(REQUEST_TIMEOUT_MS)
    assert rig.pool.available_bytes < rig.pool.total_bytes
    for _ in range(2):
        rig.turn()
        assert future.done()
        assert batch.is_buffer_deallocated
        assert rig.pool.available_bytes == rig.pool.total_bytes
    assert (rig.client.in_flight_request_count(), rig.sender.in_flight_batches) == (0, 0)


@pytest.mark.behaviour("ACC-11")
def test_a_batch_that_was_sent_again_behind_a_younger_one_expires_in_time() -> None:
    rig = SenderRig(idempotent=True, retry_backoff_ms=0)
    rig.send()
    rig.answer(produced(ORDERS_0, offset=0))
    older = rig.send()
    rig.clock.advance(1_000)
    younger = rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS), turns=2)
    assert [batch.base_sequence for batch in rig.sender.in_flight_batches_of(ORDERS_0)] == [2, 1]
    rig.turn_after(DELIVERY_TIMEOUT_MS - 1_000)
    assert isinstance(older.exception(0), TimeoutError)
    assert not younger.done()
