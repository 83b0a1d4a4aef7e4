"""Shared by the tests of codecs: every codec, its levels, and records of several kinds."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from client_core.record.codecs import compression_for, compression_of
from client_core.record.compression import Codec

if TYPE_CHECKING:
    from client_core.record.compression import Compression

#: Each of Kafka's codecs at its default level, none among them.
EVERY_CODEC: Final = tuple(map(compression_for, Codec))
PACKING_CODECS: Final = tuple(
    compression for compression in EVERY_CODEC if compression.codec is not Codec.NONE
)

#: The ends of each codec's levels, its default, and some in between.
EVERY_LEVEL: Final[tuple[Compression, ...]] = (
    *(compression_of("gzip", gzip_level=level) for level in (None, -1, 1, 2, 6, 9)),
    compression_of("snappy"),
    *(compression_of("lz4", lz4_level=level) for level in (1, 2, 3, 8, 9, 10, 12, 13, 17)),
    *(compression_of("zstd", zstd_level=level) for level in (-131072, -5, -1, 0, 1, 3, 9, 22)),
)


def codec_name(compression: Compression) -> str:
    """For pytest's ids."""
    return compression.codec.config_name


def payloads() -> dict[str, bytes]:
    """Bytes that pack well, badly or not at all, at sizes around the blocks of snappy and LZ4."""
    random = Random(4)
    kinds = {"empty": b"", "one byte": b"\x01"}
    for size in (1000, 2**15, 2**16 - 1, 2**16, 2**16 + 1, 96 * 2**10):
        kinds[f"random of {size}"] = random.randbytes(size)
        kinds[f"ones of {size}"] = b"\x01" * size
    kinds["text"] = b"".join(b'{"order": %d, "state": "paid"}' % random.randrange(10**6) for _ in range(3000))
    return kinds


PAYLOADS: Final = payloads()
