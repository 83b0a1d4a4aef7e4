"""Fast path for Produce: encodes a flexible request in one join, reads successful responses.

Each batch needs one Produce request and one response, and the field-by-field code of `messages/` takes a few
hundred calls for each. A response with an error is read by that code. A test verifies that both paths are
equal, to the byte and to the value. Pure.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from uuid import UUID

from client_core.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from client_core.protocol.primitives import ZERO_UUID, unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The first version with compact lengths and tags, and the first with topic ids in place of names.
FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_IDS: Final = 13

#: The three parts: no transactional id, acks and the timeout; a partition's index; an empty tag section.
_BEGINNING: Final = struct.Struct(">Bhi")
_INT32: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"

#: Partition, error, base offset, log append time, log start offset; no record errors (a length of 0 + 1), no
#: message, no tags.
_STORED: Final = struct.Struct(">ihqqqBBB")
_PLAIN_END: Final = (1, 0, 0)
#: Compact lengths below this take one byte; they are one more than the count.
_ONE_BYTE: Final = 0x80
_UUID_BYTES: Final = 16


def encode_produce_request(
    version: int,
    acks: int,
    timeout_ms: int,
    by_topic: Mapping[str, Sequence[tuple[int, bytes]]],
    topic_ids: Mapping[str, UUID],
) -> bytes:
    """Returns the body of a request of version 9 or later, with partitions and batches by topic.

    An unknown id is sent as zero. Raises UnicodeEncodeError for a name that UTF-8 can't encode.
    """
    pieces = [_BEGINNING.pack(0, acks, timeout_ms), _length(len(by_topic))]
    for topic, partitions in by_topic.items():
        if version >= _FIRST_WITH_IDS:
            pieces.append(topic_ids.get(topic, ZERO_UUID).bytes)
        else:
            name = topic.encode()
            pieces += (_length(len(name)), name)
        pieces.append(_length(len(partitions)))
        for partition, records in partitions:
            pieces += (_INT32.pack(partition), _length(len(records)), records, _NO_TAGS)
        pieces.append(_NO_TAGS)
    pieces.append(_NO_TAGS)
    return b"".join(pieces)


@lru_cache(maxsize=1024)
def _length(count: int) -> bytes:
    """Returns a compact length: the count plus one."""
    return unsigned_varint(count + 1)


def read_produce_response(body: bytes, version: int) -> ProduceResponse | None:
    """Reads a response of version 9 or later without any error or further information.

    Returns None for any other bytes, including invalid ones.
    """
    try:
        topics: list[TopicProduceResponse] = []
        count, at = body[0], 1
        if not 0 < count < _ONE_BYTE:
            return None
        for _ in range(count - 1):
            name, topic_id = "", ZERO_UUID
            if version >= _FIRST_WITH_IDS:
                topic_id = _uuid(body[at : at + _UUID_BYTES])
                at += _UUID_BYTES
            else:
                size = body[at]
                if not 0 < size < _ONE_BYTE:
                    return None
                name = body[at + 1 : at + size].decode()
                at += size
            partition_count = body[at]
            if not 0 < partition_count < _ONE_BYTE:
                return None
            at += 1
            partitions: list[PartitionProduceResponse] = []
            for _ in range(partition_count - 1):
                partition, error, *reported, record_errors, message, tags = _STORED.unpack_from(body, at)
                if error or (record_errors, message, tags) != _PLAIN_END:
                    return None
                partitions.append(PartitionProduceResponse(partition, 0, *reported))
                at += _STORED.size
            if body[at]:
                return None
            at += 1
            topics.append(TopicProduceResponse(name, topic_id, tuple(partitions)))
        (throttle_time_ms,) = _INT32.unpack_from(body, at)
        return None if body[at + _INT32.size] else ProduceResponse(tuple(topics), throttle_time_ms)
    except (IndexError, ValueError, struct.error):
        return None  # the generated message reports the error


@lru_cache(maxsize=1024)
def _uuid(raw: bytes) -> UUID:
    return UUID(bytes=raw)
