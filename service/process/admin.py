"""The admin listener: /metrics /livez /readyz /startupz, and run_time.py, on its own thread and event loop.

It is separate from the API. So a busy or stuck API loop neither fails probes about other things nor delays a
scrape. It reads only the producer's status and thread-safe counters. In a pod it listens beyond loopback: its
connections have the same limits as the API's, with smaller figures.

No web page may read it. Requests that another page causes are rejected. On loopback, where a browser may run,
Host must be an allowed one, so that a page can't use a name that resolves to loopback. On other addresses
Host is not checked, because the kubelet and Prometheus may use any name.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator
from ipaddress import ip_address
from typing import Any, Final

from prometheus_client import GC_COLLECTOR, CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from client_core import Clock, SystemClock, UncaughtErrors
from service.admission.guards import SITE, hosts_of, is_of_another_page, without_port
from service.base.fast_metrics import gauge
from service.base.settings import Settings
from service.base.version import pilotfish_version
from service.listener.api_server import ApiServer
from service.listener.connections import KEEP_ALIVE_S, Connections, Limits
from service.listener.listeners import Listener
from service.observe.status_metrics import StatusCollector
from service.process.app import App
from service.process.health import Health
from service.process.run_time import PATHS, LogLevel, RunTime
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import ASGIApp, Receive, Scope, Send, header, respond_with

_log: Final = logging.getLogger(__name__)

#: Pause before a listener that ended unexpectedly is restarted.
_PAUSE_S: Final = 1.0

#: Its name in logs.
_NAME: Final = "the admin listener"

#: The kernel's buffer for a request, and so a read: more than any has here.
_RECEIVE_BUFFER_BYTES: Final = 16 * 1024

#: For kubelet, Prometheus and a few people. One answer always fits.
_LIMITS: Final = Limits(
    max_connections=256,
    head_s=10.0,
    keep_alive_s=KEEP_ALIVE_S,
    stall_s=10.0,
    max_unsent_bytes=4 * 1024 * 1024,
    large_heads_bytes=256 * 1024,
)

_TEXT: Final = b"text/plain; charset=utf-8"


class _CallersCollector(Collector):
    """A collector of waiting requests, watchers and open streams."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._admission = sidecar.admission
        self._feed = sidecar.feed
        self._streams = sidecar.streams

    def collect(self) -> list[Metric]:
        return [
            gauge(
                "waiting_requests",
                "Requests that wait for metadata, memory or acknowledgements.",
                self._admission.requests,
            ),
            gauge("waiting_bytes", "Bytes of bodies that wait to be delivered.", self._admission.bytes),
            gauge("watchers", "Callers of /v1/watch.", self._feed.watchers),
            gauge(
                "produce_streams",
                "Open streams of records: NDJSON, and REST Proxy v3.",
                self._streams.open_now,
            ),
        ]


class _Scrape(Collector):
    """A collector of what all others collect. One that raises costs the scrape only its own metrics."""

    def __init__(self, collectors: Iterable[Collector], clock: Clock) -> None:
        self._collectors = tuple(collectors)
        self._clock = clock
        self.uncaught = UncaughtErrors(_log, "the metrics")

    def collect(self) -> Iterator[Metric]:
        for collector in self._collectors:
            try:
                yield from collector.collect()
            except Exception as error:  # noqa: BLE001 -- the other metrics show what is wrong
                self.uncaught.report(error, self._clock.now_ms())


class _FailedTurns(Collector):
    """A collector of turns that failed: of the poll loop, event log, spool delivery and scrapes."""

    def __init__(self, app: App, scrape: _Scrape) -> None:
        self._scrape = scrape
        self._producer = app.sidecar.producer
        self._event_log = app.event_log
        self._spool = app.spool

    def collect(self) -> list[Metric]:
        family = CounterMetricFamily(
            "pilotfish_loop_failed_turns",
            "Turns of a loop that ended with an unexpected exception; the log has the stack.",
            labels=("loop",),
        )
        family.add_metric(("poll",), self._producer.loop_work().failed_turns)
        if self._event_log is not None:
            family.add_metric(("event_log",), self._event_log.failed_turns)
        if self._spool is not None:
            family.add_metric(("spool",), self._spool.delivery.failed_turns)
        family.add_metric(("scrape",), self._scrape.uncaught.count)
        return [family]


def make_registry(app: App, collectors: Iterable[Collector] = ()) -> CollectorRegistry:
    """Returns a registry with all metrics of this app, its server and the process."""
    sidecar = app.sidecar
    scrape = _Scrape(
        [
            app.client_metrics,
            StatusCollector(
                sidecar.producer,
                version=pilotfish_version(),
                longest_sleep_ms=sidecar.config.request_timeout_ms,
                has_left=app.client_metrics.has_left,
                left_brokers=app.client_metrics.left_brokers,
                latencies=sidecar.slowness.latencies,
            ),
            sidecar.http,
            _CallersCollector(sidecar),
            app.advice,
            app.event_metrics,
            app.spool_metrics,
            app.trace_metrics,
            *collectors,
            GC_COLLECTOR,
            ProcessCollector(registry=None),
        ],
        sidecar.producer.clock,
    )
    registry = CollectorRegistry()
    registry.register(scrape)
    registry.register(_FailedTurns(app, scrape))  # the last, so that it counts this scrape, too
    return registry


