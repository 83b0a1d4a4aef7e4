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
    RecordTooLargeError,
    SerializationError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    Written,
)
from client_core.errors import BufferExhaustedError, UnknownServerError, error_for
from service.wire.errors import (
    ErrorFormats,
    Problem,
    Refusal,
    gravest,
    native,
    problem_of,
    problem_of_failure,
    status_of,
)
from tests.support.http_app import NativeApp


def of(error: Errors) -> KafkaError:
    return error_for(error.code)


#: By the status, whether the record was written, and the errors that have it then.
STATUSES: dict[int, dict[Written, list[KafkaError]]] = {
    400: {Written.NO: [of(Errors.INVALID_TOPIC_EXCEPTION)]},
    403: {
        Written.NO: [of(Errors.TOPIC_AUTHORIZATION_FAILED), of(Errors.CLUSTER_AUTHORIZATION_FAILED)],
        Written.UNKNOWN: [of(Errors.TOPIC_AUTHORIZATION_FAILED)],
    },
    404: {Written.NO: [of(Errors.UNKNOWN_TOPIC_OR_PARTITION)]},
    413: {
        Written.NO: [of(Errors.MESSAGE_TOO_LARGE)],
        Written.UNKNOWN: [of(Errors.MESSAGE_TOO_LARGE), of(Errors.RECORD_LIST_TOO_LARGE)],
    },
    422: {
        Written.NO: [SerializationError("no")],
        Written.UNKNOWN: [of(Errors.INVALID_RECORD), of(Errors.INVALID_TIMESTAMP)],
    },
    500: {
        Written.NO: [of(Errors.UNSUPPORTED_VERSION)],
        Written.UNKNOWN: [of(Errors.OUT_OF_ORDER_SEQUENCE_NUMBER), UnknownServerError("?")],
    },
    503: {
        Written.NO: [
            *(TimeoutError("late"), BufferExhaustedError("full"), NoBrokersError("none")),
            *(ProducerClosedError("closed"), of(Errors.SASL_AUTHENTICATION_FAILED)),
            of(Errors.NOT_ENOUGH_REPLICAS),
        ]
    },
    504: {
        Written.UNKNOWN: [
            *(TimeoutError("late"), ProducerClosedError("closed")),
            *(of(Errors.NOT_ENOUGH_REPLICAS), of(Errors.UNKNOWN_TOPIC_OR_PARTITION)),
        ]
    },
}


def test_each_error_has_its_status_and_none_is_ever_a_success() -> None:
    for status, of_status in STATUSES.items():
        for written, errors in of_status.items():
            for error in errors:
                assert status_of(error, written) == status, (error, written)
    for known in Errors:
        for written in Written:
            assert known is Errors.NONE or status_of(of(known), written) >= 400, (known, written)


def test_a_time_out_is_answered_with_what_the_brokers_said() -> None:
    error = TimeoutError("Topic orders not present in metadata after 500 ms.")
    error.__cause__ = UnknownTopicOrPartitionError()
    problem = problem_of(error, phase=Phase.METADATA, waited_ms=500)
    assert problem.status == 404
    assert problem.kafka_error == "UNKNOWN_TOPIC_OR_PARTITION"
    assert problem.detail == f"{error.message} The brokers have no such topic or partition."


@pytest.mark.parametrize(
    ("written", "expected"), [(Written.NO, (503, True)), (Written.UNKNOWN, (504, False))]
)
def test_a_request_that_a_shutdown_ends_may_be_repeated_if_nothing_of_it_was_sent(
    written: Written, expected: tuple[int, bool]
) -> None:
    failure = RecordFailure(ProducerClosedError("closed"), Phase.METADATA, written, 900)
    problem = problem_of_failure(failure)
    assert (problem.status, problem.retriable) == expected
    assert (problem.kafka_error, problem.code) == (None, None), "Kafka has no such error"


def test_a_time_out_after_sending_is_not_explained_away() -> None:
    for cause in (UnknownTopicOrPartitionError(), of(Errors.TOPIC_AUTHORIZATION_FAILED)):
        error = TimeoutError("late")
        error.__cause__ = cause
        problem = problem_of_failure(RecordFailure(error, Phase.DELIVERY, Written.UNKNOWN, 900))
        assert (problem.status, problem.kafka_error) == (504, "REQUEST_TIMED_OUT"), cause


def test_the_record_that_is_too_large_is_named_the_first_too() -> None:
    for index in (0, 1):
        error = RecordTooLargeError("too large")
        error.record_index = index
        problem = problem_of(error)
        assert (problem.place, problem.detail) == (f"records[{index}]", f"records[{index}]: too large")


def test_a_reason_of_an_error_holds_only_at_its_own_status() -> None:
    reported = problem_of_failure(
        RecordFailure(UnknownTopicOrPartitionError("gone"), Phase.DELIVERY, Written.UNKNOWN, 900)
    )
    assert (reported.status, reported.said_reason.name) == (504, "outcome-unknown")


def test_a_dialect_formats_the_errors_of_its_own_paths_only() -> None:
    def other(_: Problem) -> Refusal:
        raise AssertionError("not called")

    formats = ErrorFormats({"/v3": other})
    for path, error_format in {"/v3": other, "/v3/x": other, "/v3x": native, "/v1/v3": native}.items():
        assert formats.of(path) is error_format, path


def test_the_gravest_status_speaks_for_all() -> None:
    answers = {(404, 404): 404, (404, 504, 503): 504, (503, 500): 503, (500, 404): 500, (403, 413): 413}
    assert {statuses: gravest(statuses) for statuses in answers} == answers


def test_a_problem_leaves_out_what_does_not_apply() -> None:
    assert json.loads(Problem(412, "no").body()) == {
        "type": "/problems/other-process",
        "title": "Version of another process",
        "status": 412,
        "detail": "no",
        "kafka_error": None,
        "code": None,
        "retriable": False,
    }


def test_retry_after_is_sent_where_trying_again_is_harmless_and_a_known_one_is_kept() -> None:
    statuses = (429, 503, 504, 404)
    headers = {status: dict(Problem(status, "no").all_headers()) for status in statuses}
    assert [status for status in statuses if b"retry-after" in headers[status]] == [429, 503]
    problem = Problem(429, "no", headers=((b"retry-after", b"9"),))
    assert problem.all_headers() == [(b"retry-after", b"9")]


def test_an_unknown_code_keeps_its_number() -> None:
    problem = problem_of(error_for(999))
    assert (problem.status, problem.kafka_error, problem.code) == (500, "UNKNOWN_SERVER_ERROR", 999)


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        (
            "/v1/topics?pagesize=1",
            "query.pagesize: is not a query parameter of this request; /openapi.json lists them",
        ),
        ("/v1/topics/orders/partitions/x", "path.partition: must be a whole number in plain digits"),
    ],
)
def test_a_parameter_is_refused_in_plain_words(path: str, detail: str) -> None:
    assert NativeApp().get(path).json()["detail"] == detail
