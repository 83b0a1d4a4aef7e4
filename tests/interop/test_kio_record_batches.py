"""kio reads our record batches, and we read kio's: keys, values and headers that may be null, sequences.

kio knows no compression and keeps a record's time to the second. Times here are whole seconds, so that they
can be compared exactly. Compressed batches are tested with brokers and consumers, in tests/kafka/.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, RecordHeader
from kio.records.schema import Record as KioRecord
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from client_core.producer.results.producer_record import ProducerRecord
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_batch import decode_record_batch

_BYTES: Final = st.none() | st.binary(max_size=70)
_NAMES: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_SECONDS: Final = st.integers(0, 4_000_000_000)
_RECORDS: Final = st.lists(
    st.builds(
        ProducerRecord,
        topic=st.just("orders"),
        value=_BYTES,
        key=_BYTES,
        headers=st.lists(st.tuples(_NAMES, _BYTES), max_size=3).map(tuple),
        timestamp_ms=_SECONDS.map(lambda second: second * 1_000),
    ),
    min_size=1,
    max_size=6,
)
_PRODUCERS: Final = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))


@settings(max_examples=40)
@given(records=_RECORDS, producer=_PRODUCERS)
def test_kio_reads_the_batches_that_we_write(
    records: list[ProducerRecord], producer: tuple[int, int, int]
) -> None:
    builder = MemoryRecordsBuilder(write_limit_bytes=1 << 20)
    assert builder.append_many(records, range(len(records)), 0, 0) == len(records)
    builder.set_producer_state(*producer)
    written = builder.build()

    batch, size = read_batch(written, 0)

    assert size == len(written)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert batch.last_offset_delta == len(records) - 1
    assert batch.max_timestamp == max(r.timestamp_ms or 0 for r in records)
    assert [
        (
            r.offset,
            r.key,
            r.value,
            tuple(((header.key or b"").decode(), header.value) for header in r.headers),
            round(r.timestamp.timestamp()) * 1_000,
        )
        for r in batch.records
    ] == [(n, r.key, r.value, r.headers, r.timestamp_ms) for n, r in enumerate(records)]


@settings(max_examples=40)
@given(records=_RECORDS, producer=_PRODUCERS)
def test_we_read_the_batches_that_kio_writes(
    records: list[ProducerRecord], producer: tuple[int, int, int]
) -> None:
    producer_id, epoch, sequence = producer
    buffer = io.BytesIO()
    write_new_batch(
        buffer,
        NewRecordBatch(
            producer_id=i64(producer_id),
            producer_epoch=i16(epoch),
            base_sequence=i32(sequence),
            attributes=i16(0),
            records=tuple(_as_kios(offset, record) for offset, record in enumerate(records)),
        ),
    )

    batch = decode_record_batch(buffer.getvalue())

    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert [(r.offset, r.key, r.value, r.headers, r.timestamp_ms) for r in batch.records()] == [
        (n, r.key, r.value, r.headers, r.timestamp_ms) for n, r in enumerate(records)
    ]


def _as_kios(offset: int, record: ProducerRecord) -> KioRecord:
    time = datetime.fromtimestamp((record.timestamp_ms or 0) / 1_000, UTC)
    return KioRecord(
        attributes=i8(0),
        timestamp=TZAwareMicros.parse(time),
        offset=i64(offset),
        key=record.key,
        value=record.value,
        headers=tuple(RecordHeader(key=name.encode(), value=value) for name, value in record.headers),
    )
