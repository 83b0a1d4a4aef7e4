"""gzip: one member of RFC 1952, with the ten-byte header that Java writes.

    1f 8b, 08 = deflate, 00 no flags, 00000000 no time, 00, ff = unknown system,
    the deflated records, uint32 crc, uint32 size

The standard library's zlib, not cramjam. It packs 16 KiB of JSON, a batch at Kafka's defaults, to the same
5.0 kB in 0.22 ms against 0.33. 1 MiB takes 3.4 ms against 2.6. It unpacks as fast, and supports a limit. The
header is written by hand, so that it is the same on every system. zlib releases the GIL while it works. Pure;
any thread. Source: GzipCompression, GzipOutputStream, Kafka 4.3.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Final

from client_core.record.compression import MAX_UNPACKED_BYTES, Codec, checked_level, corrupt, too_large

#: Deflater.BEST_SPEED, BEST_COMPRESSION and DEFAULT_COMPRESSION: zlib's own choice, which is 6.
MIN_GZIP_LEVEL: Final = 1
MAX_GZIP_LEVEL: Final = 9
DEFAULT_GZIP_LEVEL: Final = -1

_HEAD: Final = bytes.fromhex("1f8b 08 00 00000000 00 ff")
_TAIL: Final = Struct("<II")
_UINT32: Final = 0xFFFFFFFF

#: zlib's window of 32 KiB: negative for bare deflate, plus 16 for gzip's header and trailer.
_BARE: Final = -zlib.MAX_WBITS
_WITH_HEAD: Final = zlib.MAX_WBITS + 16


@dataclass(frozen=True, slots=True)
class GzipCompression:
    """gzip at a level from 1 to 9, or zlib's own choice (-1)."""

    codec: ClassVar[Codec] = Codec.GZIP
    level: int = DEFAULT_GZIP_LEVEL

    def __post_init__(self) -> None:
        if self.level != DEFAULT_GZIP_LEVEL:
            checked_level(self.codec, self.level, MIN_GZIP_LEVEL, MAX_GZIP_LEVEL)

    def compress(self, records: bytes, /) -> bytes:
        tail = _TAIL.pack(zlib.crc32(records), len(records) & _UINT32)
        return b"".join((_HEAD, zlib.compress(records, self.level, wbits=_BARE), tail))

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        unpacker = zlib.decompressobj(wbits=_WITH_HEAD)
        try:
            records = unpacker.decompress(packed, limit_bytes + 1)  # 0 would mean no limit to zlib
        except zlib.error as error:
            raise corrupt(self.codec, error) from None
        if len(records) > limit_bytes:
            raise too_large(self.codec, limit_bytes)
        if not unpacker.eof:
            raise corrupt(self.codec, "the stream is cut off")
        if unpacker.unused_data:
            raise corrupt(self.codec, f"{len(unpacker.unused_data)} bytes follow the stream")
        return records
