"""Decompresses within a memory limit, for codecs that can't stop by themselves.

A zstd frame of 33 kB can decompress to a gigabyte, and neither zstd nor LZ4 must state the size beforehand.
cramjam decompresses a frame at once, but accepts an output buffer. The buffer is mapped memory, which costs
only the pages written. 64 MiB of it take 12 us more than a buffer of the right size. Pure; any thread.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

import cramjam

from client_core.errors import KafkaError
from client_core.record.compression import corrupt, too_large

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.record.compression import Codec

#: cramjam's error for a full output buffer; Rust's text.
_NO_ROOM: Final = "failed to write whole buffer"


def unpack_bounded(
    codec: Codec, unpack_into: Callable[[bytes, mmap.mmap], int], packed: bytes, limit_bytes: int
) -> bytes:
    """Returns the output of `unpack_into` for the packed bytes.

    Raises CorruptRecordError if they are invalid, or the output exceeds the limit.
    """
    try:
        room = mmap.mmap(-1, max(limit_bytes, 1))  # an empty map is invalid
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
