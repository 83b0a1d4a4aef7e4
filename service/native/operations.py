"""Routes that operate the sidecar: metadata refresh, status, requeue of dead letters.

Event loop only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from service.admission.caller import caller_of
from service.native.schemas import RefreshAnswer, RequeueAnswer, RequeueQuery
from service.native.status_schemas import StatusAnswer, StatusQuery
from service.sidecar.sidecar import Sidecar
from service.sidecar.status_report import StatusReport
from service.wire.asgi import has_body
from service.wire.errors import WHOLE_BODY, refused
from service.wire.freshness import version_text
from service.wire.responses import of_json, problems
from service.wire.schemas import WaitQuery, check_query

if TYPE_CHECKING:  # a sidecar without a spool loads none of it
    from service.spool.dead_letters import DeadLetter
    from service.spool.requeue import Requeued


class OperationRoutes:
    """The handlers. `default_wait_ms` is the wait of calls without max_block_ms."""

    def __init__(self, sidecar: Sidecar, status: StatusReport) -> None:
        self._producer = sidecar.producer
        self._lookups = sidecar.lookups
        self._status = status
        self._spool = sidecar.spool
        self._boot = sidecar.boot
        self._default_wait_ms = sidecar.config.max_block_ms

    def router(self) -> APIRouter:
        """Returns the routes, with their OpenAPI descriptions."""
        router = APIRouter(tags=["operations"], dependencies=[Depends(check_query)])
        router.post(
            "/v1/metadata/refresh",
            operation_id="refreshMetadata",
            response_model=RefreshAnswer,
            responses=problems(422, 429, 503),
        )(self.refresh)
        router.get(
            "/v1/status", operation_id="getStatus", response_model=StatusAnswer, responses=problems(422)
        )(self.status)
        router.post(
            "/v1/spool/requeue",
            operation_id="requeueRecords",
            response_model=RequeueAnswer,
            responses=problems(400, 422, 429, 503, 504),
        )(self.requeue)
        return router

    async def refresh(self, request: Request, query: Annotated[WaitQuery, Query()]) -> Response:
        """Asks for a metadata update and waits for it."""
        clock = self._producer.clock
        asked_ms = clock.now_ms()
        await self._lookups.refresh(self._wait_ms(query), request.receive, caller_of(request.scope))
        version = version_text(self._boot, self._producer.cache.update_version)
        return of_json(msgspec.json.encode({"version": version, "waited_ms": clock.now_ms() - asked_ms}))

    async def status(self, request: Request, query: Annotated[StatusQuery, Query()]) -> Response:
        """Why is it slow: by node and by phase, at this moment and in the last minute."""
        return of_json(self._status.body(caller_of(request.scope), history=query.history))

    async def requeue(self, request: Request, query: Annotated[RequeueQuery, Query()]) -> Response:
        """Puts dead letters of topics that the caller may produce to back into the spool, at its end."""
        if has_body(request.scope):  # a choice in it would not count: all dead letters would be requeued
            raise refused(422, "must be empty; topic and reason are query parameters", place=WHOLE_BODY)
        caller = caller_of(request.scope)
        if query.topic is not None:
            caller.check_produce(query.topic)
        if self._spool is None:
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

        if not self._spool.requeue(chosen, report):
            raise refused(429, "other requeues are running already; try again later", retriable=True)
        wait_ms = self._wait_ms(query)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                records, fault = await ended
        except TimeoutError as e:
            raise refused(
                504, f"the requeue has not ended within {wait_ms} ms, and continues", retriable=True
            ) from e
        if fault is not None:
            raise refused(503, f"{records} records were requeued, the others failed: {fault}", retriable=True)
        return of_json(msgspec.json.encode({"requeued": records}))

    def _wait_ms(self, query: WaitQuery) -> int:
        return self._default_wait_ms if query.max_block_ms is None else query.max_block_ms
