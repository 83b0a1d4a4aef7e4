"""Errors as HTTP: a status table for Kafka errors, RFC 9457 problems, dialects' error formats.

    KafkaError + whether it was written  ──status_of──▶  400 403 404 413 422 500 503 504
    KafkaError, BodyError, own refusals  ──────────────▶  Problem  ──▶  application/problem+json

`kafka_error` and `code` are the row of Kafka's table. When brokers gave the reason for a time-out ("there is
no such topic"), the answer has that reason. A dialect has its own format under its paths. The guards,
FastAPI's handlers and the routes find the format by path, so early refusals have the right shape too. Every
route and fast path calls this. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec

from client_core import (
    Cause,
    Errors,
    KafkaError,
    Phase,
    ProducerClosedError,
    RecordFailure,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
    Written,
)
from service.wire import reasons
from service.wire.asgi import HeaderPairs
from service.wire.reasons import Reason, reason_of
from service.wire.strict_json import BodyError

PROBLEM_TYPE: Final = b"application/problem+json"

#: The `place` of a fault that concerns the whole body.
WHOLE_BODY: Final = "body"

#: Final errors, from a broker or from the client itself. The status of others depends on `retriable` and
#: `written`.
STATUS_OF_ERROR: Final[Mapping[Errors, int]] = {
    Errors.UNKNOWN_TOPIC_OR_PARTITION: 404,
    Errors.UNKNOWN_TOPIC_ID: 404,
    Errors.INVALID_TOPIC_EXCEPTION: 400,
    Errors.TOPIC_AUTHORIZATION_FAILED: 403,
    Errors.CLUSTER_AUTHORIZATION_FAILED: 403,
    Errors.POLICY_VIOLATION: 403,
    Errors.MESSAGE_TOO_LARGE: 413,
    Errors.RECORD_LIST_TOO_LARGE: 413,
    Errors.INVALID_RECORD: 422,
    Errors.INVALID_TIMESTAMP: 422,
    Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT: 422,
    # The brokers rejected the sidecar's identity: no caller can produce until the operator fixes that.
    Errors.SASL_AUTHENTICATION_FAILED: 503,
    Errors.UNSUPPORTED_SASL_MECHANISM: 503,
    Errors.ILLEGAL_SASL_STATE: 503,
    Errors.BROKER_NOT_AVAILABLE: 503,
}

#: The client's own errors, which have no row in Kafka's table.
STATUS_OF_CLASS: Final[Mapping[type[KafkaError], int]] = {
    ProducerClosedError: 503,
    SerializationError: 422,
}


class UnknownPartitionError(UnknownTopicOrPartitionError):
    """The topic exists, and has no such partition."""


#: The reason of errors that have no row in Kafka's table, or share one.
_REASON_OF_CLASS: Final[Mapping[type[KafkaError], Reason]] = {
    ProducerClosedError: reasons.SHUTTING_DOWN,
    UnknownPartitionError: reasons.UNKNOWN_PARTITION,
}

#: When failures differ, the gravest status wins: first unknown outcomes (504), then the sidecar's failures,
#: then the caller's (4xx).
_GRAVEST_FIRST: Final = (504, 503, 500)

#: Seconds, when nothing better is known. A metadata refresh or a reconnect takes less.
DEFAULT_RETRY_AFTER_S: Final = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document, not yet encoded. `headers` are response headers, not part of the document.

    `reason` and `dialect_code`, a dialect's number, are set only if they do not follow from the other
    members.
    """

    status: int
    detail: str
    kafka_error: str | None = None
    code: int | None = None
    retriable: bool = False
    written: str | None = None
    phase: str | None = None
    waited_ms: int | None = None
    cause: Mapping[str, object] | None = None
    place: str | None = None
    results: list[object] | None = None
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())
    reason: Reason | None = None
    dialect_code: int | None = None
    #: Whether Kafka or the client refused it, not the sidecar itself.
    is_of_client: bool = field(default=False, compare=False)

    @property
    def said_reason(self) -> Reason:
        """Its reason: `type` and title of the document."""
        if self.reason is not None and self.status in self.reason.statuses:
            return self.reason
        return reason_of(self.status, self.kafka_error, self.phase)

    def body(self) -> bytes:
        """Returns the problem as JSON, without the members that do not apply."""
        reason = self.said_reason
        document: dict[str, object] = {
            "type": reason.uri,
            "title": reason.title,
            "status": self.status,
            "detail": self.detail,
            "kafka_error": self.kafka_error,
            "code": self.code,
            "retriable": self.retriable,
        }
        for name in ("written", "phase", "waited_ms", "cause", "place", "results"):
            value = getattr(self, name)
            if value is not None:
                document[name] = value
        return msgspec.json.encode(document)

    def all_headers(self) -> HeaderPairs:
        """Returns its headers, plus Retry-After for 429 and 503."""
        headers = list(self.headers)
        if self.status in (429, 503) and not any(name == b"retry-after" for name, _ in headers):
            headers.append((b"retry-after", b"%d" % DEFAULT_RETRY_AFTER_S))
        return headers


class ProblemError(Exception):
    """Ends a request with a problem document."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail)


def explained(error: KafkaError) -> KafkaError:
    """Returns the brokers' reason for a time-out of metadata, if they gave one; else the error itself.

    The error of any other time-out is returned as it is, with its `cause`.
    """
    cause = error.__cause__
    if error.error is Errors.REQUEST_TIMED_OUT and error.cause is None and isinstance(cause, KafkaError):
        return cause
    return error


def cause_item(cause: Cause) -> dict[str, object]:
    """Returns the `cause` member of a problem, of a record's error, and of `/v1/status`."""
    item: dict[str, object] = {
        "kafka_error": cause.error.name,
        "node": cause.node_id,
        "attempts": cause.attempts,
        "since_ms": cause.since_ms,
        "detail": cause.detail,
    }
    if cause.reason is not None:
        item["reason"] = cause.reason
    return item


