"""W3C trace context: parses a request's `traceparent` and `tracestate`.

    traceparent   00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
                  version, trace id, id of the caller's span, flags: in lower case, ids not all zeros
    tracestate    vendor=value,tenant@system=value

Strict, as the specification requires: an invalid traceparent is ignored, an unreadable tracestate is dropped.
From an unknown version the four parts are read, and more may follow. Pure. Source: W3C Trace Context,
https://www.w3.org/TR/trace-context-2/.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from service.wire.asgi import Scope, header

TRACEPARENT: Final = b"traceparent"
_FORM: Final = re.compile(
    rb"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})"
    rb"-(?P<flags>[0-9a-f]{2})(?P<more>-[\x21-\x7e]*)?"
)
_VERSION: Final = b"00"

#: Scope key: the trace context of a request, if it has one.
TRACE_CONTEXT: Final = "pilotfish.trace_context"

_MEMBER: Final = re.compile(
    rb"(?P<key>[a-z][_0-9a-z*/-]{0,255}|[0-9a-z][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
    rb"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_MAX_MEMBERS: Final = 32

#: Bytes of a tracestate that are passed on: the specification's minimum. Each record has a copy.
MAX_STATE_BYTES: Final = 512
#: Above that, members longer than this are dropped first, as specified.
_LONG_MEMBER_BYTES: Final = 128

#: Enough for any future version; each record has a copy.
_MAX_PARENT_BYTES: Final = 256


class TraceContext(NamedTuple):
    """A trace, and the span that caused this message. `state` may be empty."""

    parent: bytes
    state: bytes = b""

    @property
    def trace_id(self) -> str:
        """Thirty-two hexadecimal digits."""
        return self.parent[3:35].decode("ascii")

    @property
    def span_id(self) -> str:
        """Sixteen hexadecimal digits."""
        return self.parent[36:52].decode("ascii")

    @property
    def flags(self) -> int:
        """The trace flags; the lowest bit means sampled."""
        return int(self.parent[53:55], 16)


def trace_context_of(scope: Scope) -> TraceContext | None:
    """Returns the trace context of a request, or None."""
    parent = header(scope, TRACEPARENT)
    return None if parent is None else trace_context(parent, header(scope, b"tracestate") or b"")


def trace_context(parent: bytes, state: bytes = b"") -> TraceContext | None:
    """Returns the context from two headers (repeated ones joined by commas); None if `parent` is invalid."""
    read = _FORM.fullmatch(parent.strip(b" \t"))
    if read is None or len(parent) > _MAX_PARENT_BYTES or (read["more"] and read["version"] == _VERSION):
        return None
    return TraceContext(read[0], _state(state) if state else b"")


def _state(state: bytes) -> bytes:
    """Returns the members to pass on; empty if the list is malformed."""
    members = [member for part in state.split(b",") if (member := part.strip(b" \t"))]
    keys: set[bytes] = set()
    for member in members:
        read = _MEMBER.fullmatch(member)
        if read is None or read["key"] in keys:
            return b""
        keys.add(read["key"])
    if len(members) > _MAX_MEMBERS:
        return b""
    return b",".join(_that_fit(members))


def _that_fit(members: list[bytes]) -> list[bytes]:
    if _joined_bytes(members) > MAX_STATE_BYTES:
        members = [member for member in members if len(member) <= _LONG_MEMBER_BYTES]
    while _joined_bytes(members) > MAX_STATE_BYTES:
        members = members[:-1]
    return members


def _joined_bytes(members: list[bytes]) -> int:
    return sum(map(len, members)) + max(len(members) - 1, 0)
