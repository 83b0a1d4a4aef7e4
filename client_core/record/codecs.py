"""The table of codecs: a Compression by what compression.type says, or by what stands in a batch.

One row for each of Kafka's codecs; what a codec does is in its own file. Each is loaded when it is first
asked for: their library takes memory that a producer which packs nothing has no use for. Called by wiring.py
for what is produced, by record_batch.py for what is read. Pure; any thread. Source: Compression.of, Kafka
4.3.

Unpacking into no more memory than was agreed to, by codecs that can't be told when to stop.

A zstd frame of 33 kB unpacks to a gigabyte, and neither zstd nor LZ4 has to say so beforehand. cramjam
unpacks a frame at once, but can be given the room to do it in. The room is mapped memory, which costs pages
only as far as it is written to: 64 MiB of it take 12 us more than a buffer that happens to fit. Pure; any
thread.

gzip: one member of RFC 1952, with the ten bytes of head that Java writes.

    1f 8b, 08 = deflate, 00 no flags, 00000000 no time, 00, ff = unknown system,
    the deflated records, uint32 crc, uint32 size

The standard library's zlib and not cramjam: of 16 KiB of JSON, a batch at Kafka's defaults, it makes the same
5.0 kB in 0.22 ms where cramjam takes 0.33 (of 1 MiB 3.4 ms against 2.6), unpacks as fast, and can be told
when to stop. The head is written by hand so that it is the same on every system. zlib releases the GIL while
it works. Pure; any thread. Source: GzipCompression, GzipOutputStream, Kafka 4.3.

snappy in xerial's framing, which is what Kafka means by snappy (REC-06).

    82 "SNAPPY" 00, int32 version = 1, int32 oldest version that can read it = 1,
    then for every 32 KiB of records: int32 length, so many bytes of raw snappy

librdkafka and others write the raw snappy of the whole batch instead, without any frame; xerial reads that,
too, and so do we. cramjam does the raw snappy, and releases the GIL for it. There are no levels. Pure; any
thread. Source: SnappyCompression, Kafka 4.3; SnappyOutputStream, SnappyInputStream, xerial's snappy-java
1.1.10.

LZ4 frames as Java's Lz4BlockOutputStream writes them: independent blocks of 64 KiB.

    04 22 4d 18, 60 = version 1, independent blocks, 40 = blocks of 64 KiB, 82 = checksum of these two bytes,
    then for every 64 KiB of records: uint32 length (its top bit: stored as they are), so many bytes,
    uint32 0

There are no checksums of blocks or content. Any frame is read: linked blocks, larger ones, checksums of
blocks and content (all of them verified, where Java does not look at the content's). cramjam packs and
unpacks, and releases the GIL for it. Pure; any thread. Source: Lz4Compression, Lz4BlockOutputStream,
Lz4BlockInputStream, Kafka 4.3.

zstd: one frame of RFC 8878. Brokers know it from Produce 7 on (KIP-110; `produce_request.py`).

Where Java writes as a stream, the whole batch is packed at once here, so the frame says how large it was,
which spares consumers growing a buffer. cramjam packs and unpacks, and releases the GIL for it; it would take
a level out of range for the nearest, so that is refused here. Pure; any thread. Source: ZstdCompression,
Kafka 4.3.
"""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final

import cramjam

