"""zstd: one frame of RFC 8878, from Produce version 7 on (KIP-110; `produce_request.py`).

Java writes a stream. Here the whole batch is compressed at once, so the frame states its size and consumers
need no growing buffer. cramjam does the work, and releases the GIL for it. It would silently clamp a level
out of range; this module refuses it. Pure; any thread. Source: ZstdCompression, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import cramjam

from client_core.record.bounded_unpacking import unpack_bounded
from client_core.record.compression import MAX_UNPACKED_BYTES, Codec, checked_level

#: ZSTD_minCLevel (minus ZSTD_TARGETLENGTH_MAX), ZSTD_MAX_CLEVEL and ZSTD_CLEVEL_DEFAULT.
MIN_ZSTD_LEVEL: Final = -131072
MAX_ZSTD_LEVEL: Final = 22
DEFAULT_ZSTD_LEVEL: Final = 3


@dataclass(frozen=True, slots=True)
class ZstdCompression:
    """zstd at a level from -131072 (fastest) to 22; 0 is zstd's default, 3."""

    codec: ClassVar[Codec] = Codec.ZSTD
    level: int = DEFAULT_ZSTD_LEVEL

    def __post_init__(self) -> None:
        checked_level(self.codec, self.level, MIN_ZSTD_LEVEL, MAX_ZSTD_LEVEL)

    def compress(self, records: bytes, /) -> bytes:
        return bytes(cramjam.zstd.compress(records, level=self.level))

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        return unpack_bounded(self.codec, cramjam.zstd.decompress_into, packed, limit_bytes)
