"""REST Proxy v3's errors: `{"error_code": 40403, "message": "…"}`.

    40002 40101 40301 40401 40402 40403       Kafka refused, by Confluent's numbers
    50002 50003 50302                         Kafka failed: for good, for now, no broker available
    400 404 405 408 413 415 421 422 429 503   the HTTP status, for the sidecar's own refusals
    42206 42208                               an empty body, an invalid batch

For a record, an unknown topic is 40401 and an unknown partition 40402; in metadata reads an unknown topic is
40403. Pure.
Source: KafkaExceptionMapper (rest-utils), Errors and StreamingResponse (kafka-rest), August 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from client_core import Errors
from service.wire.errors import Problem, ProblemError, Refusal
from service.wire.media_type import JSON
from service.wire.strict_json import BodyError

BAD_REQUEST: Final = 40002
TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
#: Confluent's actual code for metadata of a missing topic.
UNKNOWN_TOPIC_OR_PARTITION: Final = 40403
EMPTY_BODY: Final = 42206
NOT_A_BATCH: Final = 42208
KAFKA_ERROR: Final = 50002
RETRIABLE: Final = 50003
NO_BROKER: Final = 50302

#: By status, for Kafka's errors; others are 50302, 50003 or 50002.
_CODE_OF_STATUS: Final[Mapping[int, int]] = {
    400: BAD_REQUEST,
    403: 40301,
    404: UNKNOWN_TOPIC_OR_PARTITION,
    413: 413,
    422: 422,
    429: 429,
}

#: By status, for the sidecar's own refusals; others use the status.
_CODE_OF_REFUSAL: Final[Mapping[int, int]] = {401: 40101}

_NOT_THERE: Final = frozenset({Errors.UNKNOWN_TOPIC_OR_PARTITION.name, Errors.UNKNOWN_TOPIC_ID.name})

_UNKNOWN_OUTCOME: Final = "; whether the record was written is unknown, so a retry may write it twice"


def error_format(problem: Problem) -> Refusal:
    """Returns the problem as a response."""
    return Refusal(problem.status, JSON, msgspec.json.encode(error_json(problem)))


def error_json(problem: Problem, code: int | None = None) -> dict[str, object]:
    """Returns the error object; `code` overrides the error_code."""
    message = problem.detail + (_UNKNOWN_OUTCOME if problem.written == "unknown" else "")
    return {"error_code": error_code(problem) if code is None else code, "message": message}


def error_code(problem: Problem) -> int:
    """Returns Confluent's number for the problem."""
    if problem.dialect_code is not None:
        return problem.dialect_code
    if problem.kafka_error is None and not problem.is_of_client:
        return _CODE_OF_REFUSAL.get(problem.status, problem.status)
    found = _CODE_OF_STATUS.get(problem.status)
    if found is not None:
        return found
    if problem.status == 503 and problem.phase in (None, "metadata"):
        return NO_BROKER
    return RETRIABLE if problem.retriable else KAFKA_ERROR


def code_of_record(problem: Problem, *, lacks_partition: bool) -> int:
    """Returns the error_code for a record: missing topics and missing partitions have their own numbers."""
    if problem.kafka_error in _NOT_THERE and problem.status == 404:
        return PARTITION_NOT_FOUND if lacks_partition else TOPIC_NOT_FOUND
    return error_code(problem)


def refused_with(status: int, code: int, detail: str) -> ProblemError:
    """Returns a refusal whose error_code is not its status."""
    return ProblemError(Problem(status, detail, written="no", dialect_code=code))


def problem_of_record(error: BodyError) -> Problem:
    """Returns the problem of an invalid record."""
    code = PARTITION_NOT_FOUND if error.status == 404 else error.status
    return Problem(error.status, str(error), written="no", dialect_code=code)
