"""create_app: the ASGI application, put together from the outside in.

    Guards            who may ask, how much at once
    └── FastLookups   prepared answers
        └── Traces   the trace that the request belongs to, where one came or spans are made
            └── ParkedLookups   look-ups that wait for a topic
                └── ProduceEndpoint
                    └── Observed
                        └── FastAPI   typed routes: slow paths, errors, /openapi.json

A producer that is handed in belongs to the caller, who starts and closes it and has it post its completions
on the loop that serves this app (`LoopCompletions`). Without one the app makes its own from the settings:
the lifespan starts it, `close_producer` ends it.

The client's events to everyone in the sidecar who wants them.

`emit` runs on the client's threads, in its hot path: each sink is as quick as it must be. Any thread.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.routing import BaseRoute, Route

from client_core import Clock, CloseReport, Event, EventSink, KafkaProducer, LoopCompletions, SystemClock
from service.admission.access import Access
from service.admission.admission_control import RetryAfter
from service.admission.drain import Quit, QuitToken
from service.admission.guards import Guards, hosts_of
from service.base.producer_protocol import Producer
from service.base.settings import Settings
from service.base.settings_sources import SettingsError
from service.base.version import pilotfish_version
from service.console import DOCS, OPEN_PATHS, console_routes, docs_error_format
from service.dialects.dialect import Dialect
from service.dialects.table import dialects_of
from service.events.event_metrics import EventMetrics
from service.lookup.fast_lookups import FastLookups, ParkedLookups, parked_route
from service.native.leaders import LeadersRoute
from service.native.metadata import MetadataRoutes
from service.native.openapi import DOCUMENT_PATH, ReadyDocument, finished
from service.native.operations import OperationRoutes
from service.native.records import records_router
from service.native.watch import WatchRoute, WatchTimes
from service.observe.http_metrics import Observed
from service.observe.metrics import ClientMetrics
from service.observe.request_trace import CarriedTraces, NoTraces, TraceMetrics, Traces
from service.observe.slowness.collector import Slowness
from service.process.advice_at_start import AdviceAtStart
from service.produce.ndjson import is_ndjson_stream
from service.produce.produce_endpoint import ROUTE, ProduceEndpoint, topic_of_path
from service.sidecar.error_answers import answer_errors
from service.sidecar.sidecar import Sidecar, build_sidecar
from service.spool.spool_metrics import SpoolMetrics
from service.watch.notice import SnapshotNotice
from service.wire.asgi import ASGIApp, Receive, Scope, Send
from service.wire.cors import Cors
from service.wire.errors import ErrorFormats
from service.wire.schemas import ProblemAnswer

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

    from service.events.event_log import EventLog
    from service.produce.spooled import SpooledProduce
    from service.spool.spool import Spool


#: What the event log has for its last window and heartbeat where the producer used up all of
#: drain_timeout_ms: they tell the fleet that this sidecar has ended. It comes on top of that time.
LAST_EVENTS_MS: Final = 1_000

#: What the spool has at the end to deliver what is on its way: the rest stays on the disk, and need not be
#: waited for.
LAST_SPOOLED_MS: Final = 2_000

#: Random, so that a version of an earlier process is never taken for one of this.
_BOOT_BYTES: Final = 4

#: FastAPI's own spans, metrics and logs, which newer versions make for whoever set OpenTelemetry up: ours are
#: `observe/tracing/`, /metrics and logs.py, and tell nothing of what a request holds.
_NO_TELEMETRY: Final[TelemetryConfig] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


class Subscriber(Protocol):
    """An EventSink that says which kinds of events it wants."""

    def wants(self, kind: type) -> bool:
        """Whether events of this class are of use; the same answer for ever."""
        ...

    def emit(self, event: Event, /) -> None: ...


class FanOut:
    """An EventSink that hands each event to several, in their order: to those that want its kind."""

    def __init__(self, *sinks: Subscriber) -> None:
        self._sinks: Final = sinks
        # Who wants a kind: found out when the first of it comes.
        self._by_kind: dict[type, tuple[Callable[[Event], None], ...]] = {}

    def emit(self, event: Event, /) -> None:
        """Tells every sink that wants to know."""
        kind = type(event)
        takers = self._by_kind.get(kind)
        if takers is None:
            takers = self._by_kind[kind] = tuple(sink.emit for sink in self._sinks if sink.wants(kind))
        for take in takers:
            take(event)


class App:
    """The ASGI application and its parts."""

    def __init__(
        self,
        settings: Settings,
        producer: Producer | None = None,
        *,
        owns_producer: bool = False,
        traces: Traces | None = None,
        spool: Spool | None = None,
    ) -> None:
        """`traces`, `spool`: what there is of these, where the settings are not to say it."""
        self.completions: Final = LoopCompletions()
        self._owns_producer = owns_producer or producer is None
        self._report: CloseReport | None = None
        self._drained_by_ms = 0
        self.client_metrics = ClientMetrics(
            by_topic=settings.topic_metrics, topic_limit=settings.internal.topic_metrics_limit
        )
        # Before the producer, which would have to be closed again where the file is wrong.
        tokens_file = settings.tokens_file
        self.access: Final = Access(tokens_file, self.client_metrics.emit) if tokens_file else None
        self.cors: Final = Cors(settings.allowed_origins)
        quit_file = settings.quit_token_file
        self.quit_token: Final = QuitToken(quit_file, self.client_metrics.emit) if quit_file else None
        self.traces: Final = _make_traces(settings) if traces is None else traces
        self.trace_metrics: Final = TraceMetrics(self.traces.spans)
        clock = SystemClock() if producer is None else producer.clock
        slowness, notice = Slowness(clock), SnapshotNotice()
        self.advice: Final = AdviceAtStart(settings.advice, settings.service_name)
        self.event_log: Final = _make_event_log(settings, clock)
        self.event_metrics: Final = EventMetrics(self.event_log)
        log = () if self.event_log is None else (self.event_log,)
        #: Where the client's events go; a producer that is handed in is to be given it.
        self.events: Final = FanOut(self.client_metrics, slowness, notice, self.advice, *log)
        if producer is None:
            producer = _make_producer(settings, clock, self.events, self.completions)
        if self.event_log is not None:
            self.event_log.follow(producer)
        boot = secrets.token_hex(_BOOT_BYTES)
        self.spool: Final = _make_spool(settings, clock) if spool is None else spool
        self.spool_metrics: Final = SpoolMetrics(self.spool)
        self.sidecar: Final = build_sidecar(settings, producer, boot, slowness, notice, self.spool)
        endpoint = _produce_endpoint(_never, self.sidecar)
        dialects = dialects_of(self.sidecar)
        by_prefix = {prefix: d.error_format for d in dialects for prefix in d.prefixes}
        error_formats = ErrorFormats(by_prefix | ({DOCS: docs_error_format} if settings.console else {}))
        routes = [
            *_native_routes(self.sidecar),
            *records_router(endpoint).routes,
            *(route for d in dialects for route in d.routes),
        ]
        if settings.console:
            routes += console_routes()
        models: list[type[BaseModel]] = [ProblemAnswer, *(d.error_model for d in dialects)]
        self.api: Final = _make_api(
            routes, models, dialects, error_formats, self.sidecar.retry_after, self._lifespan
        )
        inner = _produce_endpoint(Observed(self.api, self.sidecar.http), self.sidecar)
        parked = ParkedLookups(inner, self.sidecar.lookups, self._knows, self.sidecar.http)
        in_traces = self.traces.around(parked, self.sidecar.config.client_id, _route_in_front)
        self._entry = Guards(
            FastLookups(in_traces, self.sidecar.table, self.sidecar.http),
            allowed_hosts=hosts_of(settings.allowed_hosts, settings.api_host),
            cors=self.cors,
            max_body_bytes=settings.max_body_bytes,
            drain=self.sidecar.drain,
            error_formats=error_formats,
            metrics=self.sidecar.http,
            retry_after=self.sidecar.retry_after,
            access=self.access,
            # The same for everyone, and asked for by who can't send a token: browsers that navigate, health
            # checks.
            open_paths=frozenset(
                {
                    *(OPEN_PATHS if settings.console else ()),
                    *(path for d in dialects for path in d.open_paths),
                }
            ),
            is_stream=_any_of([is_ndjson_stream, *(d.is_stream for d in dialects)]),
            quit_path=None
            if self.quit_token is None
            else Quit(self.quit_token, self.sidecar.drain, self.sidecar.http),
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """No coroutine of its own, which each request would pay for."""
        return self._entry(scope, receive, send)

    def _knows(self, topic: str) -> bool:
        return topic in self.sidecar.producer.cache.topics

    async def close_producer(self) -> CloseReport:
        """Flushes and closes the app's own producer within drain_timeout_ms; says what it left.

        The event log, which hears of that, has what is left of the time, and LAST_EVENTS_MS in any case.
        """
        if self._report is None:
            self._report = CloseReport()
            self._drained_by_ms = (
                self.sidecar.producer.clock.now_ms() + self.sidecar.settings.drain_timeout_ms
            )
            if self._owns_producer or self.event_log is not None or self.spool is not None:
                # The one call that blocks; requests are answered meanwhile.
                self._report = await asyncio.to_thread(self._close)
        return self._report

    def _close(self) -> CloseReport:
        report, producer = CloseReport(), self.sidecar.producer
        if self._owns_producer:
            report = producer.close(self.sidecar.settings.drain_timeout_ms)
        if self.spool is not None:
            self.spool.close(min(max(self._drain_time_left_ms(), 1), LAST_SPOOLED_MS))
        if self.event_log is not None:
            self.event_log.close(max(self._drain_time_left_ms(), LAST_EVENTS_MS))
        return report

    def _drain_time_left_ms(self) -> int:
        return max(self._drained_by_ms - self.sidecar.producer.clock.now_ms(), 0)

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        self.completions.bind(loop)
        if self.access is not None:
            self.access.watch(loop)
        if self.quit_token is not None:
            self.quit_token.watch(loop)
        if self.event_log is not None:
            self.event_log.start()
        if self._owns_producer:
            self.sidecar.producer.start()
        if self.spool is not None:
            self.spool.start(self.completions.call)
        if self.sidecar.settings.warm_topics:
            self.sidecar.producer.configure_topics(self.sidecar.settings.warm_topics)
        self.advice.begin(self.sidecar.producer, loop.call_soon_threadsafe)
        yield
        self.advice.end()
        if self.access is not None:
            self.access.close()
        if self.quit_token is not None:
            self.quit_token.close()
        self.sidecar.listing.close()
        self.sidecar.aside.close()
        await self.close_producer()
        # Last: the answers that waited for the producer have ended their spans by now.
        await asyncio.to_thread(self.traces.close, self._drain_time_left_ms())


def create_app(settings: Settings, producer: Producer | None = None) -> App:
    """The application over a producer, or over one of its own."""
    return App(settings, producer)


def _produce_endpoint(app: ASGIApp, sidecar: Sidecar) -> ProduceEndpoint:
    return ProduceEndpoint(
        app,
        sidecar.producing,
        sidecar.streams,
        body_threads=sidecar.aside,
        room=sidecar.room,
        keys=sidecar.keys,
        limits=sidecar.limits,
        metrics=sidecar.http,
        retry_after=sidecar.retry_after,
        spooled=None if sidecar.spool is None else _make_spooled(sidecar, sidecar.spool),
    )


def _make_spooled(sidecar: Sidecar, spool: Spool) -> SpooledProduce:
    """Loads what a sidecar without a spool never needs."""
    from service.produce.spooled import SpooledProduce

    return SpooledProduce(
        spool,
        sidecar.producer,
        sidecar.keys,
        sidecar.http.replays,
        sidecar.aside,
        trace_headers=sidecar.settings.trace_headers,
    )


def _make_producer(
    settings: Settings, clock: Clock, events: EventSink, completions: LoopCompletions
) -> Producer:
    return KafkaProducer(
        settings.producer_config(),
        clock=clock,
        events=events,
        completions=completions,
        wake_soon=completions.wake_soon,
        resolves_later=True,
        keeps_metrics=False,  # /metrics has its own
    )


def _make_event_log(settings: Settings, clock: Clock) -> EventLog | None:
    """None where events go nowhere; nothing of it is loaded then."""
    if not (settings.events_topic or settings.events_folder):
        return None
    from service.events.from_settings import make_event_log

    return make_event_log(settings, clock, Random())  # noqa: S311 - jitter


def _make_spool(settings: Settings, clock: Clock) -> Spool | None:
    """None where records are not spooled; nothing of it is loaded then. Raises SettingsError, ConfigError."""
    if not settings.spool_folder:
        return None
    from service.spool.spool import make_spool

    return make_spool(settings, clock)


def _make_traces(settings: Settings) -> Traces:
    """Spans where they are asked for; nothing of OpenTelemetry is loaded otherwise. Raises SettingsError."""
    if settings.tracing == "off":
        return CarriedTraces() if settings.trace_headers else NoTraces()
    try:
        from service.observe.tracing.otlp import make_span_traces
    except ImportError as e:
        if e.name is None or not e.name.startswith("opentelemetry"):
            raise
        raise SettingsError(
            f"tracing: {settings.tracing} needs OpenTelemetry ({e.name} is not there): "
            "install pilotfish with its extra otel"
        ) from e
    return make_span_traces(settings)


def _any_of(tests: Sequence[Callable[[Scope], bool]]) -> Callable[[Scope], bool]:
    return lambda scope: any(test(scope) for test in tests)


def _route_in_front(scope: Scope) -> str | None:
    """The route of a request that is served in front of FastAPI; None for any other."""
    if scope["method"] == "POST" and topic_of_path(scope.get("raw_path") or b"") is not None:
        return ROUTE
    return parked_route(scope) if scope["method"] == "GET" else None


async def _never(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("FastAPI's own route hands nothing on")


def _native_routes(sidecar: Sidecar) -> list[BaseRoute]:
    """The routes of /v1 but for produce, each made over the parts that it needs."""
    producer, lookups, table = sidecar.producer, sidecar.lookups, sidecar.table
    max_block_ms = sidecar.config.max_block_ms
    watch_times = WatchTimes(
        sidecar.settings.watch_heartbeat_ms, sidecar.settings.stall_timeout_ms, max_block_ms
    )
    routers = (
        MetadataRoutes(
            producer=producer, lookups=lookups, table=table, listing=sidecar.listing, slices=sidecar.slices
        ),
        LeadersRoute(
            producer=producer,
            lookups=lookups,
            table=table,
            room=sidecar.room,
            body_threads=sidecar.aside,
            slices=sidecar.slices,
            body_timeout_ms=max_block_ms,
        ),
        WatchRoute(
            feed=sidecar.feed, lookups=lookups, status=sidecar.status, boot=sidecar.boot, times=watch_times
        ),
        OperationRoutes(
            producer=producer,
            lookups=lookups,
            status=sidecar.status,
            spool=sidecar.spool,
            boot=sidecar.boot,
            default_wait_ms=max_block_ms,
        ),
    )
    return [route for made in routers for route in made.router().routes]


def _make_api(
    routes: Iterable[BaseRoute],
    error_models: Collection[type[BaseModel]],
    dialects: Sequence[Dialect],
    error_formats: ErrorFormats,
    retry_after: RetryAfter,
    lifespan: Any,
) -> FastAPI:
    api = FastAPI(
        title="Pilotfish",
        version=pilotfish_version(),
        summary="A Kafka metadata-cache sidecar: leaders and produce over HTTP on localhost.",
        lifespan=lifespan,
        docs_url=None,  # the page would load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # its own route makes the document's bytes anew for each request
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        # As they are, for they need nothing of the app's: include_router would make each of them once more
        # when the first request comes, which costs as much as all the rest of a start.
        routes=list(routes),
    )
    answer_errors(api, error_formats, retry_after)
    make_document = api.openapi

    def document() -> dict[str, Any]:
        api.openapi_schema = None  # FastAPI would keep it, and its bytes are kept already
        examples = {key: body for d in dialects for key, body in d.examples().items()}
        document = finished(make_document(), error_models, examples)
        api.openapi_schema = None
        return document

    api.openapi = document  # type: ignore[method-assign]  # FastAPI's own way of changing the document
    answer = ReadyDocument(document).answer
    api.router.routes.append(Route(DOCUMENT_PATH, answer, methods=["GET", "HEAD"], include_in_schema=False))
    return api
