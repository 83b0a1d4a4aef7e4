"""REST Proxy v2's errors, `{"error_code": 40402, "message": "…"}`, and its table of codes.

    Problem ─▶ status and error_code        a request without any acknowledged record, or a look-up
    Problem ─▶ error_code                   one failed record among acknowledged ones

A status without a row is its own code (404 for an unknown path, 406, 413, 415, …). The message adds what no
code can express: whether a failed record may have been written. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from client_core import Errors
from service.dialects.rest_v2.media_types import ANSWER_TYPE
from service.wire.errors import Problem, ProblemError, Refusal
from service.wire.strict_json import MAX_INT32

BAD_REQUEST: Final = 40002
TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
#: Confluent's code for a look-up of a missing topic; only a produce gets 40401.
LOOKED_UP_TOPIC_NOT_FOUND: Final = 40403
#: An unusable schema; a payload of the wrong type; a payload that can't be serialized.
INVALID_SCHEMA: Final = 42205
INVALID_PAYLOAD: Final = 42206
SERIALIZATION: Final = 42207
KAFKA_ERROR: Final = 50002
RETRIABLE: Final = 50003
BROKER_NOT_AVAILABLE: Final = 50302

_CODE_OF_STATUS: Final[Mapping[int, int]] = {
    400: BAD_REQUEST,
    401: 40101,
    403: 40301,
    429: 42901,
    # Nothing was sent: no broker, no leader, no memory, or a shutdown.
    503: BROKER_NOT_AVAILABLE,
}

_MEDIA_TYPE: Final = ANSWER_TYPE.encode()
_MAY_BE_WRITTEN: Final = "; it may still have been written"


def partition_of_path(text: str) -> int:
    """Returns the partition's number. Raises a 404/40402 for text that is no valid number."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INT32)) and int(text) <= MAX_INT32:
        return int(text)
    raise ProblemError(no_partition(f"{text!r} is not a partition number"))


def no_partition(detail: str) -> Problem:
    """Returns the problem for a missing partition of a topic: 404/40402."""
    missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
    return Problem(
        404,
        detail,
        kafka_error=missing.name,
        code=missing.code,
        written="no",
        dialect_code=PARTITION_NOT_FOUND,
    )


def code_of(problem: Problem) -> int:
    """Returns the code of a failed request."""
    if problem.dialect_code is not None:
        return problem.dialect_code
    if _may_be_written(problem):
        return RETRIABLE
    if problem.kafka_error is not None and problem.status in (404, 500):
        return TOPIC_NOT_FOUND if problem.status == 404 else KAFKA_ERROR
    return _CODE_OF_STATUS.get(problem.status, problem.status)


def record_code_of(problem: Problem) -> int:
    """Returns the code of a failed record: 50003 if a retry may help."""
    return RETRIABLE if problem.status in (503, 504) else code_of(problem)


def message_of(problem: Problem) -> str:
    return problem.detail + (_MAY_BE_WRITTEN if _may_be_written(problem) else "")


def error_format(problem: Problem) -> Refusal:
    """Returns a problem as a response, with the records' own failures if they differ."""
    body: dict[str, object] = {"error_code": code_of(problem), "message": message_of(problem)}
    if problem.results is not None:
        body["offsets"] = problem.results
    status = 500 if _may_be_written(problem) else problem.status
    return Refusal(status, _MEDIA_TYPE, msgspec.json.encode(body))


def _may_be_written(problem: Problem) -> bool:
    """Returns whether time ran out after something was sent: a 504, which this dialect lacks."""
    return problem.status == 504 or (problem.status == 503 and problem.written == "unknown")
