"""Zig-zag varints of the record format, with tables of the common ones.

    varint(n):  (n << 1) ^ (n >> 63), seven bits a byte, lowest first, the top bit set while more follow

Only for record batches; the protocol's messages have varints of their own (unsigned, or zig-zag inside a
schema). The tables make MemoryRecordsBuilder's hot path look-ups; other values are computed. Pure; any
thread. Source: ByteUtils.writeVarint, writeVarlong, readVarint, readVarlong, Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from client_core.errors import CorruptRecordError

#: Size of the tables: lengths and offsets from 0 up to, not including, this. About 0.2 MB per table.
TABLE_SIZE: Final = 4096

_MAX_VARINT_BITS: Final = 32
_MAX_VARLONG_BITS: Final = 64


def encode_varint(value: int) -> bytes:
    """Returns the zig-zag varint of a signed integer of up to 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return bytes((rest,))
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def size_of_varint(value: int) -> int:
    """Returns the size of encode_varint's result."""
    bits = ((value << 1) ^ (value >> 63)).bit_length()
    return (bits + 6) // 7 or 1


def read_varint(buffer: bytes, offset: int) -> tuple[int, int]:
    """Returns the 32-bit zig-zag varint at an offset, and the offset after it.

    Raises CorruptRecordError when it is truncated or too long.
    """
    return _read(buffer, offset, _MAX_VARINT_BITS)


def read_varlong(buffer: bytes, offset: int) -> tuple[int, int]:
    """Returns the 64-bit zig-zag varint at an offset, and the offset after it; raises like read_varint."""
    return _read(buffer, offset, _MAX_VARLONG_BITS)


def _read(buffer: bytes, offset: int, max_bits: int) -> tuple[int, int]:
    value = shift = 0
    while shift < max_bits:
        if offset >= len(buffer):
            raise CorruptRecordError("Found invalid record structure: a varint is cut off")
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << max_bits) - 1
            return (value >> 1) ^ -(value & 1), offset
        shift += 7
    raise CorruptRecordError(f"Found invalid record structure: a varint of more than {max_bits} bits")


#: VARINT[n] is encode_varint(n).
VARINT: Final[tuple[bytes, ...]] = tuple(map(encode_varint, range(TABLE_SIZE)))

#: The start of a record in one piece: its body's length, then the attributes byte (always 0).
LENGTH_AND_ATTRIBUTES: Final[tuple[bytes, ...]] = tuple(length + b"\x00" for length in VARINT)

#: A null key (length -1), then the value's length.
NULL_KEY_AND_LENGTH: Final[tuple[bytes, ...]] = tuple(b"\x01" + length for length in VARINT)
