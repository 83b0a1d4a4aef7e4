"""The v2 record batch on the wire, and its decoder (REC-01 .. REC-04).

    int64 baseOffset, int32 batchLength (of all that follows it), int32 partitionLeaderEpoch, int8 magic = 2,
    uint32 crc (CRC-32C of all that follows it), int16 attributes, int32 lastOffsetDelta, int64 baseTimestamp,
    int64 maxTimestamp, int64 producerId, int16 producerEpoch, int32 baseSequence, int32 recordCount, records

    attributes:  bits 0-2 codec, 3 timestamp type (1 = LogAppendTime), 4 transactional, 5 control
    record:      varint length, int8 attributes = 0, varlong timestampDelta, varint offsetDelta,
                 varint keyLength, key, varint valueLength, value, varint headerCount, headers
                 (a length of -1: null)
    header:      varint keyLength, key, varint valueLength, value

`memory_records_builder.py` encodes. The decoder serves splits, cancellations, the fake cluster and the tests.
It trusts no input: an invalid batch raises CorruptRecordError. Pure; any thread. Source: DefaultRecordBatch,
DefaultRecord, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from client_core.errors import CorruptRecordError
from client_core.record.codecs import compression_for
from client_core.record.compression import MAX_UNPACKED_BYTES, Codec
from client_core.record.varint import read_varint, read_varlong

#: Names are text, values bytes or null; names may repeat, order is kept.
RecordHeaders = tuple[tuple[str, bytes | None], ...]

#: Before the checksummed bytes: base offset, length, leader epoch, magic, crc.
HEAD: Final = Struct(">qiibI")
#: Start of the checksummed bytes: attributes, last offset delta, two timestamps, producer, sequence, count.
CHECKED_HEAD: Final = Struct(">hiqqqhii")

CRC_SPAN_OFFSET: Final = HEAD.size  # 21
HEADER_SIZE: Final = HEAD.size + CHECKED_HEAD.size  # 61
#: baseOffset and batchLength, which batchLength does not count.
LOG_OVERHEAD: Final = 12
MAGIC: Final = 2
#: For any magic: the minimum size of the oldest format's record.
_LEAST_OVERHEAD: Final = 14

CODEC_MASK: Final = 0b111
LOG_APPEND_TIME_FLAG: Final = 1 << 3
TRANSACTIONAL_FLAG: Final = 1 << 4
CONTROL_FLAG: Final = 1 << 5

#: The wire's values for absent fields.
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

_SEQUENCES: Final = 1 << 31


def increment_sequence(sequence: int, by: int) -> int:
    """Returns the sequence number `by` records later, earlier if negative; 0 follows 2147483647 (REC-04)."""
    return (sequence + by) % _SEQUENCES


class Record(NamedTuple):
    """One record of a decoded batch. `timestamp_ms` is None where the wire has none."""

    offset: int
    timestamp_ms: int | None
    sequence: int | None
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A batch with valid size, magic and checksum. Its records are decoded on request."""

    base_offset: int
    partition_leader_epoch: int | None
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    record_count: int
    size_bytes: int
    payload: bytes = field(repr=False)  # the records, packed by `codec`

    @property
    def codec(self) -> Codec:
        return Codec.of(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control_batch(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int | None:
        if self.base_sequence is None:
            return None
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    def records(self, limit_bytes: int = MAX_UNPACKED_BYTES) -> tuple[Record, ...]:
        """Decodes every record of the batch.

        Raises CorruptRecordError when they are invalid, or unpack to more than `limit_bytes`.
        """
        if not self.record_count and not self.payload:
            return ()  # a batch emptied by compaction, with any codec
        buffer = compression_for(self.codec).decompress(self.payload, limit_bytes)
        records, offset = [], 0
        for _ in range(self.record_count):
            if offset >= len(buffer):
                raise CorruptRecordError("Incorrect declared batch size, premature EOF reached")
            record, offset = self._read_record(buffer, offset)
            records.append(record)
        if offset != len(buffer):
            raise CorruptRecordError("Incorrect declared batch size, records still remaining in file")
        return tuple(records)

    def _read_record(self, buffer: bytes, offset: int) -> tuple[Record, int]:
        length, start = read_varint(buffer, offset)
        end = start + length
        if length < 1 or end > len(buffer):
            raise CorruptRecordError(
                f"Invalid record size: expected {length} bytes in record payload, "
                f"but the batch has only {len(buffer) - start} remaining bytes"
            )
        timestamp_delta, position = read_varlong(buffer, start + 1)  # after the attributes
        offset_delta, position = read_varint(buffer, position)
        key, position = _read_bytes(buffer, position, end)
        value, position = _read_bytes(buffer, position, end)
        headers, position = _read_headers(buffer, position, end)
        if position != end:
            raise CorruptRecordError(
                f"Invalid record size: expected to read {length} bytes in record payload, "
                f"but instead read {position - start}"
            )
        timestamp = (
            self.max_timestamp_ms if self.is_log_append_time else self.base_timestamp_ms + timestamp_delta
        )
        record = Record(
            offset=self.base_offset + offset_delta,
            timestamp_ms=None if timestamp == NO_TIMESTAMP else timestamp,
            sequence=None
            if self.base_sequence is None
            else increment_sequence(self.base_sequence, offset_delta),
            key=key,
            value=value,
            headers=headers,
        )
        return record, end


def decode_record_batch(data: bytes, offset: int = 0) -> RecordBatch:
    """Decodes the batch at an offset; another may follow it at `offset + size_bytes`.

    Raises CorruptRecordError when it is truncated, has another magic, or a wrong checksum.
    """
    if len(data) - offset < HEADER_SIZE:
        raise CorruptRecordError(
            f"Record batch is corrupt (the size {len(data) - offset} is smaller than the minimum allowed "
            f"overhead {HEADER_SIZE})"
        )
    base_offset, length, leader_epoch, magic, stored_crc = HEAD.unpack_from(data, offset)
    if length < _LEAST_OVERHEAD:
        raise CorruptRecordError(
            f"Record size {length} is less than the minimum record overhead ({_LEAST_OVERHEAD})"
        )
    if magic != MAGIC:
        raise CorruptRecordError(f"Invalid magic found in record: {magic}")
    size = LOG_OVERHEAD + length
    if size > len(data) - offset:
        raise CorruptRecordError(
            f"Record batch is corrupt (it declares {size} bytes, but only {len(data) - offset} are left)"
        )
    if size < HEADER_SIZE:
        raise CorruptRecordError(
            f"Record batch is corrupt (the size {size} is smaller than the minimum allowed "
            f"overhead {HEADER_SIZE})"
        )
    computed_crc = crc32c(memoryview(data)[offset + CRC_SPAN_OFFSET : offset + size])
    if computed_crc != stored_crc:
        raise CorruptRecordError(
            f"Record is corrupt (stored crc = {stored_crc}, computed crc = {computed_crc})"
        )
    checked_head = CHECKED_HEAD.unpack_from(data, offset + CRC_SPAN_OFFSET)
    attributes, last_offset_delta, base_timestamp, max_timestamp, *producer, count = checked_head
    producer_id, producer_epoch, base_sequence = map(_or_none, producer)
    if count < 0:
        raise CorruptRecordError(f"Found invalid record count {count} in magic v{magic} batch")
    return RecordBatch(
        base_offset=base_offset,
        partition_leader_epoch=_or_none(leader_epoch),
        crc=stored_crc,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
        size_bytes=size,
        payload=data[offset + HEADER_SIZE : offset + size],
    )


def _or_none(wire: int) -> int | None:
    return None if wire < 0 else wire


def _read_bytes(buffer: bytes, offset: int, end: int) -> tuple[bytes | None, int]:
    length, start = read_varint(buffer, offset)
    if length < 0:
        return None, start
    if start + length > end:
        raise CorruptRecordError(
            f"Found invalid record structure: {length} bytes announced, {max(end - start, 0)} left"
        )
    return buffer[start : start + length], start + length


def _read_headers(buffer: bytes, offset: int, end: int) -> tuple[RecordHeaders, int]:
    count, offset = read_varint(buffer, offset)
    if count < 0:
        raise CorruptRecordError(f"Found invalid number of record headers {count}")
    if count > end - offset:
        raise CorruptRecordError(
            f"Found invalid number of record headers. {count} is larger than the remaining size of the buffer"
        )
    headers = []
    for _ in range(count):
        name, offset = _read_bytes(buffer, offset, end)
        if name is None:
            raise CorruptRecordError("Invalid negative header key size")
        value, offset = _read_bytes(buffer, offset, end)
        headers.append((_text(name), value))
    return tuple(headers), offset


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise CorruptRecordError("Found invalid record structure: a header's name is not UTF-8") from None
