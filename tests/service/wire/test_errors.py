"""The one table from Kafka's errors to HTTP, and problem documents."""

from __future__ import annotations

import json

import pytest

from client_core import (
    Errors,
    KafkaError,
    NoBrokersError,
    Phase,
    ProducerClosedError,
    RecordFailure,
    SerializationError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    Written,
)
from client_core.errors import BufferExhaustedError, UnknownServerError, error_for
from service.wire.errors import Problem, gravest, problem_of, problem_of_failure, status_of


def of(error: Errors) -> KafkaError:
    return error_for(error.code)


@pytest.mark.parametrize(
    ("error", "written", "status"),
    [
        (of(Errors.UNKNOWN_TOPIC_OR_PARTITION), Written.NO, 404),
        (of(Errors.INVALID_TOPIC_EXCEPTION), Written.NO, 400),
        (of(Errors.TOPIC_AUTHORIZATION_FAILED), Written.NO, 403),
        (of(Errors.TOPIC_AUTHORIZATION_FAILED), Written.UNKNOWN, 403),
        (of(Errors.CLUSTER_AUTHORIZATION_FAILED), Written.NO, 403),
        (of(Errors.MESSAGE_TOO_LARGE), Written.NO, 413),
        (of(Errors.MESSAGE_TOO_LARGE), Written.UNKNOWN, 413),
        (of(Errors.RECORD_LIST_TOO_LARGE), Written.UNKNOWN, 413),
        (of(Errors.INVALID_RECORD), Written.UNKNOWN, 422),
        (of(Errors.INVALID_TIMESTAMP), Written.UNKNOWN, 422),
        (SerializationError("no"), Written.NO, 422),
        (TimeoutError("late"), Written.NO, 503),
        (TimeoutError("late"), Written.UNKNOWN, 504),
        (BufferExhaustedError("full"), Written.NO, 503),
        (NoBrokersError("none"), Written.NO, 503),
        (ProducerClosedError("closed"), Written.NO, 503),
        (ProducerClosedError("closed"), Written.UNKNOWN, 504),
        (of(Errors.SASL_AUTHENTICATION_FAILED), Written.NO, 503),
        (of(Errors.NOT_ENOUGH_REPLICAS), Written.NO, 503),
        (of(Errors.NOT_ENOUGH_REPLICAS), Written.UNKNOWN, 504),
        (of(Errors.UNKNOWN_TOPIC_OR_PARTITION), Written.UNKNOWN, 504),
        (of(Errors.OUT_OF_ORDER_SEQUENCE_NUMBER), Written.UNKNOWN, 500),
        (of(Errors.UNSUPPORTED_VERSION), Written.NO, 500),
        (UnknownServerError("?"), Written.UNKNOWN, 500),
    ],
)
def test_each_error_has_its_status(error: KafkaError, written: Written, status: int) -> None:
    assert status_of(error, written) == status


@pytest.mark.parametrize("error", [error for error in Errors if error is not Errors.NONE])
@pytest.mark.parametrize("written", list(Written))
def test_no_failure_is_ever_a_success(error: Errors, written: Written) -> None:
    assert status_of(of(error), written) >= 400


def test_a_time_out_is_answered_with_what_the_brokers_said() -> None:
    error = TimeoutError("Topic orders not present in metadata after 500 ms.")
    error.__cause__ = UnknownTopicOrPartitionError()
    problem = problem_of(error, phase=Phase.METADATA, waited_ms=500)
    assert problem.status == 404
    assert problem.kafka_error == "UNKNOWN_TOPIC_OR_PARTITION"
    assert problem.detail == "Topic orders not present in metadata after 500 ms."


def test_a_time_out_after_sending_is_not_explained_away() -> None:
    error = TimeoutError("late")
    error.__cause__ = UnknownTopicOrPartitionError()
    problem = problem_of_failure(RecordFailure(error, Phase.DELIVERY, Written.UNKNOWN, 900))
    assert (problem.status, problem.kafka_error) == (504, "REQUEST_TIMED_OUT")


@pytest.mark.parametrize(
    ("statuses", "answer"),
    [([404, 404], 404), ([404, 504, 503], 504), ([503, 500], 503), ([500, 404], 500), ([403, 413], 413)],
)
def test_the_gravest_status_speaks_for_all(statuses: list[int], answer: int) -> None:
    assert gravest(statuses) == answer


def test_a_problem_leaves_out_what_does_not_apply() -> None:
    assert json.loads(Problem(412, "no").body()) == {
        "type": "about:blank",
        "title": "Precondition Failed",
        "status": 412,
        "detail": "no",
        "kafka_error": None,
        "code": None,
        "retriable": False,
    }


@pytest.mark.parametrize(("status", "asks"), [(429, True), (503, True), (504, False), (404, False)])
def test_retry_after_stands_where_trying_again_is_harmless(status: int, asks: bool) -> None:
    names = [name for name, _ in Problem(status, "no").all_headers()]
    assert (b"retry-after" in names) is asks


def test_a_retry_after_that_is_known_is_kept() -> None:
    problem = Problem(429, "no", headers=((b"retry-after", b"9"),))
    assert problem.all_headers() == [(b"retry-after", b"9")]


def test_an_unknown_code_keeps_its_number() -> None:
    problem = problem_of(error_for(999))
    assert (problem.status, problem.kafka_error, problem.code) == (500, "UNKNOWN_SERVER_ERROR", 999)
