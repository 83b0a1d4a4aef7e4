"""A fake broker's log of a partition: validates and stores batches, returns their records.

It uses the offsets of Kafka's documentation, not client_core.record, so that other code checks our client's
batches. Only the codecs are client_core.record's.
Bytes of a batch, version 2 of the format:

    int64 base offset, int32 length of all that follows, int32 leader epoch, int8 magic, uint32 CRC-32C of all
    that follows, int16 attributes, int32 last offset delta, int64 base timestamp, int64 max timestamp, int64
    producer id, int16 producer epoch, int32 base sequence, int32 count, records

`append` returns Kafka's error codes. Pure; guarded by the cluster's lock.
Source: UnifiedLog.append, LogValidator, ProducerStateManager, ProducerAppendInfo, Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import crc32c

from client_core.error_codes import Errors
from client_core.record.codecs import compression_for
from client_core.record.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from client_core.testing.controller import TopicConfig

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEHIND_LENGTH: Final = 12
_BEHIND_CRC: Final = 21
_MAGIC: Final = 2
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
#: Batches per producer that a broker remembers. Source: ProducerStateEntry.NUM_BATCHES_TO_RETAIN.
_BATCHES_TO_RETAIN: Final = 5
#: message.timestamp.after.max.ms, Kafka's default.
_AFTER_MAX_MS: Final = 3_600_000
_SEQUENCES: Final = 1 << 31


class StoredRecord(NamedTuple):
    """A record that was stored, usually acknowledged."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class StoredBatch(NamedTuple):
    """A batch's header, and its bytes as received."""

    base_offset: int
    attributes: int
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    data: bytes

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_MASK

    @property
    def last_sequence(self) -> int | None:
        if self.base_sequence is None:
            return None
        return (self.base_sequence + self.record_count - 1) % _SEQUENCES


class Appended(NamedTuple):
    """The result of an append; `base_offset` None when it was refused."""

    error: Errors
    base_offset: int | None = None
    log_append_time_ms: int | None = None
    message: str | None = None


class BadBatchError(Exception):
    """Invalid or damaged bytes of a batch; holds the broker's error code."""

    def __init__(self, error: Errors, message: str) -> None:
        self.error = error
        super().__init__(message)


class _ProducerState(NamedTuple):
    """The epoch of a producer and its last five batches, oldest first."""

    epoch: int
    batches: deque[StoredBatch]

    def duplicate_of(self, batch: StoredBatch) -> StoredBatch | None:
        if self.epoch != batch.producer_epoch:
            return None
        span = batch.base_sequence, batch.last_sequence
        return next((b for b in self.batches if (b.base_sequence, b.last_sequence) == span), None)

    def refuses(self, batch: StoredBatch) -> Errors | None:
        """Returns why the producer's epoch or sequence is invalid; None when it is valid."""
        assert batch.producer_epoch is not None
        if batch.producer_epoch < self.epoch:
            return Errors.INVALID_PRODUCER_EPOCH
        expected: int | None = 0
        if batch.producer_epoch == self.epoch:
            last = self.batches[-1].last_sequence
            expected = 0 if last is None else (last + 1) % _SEQUENCES
        return None if batch.base_sequence == expected else Errors.OUT_OF_ORDER_SEQUENCE_NUMBER


def read_batch(data: bytes | None) -> StoredBatch:
    """Decodes the bytes of exactly one batch. Otherwise raises BadBatchError with Kafka's code."""
    if not data:
        raise BadBatchError(
            Errors.INVALID_RECORD, "a produce request needs exactly one batch per partition; got none"
        )
    if len(data) < _HEADER.size:
        raise BadBatchError(Errors.CORRUPT_MESSAGE, f"{len(data)} bytes are no batch")
    header = _HEADER.unpack_from(data)
    _, length, _, magic, crc, attributes, last_offset_delta = header[:7]
    base_timestamp_ms, max_timestamp_ms, *producer, count = header[7:]
    if magic != _MAGIC:
        raise BadBatchError(Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"magic {magic}")
    end = _BEHIND_LENGTH + length
    if end > len(data) or end < _HEADER.size:
        raise BadBatchError(
            Errors.CORRUPT_MESSAGE, f"the batch declares {length} bytes, but {len(data)} were sent"
        )
    if crc32c.crc32c(data[_BEHIND_CRC:end]) != crc:
        raise BadBatchError(Errors.CORRUPT_MESSAGE, "the checksum does not match")
    if end != len(data):
        raise BadBatchError(
            Errors.INVALID_RECORD, "a produce request needs exactly one batch per partition; got more"
        )
    if count <= 0 or last_offset_delta != count - 1:
        raise BadBatchError(Errors.INVALID_RECORD, f"{count} records, last offset delta {last_offset_delta}")
    producer_id, epoch, sequence = producer if producer[0] >= 0 else (None, None, None)
    return StoredBatch(
        0, attributes, count, base_timestamp_ms, max_timestamp_ms, producer_id, epoch, sequence, data
    )


