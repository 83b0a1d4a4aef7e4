"""create_app: the ASGI application, put together from the outside in.

    Guards            who may ask, how much at once
    └── FastLookups   prepared answers
        └── ProduceEndpoint
            └── Observed
                └── FastAPI   typed routes: slow paths, errors, /openapi.json

A producer that is handed in belongs to the caller, who starts and closes it and has it post its completions
on the loop that serves this app (`LoopCompletions`). Without one the app makes its own from the settings:
the lifespan starts it, `close_producer` ends it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import APIRouter, FastAPI

from client_core import CloseReport, KafkaProducer
from service.asgi import Receive, Scope, Send
from service.completions import LoopCompletions
from service.deps import Sidecar, build_sidecar
from service.dialects.table import dialects_of
from service.error_answers import answer_errors
from service.error_faces import ErrorFaces
from service.face import Producer
from service.fast_lookups import FastLookups
from service.guards import Guards, hosts_of
from service.http_metrics import Observed
from service.metrics import ClientMetrics
from service.produce_endpoint import ProduceEndpoint
from service.routes import cluster, leaders, operations, topics
from service.routes.records import records_router
from service.settings import Settings
from service.version import pilotfish_version

#: Random, so that a version of an earlier process is never taken for one of this.
_BOOT_BYTES: Final = 4


class App:
    """The ASGI application and its parts."""

    def __init__(
        self, settings: Settings, producer: Producer | None = None, *, owns_producer: bool = False
    ) -> None:
        self.completions: Final = LoopCompletions()
        self._owns_producer = owns_producer or producer is None
        self._report: CloseReport | None = None
        self.client_metrics = ClientMetrics(
            by_topic=settings.topic_metrics, topic_limit=settings.topic_metrics_limit
        )
        if producer is None:
            producer = _make_producer(settings, self.client_metrics, self.completions)
        self.sidecar: Final = build_sidecar(settings, producer, secrets.token_hex(_BOOT_BYTES))
        endpoint = ProduceEndpoint(_never, self.sidecar)
        dialects = dialects_of(self.sidecar)
        faces = ErrorFaces({prefix: d.error_face for d in dialects for prefix in d.prefixes})
        routers = [records_router(endpoint), *(d.router for d in dialects)]
        self.api: Final = _make_api(self.sidecar, routers, faces, self._lifespan)
        inner = ProduceEndpoint(Observed(self.api, self.sidecar.http), self.sidecar)
        self._entry = Guards(
            FastLookups(inner, self.sidecar.table, self.sidecar.http),
            allowed_hosts=hosts_of(settings.allowed_hosts, settings.api_host),
            allowed_origins=settings.allowed_origins,
            max_body_bytes=settings.max_body_bytes,
            drain=self.sidecar.drain,
            faces=faces,
            metrics=self.sidecar.http,
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """No coroutine of its own, which each request would pay for."""
        return self._entry(scope, receive, send)

    async def close_producer(self) -> CloseReport:
        """Flushes and closes the app's own producer within drain_timeout_ms; says what it left."""
        if self._report is None:
            self._report = CloseReport()
            if self._owns_producer:
                # The one call that blocks; requests are answered meanwhile.
                timeout_ms = self.sidecar.settings.drain_timeout_ms
                self._report = await asyncio.to_thread(self.sidecar.producer.close, timeout_ms)
        return self._report

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self.completions.bind(asyncio.get_running_loop())
        if self._owns_producer:
            self.sidecar.producer.start()
        if self.sidecar.settings.warm_topics:
            self.sidecar.producer.configure_topics(self.sidecar.settings.warm_topics)
        yield
        self.sidecar.listing.close()
        await self.close_producer()


def create_app(settings: Settings, producer: Producer | None = None) -> App:
    """The application over a producer, or over one of its own."""
    return App(settings, producer)


def _make_producer(settings: Settings, events: ClientMetrics, completions: LoopCompletions) -> Producer:
    return KafkaProducer(settings.producer_config(), events=events, completions=completions)


async def _never(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("FastAPI's own route hands nothing on")


def _make_api(
    sidecar: Sidecar, own_routers: Iterable[APIRouter], faces: ErrorFaces, lifespan: Any
) -> FastAPI:
    api = FastAPI(
        title="Pilotfish",
        version=pilotfish_version(),
        summary="A Kafka metadata-cache sidecar: leaders and produce over HTTP on localhost.",
        lifespan=lifespan,
        docs_url=None,  # the page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    api.state.sidecar = sidecar
    for router in (cluster.router, topics.router, leaders.router, operations.router, *own_routers):
        api.include_router(router)
    answer_errors(api, faces)
    make_document = api.openapi

    def document() -> dict[str, Any]:
        return _with_problem_type(make_document())

    api.openapi = document  # type: ignore[method-assign]  # FastAPI's own way of changing the document
    return api


def _with_problem_type(document: dict[str, Any]) -> dict[str, Any]:
    """The document, its errors under the media type that they really have."""
    for path in document["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                if status >= "400" and "application/json" in answer.get("content", {}):
                    answer["content"]["application/problem+json"] = answer["content"].pop("application/json")
    return document
