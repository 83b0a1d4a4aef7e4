"""Errors as REST Proxy v2 tells them: `{"error_code": 40402, "message": "…"}`, and one table of its codes.

    Problem ─▶ status and error_code        a request of which nothing was acknowledged, or a look-up
    Problem ─▶ error_code                   one record among others that were

A status that no row names is its own code (404 for a path that nobody serves, 406, 413, 415, …). What a code
can't tell, the message does: whether a record that failed may have been written all the same. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

import msgspec

from client_core import Errors
from service.dialects.rest_v2.media_types import ANSWER_TYPE
from service.wire.errors import Problem, ProblemError, Refusal
from service.wire.strict_json import MAX_INT32

BAD_REQUEST: Final = 40002
TOPIC_NOT_FOUND: Final = 40401
PARTITION_NOT_FOUND: Final = 40402
#: What Confluent's proxy says of a topic that is looked up and is not there; only a produce gets 40401.
LOOKED_UP_TOPIC_NOT_FOUND: Final = 40403
#: A schema where none can be used; a payload of the wrong kind; one that can't be made into bytes.
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
    # Nothing of the request was sent: no broker, no leader, no memory, or a shutdown.
    503: BROKER_NOT_AVAILABLE,
}

_MEDIA_TYPE: Final = ANSWER_TYPE.encode()
_MAY_BE_WRITTEN: Final = "; it may have been written all the same"


@dataclass(frozen=True, slots=True)
class CodedProblem(Problem):
    """A problem whose code follows from more than its status."""

    error_code: int = 0


def coded(problem: Problem, error_code: int) -> CodedProblem:
    """The same problem under this code."""
    known = {field.name: getattr(problem, field.name) for field in fields(Problem)}
    return CodedProblem(**known, error_code=error_code)


def partition_of_path(text: str) -> int:
    """The partition's number. What can't be one is no partition of any topic: raises a 404/40402."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INT32)) and int(text) <= MAX_INT32:
        return int(text)
    raise ProblemError(no_partition(f"{text!r} is no partition's number"))


def no_partition(detail: str) -> Problem:
    """A topic that has no such partition: 404/40402."""
    missing = Errors.UNKNOWN_TOPIC_OR_PARTITION
    return CodedProblem(
        404,
        detail,
        kafka_error=missing.name,
        code=missing.code,
        written="no",
        error_code=PARTITION_NOT_FOUND,
    )


def code_of(problem: Problem) -> int:
    """The code of a request's failure."""
    if isinstance(problem, CodedProblem):
        return problem.error_code
    if _may_be_written(problem):
        return RETRIABLE
    if problem.kafka_error is not None and problem.status in (404, 500):
        return TOPIC_NOT_FOUND if problem.status == 404 else KAFKA_ERROR
    return _CODE_OF_STATUS.get(problem.status, problem.status)


def record_code_of(problem: Problem) -> int:
    """The code of one record's failure: whatever is worth another try is 50003."""
    return RETRIABLE if problem.status in (503, 504) else code_of(problem)


def message_of(problem: Problem) -> str:
    return problem.detail + (_MAY_BE_WRITTEN if _may_be_written(problem) else "")


def error_format(problem: Problem) -> Refusal:
    """A problem as an answer of this dialect; with the records' own failures where they differ."""
    body: dict[str, object] = {"error_code": code_of(problem), "message": message_of(problem)}
    if problem.results is not None:
        body["offsets"] = problem.results
    status = 500 if _may_be_written(problem) else problem.status
    return Refusal(status, _MEDIA_TYPE, msgspec.json.encode(body))


def _may_be_written(problem: Problem) -> bool:
    """Whether time ran out after something was sent: a 504, which this dialect does not know."""
    return problem.status == 504 or (problem.status == 503 and problem.written == "unknown")