class AdminApp:
    """The ASGI application of the admin listener."""

    def __init__(
        self,
        registry: CollectorRegistry,
        health: Health,
        hosts: Container[bytes] | None = None,
        embedded: ASGIApp | None = None,
        run_time: ASGIApp | None = None,
    ) -> None:
        """`hosts`: the accepted values of Host, in lower case without ports; None accepts all.

        `embedded` answers below /embedded, `run_time` the paths of run_time.py.
        """
        self._embedded = embedded
        self._run_time = run_time
        self._registry = registry
        self._health = health
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if not self._is_known_host(scope):
            detail = b"this Host is not allowed; allowed_hosts lists those that are\n"
            await respond_with(send, 421, _TEXT, detail, [])
            return
        site = header(scope, SITE)
        if header(scope, b"origin") is not None or (site is not None and is_of_another_page(scope, site)):
            await respond_with(send, 403, _TEXT, b"no web page may read this\n", [])
            return
        if self._embedded is not None and scope["path"].partition("/embedded")[0] == "":
            await self._embedded(scope, receive, send)
            return
        if self._run_time is not None and scope["path"] in PATHS:
            await self._run_time(scope, receive, send)
            return
        if scope["method"] not in ("GET", "HEAD"):
            await respond_with(send, 405, _TEXT, b"only GET\n", [(b"allow", b"GET, HEAD")])
            return
        match scope["path"]:
            case "/metrics":
                accept = (header(scope, b"accept") or b"").decode("latin-1")
                encode, content_type = choose_encoder(accept)
                await respond_with(send, 200, content_type.encode(), encode(self._registry), [])
            case "/livez":
                await _probe(send, await self._health.fault_of_life())
            case "/readyz":
                await _probe(send, await self._health.fault_of_readiness())
            case "/startupz":
                await _probe(send, self._health.fault_of_startup())
            case _:
                await respond_with(send, 404, _TEXT, b"there are /metrics /livez /readyz /startupz\n", [])

    def _is_known_host(self, scope: Scope) -> bool:
        host = header(scope, b"host")
        return self._hosts is None or (host is not None and without_port(host.lower()) in self._hosts)


async def _probe(send: Send, fault: str | None) -> None:
    status, said = (200, "ok") if fault is None else (503, fault)
    await respond_with(send, status, _TEXT, f"{said}\n".encode(), [(b"cache-control", b"no-store")])


class AdminThread:
    """Serves an admin app on a bound socket until it is stopped, then closes the socket.

    `watch` runs on the same loop. If the server or the watch ends, both are restarted.
    """

    def __init__(
        self,
        app: ASGIApp,
        bound: socket.socket,
        *,
        watch: Callable[[], Coroutine[Any, Any, None]] | None = None,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._app = app
        self._server: ApiServer | None = None
        self._bound = bound
        self._watch = watch
        self._pause_s = pause_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pilotfish-admin", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stops the thread. Open answers may end within `timeout_s`."""
        self._stopped.set()
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(timeout_s)

    def _run(self) -> None:
        clock = SystemClock()
        uncaught = UncaughtErrors(_log, _NAME)
        with self._bound:
            while not self._stopped.is_set():
                try:
                    self._serve()
                except BaseException as error:  # noqa: BLE001 -- without this thread there are no probes
                    uncaught.report(error, clock.now_ms())
                if not self._stopped.wait(self._pause_s):
                    _log.warning("the admin listener has ended unexpectedly and is restarted")

    def _serve(self) -> None:
        bound = self._bound.dup()  # the listener closes its socket
        with bound:
            listener = Listener(bound, _NAME, receive_buffer_bytes=_RECEIVE_BUFFER_BYTES)
            server = ApiServer(self._app, [listener], Connections(_LIMITS, _NAME), has_lifespan=False)
            self._server = server
            if not self._stopped.is_set():  # else `stop` was called before there was a server
                asyncio.run(self._serve_and_watch(server))

    async def _serve_and_watch(self, server: ApiServer) -> None:
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._watch()) if self._watch is not None else None
            await server.serve()
            if watch is not None:
                watch.cancel()


def admin_hosts(settings: Settings) -> frozenset[bytes] | None:
    """Returns the accepted values of Host on the admin listener; None beyond loopback, or for any."""
    address = settings.admin_host
    if "*" in settings.allowed_hosts or not _is_loopback(address):
        return None
    names = hosts_of((*settings.allowed_hosts, "localhost", "127.0.0.1", "[::1]"), address)
    return frozenset(name.lower().encode() for name in names)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def start_admin(
    app: App,
    bound: socket.socket,
    listening: Callable[[], bool],
    collectors: Iterable[Collector] = (),
    embedded: ASGIApp | None = None,
    log_level: LogLevel | None = None,
) -> AdminThread:
    """Starts the admin listener of an app, and returns it. Called on the app's own event loop.

    `collectors` are those of the server; the app's own are added here. `embedded` answers below /embedded.
    `log_level` is that of the process.
    """
    health = Health(app.sidecar, asyncio.get_running_loop(), listening)
    registry = make_registry(app, [*collectors, health.loop_watchdog])
    run_time = None
    if app.admin_token is not None:
        run_time = RunTime(app.sidecar, app.admin_token, log_level or LogLevel())
    admin_app = AdminApp(registry, health, admin_hosts(app.sidecar.settings), embedded, run_time)
    admin = AdminThread(admin_app, bound, watch=health.watch)
    admin.start()
    return admin