from client_core.errors import KafkaError
from client_core.record.compression import (
    MAX_UNPACKED_BYTES,
    NO_COMPRESSION,
    Codec,
    checked_level,
    corrupt,
    too_large,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from client_core.record.compression import Compression


#: What cramjam says when the room is used up: Rust's words for a write that found no place.
_NO_ROOM: Final = "failed to write whole buffer"


#: Deflater.BEST_SPEED, BEST_COMPRESSION and DEFAULT_COMPRESSION: zlib's own choice, which is 6.
MIN_GZIP_LEVEL: Final = 1
MAX_GZIP_LEVEL: Final = 9
DEFAULT_GZIP_LEVEL: Final = -1

_GZIP_HEAD: Final = bytes.fromhex("1f8b 08 00 00000000 00 ff")
_GZIP_TAIL: Final = Struct("<II")
_UINT32: Final = 0xFFFFFFFF

#: zlib's window of 32 KiB: negative for bare deflate, plus 16 for gzip's head and tail around it.
_GZIP_BARE: Final = -zlib.MAX_WBITS
_GZIP_WITH_HEAD: Final = zlib.MAX_WBITS + 16


_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_VERSIONS: Final = Struct(">ii")
_SNAPPY_VERSION: Final = 1
_SNAPPY_HEAD: Final = _SNAPPY_MAGIC + _SNAPPY_VERSIONS.pack(_SNAPPY_VERSION, _SNAPPY_VERSION)
_SNAPPY_LENGTH: Final = Struct(">i")

#: SnappyOutputStream's default block size.
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024


#: LZ4Constants of lz4-java.
MIN_LZ4_LEVEL: Final = 1
MAX_LZ4_LEVEL: Final = 17
DEFAULT_LZ4_LEVEL: Final = 9

_LZ4_HEAD: Final = bytes.fromhex("04224d18 60 40 82")
_LZ4_LENGTH: Final = Struct("<I")
_LZ4_STORED: Final = 1 << 31
_LZ4_END: Final = _LZ4_LENGTH.pack(0)
_LZ4_BLOCK_BYTES: Final = 64 * 1024

#: The bit of the flags, the byte behind the magic, that says that a checksum follows each block.
_LZ4_HAS_CHECKSUMS: Final = 0x10
_LZ4_CHECKSUM_BYTES: Final = 4

#: The levels of liblz4's slow, thorough compressor, which takes any above 12 for 12.
_LZ4_LEAST_THOROUGH: Final = 2
_LZ4_MOST_THOROUGH: Final = 12


#: ZSTD_minCLevel (minus ZSTD_TARGETLENGTH_MAX), ZSTD_MAX_CLEVEL and ZSTD_CLEVEL_DEFAULT.
MIN_ZSTD_LEVEL: Final = -131072
MAX_ZSTD_LEVEL: Final = 22
DEFAULT_ZSTD_LEVEL: Final = 3


def unpack_bounded(
    codec: Codec, unpack_into: Callable[[bytes, mmap.mmap], int], packed: bytes, limit_bytes: int
) -> bytes:
    """What `unpack_into` makes of the packed bytes.

    Raises CorruptRecordError if it can't, or if that is more than the limit.
    """
    try:
        room = mmap.mmap(-1, max(limit_bytes, 1))  # there are no maps of nothing
    except OSError as error:
        raise KafkaError(f"There is no memory to unpack up to {limit_bytes} bytes: {error}") from error
    with room:
        try:
            size = unpack_into(packed, room)
        except cramjam.DecompressionError as error:
            if _NO_ROOM in str(error):
                raise too_large(codec, limit_bytes) from None
            raise corrupt(codec, error) from None
        if size > limit_bytes:
            raise too_large(codec, limit_bytes)
        return room[:size]


@dataclass(frozen=True, slots=True)
class GzipCompression:
    """gzip at a level from 1 to 9, or zlib's own choice (-1)."""

    codec: ClassVar[Codec] = Codec.GZIP
    level: int = DEFAULT_GZIP_LEVEL

    def __post_init__(self) -> None:
        if self.level != DEFAULT_GZIP_LEVEL:
            checked_level(self.codec, self.level, MIN_GZIP_LEVEL, MAX_GZIP_LEVEL)

    def compress(self, records: bytes, /) -> bytes:
        tail = _GZIP_TAIL.pack(zlib.crc32(records), len(records) & _UINT32)
        return b"".join((_GZIP_HEAD, zlib.compress(records, self.level, wbits=_GZIP_BARE), tail))

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        unpacker = zlib.decompressobj(wbits=_GZIP_WITH_HEAD)
        try:
            records = unpacker.decompress(packed, limit_bytes + 1)  # a limit of 0 would be none for zlib
        except zlib.error as error:
            raise corrupt(self.codec, error) from None
        if len(records) > limit_bytes:
            raise too_large(self.codec, limit_bytes)
        if not unpacker.eof:
            raise corrupt(self.codec, "the stream is cut off")
        if unpacker.unused_data:
            raise corrupt(self.codec, f"{len(unpacker.unused_data)} bytes follow the stream")
        return records


@dataclass(frozen=True, slots=True)
class SnappyCompression:
    """snappy as Kafka frames it."""

    codec: ClassVar[Codec] = Codec.SNAPPY

    def compress(self, records: bytes, /) -> bytes:
        view = memoryview(records)
        pieces = [_SNAPPY_HEAD]
        for start in range(0, len(records), _SNAPPY_BLOCK_BYTES):
            packed = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_BYTES]))
            pieces += (_SNAPPY_LENGTH.pack(len(packed)), packed)
        return b"".join(pieces)

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        if not packed.startswith(_SNAPPY_MAGIC):
            return self._unpacked(memoryview(packed), limit_bytes, limit_bytes)
        if len(packed) < len(_SNAPPY_HEAD):
            raise corrupt(self.codec, "the head is cut off")
        version, _ = _SNAPPY_VERSIONS.unpack_from(packed, len(_SNAPPY_MAGIC))
        if version < _SNAPPY_VERSION:
            raise corrupt(self.codec, f"version {version} of the framing is unknown")
        view, position = memoryview(packed), len(_SNAPPY_HEAD)
        pieces: list[bytes] = []
        left = limit_bytes
        while position < len(packed):
            start = position + _SNAPPY_LENGTH.size
            if start > len(packed):
                raise corrupt(self.codec, "a block's length is cut off")
            (length,) = _SNAPPY_LENGTH.unpack_from(packed, position)
            position = start + length
            if length < 0 or position > len(packed):
                raise corrupt(self.codec, f"a block of {length} bytes, {len(packed) - start} are there")
            pieces.append(self._unpacked(view[start:position], left, limit_bytes))
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _unpacked(self, block: memoryview, left: int, limit_bytes: int) -> bytes:
        """A block says how large it will be: looked at before there is memory for it."""
        if not block:
            raise corrupt(self.codec, "a block is empty")
        try:
            if cramjam.snappy.decompress_raw_len(block) > left:
                raise too_large(self.codec, limit_bytes)
            return bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise corrupt(self.codec, error) from None


