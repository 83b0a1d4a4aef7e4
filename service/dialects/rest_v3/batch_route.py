"""POST /v3/clusters/{id}/topics/{topic}/records:batch: up to ten records, told of one by one.

    207  {"successes": [{"id": "1", …}], "failures": [{"id": "2", "error_code": 400, "message": …}]}

An entry that fails takes no other with it: those that are records are submitted together, and one that is too
large is left out of that. What concerns all of them (the caller, the media type, a body that is no batch, no
room) is an error of the request. Event loop only.
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
from service.dialects.rest_v3.errors import JSON
from service.dialects.rest_v3.requests import no_query, require_cluster, utf8_reader
from service.dialects.rest_v3.schemas import BATCH_BODY, BatchAnswer, ClusterId, errors
from service.observe.http_metrics import produce_outcome
from service.produce.producing import RecordOutcome
from service.sidecar.sidecar import Sidecar, SidecarDep
from service.wire.errors import Problem
from service.wire.responses import as_is

router = APIRouter(tags=["REST Proxy v3: produce"], dependencies=[Depends(no_query)])

_MULTI_STATUS: Final = 207


@router.post(
    "/v3/clusters/{cluster_id}/topics/{topic}/records:batch",
    status_code=_MULTI_STATUS,
    response_model=BatchAnswer,
    response_description="What became of each entry, by its id.",
    responses=errors(400, 403, 404, 408, 413, 415, 422, 429, 503),
    openapi_extra={"requestBody": BATCH_BODY},
)
async def post_batch(request: Request, sidecar: SidecarDep, cluster_id: ClusterId, topic: str) -> Response:
    """Writes up to ten records to a topic and answers when the brokers have acknowledged them."""
    with sidecar.http.produce(request.scope) as timed:
        successes, failures = await _produce(request, sidecar, cluster_id, topic)
        timed.outcome = produce_outcome(len(failures), len(failures) + len(successes))
    body = msgspec.json.encode({"successes": successes, "failures": failures})
    headers = [(b"content-type", JSON), (b"content-length", b"%d" % len(body))]
    return as_is(_MULTI_STATUS, headers, body)


async def _produce(
    request: Request, sidecar: Sidecar, cluster_id: str, topic: str
) -> tuple[list[Report], list[Report]]:
    since_ms = sidecar.producer.clock.now_ms()
    scope, caller = request.scope, caller_of(request.scope)
    sidecar.producing.check(topic, caller)
    to_utf8 = utf8_reader(scope)
    with sidecar.room.enter(announced_bytes(scope), caller) as place:
        body = await read_body(request.scope, request.receive, place, sidecar.producing.times.timeout_ms)
        known = await require_cluster(sidecar, cluster_id, request.receive, caller)
        entries = await sidecar.aside.read(
            lambda body: parse_batch(topic, to_utf8(body), sidecar.limits), body
        )
        items = [e.posted if isinstance(e.posted, Problem) else e.posted.record for e in entries]
        outcomes = await deliver(
            sidecar, topic, items, since_ms=since_ms, place=place, receive=request.receive
        )
    reports = Reports(known, topic, lambda name: sidecar.producer.cache.partition_count(name))
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
