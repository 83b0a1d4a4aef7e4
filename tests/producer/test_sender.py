"""Sender: what it sends, and what it makes of each answer. Twins of SenderTest: basics, expiry, errors.

Idempotence has a file of its own: test_sender_idempotence.py.
"""

from __future__ import annotations

import pytest

from client_core.client.client_request import ClientResponse
from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.errors import (
    ClusterAuthorizationError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    NetworkError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    TimeoutError,
    TopicAuthorizationError,
    UnknownServerError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from client_core.events import BatchRetried, BatchSent, BatchSplit, ProduceFinished
from client_core.metadata.metadata import LeaderAndEpoch
from client_core.producer.producer_record import RecordMetadata
from client_core.protocol.messages.produce_response import NodeEndpoint, ProduceResponse
from tests.support.metadata_responses import metadata_response, node, partition, topic, topic_id_of
from tests.support.sender_rig import (
    DELIVERY_TIMEOUT_MS,
    ORDERS_0,
    ORDERS_1,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    SenderRig,
    produced,
)

# -- basics --------------------------------------------------------------------------------------------------


def test_a_record_goes_out_and_its_future_gets_the_offset() -> None:  # testSimple
    rig = SenderRig()
    future = rig.append()
    rig.turn()
    assert rig.client.in_flight_request_count() == 1
    assert not future.done()
    rig.respond(produced(ORDERS_0, offset=7, log_append_time_ms=99))
    rig.turn()
    assert future.result(0) == RecordMetadata("orders", 0, 7, 99)
    assert rig.sender.in_flight_batches == 0
    assert rig.pool.available_bytes == rig.pool.total_bytes


def test_partitions_of_one_node_share_a_request_and_nodes_have_one_each() -> None:
    rig = SenderRig()
    rig.update_leaders(3, nodes=2)
    for number in range(3):
        rig.append(number)
    rig.turn()
    by_node = {request.destination: len(rig.sent(index)) for index, request in enumerate(rig.client.requests)}
    assert by_node == {0: 2, 1: 1}


def test_nothing_goes_out_before_linger_is_over() -> None:
    rig = SenderRig(linger_ms=20)
    rig.append()
    rig.turn()
    assert rig.client.in_flight_request_count() == 0
    rig.clock.advance(20)
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


def test_without_acks_a_record_is_done_when_it_is_sent() -> None:  # SND-12
    rig = SenderRig(acks="0")
    future = rig.append()
    rig.turn()
    assert not rig.client.requests[0].expect_response
    rig.respond(None)
    rig.turn()
    assert future.result(0).offset is None


def test_the_time_of_the_record_stands_where_the_broker_sets_none() -> None:
    rig = SenderRig()
    future = rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, offset=1))
    rig.turn()
    assert future.result(0).timestamp_ms == rig.clock.wall_ms()


def test_an_answer_by_topic_id_finds_its_batch_though_the_topic_was_created_anew_meanwhile() -> None:
    rig = SenderRig()
    future = rig.append()
    rig.turn()
    by_id = produced(ORDERS_0, offset=3)
    by_id = by_id._replace(responses=(by_id.responses[0]._replace(name="", topic_id=topic_id_of("orders")),))
    rig.client.update_metadata(
        metadata_response(nodes=1, topics=[topic("orders", 2, topic_id=topic_id_of("another"))]), 13
    )
    rig.respond(by_id)
    rig.turn()
    assert future.result(0).offset == 3


def test_a_topic_without_leader_is_asked_for_again() -> None:  # ACC-07
    rig = SenderRig()
    rig.client.update_metadata(
        metadata_response(nodes=1, topics=[topic("orders", [partition(0, leader=None)])]), 13
    )
    rig.append()
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 1}, epoch=1), 13)
    rig.turn()
    assert rig.client.in_flight_request_count() == 0
    assert not rig.client.has_pending_metadata_updates
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


