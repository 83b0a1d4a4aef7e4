"""Between W3C's headers and OpenTelemetry's objects. Pure."""

from __future__ import annotations

from opentelemetry.trace import Span, SpanContext, TraceFlags, TraceState

from service.wire.trace_context import TraceContext


def remote_context_of(context: TraceContext) -> SpanContext:
    """The caller's span."""
    state = TraceState.from_header([context.state.decode("ascii")]) if context.state else None
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(context.flags),
        trace_state=state,
    )


def context_of(span: Span) -> TraceContext | None:
    """What is to be said of a span to who comes after it; None where there is none to speak of."""
    said = span.get_span_context()
    if not said.is_valid:
        return None
    parent = f"00-{said.trace_id:032x}-{said.span_id:016x}-{said.trace_flags:02x}"
    return TraceContext(parent.encode(), said.trace_state.to_header().encode())
