"""Lines of a stream, in the portions that are produced together.

A portion is what is there to be read, cut at a number of lines and of bytes: a slow writer's line is not held
back until others come, a fast writer's fill requests. Blocking; no HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Lines that go into one request: enough to fill a batch, few enough to be answered soon.
LINES_PER_REQUEST: Final = 500
#: Bytes of lines that go into one request: well below the sidecar's largest body (16 MiB unless set).
BYTES_PER_REQUEST: Final = 1024 * 1024
#: No body, and so no record, is larger unless the sidecar's max_body_bytes was raised.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024

_READ_BYTES: Final = 64 * 1024


class ByteStream(Protocol):
    """A binary file that gives what it has."""

    def read1(self, size: int = -1, /) -> bytes: ...


class Portion(NamedTuple):
    """Some lines without their ends; the first of them has this number, counted from 1."""

    first: int
    lines: list[bytes]

    @property
    def name(self) -> str:
        last = self.first + len(self.lines) - 1
        return f"line {last}" if last == self.first else f"lines {self.first}-{last}"


class LineTooLongError(Exception):
    """A line without an end."""


def portions(source: ByteStream) -> Iterator[Portion]:
    """Every line of the source, in order. Raises LineTooLongError before it fills the memory."""
    first = 1
    for ready in _ready_lines(source):
        while ready:
            lines = _cut(ready)
            del ready[: len(lines)]
            yield Portion(first, lines)
            first += len(lines)


def _cut(ready: list[bytes]) -> list[bytes]:
    """As many lines as one request takes; one at least."""
    total = 0
    for count, line in enumerate(ready[:LINES_PER_REQUEST]):
        total += len(line)
        if total > BYTES_PER_REQUEST and count:
            return ready[:count]
    return ready[:LINES_PER_REQUEST]


def _ready_lines(source: ByteStream) -> Iterator[list[bytes]]:
    """Whole lines as reads bring them; a last one may lack its end."""
    begun: list[bytes] = []
    begun_bytes = 0
    while piece := source.read1(_READ_BYTES):
        *ended, rest = piece.split(b"\n")
        if ended:
            ended[0] = b"".join([*begun, ended[0]])
            begun, begun_bytes = [], 0
            yield [line.removesuffix(b"\r") for line in ended]
        begun.append(rest)
        begun_bytes += len(rest)
        if begun_bytes > MAX_LINE_BYTES:
            raise LineTooLongError(f"longer than {MAX_LINE_BYTES} bytes")
    if begun_bytes:
        yield [b"".join(begun).removesuffix(b"\r")]
