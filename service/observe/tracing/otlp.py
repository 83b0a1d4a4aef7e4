"""Sets up tracing from the settings and OpenTelemetry's environment variables.

Called once, by the app. The SDK reads OTEL_EXPORTER_OTLP_ENDPOINT, …_HEADERS, …_TIMEOUT, OTEL_TRACES_SAMPLER,
OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME and others; `span_queue.py` reads OTEL_BSP_…. The provider belongs
to the app and is not global. So two apps in one process are independent, and a program that embeds the app
keeps its own provider.

The SDK's log records are kept out of our log, because they may contain secrets. The SDK logs each failed
attempt and each dropped span. If it can't parse OTEL_EXPORTER_OTLP_HEADERS, it logs the header with the
collector's token. `SdkLog` keeps these records and reports only the safe parts, once.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from service.base.settings import Settings
from service.base.settings_sources import SettingsError
from service.base.version import pilotfish_version
from service.observe.tracing.span_queue import QueueLimits, SpanQueue
from service.observe.tracing.spans import RequestSpans
from service.wire.asgi import ASGIApp, Scope

_log: Final = logging.getLogger(__name__)

_SDK: Final = "opentelemetry"
#: The logger of the header parser. Its messages contain the headers.
_OF_HEADERS: Final = "opentelemetry.util.re"
_KEPT: Final = 16


class SdkLog(logging.Handler):
    """The last log records of the SDK. Any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._records: deque[logging.LogRecord] = deque(maxlen=_KEPT)

    def install(self) -> None:
        """Replaces the handlers of the SDK's logger."""
        logger = logging.getLogger(_SDK)
        logger.handlers[:] = [self]
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)

    def report_start(self) -> None:
        """Logs what the SDK found wrong with its environment variables."""
        for record in self._taken():
            if record.name == _OF_HEADERS:
                _log.warning(
                    "OpenTelemetry: a header is ignored; write OTEL_EXPORTER_OTLP_HEADERS as name=value, "
                    "separated by commas, values URL-encoded"
                )
            else:
                _log.warning("OpenTelemetry: %s", record.getMessage())

    def why(self) -> str:
        """Returns what went wrong since the last call: HTTP statuses and error classes, no SDK text."""
        causes = dict.fromkeys(cause for record in self._taken() for cause in _causes(record))
        return ", ".join(causes) or "OpenTelemetry gives no reason"

    def _taken(self) -> list[logging.LogRecord]:
        taken: list[logging.LogRecord] = []
        while self._records:
            taken.append(self._records.popleft())
        return taken


def _causes(record: logging.LogRecord) -> list[str]:
    """Returns the HTTP statuses and the errors among a record's arguments."""
    given = list(record.args) if isinstance(record.args, tuple) else []
    if record.exc_info and record.exc_info[1] is not None:
        given.append(record.exc_info[1])
    causes: list[str] = []
    for argument in given:
        if isinstance(argument, BaseException):
            causes.append(_called(argument))
        elif isinstance(argument, int) and not isinstance(argument, bool):
            causes.append(f"HTTP status {argument}")
    return causes


def _called(error: BaseException) -> str:
    """Returns the error's class, and the operating system's message if there is one."""
    of_system: BaseException | None = error
    while of_system is not None:
        if isinstance(of_system, OSError) and of_system.strerror:
            return f"{type(error).__name__} ({of_system.strerror.lower()})"
        of_system = of_system.__cause__ or of_system.__context__
    return type(error).__name__


class SpanTraces:
    """The spans of one app; see `request_trace.Traces`."""

    def __init__(self, provider: TracerProvider, queue: SpanQueue, *, marks: bool) -> None:
        provider.add_span_processor(queue)
        self.spans: Final = queue
        self._tracer = provider.get_tracer("pilotfish", pilotfish_version())
        self._marks = marks

    def around(self, app: ASGIApp, client_id: str, route_of: Callable[[Scope], str | None]) -> ASGIApp:
        return RequestSpans(app, self._tracer, client_id, route_of, marks=self._marks)

    def close(self, timeout_ms: int) -> None:
        self.spans.close(timeout_ms)


def make_span_traces(
    settings: Settings, exporter: SpanExporter | None = None, environ: Mapping[str, str] = os.environ
) -> SpanTraces:
    """Sets spans up, with OTLP unless another exporter is given. Raises SettingsError."""
    sdk_log = SdkLog()
    sdk_log.install()
    limits = QueueLimits.of(environ)
    try:
        provider = TracerProvider(resource=_resource(settings), shutdown_on_exit=False)
        exporter = OTLPSpanExporter() if exporter is None else exporter
    except (ValueError, OSError) as e:
        raise SettingsError(f"tracing: an OTEL_ environment variable can't be used: {e}") from e
    sdk_log.report_start()
    return SpanTraces(provider, SpanQueue(exporter, limits, sdk_log.why), marks=settings.trace_headers)


def _resource(settings: Settings) -> Resource:
    """Returns the attributes of this sidecar. Environment variables override them."""
    said = {"service.name": "pilotfish", "service.version": pilotfish_version()}
    if settings.sidecar_id:
        said["service.instance.id"] = settings.sidecar_id
    return Resource.create(said).merge(OTELResourceDetector().detect())
