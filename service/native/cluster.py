"""The cluster and its brokers. A KRaft broker names a random one as controller, so nobody is told of one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from service.admission.caller import caller_of
from service.lookup.answers import broker_pieces
from service.native.schemas import BrokerAnswer, ClusterAnswer, LookupQuery
from service.sidecar.sidecar import SidecarDep
from service.wire.errors import refused
from service.wire.responses import of_long, of_prepared, problems
from service.wire.schemas import Int32

router = APIRouter(tags=["metadata"])


@router.get("/v1/cluster", response_model=ClusterAnswer, responses=problems(412, 422, 429, 503))
async def cluster(request: Request, sidecar: SidecarDep, query: Annotated[LookupQuery, Query()]) -> Response:
    """The cluster's id and its brokers."""
    await sidecar.lookups.know_cluster(query.demands(), request.receive, caller_of(request.scope))
    entry = sidecar.table.find(b"/v1/cluster")
    if entry is None:
        raise refused(503, "no broker has answered yet", retriable=True)
    return of_prepared(request, entry)


@router.get(
    "/v1/brokers/{broker_id}", response_model=BrokerAnswer, responses=problems(404, 412, 422, 429, 503)
)
async def broker(
    request: Request,
    sidecar: SidecarDep,
    broker_id: Annotated[Int32, Path()],
    query: Annotated[LookupQuery, Query()],
) -> Response:
    """A broker, and what it leads among the topics that this sidecar knows and the caller may read."""
    caller = caller_of(request.scope)
    await sidecar.lookups.know_cluster(query.demands(), request.receive, caller)
    cache = sidecar.producer.cache
    node = None if cache.is_bootstrap else cache.nodes_by_id.get(broker_id)
    if node is None:
        raise refused(404, f"there is no broker {broker_id}")
    sidecar.table.find(b"/v1/cluster")
    freshness = sidecar.table.freshness(None, sidecar.producer.clock.now_ms())
    names = await sidecar.slices.sorted(cache.topics)
    body = await sidecar.slices.body(broker_pieces(cache, node, caller.read, names))
    return of_long(request, body, freshness)
