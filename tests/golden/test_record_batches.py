"""Java's record batches: ours must be the same bytes without compression, and decode to the same records.

With compression the bytes may differ, so ours are decoded by aiokafka, too, whose framing and records are its
own (and whose raw codecs are cramjam's, as ours are; real consumers are
`tests/kafka/test_interop_consumers.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c

from client_core.errors import CorruptRecordError
from client_core.record.memory_records_builder import estimate_size_in_bytes_upper_bound
from client_core.record.record_batch import CRC_SPAN_OFFSET, HEADER_SIZE, RecordBatch, decode_record_batch
from tests.golden.adapters_producer import builder_for, bytes_or_none, headers_of, records_of, value_of

if TYPE_CHECKING:
    from tests.golden.conftest import Cases

_NO_TIMESTAMP = -1


def _head(batch: RecordBatch) -> dict[str, Any]:
    """The head in the golden file's words."""

    def wire(value: int | None) -> int:
        return -1 if value is None else value

    return {
        "compression": batch.codec.config_name,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "partition_leader_epoch": wire(batch.partition_leader_epoch),
        "timestamp_type": "LOG_APPEND_TIME" if batch.is_log_append_time else "CREATE_TIME",
        "base_timestamp": batch.base_timestamp_ms,
        "max_timestamp": batch.max_timestamp_ms,
        "producer_id": wire(batch.producer_id),
        "producer_epoch": wire(batch.producer_epoch),
        "base_sequence": wire(batch.base_sequence),
        "last_sequence": wire(batch.last_sequence),
        "is_transactional": batch.is_transactional,
        "count": batch.record_count,
        "attributes": batch.attributes,
        "crc": batch.crc,
        "size": batch.size_bytes,
    }


def _reported(batch: RecordBatch) -> list[tuple[object, ...]]:
    """Offset, timestamp, key, value and headers of each record."""
    return [
        (r.offset, _NO_TIMESTAMP if r.timestamp_ms is None else r.timestamp_ms, r.key, r.value, r.headers)
        for r in batch.records()
    ]


def _expected(case: dict[str, Any]) -> list[tuple[object, ...]]:
    appended = case["max_timestamp"] if case["timestamp_type"] == "LOG_APPEND_TIME" else None
    return [
        (
            record["offset"],
            record["timestamp"] if appended is None else appended,
            bytes_or_none(record["key"]),
            value_of(record),
            headers_of(record),
        )
        for record in case["records"]
    ]


def _repacked(case: dict[str, Any]) -> bytes:
    """The case's records in a batch of ours, with the case's codec."""
    records, builder = records_of(case), builder_for(case)
    assert builder.append_many(records, range(len(records)), 0, 0) == len(records)
    return builder.build()


def _by_aiokafka(batch: bytes) -> list[tuple[object, ...]]:
    read = MemoryRecords(batch).next_batch()
    assert read is not None
    assert read.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in read]


def _is_compressed(case: dict[str, Any]) -> bool:
    return bool(case["compression"] != "none")


@pytest.mark.golden("record_batches.json")
def test_the_head_of_a_batch_of_any_codec_is_read(cases: Cases) -> None:
    for case in cases:
        head = _head(decode_record_batch(bytes.fromhex(case["batch"])))
        assert head == {name: case[name] for name in head}


@pytest.mark.golden("record_batches.json")
def test_the_records_of_a_batch_of_any_codec_are_javas(cases: Cases) -> None:
    for case in cases:
        assert _reported(decode_record_batch(bytes.fromhex(case["batch"]))) == _expected(case)


