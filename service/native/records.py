"""Producing, for the document and for paths in an unusual spelling: produce_endpoint.py does the work."""

from __future__ import annotations

from copy import deepcopy

from fastapi import APIRouter, Request, Response

from service.native.produce_document import OPERATION, RESPONSES
from service.produce.ndjson import is_ndjson
from service.produce.produce_endpoint import ROUTE, ProduceEndpoint
from service.wire.responses import as_is, problems
from service.wire.schemas import ProduceAnswer


def records_router(endpoint: ProduceEndpoint) -> APIRouter:
    """The route over the app's own endpoint."""
    router = APIRouter(tags=["produce"])

    @router.post(
        ROUTE,
        response_model=ProduceAnswer,
        # FastAPI fills in what it gets.
        responses={**problems(400, 404, 408, 413, 415, 422, 429, 500, 503, 504), **deepcopy(RESPONSES)},
        openapi_extra=deepcopy(OPERATION),
    )
    async def produce(request: Request, topic: str) -> Response:
        """Writes records to a topic, in order, and answers when the brokers have acknowledged them."""
        if is_ndjson(request.scope):
            return endpoint.open_stream(topic, request.scope, request.receive)
        answer = await endpoint.answer(topic, request.scope, request.receive)
        return as_is(answer.status, answer.headers, answer.body)

    return router