class PartitionLog:
    """The records of one partition, and the state of its producers."""

    def __init__(self, retain_bytes: int | None = None) -> None:
        """Drops the oldest batches beyond `retain_bytes`; None keeps all."""
        self.batches: deque[StoredBatch] = deque()
        self._retain_bytes = retain_bytes
        self._bytes = 0
        #: The offset of the next record.
        self.end_offset = 0
        self._producers: dict[int, _ProducerState] = {}

    @property
    def start_offset(self) -> int:
        """The offset of the first record that is kept."""
        return self.batches[0].base_offset if self.batches else self.end_offset

    def append(self, data: bytes | None, config: TopicConfig, wall_ms: int) -> Appended:
        """Validates and stores a batch; returns the reason if it refuses."""
        try:
            batch = read_batch(data)
        except BadBatchError as error:
            return Appended(error.error, message=str(error))
        if len(batch.data) > config.max_message_bytes:
            return Appended(Errors.MESSAGE_TOO_LARGE)
        if not config.log_append_time and batch.max_timestamp_ms > wall_ms + _AFTER_MAX_MS:
            return Appended(
                Errors.INVALID_TIMESTAMP, message=f"timestamp {batch.max_timestamp_ms} is in the future"
            )
        state = None if batch.producer_id is None else self._producers.get(batch.producer_id)
        if state is not None:  # an unknown producer may begin at any sequence: its past may have been deleted
            duplicate = state.duplicate_of(batch)
            if duplicate is not None:
                # The broker returns the old batch's last timestamp as the append time.
                return Appended(Errors.NONE, duplicate.base_offset, duplicate.max_timestamp_ms)
            refused = state.refuses(batch)
            if refused is not None:
                return Appended(refused)
        stamp = _LOG_APPEND_TIME if config.log_append_time else 0
        stored = batch._replace(base_offset=self.end_offset, attributes=batch.attributes | stamp)
        if config.log_append_time:
            stored = stored._replace(max_timestamp_ms=wall_ms)
        self._store(stored)
        return Appended(Errors.NONE, stored.base_offset, wall_ms if config.log_append_time else None)

    def _store(self, batch: StoredBatch) -> None:
        self._keep(batch)
        if batch.producer_id is None or batch.producer_epoch is None:
            return
        state = self._producers.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch:
            state = _ProducerState(batch.producer_epoch, deque(maxlen=_BATCHES_TO_RETAIN))
            self._producers[batch.producer_id] = state
        state.batches.append(batch)

    def _keep(self, batch: StoredBatch) -> None:
        self.batches.append(batch)
        self.end_offset = batch.base_offset + batch.record_count
        self._bytes += len(batch.data)
        while self._retain_bytes is not None and self._bytes > self._retain_bytes and len(self.batches) > 1:
            self._bytes -= len(self.batches.popleft().data)

    def forget_batches(self) -> None:
        """Drops all batches; offsets continue."""
        self.batches.clear()
        self._bytes = 0

    def restore(self, batches: Iterable[StoredBatch]) -> None:
        """Adds batches of an earlier log, with their offsets, but not their producers."""
        for batch in batches:
            self._keep(batch)

    def replicate(self, batches: Iterable[StoredBatch]) -> None:
        """Adds batches of the leader's log behind the end, as a follower does, with their producers."""
        for batch in batches:
            self._store(batch)

    def truncate(self, end_offset: int) -> None:
        """Drops the batches from an offset on; of each producer it knows what is left of the last five."""
        while self.batches and self.batches[-1].base_offset >= end_offset:
            self._bytes -= len(self.batches.pop().data)
        self.end_offset = min(self.end_offset, end_offset)
        kept, self.batches, self._bytes = self.batches, deque(), 0
        self._producers.clear()
        self.replicate(kept)

    def forget_producers(self) -> None:
        """Drops all producer state, as a broker does after producer.id.expiration.ms."""
        self._producers.clear()

    def recover_producers(self) -> None:
        """Keeps only each producer's last batch, like a killed broker's snapshot."""
        for state in self._producers.values():
            while len(state.batches) > 1:
                state.batches.popleft()

    def records(self, partition: int) -> Sequence[StoredRecord]:
        """Returns every stored record, decoded."""
        return [record for batch in self.batches for record in records_of(batch, partition)]


def records_of(batch: StoredBatch, partition: int = 0) -> Sequence[StoredRecord]:
    """Returns the records of a batch. Raises CorruptRecordError when its codec can't unpack it."""
    body = compression_for(Codec.of(batch.codec)).decompress(batch.data[_HEADER.size :])
    cursor = _Cursor(body)
    records: list[StoredRecord] = []
    for _ in range(batch.record_count):
        end = cursor.varint() + cursor.at
        cursor.at += 1  # attributes, unused
        timestamp_ms = batch.base_timestamp_ms + cursor.varint()
        if batch.attributes & _LOG_APPEND_TIME:
            timestamp_ms = batch.max_timestamp_ms
        offset = batch.base_offset + cursor.varint()
        key, value = cursor.nullable_bytes(), cursor.nullable_bytes()
        headers = tuple(
            ((cursor.nullable_bytes() or b"").decode(), cursor.nullable_bytes())
            for _ in range(cursor.varint())
        )
        if cursor.at != end:
            raise BadBatchError(Errors.INVALID_RECORD, f"a record ends at {cursor.at}, it said {end}")
        records.append(StoredRecord(partition, offset, timestamp_ms, key, value, headers))
    if cursor.at != len(body):
        raise BadBatchError(Errors.INVALID_RECORD, "bytes behind the last record")
    return records


class _Cursor:
    """Reads the zig-zag varints and byte strings of a record."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        shifted = value = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shifted
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shifted += 7

    def nullable_bytes(self) -> bytes | None:
        length = self.varint()
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length : self.at]