@pytest.mark.golden("record_batches.json")
def test_a_batch_without_compression_is_javas_byte_for_byte(cases: Cases) -> None:
    for case in cases:
        if _is_compressed(case) or case["timestamp_type"] == "LOG_APPEND_TIME":
            assert case["attributes"] & 0b1111  # a codec, or a timestamp that no producer writes
            continue
        records = records_of(case)
        at_once, one_by_one = builder_for(case), builder_for(case)
        assert at_once.append_many(records, range(len(records)), 0, 0) == len(records)
        for record in records:
            assert one_by_one.append_many([record], (0,), 0, 0) == 1
        assert at_once.build().hex() == case["batch"]
        assert one_by_one.build().hex() == case["batch"]


@pytest.mark.golden("record_batches.json")
def test_a_compressed_batch_of_ours_says_what_javas_does(cases: Cases) -> None:
    """Codecs may pack differently, so the bytes may differ from Java's. The unpacked bytes must not."""
    for case in cases:
        if not _is_compressed(case) or case["timestamp_type"] == "LOG_APPEND_TIME":
            continue
        ours = _repacked(case)
        head = _head(decode_record_batch(ours))
        assert head | {"crc": 0, "size": 0} == {name: case[name] for name in head} | {"crc": 0, "size": 0}
        assert _reported(decode_record_batch(ours)) == _expected(case)


@pytest.mark.golden("record_batches.json")
def test_another_client_reads_a_batch_of_ours_as_it_reads_javas(cases: Cases) -> None:
    for case in cases:
        if case["timestamp_type"] == "LOG_APPEND_TIME":
            continue
        theirs = _by_aiokafka(bytes.fromhex(case["batch"]))
        assert _by_aiokafka(_repacked(case)) == theirs
        assert len(theirs) == case["count"]


@pytest.mark.golden("record_batches.json")
def test_a_batch_that_is_cut_off_anywhere_is_refused(cases: Cases) -> None:
    for case in cases:
        batch = bytes.fromhex(case["batch"])
        for length in range(0, len(batch), 1 + len(batch) // 100):
            with pytest.raises(CorruptRecordError):
                decode_record_batch(batch[:length])


@pytest.mark.golden("record_batches.json")
def test_a_flipped_bit_under_the_checksum_is_found(cases: Cases) -> None:
    for case in cases:
        batch = bytes.fromhex(case["batch"])
        for at in range(CRC_SPAN_OFFSET, len(batch), 1 + len(batch) // 100):
            damaged = batch[:at] + bytes([batch[at] ^ 0x10]) + batch[at + 1 :]
            with pytest.raises(CorruptRecordError, match="Record is corrupt"):
                decode_record_batch(damaged)


@pytest.mark.golden("record_batches.json")
def test_damage_that_the_checksum_covers_up_does_no_more_than_a_corrupt_record_error(
    cases: Cases,
) -> None:
    for case in cases:
        batch = bytes.fromhex(case["batch"])
        refused = 0
        for at in range(HEADER_SIZE, len(batch), 1 + len(batch) // 100):
            damaged = bytearray(batch)
            damaged[at] ^= 0x10
            damaged[17:21] = crc32c(bytes(damaged[CRC_SPAN_OFFSET:])).to_bytes(4, "big")
            try:
                assert len(decode_record_batch(bytes(damaged)).records(1_000_000)) == case["count"]
            except CorruptRecordError:
                refused += 1
        assert refused or not _is_compressed(case)


@pytest.mark.golden("record_batches.json")
def test_a_records_size_is_estimated_as_in_java(cases: Cases) -> None:
    for case in cases:
        for record in case["records"]:
            estimate = estimate_size_in_bytes_upper_bound(
                bytes_or_none(record["key"]), value_of(record), headers_of(record)
            )
            assert estimate == record["estimated_size_upper_bound"]


@pytest.mark.golden("record_batches_damaged.json")
def test_a_damaged_batch_is_refused_in_javas_words(cases: Cases) -> None:
    for case in cases:
        data = bytes.fromhex(case["batch"])
        if case["valid"]:
            assert decode_record_batch(data).records()
            continue
        with pytest.raises(CorruptRecordError) as refused:
            decode_record_batch(data)
        assert refused.value.message == case["java_message"]