@dataclass(frozen=True, slots=True)
class Lz4Compression:
    """LZ4 at a level from 1 to 17.

    The default of 9 is the fast compressor and every other level the thorough one, as in Java: so 1 packs
    better than 9, and takes longer.
    """

    codec: ClassVar[Codec] = Codec.LZ4
    level: int = DEFAULT_LZ4_LEVEL

    def __post_init__(self) -> None:
        checked_level(self.codec, self.level, MIN_LZ4_LEVEL, MAX_LZ4_LEVEL)

    def compress(self, records: bytes, /) -> bytes:
        pieces = [_LZ4_HEAD]
        pieces += self._fast(records) if self.level == DEFAULT_LZ4_LEVEL else self._thorough(records)
        pieces.append(_LZ4_END)
        return b"".join(pieces)

    def _fast(self, records: bytes) -> Iterator[bytes]:
        view = memoryview(records)
        for start in range(0, len(records), _LZ4_BLOCK_BYTES):
            block = view[start : start + _LZ4_BLOCK_BYTES]
            packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
            if len(packed) < len(block):
                yield _LZ4_LENGTH.pack(len(packed)) + packed
            else:
                yield _LZ4_LENGTH.pack(len(block) | _LZ4_STORED) + block

    def _thorough(self, records: bytes) -> Iterator[bytes]:
        """cramjam has the thorough compressor for frames only, and puts a checksum behind each block."""
        level = min(max(self.level, _LZ4_LEAST_THOROUGH), _LZ4_MOST_THOROUGH)
        packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        packer.compress(records)
        frame = bytes(packer.finish())
        between_bytes = _LZ4_CHECKSUM_BYTES if frame[4] & _LZ4_HAS_CHECKSUMS else 0
        position = len(_LZ4_HEAD)
        while frame[position : position + _LZ4_LENGTH.size] != _LZ4_END:
            (length,) = _LZ4_LENGTH.unpack_from(frame, position)
            end = position + _LZ4_LENGTH.size + (length & ~_LZ4_STORED)
            yield frame[position:end]
            position = end + between_bytes

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        return unpack_bounded(self.codec, cramjam.lz4.decompress_into, packed, limit_bytes)


@dataclass(frozen=True, slots=True)
class ZstdCompression:
    """zstd at a level from -131072 (quickest) to 22; 0 is zstd's own choice, which is 3."""

    codec: ClassVar[Codec] = Codec.ZSTD
    level: int = DEFAULT_ZSTD_LEVEL

    def __post_init__(self) -> None:
        checked_level(self.codec, self.level, MIN_ZSTD_LEVEL, MAX_ZSTD_LEVEL)

    def compress(self, records: bytes, /) -> bytes:
        return bytes(cramjam.zstd.compress(records, level=self.level))

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        return unpack_bounded(self.codec, cramjam.zstd.decompress_into, packed, limit_bytes)


@cache
def compression_for(codec: Codec) -> Compression:
    """What packs, at its default level, and unpacks, whatever the level was, a codec."""
    return _compression(codec, None)


def compression_of(
    name: str,
    *,
    gzip_level: int | None = None,
    lz4_level: int | None = None,
    zstd_level: int | None = None,
) -> Compression:
    """What compression.type names, at its level; None is the codec's default.

    Raises UnsupportedCompressionTypeError for a name that Kafka does not have, IllegalArgumentError for a
    level that the codec does not have. The levels of other codecs are not looked at.
    """
    codec = Codec.named(name)
    levels = {Codec.GZIP: gzip_level, Codec.LZ4: lz4_level, Codec.ZSTD: zstd_level}
    return _compression(codec, levels.get(codec))


def _compression(codec: Codec, level: int | None) -> Compression:
    if codec is Codec.GZIP:
        from client_core.record.codecs import GzipCompression

        return GzipCompression() if level is None else GzipCompression(level)
    if codec is Codec.SNAPPY:
        from client_core.record.codecs import SnappyCompression

        return SnappyCompression()
    if codec is Codec.LZ4:
        from client_core.record.codecs import Lz4Compression

        return Lz4Compression() if level is None else Lz4Compression(level)
    if codec is Codec.ZSTD:
        from client_core.record.codecs import ZstdCompression

        return ZstdCompression() if level is None else ZstdCompression(level)
    return NO_COMPRESSION
