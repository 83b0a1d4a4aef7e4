"""snappy in xerial's framing, which is Kafka's snappy (REC-06).

    82 "SNAPPY" 00, int32 version = 1, int32 oldest version that can read it = 1,
    then for every 32 KiB of records: int32 length, so many bytes of raw snappy

librdkafka and others write the batch as raw snappy without a frame. xerial and this module read that, too.
cramjam does the raw snappy, and releases the GIL for it. There are no levels. Pure; any thread.
Source: SnappyCompression, Kafka 4.3; SnappyOutputStream, SnappyInputStream, xerial's snappy-java 1.1.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Final

import cramjam

from client_core.record.compression import MAX_UNPACKED_BYTES, Codec, corrupt, too_large

_MAGIC: Final = b"\x82SNAPPY\x00"
_VERSIONS: Final = Struct(">ii")
_VERSION: Final = 1
_HEAD: Final = _MAGIC + _VERSIONS.pack(_VERSION, _VERSION)
_LENGTH: Final = Struct(">i")

#: SnappyOutputStream's default block size.
_BLOCK_BYTES: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class SnappyCompression:
    """snappy in Kafka's framing."""

    codec: ClassVar[Codec] = Codec.SNAPPY

    def compress(self, records: bytes, /) -> bytes:
        view = memoryview(records)
        pieces = [_HEAD]
        for start in range(0, len(records), _BLOCK_BYTES):
            packed = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK_BYTES]))
            pieces += (_LENGTH.pack(len(packed)), packed)
        return b"".join(pieces)

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        if not packed.startswith(_MAGIC):
            return self._unpacked(memoryview(packed), limit_bytes, limit_bytes)
        if len(packed) < len(_HEAD):
            raise corrupt(self.codec, "the head is cut off")
        version, _ = _VERSIONS.unpack_from(packed, len(_MAGIC))
        if version < _VERSION:
            raise corrupt(self.codec, f"version {version} of the framing is unknown")
        view, position = memoryview(packed), len(_HEAD)
        pieces: list[bytes] = []
        left = limit_bytes
        while position < len(packed):
            start = position + _LENGTH.size
            if start > len(packed):
                raise corrupt(self.codec, "a block's length is cut off")
            (length,) = _LENGTH.unpack_from(packed, position)
            position = start + length
            if length < 0 or position > len(packed):
                raise corrupt(
                    self.codec, f"a block of {length} bytes, but only {len(packed) - start} are left"
                )
            pieces.append(self._unpacked(view[start:position], left, limit_bytes))
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _unpacked(self, block: memoryview, left: int, limit_bytes: int) -> bytes:
        """Checks a block's stated size before it allocates memory."""
        if not block:
            raise corrupt(self.codec, "a block is empty")
        try:
            if cramjam.snappy.decompress_raw_len(block) > left:
                raise too_large(self.codec, limit_bytes)
            return bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise corrupt(self.codec, error) from None
