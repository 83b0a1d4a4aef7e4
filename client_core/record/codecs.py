"""The table of codecs: a Compression by compression.type or by codec id.

One row per codec. Each codec has its own module, which is imported on first use: its library takes memory
that an uncompressed producer does not need. Called by wiring.py for producing, by record_batch.py for
reading. Pure; any thread. Source: Compression.of, Kafka 4.3.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from client_core.errors import UnsupportedCompressionTypeError
from client_core.record.compression import NO_COMPRESSION, Codec

if TYPE_CHECKING:
    from client_core.record.compression import Compression


@cache
def compression_for(codec: Codec) -> Compression:
    """Returns a codec that compresses at its default level and decompresses any level."""
    return _compression(codec, None)


def compression_of(
    name: str,
    *,
    gzip_level: int | None = None,
    lz4_level: int | None = None,
    zstd_level: int | None = None,
) -> Compression:
    """Returns the codec of compression.type at its level; None is the codec's default.

    Raises UnsupportedCompressionTypeError for an unknown name and for a codec whose library is not installed.
    Raises IllegalArgumentError for an invalid level. Levels of other codecs are ignored.
    """
    codec = Codec.named(name)
    levels = {Codec.GZIP: gzip_level, Codec.LZ4: lz4_level, Codec.ZSTD: zstd_level}
    return _compression(codec, levels.get(codec))


def _compression(codec: Codec, level: int | None) -> Compression:
    try:
        return _loaded(codec, level)
    except ModuleNotFoundError as error:
        if error.name != "cramjam":
            raise
        raise UnsupportedCompressionTypeError(
            f"{codec.config_name} needs the package cramjam: install pilotfish-client with its extra codecs"
        ) from error


def _loaded(codec: Codec, level: int | None) -> Compression:
    if codec is Codec.GZIP:
        from client_core.record.gzip_compression import GzipCompression

        return GzipCompression() if level is None else GzipCompression(level)
    if codec is Codec.SNAPPY:
        from client_core.record.snappy_compression import SnappyCompression

        return SnappyCompression()
    if codec is Codec.LZ4:
        from client_core.record.lz4_compression import Lz4Compression

        return Lz4Compression() if level is None else Lz4Compression(level)
    if codec is Codec.ZSTD:
        from client_core.record.zstd_compression import ZstdCompression

        return ZstdCompression() if level is None else ZstdCompression(level)
    return NO_COMPRESSION