def test_a_topic_that_expired_while_records_wait_is_held_again() -> None:  # testMetadataTopicExpiry
    rig = SenderRig(delivery_timeout_ms=2**40)
    rig.append()
    rig.client.disconnect(rig.node.id)
    rig.client.set_unreachable(rig.node, 10)
    rig.clock.advance(300_001)
    rig.client.update_metadata(metadata_response(nodes=1, topics={"orders": 2}), 13)
    assert not rig.metadata.contains_topic("orders")
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.turn()
    assert rig.metadata.contains_topic("orders")
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


# -- how long it sleeps --------------------------------------------------------------------------------------


class SleepRecorder:
    """Looks at how long each poll may sleep."""

    def __init__(self, rig: SenderRig) -> None:
        self.timeouts_ms: list[int] = []
        poll = rig.client.poll

        def record(timeout_ms: int, now_ms: int) -> object:
            self.timeouts_ms.append(timeout_ms)
            return poll(timeout_ms, now_ms)

        rig.client.poll = record  # type: ignore[method-assign, assignment]

    def last_ms(self) -> int:
        return self.timeouts_ms[-1]


def test_it_polls_at_once_after_something_was_sent() -> None:  # SND-02
    rig = SenderRig()
    sleeps = SleepRecorder(rig)
    rig.append()
    rig.turn()
    assert sleeps.last_ms() == 0


def test_it_sleeps_until_linger_is_over() -> None:
    rig = SenderRig(linger_ms=20)
    sleeps = SleepRecorder(rig)
    rig.append()
    rig.clock.advance(5)
    rig.turn()
    assert sleeps.last_ms() == 15


def test_it_does_not_spin_while_a_node_is_connecting() -> None:
    rig = SenderRig()
    sleeps = SleepRecorder(rig)
    rig.client.delay_ready(rig.node, 1_000)
    rig.append()
    rig.turn(3)
    # Nothing but the batch's own expiry wakes it: the connection does.
    assert sleeps.timeouts_ms == [DELIVERY_TIMEOUT_MS] * 3


def test_it_sleeps_through_a_throttled_nodes_pause_and_no_longer() -> None:
    rig = SenderRig()
    sleeps = SleepRecorder(rig)
    rig.client.ready(rig.node, rig.clock.now_ms())
    rig.client.throttle(rig.node, 300)
    rig.append()
    rig.turn()
    assert sleeps.last_ms() == 300


def test_an_expiry_of_the_past_does_not_make_it_spin() -> None:  # testResetNextBatchExpiry
    rig = SenderRig()
    sleeps = SleepRecorder(rig)
    rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, offset=0))
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS * 2)
    rig.turn(2)
    assert sleeps.last_ms() > 1_000_000


def test_it_sleeps_until_the_retry_backoff_is_over() -> None:
    rig = SenderRig()
    sleeps = SleepRecorder(rig)
    rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.turn(2)
    assert sleeps.last_ms() == RETRY_BACKOFF_MS


# -- retries -------------------------------------------------------------------------------------------------


def test_a_lost_connection_is_retried_and_then_succeeds() -> None:  # testRetries
    rig = SenderRig(retries=1)
    future = rig.append()
    rig.turn()
    rig.client.disconnect(rig.node.id)
    rig.turn()
    assert rig.client.in_flight_request_count() == 0
    assert rig.accumulator.batches_of(ORDERS_0)
    rig.back_off()
    rig.turn(2)
    rig.respond(produced(ORDERS_0, offset=4))
    rig.turn()
    assert future.result(0).offset == 4


def test_when_its_retries_are_used_up_a_batch_fails() -> None:  # testRetries, second half
    rig = SenderRig(retries=1)
    future = rig.append()
    for _ in range(2):
        rig.turn()
        rig.client.disconnect(rig.node.id)
        rig.turn()
        rig.back_off()
    with pytest.raises(NetworkError, match="Disconnected from node 0"):
        future.result(0)
    assert not rig.accumulator.has_incomplete


