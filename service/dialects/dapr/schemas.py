"""The OpenAPI description of Dapr's API; the dialect parses bodies and metadata itself."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from service.dialects.dapr.publish_metadata import BOOLEANS, DURATION
from service.wire.schemas import AnswerModel, Query, error_answers
from service.wire.strict_json import MAX_INT32


class HealthQuery(Query):
    appid: str | None = Field(None, description="Answers 500 if it differs from service_name.")


class ErrorDetail(AnswerModel):
    """google.rpc.ErrorInfo."""

    type: str = Field(alias="@type")
    reason: str
    domain: str
    metadata: dict[str, str]


class DaprError(AnswerModel):
    errorCode: str
    message: str
    details: list[ErrorDetail] | None = None


class FailedEntry(AnswerModel):
    entryId: str
    error: str


class BulkFailure(AnswerModel):
    failedEntries: list[FailedEntry]
    errorCode: str


class Component(AnswerModel):
    name: str
    type: str
    version: str
    capabilities: list[str]


class MetadataAnswer(AnswerModel):
    id: str
    runtimeVersion: str
    enabledFeatures: list[str]
    actors: list[dict[str, Any]]
    components: list[Component]
    extended: dict[str, str]
    subscriptions: list[dict[str, Any]]
    httpEndpoints: list[dict[str, Any]]


#: A route's errors, for the OpenAPI document.
dapr_errors: Final = error_answers(
    DaprError,
    {
        400: "The request is malformed: its metadata, its entries, or the topic's name.",
        403: "The topic is not allowed, here or by Kafka.",
        404: "There is no such pubsub (`dapr_pubsub_names`), or the topic is empty.",
        408: "The body did not arrive in time.",
        413: "The body or an event is too large.",
        415: "The body is encoded (Content-Encoding).",
        422: "The request is well-formed but invalid.",
        429: "Too many requests or bytes wait already; nothing was written.",
        500: "Not delivered; `details` have Kafka's error, and whether anything was written.",
        503: "The sidecar is shutting down; nothing was sent.",
    },
)


def _metadata(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": f"metadata.{name}", "in": "query", "schema": schema, "description": description}


_PARAMETERS: Final = [
    _metadata(
        "rawPayload",
        {"type": "string", "pattern": f"^({'|'.join(BOOLEANS)})?$"},
        "Whether the body is sent without an envelope: true or false.",
    ),
    _metadata("partitionKey", {"type": "string"}, "The record's key."),
    _metadata(
        "partitionNumber",
        {"type": "integer", "minimum": 0, "maximum": MAX_INT32},
        "The record's partition.",
    ),
    _metadata(
        "ttlInSeconds",
        {"type": "string", "pattern": f"^([1-9][0-9]{{0,8}}|{DURATION})?$"},
        "When the envelope expires: seconds, or a duration such as 1m30s.",
    ),
]

_ENTRY: Final[dict[str, Any]] = {
    "title": "DaprBulkEntry",
    "type": "object",
    "additionalProperties": False,
    "required": ["entryId", "event", "contentType"],
    "properties": {
        "entryId": {"type": "string", "minLength": 1, "description": "Distinct within the request."},
        "event": {"description": "JSON for JSON types, else a string; base64 for application/octet-stream."},
        "contentType": {"type": "string", "minLength": 1},
        "metadata": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
    },
}

PUBLISH_REQUEST: Final[dict[str, Any]] = {
    "parameters": _PARAMETERS,
    "requestBody": {
        "content": {
            "application/json": {
                "schema": {"description": "The event. Any media type is allowed."},
                "example": {"orderId": "100"},
            },
        }
    },
}

BULK_REQUEST: Final[dict[str, Any]] = {
    "parameters": _PARAMETERS,
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "array", "items": _ENTRY},
                "example": [
                    {"entryId": "1", "event": "first text message", "contentType": "text/plain"},
                    {"entryId": "2", "event": {"message": "second"}, "contentType": "application/json"},
                ],
            }
        },
    },
}
