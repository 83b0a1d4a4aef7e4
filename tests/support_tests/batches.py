"""Record batches by hand, for tests of the fake cluster, independent of the client's own code."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

_BEHIND_CRC: Final = struct.Struct(">hiqqqhii")
#: 2023-11-14, well in the past.
TIMESTAMP_MS: Final = 1_700_000_000_000


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def batch(
    *values: bytes | None,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp_ms: int = TIMESTAMP_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """A batch of one record for each value; `producer` is id, epoch and base sequence."""
    records = b""
    for delta, value in enumerate(values):
        record = b"\x00" + _varint(0) + _varint(delta) + _bytes(key) + _bytes(value) + _varint(len(headers))
        record += b"".join(_bytes(name.encode()) + _bytes(content) for name, content in headers)
        records += _varint(len(record)) + record
    count = len(values)
    rest = _BEHIND_CRC.pack(attributes, count - 1, timestamp_ms, timestamp_ms, *producer, count) + records
    magic_and_crc = struct.pack(">ibI", -1, 2, crc32c.crc32c(rest))
    return struct.pack(">qi", 0, len(magic_and_crc) + len(rest)) + magic_and_crc + rest