def status_of(error: KafkaError, written: Written = Written.NO) -> int:
    """Returns a failure's HTTP status: 503 if retriable and not sent, 504 if the outcome is unknown."""
    if written is Written.NO:
        error = explained(error)
    status = STATUS_OF_CLASS.get(type(error)) or STATUS_OF_ERROR.get(error.error)
    if status is not None and not (status in (404, 503) and written is Written.UNKNOWN):
        return status
    if written is Written.UNKNOWN and (error.retriable or status is not None):
        return 504
    return 503 if error.retriable else 500


def gravest(statuses: Iterable[int]) -> int:
    """Returns the common status, else the gravest of 504, 503, 500 and the 4xx."""
    present = set(statuses)
    for status in _GRAVEST_FIRST:
        if status in present:
            return status
    return max(present)


def _is_retriable(error: KafkaError, status: int) -> bool:
    """Returns whether a retry may succeed. After a shutdown, another process may serve it."""
    return error.retriable or (status == 503 and isinstance(error, ProducerClosedError))


def _row_of(error: KafkaError) -> tuple[str | None, int | None]:
    """Returns Kafka's name and number of an error; None for the client's own."""
    return (None, None) if type(error) in STATUS_OF_CLASS else (error.error.name, error.code)


def problem_of(error: KafkaError, *, phase: Phase | None = None, waited_ms: int | None = None) -> Problem:
    """Returns the problem for a failed request, or for the one record that the error names."""
    said = explained(error)
    at = error.record_index if isinstance(error, RecordTooLargeError) else None
    place = None if at is None else f"records[{at}]"
    detail = error.message if place is None else f"{place}: {error.message}"
    if said is not error and said.error is Errors.UNKNOWN_TOPIC_OR_PARTITION:
        detail += " The brokers have no such topic or partition."
    status = status_of(error)
    kafka_error, code = _row_of(said)
    return Problem(
        status=status,
        # In the text too: the dialects have no member for it.
        detail=detail if said.cause is None else f"{detail.removesuffix('.')}. The cause: {said.cause}",
        kafka_error=kafka_error,
        code=code,
        retriable=_is_retriable(said, status),
        phase=None if phase is None else phase.value,
        waited_ms=waited_ms,
        cause=None if said.cause is None else cause_item(said.cause),
        place=place,
        reason=_REASON_OF_CLASS.get(type(said)),
        is_of_client=True,
    )


def problem_of_failure(failure: RecordFailure) -> Problem:
    """Returns the problem for one failed record."""
    problem = problem_of(failure.error, phase=failure.phase, waited_ms=failure.waited_ms)
    status = status_of(failure.error, failure.written)
    said = failure.error if failure.written is Written.UNKNOWN else explained(failure.error)
    kafka_error, code = _row_of(said)
    return replace(
        problem,
        status=status,
        kafka_error=kafka_error,
        code=code,
        retriable=_is_retriable(said, status),
        written=failure.written.value,
    )


def error_item(problem: Problem) -> dict[str, Any]:
    """Returns the `{"error": …}` item of one failed record or look-up, within a list of results."""
    item: dict[str, Any] = {
        "type": problem.said_reason.uri,
        "kafka_error": problem.kafka_error,
        "code": problem.code,
        "message": problem.detail,
        "retriable": problem.retriable,
    }
    for name in ("written", "phase", "waited_ms", "cause", "place"):
        value = getattr(problem, name)
        if value is not None:
            item[name] = value
    return {"error": item}


def problem_of_body(error: BodyError) -> Problem:
    """Returns the problem for a rejected body; nothing of it was written."""
    return Problem(error.status, str(error), place=error.place or WHOLE_BODY, written=Written.NO.value)


def refused(
    status: int,
    detail: str,
    *headers: tuple[bytes, bytes],
    place: str | None = None,
    retriable: bool = False,
    reason: Reason | None = None,
) -> ProblemError:
    """Returns a refusal by the sidecar itself, before Kafka is involved. The detail starts with `place`."""
    said = detail if place is None else f"{place}: {detail}"
    return ProblemError(
        Problem(status, said, retriable=retriable, place=place, headers=headers, reason=reason)
    )


def out_of_memory() -> ProblemError:
    """Returns the error: the request does not fit into the free memory; nothing was accepted."""
    return refused(503, "memory ran out while the request was read; send less at once", retriable=True)


def problem_of_bug(written: str | None = None) -> Problem:
    """Returns the answer to an unexpected exception; the log has the stack."""
    detail = "the sidecar failed with an unexpected exception; its log has the stack"
    return Problem(500, detail, written=written)


class Refusal(NamedTuple):
    """A problem as a response. Its headers are `Problem.all_headers` plus `headers`."""

    status: int
    media_type: bytes
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


ErrorFormat = Callable[[Problem], Refusal]


def native(problem: Problem) -> Refusal:
    """Returns the problem as application/problem+json."""
    return Refusal(problem.status, PROBLEM_TYPE, problem.body())


class ErrorFormats:
    """Error formats by path prefix: `/v3` covers `/v3` and `/v3/…`, not `/v3x`."""

    def __init__(self, by_prefix: Mapping[str, ErrorFormat]) -> None:
        self._by_prefix = dict(by_prefix)

    def of(self, path: str) -> ErrorFormat:
        """Returns the error format for a request's path; native unless a dialect owns the path."""
        for prefix, error_format in self._by_prefix.items():
            if path.startswith(prefix) and path[len(prefix) : len(prefix) + 1] in ("", "/"):
                return error_format
        return native
