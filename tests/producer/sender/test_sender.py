"""Sender: which batches it sends, how long it sleeps, and what it retries. Twins of SenderTest.

Expiry, errors and idempotence have files of their own.
"""

from __future__ import annotations

import pytest

from client_core.client.kafka_client import ClientRequest, ClientResponse
from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.errors import (
    KafkaError,
    NetworkError,
    TimeoutError,
    TopicAuthorizationError,
    UnsupportedCompressionTypeError,
)
from client_core.events import BatchRetried, BatchSent, ProduceFinished
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.producer.results.ticket import Written
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.producer.batches import BrokenCodec, Owner
from tests.support.metadata_responses import metadata_response
from tests.support.sender_rig import (
    DELIVERY_TIMEOUT_MS,
    ORDERS_0,
    ORDERS_1,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    SenderRig,
    SleepRecorder,
    produced,
    together,
)

# -- basics --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SND-01")
@pytest.mark.java("SenderTest.Simple")
def test_a_record_goes_out_and_its_future_gets_the_offset() -> None:
    rig = SenderRig()
    for log_append_time_ms, timestamp_ms in ((99, 99), (-1, rig.clock.wall_ms())):  # -1: the record's own
        future = rig.send()
        assert rig.client.in_flight_request_count() == 1
        assert len(rig.sender.in_flight_batches_of(ORDERS_0)) == 1
        assert not future.done()
        rig.answer(produced(ORDERS_0, offset=7, log_append_time_ms=log_append_time_ms))
        assert rig.client.in_flight_request_count() == 0
        assert future.result(0) == RecordMetadata("orders", 0, 7, timestamp_ms)
        assert rig.sender.in_flight_batches == 0
        assert rig.pool.available_bytes == rig.pool.total_bytes


@pytest.mark.behaviour("SND-01")
def test_partitions_of_one_node_share_a_request_and_nodes_have_one_each() -> None:
    rig = SenderRig()
    rig.update_leaders(3, nodes=2)
    for number in range(3):
        rig.append(number)
    rig.turn()
    by_node = {request.destination: len(rig.sent(index)) for index, request in enumerate(rig.client.requests)}
    assert by_node == {0: 2, 1: 1}


@pytest.mark.behaviour("SND-12")
def test_without_acks_a_record_is_done_when_it_is_sent() -> None:
    rig = SenderRig(acks="0")
    future = rig.send()
    assert not rig.client.requests[0].expect_response
    rig.answer(None)
    assert future.result(0).offset is None


# -- how long it sleeps --------------------------------------------------------------------------------------


def recorded_rig(**settings: int) -> tuple[SenderRig, SleepRecorder]:
    rig = SenderRig(**settings)  # type: ignore[arg-type]
    return rig, SleepRecorder(rig)


@pytest.mark.behaviour("SND-02")
def test_it_polls_at_once_after_something_was_sent_while_more_waits_and_then_for_the_answer() -> None:
    rig, sleeps = recorded_rig(batch_bytes=100)
    rig.send(value=b"x" * 60, count=3, turns=3)
    assert sleeps.timeouts_ms == [0, 0, DELIVERY_TIMEOUT_MS]


@pytest.mark.behaviour("SND-02")
def test_it_sleeps_until_linger_is_over_and_then_sends() -> None:
    rig, sleeps = recorded_rig(linger_ms=20)
    rig.append()
    rig.turn_after(5)
    assert (sleeps.last_ms(), rig.client.in_flight_request_count()) == (15, 0)
    rig.turn_after(15)
    assert rig.client.in_flight_request_count() == 1


@pytest.mark.behaviour("SND-02")
def test_a_batch_that_left_with_an_older_one_does_not_end_the_sleep_by_its_linger() -> None:
    rig, sleeps = recorded_rig(linger_ms=20)
    rig.append(1)
    rig.clock.advance(20)
    rig.append(0)  # young, but in one request with the other
    rig.turn()
    assert len(rig.sent()) == 2
    assert sleeps.last_ms() == DELIVERY_TIMEOUT_MS - 20


