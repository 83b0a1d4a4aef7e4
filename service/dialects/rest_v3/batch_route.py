"""POST /v3/clusters/{id}/topics/{topic}/records:batch: up to ten records, each with its outcome.

    207  {"successes": [{"id": "1", …}], "failures": [{"id": "2", "error_code": 400, "message": …}]}

A failed entry affects no other: all valid records are submitted together, without any that is too large.
Errors of the request itself concern all: the caller, the media type, a malformed batch, no permit. Event loop
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from service.admission.body import announced_bytes, read_body
from service.admission.caller import caller_of
from service.dialects.rest_v3.batch_codec import Entry, parse_batch
from service.dialects.rest_v3.delivery_reports import Awaited, Report, Reports, deliver
from service.dialects.rest_v3.requests import ClusterPath, no_query, utf8_reader
from service.dialects.rest_v3.schemas import BATCH_BODY, BatchAnswer, ClusterId, errors
from service.observe.http_metrics import produce_outcome
from service.produce.producing import RecordOutcome
from service.sidecar.sidecar import Sidecar
from service.wire.content_coding import vary_of
from service.wire.errors import Problem
from service.wire.media_type import JSON
from service.wire.responses import as_is
from service.wire.schemas import check_query

_MULTI_STATUS: Final = 207


class BatchRoute:
    """The handler."""

    def __init__(self, sidecar: Sidecar, cluster: ClusterPath) -> None:
        self._producer = sidecar.producer
        self._producing = sidecar.producing
        self._cluster = cluster
        self._admission = sidecar.admission
        self._limits = sidecar.limits
        self._body_threads = sidecar.body_threads
        self._metrics = sidecar.http

    def router(self) -> APIRouter:
        """Returns the route, with its OpenAPI description."""
        router = APIRouter(
            tags=["REST Proxy v3: produce"], dependencies=[Depends(check_query), Depends(no_query)]
        )
        router.post(
            "/v3/clusters/{cluster_id}/topics/{topic}/records:batch",
            operation_id="produceBatchV3",
            status_code=_MULTI_STATUS,
            response_model=BatchAnswer,
            response_description="The outcome of each entry, by its id.",
            responses=errors(400, 403, 404, 408, 413, 415, 422, 429, 503),
            openapi_extra={"requestBody": BATCH_BODY},
        )(self.post_batch)
        return router

    async def post_batch(self, request: Request, cluster_id: ClusterId, topic: str) -> Response:
        """Writes up to ten records to a topic and answers when the brokers have acknowledged them."""
        with self._metrics.produce(request.scope) as timed:
            successes, failures = await self._produce(request, cluster_id, topic)
            timed.outcome = produce_outcome(len(failures), len(failures) + len(successes))
        body = msgspec.json.encode({"successes": successes, "failures": failures})
        headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(body)), *vary_of(len(body))]
        return as_is(_MULTI_STATUS, headers, body)

    async def _produce(
        self, request: Request, cluster_id: str, topic: str
    ) -> tuple[list[Report], list[Report]]:
        since_ms = self._producer.clock.now_ms()
        scope, caller = request.scope, caller_of(request.scope)
        self._producing.check(topic, caller)
        to_utf8 = utf8_reader(scope)
        with self._admission.acquire(announced_bytes(scope), caller) as permit:
            body = await read_body(request.scope, request.receive, permit, self._producing.times.timeout_ms)
            known = await self._cluster.require(cluster_id, request.receive, caller)
            entries = await self._body_threads.read(
                lambda body: parse_batch(topic, to_utf8(body), self._limits), body
            )
            del body
            items = [e.posted if isinstance(e.posted, Problem) else e.posted.record for e in entries]
            outcomes = await deliver(
                self._producing, topic, items, since_ms=since_ms, permit=permit, receive=request.receive
            )
        reports = Reports(known, topic, lambda name: self._producer.cache.partition_count(name))
        return _reports(reports, entries, outcomes)


def _reports(
    reports: Reports, entries: Sequence[Entry], outcomes: Sequence[RecordOutcome]
) -> tuple[list[Report], list[Report]]:
    successes: list[Report] = []
    failures: list[Report] = []
    for entry, outcome in zip(entries, outcomes, strict=True):
        awaited = Awaited() if isinstance(entry.posted, Problem) else Awaited.of(entry.posted)
        if isinstance(outcome, Problem):
            failures.append({"id": entry.id, **reports.failure(awaited, outcome)})
        else:
            successes.append({"id": entry.id, **reports.success(awaited, outcome)})
    return successes, failures
