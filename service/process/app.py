"""Builds the sidecar's ASGI application from its parts.

    Guards            who may ask, how much at once
    └── FastLookups   GET only: prepared answers
        └── Traces    the request's trace, if it has one or spans are made
            └── ProduceEndpoint
                └── ReadyLeaders   many leaders at once, from ready bytes
                    └── ParkedLookups   look-ups that wait for a topic
                        └── Observed
                            └── FastAPI   typed routes: slow paths, errors, /openapi.json

A producer that is passed in belongs to the caller, who starts and closes it. It must post its completions to
the loop that serves this app (`LoopCompletions`). Otherwise the app makes its own producer from the settings.
The lifespan starts it, and `close_producer` closes it.

`FanOut` passes the client's events to all parts of the sidecar that want them. Its `emit` is in the hot path
of the client's threads, so each sink must be fast. Any thread.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.routing import BaseRoute, Route

from client_core import Clock, CloseReport, Event, EventSink, KafkaProducer, LoopCompletions, SystemClock
from service.admission.access import Access
from service.admission.drain import QUIT_TOKEN_FILE, Quit, TokenFile
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
from service.native.leaders import ROUTE as LEADERS
from service.native.leaders import LeadersRoute, ReadyLeaders
from service.native.metadata import MetadataRoutes
from service.native.openapi import DOCUMENT_PATH, ReadyDocument, finished
from service.native.operations import OperationRoutes
from service.native.problem_pages import OPEN_PATHS as PROBLEM_PATHS
from service.native.problem_pages import problem_routes
from service.native.records import records_router
from service.native.watch import WatchRoute
from service.observe.http_metrics import Observed
from service.observe.metrics import ClientMetrics
from service.observe.request_trace import CarriedTraces, NoTraces, TraceMetrics, Traces
from service.observe.slowness.collector import Slowness
from service.process.advice_at_start import AdviceAtStart
from service.produce.many_topics import OWN_TOPICS
from service.produce.ndjson import is_ndjson_stream
from service.produce.produce_endpoint import MANY_ROUTE, ROUTE, ProduceEndpoint, topic_of_path
from service.sidecar.error_answers import answer_errors
from service.sidecar.sidecar import Sidecar, build_sidecar
from service.sidecar.status_report import StatusReport
from service.spool.spool_metrics import SpoolMetrics
from service.watch.notice import SnapshotNotice
from service.wire.asgi import Answer, ASGIApp, HeaderPairs, Peer, Receive, Scope, Send
from service.wire.cors import Cors
from service.wire.errors import ErrorFormats
from service.wire.schemas import ProblemAnswer

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig

    from service.events.event_log import EventLog
    from service.produce.spooled import SpooledProduce
    from service.spool.spool import Spool


#: Time for the last window and heartbeat of the event log if the producer used up drain_timeout_ms. They
#: report that this sidecar has ended. In addition to drain_timeout_ms.
LAST_EVENTS_MS: Final = 1_000

#: The most time at the end for the spool to deliver what is in flight. The rest stays on the disk.
LAST_SPOOLED_MS: Final = 2_000

#: Random, so that a version of an earlier process never equals one of this process.
_BOOT_BYTES: Final = 4

#: Turns off the spans, metrics and logs that newer versions of FastAPI make if OpenTelemetry is set up. Ours
#: are `observe/tracing/`, /metrics and logs.py, and do not show the contents of requests.
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
        """Returns whether events of this class are wanted. FanOut asks once for each class."""
        ...

    def emit(self, event: Event, /) -> None: ...


class FanOut:
    """An EventSink that passes each event to the sinks that want its class, in their order."""

    def __init__(self, *sinks: Subscriber) -> None:
        self._sinks: Final = sinks
        # The sinks by class of event, found when its first event comes.
        self._by_kind: dict[type, tuple[Callable[[Event], None], ...]] = {}

    def emit(self, event: Event, /) -> None:
        """Passes the event to every sink that wants it, even if one before it raises.

        At last raises that exception, or an ExceptionGroup of several.
        """
        kind = type(event)
        takers = self._by_kind.get(kind)
        if takers is None:
            takers = self._by_kind[kind] = tuple(sink.emit for sink in self._sinks if sink.wants(kind))
        failures: list[Exception] | None = None
        for take in takers:
            try:
                take(event)
            except Exception as error:  # noqa: BLE001 -- the I/O thread logs it
                failures = [*(failures or ()), error]
        if failures is not None:
            raise failures[0] if len(failures) == 1 else ExceptionGroup("several sinks raised", failures)


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
        """`traces` and `spool` replace those that the settings describe."""
        self.completions: Final = LoopCompletions()
        self._owns_producer = owns_producer or producer is None
        self._report: CloseReport | None = None
        self._drained_by_ms = 0
        clock = SystemClock() if producer is None else producer.clock
        self.client_metrics = ClientMetrics(
            by_topic=settings.topic_metrics,
            topic_limit=settings.internal.topic_metrics_limit,
            monotonic_s=lambda: clock.now_ms() / 1000,
        )
        # Before the producer, which would have to be closed again if the file is invalid.
        tokens_file = settings.tokens_file
        self.access: Final = Access(tokens_file, self.client_metrics.emit) if tokens_file else None
        self.cors: Final = Cors(settings.allowed_origins)
        self.quit_token: Final = self._token_of(QUIT_TOKEN_FILE, settings.quit_token_file)
        #: The token of the admin listener's own paths; None: they are not served.
        self.admin_token: Final = self._token_of("admin_token_file", settings.admin_token_file)
        self.traces: Final = _make_traces(settings) if traces is None else traces
        self.trace_metrics: Final = TraceMetrics(self.traces.spans)
        slowness, notice = Slowness(clock), SnapshotNotice()
        self.advice: Final = AdviceAtStart(settings.advice, settings.service_name)
        self.event_log: Final = _make_event_log(settings, clock)
        self.event_metrics: Final = EventMetrics(self.event_log)
        log = () if self.event_log is None else (self.event_log,)
        #: The sink of the client's events. A producer that is passed in must use it.
        self.events: Final = FanOut(self.client_metrics, slowness, notice, self.advice, *log)
        if producer is None:
            producer = _make_producer(settings, clock, self.events, self.completions)
        if self.event_log is not None:
            self.event_log.follow(producer)
        boot = secrets.token_hex(_BOOT_BYTES)
        self.spool: Final = _make_spool(settings, clock) if spool is None else spool
        self.spool_metrics: Final = SpoolMetrics(self.spool)
        self.sidecar: Final = build_sidecar(settings, producer, boot, slowness, notice, self.spool)
        self.status: Final = StatusReport(self.sidecar)
        endpoint = _produce_endpoint(_never, self.sidecar)
        dialects = dialects_of(self.sidecar)
        by_prefix = {prefix: d.error_format for d in dialects for prefix in d.prefixes}
        error_formats = ErrorFormats(by_prefix | ({DOCS: docs_error_format} if settings.console else {}))
        routes = [
            *_native_routes(self.sidecar, self.status),
            *records_router(endpoint).routes,
            *(route for d in dialects for route in d.routes),
            *problem_routes(),
        ]
        if settings.console:
            routes += console_routes()
        self.api: Final = _make_api(routes, dialects, error_formats, self.sidecar, self._lifespan)
        lookups, table, http = self.sidecar.lookups, self.sidecar.table, self.sidecar.http
        parked = ParkedLookups(
            Observed(self.api, http),
            lookups,
            lookups.is_ready,
            http,
            self.sidecar.failed,
            self.sidecar.retry_after,
        )
        leaders = ReadyLeaders(parked, table, self.sidecar.admission, http)
        inner = _produce_endpoint(leaders, self.sidecar)
        in_traces = self.traces.around(inner, self.sidecar.config.client_id, _route_in_front)
        # Look-ups of dialects have spans, those of the native API have none.
        with_spans = self.traces.spans is not None
        prefixes = tuple(prefix.encode() for prefix in by_prefix) if with_spans else ()
        self._fast_lookups = FastLookups(in_traces, table, http, prefixes)
        streams = [is_ndjson_stream, *(d.is_stream for d in dialects)]
        self._entry = Guards(
            in_traces,
            self._fast_lookups,
            allowed_hosts=hosts_of(settings.allowed_hosts, settings.api_host),
            cors=self.cors,
            max_body_bytes=settings.max_body_bytes,
            drain=self.sidecar.drain,
            error_formats=error_formats,
            metrics=self.sidecar.http,
            retry_after=self.sidecar.retry_after,
            access=self.access,
            # The same for all callers, and used by clients that can't send a token: browsers, health checks.
            open_paths=frozenset(
                {
                    *(OPEN_PATHS if settings.console else ()),
                    *PROBLEM_PATHS,
                    *(path for d in dialects for path in d.open_paths),
                }
            ),
            is_stream=lambda scope: any(is_stream(scope) for is_stream in streams),
            may_be_written=inner.may_be_written,
            quit_path=None
            if self.quit_token is None
            else Quit(self.quit_token, self.sidecar.drain, self.sidecar.http),
        )

    def _token_of(self, setting: str, token_file: str) -> TokenFile | None:
        return TokenFile(setting, token_file, self.client_metrics.emit) if token_file else None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serves a request. Not a coroutine, because each request would pay for it."""
        return self._entry(scope, receive, send)

    def answer_at_once(self, target: bytes, headers: HeaderPairs, peer: Peer, write: Answer) -> bool:
        """Answers a look-up whose answer is ready; see `asgi.AnswerAtOnce`."""
        guards = self._entry
        caller = guards.caller_at_once(headers, over_unix=peer.is_unix)
        if caller is None:
            return False
        added = guards.added_lines
        if not added:
            return self._fast_lookups.answer(target, headers, peer, caller, write)

        def written(status: int, head: bytes, body: bytes) -> bool:
            return write(status, added + head, body)

        return self._fast_lookups.answer(target, headers, peer, caller, written)

    async def close_producer(self) -> CloseReport:
        """Flushes and closes the app's own producer within drain_timeout_ms; returns what was left.

        The spool and the event log close after it, in the time that is left: the spool in at most
        LAST_SPOOLED_MS, the event log in at least LAST_EVENTS_MS.
        """
        if self._report is None:
            self._report = CloseReport()
            self._drained_by_ms = (
                self.sidecar.producer.clock.now_ms() + self.sidecar.settings.drain_timeout_ms
            )
            if self._owns_producer or self.event_log is not None or self.spool is not None:
                # Blocks, so it runs in a thread. Requests are answered meanwhile.
                self._report = await asyncio.to_thread(self._close)
        return self._report

    def _close(self) -> CloseReport:
        with ExitStack() as later:  # each is closed, whatever closing those before it raises
            if self.event_log is not None:
                log = self.event_log
                later.callback(lambda: log.close(max(self._drain_time_left_ms(), LAST_EVENTS_MS)))
            if self.spool is not None:
                spool = self.spool
                later.callback(lambda: spool.close(min(max(self._drain_time_left_ms(), 1), LAST_SPOOLED_MS)))
            if self._owns_producer:
                return self.sidecar.producer.close(self.sidecar.settings.drain_timeout_ms)
        return CloseReport()

    def _drain_time_left_ms(self) -> int:
        return max(self._drained_by_ms - self.sidecar.producer.clock.now_ms(), 0)

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        self.completions.bind(loop)
        files = (self.access, self.quit_token, self.admin_token)
        watched = [file for file in files if file is not None]
        for file in watched:
            file.watch(loop)
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
        for file in watched:
            file.close()
        self.sidecar.listing.close()
        self.sidecar.body_threads.close()
        await self.close_producer()
        # Last: requests that waited for the producer have ended their spans by now.
        await asyncio.to_thread(self.traces.close, self._drain_time_left_ms())


