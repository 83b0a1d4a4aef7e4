"""Record batches: the decoder, its varints, and every codec's unpacking."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from client_core.errors import CorruptRecordError
from client_core.record.codecs import compression_for
from client_core.record.compression import Codec
from client_core.record.record_batch import CRC_SPAN_OFFSET, HEADER_SIZE, LOG_OVERHEAD, decode_record_batch
from client_core.record.varint import read_varint, read_varlong
from tests.fuzz.mutation import EXTREMES
from tests.fuzz.target import Target
from tests.support_tests.batches import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

#: The limit of unpacked records of a test; a bomb must stop there.
_LIMIT_BYTES: Final = 1_000_000
_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">i")


def targets() -> Iterator[Target]:
    """All of them."""
    refusals = (CorruptRecordError,)
    held = 3 * _LIMIT_BYTES
    yield Target("record batch", _batch, _read, refusals, EXTREMES, bytes_at_least=held)
    # With a correct checksum, each wrong value is found in its own place.
    name = "record batch, checksum right"
    yield Target(name, _batch, _read_as_if_right, refusals, EXTREMES, bytes_at_least=held)
    yield Target("varints of records", _varints, _read_varints, refusals, EXTREMES)
    for codec in Codec:
        name, held = f"unpacking {codec.config_name}", 3 * _LIMIT_BYTES
        yield Target(name, _packed(codec), _unpack(codec), refusals, EXTREMES, bytes_at_least=held)


def _batch(random: Random) -> bytes:
    values = [random.choice((None, b"", b"a", random.randbytes(40))) for _ in range(random.choice((1, 2, 9)))]
    plain = batch(
        *values,
        key=random.choice((None, b"", b"key")),
        headers=random.choice(((), (("h", b"v"),), (("h", None), ("ü", b"")))),
        producer=random.choice(((-1, -1, -1), (4_000, 0, 2**31 - 1))),
    )
    codec = random.choice(tuple(Codec))
    packed = compression_for(codec).compress(plain[HEADER_SIZE:])
    attributes = (codec.id | random.choice((0, 0, 8))).to_bytes(2)
    head = plain[:CRC_SPAN_OFFSET] + attributes + plain[CRC_SPAN_OFFSET + 2 : HEADER_SIZE]
    return _put_right(head + packed)


def _put_right(data: bytes) -> bytes:
    """The batch with the length, the magic and the checksum that its bytes ask for."""
    length = _LENGTH.pack(len(data) - LOG_OVERHEAD)
    checked = data[CRC_SPAN_OFFSET:]
    return data[:8] + length + data[12:16] + b"\x02" + _CRC.pack(crc32c(checked)) + checked


def _read(data: bytes) -> None:
    decoded = decode_record_batch(data)
    assert 0 < decoded.size_bytes <= len(data)
    assert len(decoded.records(_LIMIT_BYTES)) == decoded.record_count


def _read_as_if_right(data: bytes) -> None:
    _read(_put_right(data) if len(data) >= HEADER_SIZE else data)


def _varints(random: Random) -> bytes:
    return b"".join(random.choice((b"\x00", b"\x01", b"\x80\x01", b"\xff\xff\x03")) for _ in range(9))


def _read_varints(data: bytes) -> None:
    at = 0
    while at < len(data):
        value, at = (read_varint if at % 2 else read_varlong)(data, at)
        assert -(1 << 63) <= value < 1 << 63


def _packed(codec: Codec) -> Callable[[Random], bytes]:
    def make(random: Random) -> bytes:
        plain = random.choice((b"", b"a", b"ab" * 40_000, bytes(90_000), random.randbytes(700)))
        packed = compression_for(codec).compress(plain)
        # Packed twice, and many of them behind each other: what bombs are made of.
        return random.choice((packed, packed, compression_for(codec).compress(packed), packed * 3))

    return make


def _unpack(codec: Codec) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        assert len(compression_for(codec).decompress(data, _LIMIT_BYTES)) <= _LIMIT_BYTES

    return read
