"""Whole batches with each of Kafka's codecs; twins of MemoryRecordsBuilderTest and MemoryRecordsTest.

Java runs these over every codec, magic and place in a buffer; here there is one magic, and no buffer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import CorruptRecordError, IllegalArgumentError, IllegalStateError
from client_core.producer.results.producer_record import ProducerRecord
from client_core.record.codecs import compression_of
from client_core.record.compression import Codec
from client_core.record.memory_records_builder import LEAST_COMPRESSION_RATIO
from client_core.record.record_batch import CRC_SPAN_OFFSET, HEADER_SIZE, decode_record_batch
from tests.record.codec_cases import EVERY_CODEC, EVERY_LEVEL, PACKING_CODECS, codec_name
from tests.record.plain_records_builder import PlainRecordsBuilder

if TYPE_CHECKING:
    from client_core.record.compression import Compression
    from client_core.record.record_batch import RecordHeaders

LEFT_OUT: Final = {
    "MemoryRecordsBuilderTest.AppendAtInvalidOffset": "no offset is given to append: records count from 0.",
    "MemoryRecordsBuilderTest.shouldResetBufferToInitialPositionOnAbort": "there is no buffer: "
    "what was appended are pieces, and abort drops them.",
}

_Record = tuple[int, bytes | None, bytes | None, "RecordHeaders"]

every_codec: Final = pytest.mark.parametrize("compression", EVERY_CODEC, ids=codec_name)
packing_codecs: Final = pytest.mark.parametrize("compression", PACKING_CODECS, ids=codec_name)

OPTIONAL_BYTES = st.none() | st.binary(max_size=70) | st.builds(bytes, st.integers(0, 3000))
HEADERS = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), OPTIONAL_BYTES), max_size=3
).map(tuple)
RECORDS = st.lists(
    st.tuples(st.integers(-1, 2**62), OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), min_size=1, max_size=12
)


def batch_of(compression: Compression, *records: _Record) -> bytes:
    builder = PlainRecordsBuilder(2**40, compression=compression)
    for record in records:
        builder.append(*record)
    return builder.build()


def under_a_new_checksum(batch: bytearray) -> bytes:
    batch[17:CRC_SPAN_OFFSET] = crc32c(bytes(batch[CRC_SPAN_OFFSET:])).to_bytes(4, "big")
    return bytes(batch)


# -- twins of MemoryRecordsBuilderTest -----------------------------------------------------------------------


@pytest.mark.java("MemoryRecordsBuilderTest.WriteEmptyRecordSet")
@every_codec
def test_a_batch_without_records_is_no_bytes_at_all(compression: Compression) -> None:
    assert PlainRecordsBuilder(128, compression=compression).build() == b""


@pytest.mark.java(
    "MemoryRecordsBuilderTest.WriteIdempotentWithInvalidEpoch",
    "MemoryRecordsBuilderTest.WriteIdempotentWithInvalidBaseSequence",
)
@pytest.mark.parametrize(("epoch", "sequence", "what"), [(-1, 2342, "producer epoch"), (15, -1, "sequence")])
@every_codec
def test_an_invalid_producer_state_is_refused_when_the_batch_is_built(
    compression: Compression, epoch: int, sequence: int, what: str
) -> None:
    builder = PlainRecordsBuilder(128, compression=compression, is_transactional=True)
    builder.set_producer_state(9809, epoch, sequence)
    with pytest.raises(IllegalArgumentError, match=f"Invalid negative {what}"):
        builder.build()


@pytest.mark.behaviour("REC-05")
@pytest.mark.java("MemoryRecordsBuilderTest.EstimatedSizeInBytes")
@every_codec
def test_the_estimate_grows_with_each_record_and_is_exact_in_the_end(compression: Compression) -> None:
    builder = PlainRecordsBuilder(1024, compression=compression)
    estimates = [0]
    for number in range(10):
        builder.append(number, None, b"%d" % number)
        estimates.append(builder.estimated_size_bytes)
    assert all(earlier < later for earlier, later in pairwise(estimates))
    size = len(builder.build())
    assert builder.estimated_size_bytes == size
    if compression.codec is Codec.NONE:
        assert estimates[-1] == size


@pytest.mark.behaviour("REC-02")
@pytest.mark.java("MemoryRecordsBuilderTest.buildUsingCreateTime")
@every_codec
def test_the_latest_timestamp_is_the_batchs_and_each_record_has_its_own(compression: Compression) -> None:
    batch = decode_record_batch(
        batch_of(compression, (0, b"a", b"1", ()), (2, b"b", b"2", ()), (1, b"c", b"3", ()))
    )
    assert not batch.is_log_append_time
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms, batch.last_offset) == (0, 2, 2)
    assert [record.timestamp_ms for record in batch.records()] == [0, 2, 1]


@pytest.mark.java("MemoryRecordsBuilderTest.AppendedChecksumConsistency", "MemoryRecordsTest.WithRecords")
@every_codec
def test_a_batch_of_one_record_is_read_back_and_has_a_checksum_that_holds(compression: Compression) -> None:
    batch = batch_of(compression, (10, b"key1", b"value1", ()))
    (record,) = decode_record_batch(batch).records()
    assert (record.key, record.value) == (b"key1", b"value1")
    assert int.from_bytes(batch[17:CRC_SPAN_OFFSET], "big") == crc32c(batch[CRC_SPAN_OFFSET:])


@pytest.mark.behaviour("REC-05")
@pytest.mark.java("MemoryRecordsBuilderTest.SmallWriteLimit")
@every_codec
def test_a_limit_of_nothing_takes_one_record(compression: Compression) -> None:
    builder = PlainRecordsBuilder(0, compression=compression)
    full_when_empty = builder.is_full
    assert builder.has_room_for(0, b"foo", b"bar")
    builder.append(0, b"foo", b"bar")
    assert (full_when_empty, builder.is_full) == (False, True)
    assert not builder.has_room_for(0, b"foo", b"bar")
    (read,) = decode_record_batch(builder.build()).records()
    assert (read.key, read.value) == (b"foo", b"bar")


@pytest.mark.java("MemoryRecordsBuilderTest.writePastLimit")
@every_codec
def test_who_does_not_ask_for_room_may_write_past_the_limit(compression: Compression) -> None:
    builder = PlainRecordsBuilder(64, compression=compression, estimated_compression_ratio=0.5)
    builder.append(0, b"a", b"1")
    builder.append(1, b"b", b"2")
    assert not builder.has_room_for(2, b"c", b"3")
    builder.append(2, b"c", b"3")
    batch = decode_record_batch(builder.build())
    assert (batch.max_timestamp_ms, batch.last_offset) == (2, 2)
    assert [record.timestamp_ms for record in batch.records()] == [0, 1, 2]


@pytest.mark.java(
    "MemoryRecordsBuilderTest.shouldThrowIllegalStateExceptionOnBuildWhenAborted",
    "MemoryRecordsBuilderTest.shouldThrowIllegalStateExceptionOnCloseWhenAborted",
    "MemoryRecordsBuilderTest.shouldThrowIllegalStateExceptionOnAppendWhenAborted",
)
@every_codec
def test_an_aborted_batch_takes_and_builds_nothing(compression: Compression) -> None:
    builder = PlainRecordsBuilder(128, compression=compression)
    builder.abort()
    with pytest.raises(IllegalStateError, match="Attempting to build an aborted record batch"):
        builder.build()
    assert builder.append_many(well_packing(1), (0,), 0, 0) == 0


@pytest.mark.java(
    "MemoryRecordsBuilderTest.shouldThrowIllegalStateExceptionOnAppendWhenClosed",
    "MemoryRecordsTest.HasRoomForMethod",
)
@every_codec
def test_there_is_room_until_the_batch_is_built_and_then_it_takes_nothing(compression: Compression) -> None:
    builder = PlainRecordsBuilder(1024, compression=compression)
    builder.append(0, b"a", b"1")
    assert builder.has_room_for(1, b"b", b"2")
    builder.build()
    assert not builder.has_room_for(1, b"b", b"2")
    assert builder.append_many(well_packing(1), (0,), 0, 0) == 0


# -- twins of MemoryRecordsTest ------------------------------------------------------------------------------


@pytest.mark.behaviour("REC-01", "REC-03", "REC-04", "REC-06")
@pytest.mark.java("MemoryRecordsTest.Iterator")
@pytest.mark.parametrize("first_offset", [0, 57])
@every_codec
def test_a_batch_has_what_it_was_made_of(compression: Compression, first_offset: int) -> None:
    records = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (None, b"4"), (b"d", None), (None, None)]
    builder = PlainRecordsBuilder(
        1024, compression=compression, base_offset=first_offset, partition_leader_epoch=998
    )
    builder.set_producer_state(134234, 28, 777)
    for timestamp_ms, (key, value) in enumerate(records, start=1):
        builder.append(timestamp_ms, key, value)
    batch = decode_record_batch(builder.build())
    assert batch.codec is compression.codec
    assert (batch.base_offset, batch.last_offset) == (first_offset, first_offset + 5)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (134234, 28, 777)
    assert (batch.partition_leader_epoch, batch.record_count, batch.max_timestamp_ms) == (998, 6, 6)
    assert not batch.is_log_append_time
    for _ in range(2):
        read = batch.records()
        assert [(r.key, r.value) for r in read] == records
        assert [r.timestamp_ms for r in read] == [1, 2, 3, 4, 5, 6]
        assert [r.offset for r in read] == list(range(first_offset, first_offset + 6))
        assert [r.sequence for r in read] == list(range(777, 783))


@pytest.mark.behaviour("REC-05")
@pytest.mark.java("MemoryRecordsTest.HasRoomForMethodWithHeaders")
@every_codec
def test_room_is_needed_for_headers_too(compression: Compression) -> None:
    builder = PlainRecordsBuilder(120, compression=compression)
    builder.append(1_700_000_000_000, b"key", b"value")
    assert builder.has_room_for(1_700_000_000_000, b"key", b"value")
    headers = (("hello", b"world.world"),) * 10
    assert not builder.has_room_for(1_700_000_000_000, b"key", b"value", headers)


@pytest.mark.behaviour("REC-01")
@pytest.mark.java("MemoryRecordsTest.Checksum")
@pytest.mark.parametrize(("name", "checksum"), [("none", 3851219455), ("lz4", 2745969314)])
def test_the_checksum_is_javas(name: str, checksum: int) -> None:
    batch = batch_of(compression_of(name), (283843, b"key1", b"value1", ()), (1234, b"key2", b"value2", ()))
    assert decode_record_batch(batch).crc == checksum


# -- many records and the estimate ---------------------------------------------------------------------------


def well_packing(count: int) -> list[ProducerRecord]:
    return [ProducerRecord("t", bytes(100), timestamp_ms=5)] * count


@packing_codecs
def test_the_ratio_is_that_of_the_records_without_the_head(compression: Compression) -> None:
    builder = PlainRecordsBuilder(2**20, compression=compression)
    builder.append_many(well_packing(100), range(100), 0, 0)
    plain = builder.uncompressed_size_bytes - HEADER_SIZE
    assert builder.compression_ratio == 1.0
    packed = len(builder.build()) - HEADER_SIZE
    assert builder.compression_ratio == packed / plain < 0.5
    assert builder.uncompressed_size_bytes == plain + HEADER_SIZE


@pytest.mark.behaviour("REC-05")
@pytest.mark.parametrize("ratio", [1.0, 0.5, LEAST_COMPRESSION_RATIO])
@packing_codecs
def test_records_are_taken_as_far_as_their_estimate_goes(compression: Compression, ratio: float) -> None:
    at_once, one_by_one = (
        PlainRecordsBuilder(4096, compression=compression, estimated_compression_ratio=ratio)
        for _ in range(2)
    )
    taken = at_once.append_many(well_packing(1000), range(1000), 0, 0)
    while one_by_one.has_room_for(5, None, bytes(100)):
        one_by_one.append(5, None, bytes(100))
    assert taken == one_by_one.record_count
    plain = at_once.uncompressed_size_bytes - HEADER_SIZE
    assert plain == pytest.approx((4096 - HEADER_SIZE) / ratio / 1.05, rel=0.06)
    assert at_once.build() == one_by_one.build()


@packing_codecs
def test_nobody_counts_on_packing_better_than_tenfold(compression: Compression) -> None:
    builder = PlainRecordsBuilder(4096, compression=compression, estimated_compression_ratio=0.001)
    builder.append_many(well_packing(10_000), range(10_000), 0, 0)
    assert builder.uncompressed_size_bytes < 10 * 4096


@packing_codecs
def test_taking_ends_where_the_estimate_reaches_the_stop(compression: Compression) -> None:
    builder = PlainRecordsBuilder(10_000, compression=compression, estimated_compression_ratio=0.5)
    builder.append_many(well_packing(100), range(100), 0, 0, stop_at_bytes=1000)
    assert 1000 <= builder.estimated_size_bytes < 1000 + 60
    assert not builder.is_full


# -- any records, any damage ---------------------------------------------------------------------------------


@pytest.mark.behaviour("REC-06")
@given(st.sampled_from(EVERY_LEVEL), RECORDS)
def test_any_records_come_back_from_any_codec_at_any_level(
    compression: Compression, records: list[_Record]
) -> None:
    batch = decode_record_batch(batch_of(compression, *records))
    read = [(r.timestamp_ms, r.key, r.value, r.headers) for r in batch.records()]
    assert read == [(None if t == -1 else t, *rest) for t, *rest in records]


@given(st.sampled_from(PACKING_CODECS), RECORDS, st.floats(0, 1, exclude_max=True))
def test_a_batch_that_is_cut_off_anywhere_is_refused(
    compression: Compression, records: list[_Record], where: float
) -> None:
    batch = batch_of(compression, *records)
    with pytest.raises(CorruptRecordError):
        decode_record_batch(batch[: int(where * len(batch))]).records()


@given(st.sampled_from(PACKING_CODECS), RECORDS, st.floats(0, 1, exclude_max=True))
def test_packed_records_that_are_cut_off_are_refused_under_a_checksum_that_holds(
    compression: Compression, records: list[_Record], where: float
) -> None:
    batch = batch_of(compression, *records)
    cut = bytearray(batch[: HEADER_SIZE + int(where * (len(batch) - HEADER_SIZE))])
    cut[8:12] = (len(cut) - 12).to_bytes(4, "big")
    with pytest.raises(CorruptRecordError):
        decode_record_batch(under_a_new_checksum(cut)).records()


@given(st.sampled_from(PACKING_CODECS), RECORDS, st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_flipped_bit_is_refused_by_the_checksum_or_is_outside_of_it(
    compression: Compression, records: list[_Record], where: float, bit: int
) -> None:
    damaged = bytearray(batch_of(compression, *records))
    at = int(where * len(damaged))
    damaged[at] ^= 1 << bit
    if at < 8 or 12 <= at < 16:  # the base offset and the leader's epoch, which brokers set
        assert len(decode_record_batch(bytes(damaged)).records()) == len(records)
        return
    with pytest.raises(CorruptRecordError):
        decode_record_batch(bytes(damaged))


@given(st.sampled_from(PACKING_CODECS), RECORDS, st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_damage_under_a_checksum_that_holds_does_no_more_than_a_corrupt_record_error(
    compression: Compression, records: list[_Record], where: float, bit: int
) -> None:
    damaged = bytearray(batch_of(compression, *records))
    damaged[CRC_SPAN_OFFSET + int(where * (len(damaged) - CRC_SPAN_OFFSET))] ^= 1 << bit
    try:
        decode_record_batch(under_a_new_checksum(damaged)).records(100_000)
    except CorruptRecordError:
        return


@pytest.mark.java(
    "DefaultRecordBatchTest.InvalidRecordCountTooManyNonCompressedV2",
    "DefaultRecordBatchTest.InvalidRecordCountTooLittleNonCompressedV2",
    "DefaultRecordBatchTest.InvalidRecordCountTooManyCompressedV2",
    "DefaultRecordBatchTest.InvalidRecordCountTooLittleCompressedV2",
)
@pytest.mark.parametrize(("count", "said"), [(5, "premature EOF reached"), (2, "records still remaining")])
@every_codec
def test_a_count_that_is_not_that_of_the_records_is_refused(
    compression: Compression, count: int, said: str
) -> None:
    batch = bytearray(
        batch_of(compression, *((5, None, value, ()) for value in (b"hello", b"there", b"beautiful")))
    )
    batch[57:HEADER_SIZE] = count.to_bytes(4, "big")
    with pytest.raises(CorruptRecordError, match=f"Incorrect declared batch size, {said}"):
        decode_record_batch(under_a_new_checksum(batch)).records()


@packing_codecs
def test_a_reader_that_knows_better_says_how_large_the_records_may_be(compression: Compression) -> None:
    batch = decode_record_batch(batch_of(compression, (5, None, bytes(100_000), ())))
    assert len(batch.records(limit_bytes=100_100)) == 1
    with pytest.raises(CorruptRecordError, match="larger than 99999 bytes"):
        batch.records(limit_bytes=99_999)


@packing_codecs
def test_a_batch_that_lost_all_its_records_is_empty_whatever_its_codec(compression: Compression) -> None:
    head = bytearray(batch_of(compression, (5, None, b"", ()))[:HEADER_SIZE])
    head[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    head[57:HEADER_SIZE] = bytes(4)
    assert decode_record_batch(under_a_new_checksum(head)).records() == ()


@pytest.mark.parametrize("read_as", PACKING_CODECS, ids=codec_name)
@every_codec
def test_records_under_another_codecs_name_are_refused(
    compression: Compression, read_as: Compression
) -> None:
    if compression is read_as:
        return
    batch = bytearray(batch_of(compression, (5, b"key", b"value", ())))
    batch[22] = read_as.codec.id
    with pytest.raises(CorruptRecordError):
        decode_record_batch(under_a_new_checksum(batch)).records()
