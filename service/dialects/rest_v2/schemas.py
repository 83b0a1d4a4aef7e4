"""REST Proxy v2's shapes, for the OpenAPI document only.

answers.py encodes the answers, records.py parses the bodies; tests keep these models equal to both.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path, Query
from fastapi.responses import JSONResponse
from pydantic import Field

from service.dialects.rest_v2.media_types import ANSWER_TYPE, FORMATS
from service.produce.records_codec import MAX_TIMESTAMP_MS
from service.wire.payload import Format
from service.wire.schemas import RECORD_HEADER, AnswerModel, NoQuery, error_answers
from service.wire.strict_json import MAX_INT32


class ResponseV2(JSONResponse):
    """Only for the document: the media type of all answers."""

    media_type = ANSWER_TYPE


NoParameters = Annotated[NoQuery, Query()]
#: A number to those who read the document; text here, because other text is a 404 in this API.
PartitionPath = Annotated[
    str,
    Path(
        json_schema_extra={"type": "integer", "minimum": 0, "maximum": MAX_INT32},
        description="The partition's number.",
    ),
]


class Replica(AnswerModel):
    broker: int
    leader: bool
    in_sync: bool


class PartitionV2(AnswerModel):
    partition: int
    leader: int = Field(description="The leader's broker id; -1 while the partition has none.")
    replicas: list[Replica]


class OffsetsV2(AnswerModel):
    beginning_offset: int = Field(description="The offset of the first record that is kept.")
    end_offset: int = Field(description="The offset that the next record gets.")


class TopicV2(AnswerModel):
    name: str
    configs: dict[str, str | None] = Field(
        description="By name; null for a sensitive one. Empty if the brokers do not return them."
    )
    partitions: list[PartitionV2]


class BrokersV2(AnswerModel):
    brokers: list[int]


class OffsetV2(AnswerModel):
    """One record: where it lies, or why it was not acknowledged."""

    partition: int | None
    offset: int | None
    error_code: int | None
    error: str | None
    message: str | None = Field(None, description="The same text as `error`; present only if `error` is.")


class ProduceAnswerV2(AnswerModel):
    offsets: list[OffsetV2] = Field(description="One per record, in order.")
    key_schema_id: None
    value_schema_id: None


class ErrorV2(AnswerModel):
    error_code: int
    message: str
    offsets: list[OffsetV2] | None = Field(
        None, description="One per record, if none was acknowledged and the reasons differ."
    )


#: A route's errors, for the OpenAPI document.
errors: Final = error_answers(
    ErrorV2,
    {
        400: "40002: the body is not JSON or has the wrong shape, or the topic's name is invalid.",
        403: "40301: the topic is not allowed, here or by Kafka's ACL.",
        404: "40401: produce to a missing topic; 40403: look-up of a missing topic; 40402: no such "
        "partition.",
        406: "Accept allows no media type that is served.",
        408: "The body did not arrive in time.",
        413: "The body, a record or the number of records is too large.",
        415: "The Content-Type is none of the three formats, or the body has a Content-Encoding.",
        422: "422: there are no records, or a member or parameter is unknown; 42205: the body names a "
        "schema; 42206: a key or value is of the wrong kind; 42207: a key or value can't be serialized.",
        429: "42901: too many requests or bytes wait already; nothing was written.",
        500: "50002: Kafka refused; 50003: time ran out, and the records may have been written.",
        503: "50302: no broker or leader in time, memory was full, or a shutdown; nothing was written.",
    },
    ANSWER_TYPE,
)


#: The answer to `async=true`, for the OpenAPI document.
NO_OFFSETS: Final[dict[int | str, dict[str, Any]]] = {
    204: {"description": "All records were acknowledged, and the caller said `async=true`."}
}

# -- the body of a produce request ---------------------------------------------------------------------------

_PAYLOADS: Final[dict[Format, dict[str, Any]]] = {
    Format.JSON: {"description": "Any JSON. Null, or an absent member, means no key or no value."},
    Format.TEXT: {"type": ["string", "null"]},
    Format.BASE64: {"type": ["string", "null"], "contentEncoding": "base64"},
}

_EXAMPLES: Final[dict[Format, dict[str, Any]]] = {
    Format.JSON: {"records": [{"key": "k", "value": {"total": 7}}, {"key": "k", "value": None}]},
    Format.TEXT: {"records": [{"key": "k", "value": "v", "partition": 0}]},
    Format.BASE64: {"records": [{"value": "aGVsbG8=", "headers": [{"key": "h", "value": "dg=="}]}]},
}


_NAMES: Final = {Format.JSON: "Json", Format.TEXT: "Text", Format.BASE64: "Binary"}


def _body_schema(form: Format) -> dict[str, Any]:
    record = {
        "title": f"{_NAMES[form]}RecordV2",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "key": _PAYLOADS[form],
            "value": _PAYLOADS[form],
            "partition": {
                "anyOf": [
                    {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_INT32},
                    {"type": "string", "pattern": "^[0-9]{1,9}$"},
                ]
            },
            "timestamp": {
                "type": ["integer", "null"],
                "minimum": 0,
                "maximum": MAX_TIMESTAMP_MS,
                "description": "Milliseconds since 1970; now if null or absent.",
            },
            "headers": {"type": ["array", "null"], "items": RECORD_HEADER},
        },
    }
    return {
        "title": f"{_NAMES[form]}ProduceBodyV2",
        "type": "object",
        "additionalProperties": False,
        "required": ["records"],
        "properties": {"records": {"type": "array", "minItems": 1, "items": record}},
    }


#: `openapi_extra` of a produce route.
PRODUCE_REQUEST: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "async",
            "in": "query",
            "required": False,
            "description": "A parameter of Strimzi's bridge. With `true`, the answer is 204 without "
            "offsets if all records were acknowledged. The answer is not sent any sooner.",
            "schema": {"type": "boolean"},
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            media_type: {"schema": _body_schema(form), "example": _EXAMPLES[form]}
            for media_type, form in FORMATS.items()
        },
    },
}
