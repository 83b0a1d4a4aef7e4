"""Java's record batches: ours must be the same bytes, and decode to the same records.

Covered: every batch without compression, both ways. Of batches with gzip, snappy, lz4 and zstd only the head,
and that their records are refused by name: the codecs are not there yet.
"""

from __future__ import annotations

from typing import Any

import pytest

from client_core.errors import CorruptRecordError, UnsupportedCompressionTypeError
from client_core.record.compression import Codec
from client_core.record.memory_records_builder import estimate_size_in_bytes_upper_bound
from client_core.record.record_batch import RecordBatch, decode_record_batch
from tests.golden.adapters_producer import builder_for, bytes_or_none, headers_of, records_of, value_of

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


def _is_compressed(case: dict[str, Any]) -> bool:
    return bool(case["compression"] != "none")


@pytest.mark.golden("record_batches.json")
def test_the_head_of_a_batch_of_any_codec_is_read(case: dict[str, Any]) -> None:
    head = _head(decode_record_batch(bytes.fromhex(case["batch"])))
    assert head == {name: case[name] for name in head}


@pytest.mark.golden("record_batches.json")
def test_the_records_of_a_batch_without_compression_are_javas(case: dict[str, Any]) -> None:
    batch = decode_record_batch(bytes.fromhex(case["batch"]))
    if _is_compressed(case):
        with pytest.raises(UnsupportedCompressionTypeError, match=case["compression"]):
            batch.records()
        return
    for record, expected in zip(batch.records(), case["records"], strict=True):
        written = case["max_timestamp"] if batch.is_log_append_time else expected["timestamp"]
        timestamp = _NO_TIMESTAMP if record.timestamp_ms is None else record.timestamp_ms
        assert (record.offset, timestamp) == (expected["offset"], written)
        assert (record.key, record.value) == (bytes_or_none(expected["key"]), value_of(expected))
        assert record.headers == headers_of(expected)


@pytest.mark.golden("record_batches.json")
def test_a_batch_without_compression_is_javas_byte_for_byte(case: dict[str, Any]) -> None:
    if _is_compressed(case) or case["timestamp_type"] == "LOG_APPEND_TIME":
        assert case["attributes"] & (Codec.ZSTD.id | 0b1011)  # no producer of ours writes these (yet)
        return
    records = records_of(case)
    at_once, one_by_one = builder_for(case), builder_for(case)
    assert at_once.append_many(records, range(len(records)), 0, 0) == len(records)
    for record in records:
        one_by_one.append(record.timestamp_ms or 0, record.key, record.value, record.headers)
    assert at_once.build().hex() == case["batch"]
    assert one_by_one.build().hex() == case["batch"]


@pytest.mark.golden("record_batches.json")
def test_a_records_size_is_estimated_as_in_java(case: dict[str, Any]) -> None:
    for record in case["records"]:
        estimate = estimate_size_in_bytes_upper_bound(
            bytes_or_none(record["key"]), value_of(record), headers_of(record)
        )
        assert estimate == record["estimated_size_upper_bound"]


@pytest.mark.golden("record_batches_damaged.json")
def test_a_damaged_batch_is_refused_in_javas_words(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["batch"])
    if case["valid"]:
        assert decode_record_batch(data).records()
        return
    with pytest.raises(CorruptRecordError) as refused:
        decode_record_batch(data)
    assert refused.value.message == case["java_message"]
