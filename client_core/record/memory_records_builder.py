"""Builds one v2 record batch: records are appended, bytes are built once.

A record is encoded when it is appended, as a few pieces from tables (`varint.py`). `build` joins all pieces,
compresses them if there is a codec, and computes the one checksum. Room is checked by exact sizes before a
record is accepted (REC-05). Producer id and sequence are known only at the drain. They are set late, and may
be set again after an epoch bump without encoding records again.

Not thread-safe: guarded by the partition's lock, and owned by the I/O thread once drained. Source:
MemoryRecordsBuilder, DefaultRecord, AbstractRecords, Kafka 4.3.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from client_core.errors import IllegalArgumentError, IllegalStateError
from client_core.record.compression import NO_COMPRESSION, Codec
from client_core.record.record_batch import (
    CHECKED_HEAD,
    HEAD,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
)
from client_core.record.record_content import NULL, TimestampRuns, content_pieces, size_of_content
from client_core.record.varint import (
    LENGTH_AND_ATTRIBUTES,
    NULL_KEY_AND_LENGTH,
    TABLE_SIZE,
    VARINT,
    encode_varint,
    read_varint,
    size_of_varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from client_core.record.compression import Compression
    from client_core.record.record_content import Appendable, RecordHeaders

#: The most bytes of a record's length, attributes, timestamp delta and offset delta. Source: DefaultRecord.
MAX_RECORD_OVERHEAD: Final = 21
#: Length, attributes, timestamp delta, offset delta, null key, null value, no headers.
MIN_RECORD_SIZE: Final = 7
#: Safety factor of an estimate of packed bytes. Source: MemoryRecordsBuilder.
COMPRESSION_RATE_ESTIMATION_FACTOR: Final = 1.05
#: Lower limit of the estimated ratio. Java packs a record when it is appended; here records wait unpacked,
#: and this limits their memory to ten times their share of buffer.memory.
LEAST_COMPRESSION_RATIO: Final = 0.1

_ZERO: Final = b"\x00"  # varint(0): no headers, or the first timestamp's delta
_ATTRIBUTES: Final = b"\x00"  # no record attribute is in use
#: MAX_RECORD_OVERHEAD plus the lengths of key and value and the number of headers.
_MOST_BESIDE_KEY_AND_VALUE: Final = MAX_RECORD_OVERHEAD + 5 + 5 + 1
#: The indices of a single record.
ONLY_RECORD: Final = (0,)
#: append_many stops only when there is no room.
NO_LIMIT: Final = (1 << 63) - 1


class MemoryRecordsBuilder:
    """One record batch being built."""

    __slots__ = (
        "_aborted",
        "_base_offset",
        "_base_timestamp_ms",
        "_built",
        "_estimation_factor",
        "_flags",
        "_last_timestamp_ms",
        "_max_timestamp_ms",
        "_packed",
        "_partition_leader_epoch",
        "_payload_bytes",
        "_pieces",
        "_timestamp_delta",
        "base_sequence",
        "compression",
        "is_closed_for_appends",
        "producer_epoch",
        "producer_id",
        "record_count",
        "timestamps",
        "write_limit_bytes",
    )

    def __init__(
        self,
        write_limit_bytes: int,
        *,
        compression: Compression = NO_COMPRESSION,
        estimated_compression_ratio: float = 1.0,
        base_offset: int = 0,
        partition_leader_epoch: int | None = None,
        is_transactional: bool = False,
    ) -> None:
        """`write_limit_bytes` limits the batch, header included, from its second record on."""
        self.write_limit_bytes = write_limit_bytes
        self.record_count = 0
        self.producer_id: int | None = None
        self.producer_epoch: int | None = None
        self.base_sequence: int | None = None
        self.timestamps = TimestampRuns()
        self.compression = compression
        self._estimation_factor = (
            None
            if compression.codec is Codec.NONE
            else max(estimated_compression_ratio, LEAST_COMPRESSION_RATIO)
            * COMPRESSION_RATE_ESTIMATION_FACTOR
        )
        self._base_offset = base_offset
        self._partition_leader_epoch = partition_leader_epoch
        self._flags = TRANSACTIONAL_FLAG if is_transactional else 0
        self._pieces: list[bytes] = []
        self._payload_bytes = 0
        self._base_timestamp_ms = self._max_timestamp_ms = NO_TIMESTAMP
        self._last_timestamp_ms: int | None = None
        self._timestamp_delta = b""
        self._packed: bytes | None = None  # the packed records of a reopened batch
        self._built: bytes | None = None
        self.is_closed_for_appends = False
        self._aborted = False

    # -- sizes ---------------------------------------------------------------------------------------------

    @property
    def estimated_size_bytes(self) -> int:
        """The batch's size on the wire: exact without compression and once it is built."""
        if self._built is not None:
            return len(self._built)
        if self._estimation_factor is None:
            return HEADER_SIZE + self._payload_bytes
        return HEADER_SIZE + int(self._payload_bytes * self._estimation_factor)

    @property
    def is_full(self) -> bool:
        """Whether no further record fits or is allowed. The first record always fits (REC-05)."""
        return self.is_closed_for_appends or (
            self.record_count > 0 and self.estimated_size_bytes >= self.write_limit_bytes
        )

    @property
    def is_built(self) -> bool:
        """Whether the bytes are built; Java calls it closed."""
        return self._built is not None

    @property
    def uncompressed_size_bytes(self) -> int:
        """The batch's size on the wire without compression."""
        return HEADER_SIZE + self._payload_bytes

    @property
    def compression_ratio(self) -> float:
        """Packed size over plain size of the records; 1 before the batch is built."""
        if self._built is None or not self._payload_bytes:
            return 1.0
        return (len(self._built) - HEADER_SIZE) / self._payload_bytes

    # -- records -------------------------------------------------------------------------------------------

    def append_many(
        self,
        records: Sequence[Appendable],
        indices: Sequence[int],
        first: int,
        timestamp_ms: int,
        stop_at_bytes: int = NO_LIMIT,
    ) -> int:
        """Appends the records at indices[first:], in order, while there is room; returns their number.

        `timestamp_ms` is for records without a timestamp. The record that brings the batch to `stop_at_bytes`
        is the last one. If a record can't be encoded, this raises, and no record of the call is appended.
        This is the hot path: work per call is preferred to work per record.
        """
        if self.is_closed_for_appends:
            return 0
        room = len(indices)
        if self._estimation_factor is None:
            room = 1 + max(0, self.write_limit_bytes - HEADER_SIZE - self._payload_bytes) // MIN_RECORD_SIZE
        taken_before, bytes_before = self.record_count, self._payload_bytes
        try:
            self._take(records, indices[first : first + room], timestamp_ms, stop_at_bytes)
        except BaseException:  # KeyboardInterrupt, too
            self._return_to(taken_before, bytes_before)
            raise
        return self.record_count - taken_before

    def append_where_more_fits(
        self, record: Appendable, key_and_value_bytes: int, timestamp_ms: int
    ) -> int | None:
        """Appends a record with a value and no headers if more would fit after it; returns its bytes.

        They are the growth of `estimated_size_bytes`: 0 for a tiny record that packs well. A record close to
        the limit is refused by None; `append_many` then checks exactly. A test verifies that both append the
        same pieces.
        """
        before, factor = self._payload_bytes, self._estimation_factor
        most_added = key_and_value_bytes + _MOST_BESIDE_KEY_AND_VALUE
        limit = self.write_limit_bytes - HEADER_SIZE
        if factor is None:
            is_near = before + most_added >= limit
        else:  # the batch's size is estimated; the record counts unpacked until it is in it (REC-05)
            is_near = (before + most_added) * factor >= limit or before * factor + most_added > limit
        if self.is_closed_for_appends or is_near:
            return None
        count, key, value = self.record_count, record.key, record.value
        assert value is not None
        try:
            if timestamp_ms != self._last_timestamp_ms:
                self._begin_timestamp(timestamp_ms, count)
            timestamp_delta = self._timestamp_delta
            offset_delta = VARINT[count] if count < TABLE_SIZE else encode_varint(count)
            size = len(value)
            if key is None:
                lead = NULL_KEY_AND_LENGTH[size] if size < TABLE_SIZE else NULL + encode_varint(size)
                body = 2 + len(timestamp_delta) + len(offset_delta) + len(lead) + size
                head = LENGTH_AND_ATTRIBUTES[body] if body < TABLE_SIZE else encode_varint(body) + _ATTRIBUTES
                self._pieces += (head, timestamp_delta, offset_delta, lead, value, _ZERO)
            else:
                key_size = len(key)
                lead = VARINT[key_size] if key_size < TABLE_SIZE else encode_varint(key_size)
                length = VARINT[size] if size < TABLE_SIZE else encode_varint(size)
                body = (
                    2 + len(timestamp_delta) + len(offset_delta) + len(lead) + key_size + len(length) + size
                )
                head = LENGTH_AND_ATTRIBUTES[body] if body < TABLE_SIZE else encode_varint(body) + _ATTRIBUTES
                self._pieces += (head, timestamp_delta, offset_delta, lead, key, length, value, _ZERO)
            self.record_count = count + 1
            self._payload_bytes = after = before + len(head) - 1 + body
            return after - before if factor is None else int(after * factor) - int(before * factor)
        except BaseException:  # KeyboardInterrupt, too
            self._return_to(count, before)
            raise

    def _take(
        self,
        records: Sequence[Appendable],
        indices: Sequence[int],
        default_timestamp_ms: int,
        stop_at_bytes: int,
    ) -> None:
        pieces, factor = self._pieces, self._estimation_factor
        limit, stop_at = self.write_limit_bytes - HEADER_SIZE, stop_at_bytes - HEADER_SIZE
        count, written = self.record_count, self._payload_bytes
        estimated = written if factor is None else int(written * factor)
        last_timestamp, timestamp_delta = self._last_timestamp_ms, self._timestamp_delta
        content: tuple[bytes, ...] | None
        lead = plain = b""
        for index in indices:
            record = records[index]
            value, headers, timestamp = record.value, record.headers, record.timestamp_ms
            if timestamp is None:
                timestamp = default_timestamp_ms
            if timestamp != last_timestamp:
                timestamp_delta = encode_varint(timestamp - self._base_timestamp_ms) if count else _ZERO
            offset_delta = VARINT[count] if count < TABLE_SIZE else encode_varint(count)
            key = record.key
            if headers or value is None:
                content = content_pieces(key, value, headers)
                content_size = sum(map(len, content))
            elif key is None:
                size = len(value)
                lead = NULL_KEY_AND_LENGTH[size] if size < TABLE_SIZE else NULL + encode_varint(size)
                content, plain = None, value  # appended below in one step: the most common case
                content_size = len(lead) + size + 1
            else:
                size, key_size = len(value), len(key)
                key_length = VARINT[key_size] if key_size < TABLE_SIZE else encode_varint(key_size)
                length = VARINT[size] if size < TABLE_SIZE else encode_varint(size)
                content = (key_length, key, length, value, _ZERO)
                content_size = len(key_length) + key_size + len(length) + size + 1
            body = 1 + len(timestamp_delta) + len(offset_delta) + content_size
            head = LENGTH_AND_ATTRIBUTES[body] if body < TABLE_SIZE else encode_varint(body) + _ATTRIBUTES
            record_size = len(head) - 1 + body
            if factor is None:
                estimated = written + record_size
                if estimated > limit and count:
                    break
            elif count and estimated + record_size > limit:
                break
            if timestamp != last_timestamp:
                self._begin_timestamp(timestamp, count)
                last_timestamp = timestamp
            if content is None:
                pieces += (head, timestamp_delta, offset_delta, lead, plain, _ZERO)
            else:
                pieces += (head, timestamp_delta, offset_delta)
                pieces += content
            written += record_size
            if factor is not None:
                estimated = int(written * factor)
            count += 1
            if estimated >= stop_at:
                break
        self.record_count, self._payload_bytes = count, written

    def copy_to(self, target: MemoryRecordsBuilder, kept: Iterable[range]) -> None:
        """Appends the records at these positions to another builder, without a check for room.

        The ranges ascend. Key, value and headers are copied encoded; length, timestamp delta and offset delta
        before them are new. Only before this batch is built.
        """
        if self._built is not None or self._packed is not None:
            raise IllegalStateError("The records of a built batch are packed and can't be copied.")
        payload = b"".join(self._pieces)
        at = position = 0
        for positions in kept:
            for _ in range(position, positions.start):
                size = payload[at]
                if size < 0x80:  # nearly all lengths take one or two bytes
                    at += (size >> 1) + 1
                else:
                    size, at = read_varint(payload, at)
                    at += size
            position = positions.stop
            for start, stop, timestamp_ms in self.timestamps.between(positions.start, positions.stop):
                old_delta_bytes = size_of_varint(timestamp_ms - self._base_timestamp_ms)
                at = target._copy_run(payload, at, range(start, stop), timestamp_ms, old_delta_bytes)

    def _copy_run(
        self, payload: bytes, at: int, positions: range, timestamp_ms: int, old_delta_bytes: int
    ) -> int:
        """Copies records of one timestamp, beginning at byte `at`; returns the offset after them."""
        if timestamp_ms != self._last_timestamp_ms:
            self._begin_timestamp(timestamp_ms, self.record_count)
        pieces, delta, count, written = self._pieces, self._timestamp_delta, self.record_count, 0
        for position in positions:
            size = payload[at]
            if size < 0x80:
                at += 1
                end = at + (size >> 1)
            else:
                size, at = read_varint(payload, at)
                end = at + size
            offset_bytes = len(VARINT[position]) if position < TABLE_SIZE else size_of_varint(position)
            content = payload[at + 1 + old_delta_bytes + offset_bytes : end]
            offset_delta = VARINT[count] if count < TABLE_SIZE else encode_varint(count)
            body = 1 + len(delta) + len(offset_delta) + len(content)
            head = LENGTH_AND_ATTRIBUTES[body] if body < TABLE_SIZE else encode_varint(body) + _ATTRIBUTES
            pieces += (head, delta, offset_delta, content)
            written += len(head) - 1 + body
            count += 1
            at = end
        self.record_count, self._payload_bytes = count, self._payload_bytes + written
        return at

    def _begin_timestamp(self, timestamp_ms: int, position: int) -> None:
        """Sets the timestamp of records from this position on, as a delta to the first one's (REC-02)."""
        if timestamp_ms < NO_TIMESTAMP:
            raise IllegalArgumentError(f"Invalid negative timestamp {timestamp_ms}")
        if position == 0:
            self._base_timestamp_ms = self._max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
        self._last_timestamp_ms = timestamp_ms
        self._timestamp_delta = encode_varint(timestamp_ms - self._base_timestamp_ms)
        self.timestamps.begin(position, timestamp_ms)

    def _return_to(self, record_count: int, payload_bytes: int) -> None:
        """Removes the records behind the first ones, wherever their append was interrupted."""
        self.record_count, self._payload_bytes = record_count, payload_bytes
        ends = tuple(accumulate(map(len, self._pieces)))
        del self._pieces[bisect_right(ends, payload_bytes) :]
        runs = self.timestamps
        self.timestamps, self._last_timestamp_ms = TimestampRuns(), None
        for start, timestamp_ms in runs.before(record_count):
            self._begin_timestamp(timestamp_ms, start)

    # -- the bytes -----------------------------------------------------------------------------------------

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Sets the batch's producer and its first sequence number (IDM-02). Only before it is built."""
        if self._built is not None:
            raise IllegalStateError(
                "Trying to set producer state of an already closed batch. This indicates a bug on the client."
            )
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence

    def reopen_and_rewrite_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        """Sets a built batch's producer state again, after an epoch bump (IDM-04); records stay."""
        if self._aborted:
            raise IllegalStateError("Should not reopen a batch which is already aborted.")
        if self._built is not None:
            self._packed, self._built = self._built[HEADER_SIZE:], None
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence

    def close_for_record_appends(self) -> None:
        """Ends appends; the producer state may still be set."""
        self.is_closed_for_appends = True

    def abort(self) -> None:
        """Drops the batch's records; it can't be built afterwards. Idempotent."""
        self.is_closed_for_appends = self._aborted = True
        self._pieces = []

    def build(self) -> bytes:
        """Returns the batch's bytes; empty without records. Idempotent; closes it for appends."""
        if self._built is None:
            if self._aborted:
                raise IllegalStateError("Attempting to build an aborted record batch")
            self._validate_producer_state()
            self.is_closed_for_appends = True
            self._built = self._make_batch() if self.record_count else b""
            self._pieces, self._packed = [], None
        return self._built

    def _validate_producer_state(self) -> None:
        if self.producer_id is None:
            return
        if self.producer_epoch is None or self.producer_epoch < 0:
            raise IllegalArgumentError("Invalid negative producer epoch")
        if self.base_sequence is None or self.base_sequence < 0:
            raise IllegalArgumentError("Invalid negative sequence number used")

    def _make_batch(self) -> bytes:
        payload = self._packed
        if payload is None:
            payload = self.compression.compress(b"".join(self._pieces))
        checked_head = CHECKED_HEAD.pack(
            self.compression.codec.id | self._flags,
            self.record_count - 1,
            self._base_timestamp_ms,
            self._max_timestamp_ms,
            NO_PRODUCER_ID if self.producer_id is None else self.producer_id,
            NO_PRODUCER_EPOCH if self.producer_epoch is None else self.producer_epoch,
            NO_SEQUENCE if self.base_sequence is None else self.base_sequence,
            self.record_count,
        )
        head = HEAD.pack(
            self._base_offset,
            HEADER_SIZE - LOG_OVERHEAD + len(payload),
            NO_PARTITION_LEADER_EPOCH
            if self._partition_leader_epoch is None
            else self._partition_leader_epoch,
            MAGIC,
            crc32c(payload, crc32c(checked_head)),
        )
        return b"".join((head, checked_head, payload))


def estimate_size_in_bytes_upper_bound(
    key: bytes | None, value: bytes | None, headers: RecordHeaders = ()
) -> int:
    """Returns the maximum size of a batch of this one record, which the limits are checked against.

    Source: AbstractRecords.estimateSizeInBytesUpperBound.
    """
    return HEADER_SIZE + MAX_RECORD_OVERHEAD + size_of_content(key, value, headers)
