"""What people and scripts ask of the sidecar itself: refresh your metadata, and why is it slow."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from service.access.caller import caller_of
from service.deps import SidecarDep
from service.lookup.freshness import version_text
from service.responses import of_json, problems
from service.schemas import NoQuery, RefreshAnswer, WaitQuery
from service.slowness.schemas import StatusAnswer

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
async def status(request: Request, sidecar: SidecarDep, _: Annotated[NoQuery, Query()]) -> Response:
    """Why is it slow: by node and by phase, at this moment and in the last minute."""
    return of_json(sidecar.status.body(caller_of(request.scope)))
