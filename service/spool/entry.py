"""A spooled record as bytes: one frame in a segment, checked by its CRC.

    bytes[4] marker, uint32 length, uint32 crc, uint64 sequence, uint8 version, payload     all big endian

`length` is that of sequence, version and payload; the CRC is CRC-32C of the file's salt, of the length and
of those. The payload of version 1 is MessagePack, an array: topic, partition, key, value, timestamp, headers,
when it was accepted (milliseconds since 1970). Sequence numbers grow by one from record to record.

A reader looks for the marker, the first half of the salt, to find the next frame behind damage; that it
stands in a value by chance is told by the CRC. A value may hold bytes that a caller chose: without the salt,
which is random for each file and leaves the process in the file's name only, nobody can make a frame that a
reader takes for one of that file, nor many false heads to keep it busy.

Pure but for `new_salt`; any thread.
"""

from __future__ import annotations

import secrets
import struct
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from client_core import EncodedHeaders, ProducerRecord

VERSION: Final = 1
SALT_BYTES: Final = 8
_MARKER_BYTES: Final = 4

_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">4sII")
_BODY: Final = struct.Struct(">QB")

#: What a frame takes besides its payload.
FRAME_BYTES: Final = _HEAD.size + _BODY.size
#: What a payload takes at most besides topic, key, value and headers, and what each header adds to its bytes.
_PAYLOAD_BYTES: Final = 48
_HEADER_BYTES: Final = 11


class EntryError(Exception):
    """A frame is whole, and its payload is none that this version reads."""


class _Payload(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    headers: tuple[tuple[str, bytes | None], ...]
    accepted_wall_ms: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Payload).decode


class Entry(NamedTuple):
    """A record, and when it was accepted, in milliseconds since 1970."""

    record: ProducerRecord
    accepted_wall_ms: int


class Frame(NamedTuple):
    """A frame that was found whole; `end` is the place behind it."""

    sequence: int
    version: int
    payload: bytes
    end: int


def payload_of(record: ProducerRecord, accepted_wall_ms: int) -> bytes:
    """The payload of version 1."""
    topic, value, key, partition, timestamp_ms, headers = record
    return _encode(_Payload(topic, partition, key, value, timestamp_ms, tuple(headers), accepted_wall_ms))


def entry_of(version: int, payload: bytes) -> Entry:
    """The record of a payload. Raises EntryError."""
    if version != VERSION:
        raise EntryError(f"written in version {version} of the format; this pilotfish reads {VERSION}")
    try:
        found = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise EntryError(f"not a spooled record: {e}") from e
    record = ProducerRecord(
        found.topic, found.value, found.key, found.partition, found.timestamp_ms, found.headers
    )
    return Entry(record, found.accepted_wall_ms)


def new_salt() -> bytes:
    """The salt of a new file, by the operating system's randomness."""
    return secrets.token_bytes(SALT_BYTES)


def frame_of(salt: bytes, sequence: int, payload: bytes, version: int = VERSION) -> bytes:
    """The frame around a payload, in the file of this salt."""
    body = _BODY.pack(sequence, version) + payload
    return _HEAD.pack(salt[:_MARKER_BYTES], len(body), _crc(salt, body)) + body


def frame_at(salt: bytes, data: bytes, at: int) -> Frame | None:
    """The frame that begins at `at`, or None: no whole and sound frame begins there."""
    end = frame_end(salt, data, at)
    if end is None or end > len(data):
        return None
    _, _, crc = _HEAD.unpack_from(data, at)
    body = data[at + _HEAD.size : end]
    if _crc(salt, body) != crc:
        return None
    sequence, version = _BODY.unpack_from(body)
    return Frame(sequence, version, body[_BODY.size :], end)


def frame_end(salt: bytes, data: bytes, at: int) -> int | None:
    """Where the frame at `at` says that it ends, perhaps beyond the data; None where no head stands there."""
    if len(data) - at < _HEAD.size:
        return None
    marker, length, _ = _HEAD.unpack_from(data, at)
    is_head = marker == salt[:_MARKER_BYTES] and length >= _BODY.size
    return at + _HEAD.size + length if is_head else None


def next_frame(salt: bytes, data: bytes, at: int) -> tuple[int, Frame] | None:
    """The first sound frame that begins at `at` or behind it, and where; None where there is none."""
    marker = salt[:_MARKER_BYTES]
    while (at := data.find(marker, at)) >= 0:
        frame = frame_at(salt, data, at)
        if frame is not None:
            return at, frame
        at += 1
    return None


def most_bytes_of(record: ProducerRecord) -> int:
    """How many bytes the frame of a record takes at most."""
    size = FRAME_BYTES + _PAYLOAD_BYTES + 4 * len(record.topic)
    size += len(record.key or b"") + len(record.value or b"")
    if isinstance(record.headers, EncodedHeaders):
        return size + _HEADER_BYTES * len(record.headers) + 4 * len(record.headers.encoded)
    for name, value in record.headers:
        # A character takes four bytes of UTF-8 at most.
        size += _HEADER_BYTES + 4 * len(name) + len(value or b"")
    return size


def _crc(salt: bytes, body: bytes) -> int:
    return crc32c(body, crc32c(salt + _LENGTH.pack(len(body))))
