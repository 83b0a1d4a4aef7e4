"""LZ4 frames as Java's Lz4BlockOutputStream writes them: independent blocks of 64 KiB.

    04 22 4d 18, 60 = version 1, independent blocks, 40 = blocks of 64 KiB, 82 = checksum of these two bytes,
    then for every 64 KiB of records: uint32 length (top bit: stored uncompressed), so many bytes,
    uint32 0

There are no checksums of blocks or content. Any frame can be read: linked blocks, larger ones, checksums of
blocks and content. All checksums are verified; Java ignores the content's. cramjam packs and unpacks, and
releases the GIL for it. Pure; any thread. Source: Lz4Compression, Lz4BlockOutputStream, Lz4BlockInputStream,
Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final

import cramjam

from client_core.record.bounded_unpacking import unpack_bounded
from client_core.record.compression import MAX_UNPACKED_BYTES, Codec, checked_level

if TYPE_CHECKING:
    from collections.abc import Iterator

#: LZ4Constants of lz4-java.
MIN_LZ4_LEVEL: Final = 1
MAX_LZ4_LEVEL: Final = 17
DEFAULT_LZ4_LEVEL: Final = 9

_HEAD: Final = bytes.fromhex("04224d18 60 40 82")
_LENGTH: Final = Struct("<I")
_STORED: Final = 1 << 31
_END: Final = _LENGTH.pack(0)
_BLOCK_BYTES: Final = 64 * 1024

#: The flags follow the magic; one bit means a checksum after each block.
_FLAGS_AT: Final = 4
_HAS_CHECKSUMS: Final = 0x10
_CHECKSUM_BYTES: Final = 4

#: The levels of liblz4's high-compression mode, which treats any above 12 as 12.
_LEAST_THOROUGH: Final = 2
_MOST_THOROUGH: Final = 12


def blocks_of(frame: bytes) -> Iterator[bytes]:
    """Yields the blocks of a frame of ours or cramjam's, each with its length, without their checksums."""
    between_bytes = _CHECKSUM_BYTES if frame[_FLAGS_AT] & _HAS_CHECKSUMS else 0
    position = len(_HEAD)
    while frame[position : position + _LENGTH.size] != _END:
        (length,) = _LENGTH.unpack_from(frame, position)
        end = position + _LENGTH.size + (length & ~_STORED)
        yield frame[position:end]
        position = end + between_bytes


@dataclass(frozen=True, slots=True)
class Lz4Compression:
    """LZ4 at a level from 1 to 17.

    The default of 9 is the fast compressor, every other level the high-compression one, as in Java. So 1
    packs better than 9, and takes longer.
    """

    codec: ClassVar[Codec] = Codec.LZ4
    level: int = DEFAULT_LZ4_LEVEL

    def __post_init__(self) -> None:
        checked_level(self.codec, self.level, MIN_LZ4_LEVEL, MAX_LZ4_LEVEL)

    def compress(self, records: bytes, /) -> bytes:
        pieces = [_HEAD]
        pieces += self._fast(records) if self.level == DEFAULT_LZ4_LEVEL else self._thorough(records)
        pieces.append(_END)
        return b"".join(pieces)

    def _fast(self, records: bytes) -> Iterator[bytes]:
        view = memoryview(records)
        for start in range(0, len(records), _BLOCK_BYTES):
            block = view[start : start + _BLOCK_BYTES]
            packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
            if len(packed) < len(block):
                yield _LENGTH.pack(len(packed)) + packed
            else:
                yield _LENGTH.pack(len(block) | _STORED) + block

    def _thorough(self, records: bytes) -> Iterator[bytes]:
        """cramjam offers high compression for frames only, with a checksum after each block."""
        level = min(max(self.level, _LEAST_THOROUGH), _MOST_THOROUGH)
        packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        packer.compress(records)
        return blocks_of(bytes(packer.finish()))

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        return unpack_bounded(self.codec, cramjam.lz4.decompress_into, packed, limit_bytes)
