"""FastAPI's produce routes, and their OpenAPI descriptions; produce_endpoint.py does the work.

    POST …/records           produceRecords    many records as JSON
    POST …/records/bytes     produceBytes      one record's value
    POST …/records/stream    produceStream     a record per line
    POST …/records/spool     spoolRecords      many records as JSON, to the spool

The first path takes all three media types, and `delivery=spool`. The others are for clients that are
generated from the document: many generators understand only the first media type of an operation, and only
the first kind of its answers.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from service.native.schemas import (
    FORMATS,
    MANY_BODY,
    MANY_EXAMPLE,
    PRODUCE_BODY,
    PRODUCE_EXAMPLE,
    SpooledAnswer,
)
from service.produce.idempotency import KEY_PATTERN
from service.produce.many_topics import OWN_TOPICS
from service.produce.ndjson import STREAM, is_ndjson
from service.produce.produce_endpoint import MANY_ROUTE, ROUTE, ProduceEndpoint
from service.produce.produce_forms import DELIVERY
from service.produce.records_codec import MAX_TIMESTAMP_MS
from service.wire.asgi import header
from service.wire.errors import Problem, ProblemError
from service.wire.media_type import JSON, OCTET_STREAM, media_type_of
from service.wire.payload import Format
from service.wire.responses import as_is, problems, with_headers
from service.wire.schemas import ManyAnswer, ProduceAnswer
from service.wire.strict_json import MAX_INT32
from service.wire.waiting import MAX_WAIT_MS

_STREAM_IN: Final = '{"key":"customer-7","value":{"total":12.5}}\n{"key":"customer-8","value":null}\n'
_STREAM_OUT: Final = (
    '{"index":0,"partition":3,"offset":17,"timestamp":1767225600000}\n'
    '{"index":1,"error":{"kafka_error":"REQUEST_TIMED_OUT","code":7,"message":"…","retriable":true,'
    '"written":"unknown","phase":"delivery","waited_ms":120000}}\n'
    '{"summary":{"records":2,"acknowledged":1,"failed":1,"ended":"complete"}}\n'
)


_GROUP: Final = "[A-Za-z0-9+/]{4}"
_LAST_GROUP: Final = "(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)"
_BASE64: Final = f"(?:{_GROUP})*{_LAST_GROUP}?"
#: Of Pilotfish-Headers.
_ELEMENT: Final = f"(?:{_BASE64}:{_BASE64}|(?:{_GROUP})+{_LAST_GROUP}?|{_LAST_GROUP})"


def _parameter(name: str, where: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": where, "description": description, "schema": schema}


_TIMES: Final = [
    _parameter(
        "max_block_ms",
        "query",
        "How long to wait for metadata and memory at most (Kafka's max.block.ms).",
        type="integer",
        minimum=0,
        maximum=MAX_WAIT_MS,
    ),
    _parameter(
        "timeout_ms",
        "query",
        "Time limit for the whole request with delivery, at most delivery.timeout.ms. In a stream it "
        "applies to each record, from its arrival.",
        type="integer",
        minimum=0,
    ),
]
_WHOLE: Final = [
    _parameter(
        "Idempotency-Key",
        "header",
        "A repeated request with the same key gets the first answer, and is written once.",
        type="string",
        pattern=KEY_PATTERN,
        maxLength=255,
    ),
]
_KEY_FORMAT: Final = _parameter(
    "key_format",
    "query",
    "Format of keys.",
    type="string",
    enum=FORMATS,
    default=Format.TEXT.value,
)
_OF_BYTES: Final = [
    _KEY_FORMAT,
    _parameter("key", "query", "The record's key, in key_format.", type="string"),
    _parameter("partition", "query", "The record's partition.", type="integer", minimum=0, maximum=MAX_INT32),
    _parameter(
        "timestamp",
        "query",
        "Milliseconds since 1970; now if absent.",
        type="integer",
        minimum=0,
        maximum=MAX_TIMESTAMP_MS,
    ),
    _parameter("Pilotfish-Key", "header", "The key, if it must not appear in logs.", type="string"),
    _parameter(
        "Pilotfish-Headers",
        "header",
        "The record's headers, separated by commas: base64(name), a colon, base64(value). Nothing after "
        "the colon: an empty value. No colon: null.",
        type="string",
        pattern=f"^({_ELEMENT}([ \t]*,[ \t]*{_ELEMENT})*)?$",
    ),
]
_OF_STREAM: Final = [
    _KEY_FORMAT,
    _parameter(
        "value_format",
        "query",
        "Format of values.",
        type="string",
        enum=FORMATS,
        default=Format.JSON.value,
    ),
]


def _operation(parameters: list[dict[str, Any]], media_type: bytes, **content: Any) -> dict[str, Any]:
    """Adds a body to FastAPI's description: it is read by hand. FastAPI modifies what it gets."""
    body = {"required": True, "content": {media_type.decode(): content}}
    return deepcopy({"parameters": parameters, "requestBody": body})


_BYTES: Final[dict[str, Any]] = {"type": "string", "format": "binary"}
_LINES: Final[dict[str, Any]] = {
    OCTET_STREAM.decode(): {
        "schema": {**_BYTES, "description": "A line for each record, and a summary line at the end."},
        "example": _STREAM_OUT,
    }
}
_SENT: Final = "With acks=0: sent, without acknowledgement."

