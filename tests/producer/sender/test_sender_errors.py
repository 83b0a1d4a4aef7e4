"""Sender: its handling of a broker's errors, and of batches older than delivery.timeout.ms.

Twins of SenderTest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    ClusterAuthorizationError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    KafkaError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    TimeoutError,
    TopicAuthorizationError,
    UnknownServerError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from client_core.events import ProduceFinished
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Written
from tests.producer.batches import Owner
from tests.support.metadata_responses import metadata_response
from tests.support.sender_rig import (
    DELIVERY_TIMEOUT_MS,
    ORDERS_0,
    ORDERS_1,
    REQUEST_TIMEOUT_MS,
    SenderRig,
    SleepRecorder,
    produced,
)

if TYPE_CHECKING:
    from client_core.producer.results.future_record_metadata import FutureRecordMetadata
    from client_core.protocol.messages.produce_response import ProduceResponse


def fail_with(answer: ProduceResponse, *, retries: int = 2**31 - 1) -> KafkaError:
    """What a record fails with when it is answered so."""
    rig = SenderRig(retries=retries)
    future = rig.send()
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.answer(answer)
    failure = future.exception(0)
    assert failure is not None
    return failure


@pytest.mark.behaviour("SND-09", "SND-11")
@pytest.mark.java("SenderTest.DefaultErrorMessage", "SenderTest.CustomErrorMessage")
def test_a_record_fails_with_the_error_of_its_code_and_the_brokers_message_or_kafkas() -> None:
    failures = {}
    for error, message in (
        (Errors.INVALID_REQUEST, None),
        (Errors.INVALID_REQUEST, "not like that"),
        (Errors.TOPIC_AUTHORIZATION_FAILED, None),
        (Errors.CLUSTER_AUTHORIZATION_FAILED, None),
        (Errors.MESSAGE_TOO_LARGE, None),
        (Errors.NOT_LEADER_OR_FOLLOWER, None),
    ):
        answer = produced(ORDERS_0, error=error, message=message)
        failure = fail_with(answer, retries=0 if error.retriable else 2**31 - 1)
        failures[error, message] = (type(failure), str(failure))
    assert failures == {
        (Errors.INVALID_REQUEST, None): (InvalidRequestError, Errors.INVALID_REQUEST.message),
        (Errors.INVALID_REQUEST, "not like that"): (InvalidRequestError, "not like that"),
        (Errors.TOPIC_AUTHORIZATION_FAILED, None): (
            TopicAuthorizationError,
            "Not authorized to access topics: [orders]",
        ),
        (Errors.CLUSTER_AUTHORIZATION_FAILED, None): (
            ClusterAuthorizationError,
            "The producer is not authorized to do idempotent sends",
        ),
        (Errors.MESSAGE_TOO_LARGE, None): (RecordTooLargeError, Errors.MESSAGE_TOO_LARGE.message),
        (Errors.NOT_LEADER_OR_FOLLOWER, None): (
            NotLeaderOrFollowerError,
            Errors.NOT_LEADER_OR_FOLLOWER.message,
        ),
    }


def test_a_code_from_the_future_fails_the_batch_and_keeps_its_number() -> None:
    answer = produced(ORDERS_0)
    (topic,) = answer.responses
    unknown = topic.partition_responses[0]._replace(error_code=9_999)
    error = fail_with(answer._replace(responses=(topic._replace(partition_responses=(unknown,)),)))
    assert (type(error), error.code) == (UnknownServerError, 9_999)


@pytest.mark.java("SenderTest.UnsupportedForMessageFormatInProduceRequest")
def test_unsupported_for_message_format_fails_the_batch() -> None:
    rig = SenderRig(idempotent=True)
    future = rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT))
    assert isinstance(future.exception(0), UnsupportedForMessageFormatError)
    assert not rig.idempotence.has_fatal_error
    assert rig.idempotence.last_error is None


def test_only_what_is_refused_at_its_first_attempt_was_not_written_and_all_gives_its_memory_back() -> None:
    for answers, written in (
        ([Errors.INVALID_REQUEST], Written.NO),
        ([Errors.NETWORK_EXCEPTION, Errors.INVALID_REQUEST], Written.UNKNOWN),
        ([Errors.UNKNOWN_SERVER_ERROR], Written.UNKNOWN),
    ):
        rig, owner = SenderRig(), Owner()
        records = (ProducerRecord("orders", b"value"),)
        rig.accumulator.append_many(
            "orders", 0, records, (0,), owner, rig.metadata.fetch(), rig.clock.now_ms(), 0
        )
        for error in answers:
            rig.turn()
            rig.answer(produced(ORDERS_0, error=error))
            rig.back_off()
        assert [outcome.written for outcome in owner.outcomes] == [written], answers
        assert rig.pool.available_bytes == rig.pool.total_bytes


def test_the_parts_of_a_batch_whose_answer_was_lost_may_be_written() -> None:
    """A broker may have stored the whole batch before another one refused it as too large."""
    for lost, written in (([], Written.NO), ([Errors.NETWORK_EXCEPTION], Written.UNKNOWN)):
        rig, owner = SenderRig(), Owner()
        records = (ProducerRecord("orders", b"value"), ProducerRecord("orders", b"other"))
        rig.accumulator.append_many(
            "orders", 0, records, (0, 1), owner, rig.metadata.fetch(), rig.clock.now_ms(), 0
        )
        for error in (*lost, *[Errors.MESSAGE_TOO_LARGE] * 3):
            rig.turn()
            rig.answer(produced(ORDERS_0, error=error))
            rig.back_off()
        assert [outcome.written for outcome in owner.outcomes] == [written] * 2, lost
        assert rig.pool.available_bytes == rig.pool.total_bytes


@pytest.mark.behaviour("SND-04")
def test_a_broker_without_a_common_version_fails_the_batch() -> None:
    # testUnsupportedVersionInProduceRequest
    rig = SenderRig()
    future = rig.append()
    rig.client.prepare_unsupported_version_response()
    rig.turn()
    assert isinstance(future.exception(0), UnsupportedVersionError)


@pytest.mark.behaviour("SND-11")
def test_a_duplicate_is_a_success_without_an_offset() -> None:  # SND-11
    rig = SenderRig()
    future = rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.DUPLICATE_SEQUENCE_NUMBER))
    assert future.result(0).offset is None


#: The error of valid records in a batch with invalid ones.
SUFFERED: Final = (
    KafkaError,
    "Failed to append record because it was part of a batch which had one more more invalid records",
)


@pytest.mark.behaviour("SND-10")
@pytest.mark.java("SenderTest.RecordErrorPropagatedToApplication")
def test_each_record_hears_what_the_broker_says_of_it_and_a_single_culprit_the_code() -> None:
    invalid, untimely = Errors.INVALID_RECORD, Errors.INVALID_TIMESTAMP
    for error, message, culprits, heard in (
        (
            invalid,
            None,
            [(0, "0"), (2, "2"), (3, None)],
            [
                (InvalidRecordError, "0"),
                SUFFERED,
                (InvalidRecordError, "2"),
                (InvalidRecordError, invalid.message),
                SUFFERED,
            ],
        ),
        (
            untimely,
            "bad batch",
            [(1, "too old")],
            [SUFFERED, (InvalidTimestampError, "too old"), SUFFERED],
        ),
        (
            untimely,
            "bad batch",
            [(0, "too old"), (2, None)],
            [(InvalidRecordError, "too old"), SUFFERED, (InvalidRecordError, "bad batch")],
        ),
    ):
        rig = SenderRig()
        futures = [rig.append() for _ in heard]
        rig.turn()
        rig.answer(produced(ORDERS_0, error=error, record_errors=culprits, message=message))
        failures = [future.exception(0) for future in futures]
        assert [(type(failure), str(failure)) for failure in failures] == heard, culprits


@pytest.mark.behaviour("SND-09")
@pytest.mark.java("SenderTest.TooLargeBatchesAreSafelyRemoved")
def test_of_a_batch_that_was_split_nothing_is_left_behind() -> None:
    rig = SenderRig(idempotent=True)
    rig.send(count=2)
    assert len(rig.sender.in_flight_batches_of(ORDERS_0)) == 1
    rig.answer(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE), turns=2)
    rig.answer(produced(ORDERS_0, offset=0))
    assert rig.sender.in_flight_batches_of(ORDERS_0) == ()
    rig.turn_after(2_000)  # the other half expires
    assert not rig.accumulator.has_incomplete
    assert rig.pool.available_bytes == rig.pool.total_bytes


def test_every_batch_that_ends_is_reported_once() -> None:
    rig = SenderRig(retries=0)
    rig.append(0)
    rig.send(1)
    good, bad = produced(ORDERS_0, offset=0), produced(ORDERS_1, error=Errors.NOT_ENOUGH_REPLICAS)
    rig.answer(good._replace(responses=(*good.responses, *bad.responses)))
    finished = rig.events.of(ProduceFinished)
    assert [(event.partition, event.node_id, event.error) for event in finished] == [
        (0, 0, Errors.NONE),
        (1, 0, Errors.NOT_ENOUGH_REPLICAS),
    ]


# -- batches that expire, queued or on their way -------------------------------------------------------------


@pytest.mark.behaviour("SND-01", "SND-03", "ACC-11")
def test_a_batch_that_was_never_sent_expires_and_is_not_sent_any_more() -> None:
    rig = SenderRig()
    rig.client.set_unreachable(rig.node, DELIVERY_TIMEOUT_MS - 200)
    future = rig.send(count=2)
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    with pytest.raises(TimeoutError) as caught:
        future.result(0)
    assert str(caught.value) == (
        "Expiring 2 record(s) for orders-0:1500 ms has passed since batch creation. "
        "The request has not been sent, or no server response has been received yet."
    )
    assert rig.pool.available_bytes == rig.pool.total_bytes
    assert rig.client.in_flight_request_count() == 0


@pytest.mark.behaviour("SND-14", "SND-03")
@pytest.mark.java("SenderTest.NoBufferReuseWhenBatchExpires")
def test_a_batch_on_its_way_expires_and_keeps_its_memory_until_it_is_answered() -> None:
    rig = SenderRig()
    future = rig.send()
    available_bytes = rig.pool.available_bytes
    rig.turn_after(DELIVERY_TIMEOUT_MS)
    assert isinstance(future.exception(0), TimeoutError)
    assert rig.sender.in_flight_batches == 0
    assert rig.pool.available_bytes == available_bytes < rig.pool.total_bytes
    rig.answer(produced(ORDERS_0, offset=0))
    assert rig.pool.available_bytes == rig.pool.total_bytes
    assert isinstance(future.exception(0), TimeoutError)


@pytest.mark.java(
    "SenderTest.ExpiredBatchDoesNotRetry", "SenderTest.ExpiredBatchDoesNotSplitOnMessageTooLargeError"
)
def test_whatever_is_answered_to_an_expired_batch_neither_retries_nor_splits_it() -> None:
    for error in (Errors.NOT_LEADER_OR_FOLLOWER, Errors.MESSAGE_TOO_LARGE, Errors.NONE):
        rig = SenderRig()
        rig.send(count=2)
        rig.turn_after(DELIVERY_TIMEOUT_MS)
        rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
        rig.answer(produced(ORDERS_0, error=error), turns=2)
        rig.back_off()
        rig.turn()
        assert not rig.accumulator.has_incomplete, error
        assert rig.client.in_flight_request_count() == 0
        assert rig.pool.available_bytes == rig.pool.total_bytes
        assert len(rig.events.of(ProduceFinished)) == 1


@pytest.mark.behaviour("ACC-11")
@pytest.mark.java(
    "SenderTest.ExpiredBatchesInMultiplePartitions", "SenderTest.InflightBatchesExpireOnDeliveryTimeout"
)
def test_batches_of_several_partitions_expire_together_though_an_answer_is_on_its_way_back() -> None:
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
def test_a_record_can_be_appended_in_the_callback_of_an_expired_one() -> None:
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
def test_a_muted_partition_stays_so_until_the_expired_batchs_request_is_answered() -> None:
    for error in (Errors.NONE, Errors.REQUEST_TIMED_OUT):
        rig = SenderRig(guarantee_message_order=True, delivery_timeout_ms=1_000)
        rig.send(value=b"first")
        rig.clock.advance(500)
        rig.send(value=b"second")
        rig.turn_after(500, 2)
        assert rig.client.in_flight_request_count() == 1
        rig.answer(produced(ORDERS_0, error=error), turns=2)
        assert [record.value for record in rig.sent()[0].records()] == [b"second"], error


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