def test_a_timed_out_request_says_so() -> None:  # SND-04
    rig = SenderRig(retries=0, delivery_timeout_ms=60_000)
    future = rig.append()
    rig.turn()
    rig.clock.advance(REQUEST_TIMEOUT_MS)
    request = rig.client.requests.popleft()
    ClientResponse(
        request, 9, rig.clock.now_ms(), REQUEST_TIMEOUT_MS, disconnected=True, timed_out=True
    ).on_complete()
    with pytest.raises(TimeoutError, match="Disconnected from node 0 due to timeout"):
        future.result(0)


def test_a_retry_waits_for_its_backoff() -> None:  # testSenderShouldRetryWithBackoffOnRetriableError
    rig = SenderRig()
    rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.turn(2)
    assert rig.client.in_flight_request_count() == 0
    rig.back_off()
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


def test_a_retriable_error_is_told_as_a_retry() -> None:
    rig = SenderRig()
    rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.turn()
    assert rig.events.of(BatchRetried) == [BatchRetried("orders", 0, 1, Errors.NOT_ENOUGH_REPLICAS)]
    assert [event.attempt for event in rig.events.of(BatchSent)] == [0]


def test_with_one_request_in_flight_order_survives_a_retry() -> None:  # testSendInOrder
    rig = SenderRig(guarantee_message_order=True)
    rig.append(value=b"first")
    rig.turn()
    rig.append(value=b"second")
    rig.turn(2)
    assert rig.client.in_flight_request_count() == 1  # the partition is muted
    rig.respond(produced(ORDERS_0, error=Errors.NOT_ENOUGH_REPLICAS))
    rig.turn()
    rig.back_off()
    rig.turn()
    (batch,) = rig.sent()
    assert [record.value for record in batch.records()] == [b"first"]


def test_a_batch_moves_to_the_new_leader() -> None:  # testSendInOrder's other half
    rig = SenderRig()
    rig.append(1)
    rig.turn()
    assert rig.client.requests[0].destination == 0
    rig.respond(produced(ORDERS_1, error=Errors.NOT_LEADER_OR_FOLLOWER))
    rig.client.prepare_metadata_update(metadata_response(nodes=2, topics={"orders": 2}, epoch=1), 13)
    rig.turn()
    rig.turn()
    rig.turn()
    assert rig.client.requests[0].destination == 1


def test_a_new_leader_in_the_answer_is_used_at_once() -> None:  # KIP-951, SND-07
    rig = SenderRig()
    rig.append()
    rig.turn()
    moved = produced(
        ORDERS_0,
        error=Errors.NOT_LEADER_OR_FOLLOWER,
        leader=(5, 9),
        nodes=[NodeEndpoint(5, "localhost", 9097, None)],
    )
    rig.client.prepare_metadata_update(
        metadata_response(
            nodes=[node(0), node(5)],
            topics=[topic("orders", [partition(0, leader=5, epoch=9)], topic_id=topic_id_of("orders"))],
        ),
        13,
    )
    rig.respond(moved)
    rig.turn()
    assert rig.metadata.current_leader(ORDERS_0) == LeaderAndEpoch(node(5), 9)
    rig.turn()  # without a backoff
    assert [request.destination for request in rig.client.requests] == [5]


def test_an_answer_without_a_new_leader_only_asks_for_metadata() -> None:
    rig = SenderRig()
    rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER))
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.turn()
    assert rig.metadata.update_requested
    rig.turn()
    assert not rig.client.has_pending_metadata_updates
    assert rig.client.in_flight_request_count() == 0  # its backoff is not over


@pytest.mark.parametrize(
    "error", [Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.UNKNOWN_TOPIC_ID]
)
def test_stale_metadata_is_asked_for_anew_even_when_the_batch_fails(error: Errors) -> None:  # SND-06
    rig = SenderRig(retries=0)
    future = rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, error=error))
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.turn()
    assert rig.metadata.update_requested
    failure = future.exception(0)
    assert failure is not None
    assert failure.error is error