#: The answers with at least one acknowledged record.
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "All records are acknowledged.", "headers": with_headers("Pilotfish-Replayed")},
    202: {
        "model": ProduceAnswer,
        "description": _SENT,
        "headers": with_headers("Pilotfish-Replayed"),
    },
}
_SOME_FAILED: Final[dict[int | str, dict[str, Any]]] = {
    207: {
        "model": ProduceAnswer,
        "description": "Some records failed.",
        "headers": with_headers("Pilotfish-Failed-Records", "Pilotfish-Replayed"),
    },
}
_SPOOL: Final = f"{DELIVERY}=spool".encode()
_PROBLEMS: Final = (400, 404, 408, 413, 415, 422, 429, 500, 503, 504)


def records_router(endpoint: ProduceEndpoint) -> APIRouter:
    """Returns the routes for the app's own endpoint."""
    router = APIRouter(tags=["produce"])

    @router.post(
        ROUTE,
        operation_id="produceRecords",
        response_model=ProduceAnswer,
        responses={**problems(*_PROBLEMS), **deepcopy(_RESPONSES), **deepcopy(_SOME_FAILED)},
        openapi_extra=_operation([*_TIMES, *_WHOLE], JSON, schema=PRODUCE_BODY, example=PRODUCE_EXAMPLE),
    )
    async def produce(request: Request, topic: str) -> Response:
        """Writes records to a topic, in order, and answers when the brokers have acknowledged them."""
        if is_ndjson(request.scope):
            return endpoint.open_stream(topic, request.scope, request.receive)
        answer = await endpoint.answer(topic, request.scope, request.receive)
        return as_is(answer.status, answer.headers, answer.body)

    @router.post(
        MANY_ROUTE,
        operation_id="produceToTopics",
        response_model=ManyAnswer,
        responses={**problems(*_PROBLEMS), **_of_many(_RESPONSES), **_of_many(_SOME_FAILED)},
        openapi_extra=_operation([*_TIMES, *_WHOLE], JSON, schema=MANY_BODY, example=MANY_EXAMPLE),
    )
    async def produce_to_topics(request: Request) -> Response:
        """Writes records to several topics, and answers when the brokers have acknowledged them.

        Records of one topic keep their order. The topics are independent: some may fail while others are
        written.
        """
        answer = await endpoint.answer(OWN_TOPICS, request.scope, request.receive)
        return as_is(answer.status, answer.headers, answer.body)

    @router.post(
        f"{ROUTE}/bytes",
        operation_id="produceBytes",
        response_model=ProduceAnswer,
        responses={**problems(*_PROBLEMS), **deepcopy(_RESPONSES)},
        openapi_extra=_operation(
            [*_TIMES, *_WHOLE, *_OF_BYTES],
            OCTET_STREAM,
            schema={**_BYTES, "description": "The record's value."},
            example="any bytes",
        ),
    )
    async def produce_bytes(request: Request, topic: str) -> Response:
        """Writes one record, whose value is the body, and answers when the brokers have acknowledged it."""
        scope = request.scope
        if media_type_of(header(scope, b"content-type")) != OCTET_STREAM:
            detail = "Content-Type: must be application/octet-stream"
            raise ProblemError(Problem(415, detail, place="Content-Type", written="no"))
        answer = await endpoint.answer(topic, scope, request.receive)
        return as_is(answer.status, answer.headers, answer.body)

    @router.post(
        f"{ROUTE}/spool",
        operation_id="spoolRecords",
        status_code=202,
        response_model=SpooledAnswer,
        response_description="The records are on the sidecar's disk.",
        responses={
            **problems(*(status for status in _PROBLEMS if status != 500)),  # no broker is asked
            202: {"headers": with_headers("Pilotfish-Replayed")},
        },
        openapi_extra=_operation([*_TIMES, *_WHOLE], JSON, schema=PRODUCE_BODY, example=PRODUCE_EXAMPLE),
    )
    async def spool(request: Request, topic: str) -> Response:
        """Writes records to the sidecar's log on disk.

        They are delivered at least once, in order among themselves, when Kafka accepts them. 400 if the
        sidecar has no spool.
        """
        query = request.scope["query_string"]
        scope = {**request.scope, "query_string": b"&".join([_SPOOL, *([query] if query else [])])}
        answer = await endpoint.answer(topic, scope, request.receive)
        return as_is(answer.status, answer.headers, answer.body)

    @router.post(
        f"{ROUTE}{STREAM}",
        operation_id="produceStream",
        response_class=Response,
        responses={
            **problems(400, 415, 422, 429),
            200: {
                "description": "A line for each record as it is acknowledged or fails, and a summary line at "
                "the end. Without that line, the outcome of the records without a line is unknown.",
                "content": deepcopy(_LINES),
            },
            202: {"description": _SENT, "content": deepcopy(_LINES)},
        },
        openapi_extra=_operation(
            [*_TIMES, *_OF_STREAM],
            OCTET_STREAM,
            schema={**_BYTES, "description": "A record a line, as in `records` of produceRecords."},
            example=_STREAM_IN,
        ),
    )
    async def produce_stream(request: Request, topic: str) -> Response:
        """Writes records as they arrive, and answers each as it is acknowledged.

        The body and the answer may also be application/x-ndjson, both.
        """
        return endpoint.open_stream(topic, request.scope, request.receive)

    return router


def _of_many(answers: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """Returns the same answers with a topic in each result."""
    return {
        status: {**answer, "model": ManyAnswer} if "model" in answer else answer
        for status, answer in deepcopy(answers).items()
    }
