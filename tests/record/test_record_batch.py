"""Twins of DefaultRecordBatchTest and DefaultRecordTest, as far as they are about reading.

A record is written byte by byte here, so that each fault is where Java's test put it. Not twinned: the
partial iterators and control batches, which no producer reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import pack
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import CorruptRecordError
from client_core.record.record_batch import (
    CHECKED_HEAD,
    HEAD,
    HEADER_SIZE,
    Record,
    decode_record_batch,
    increment_sequence,
)
from client_core.record.record_content import content_pieces, size_of_content
from client_core.record.varint import encode_varint
from tests.record.plain_records_builder import PlainRecordsBuilder

if TYPE_CHECKING:
    from client_core.record.record_batch import RecordHeaders

BASE_MS = 1_700_000_000_000

OPTIONAL_BYTES = st.none() | st.binary(max_size=70)
HEADERS = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), OPTIONAL_BYTES), max_size=3
).map(tuple)
THREE_HEADERS = (("foo", b"value"), ("bar", None), ('"A\\u00ea\\u00f1\\u00fcC"', b"value"))
RECORDS = st.lists(
    st.tuples(st.integers(-1, 2**62), OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), min_size=1, max_size=12
)


def batch_of(
    *records: bytes, count: int | None = None, attributes: int = 0, base_sequence: int = -1
) -> bytes:
    """A batch whose head and checksum are right, whatever the records are."""
    count = len(records) if count is None else count
    checked = b"".join(
        (
            pack(">h", attributes),
            pack(">i", max(count - 1, 0)),  # last offset delta
            pack(">q", BASE_MS),
            pack(">q", BASE_MS),
            pack(">q", 7 if base_sequence >= 0 else -1),  # producer id
            pack(">h", 0 if base_sequence >= 0 else -1),  # producer epoch
            pack(">i", base_sequence),
            pack(">i", count),
            *records,
        )
    )
    head = b"".join(
        (
            pack(">q", 0),  # base offset
            pack(">i", 9 + len(checked)),
            pack(">i", -1),  # partition leader epoch
            pack(">b", 2),  # magic
            pack(">I", crc32c(checked)),
        )
    )
    return head + checked


@dataclass(frozen=True)
class RawRecord:
    """A record's body, each field as it goes on the wire."""

    attributes: bytes = b"\x00"
    timestamp_delta: bytes = b"\x00"
    offset_delta: bytes = b"\x00"
    key: bytes = encode_varint(3) + b"key"
    value: bytes = encode_varint(5) + b"value"
    header_count: bytes = b"\x00"
    headers: bytes = b""

    @property
    def body(self) -> bytes:
        return b"".join(
            (
                self.attributes,
                self.timestamp_delta,
                self.offset_delta,
                self.key,
                self.value,
                self.header_count,
                self.headers,
            )
        )

    def encoded(self, length: int | None = None) -> bytes:
        return encode_varint(len(self.body) if length is None else length) + self.body


def refusal(batch: bytes) -> str:
    """Why the batch's records are refused."""
    decoded = decode_record_batch(batch)
    with pytest.raises(CorruptRecordError) as refused:
        decoded.records()
    return refused.value.message


# -- sound batches --------------------------------------------------------------------------------------


@pytest.mark.behaviour("REC-01", "REC-02", "REC-03", "REC-04")
def test_a_record_has_what_its_fields_say() -> None:
    raw = RawRecord(
        timestamp_delta=encode_varint(-5),
        offset_delta=encode_varint(3),
        key=encode_varint(-1),
        value=encode_varint(2) + b"ab",
        header_count=encode_varint(2),
        headers=encode_varint(1) + b"h" + encode_varint(-1) + encode_varint(0) + encode_varint(1) + b"x",
    )
    (record,) = decode_record_batch(batch_of(raw.encoded(), base_sequence=2**31 - 2)).records()
    assert record == Record(
        offset=3,
        timestamp_ms=BASE_MS - 5,
        sequence=1,
        key=None,
        value=b"ab",
        headers=(("h", None), ("", b"x")),
    )


@pytest.mark.behaviour("REC-04")
@pytest.mark.java("DefaultRecordTest.SerdeNoSequence")
def test_a_record_of_a_batch_without_sequence_has_none() -> None:
    (record,) = decode_record_batch(batch_of(RawRecord().encoded())).records()
    assert record.sequence is None


def test_the_records_of_a_batch_are_not_shown() -> None:
    builder = PlainRecordsBuilder(1000)
    builder.append(0, None, b"a secret")
    shown = repr(decode_record_batch(builder.build()))
    assert "record_count=1" in shown
    assert "secret" not in shown


