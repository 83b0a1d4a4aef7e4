"""Tracing as the settings and OpenTelemetry's own environment variables ask for it.

Called once, by the app. OTEL_EXPORTER_OTLP_ENDPOINT, …_HEADERS, …_TIMEOUT, OTEL_TRACES_SAMPLER,
OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME and their like are the SDK's to read; OTEL_BSP_… are those of
`span_queue.py`. The provider is the app's own and no global one: two apps in one process do not know each
other, and whoever embeds us keeps theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from service.base.settings import Settings, SettingsError
from service.base.version import pilotfish_version
from service.observe.tracing.request_spans import RequestSpans
from service.observe.tracing.sdk_log import SdkLog
from service.observe.tracing.span_queue import QueueLimits, SpanQueue
from service.wire.asgi import ASGIApp, Scope


class SpanTraces:
    """Spans of one app; see `request_trace.Traces`."""

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
    """What makes spans and sends them; by OTLP unless another exporter is given. Raises SettingsError."""
    sdk_log = SdkLog()
    sdk_log.install()
    limits = QueueLimits.of(environ)
    try:
        provider = TracerProvider(resource=_resource(settings), shutdown_on_exit=False)
        exporter = OTLPSpanExporter() if exporter is None else exporter
    except (ValueError, OSError) as e:
        raise SettingsError(f"tracing: one of OpenTelemetry's environment variables: {e}") from e
    sdk_log.tell_of_start()
    return SpanTraces(provider, SpanQueue(exporter, limits, sdk_log.why), marks=settings.trace_headers)


def _resource(settings: Settings) -> Resource:
    """Who we are, but for what the environment says otherwise."""
    said = {"service.name": "pilotfish", "service.version": pilotfish_version()}
    if settings.sidecar_id:
        said["service.instance.id"] = settings.sidecar_id
    return Resource.create(said).merge(OTELResourceDetector().detect())
