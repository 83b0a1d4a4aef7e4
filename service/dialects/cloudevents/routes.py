"""POST /cloudevents/{topic}: one event or a batch, answered after the brokers' acknowledgement.

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

from client_core import Clock, ProducerRecord
from service.admission.admission_control import AdmissionControl
from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.dialects.cloudevents.binary import record_of_binary
from service.dialects.cloudevents.structured import record_of_envelope, records_of_batch
from service.observe.http_metrics import HttpMetrics
from service.produce.body_threads import BodyThreads
from service.produce.produce_answers import Answer, answer_of
from service.produce.producing import Producing
from service.wire.asgi import HeaderPairs, header
from service.wire.errors import ProblemError, problem_of_body, refused
from service.wire.json_parts import BodyLimits
from service.wire.media_type import check_encoding
from service.wire.responses import as_is, problems
from service.wire.schemas import NoQuery, ProduceAnswer
from service.wire.strict_json import BodyError

_FAMILY: Final = "application/cloudevents"
_STRUCTURED: Final = "application/cloudevents+json"
_BATCH: Final = "application/cloudevents-batch+json"

_ACCEPTED: Final = 202


_TEXT_OR_NULL: Final[dict[str, Any]] = {"type": ["string", "null"], "minLength": 1}

EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        "id": {"type": "string", "minLength": 1},
        "source": {"type": "string", "minLength": 1, "format": "uri-reference"},
        "type": {"type": "string", "minLength": 1},
        "datacontenttype": _TEXT_OR_NULL,
        "dataschema": {**_TEXT_OR_NULL, "format": "uri"},
        "subject": _TEXT_OR_NULL,
        "time": {**_TEXT_OR_NULL, "format": "date-time"},
        "partitionkey": {**_TEXT_OR_NULL, "description": "Becomes the record's key."},
        "data": {"description": "Any JSON."},
        "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
    },
    "propertyNames": {"pattern": "^([a-z0-9]+|data_base64)$"},
    "additionalProperties": {"type": ["string", "boolean", "integer", "null"]},
}

_EXAMPLE: Final[dict[str, Any]] = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "/mycontext",
    "type": "com.example.someevent",
    "partitionkey": "customer-7",
    "datacontenttype": "application/json",
    "data": {"total": 12.5},
}

_HEADERS: Final = (
    ("ce-specversion", "1.0", "In binary mode every event has ce-specversion, ce-id, ce-source and ce-type."),
    ("ce-id", "A234-1234-1234", "Values are percent-encoded UTF-8."),
    ("ce-source", "/mycontext", "A URI-reference."),
    ("ce-type", "com.example.someevent", "Other attributes have headers, too: ce-subject, ce-time."),
    ("ce-partitionkey", "customer-7", "Becomes the record's key."),
)

REQUEST: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": name,
            "in": "header",
            "schema": {"type": "string"},
            "example": example,
            "description": description,
        }
        for name, example, description in _HEADERS
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/cloudevents+json": {"schema": EVENT, "example": _EXAMPLE},
            "application/cloudevents-batch+json": {
                "schema": {"type": "array", "items": EVENT},
                "example": [_EXAMPLE],
            },
            "application/json": {
                "schema": {"description": "Binary mode: the event's data. Any media type is allowed."},
                "example": {"total": 12.5},
            },
        },
    },
}


def events_router(events: Events) -> APIRouter:
    """Returns the route, with its OpenAPI description."""
    router = APIRouter(tags=["cloudevents"])

    @router.post(
        "/cloudevents/{topic}",
        status_code=_ACCEPTED,
        response_model=ProduceAnswer,
        response_description="All of the events were acknowledged.",
        responses={
            **problems(400, 404, 408, 413, 415, 422, 429, 500, 503, 504),
            207: {
                "model": ProduceAnswer,
                "description": "Some of a batch failed; Pilotfish-Failed-Records counts them.",
            },
        },
        openapi_extra=REQUEST,
    )
    async def post_events(request: Request, topic: str, _: Annotated[NoQuery, Query()]) -> Response:
        """Writes one CloudEvent, or a batch, to a topic: in binary, structured or batch mode."""
        return await events.post(topic, request)

    return router


class Events:
    """The handler of the route."""

    def __init__(
        self,
        *,
        clock: Clock,
        producing: Producing,
        admission: AdmissionControl,
        limits: BodyLimits,
        body_threads: BodyThreads,
        metrics: HttpMetrics,
    ) -> None:
        self._clock = clock
        self._producing = producing
        self._admission = admission
        self._limits = limits
        self._body_threads = body_threads
        self._metrics = metrics

    async def post(self, topic: str, request: Request) -> Response:
        """Serves one request. Raises ProblemError if nothing of it was accepted."""
        with self._metrics.produce(request.scope) as timed:
            answer = await self._answer(topic, request)
            timed.outcome = answer.outcome
            return as_is(answer.status, answer.headers, answer.body)

    async def _answer(self, topic: str, request: Request) -> Answer:
        since_ms = self._clock.now_ms()
        scope, caller = request.scope, caller_of(request.scope)
        try:
            self._producing.check(topic, caller)
            check_encoding(header(scope, b"content-encoding"))
            media_type = _envelope_type(header(scope, b"content-type"))
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
        except BodyError as e:
            raise ProblemError(problem_of_body(e)) from e
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