def _produce_endpoint(app: ASGIApp, sidecar: Sidecar) -> ProduceEndpoint:
    return ProduceEndpoint(
        app,
        sidecar.producing,
        sidecar.streams,
        body_threads=sidecar.body_threads,
        admission=sidecar.admission,
        keys=sidecar.keys,
        limits=sidecar.limits,
        metrics=sidecar.http,
        retry_after=sidecar.retry_after,
        failed=sidecar.failed,
        spooled=None if sidecar.spool is None else _make_spooled(sidecar, sidecar.spool),
    )


def _make_spooled(sidecar: Sidecar, spool: Spool) -> SpooledProduce:
    """Imports modules that only a sidecar with a spool needs."""
    from service.produce.spooled import SpooledProduce

    return SpooledProduce(
        spool,
        sidecar.producer,
        sidecar.keys,
        sidecar.http.replays,
        sidecar.body_threads,
        max_stale_ms=sidecar.settings.lookup_max_stale_ms,
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
        spreads_refreshes=True,
        keeps_metrics=False,  # /metrics has its own
    )


def _make_event_log(settings: Settings, clock: Clock) -> EventLog | None:
    """Returns None without a target for events, and then imports nothing of the event log."""
    if not (settings.events_topic or settings.events_folder):
        return None
    from service.events.event_log import make_event_log

    return make_event_log(settings, clock, Random())  # noqa: S311 - jitter


