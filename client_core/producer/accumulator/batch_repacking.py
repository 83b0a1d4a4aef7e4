"""Rebuilds batches: splits one that is too large, or removes cancelled records.

Records are encoded when they are appended. To remove cancelled records, the others are copied; only the bytes
before each record's key change. To split a batch, it is built, decoded and appended anew. A part takes the
sequence of its first record. Each owner's span is cut at the same records.

Pure. Only ProducerBatch calls this, on its thread and under its lock. Source: ProducerBatch.split,
createBatchOffAccumulatorForRecord, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client_core.producer.results.batch_outcome import spans_between
from client_core.record.memory_records_builder import estimate_size_in_bytes_upper_bound
from client_core.record.record_batch import NO_TIMESTAMP, decode_record_batch, increment_sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.producer.results.batch_outcome import Span
    from client_core.record.memory_records_builder import MemoryRecordsBuilder
    from client_core.record.record_batch import Record

    #: Makes the builder of a batch with room for so many bytes.
    NewBuilder = Callable[[int], MemoryRecordsBuilder]


class Packed(NamedTuple):
    """Records in a builder, and whose they are."""

    builder: MemoryRecordsBuilder
    spans: list[Span]


def repacked(packed: Packed, new_builder: NewBuilder) -> Packed:
    """Returns the records that a span names, without the others. The old builder is unusable afterwards."""
    old = packed.builder
    builder = new_builder(old.write_limit_bytes)
    was_closed = old.is_closed_for_appends
    old.copy_to(builder, (range(start, start + len(indices)) for _, indices, start in packed.spans))
    spans: list[Span] = []
    position = 0
    for owner, indices, _ in packed.spans:
        spans.append((owner, indices, position))
        position += len(indices)
    if was_closed:
        builder.close_for_record_appends()
    return Packed(builder, spans)


def in_parts(packed: Packed, part_bytes: int, new_builder: NewBuilder) -> list[Packed]:
    """Returns the same records in order, in builders of at most that size that are closed for appends.

    A record larger than that has a part for itself, and no part holds more than half of the records: Java's
    first split of a batch that is not larger than batch.size gives the same batch again.
    """
    records = _decode(packed.builder)
    most = (len(records) + 1) // 2
    parts: list[Packed] = []
    first = 0
    while first < len(records):
        builder = new_builder(max(_alone_bytes(records[first]), part_bytes))
        indices = range(first, min(first + most, len(records)))
        count = builder.append_many(records, indices, 0, NO_TIMESTAMP)
        builder.close_for_record_appends()
        _pass_sequence_on(packed.builder, builder, first)
        parts.append(Packed(builder, spans_between(packed.spans, first, first + count)))
        first += count
    return parts


def largest_record_bytes(builder: MemoryRecordsBuilder) -> int:
    """Returns the upper bound of its largest record, as a batch of its own."""
    return max(_alone_bytes(record) for record in _decode(builder))


def _alone_bytes(record: Record) -> int:
    return estimate_size_in_bytes_upper_bound(record.key, record.value, record.headers)


def _pass_sequence_on(whole: MemoryRecordsBuilder, part: MemoryRecordsBuilder, first: int) -> None:
    producer_id, epoch, base_sequence = whole.producer_id, whole.producer_epoch, whole.base_sequence
    if producer_id is not None and epoch is not None and base_sequence is not None:
        part.set_producer_state(producer_id, epoch, increment_sequence(base_sequence, first))


def _decode(builder: MemoryRecordsBuilder) -> Sequence[Record]:
    built = builder.build()
    return decode_record_batch(built).records(builder.uncompressed_size_bytes) if built else ()
