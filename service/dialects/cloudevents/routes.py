"""POST /cloudevents/{topic}: one event or a batch. The answer follows the brokers' acknowledgement.

    /cloudevents/{topic}           publishCloudEvent     an envelope; any other mode as well
    /cloudevents/{topic}/binary    publishEventData      binary mode only
    /cloudevents/{topic}/batch     publishCloudEvents    a batch only

    202   all events are acknowledged; with their partitions and offsets
    207   some of a batch are; Pilotfish-Failed-Records counts the others
    else  none is: the common cause's status, else the gravest, as a problem document

The media type selects the content mode, as in the HTTP binding. Event loop only.

Includes the OpenAPI description: the dialect parses bodies and headers itself. The event's schema is the
specification's (cloudevents.json) plus what it forbids.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from client_core import ProducerRecord
from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.dialects.cloudevents.binary import record_of_binary
from service.dialects.cloudevents.structured import record_of_envelope, records_of_batch
from service.produce.produce_answers import Answer, answer_of
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import HeaderPairs, header
from service.wire.errors import ProblemError, refused
from service.wire.media_type import check_encoding
from service.wire.responses import as_is, problems, with_headers
from service.wire.schemas import NoQuery, ProduceAnswer

_FAMILY: Final = "application/cloudevents"
_STRUCTURED: Final = "application/cloudevents+json"
_BATCH: Final = "application/cloudevents-batch+json"

#: Media types of envelopes that a path takes; None is binary mode.
Modes = tuple[str | None, ...]
_ANY_MODE: Final[Modes] = (None, _STRUCTURED, _BATCH)

_ACCEPTED: Final = 202


_TOKEN: Final = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - a pattern
_QUOTED: Final = r'"[ !#-\[\]-~]*"'
_TEXT_OR_NULL: Final[dict[str, Any]] = {"type": ["string", "null"], "minLength": 1}

_EXAMPLE: Final[dict[str, Any]] = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "/mycontext",
    "type": "com.example.someevent",
    "partitionkey": "customer-7",
    "datacontenttype": "application/json",
    "data": {"total": 12.5},
}

EVENT: Final[dict[str, Any]] = {
    "title": "CloudEvent",
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"type": "string", "const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1, "format": "uri-reference"},
        "type": {"type": "string", "minLength": 1},
        "datacontenttype": {
            **_TEXT_OR_NULL,
            "pattern": f"^{_TOKEN}/{_TOKEN}( *; *{_TOKEN}=({_TOKEN}|{_QUOTED}))*$",
        },
        "dataschema": {**_TEXT_OR_NULL, "format": "uri"},
        "subject": _TEXT_OR_NULL,
        "time": {**_TEXT_OR_NULL, "format": "date-time"},
        "partitionkey": {**_TEXT_OR_NULL, "description": "Becomes the record's key."},
        "data": {"description": "Any JSON."},
        "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
    },
    "additionalProperties": True,  # strings, booleans and integers
    "example": _EXAMPLE,
}

_HEADERS: Final = (
    ("ce-specversion", "1.0", "In binary mode every event has ce-specversion, ce-id, ce-source and ce-type."),
    ("ce-id", "A234-1234-1234", "Values are percent-encoded UTF-8."),
    ("ce-source", "/mycontext", "A URI-reference."),
    ("ce-type", "com.example.someevent", "Other attributes have headers, too: ce-subject, ce-time."),
    ("ce-partitionkey", "customer-7", "Becomes the record's key."),
)

_FORMATS: Final = {"ce-specversion": {"pattern": r"^1\.0$"}, "ce-source": {"format": "uri-reference"}}
_REQUIRED: Final = ("ce-specversion", "ce-id", "ce-source", "ce-type")
_PARAMETERS: Final = [
    {
        "name": name,
        "in": "header",
        "required": name in _REQUIRED,
        "schema": {"type": "string", "minLength": 1, **_FORMATS.get(name, {})},
        "example": example,
        "description": description,
    }
    for name, example, description in _HEADERS
]


def _body(media_type: str, schema: dict[str, Any], example: object) -> dict[str, Any]:
    content = {media_type: {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


_ACKNOWLEDGED: Final[dict[str, Any]] = {
    "status_code": _ACCEPTED,
    "response_model": ProduceAnswer,
    "response_description": "All of the events were acknowledged.",
}
_SOME_FAILED: Final[dict[int | str, dict[str, Any]]] = {
    207: {
        "model": ProduceAnswer,
        "description": "Some of a batch failed.",
        "headers": with_headers("Pilotfish-Failed-Records"),
    }
}
_NoParameters = Annotated[NoQuery, Query()]


def events_router(events: Events) -> APIRouter:
    """Returns the routes, with their OpenAPI descriptions."""
    refusals = problems(400, 404, 408, 413, 415, 422, 429, 500, 503, 504)
    router = APIRouter(tags=["cloudevents"], responses=refusals)

    @router.post(
        "/cloudevents/{topic}",
        operation_id="publishCloudEvent",
        openapi_extra=_body(_STRUCTURED, EVENT, _EXAMPLE),
        **_ACKNOWLEDGED,
    )
    async def post_events(request: Request, topic: str, _: _NoParameters) -> Response:
        """Writes a CloudEvent to a topic. Takes binary mode and batches, too."""
        return await events.post(topic, request, _ANY_MODE)

    @router.post(
        "/cloudevents/{topic}/binary",
        operation_id="publishEventData",
        openapi_extra={
            "parameters": _PARAMETERS,
            **_body(
                "application/json",
                {"description": "The event's data. Any media type is allowed."},
                {"total": 12.5},
            ),
        },
        **_ACKNOWLEDGED,
    )
    async def post_data(request: Request, topic: str, _: _NoParameters) -> Response:
        """Writes a CloudEvent to a topic: its attributes as headers, its data as the body."""
        return await events.post(topic, request, (None,))

    @router.post(
        "/cloudevents/{topic}/batch",
        operation_id="publishCloudEvents",
        openapi_extra=_body(_BATCH, {"type": "array", "items": EVENT}, [_EXAMPLE]),
        responses=_SOME_FAILED,
        **_ACKNOWLEDGED,
    )
    async def post_batch(request: Request, topic: str, _: _NoParameters) -> Response:
        """Writes a batch of CloudEvents to a topic."""
        return await events.post(topic, request, (_BATCH,))

    return router


class Events:
    """The handler of the route."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._clock = sidecar.producer.clock
        self._producing = sidecar.producing
        self._admission = sidecar.admission
        self._limits = sidecar.limits
        self._body_threads = sidecar.body_threads
        self._metrics = sidecar.http
        self._failed = sidecar.failed

    async def post(self, topic: str, request: Request, modes: Modes) -> Response:
        """Serves one request. Raises ProblemError if nothing of it was accepted."""
        with self._metrics.produce(request.scope) as timed:
            answer = await self._answer(topic, request, modes)
            timed.outcome = answer.outcome
            if answer.problem is not None:
                self._failed.add(request.scope, request.scope["route"].path, topic, answer.problem)
            return as_is(answer.status, answer.headers, answer.body)

    async def _answer(self, topic: str, request: Request, modes: Modes) -> Answer:
        since_ms = self._clock.now_ms()
        scope, caller = request.scope, caller_of(request.scope)
        try:
            self._producing.check(topic, caller)
            check_encoding(header(scope, b"content-encoding"))
            media_type = _envelope_type(header(scope, b"content-type"))
            if media_type not in modes:
                must = "does not fit the mode of this path; POST /cloudevents/{topic} accepts every mode"
                raise refused(415, must, place="Content-Type")
            with self._admission.acquire(announced_bytes(scope), caller) as permit:
                body = await read_body(
                    request.scope, request.receive, permit, self._producing.times.timeout_ms
                )
                records = await self._body_threads.read(
                    partial(self._records, topic, media_type, scope["headers"]), body
                )
                del body
                if not records:
                    return answer_of(topic, (), _ACCEPTED)
                times = self._producing.dialect_times(topic, since_ms=since_ms)
                result = await self._producing.deliver(
                    topic, records, times, since_ms=since_ms, permit=permit, receive=request.receive
                )
        except ProblemError as e:
            raise ProblemError(replace(e.problem, written="no")) from e
        return await self._producing.answered(
            records, result, lambda outcomes: answer_of(topic, outcomes, _ACCEPTED)
        )

    def _records(
        self, topic: str, media_type: str | None, headers: HeaderPairs, body: bytes
    ) -> list[ProducerRecord]:
        if media_type == _BATCH:
            return records_of_batch(topic, body, self._limits)
        if media_type == _STRUCTURED:
            return [record_of_envelope(topic, body, self._limits)]
        return [record_of_binary(topic, headers, body)]


def _envelope_type(content_type: bytes | None) -> str | None:
    """Returns the media type of a JSON envelope or batch; None for binary mode. Raises a 415."""
    said = (content_type or b"").decode("latin-1").strip().lower()
    if not said.startswith(_FAMILY):
        return None
    media_type, _, parameters = said.partition(";")
    media_type = media_type.rstrip()
    if media_type not in (_STRUCTURED, _BATCH):
        raise refused(415, f"only the JSON formats of CloudEvents are supported: {_STRUCTURED} and {_BATCH}")
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in ("utf-8", "utf8"):
            raise refused(415, f"{media_type}: the charset must be UTF-8")
    return media_type