def test_a_partition_that_the_answer_passes_over_is_tried_again() -> None:
    rig = SenderRig()
    rig.append()
    rig.turn()
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.respond(ProduceResponse())
    rig.turn()
    assert rig.events.of(BatchRetried)[0].error is Errors.NETWORK_EXCEPTION


def test_an_answer_for_a_partition_that_was_not_asked_for_does_no_harm() -> None:
    rig = SenderRig()
    future = rig.append()
    rig.turn()
    asked = produced(ORDERS_0, offset=2)
    stray = produced(TopicPartition("orders", 77), offset=1)
    rig.respond(asked._replace(responses=(*stray.responses, *asked.responses)))
    rig.turn()
    assert future.result(0).offset == 2


# -- expiry --------------------------------------------------------------------------------------------------


def test_a_batch_that_was_never_sent_expires() -> None:
    rig = SenderRig()
    rig.client.set_unreachable(rig.node, 10 * DELIVERY_TIMEOUT_MS)
    future = rig.append(count=2)
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    with pytest.raises(TimeoutError) as caught:
        future.result(0)
    assert str(caught.value) == (
        "Expiring 2 record(s) for orders-0:1500 ms has passed since batch creation. "
        "The request has not been sent, or no server response has been received yet."
    )
    assert rig.pool.available_bytes == rig.pool.total_bytes


def test_an_expired_batch_is_not_sent_any_more() -> None:
    rig = SenderRig()
    rig.client.set_unreachable(rig.node, DELIVERY_TIMEOUT_MS - 200)
    rig.append()
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    assert rig.client.in_flight_request_count() == 0


def test_a_batch_on_its_way_expires_and_keeps_its_memory_until_it_is_answered() -> None:
    # testInflightBatchesExpireOnDeliveryTimeout, testNoBufferReuseWhenBatchExpires (SND-14)
    rig = SenderRig()
    future = rig.append()
    rig.turn()
    taken_bytes = rig.pool.total_bytes - rig.pool.available_bytes
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    assert isinstance(future.exception(0), TimeoutError)
    assert rig.sender.in_flight_batches == 0
    assert rig.pool.total_bytes - rig.pool.available_bytes == taken_bytes
    rig.respond(produced(ORDERS_0, offset=0))
    rig.turn()
    assert rig.pool.available_bytes == rig.pool.total_bytes
    assert isinstance(future.exception(0), TimeoutError)


@pytest.mark.parametrize("error", [Errors.NOT_LEADER_OR_FOLLOWER, Errors.MESSAGE_TOO_LARGE, Errors.NONE])
def test_whatever_is_answered_to_an_expired_batch_neither_retries_nor_splits_it(error: Errors) -> None:
    # testExpiredBatchDoesNotRetry, testExpiredBatchDoesNotSplitOnMessageTooLargeError,
    # testNoDoubleDeallocation
    rig = SenderRig()
    rig.append(count=2)
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.respond(produced(ORDERS_0, error=error))
    rig.turn(2)
    rig.back_off()
    rig.turn()
    assert not rig.accumulator.has_incomplete
    assert rig.client.in_flight_request_count() == 0
    assert rig.pool.available_bytes == rig.pool.total_bytes
    assert len(rig.events.of(ProduceFinished)) == 1


def test_batches_of_several_partitions_expire_together() -> None:  # testExpiredBatchesInMultiplePartitions
    rig = SenderRig()
    futures = [rig.append(0), rig.append(1)]
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    assert [type(future.exception(0)) for future in futures] == [TimeoutError, TimeoutError]


