"""Codecs of a record batch by id and name, and the interface to compress.

`Codec` is the value in a batch's attributes and in compression.type; `Compression` is a codec at a level.
`codecs.py` returns a Compression; each codec that needs code has its own file. Pure; any thread. Source:
CompressionType, Compression, NoCompression, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, Protocol

from client_core.errors import CorruptRecordError, IllegalArgumentError, UnsupportedCompressionTypeError

#: Default limit of a batch's unpacked size: twice Kafka's default buffer.memory, which limits all of a
#: producer's records; fetch.max.bytes is 50 MiB. A few packed kilobytes can unpack to gigabytes. Java has no
#: limit, but reads as a stream; here a batch is unpacked as a whole.
MAX_UNPACKED_BYTES: Final = 64 * 1024 * 1024


class Codec(Enum):
    """Bits 0 to 2 of a batch's attributes; `config_name` is the value of compression.type."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def id(self) -> int:
        return self.value

    @property
    def config_name(self) -> str:
        return self.name.lower()

    @staticmethod
    def of(codec_id: int) -> Codec:
        """Returns the codec of an id from the wire. Raises CorruptRecordError for an unknown id."""
        try:
            return Codec(codec_id)
        except ValueError:
            raise CorruptRecordError(f"Unknown compression type id: {codec_id}") from None

    @staticmethod
    def named(config_name: str) -> Codec:
        """Returns the codec for a compression.type. Raises UnsupportedCompressionTypeError if unknown."""
        for codec in Codec:
            if codec.config_name == config_name:
                return codec
        raise UnsupportedCompressionTypeError(f"Unknown compression name: {config_name}")


class Compression(Protocol):
    """One codec at one level."""

    @property
    def codec(self) -> Codec: ...

    def compress(self, records: bytes, /) -> bytes:
        """Packs the records of a batch."""
        ...

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        """Unpacks the records of a batch.

        Raises CorruptRecordError when they are invalid, or would exceed the limit.
        """
        ...


@dataclass(frozen=True, slots=True)
class NoCompression:
    """Leaves records unchanged."""

    codec: ClassVar[Codec] = Codec.NONE

    def compress(self, records: bytes, /) -> bytes:
        return records

    def decompress(self, packed: bytes, /, limit_bytes: int = MAX_UNPACKED_BYTES) -> bytes:
        return packed


NO_COMPRESSION: Final[Compression] = NoCompression()


def checked_level(codec: Codec, level: int, smallest: int, largest: int) -> int:
    """Returns the level. Raises IllegalArgumentError if the codec does not have it."""
    if not smallest <= level <= largest:
        raise IllegalArgumentError(f"{codec.config_name} doesn't support given compression level: {level}")
    return level


def corrupt(codec: Codec, why: object) -> CorruptRecordError:
    """Returns the error for bytes that a codec can't unpack."""
    return CorruptRecordError(f"The records can't be unpacked with {codec.config_name}: {why}")


def too_large(codec: Codec, limit_bytes: int) -> CorruptRecordError:
    """Returns the error for records above their reader's limit."""
    return corrupt(codec, f"they are larger than {limit_bytes} bytes")
