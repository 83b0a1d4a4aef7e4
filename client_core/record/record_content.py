"""Encodes a record's key, value and headers; stores a batch's timestamps as runs (REC-03).

    varint keyLength, key, varint valueLength, value, varint headerCount, headers   (a length of -1: null)

This is the general encoding, for any record. MemoryRecordsBuilder encodes records without headers from tables
instead. Source: DefaultRecord.sizeOf, writeTo, Kafka 4.3.

Records of one request mostly share a timestamp, so equal timestamps are one run: appending a record costs
nothing unless its timestamp differs. Receipts read them, as does re-encoding after a failed append. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Protocol

from client_core.record.varint import TABLE_SIZE, VARINT, encode_varint, read_varint, size_of_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


#: The length of a null: varint(-1).
NULL: Final = b"\x01"


class TimestampRuns:
    """The timestamps of a batch's records. Owned by the batch; its partition's lock guards it."""

    __slots__ = ("_starts", "_timestamps_ms")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._timestamps_ms: list[int] = []

    def begin(self, position: int, timestamp_ms: int) -> None:
        """Sets the timestamp of the records from this position on."""
        self._starts += (position,)  # no call here: a signal's handler could raise between the two
        self._timestamps_ms += (timestamp_ms,)

    def at(self, position: int) -> int:
        """Returns the timestamp of the record at a position of the batch."""
        return self._timestamps_ms[bisect_right(self._starts, position) - 1]

    def between(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Returns the runs of positions first..end, in order: (start, end, timestamp)."""
        runs = []
        at = bisect_right(self._starts, first) - 1
        while first < end:
            at += 1
            run_end = min(self._starts[at], end) if at < len(self._starts) else end
            runs.append((first, run_end, self._timestamps_ms[at - 1]))
            first = run_end
        return runs

    def before(self, position: int) -> list[tuple[int, int]]:
        """Returns the runs that begin before a position: (start, timestamp)."""
        runs = zip(self._starts, self._timestamps_ms, strict=True)
        return [(start, timestamp_ms) for start, timestamp_ms in runs if start < position]


class EncodedHeaders:
    """The headers of one record in wire format: one object, however many there are.

    Ten thousand headers as tuples are thirty thousand objects: checked, measured, encoded and freed
    one by one. These were checked when they were encoded. Equal to the tuple of the same headers; each
    iteration decodes them again. Immutable; any thread.
    """

    __slots__ = ("_count", "encoded")

    def __init__(self, headers: Iterable[tuple[str, bytes | None]] = ()) -> None:
        """Raises UnicodeEncodeError for a name that can't be encoded."""
        pieces: list[bytes] = []
        count = 0
        for name, value in headers:
            pieces += _sized(name.encode())
            pieces += _sized(value)
            count += 1
        self._count = count
        #: varint nameLength, name, varint valueLength, value of each; without the count.
        self.encoded: bytes = b"".join(pieces)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, bytes | None]]:
        at = 0
        for _ in range(self._count):
            length, at = read_varint(self.encoded, at)
            name = self.encoded[at : at + length].decode()
            length, at = read_varint(self.encoded, at + length)
            yield name, None if length < 0 else self.encoded[at : at + length]
            at += max(length, 0)

    def __getitem__(self, index: int) -> tuple[str, bytes | None]:
        return tuple(self)[index]

    def __add__(self, more: RecordHeaders) -> EncodedHeaders:
        """Returns these headers followed by more."""
        both, others = EncodedHeaders(), more if isinstance(more, EncodedHeaders) else EncodedHeaders(more)
        both._count, both.encoded = self._count + others._count, self.encoded + others.encoded
        return both

    def __eq__(self, other: object) -> bool:
        if isinstance(other, EncodedHeaders):
            return (self._count, self.encoded) == (other._count, other.encoded)
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<EncodedHeaders {self._count} in {len(self.encoded)} bytes>"


#: A record's headers, in either form.
RecordHeaders = tuple[tuple[str, bytes | None], ...] | EncodedHeaders


class Appendable(Protocol):
    """A record for MemoryRecordsBuilder. A timestamp of None takes append_many's."""

    @property
    def timestamp_ms(self) -> int | None: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> RecordHeaders: ...


def size_of_content(key: bytes | None, value: bytes | None, headers: RecordHeaders) -> int:
    if not headers and key is None and value is not None:
        return 2 + size_of_varint(len(value)) + len(value)
    return sum(map(len, content_pieces(key, value, headers)))


def content_pieces(key: bytes | None, value: bytes | None, headers: RecordHeaders) -> tuple[bytes, ...]:
    """Returns a record's key, value and headers, each with its length (REC-03)."""
    headers = headers or ()  # None is no headers, as in Java
    pieces = [*_sized(key), *_sized(value), encode_varint(len(headers))]
    if isinstance(headers, EncodedHeaders):
        return (*pieces, headers.encoded)
    for name, header_value in headers:
        pieces += _sized(name.encode())
        pieces += _sized(header_value)
    return tuple(pieces)


def _sized(content: bytes | None) -> tuple[bytes, ...]:
    if content is None:
        return (NULL,)
    size = len(content)
    return (VARINT[size] if size < TABLE_SIZE else encode_varint(size), content)