def test_a_record_can_be_appended_in_the_callback_of_an_expired_one() -> None:  # testAppendInExpiryCallback
    rig = SenderRig()
    rig.client.set_unreachable(rig.node, 10 * DELIVERY_TIMEOUT_MS)
    appended = []
    rig.append().add_done_callback(lambda _: appended.append(rig.append(value=b"again")))
    rig.turn()
    rig.clock.advance(DELIVERY_TIMEOUT_MS)
    rig.turn()
    assert [batch.record_count for batch in rig.accumulator.batches_of(ORDERS_0)] == [1]
    assert not appended[0].done()


def test_a_muted_partition_stays_so_until_the_expired_batchs_request_is_answered() -> None:
    # testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder
    rig = SenderRig(guarantee_message_order=True, delivery_timeout_ms=1_000)
    rig.append(value=b"first")
    rig.turn()
    rig.clock.advance(500)
    rig.append(value=b"second")
    rig.turn()
    rig.clock.advance(500)
    rig.turn(2)
    assert rig.client.in_flight_request_count() == 1
    rig.respond(produced(ORDERS_0, error=Errors.REQUEST_TIMED_OUT))
    rig.turn(2)
    assert [record.value for record in rig.sent()[0].records()] == [b"second"]


# -- errors --------------------------------------------------------------------------------------------------


def fail_with(rig: SenderRig, answer: ProduceResponse, *, count: int = 1) -> KafkaError:
    """What the last of so many records fails with when they are answered so."""
    future = rig.append(count=count)
    rig.turn()
    rig.respond(answer)
    rig.turn()
    failure = future.exception(0)
    assert failure is not None
    return failure


def test_an_error_has_kafkas_message_where_the_broker_sent_none() -> None:  # testDefaultErrorMessage
    error = fail_with(SenderRig(), produced(ORDERS_0, error=Errors.INVALID_REQUEST))
    assert str(error) == Errors.INVALID_REQUEST.message


def test_an_error_has_the_brokers_own_message() -> None:  # testCustomErrorMessage
    error = fail_with(SenderRig(), produced(ORDERS_0, error=Errors.INVALID_REQUEST, message="not like that"))
    assert str(error) == "not like that"


def test_a_code_from_the_future_fails_the_batch_and_keeps_its_number() -> None:
    answer = produced(ORDERS_0)
    answered = answer.responses[0].partition_responses[0]._replace(error_code=9_999)
    error = fail_with(
        SenderRig(),
        answer._replace(responses=(answer.responses[0]._replace(partition_responses=(answered,)),)),
    )
    assert isinstance(error, UnknownServerError)
    assert error.code == 9_999


def test_a_topic_that_we_may_not_write_to_is_named() -> None:
    error = fail_with(SenderRig(), produced(ORDERS_0, error=Errors.TOPIC_AUTHORIZATION_FAILED))
    assert isinstance(error, TopicAuthorizationError)
    assert "[orders]" in str(error)


def test_unsupported_for_message_format_fails_the_batch() -> None:
    # testUnsupportedForMessageFormatInProduceRequest
    error = fail_with(SenderRig(), produced(ORDERS_0, error=Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT))
    assert isinstance(error, UnsupportedForMessageFormatError)


def test_a_broker_without_a_common_version_fails_the_batch() -> None:
    # testUnsupportedVersionInProduceRequest
    rig = SenderRig()
    future = rig.append()
    rig.client.prepare_unsupported_version_response()
    rig.turn()
    assert isinstance(future.exception(0), UnsupportedVersionError)


def test_cluster_authorization_fails_the_batch_with_javas_words() -> None:
    error = fail_with(SenderRig(), produced(ORDERS_0, error=Errors.CLUSTER_AUTHORIZATION_FAILED))
    assert isinstance(error, ClusterAuthorizationError)
    assert str(error) == "The producer is not authorized to do idempotent sends"


def test_a_duplicate_is_a_success_without_an_offset() -> None:  # SND-11
    rig = SenderRig()
    future = rig.append()
    rig.turn()
    rig.respond(produced(ORDERS_0, error=Errors.DUPLICATE_SEQUENCE_NUMBER))
    rig.turn()
    assert future.result(0).offset is None