def test_a_batch_may_follow_another() -> None:
    first, second = batch_of(RawRecord().encoded()), batch_of()
    data = first + second
    assert decode_record_batch(data).size_bytes == len(first)
    assert decode_record_batch(data, len(first)).record_count == 0


@given(RECORDS, st.integers(0, 2**40))
def test_batches_of_the_builder_are_read_back(
    records: list[tuple[int, bytes | None, bytes | None, RecordHeaders]], base_offset: int
) -> None:
    builder = PlainRecordsBuilder(2**40, base_offset=base_offset)
    for record in records:
        builder.append(*record)
    batch = decode_record_batch(builder.build())
    read = [(r.timestamp_ms, r.key, r.value, r.headers) for r in batch.records()]
    assert read == [(None if t == -1 else t, *rest) for t, *rest in records]
    assert [r.offset for r in batch.records()] == list(range(base_offset, base_offset + len(records)))
    assert batch.max_timestamp_ms == max(t for t, *_ in records)
    assert batch.partition_leader_epoch is batch.producer_id is batch.base_sequence is None


@pytest.mark.behaviour("REC-03")
@pytest.mark.java("DefaultRecordTest.BasicSerde")
@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        *((key, value, ()) for key in (b"hi", None) for value in (b"there", None)),
        (b"hi", b"there", THREE_HEADERS),
    ],
)
def test_a_record_in_the_middle_of_a_batch_is_read_back(
    key: bytes | None, value: bytes | None, headers: RecordHeaders
) -> None:
    content = b"".join(content_pieces(key, value, headers))
    body = b"\x00" + encode_varint(323) + encode_varint(10) + content
    encoded = encode_varint(len(body)) + body
    (read,) = decode_record_batch(batch_of(encoded, base_sequence=723)).records()
    assert read == Record(10, BASE_MS + 323, 733, key, value, headers)
    assert size_of_content(key, value, headers) == len(content)


@pytest.mark.java(
    "DefaultRecordBatchTest.buildDefaultRecordBatch",
    "DefaultRecordBatchTest.buildDefaultRecordBatchWithProducerId",
    "DefaultRecordBatchTest.buildDefaultRecordBatchWithSequenceWrapAround",
)
@pytest.mark.parametrize(
    ("base_sequence", "sequences"),
    [
        (None, (None, None, None)),
        (983, (983, 984, 985)),
        (2**31 - 2, (2**31 - 2, 2**31 - 1, 0)),
        (0, (0, 1, 2)),
    ],
)
def test_a_batch_knows_its_offsets_and_sequences(
    base_sequence: int | None, sequences: tuple[int | None, ...]
) -> None:
    builder = PlainRecordsBuilder(2048, base_offset=1234567)
    if base_sequence is not None:
        builder.set_producer_state(23423, 145, base_sequence)
    for timestamp_ms, key in enumerate((b"a", b"b", b"c"), start=1):
        builder.append(timestamp_ms, key, b"v")
    batch = decode_record_batch(builder.build())
    assert (batch.base_offset, batch.last_offset, batch.max_timestamp_ms) == (1234567, 1234569, 3)
    producer = (None, None) if base_sequence is None else (23423, 145)
    assert (batch.producer_id, batch.producer_epoch) == producer
    assert (batch.base_sequence, batch.last_sequence) == (sequences[0], sequences[-1])
    assert tuple(record.sequence for record in batch.records()) == sequences


@pytest.mark.java("DefaultRecordBatchTest.SizeInBytes")
def test_a_batch_is_as_large_as_its_head_and_its_records() -> None:
    headers = (("foo", b"value"), ("bar", None))
    records: list[tuple[int, bytes | None, bytes | None, RecordHeaders]] = [
        (0, b"key", b"value", ()),
        (30_000, None, b"value", ()),
        (60_000, b"key", None, ()),
        (60_000, b"key", b"value", headers),
    ]
    builder = PlainRecordsBuilder(2048)
    expected = HEADER_SIZE
    for number, (delta, key, value, with_headers) in enumerate(records):
        builder.append(BASE_MS + delta, key, value, with_headers)
        content = size_of_content(key, value, with_headers)
        body = 1 + len(encode_varint(delta)) + len(encode_varint(number)) + content
        expected += len(encode_varint(body)) + body
    assert decode_record_batch(builder.build()).size_bytes == len(builder.build()) == expected


