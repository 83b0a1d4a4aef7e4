"""A span for each HTTP request that is no prepared look-up, and what its records need to know of it.

Prepared look-ups are answered before this in some microseconds, thousands in a second, and wait for nothing:
a span would cost more than they do and tell nothing. What the guards refuse has none either, so that nobody
fills a collector from outside. The parent is the span that the caller names; whether it is sampled is the
SDK's sampler to say, by default as the caller says. A stream's span ends with the stream.

Source: OpenTelemetry's semantic conventions for HTTP servers, 1.37. The query is not told: it may hold a
record's key. Event loop only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import time_ns
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from client_core import ProducerRecord
from service.observe.http_metrics import METHODS
from service.observe.request_trace import ProduceSpan, marked, traced
from service.observe.tracing.produce_spans import SentRecords, start_produce_span
from service.observe.tracing.span_contexts import context_of, remote_context_of
from service.wire.asgi import ANSWER, Answer, ASGIApp, Message, Receive, Scope, Send, header
from service.wire.trace_context import TraceContext, trace_context_of

#: The first status that is the server's fault.
_SERVER_ERROR: Final = 500

#: Callers make these up; the queue holds thousands of spans.
_MAX_PATH_CHARS: Final = 1_024
_MAX_AGENT_CHARS: Final = 256


class RequestSpans:
    """The ASGI callable."""

    def __init__(
        self,
        app: ASGIApp,
        tracer: Tracer,
        client_id: str,
        route_of: Callable[[Scope], str | None],
        *,
        marks: bool,
    ) -> None:
        """`route_of` names the route of a request that is served in front of FastAPI. `marks`: records are to
        bear the context of the span that sends them.
        """
        self._route_of = route_of
        self._app = app
        self._tracer = tracer
        self._client_id = client_id
        self._marks = marks

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        serve = self._serve if scope["type"] == "http" else self._app
        return serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        span = self._start(scope)
        status: int | None = None

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        at_once: Answer | None = scope.get(ANSWER)
        if at_once is not None:

            def answer(code: int, head: bytes, body: bytes) -> bool:
                nonlocal status
                is_written = at_once(code, head, body)
                status = code if is_written else status
                return is_written

            scope[ANSWER] = answer
        trace = SpanTrace(self._tracer, span, self._client_id, marks=self._marks)
        try:
            await traced(self._app, scope, receive, watched, trace)
        except Exception as error:
            # A bug, which the server answers with 500 where nothing was answered yet.
            self._end(span, scope, status or _SERVER_ERROR, type(error).__name__)
            raise
        except BaseException:
            self._end(span, scope, status)
            raise
        else:
            self._end(span, scope, status)

    def _start(self, scope: Scope) -> Span:
        context, caller = Context(), trace_context_of(scope)
        if caller is not None:
            context = set_span_in_context(NonRecordingSpan(remote_context_of(caller)), context)
        return self._tracer.start_span(
            _method(scope), context=context, kind=SpanKind.SERVER, attributes=_attributes(scope)
        )

    def _end(self, span: Span, scope: Scope, status: int | None, bug: str = "") -> None:
        """`status` None: nothing was answered, since the caller had left. `bug`: what was raised, by name."""
        route = self._route(scope)
        if route is not None:
            span.update_name(f"{_method(scope)} {route}")
            span.set_attribute("http.route", route)
        if status is None:
            span.add_event("the caller left")
        else:
            span.set_attribute("http.response.status_code", status)
            if bug or status >= _SERVER_ERROR:
                span.set_attribute("error.type", bug or str(status))
                span.set_status(Status(StatusCode.ERROR, bug or None))
        span.end()

    def _route(self, scope: Scope) -> str | None:
        """The template of the route that served, as metrics have it; None for what nobody serves."""
        route: str | None = getattr(scope.get("route"), "path", None)
        return self._route_of(scope) if route is None else route


class SpanTrace:
    """The trace of one request; see `request_trace.RequestTrace`."""

    __slots__ = ("_client_id", "_marks", "_span", "_tracer")

    def __init__(self, tracer: Tracer, span: Span, client_id: str, *, marks: bool) -> None:
        self._tracer = tracer
        self._span = span
        self._client_id = client_id
        self._marks = marks

    @property
    def context(self) -> TraceContext | None:
        return context_of(self._span)

    def begin_produce(
        self, topic: str, records: Sequence[ProducerRecord], *, in_envelopes: bool
    ) -> tuple[Sequence[ProducerRecord], ProduceSpan | None]:
        started_ns = time_ns()
        span = start_produce_span(self._tracer, self._span, self._client_id, topic, records)
        context = context_of(span)
        if self._marks and not in_envelopes and context is not None:
            records = marked(records, context)
        return records, SentRecords(span, len(records), started_ns) if span.is_recording() else None


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in METHODS else "HTTP"


def _attributes(scope: Scope) -> dict[str, AttributeValue]:
    method = scope["method"]
    attributes: dict[str, AttributeValue] = {
        "http.request.method": method if method in METHODS else "_OTHER",
        "url.scheme": scope["scheme"],
        "url.path": scope["path"][:_MAX_PATH_CHARS],
        "network.protocol.version": scope.get("http_version", "1.1"),
    }
    server = scope.get("server")
    if server is not None:
        attributes["server.address"] = server[0]
        if server[1] is not None:
            attributes["server.port"] = server[1]
    agent = header(scope, b"user-agent")
    if agent is not None:
        attributes["user_agent.original"] = agent[:_MAX_AGENT_CHARS].decode("latin-1")
    return attributes
