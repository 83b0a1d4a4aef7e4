"""The FastAPI produce route, for OpenAPI and unusual path spellings; produce_endpoint.py does the work.

The OpenAPI description of producing: three media types in, two out, and the headers.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from service.native.schemas import MANY_BODY, PRODUCE_BODY, ManySpooledAnswer, SpooledAnswer
from service.produce.many_topics import OWN_TOPICS
from service.produce.ndjson import is_ndjson
from service.produce.produce_endpoint import MANY_ROUTE, ROUTE, ProduceEndpoint
from service.produce.produce_forms import DELIVERIES, DELIVERY
from service.produce.records_codec import MAX_TIMESTAMP_MS
from service.wire.media_type import JSON, NDJSON, OCTET_STREAM
from service.wire.payload import Format
from service.wire.responses import as_is, problems
from service.wire.schemas import ManyAnswer, ProduceAnswer
from service.wire.strict_json import MAX_INT32
from service.wire.waiting import MAX_WAIT_MS

_FORMATS: Final = [form.value for form in Format]
_OF_OCTETS: Final = "With application/octet-stream only."

_STREAM_IN: Final = '{"key":"customer-7","value":{"total":12.5}}\n{"key":"customer-8","value":null}\n'
_STREAM_OUT: Final = (
    '{"index":0,"partition":3,"offset":17,"timestamp":1767225600000}\n'
    '{"index":1,"error":{"kafka_error":"REQUEST_TIMED_OUT","code":7,"message":"…","retriable":true,'
    '"written":"unknown","phase":"delivery","waited_ms":120000}}\n'
    '{"summary":{"records":2,"acknowledged":1,"failed":1,"ended":"complete"}}\n'
)
_RESULTS: Final = {
    "topic": "orders",
    "results": [{"partition": 3, "offset": 17, "timestamp": 1_767_225_600_000}],
}


MANY_RESULTS: Final = {
    "results": [{"topic": "orders", "partition": 3, "offset": 17, "timestamp": 1_767_225_600_000}]
}

#: The parameters of a request whose records name their topics.
_OF_MANY: Final = ("max_block_ms", "timeout_ms", DELIVERY, "Idempotency-Key")


def _parameter(name: str, where: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": where, "description": description, "schema": schema}


def _header(description: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": schema}


_PARAMETERS: Final = [
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
    _parameter(
        DELIVERY,
        "query",
        "spool: answered 202 once the records are in the sidecar's log on disk, and delivered at least once, "
        "in order among themselves, when Kafka accepts them. Not with application/x-ndjson. 400 if the "
        "sidecar has no spool.",
        enum=list(DELIVERIES),
        default=DELIVERIES[0],
    ),
    _parameter(
        "key_format",
        "query",
        "Format of the key of an octet-stream, or of the keys in a stream of records.",
        enum=_FORMATS,
        default=Format.TEXT.value,
    ),
    _parameter(
        "value_format",
        "query",
        "With application/x-ndjson only: the format of values.",
        enum=_FORMATS,
        default=Format.JSON.value,
    ),
    _parameter("key", "query", f"The record's key, in key_format. {_OF_OCTETS}", type="string"),
    _parameter(
        "partition",
        "query",
        f"The record's partition. {_OF_OCTETS}",
        type="integer",
        minimum=0,
        maximum=MAX_INT32,
    ),
    _parameter(
        "timestamp",
        "query",
        f"Milliseconds since 1970; now if absent. {_OF_OCTETS}",
        type="integer",
        minimum=0,
        maximum=MAX_TIMESTAMP_MS,
    ),
    _parameter(
        "Pilotfish-Key", "header", f"The key, if it must not appear in logs. {_OF_OCTETS}", type="string"
    ),
    _parameter(
        "Pilotfish-Headers",
        "header",
        "The record's headers, separated by commas: base64(name), a colon, base64(value). Nothing after "
        f"the colon: an empty value. No colon: null. {_OF_OCTETS}",
        type="string",
    ),
    _parameter(
        "Idempotency-Key",
        "header",
        "A repeated request with the same key gets the first answer, and is written once. Not with "
        "application/x-ndjson.",
        type="string",
        minLength=1,
        maxLength=255,
    ),
]

#: Adds the bodies to FastAPI's description: they are read by hand.
OPERATION: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON.decode(): {
                "schema": PRODUCE_BODY,
                "example": {"records": [{"key": "customer-7", "value": {"total": 12.5}}]},
            },
            OCTET_STREAM.decode(): {
                "schema": {"type": "string", "format": "binary", "description": "One record's value."},
                "example": "any bytes",
            },
            NDJSON.decode(): {
                "schema": {"type": "string", "description": "A record a line, as in `records`."},
                "example": _STREAM_IN,
            },
        },
    },
    "parameters": _PARAMETERS,
}

_REPLAYED: Final = {
    "Pilotfish-Replayed": _header(
        "Present if the answer is that of an earlier request with the same Idempotency-Key.", const="true"
    )
}

#: The answers with at least one acknowledged record.
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "All records are acknowledged. A stream is answered with a line for each record "
        "as it is acknowledged or fails, and a summary line at the end.",
        "headers": _REPLAYED,
        "content": {
            JSON.decode(): {"example": _RESULTS},
            NDJSON.decode(): {"schema": {"type": "string"}, "example": _STREAM_OUT},
        },
    },
    202: {
        "model": ProduceAnswer | SpooledAnswer,
        "description": "delivery=spool: the records are on the sidecar's disk. With acks=0: sent, "
        "without acknowledgement.",
        "headers": _REPLAYED,
        "content": {NDJSON.decode(): {"schema": {"type": "string"}, "example": _STREAM_OUT}},
    },
    207: {
        "model": ProduceAnswer,
        "description": "Some failed; Pilotfish-Failed-Records counts them.",
        "headers": {
            "Pilotfish-Failed-Records": _header("How many failed.", type="integer", minimum=1),
            **_REPLAYED,
        },
    },
}


def records_router(endpoint: ProduceEndpoint) -> APIRouter:
    """Returns the route for the app's own endpoint."""
    router = APIRouter(tags=["produce"])

    @router.post(
        ROUTE,
        response_model=ProduceAnswer,
        # FastAPI modifies the dicts, hence the copies.
        responses={**problems(400, 404, 408, 413, 415, 422, 429, 500, 503, 504), **deepcopy(RESPONSES)},
        openapi_extra=deepcopy(OPERATION),
    )
    async def produce(request: Request, topic: str) -> Response:
        """Writes records to a topic, in order, and answers when the brokers have acknowledged them."""
        if is_ndjson(request.scope):
            return endpoint.open_stream(topic, request.scope, request.receive)
        answer = await endpoint.answer(topic, request.scope, request.receive)
        return as_is(answer.status, answer.headers, answer.body)

    by_topic = deepcopy(OPERATION)
    by_topic["parameters"] = [one for one in by_topic["parameters"] if one["name"] in _OF_MANY]
    by_topic["requestBody"]["content"] = {
        JSON.decode(): {
            "schema": MANY_BODY,
            "example": {"records": [{"topic": "orders", "key": "customer-7", "value": {"total": 12.5}}]},
        }
    }

    @router.post(
        MANY_ROUTE,
        response_model=ManyAnswer,
        responses={**problems(400, 404, 408, 413, 415, 422, 429, 500, 503, 504), **_answers_of_many()},
        openapi_extra=by_topic,
    )
    async def produce_to_topics(request: Request) -> Response:
        """Writes records to several topics, and answers when the brokers have acknowledged them.

        Records of one topic keep their order. The topics are independent: some may fail while others are
        written.
        """
        answer = await endpoint.answer(OWN_TOPICS, request.scope, request.receive)
        return as_is(answer.status, answer.headers, answer.body)

    return router


def _answers_of_many() -> dict[int | str, dict[str, Any]]:
    """Returns the same answers for records of several topics: no streams, and a topic in each result."""
    answers = deepcopy(RESPONSES)
    for answer in answers.values():
        answer.setdefault("content", {}).pop(NDJSON.decode(), None)
    answers[200]["description"] = "All records are acknowledged."
    answers[200]["content"] = {JSON.decode(): {"example": MANY_RESULTS}}
    answers[202]["model"] = ManyAnswer | ManySpooledAnswer
    answers[207]["model"] = ManyAnswer
    return answers
