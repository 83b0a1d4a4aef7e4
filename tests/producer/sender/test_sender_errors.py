"""Sender: what it makes of a broker's refusal, of batch or of records. Twins of SenderTest."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    TopicAuthorizationError,
    UnknownServerError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from client_core.events import BatchSplit, ProduceFinished
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.results.ticket import Written
from tests.producer.batches import Owner
from tests.support.metadata_responses import metadata_response
from tests.support.sender_rig import ORDERS_0, ORDERS_1, SenderRig, produced

if TYPE_CHECKING:
    from client_core.protocol.messages.produce_response import ProduceResponse


def fail_with(rig: SenderRig, answer: ProduceResponse, *, count: int = 1) -> KafkaError:
    """What the last of so many records fails with when they are answered so."""
    future = rig.send(count=count)
    rig.answer(answer)
    failure = future.exception(0)
    assert failure is not None
    return failure


@pytest.mark.java("SenderTest.DefaultErrorMessage")
def test_an_error_has_kafkas_message_where_the_broker_sent_none() -> None:  # testDefaultErrorMessage
    error = fail_with(SenderRig(), produced(ORDERS_0, error=Errors.INVALID_REQUEST))
    assert isinstance(error, InvalidRequestError)
    assert str(error) == Errors.INVALID_REQUEST.message


@pytest.mark.java("SenderTest.CustomErrorMessage")
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


@pytest.mark.parametrize(
    ("answers", "written"),
    [
        ([Errors.INVALID_REQUEST], Written.NO),
        ([Errors.NETWORK_EXCEPTION, Errors.INVALID_REQUEST], Written.UNKNOWN),
        ([Errors.UNKNOWN_SERVER_ERROR], Written.UNKNOWN),
    ],
)
def test_only_what_is_refused_at_its_first_attempt_was_not_written_and_all_gives_its_memory_back(
    answers: list[Errors], written: Written
) -> None:
    rig, owner = SenderRig(), Owner()
    records = (ProducerRecord("orders", b"value"),)
    rig.accumulator.append_many(
        "orders", 0, records, (0,), owner, rig.metadata.fetch(), rig.clock.now_ms(), 0
    )
    for error in answers:
        rig.turn()
        rig.answer(produced(ORDERS_0, error=error))
        rig.back_off()
    assert [outcome.written for outcome in owner.outcomes] == [written]
    assert rig.pool.available_bytes == rig.pool.total_bytes


@pytest.mark.behaviour("SND-11")
def test_a_topic_that_we_may_not_write_to_is_named() -> None:
    error = fail_with(SenderRig(), produced(ORDERS_0, error=Errors.TOPIC_AUTHORIZATION_FAILED))
    assert isinstance(error, TopicAuthorizationError)
    assert "[orders]" in str(error)


@pytest.mark.java("SenderTest.UnsupportedForMessageFormatInProduceRequest")
def test_unsupported_for_message_format_fails_the_batch() -> None:
    # testUnsupportedForMessageFormatInProduceRequest
    rig = SenderRig(idempotent=True)
    error = fail_with(rig, produced(ORDERS_0, error=Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT))
    assert isinstance(error, UnsupportedForMessageFormatError)
    assert not rig.idempotence.has_fatal_error
    assert rig.idempotence.last_error is None


@pytest.mark.behaviour("SND-04")
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


@pytest.mark.behaviour("SND-11")
def test_a_duplicate_is_a_success_without_an_offset() -> None:  # SND-11
    rig = SenderRig()
    future = rig.send()
    rig.answer(produced(ORDERS_0, error=Errors.DUPLICATE_SEQUENCE_NUMBER))
    assert future.result(0).offset is None


@pytest.mark.behaviour("SND-10")
@pytest.mark.java("SenderTest.RecordErrorPropagatedToApplication")
def test_each_record_hears_what_the_broker_says_of_it() -> None:
    rig = SenderRig()
    futures = [rig.append() for _ in range(5)]
    rig.turn()
    rig.answer(produced(ORDERS_0, error=Errors.INVALID_RECORD, record_errors=[(0, "0"), (2, "2"), (3, None)]))
    failures = [future.exception(0) for future in futures]
    assert [str(failures[index]) for index in (0, 2, 3)] == ["0", "2", Errors.INVALID_RECORD.message]
    kinds = [InvalidRecordError, KafkaError, InvalidRecordError, InvalidRecordError, KafkaError]
    assert [type(failure) for failure in failures] == kinds


@pytest.mark.behaviour("SND-10")
def test_one_named_culprit_has_the_exception_of_the_code_and_the_others_suffer() -> None:
    # testRecordErrorPropagatedToApplication (SND-10)
    rig = SenderRig()
    futures = [rig.append() for _ in range(3)]
    rig.turn()
    rig.answer(
        produced(
            ORDERS_0, error=Errors.INVALID_TIMESTAMP, record_errors=[(1, "too old")], message="bad batch"
        )
    )
    assert isinstance(futures[1].exception(0), InvalidTimestampError)
    assert str(futures[1].exception(0)) == "too old"
    for future in (futures[0], futures[2]):
        assert type(future.exception(0)) is KafkaError
        assert str(future.exception(0)) == (
            "Failed to append record because it was part of a batch which had one more more invalid records"
        )


@pytest.mark.behaviour("SND-10")
def test_several_named_culprits_are_invalid_records_with_their_own_messages() -> None:
    rig = SenderRig()
    futures = [rig.append() for _ in range(3)]
    rig.turn()
    rig.answer(
        produced(
            ORDERS_0,
            error=Errors.INVALID_TIMESTAMP,
            record_errors=[(0, "too old"), (2, None)],
            message="bad batch",
        )
    )
    assert [type(future.exception(0)) for future in futures] == [
        InvalidRecordError,
        KafkaError,
        InvalidRecordError,
    ]
    assert [str(futures[index].exception(0)) for index in (0, 2)] == ["too old", "bad batch"]


@pytest.mark.behaviour("SND-09", "ACC-14")
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


@pytest.mark.behaviour("SND-09")
def test_a_single_record_that_is_too_large_fails() -> None:  # SND-09
    error = fail_with(SenderRig(), produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
    assert isinstance(error, RecordTooLargeError)


def test_every_batch_that_ends_is_told_of_once() -> None:
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


def test_a_node_that_is_not_ready_surfaces_as_waiting_and_not_as_an_error() -> None:  # testNodeNotReady
    rig = SenderRig()
    future = rig.append()
    rig.client.delay_ready(rig.node, 200)
    rig.turn(2)
    assert not future.done()
    rig.turn_after(200)
    assert rig.client.in_flight_request_count() == 1


def test_not_leader_fails_as_such_when_there_is_no_retry_left() -> None:
    rig = SenderRig(retries=0)
    future = rig.send()
    rig.client.prepare_metadata_update(metadata_response(nodes=1, topics={"orders": 2}), 13)
    rig.answer(produced(ORDERS_0, error=Errors.NOT_LEADER_OR_FOLLOWER))
    assert isinstance(future.exception(0), NotLeaderOrFollowerError)