@pytest.mark.behaviour("REC-01")
@pytest.mark.java("DefaultRecordBatchTest.WriteEmptyHeader")
@pytest.mark.parametrize("log_append_time", [True, False])
@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("control", [True, False])
def test_the_head_of_an_empty_batch_says_what_it_is(
    log_append_time: bool, transactional: bool, control: bool
) -> None:
    attributes = log_append_time << 3 | transactional << 4 | control << 5
    checked = CHECKED_HEAD.pack(attributes, 37 - 15, -1, BASE_MS, 23423, 145, 983, 0)
    head = HEAD.pack(15, HEADER_SIZE - 12, 15, 2, crc32c(checked))
    batch = decode_record_batch(head + checked)
    assert (batch.producer_id, batch.producer_epoch) == (23423, 145)
    assert (batch.base_sequence, batch.last_sequence) == (983, 983 + 22)
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (15, 37, 15)
    kind = (batch.is_log_append_time, batch.is_transactional, batch.is_control_batch)
    assert kind == (log_append_time, transactional, control)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (-1, BASE_MS)
    assert batch.records() == ()


# -- damaged batches ---------------------------------------------------------------------------------------


def test_a_batch_that_is_cut_off_anywhere_is_refused() -> None:
    batch = batch_of(RawRecord().encoded())
    for length in range(len(batch)):
        with pytest.raises(CorruptRecordError, match="Record batch is corrupt"):
            decode_record_batch(batch[:length])


def test_batches_behind_each_other_are_read_one_by_one() -> None:
    batch = batch_of(RawRecord().encoded())
    one = decode_record_batch(batch)
    for offset in (0, one.size_bytes):
        each = decode_record_batch(batch * 2, offset)
        assert (each, each.records()) == (one, one.records())
    with pytest.raises(
        CorruptRecordError, match=f"declares {len(batch)} bytes, but only {len(batch) - 1} are left"
    ):
        decode_record_batch(batch + batch[:-1], len(batch))


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (-1, "Record size -1 is less than the minimum record overhead"),
        (0, "Record size 0 is less than the minimum record overhead"),
        (13, "Record size 13 is less than the minimum record overhead"),
        (14, "the size 26 is smaller than the minimum allowed overhead 61"),
        (48, "the size 60 is smaller than the minimum allowed overhead 61"),
        (2**31 - 1, "it declares"),
    ],
)
@pytest.mark.java("DefaultRecordBatchTest.InvalidRecordSize")
def test_a_hostile_batch_length_is_refused(length: int, words: str) -> None:
    batch = batch_of(RawRecord().encoded())
    with pytest.raises(CorruptRecordError, match=words):
        decode_record_batch(batch[:8] + pack(">i", length) + batch[12:])


@pytest.mark.behaviour("REC-01")
@pytest.mark.java("DefaultRecordBatchTest.InvalidCrc")
def test_every_bit_under_the_checksum_counts() -> None:
    batch = bytearray(batch_of(RawRecord().encoded()))
    for position in range(17, len(batch)):
        batch[position] ^= 0x10
        with pytest.raises(CorruptRecordError, match=r"Record is corrupt \(stored crc"):
            decode_record_batch(bytes(batch))
        batch[position] ^= 0x10


def test_another_magic_is_refused() -> None:
    batch = bytearray(batch_of())
    batch[16] = 1
    with pytest.raises(CorruptRecordError, match="Invalid magic found in record: 1"):
        decode_record_batch(bytes(batch))


def test_a_negative_record_count_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="Found invalid record count -1 in magic v2 batch"):
        decode_record_batch(batch_of(count=-1))


def test_fewer_records_than_counted_are_refused() -> None:
    assert "premature EOF" in refusal(batch_of(RawRecord().encoded(), count=2))


def test_more_records_than_counted_are_refused() -> None:
    record = RawRecord().encoded()
    for count in (0, 1):
        assert "records still remaining" in refusal(batch_of(record, record, count=count))


def test_a_codec_that_does_not_exist_is_refused() -> None:
    assert refusal(batch_of(RawRecord().encoded(), attributes=7)) == "Unknown compression type id: 7"


# -- damaged records ---------------------------------------------------------------------------------------


@pytest.mark.java("DefaultRecordTest.InvalidSizeOfBodyInBytes")
@pytest.mark.parametrize("length", [-1, 0, 100, 2**31 - 1])
def test_a_record_length_beyond_the_batch_is_refused(length: int) -> None:
    assert "Invalid record size" in refusal(batch_of(RawRecord().encoded(length)))


