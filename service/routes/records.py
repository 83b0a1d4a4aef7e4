"""Producing, for the document and for paths in an unusual spelling: produce_endpoint.py does the work."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.produce_endpoint import ROUTE, ProduceEndpoint
from service.responses import as_is, problems
from service.schemas import PRODUCE_BODY, ProduceAnswer


def records_router(endpoint: ProduceEndpoint) -> APIRouter:
    """The route over the app's own endpoint."""
    router = APIRouter(tags=["produce"])
    wait = {"type": "integer", "minimum": 0}
    extra = {
        "requestBody": {"required": True, "content": {"application/json": {"schema": PRODUCE_BODY}}},
        "parameters": [
            {
                "name": "max_block_ms",
                "in": "query",
                "schema": wait,
                "description": "How long to wait for metadata and memory at most (Kafka's max.block.ms).",
            },
            {
                "name": "timeout_ms",
                "in": "query",
                "schema": wait,
                "description": "How long the whole may take, delivery too; at most delivery.timeout.ms.",
            },
        ],
    }

    @router.post(
        ROUTE,
        response_model=ProduceAnswer,
        responses={
            **problems(400, 404, 408, 413, 415, 422, 429, 500, 503, 504),
            202: {"model": ProduceAnswer, "description": "acks=0: sent, and nothing to acknowledge."},
            207: {
                "model": ProduceAnswer,
                "description": "Some failed; Pilotfish-Failed-Records counts them.",
            },
        },
        openapi_extra=extra,
    )
    async def produce(request: Request, topic: str) -> Response:
        """Writes records to a topic, in order, and answers when the brokers have acknowledged them."""
        answer = await endpoint.answer(topic, request.scope, request.receive)
        return as_is(answer.status, answer.headers, answer.body)

    return router
