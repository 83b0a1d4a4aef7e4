"""POST /v3/clusters/{id}/topics/{topic}/records: concatenated records in, delivery reports out, in order.

    Content-Length within max_body_bytes   posted_body.py    read whole, one submit, one answer
    none, or longer                        posted_stream.py  answered while it is read

Either way the status is 200 once the body has begun. A faulty record gets an `error_code` in its own report,
and the others continue. HTTP errors are only for the head or an empty body: the cluster, the caller, the
topic's name, the media type, too many waiting requests. Event loop only.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from fastapi import APIRouter, Depends, Request, Response

from service.admission.caller import caller_of
from service.admission.guards import CLOSE
from service.dialects.rest_v3.delivery_reports import Reports
from service.dialects.rest_v3.posted_body import PostedBodies
from service.dialects.rest_v3.posted_stream import PostedStream
from service.dialects.rest_v3.requests import ClusterPath, no_query, utf8_reader
from service.dialects.rest_v3.schemas import RECORDS_BODY, ClusterId, DeliveryReport, ErrorAnswer, errors
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import HeaderPairs, Message, Scope, header
from service.wire.content_coding import vary_of
from service.wire.media_type import JSON
from service.wire.responses import as_is
from service.wire.schemas import check_query
from service.wire.streaming import StreamedAnswer

#: The answer to a POST: must not be cached.
_FIXED: HeaderPairs = [(b"content-type", JSON), (b"cache-control", b"no-store")]


class RecordsRoute:
    """The handler."""

    def __init__(self, sidecar: Sidecar, cluster: ClusterPath) -> None:
        self._sidecar = sidecar
        self._producer = sidecar.producer
        self._cluster = cluster
        self._bodies = PostedBodies(sidecar)

    def router(self) -> APIRouter:
        """Returns the route, with its OpenAPI description."""
        router = APIRouter(
            tags=["REST Proxy v3: produce"], dependencies=[Depends(check_query), Depends(no_query)]
        )
        router.post(
            "/v3/clusters/{cluster_id}/topics/{topic}/records",
            operation_id="produceRecordsV3",
            response_model=DeliveryReport | ErrorAnswer,
            response_description="A report for each record, in order; `error_code` is its outcome.",
            responses=errors(400, 403, 404, 408, 413, 415, 422, 429, 503),
            openapi_extra={"requestBody": RECORDS_BODY},
        )(self.post_records)
        return router

    async def post_records(self, request: Request, cluster_id: ClusterId, topic: str) -> Response:
        """Writes a record to a topic, or a stream of records, for as long as the caller sends."""
        with ExitStack() as refused:
            refused.enter_context(self._sidecar.http.produce(request.scope))
            return await self._served(request, cluster_id, topic, refused)

    async def _served(self, request: Request, cluster_id: str, topic: str, refused: ExitStack) -> Response:
        """Serves a request. Drops `refused`, which times a refusal, once the records time themselves."""
        since_ms = self._producer.clock.now_ms()
        scope, caller = request.scope, caller_of(request.scope)
        self._sidecar.producing.check(topic, caller)
        to_utf8 = utf8_reader(scope)
        known = await self._cluster.require(cluster_id, _nothing, caller)
        reports = Reports(known, topic, lambda name: self._producer.cache.partition_count(name))
        if _is_of_known_length(scope, self._sidecar.settings.max_body_bytes):
            refused.pop_all()
            body = await self._bodies.answer(request, topic, reports, to_utf8, since_ms)
            return as_is(200, [*_FIXED, (b"content-length", b"%d" % len(body)), *vary_of(len(body))], body)
        posted = PostedStream(topic, reports, request.receive, to_utf8, self._sidecar)
        with ExitStack() as held:
            posted.stream = held.enter_context(self._sidecar.streams.open(topic, caller, posted.times))
            await posted.begin()
            refused.pop_all()
            return StreamedAnswer(
                [*_FIXED, CLOSE],  # after an early end, the rest of the body would follow on the connection
                posted.converse,
                stall_ms=self._sidecar.settings.internal.stall_timeout_ms,
                watch=False,
                held=held.pop_all(),
            )


def is_record_stream(scope: Scope) -> bool:
    """Returns whether this route serves the request: the guards then do not limit its body."""
    match scope["path"].split("/"):
        case ["", "v3", "clusters", _, "topics", _, "records"]:
            return bool(scope["method"] == "POST")
    return False


def _is_of_known_length(scope: Scope, max_body_bytes: int) -> bool:
    length = header(scope, b"content-length")
    return length is not None and length.isdigit() and int(length[:20]) <= max_body_bytes


async def _nothing() -> Message:
    """Returns a `receive` that returns nothing: other code reads the body."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable: the event is never set")