@pytest.mark.java(
    "DefaultRecordTest.InvalidKeySize",
    "DefaultRecordTest.InvalidValueSize",
    "DefaultRecordTest.InvalidNumHeaders",
    "DefaultRecordTest.InvalidHeaderKey",
    "DefaultRecordTest.NullHeaderKey",
    "DefaultRecordTest.InvalidHeaderValue",
    "DefaultRecordTest.InvalidVarlong",
)
@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (RawRecord(key=encode_varint(105) + b"key"), "105 bytes announced"),
        (RawRecord(value=encode_varint(105) + b"value"), "105 bytes announced"),
        (RawRecord(header_count=encode_varint(-1)), "invalid number of record headers -1"),
        (RawRecord(header_count=encode_varint(10)), "10 is larger than the remaining size"),
        (RawRecord(header_count=encode_varint(1), headers=encode_varint(-1)), "negative header key size"),
        (RawRecord(header_count=encode_varint(1), headers=encode_varint(9) + b"h"), "9 bytes announced"),
        (
            RawRecord(header_count=encode_varint(1), headers=encode_varint(1) + b"h" + encode_varint(9)),
            "9 bytes announced",
        ),
        (
            RawRecord(header_count=encode_varint(1), headers=encode_varint(1) + b"\xff" + encode_varint(0)),
            "not UTF-8",
        ),
        (RawRecord(headers=b"more"), "expected to read 18 bytes in record payload, but instead read 14"),
        (RawRecord(timestamp_delta=b"\xff" * 10 + b"\x00"), "more than 64 bits"),
        (RawRecord(timestamp_delta=encode_varint(2**63 - 1)[:9] + b"\x80"), "more than 64 bits"),
    ],
)
def test_a_record_that_breaks_the_format_is_refused(raw: RawRecord, said: str) -> None:
    assert said in refusal(batch_of(raw.encoded()))


@pytest.mark.java("DefaultRecordTest.UnderflowReadingTimestamp", "DefaultRecordTest.UnderflowReadingVarlong")
@pytest.mark.parametrize("timestamp_delta", [b"", encode_varint(156)[:1]])
def test_a_record_that_ends_inside_its_timestamp_is_refused(timestamp_delta: bytes) -> None:
    body = b"\x00" + timestamp_delta
    assert "cut off" in refusal(batch_of(encode_varint(len(body)) + body))


@pytest.mark.java(
    "DefaultRecordTest.BasicSerdeInvalidHeaderCountTooHigh",
    "DefaultRecordTest.BasicSerdeInvalidHeaderCountTooLow",
)
@pytest.mark.parametrize(("count", "said"), [(4, "a varint is cut off"), (2, "expected to read 58 bytes")])
def test_a_header_count_that_is_not_that_of_the_headers_is_refused(count: int, said: str) -> None:
    headers = b"".join(content_pieces(None, None, THREE_HEADERS))[3:]
    whole = RawRecord(header_count=encode_varint(3), headers=headers)
    (read,) = decode_record_batch(batch_of(whole.encoded())).records()
    assert read.headers == THREE_HEADERS
    wrong = RawRecord(header_count=encode_varint(count), headers=headers)
    assert said in refusal(batch_of(wrong.encoded()))


def test_headers_do_not_reach_into_the_next_record() -> None:
    greedy = RawRecord(header_count=encode_varint(1), headers=encode_varint(1) + b"h")
    assert "0 left" in refusal(batch_of(greedy.encoded(), RawRecord().encoded()))


@given(st.binary(max_size=60), st.integers(0, 3))
def test_no_bytes_do_more_harm_than_a_corrupt_record_error(records: bytes, count: int) -> None:
    batch = decode_record_batch(batch_of(records, count=count))
    try:
        assert len(batch.records()) == count
    except CorruptRecordError:
        assert records or count


# -- sequences ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REC-04")
@pytest.mark.java("DefaultRecordBatchTest.IncrementSequence", "DefaultRecordBatchTest.DecrementSequence")
@pytest.mark.parametrize(
    ("sequence", "by", "after"),
    [(0, 5, 5), (5, 5, 10), (2**31 - 1, 1, 0), (2**31 - 6, 10, 4)],
)
def test_sequences_wrap_to_zero_and_back(sequence: int, by: int, after: int) -> None:
    assert increment_sequence(sequence, by) == after
    assert increment_sequence(after, -by) == sequence


def test_the_last_sequence_of_a_batch_wraps() -> None:
    records = [RawRecord().encoded()] * 6
    batch = decode_record_batch(batch_of(*records, base_sequence=2**31 - 3))
    assert batch.last_sequence == 2
    assert len(batch.payload) == batch.size_bytes - HEADER_SIZE