def _make_spool(settings: Settings, clock: Clock) -> Spool | None:
    """Returns None without spool_folder, and then imports nothing. Raises SettingsError, ConfigError."""
    if not settings.spool_folder:
        return None
    from service.spool.spool import make_spool

    return make_spool(settings, clock)


def _make_traces(settings: Settings) -> Traces:
    """Makes spans if `tracing` is set; otherwise OpenTelemetry is not imported. Raises SettingsError."""
    if settings.tracing == "off":
        return CarriedTraces() if settings.trace_headers else NoTraces()
    try:
        from service.observe.tracing.otlp import make_span_traces
    except ImportError as e:
        if e.name is None or not e.name.startswith("opentelemetry"):
            raise
        raise SettingsError(
            f"tracing: {settings.tracing} needs OpenTelemetry ({e.name} is not installed): install "
            "pilotfish with its extra otel"
        ) from e
    return make_span_traces(settings)


def _route_in_front(scope: Scope) -> str | None:
    """Returns the route of a request that is served before FastAPI, else None."""
    if scope["method"] == "POST":
        path = scope.get("raw_path") or b""
        if path == LEADERS.encode():
            return LEADERS
        topic = topic_of_path(path)
        return None if topic is None else MANY_ROUTE if topic == OWN_TOPICS else ROUTE
    return parked_route(scope) if scope["method"] == "GET" else None