@pytest.mark.behaviour("SND-02")
def test_it_does_not_spin_while_a_node_is_connecting_and_sleeps_through_a_throttled_nodes_pause() -> None:
    rig, sleeps = recorded_rig()
    rig.client.delay_ready(rig.node, 1_000)
    future = rig.send(turns=3)
    # Nothing but the batch's own expiry wakes it: the connection does.
    assert sleeps.timeouts_ms == [DELIVERY_TIMEOUT_MS] * 3
    assert not future.done()
    rig.turn_after(1_000)
    assert rig.client.in_flight_request_count() == 1
    rig, sleeps = recorded_rig()
    rig.client.ready(rig.node, rig.clock.now_ms())
    rig.client.throttle(rig.node, 300)
    rig.send()
    assert sleeps.last_ms() == 300


@pytest.mark.behaviour("SND-02", "ACC-11")
@pytest.mark.java("SenderTest.ResetNextBatchExpiry")
def test_an_expiry_of_the_past_does_not_make_it_spin() -> None:
    rig, sleeps = recorded_rig()
    rig.send()
    assert sleeps.last_ms() == DELIVERY_TIMEOUT_MS
    rig.turn_after(DELIVERY_TIMEOUT_MS + 1)  # fails the batch, and at once looks at unblocked batches
    rig.turn()
    assert sleeps.last_ms() > 1_000_000
    rig.answer(produced(ORDERS_0, offset=0))
    rig.turn_after(DELIVERY_TIMEOUT_MS * 2, 2)
    assert sleeps.last_ms() > 1_000_000


# -- retries -------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SND-05")
@pytest.mark.java("SenderTest.Retries")
def test_a_lost_connection_is_retried_and_then_succeeds() -> None:
    rig = SenderRig(retries=1)
    future = rig.send()
    assert rig.client.is_ready(rig.node, rig.clock.now_ms())
    rig.client.disconnect(rig.node.id)
    assert not rig.client.is_ready(rig.node, rig.clock.now_ms())
    assert rig.sender.in_flight_batches == 1  # until the next poll returns it
    rig.turn()
    assert rig.client.in_flight_request_count() == 0
    assert rig.accumulator.batches_of(ORDERS_0)
    rig.back_off()
    rig.turn(2)
    assert rig.sender.in_flight_batches == 1
    rig.answer(produced(ORDERS_0, offset=4))
    assert future.result(0).offset == 4


@pytest.mark.behaviour("SND-05")
def test_the_time_of_a_produce_counts_from_its_first_record_with_all_retries() -> None:
    for last, retries in ((Errors.NONE, 2), (Errors.TOPIC_AUTHORIZATION_FAILED, 2)):
        rig = SenderRig()
        rig.append()
        rig.turn_after(30)
        for _ in range(retries):
            rig.clock.advance(200)
            rig.answer(produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER))
            rig.update_leaders()
            rig.turn_after(RETRY_BACKOFF_MS)
        rig.clock.advance(7)
        rig.answer(produced(ORDERS_0, error=last, offset=0))
        (finished,) = rig.events.of(ProduceFinished)
        waited_ms = 30 + retries * (200 + RETRY_BACKOFF_MS) + 7
        assert (finished.produce_ms, finished.retries, finished.error) == (waited_ms, retries, last)


@pytest.mark.behaviour("SND-04", "SND-05")
@pytest.mark.java("SenderTest.Retries")
def test_when_its_retries_are_used_up_a_batch_fails() -> None:
    rig = SenderRig(retries=1)
    future = rig.append()
    for _ in range(2):
        rig.turn()
        rig.client.disconnect(rig.node.id)
        rig.turn()
        rig.back_off()
    with pytest.raises(NetworkError, match="Disconnected from node 0"):
        future.result(0)
    assert rig.sender.in_flight_batches == 0
    assert not rig.accumulator.has_incomplete


@pytest.mark.behaviour("SND-04")
def test_a_timed_out_request_says_so() -> None:
    rig = SenderRig(retries=0, delivery_timeout_ms=60_000)
    future = rig.send()
    rig.clock.advance(REQUEST_TIMEOUT_MS)
    request = rig.client.requests.popleft()
    ClientResponse(
        request, 9, rig.clock.now_ms(), REQUEST_TIMEOUT_MS, disconnected=True, timed_out=True
    ).complete()
    with pytest.raises(TimeoutError, match="Disconnected from node 0 due to timeout"):
        future.result(0)


