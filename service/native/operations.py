"""What people and scripts ask of the sidecar itself: refresh your metadata, why is it slow, put back what the
spool has set aside.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from service.admission.caller import caller_of
from service.native.schemas import RefreshAnswer, RequeueAnswer, RequeueQuery
from service.native.status_schemas import StatusAnswer, StatusQuery
from service.sidecar.sidecar import SidecarDep
from service.wire.errors import refused
from service.wire.freshness import version_text
from service.wire.responses import of_json, problems
from service.wire.schemas import WaitQuery

if TYPE_CHECKING:  # a sidecar without a spool loads none of it
    from service.spool.dead_letters import DeadLetter
    from service.spool.requeue import Requeued

router = APIRouter(tags=["operations"])


@router.post("/v1/metadata/refresh", response_model=RefreshAnswer, responses=problems(422, 429, 503))
async def refresh(request: Request, sidecar: SidecarDep, query: Annotated[WaitQuery, Query()]) -> Response:
    """Asks for a metadata update and waits for it."""
    clock = sidecar.producer.clock
    asked_ms = clock.now_ms()
    wait_ms = sidecar.config.max_block_ms if query.max_block_ms is None else query.max_block_ms
    await sidecar.lookups.refresh(wait_ms, request.receive, caller_of(request.scope))
    version = version_text(sidecar.boot, sidecar.producer.cache.update_version)
    return of_json(msgspec.json.encode({"version": version, "waited_ms": clock.now_ms() - asked_ms}))


@router.get("/v1/status", response_model=StatusAnswer, responses=problems(422))
async def status(request: Request, sidecar: SidecarDep, query: Annotated[StatusQuery, Query()]) -> Response:
    """Why is it slow: by node and by phase, at this moment and in the last minute."""
    return of_json(sidecar.status.body(caller_of(request.scope), history=query.history))


@router.post(
    "/v1/spool/requeue",
    response_model=RequeueAnswer,
    responses=problems(400, 422, 429, 503, 504),
)
async def requeue(request: Request, sidecar: SidecarDep, query: Annotated[RequeueQuery, Query()]) -> Response:
    """Puts back what the spool has set aside of topics that the caller may produce to, behind what waits."""
    caller = caller_of(request.scope)
    if query.topic is not None:
        caller.check_produce(query.topic)
    if sidecar.spool is None:
        raise refused(400, "there is no spool (spool_folder is not set)")

    def chosen(one: DeadLetter) -> bool:
        topic = one.topic
        return (
            topic is not None
            and caller.produce.allow(topic)
            and query.topic in (None, topic)
            and query.reason in (None, one.reason)
        )

    ended: asyncio.Future[Requeued] = asyncio.get_running_loop().create_future()

    def report(result: Requeued) -> None:
        if not ended.done():
            ended.set_result(result)

    if not sidecar.spool.requeue(chosen, report):
        raise refused(429, "other requeues wait for the disk of the spool already", retriable=True)
    wait_ms = sidecar.config.max_block_ms if query.max_block_ms is None else query.max_block_ms
    try:
        async with asyncio.timeout(wait_ms / 1000):
            records, fault = await ended
    except TimeoutError as e:
        raise refused(
            504, f"the requeue has not ended within {wait_ms} ms, and continues", retriable=True
        ) from e
    if fault is not None:
        raise refused(503, f"{records} records were put back, and no more: {fault}", retriable=True)
    return of_json(msgspec.json.encode({"requeued": records}))
