"""Makes a span for each HTTP request, and one for the records that it sends.

Prepared look-ups of the native API have no span. They take some microseconds, come by the thousands per
second and wait for nothing: a span would cost more than the look-up. Requests that the guards reject have
none either, so that outsiders can't fill a collector. The parent is the caller's span. The SDK's sampler
decides what is sampled, by default as the caller did. A stream's span ends with the stream. The query is not
recorded, because it may contain a record's key.

Records that are passed to the client together have a span, from then until they are settled:

    name         send TOPIC, of kind PRODUCER
    attributes   messaging.* by the conventions; no key and no value of a record
    events       `metadata wait` and `buffer wait`, at their end, with pilotfish.waited_ms; `exception` for
                 each kind of failure
    links        to the spans in the records' own traceparent headers

A request has one such span, and a stream has one per chunk, as in the metrics. Source: OpenTelemetry's
semantic conventions for HTTP servers, messaging and Kafka, 1.37. Event loop only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from time import time_ns
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from client_core import KafkaError, ProduceResult, ProducerRecord, RecordFailure, RecordMetadata, Result
from service.observe.http_metrics import METHODS
from service.observe.request_trace import PARENT_HEADER, STATE_HEADER, ProduceSpan, marked, traced
from service.wire.asgi import ASGIApp, Receive, Scope, Send, WatchedStatus, header, method_of
from service.wire.trace_context import TraceContext, trace_context, trace_context_of

#: The first status that means a server error.
_SERVER_ERROR: Final = 500

#: Limits for texts that callers choose, because the queue holds thousands of spans.
_MAX_PATH_CHARS: Final = 1_024
_MAX_AGENT_CHARS: Final = 256


#: Enough to find the spans, and no more than a tracing backend shows.
_MAX_LINKS: Final = 32
_MAX_KINDS_OF_FAILURE: Final = 5

_NS_PER_MS: Final = 1_000_000


def remote_context_of(context: TraceContext) -> SpanContext:
    """Converts the caller's context to OpenTelemetry's type."""
    state = TraceState.from_header([context.state.decode("ascii")]) if context.state else None
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(context.flags),
        trace_state=state,
    )


def context_of(span: Span) -> TraceContext | None:
    """Converts a span's context to W3C's headers; returns None if it is not valid."""
    said = span.get_span_context()
    if not said.is_valid:
        return None
    parent = f"00-{said.trace_id:032x}-{said.span_id:016x}-{said.trace_flags:02x}"
    return TraceContext(parent.encode(), said.trace_state.to_header().encode())


def start_produce_span(
    tracer: Tracer, parent: Span, client_id: str, topic: str, records: Sequence[ProducerRecord]
) -> Span:
    """Starts the span of records."""
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "kafka",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": topic,
        "messaging.client.id": client_id,
    }
    if len(records) > 1:
        attributes["messaging.batch.message_count"] = len(records)
    else:
        value = records[0].value
        if value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        else:
            attributes["messaging.message.body.size"] = len(value)
    return tracer.start_span(
        f"send {topic}",
        context=set_span_in_context(parent, Context()),
        kind=SpanKind.PRODUCER,
        attributes=attributes,
        links=[Link(context) for context in _own_contexts(records)],
    )


def _own_contexts(records: Sequence[ProducerRecord]) -> list[SpanContext]:
    """Returns the contexts in the records' own headers, each once."""
    found: dict[tuple[int, int], SpanContext] = {}
    for record in records:
        if record.headers and len(found) < _MAX_LINKS:
            said = dict(record.headers)
            parent = said.get(PARENT_HEADER)
            context = None if parent is None else trace_context(parent, said.get(STATE_HEADER) or b"")
            if context is not None:
                remote = remote_context_of(context)
                found.setdefault((remote.trace_id, remote.span_id), remote)
    return list(found.values())


