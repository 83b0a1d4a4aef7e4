"""The table of codecs: a Compression by what compression.type says, or by what stands in a batch.

One row for each of Kafka's codecs; what a codec does is in its own file. Called by wiring.py for what is
produced, by record_batch.py for what is read. Pure; any thread. Source: Compression.of, Kafka 4.3.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from client_core.record.compression import NO_COMPRESSION, Codec, Compression
from client_core.record.gzip_compression import DEFAULT_GZIP_LEVEL, GzipCompression
from client_core.record.lz4_compression import DEFAULT_LZ4_LEVEL, Lz4Compression
from client_core.record.snappy_compression import SnappyCompression
from client_core.record.zstd_compression import DEFAULT_ZSTD_LEVEL, ZstdCompression

if TYPE_CHECKING:
    from collections.abc import Mapping

_AT_DEFAULT_LEVEL: Final[Mapping[Codec, Compression]] = MappingProxyType(
    {
        Codec.NONE: NO_COMPRESSION,
        Codec.GZIP: GzipCompression(),
        Codec.SNAPPY: SnappyCompression(),
        Codec.LZ4: Lz4Compression(),
        Codec.ZSTD: ZstdCompression(),
    }
)


def compression_for(codec: Codec) -> Compression:
    """What packs, at its default level, and unpacks, whatever the level was, a codec."""
    return _AT_DEFAULT_LEVEL[codec]


def compression_of(
    name: str,
    *,
    gzip_level: int | None = None,
    lz4_level: int = DEFAULT_LZ4_LEVEL,
    zstd_level: int = DEFAULT_ZSTD_LEVEL,
) -> Compression:
    """What compression.type names, at its level; a `gzip_level` of None is zlib's own choice.

    Raises UnsupportedCompressionTypeError for a name that Kafka does not have, IllegalArgumentError for a
    level that the codec does not have. The levels of other codecs are not looked at.
    """
    codec = Codec.named(name)
    if codec is Codec.GZIP:
        return GzipCompression(DEFAULT_GZIP_LEVEL if gzip_level is None else gzip_level)
    if codec is Codec.LZ4:
        return Lz4Compression(lz4_level)
    if codec is Codec.ZSTD:
        return ZstdCompression(zstd_level)
    return compression_for(codec)
