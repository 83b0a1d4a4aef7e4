"""Runs one sidecar as a process: the API, the admin listener, and an orderly shutdown.

The API runs on the main thread's event loop. SIGTERM, SIGINT or POST /quitquitquit begins the shutdown:

    drain_delay_ms      requests are served as before
    drain_timeout_ms    new work is rejected, and the producer delivers what it accepted
    less than 5 s       records that were not delivered are logged, waiting callers are answered, exit code 0

A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

from client_core import CloseReport, ConfigError
from service.base.logs import set_up_logging
from service.base.memory_limit import fitted, memory_limit
from service.base.settings import Settings
from service.base.settings_sources import SettingsError
from service.base.version import pilotfish_version
from service.base.watched_file import FileFaultError
from service.listener.api_server import ApiServer, connections_that_fit
from service.listener.connections import Connections, Limits
from service.listener.listener_tls import ListenerTls, tls_of
from service.listener.listeners import Listener
from service.listener.unix_socket import UnixSocket, bind_unix_socket
from service.observe.metrics import ClientMetrics
from service.observe.request_trace import current_trace_id
from service.process.admin import start_admin
from service.process.app import App
from service.process.garbage import Garbage, map_large_blocks
from service.process.run_time import LogLevel, read_again
from service.wire.asgi import ASGIApp

_log: Final = logging.getLogger(__name__)

#: How long a busy thread keeps the others waiting. At the interpreter's 5 ms, a request that crosses threads
#: four times may wait 20 ms. At 0.5 ms, the cost of the switches still can't be measured.
SWITCH_INTERVAL_S: Final = 0.0005

_BACKLOG: Final = 2048

#: A second signal within this time counts as the first one: nobody reacts so fast.
_SAME_SIGNAL_S: Final = 0.5

#: Pause between two checks of whether the first metadata has come.
_LOOK_S: Final = 0.02

#: The exit code for an invalid setting, the same as for a wrong command line.
WRONG_SETTING: Final = 2
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def serve(
    settings: Settings,
    when_started: Callable[[str, int], None] | None = None,
    embedded: ASGIApp | None = None,
    load: Callable[[], Settings] | None = None,
) -> int:
    """Runs a sidecar until its shutdown; returns the exit code. `load` reads the settings again, at SIGHUP.

    `when_started` gets the API's URL and the admin port when the API listens and metadata is known.
    `embedded` is the control of an embedded cluster, for the admin listener.
    """
    set_up_logging(settings.log_level, settings.log_format, current_trace_id)
    given, limit = settings, memory_limit()
    settings, reported, doubt = fitted(settings, limit)
    log_level = LogLevel()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with ExitStack() as stack:
        try:
            api = stack.enter_context(bound_socket(settings.api_host, settings.api_port, "api_port"))
            admin = stack.enter_context(bound_socket(settings.admin_host, settings.admin_port, "admin_port"))
            unix = None
            if settings.api_socket:
                unix = bind_unix_socket(settings.api_socket, int(settings.api_socket_mode, 8), _BACKLOG)
                stack.callback(unix.close)
        except OSError as e:
            _log.error("%s", e)
            return 1
        _log.debug("settings: %r", settings)
        try:
            tls = tls_of(settings)
            app = App(settings)
        except ConfigError as e:
            _log.error("kafka: %s", e.message)
            return WRONG_SETTING
        except (FileFaultError, SettingsError) as e:
            _log.error("%s", e)
            return WRONG_SETTING
        _log.info("settings: %s; kafka: %s", given.shown(), app.sidecar.config.shown(given.kafka))
        if reported:
            _log.info("%s", reported)
        if doubt:
            _log.warning("%s", doubt)
        _log.debug("kafka: %r", app.sidecar.config)  # its repr masks secrets
        server = SidecarServer(
            app,
            api,
            admin,
            unix=unix,
            tls=tls,
            when_started=when_started,
            embedded=embedded,
            log_level=log_level,
            read_again=load and partial(read_again, load, app.sidecar, given, limit, log_level),
        )
        server.keep_signals()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(server.run())


def bound_socket(host: str, port: int, name: str) -> socket.socket:
    """Returns a listening socket. Raises OSError that names the setting. IPv6 may have brackets."""
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as e:
        reason = (e.strerror or str(e)).partition(" (while attempting")[0]  # the rest repeats the address
        taken = e.errno == errno.EADDRINUSE
        flag, variable = f"--{name.replace('_', '-')}", f"PILOTFISH_{name.upper()}"
        remedy = f"; choose another with {flag} or {variable}" if taken else ""
        raise OSError(f"{name}: can't listen on {host}:{port}: {reason}{remedy}") from e


def report_certificate(tls: ListenerTls, metrics: ClientMetrics) -> None:
    """Counts reloads of the certificate in `metrics`, and shows there when it expires."""
    tls.report_to(metrics.emit)
    metrics.listener_expires_at_s = lambda: tls.expires_at_s


class SidecarServer:
    """The running sidecar. Main thread only."""

    def __init__(
        self,
        app: App,
        api: socket.socket,
        admin: socket.socket,
        *,
        unix: UnixSocket | None = None,
        tls: ListenerTls | None = None,
        when_started: Callable[[str, int], None] | None = None,
        embedded: ASGIApp | None = None,
        log_level: LogLevel | None = None,
        read_again: Callable[[], None] | None = None,
    ) -> None:
        """`api` uses TLS if `tls` is given; the Unix domain socket never does. `read_again` is for SIGHUP."""
        self._app = app
        self._when_started = when_started
        self._embedded = embedded
        self._log_level = LogLevel() if log_level is None else log_level
        self._read_again = read_again
        self._drain = app.sidecar.drain
        self._admin_socket = admin
        self._tls = tls
        scheme, context = ("http", None) if tls is None else ("https", tls.context)
        self._url = f"{scheme}://{_address(api)}"
        internal = app.sidecar.settings.internal
        self._listeners = [
            Listener(api, self._url, context=context, receive_buffer_bytes=internal.receive_buffer_bytes)
        ]
        if unix is not None:
            self._listeners.append(Listener(unix.socket, unix.path, close=unix.close))
        limits = Limits.of(app.sidecar.settings)
        limits = limits._replace(max_connections=connections_that_fit(limits.max_connections))
        self._connections = Connections(limits)
        self._api = ApiServer(
            app,
            self._listeners,
            self._connections,
            access_log=app.sidecar.settings.access_log,
            cors=app.cors,
            answer_at_once=app.answer_at_once,
        )
        self._asked_to_end = asyncio.Event()
        self._drain.when_asked(self._asked_to_end.set)
        #: When the first signal came; POST /quitquitquit does not count.
        self._signalled_at_s: float | None = None
        #: Signals that came while the event loop started.
        self._kept: list[int] = []

    def keep_signals(self) -> None:
        """Keeps signals until `run` handles them: an exception would break the start of the event loop."""
        for number in (*_SIGNALS, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._kept.append(number))

    async def run(self) -> int:
        """Serves until a signal or POST /quitquitquit requests the shutdown. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        for kept in self._kept:
            self._on_hangup() if kept == signal.SIGHUP else self._on_signal(kept)
        if self._tls is not None:
            report_certificate(self._tls, self._app.client_metrics)
            self._tls.watch(loop)
        admin = start_admin(
            self._app,
            self._admin_socket,
            lambda: self._api.started,
            [self._connections],
            self._embedded,
            self._log_level,
        )
        garbage = Garbage(loop, lambda: self._app.sidecar.admission.requests)
        garbage.begin()
        map_large_blocks(self._app.sidecar.settings.internal.mapped_block_bytes)
        serving = loop.create_task(self._api.serve())
        _log.info(
            "pilotfish %s serves on %s, metrics and probes on http://%s",
            pilotfish_version(),
            " and ".join(listener.name for listener in self._listeners),
            _address(self._admin_socket),
        )
        asked = loop.create_task(self._asked_to_end.wait())
        reporting = loop.create_task(self._report_start())
        try:
            await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                _log.error("the API ended by itself", exc_info=serving.exception())
                return 1
            return await self._end(serving)
        finally:
            garbage.end()
            asked.cancel()
            reporting.cancel()
            if self._tls is not None:
                self._tls.close()
            admin.stop(timeout_s=2)

    async def _report_start(self) -> None:
        if self._when_started is None:
            return
        producer = self._app.sidecar.producer
        while not self._api.started or producer.status().metadata.age_ms is None:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(_LOOK_S)
        self._when_started(self._url, self._admin_socket.getsockname()[1])

    async def _end(self, serving: asyncio.Task[None]) -> int:
        """Ends the producer, then the API, even if the former fails. Returns the exit code."""
        await asyncio.sleep(self._app.sidecar.settings.drain_delay_ms / 1000)
        self._drain.begin()
        self._connections.end_with_answers()
        _log.info("no new requests are accepted; delivering the accepted records")
        exit_code = 0
        try:
            report_unacknowledged(await self._app.close_producer())
        except Exception:  # noqa: BLE001 -- a bug, or a lack of memory
            _log.exception(
                "the producer, the spool or the event log could not be closed; records may be lost"
            )
            exit_code = 1
        self._api.should_exit = True
        await serving
        _log.info("pilotfish has shut down")
        return exit_code

    def _on_hangup(self) -> None:
        if self._read_again is not None:
            self._read_again()

    def _on_signal(self, number: int) -> None:
        name = signal.Signals(number).name
        now_s = asyncio.get_running_loop().time()
        if self._signalled_at_s is None:
            self._signalled_at_s = now_s
            is_first = self._drain.ask()
            _log.info("%s: shutting down%s", name, "" if is_first else ", as requested before")
        elif now_s - self._signalled_at_s >= _SAME_SIGNAL_S:
            # Earlier it is the same signal: timeout(1) and shells signal a process and also its group.
            _log.error("%s again: ending at once, unacknowledged records are lost", name)
            os._exit(128 + number)


def report_unacknowledged(report: CloseReport) -> None:
    """Logs the accepted records that were not delivered when the drain was over, by partition."""
    for left in report.unacknowledged:
        where = left.topic if left.partition is None else f"{left.topic}-{left.partition}"
        _log.error("%d records of %s were not acknowledged before the drain ended", left.records, where)
    if report.flushed:
        _log.info("all accepted records are acknowledged")
    elif not report.unacknowledged:
        _log.info(
            "all open records are acknowledged; %d records had failed before the drain",
            report.failed_earlier,
        )


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's factory if it is installed; None means asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