@pytest.mark.behaviour("SND-02", "SND-05")
def test_a_retry_is_emitted_and_waits_for_its_backoff() -> None:
    rig, sleeps = recorded_rig()
    rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS), turns=2)
    assert sleeps.last_ms() == RETRY_BACKOFF_MS
    assert rig.client.in_flight_request_count() == 0
    assert rig.events.of(BatchRetried) == [BatchRetried("orders", 0, 1, Errors.NOT_ENOUGH_REPLICAS, 0)]
    assert [(event.attempt, event.node_id) for event in rig.events.of(BatchSent)] == [(0, 0)]
    rig.back_off()
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


@pytest.mark.behaviour("SND-01", "ACC-10")
def test_with_one_request_in_flight_order_survives_a_retry() -> None:  # testSendInOrder
    rig = SenderRig(guarantee_message_order=True)
    rig.send(value=b"first")
    rig.send(value=b"second", turns=2)
    assert rig.client.in_flight_request_count() == 1  # the partition is muted
    rig.answer(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.back_off()
    rig.turn()
    (batch,) = rig.sent()
    assert [record.value for record in batch.records()] == [b"first"]


@pytest.mark.behaviour("SND-01")
@pytest.mark.java("SenderTest.SendInOrder")
def test_a_second_batch_waits_for_the_answer_to_the_first_though_the_leader_has_moved() -> None:
    rig = SenderRig(guarantee_message_order=True, retries=1)
    rig.update_leaders(2, nodes=2)
    rig.send(1, value=b"first")
    assert [request.destination for request in rig.client.requests] == [1]
    assert len(rig.sender.in_flight_batches_of(ORDERS_1)) == 1
    rig.clock.advance(900)
    rig.append(1, value=b"second")
    rig.update_leaders(2, nodes=1, epoch=1)
    rig.turn()
    assert [request.destination for request in rig.client.requests] == [1]
    assert len(rig.sender.in_flight_batches_of(ORDERS_1)) == 1


@pytest.mark.behaviour("SND-11")
@pytest.mark.java("SenderTest.CanRetryWithoutIdempotence")
def test_without_idempotence_a_batch_has_no_sequence_and_a_refusal_fails_it() -> None:
    rig = SenderRig()
    future = rig.send()
    (batch,) = rig.sent()
    assert (batch.producer_id, batch.base_sequence) == (None, None)
    assert not future.done()
    rig.answer(produced(ORDERS_0, error=Errors.TOPIC_AUTHORIZATION_FAILED))
    assert isinstance(future.exception(0), TopicAuthorizationError)


@pytest.mark.behaviour("ACC-17")
@pytest.mark.java("SenderTest.NodeLatencyStats")
def test_how_long_a_node_has_had_records_ready_and_could_not_take_them_is_noted() -> None:
    rig = SenderRig(availability_timeout_ms=42)

    def stats() -> tuple[int, int]:
        latency = rig.accumulator._drain._node_latency[rig.node.id]
        return latency.ready_ms, latency.drain_ms

    sent_ms = rig.clock.now_ms()
    rig.send()
    assert stats() == (sent_ms, sent_ms)
    rig.client.throttle(rig.node, 100)
    rig.turn_after(10)
    assert stats() == (sent_ms, sent_ms), "nothing was ready"
    rig.append()
    for _ in range(2):
        rig.turn()
        assert rig.client.in_flight_request_count() == 1
        assert stats() == (rig.clock.now_ms(), sent_ms)
        rig.clock.advance(10)
    rig.turn_after(100)
    assert rig.client.in_flight_request_count() == 2
    assert stats() == (rig.clock.now_ms(), rig.clock.now_ms())


def test_a_partition_that_the_answer_passes_over_is_tried_again_and_one_beside_it_does_no_harm() -> None:
    rig = SenderRig()
    rig.send()
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.answer(ProduceResponse())
    assert rig.events.of(BatchRetried)[0].error is Errors.NETWORK_EXCEPTION
    rig = SenderRig()
    future = rig.send()
    rig.answer(together(produced(TopicPartition("orders", 77), offset=1), produced(ORDERS_0, offset=2)))
    assert future.result(0).offset == 2


# -- records that can't be sent ------------------------------------------------------------------------------


def break_batch_of(rig: SenderRig, topic_partition: TopicPartition) -> None:
    """Makes the partition's batch one that can't be made into bytes."""
    (batch,) = rig.accumulator.batches_of(topic_partition)
    batch._builder.compression = BrokenCodec()


@pytest.mark.behaviour("BAT-01")
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_can_not_be_made_into_bytes_fails_alone(idempotent: bool) -> None:
    rig = SenderRig(idempotent=idempotent)
    broken, whole = rig.append(1), rig.append(0)
    break_batch_of(rig, ORDERS_1)
    rig.turn()
    assert str(broken.exception(0)) == "MemoryError: no room to pack in"
    assert [batch.topic_partition for batch in rig.sender.in_flight_batches_of(ORDERS_0)] == [ORDERS_0]
    rig.answer(produced(ORDERS_0, offset=3))
    assert whole.result(0).offset == 3
    assert not rig.accumulator.has_incomplete
    assert rig.pool.available_bytes == rig.pool.total_bytes
    later = rig.send(1, turns=2)
    rig.answer(produced(ORDERS_1, offset=0))
    assert later.result(0).offset == 0


def test_a_batch_that_could_not_be_encoded_was_not_written() -> None:
    rig = SenderRig()
    owner = Owner()
    records = (ProducerRecord("orders", b"value"),)
    rig.accumulator.append_many(
        "orders", 0, records, (0,), owner, rig.metadata.fetch(), rig.clock.now_ms(), 0
    )
    break_batch_of(rig, ORDERS_0)
    rig.turn()
    assert [outcome.written for outcome in owner.outcomes] == [Written.NO]
    assert [event.error for event in rig.events.of(ProduceFinished)] == [Errors.UNKNOWN_SERVER_ERROR]


def test_of_a_part_that_could_not_be_made_into_bytes_nobody_knows_for_the_whole_was_sent() -> None:
    rig = SenderRig()
    owner = Owner()
    records = (ProducerRecord("orders", b"value"),) * 2
    rig.accumulator.append_many(
        "orders", 0, records, (0, 1), owner, rig.metadata.fetch(), rig.clock.now_ms(), 0
    )
    rig.turn()
    rig.answer(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
    for part in rig.accumulator.batches_of(ORDERS_0):
        part._builder.compression = BrokenCodec()
    rig.turn(2)
    assert [outcome.written for outcome in owner.outcomes] == [Written.UNKNOWN] * 2


@pytest.mark.behaviour("BAT-01")
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_request_that_the_client_does_not_take_fails_its_batches_and_no_others(idempotent: bool) -> None:
    rig = SenderRig(idempotent=idempotent, guarantee_message_order=True)
    rig.update_leaders(2, nodes=2)
    futures = [rig.append(0), rig.append(1)]
    send = rig.client.send

    def refuse(request: ClientRequest, now_ms: int) -> None:
        if request.destination == 0:
            raise UnsupportedCompressionTypeError("not with so old a broker")
        send(request, now_ms)

    rig.client.send = refuse  # type: ignore[method-assign]
    rig.turn()
    assert isinstance(futures[0].exception(0), UnsupportedCompressionTypeError)
    rig.answer(produced(ORDERS_1, offset=0))
    assert futures[1].result(0).offset == 0
    assert (rig.sender.in_flight_batches, rig.accumulator.has_incomplete) == (0, False)
    assert rig.pool.available_bytes == rig.pool.total_bytes
    rig.client.send = send  # type: ignore[method-assign]
    rig.send(0, turns=2)
    assert rig.client.in_flight_request_count() == 1, "its partition is muted, or waits for a sequence"


@pytest.mark.behaviour("BAT-01", "SND-09")
def test_a_batch_that_can_not_be_settled_fails_and_the_others_of_its_answer_are_settled() -> None:
    rig = SenderRig()
    futures = [rig.append(0, count=2), rig.append(1)]
    rig.turn()
    (batch,) = rig.sender.in_flight_batches_of(ORDERS_0)
    batch._builder._built = b"not a batch"  # it can't be split
    rig.answer(together(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE), produced(ORDERS_1, offset=5)))
    assert isinstance(futures[0].exception(0), KafkaError)
    assert futures[1].result(0).offset == 5
    assert (rig.sender.in_flight_batches, rig.accumulator.has_incomplete) == (0, False)
    assert rig.pool.available_bytes == rig.pool.total_bytes
