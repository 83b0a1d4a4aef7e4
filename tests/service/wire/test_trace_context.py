"""W3C trace context, strictly: cases of the specification's own test suite, and those that it leaves out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.wire.trace_context import MAX_STATE_BYTES, TraceContext, trace_context, trace_context_of

TRACE = b"0af7651916cd43dd8448eb211c80319c"
SPAN = b"b7ad6b7169203331"
PARENT = b"00-%s-%s-01" % (TRACE, SPAN)


def test_a_traceparent_has_trace_span_and_flags() -> None:
    context = trace_context(PARENT)
    assert context == TraceContext(PARENT)
    assert (context.trace_id, context.span_id, context.flags) == (TRACE.decode(), SPAN.decode(), 1)


def test_an_invalid_traceparent_is_ignored() -> None:
    for parent in (
        *(b"", b"hello", PARENT[:-1], PARENT + b"0", PARENT.upper(), PARENT.replace(b"-", b"_")),
        *(b"0" + PARENT, b"ff" + PARENT[2:], b"0g" + PARENT[2:], PARENT + b", " + PARENT, PARENT + b"\n"),
        *(b"00-%s-%s-01" % (b"0" * 32, SPAN), b"00-%s-%s-01" % (TRACE, b"0" * 16)),
        *(b"00-%s-%s-0x" % (TRACE, SPAN), b"00-%s-%s-01-more" % (TRACE, SPAN)),
        *(b"cc-%s-%s-01.more" % (TRACE, SPAN), b"cc-%s-%s-01-\x01" % (TRACE, SPAN)),
        b"cc-%s-%s-01-%s" % (TRACE, SPAN, b"x" * 300),
    ):
        assert trace_context(parent, b"a=b") is None, parent


def test_of_a_version_to_come_the_known_parts_are_read() -> None:
    for parent in (b"cc" + PARENT[2:], b"cc" + PARENT[2:] + b"-", b"01" + PARENT[2:] + b"-x"):
        context = trace_context(parent)
        assert context is not None, parent
        assert (context.parent, context.trace_id, context.flags) == (parent, TRACE.decode(), 1)


def test_a_tracestate_is_passed_on_whole_or_left_out() -> None:
    whole = (
        *(b"", b"foo=1", b"foo=1,bar=2", b"fw529a3039@dt=x,1a-_*/@foo=2", b"foo=bar baz"),
        *(b"a" * 256 + b"=1", b",".join(b"k%d=1" % n for n in range(32))),
    )
    left_out = (
        *(b"foo=1,foo=2", b"foo@=1", b"@foo=1", b"foo@@bar=1", b"Foo=1", b"1foo=1", b"foo =1", b"foo"),
        *(b"foo=", b"foo=a=b", b"foo=\x19", b"foo=\xc3\xbc", b"a" * 257 + b"=1", b"foo=" + b"v" * 257),
        b",".join(b"k%d=1" % n for n in range(33)),
    )
    states = {**{state: state for state in whole}, **dict.fromkeys(left_out, b"")}
    states[b" foo=1 ,\tbar=2, ,"] = b"foo=1,bar=2"
    assert {state: trace_context(PARENT, state) for state in states} == {
        state: TraceContext(PARENT, kept) for state, kept in states.items()
    }


def test_of_a_long_tracestate_the_long_members_go_first_and_then_the_last() -> None:
    long = b"long=" + b"v" * 200
    short = [b"k%02d=%s" % (n, b"v" * 30) for n in range(20)]
    context = trace_context(PARENT, b",".join([long, *short]))
    assert context is not None
    kept = context.state.split(b",")
    assert kept == short[: len(kept)]
    assert MAX_STATE_BYTES - 40 < len(context.state) <= MAX_STATE_BYTES


@given(st.binary(max_size=80), st.binary(max_size=700))
def test_whatever_comes_what_is_passed_on_is_short_and_of_one_line(parent: bytes, state: bytes) -> None:
    for said in (parent, PARENT):
        context = trace_context(said, state)
        if context is not None:
            assert len(context.state) <= MAX_STATE_BYTES
            assert (context.parent + context.state).decode("ascii").isprintable()


def test_a_duplicate_header_is_no_traceparent_and_a_list_of_states() -> None:
    def scope(*headers: tuple[bytes, bytes]) -> dict[str, object]:
        return {"headers": list(headers)}

    state = [(b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    assert trace_context_of(scope()) is None
    assert trace_context_of(scope((b"tracestate", b"a=1"))) is None
    assert trace_context_of(scope((b"traceparent", PARENT), *state)) == TraceContext(PARENT, b"a=1,b=2")
    assert trace_context_of(scope((b"traceparent", PARENT), (b"traceparent", PARENT))) is None
