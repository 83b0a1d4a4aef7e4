"""Encodes a spooled record as a frame: one entry of a segment, checked by its CRC.

    bytes[4] marker, uint32 length, uint32 crc, uint64 sequence, uint8 version, payload     all big endian

`length` is the size of sequence, version and payload. The CRC is CRC-32C of the file's salt, the length, and
these three. The payload of version 1 is a MessagePack array: topic, partition, key, value, timestamp,
headers, time of acceptance (milliseconds since 1970). Sequence numbers increase by one per record.

The marker is the first half of the salt. A reader searches for it to find the next frame after damage. The
CRC rejects a marker that a value contains by chance. A caller chooses the bytes of a value, but does not know
the salt: it is random for each file, and only the spool's folder has it. So a caller cannot forge a frame,
or many false headers that slow a reader down.

Pure, except `new_salt`; any thread.
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

#: The bytes of a frame without its payload.
FRAME_BYTES: Final = _HEAD.size + _BODY.size
#: The most bytes of a payload besides topic, key, value and headers; and those added by each header.
_PAYLOAD_BYTES: Final = 48
_HEADER_BYTES: Final = 11


class EntryError(Exception):
    """A frame is intact, but this version cannot decode its payload."""


_Headers = tuple[tuple[str, bytes | None], ...]
#: Topic, partition, key, value, timestamp, headers, time of acceptance.
_Payload = tuple[str, int | None, bytes | None, bytes | None, int | None, _Headers, int]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Payload).decode


class Entry(NamedTuple):
    """A record, and when it was accepted, in milliseconds since 1970."""

    record: ProducerRecord
    accepted_wall_ms: int

    @property
    def to_send(self) -> ProducerRecord:
        """The record to send; its timestamp defaults to the time of acceptance."""
        record, accepted_wall_ms = self
        return record if record.timestamp_ms is not None else record._replace(timestamp_ms=accepted_wall_ms)


class Frame(NamedTuple):
    """An intact frame; `end` is the offset after it."""

    sequence: int
    version: int
    payload: bytes
    end: int


def payload_of(record: ProducerRecord, accepted_wall_ms: int) -> bytes:
    """Returns the payload of version 1."""
    topic, value, key, partition, timestamp_ms, headers = record
    return _encode((topic, partition, key, value, timestamp_ms, tuple(headers), accepted_wall_ms))


def entry_of(version: int, payload: bytes) -> Entry:
    """Returns the record of a payload. Raises EntryError."""
    if version != VERSION:
        raise EntryError(f"written in version {version} of the format; this pilotfish reads {VERSION}")
    try:
        topic, partition, key, value, timestamp_ms, headers, accepted_wall_ms = _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise EntryError(f"not a spooled record: {e}") from e
    record = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
    return Entry(record, accepted_wall_ms)


def new_salt() -> bytes:
    """Returns a salt for a new file, from the operating system's random source."""
    return secrets.token_bytes(SALT_BYTES)


def frame_of(salt: bytes, sequence: int, payload: bytes, version: int = VERSION) -> bytes:
    """Returns the frame of a payload, for the file of this salt."""
    body = _BODY.pack(sequence, version) + payload
    return _HEAD.pack(salt[:_MARKER_BYTES], len(body), _crc(salt, body)) + body


def frame_at(salt: bytes, data: bytes, at: int) -> Frame | None:
    """Returns the frame at `at`, or None if no intact frame begins there."""
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
    """Returns where the frame at `at` claims to end, maybe after the data; None if no header is there."""
    if len(data) - at < _HEAD.size:
        return None
    marker, length, _ = _HEAD.unpack_from(data, at)
    is_head = marker == salt[:_MARKER_BYTES] and length >= _BODY.size
    return at + _HEAD.size + length if is_head else None


def next_frame(salt: bytes, data: bytes, at: int) -> tuple[int, Frame] | None:
    """Returns the offset and the first intact frame at or after `at`; None if there is none."""
    marker = salt[:_MARKER_BYTES]
    while (at := data.find(marker, at)) >= 0:
        frame = frame_at(salt, data, at)
        if frame is not None:
            return at, frame
        at += 1
    return None


def most_bytes_of(record: ProducerRecord) -> int:
    """Returns the most bytes that a record's frame may have."""
    size = FRAME_BYTES + _PAYLOAD_BYTES + 4 * len(record.topic)
    size += len(record.key or b"") + len(record.value or b"")
    if isinstance(record.headers, EncodedHeaders):
        return size + _HEADER_BYTES * len(record.headers) + 4 * len(record.headers.encoded)
    for name, value in record.headers:
        # A character has at most four bytes in UTF-8.
        size += _HEADER_BYTES + 4 * len(name) + len(value or b"")
    return size


def _crc(salt: bytes, body: bytes) -> int:
    return crc32c(body, crc32c(salt + _LENGTH.pack(len(body))))
