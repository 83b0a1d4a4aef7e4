"""Shared query parameters and their checks, and shapes of errors for the OpenAPI document.

The query models validate requests; the others only describe what `errors.py` writes, and tests keep both
equal. `check_query` refuses what FastAPI would misread. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote_to_bytes

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.base.topic_names import MAX_LENGTH
from service.wire.errors import refused
from service.wire.strict_json import MAX_INT32
from service.wire.waiting import MAX_WAIT_MS

#: Example answers, by method, path and status.
Examples = Mapping[tuple[str, str, str], object]


def digits_only(value: object) -> object:
    """Rejects 1.0, 1_0 and surrounding blanks, which pydantic accepts as whole numbers."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        raise ValueError("must be a whole number in plain digits")
    return value


# The bounds come first: otherwise the document would not treat them as an integer's.
Milliseconds = Annotated[int, Field(ge=0, le=MAX_WAIT_MS), BeforeValidator(digits_only)]
Int32 = Annotated[int, Field(ge=0, le=MAX_INT32), BeforeValidator(digits_only)]


def error_answers(
    model: type[BaseModel], descriptions: Mapping[int, str], media_type: str = "application/json"
) -> Callable[..., dict[int | str, dict[str, Any]]]:
    """Returns a function from statuses to a route's `responses` in the OpenAPI document.

    References the model by name: otherwise FastAPI makes a validator per answer and route, half of the
    start-up time. openapi.py adds the model to the document.
    """
    content = {media_type: {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}

    def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
        return {
            status: {"description": descriptions[status], "content": deepcopy(content)} for status in statuses
        }

    return described


class AnswerModel(BaseModel):
    """An answer or a part of one, for the OpenAPI document only: validators are made when it is asked for."""

    model_config = ConfigDict(defer_build=True)


class Query(BaseModel):
    """Unknown parameters are refused: a misspelt deadline must not become none."""

    model_config = ConfigDict(extra="forbid")


class NoQuery(Query):
    """A call that takes no parameters."""


async def check_query(request: Request) -> None:
    """Raises ProblemError (400) for a repeated parameter, or a query that is not UTF-8.

    FastAPI would keep the last value, and replace invalid bytes by replacement characters. It is a coroutine,
    though it awaits nothing, because FastAPI runs plain functions in a thread pool.
    """
    names = [name for name, _ in request.query_params.multi_items()]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise refused(400, "is given twice", place=f"query.{twice}")
    try:
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError as e:
        raise refused(400, "invalid UTF-8", place="query") from e


class WaitQuery(Query):
    max_block_ms: Milliseconds | None = Field(
        None, description="How long to wait for metadata at most (Kafka's max.block.ms, for this request)."
    )


TOPIC_NAME: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": "^[a-zA-Z0-9._-]+$",
    "minLength": 1,
    "maxLength": MAX_LENGTH,
}

#: A header of a record in a body that is parsed by hand.
RECORD_HEADER: Final[dict[str, Any]] = {
    "title": "RecordHeader",
    "type": "object",
    "additionalProperties": False,
    "required": ["key", "value"],
    "properties": {
        "key": {"type": "string"},
        "value": {"type": ["string", "null"], "contentEncoding": "base64"},
    },
}


class Receipt(AnswerModel):
    partition: int
    offset: int | None = Field(description="Null if the broker did not report it.")
    timestamp: int


class CauseOfTimeout(AnswerModel):
    """The last error of the attempts, until a deadline passed or a broker refused the sidecar."""

    kafka_error: str = Field(description="Kafka's name; NETWORK_EXCEPTION if there is no connection.")
    node: int | None = Field(description="The broker; null if there is no leader, or no metadata yet.")
    attempts: int = Field(
        description="Failed attempts in a row with this error; 0 if the first has not ended."
    )
    since_ms: int = Field(description="Since the first of these attempts failed; with 0, since it began.")
    detail: str
    reason: str | None = Field(
        None, description="Why the connection failed, as in pilotfish_broker_disconnects_total, if it has."
    )


class ItemError(AnswerModel):
    type: str = Field("about:blank", description="The URI of the reason, as in a problem's `type`.")
    kafka_error: str | None
    code: int | None
    message: str
    retriable: bool
    written: Literal["no", "unknown"] | None = None
    phase: Literal["metadata", "buffer", "delivery"] | None = None
    waited_ms: int | None = None
    cause: CauseOfTimeout | None = None
    place: str | None = None


class FailedItem(AnswerModel):
    error: ItemError


class ProduceAnswer(AnswerModel):
    topic: str
    results: list[Receipt | FailedItem] = Field(description="One per record, in order.")


class TopicReceipt(Receipt):
    topic: str


class TopicFailedItem(FailedItem):
    topic: str


class ManyAnswer(AnswerModel):
    results: list[TopicReceipt | TopicFailedItem] = Field(description="One per record, in order.")


class ProblemAnswer(AnswerModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    kafka_error: str | None
    code: int | None
    retriable: bool
    written: Literal["no", "unknown"] | None = None
    phase: Literal["metadata", "buffer", "delivery"] | None = None
    waited_ms: int | None = None
    cause: CauseOfTimeout | None = None
    place: str | None = None
    results: list[Receipt | FailedItem | TopicFailedItem] | None = None