class SentRecords:
    """Ends the span of records when their outcome is known; see `request_trace.ProduceSpan`."""

    __slots__ = ("_records", "_span", "_started_ns")

    def __init__(self, span: Span, records: int, started_ns: int) -> None:
        self._span = span
        self._records = records
        self._started_ns = started_ns

    def settled(self, result: Result) -> None:
        if isinstance(result, ProduceResult):
            self._report_waits(result)
        partitions, failures = self._outcomes(result)
        if len(partitions) == 1:
            self._span.set_attribute("messaging.destination.partition.id", str(partitions.pop()))
        if failures:
            self._report_failures(failures)
        elif result.error is not None:
            self._fail(result.error, self._records)
        self._span.end()

    def refused(self, error: Exception) -> None:
        self._fail(error, self._records)
        self._span.end()

    def _report_waits(self, result: ProduceResult) -> None:
        at_ns = self._started_ns
        for wait in result.waits:
            at_ns += wait.waited_ms * _NS_PER_MS
            said = {"pilotfish.waited_ms": wait.waited_ms}
            self._span.add_event(f"{wait.phase.value} wait", said, timestamp=at_ns)

    def _outcomes(self, result: Result) -> tuple[set[int], list[RecordFailure]]:
        """Returns the partitions of acknowledged records, and the failures."""
        runs = result.acknowledged_runs() if isinstance(result, ProduceResult) else None
        if runs is not None:
            if self._records == 1 and runs[0].base_offset is not None:
                self._span.set_attribute("messaging.kafka.offset", runs[0].base_offset)
            return {run.partition for run in runs}, []
        outcomes = result.outcomes
        partitions = {outcome.partition for outcome in outcomes if isinstance(outcome, RecordMetadata)}
        return partitions, [outcome for outcome in outcomes if isinstance(outcome, RecordFailure)]

    def _report_failures(self, failures: Sequence[RecordFailure]) -> None:
        self._fail(failures[0].error, len(failures))
        reported = {_kind(failures[0].error)}
        for error in _others(failures, reported):
            self._report(error)

    def _fail(self, error: Exception, failed: int) -> None:
        self._span.set_attribute("error.type", _kind(error))
        self._span.set_attribute("pilotfish.failed_records", failed)
        said = f"{failed} of {self._records} records failed: {_message(error)}"
        self._span.set_status(Status(StatusCode.ERROR, said))
        self._report(error)

    def _report(self, error: Exception) -> None:
        self._span.add_event(
            "exception", {"exception.type": _kind(error), "exception.message": _message(error)}
        )


def _others(failures: Sequence[RecordFailure], reported: set[str]) -> Iterator[KafkaError]:
    """Yields one error of each kind that is not reported yet."""
    for failure in failures:
        kind = _kind(failure.error)
        if kind not in reported and len(reported) < _MAX_KINDS_OF_FAILURE:
            reported.add(kind)
            yield failure.error


def _kind(error: Exception) -> str:
    """Returns Kafka's name of the error, or Python's."""
    return error.error.name if isinstance(error, KafkaError) else type(error).__name__


def _message(error: Exception) -> str:
    return error.message if isinstance(error, KafkaError) else str(error)


class RequestSpans:
    """The ASGI callable that makes the spans of requests."""

    def __init__(
        self,
        app: ASGIApp,
        tracer: Tracer,
        client_id: str,
        route_of: Callable[[Scope], str | None],
        *,
        marks: bool,
    ) -> None:
        """`route_of` returns the route of a request that is served before FastAPI, else None. `marks`:
        records carry the context of the span that sends them.
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
        watched = WatchedStatus(scope, send)
        trace = SpanTrace(self._tracer, span, self._client_id, marks=self._marks)
        try:
            await traced(self._app, scope, receive, watched.send, trace)
        except Exception as error:
            # An unexpected exception. The server answers with 500 if it has not answered yet.
            self._end(span, scope, watched.status or _SERVER_ERROR, type(error).__name__)
            raise
        except BaseException:
            self._end(span, scope, watched.status)
            raise
        else:
            self._end(span, scope, watched.status)

    def _start(self, scope: Scope) -> Span:
        context, caller = Context(), trace_context_of(scope)
        if caller is not None:
            context = set_span_in_context(NonRecordingSpan(remote_context_of(caller)), context)
        return self._tracer.start_span(
            _method(scope), context=context, kind=SpanKind.SERVER, attributes=_attributes(scope)
        )

    def _end(self, span: Span, scope: Scope, status: int | None, bug: str = "") -> None:
        """Ends the span. `status` is None if the caller left first. `bug` is an exception's class."""
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
        """Returns the route template, as in the metrics; None if no route matched."""
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
    method = method_of(scope)
    return method if method in METHODS else "HTTP"


def _attributes(scope: Scope) -> dict[str, AttributeValue]:
    method = method_of(scope)
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
