"""What a record carries, as it goes on the wire: key, value and headers, each with its length (REC-03).

    varint keyLength, key, varint valueLength, value, varint headerCount, headers   (a length of -1: null)

The plain way, for any record. MemoryRecordsBuilder takes the records without headers by tables instead. Pure.
Source: DefaultRecord.sizeOf, writeTo, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from client_core.record.varint import encode_varint, size_of_varint

if TYPE_CHECKING:
    from client_core.record.record_batch import RecordHeaders

#: The length of what is null: varint(-1).
NULL: Final = b"\x01"


class Appendable(Protocol):
    """What MemoryRecordsBuilder reads of a record. A timestamp of None takes append_many's."""

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
    """What follows a record's offset delta: key, value and headers, each with its length (REC-03)."""
    pieces = [*_sized(key), *_sized(value), encode_varint(len(headers))]
    for name, header_value in headers:
        pieces += _sized(name.encode())
        pieces += _sized(header_value)
    return tuple(pieces)


def _sized(content: bytes | None) -> tuple[bytes, ...]:
    return (NULL,) if content is None else (encode_varint(len(content)), content)
