"""The codecs of a record batch: their ids on the wire, and what packs and unpacks them.

`Codec` knows every codec that Kafka has, so that a batch's attributes can be read; `compression_for` has
those that this client can produce with and decode. Only NONE stands in its table so far: a codec is added by
a class with `compress` and `decompress` and a row. Pure; any thread. Source: CompressionType, Compression,
Kafka 4.3.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from client_core.errors import CorruptRecordError, UnsupportedCompressionTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping


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
        """The codec of an id from the wire. Raises CorruptRecordError for an id that Kafka does not have."""
        try:
            return Codec(codec_id)
        except ValueError:
            raise CorruptRecordError(f"Unknown compression type id: {codec_id}") from None

    @staticmethod
    def named(config_name: str) -> Codec:
        """The codec that compression.type names. Any other raises UnsupportedCompressionTypeError."""
        for codec in Codec:
            if codec.config_name == config_name:
                return codec
        raise UnsupportedCompressionTypeError(f"Unknown compression name: {config_name}")


class Compression(Protocol):
    """One codec at one level."""

    @property
    def codec(self) -> Codec: ...

    def compress(self, records: bytes, /) -> bytes:
        """The records of a batch, packed."""
        ...

    def decompress(self, packed: bytes, /) -> bytes:
        """The records of a batch. Raises CorruptRecordError when they can't be unpacked."""
        ...


class NoCompression:
    """Records as they are."""

    codec: Final = Codec.NONE

    def compress(self, records: bytes, /) -> bytes:
        return records

    def decompress(self, packed: bytes, /) -> bytes:
        return packed


NO_COMPRESSION: Final[Compression] = NoCompression()

_IMPLEMENTED: Final[Mapping[Codec, Compression]] = MappingProxyType({Codec.NONE: NO_COMPRESSION})


def compression_for(codec: Codec) -> Compression:
    """What packs and unpacks a codec. Raises UnsupportedCompressionTypeError where nothing does yet."""
    found = _IMPLEMENTED.get(codec)
    if found is None:
        raise UnsupportedCompressionTypeError(
            f"Compression type {codec.config_name} is not supported by this client"
        )
    return found