async def _never(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("FastAPI's own route hands nothing on")


def _native_routes(sidecar: Sidecar, status: StatusReport) -> list[BaseRoute]:
    """Returns the routes of /v1 except produce."""
    routers = (
        MetadataRoutes(sidecar),
        LeadersRoute(sidecar),
        WatchRoute(sidecar, status),
        OperationRoutes(sidecar, status),
    )
    return [route for made in routers for route in made.router().routes]


def _make_api(
    routes: list[BaseRoute],
    dialects: Sequence[Dialect],
    error_formats: ErrorFormats,
    sidecar: Sidecar,
    lifespan: Any,
) -> FastAPI:
    api = FastAPI(
        title="Pilotfish",
        version=pilotfish_version(),
        description="A Kafka metadata-cache sidecar: leaders and produce over HTTP on localhost.",
        lifespan=lifespan,
        docs_url=None,  # the page would load scripts from other sites
        redoc_url=None,
        openapi_url=None,  # FastAPI's route would encode the document for each request
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        # Passed as they are, because they need nothing of the app. include_router would make each of them
        # again at the first request, which costs as much as the rest of a start.
        routes=routes,
    )
    answer_errors(api, error_formats, sidecar.retry_after, sidecar.failed)
    make_document = api.openapi

    def document() -> dict[str, Any]:
        api.openapi_schema = None  # FastAPI would cache it, but its bytes are cached already
        models: list[type[BaseModel]] = [ProblemAnswer, *(d.error_model for d in dialects)]
        examples = {key: body for d in dialects for key, body in d.examples().items()}
        open_paths = {path for d in dialects for path in d.open_paths}
        document = finished(make_document(), models, examples, error_formats, open_paths)
        api.openapi_schema = None
        return document

    api.openapi = document  # type: ignore[method-assign]  # FastAPI's way of changing the document
    answer = ReadyDocument(document).answer
    api.router.routes.append(Route(DOCUMENT_PATH, answer, methods=["GET", "HEAD"], include_in_schema=False))
    return api