def test_one_named_culprit_has_the_exception_of_the_code_and_the_others_suffer() -> None:
    # testRecordErrorPropagatedToApplication (SND-10)
    rig = SenderRig()
    futures = [rig.append() for _ in range(3)]
    rig.turn()
    rig.respond(
        produced(
            ORDERS_0, error=Errors.INVALID_TIMESTAMP, record_errors=[(1, "too old")], message="bad batch"
        )
    )
    rig.turn()
    assert isinstance(futures[1].exception(0), InvalidTimestampError)
    assert str(futures[1].exception(0)) == "too old"
    for future in (futures[0], futures[2]):
        assert type(future.exception(0)) is KafkaError
        assert str(future.exception(0)) == (
            "Failed to append record because it was part of a batch which had one more more invalid records"
        )


def test_several_named_culprits_are_invalid_records_with_their_own_messages() -> None:
    rig = SenderRig()
    futures = [rig.append() for _ in range(3)]
    rig.turn()
    rig.respond(
        produced(
            ORDERS_0,
            error=Errors.INVALID_TIMESTAMP,
            record_errors=[(0, "too old"), (2, None)],
            message="bad batch",
        )
    )
    rig.turn()
    assert [type(future.exception(0)) for future in futures] == [
        InvalidRecordError,
        KafkaError,
        InvalidRecordError,
    ]
    assert [str(futures[index].exception(0)) for index in (0, 2)] == ["too old", "bad batch"]


def test_a_batch_that_is_too_large_is_sent_again_in_parts() -> None:  # testTooLargeBatchesAreSafelyRemoved
    rig = SenderRig(batch_bytes=4_096, guarantee_message_order=True)
    futures = [rig.append(value=b"x" * 1_000) for _ in range(3)]
    rig.turn()
    offset = 0
    for _ in range(12):
        if rig.client.requests:
            records = rig.sent(0)[0].record_count
            error = Errors.MESSAGE_TOO_LARGE if records > 1 else Errors.NONE
            rig.respond(produced(ORDERS_0, offset=offset, error=error))
            offset += 1 if records == 1 else 0
        rig.turn()
    assert [future.result(0).offset for future in futures] == [0, 1, 2]
    assert rig.events.of(BatchSplit)[0] == BatchSplit("orders", 0, 3)
    assert rig.pool.available_bytes == rig.pool.total_bytes


def test_a_single_record_that_is_too_large_fails() -> None:  # SND-09
    error = fail_with(SenderRig(), produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
    assert isinstance(error, RecordTooLargeError)


def test_every_batch_that_ends_is_told_of_once() -> None:
    rig = SenderRig(retries=0)
    rig.append(0)
    rig.append(1)
    rig.turn()
    good, bad = produced(ORDERS_0, offset=0), produced(ORDERS_1, error=Errors.NOT_ENOUGH_REPLICAS)
    rig.respond(good._replace(responses=(*good.responses, *bad.responses)))
    rig.turn()
    finished = rig.events.of(ProduceFinished)
    assert [(event.partition, event.node_id, event.error) for event in finished] == [
        (0, 0, Errors.NONE),
        (1, 0, Errors.NOT_ENOUGH_REPLICAS),
    ]


def test_a_node_that_is_not_ready_surfaces_as_waiting_and_not_as_an_error() -> None:  # testNodeNotReady
    rig = SenderRig()
    future = rig.append()
    rig.client.delay_ready(rig.node, 200)
    rig.turn(2)
    assert not future.done()
    rig.clock.advance(200)
    rig.turn()
    assert rig.client.in_flight_request_count() == 1


def test_not_leader_fails_as_such_when_there_is_no_retry_left() -> None:
    rig = SenderRig(retries=0)
    future = rig.append()
    rig.turn()
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.respond(produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER))
    rig.turn()
    assert isinstance(future.exception(0), NotLeaderOrFollowerError)
