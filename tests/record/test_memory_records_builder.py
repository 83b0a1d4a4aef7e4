"""Twins of MemoryRecordsBuilderTest, and of what DefaultRecordBatchTest and DefaultRecordTest write.

Those that Java runs over every codec are in `test_batches_of_every_codec.py`. Not twinned: magic v0 and v1,
control batches, LogAppendTime and delete horizons, which no producer writes.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import IllegalArgumentError, IllegalStateError
from client_core.producer.results.producer_record import ProducerRecord
from client_core.record.codecs import compression_of
from client_core.record.compression import NO_COMPRESSION, Codec
from client_core.record.memory_records_builder import estimate_size_in_bytes_upper_bound
from client_core.record.record_batch import HEADER_SIZE, decode_record_batch
from client_core.record.varint import TABLE_SIZE
from tests.record.plain_records_builder import PlainRecordsBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.record.compression import Compression
    from client_core.record.memory_records_builder import MemoryRecordsBuilder

WALL_MS = 1_700_000_000_000


class Halving:
    """A fake codec: it keeps the first half of the bytes."""

    codec = Codec.GZIP

    def compress(self, records: bytes, /) -> bytes:
        return records[: len(records) // 2]

    def decompress(self, packed: bytes, /, limit_bytes: int = 0) -> bytes:
        raise NotImplementedError


def record(value: bytes | None = b"value", key: bytes | None = None, **more: object) -> ProducerRecord:
    headers = more.get("headers", ())
    timestamp_ms = more.get("timestamp_ms")
    assert isinstance(headers, tuple)
    assert timestamp_ms is None or isinstance(timestamp_ms, int)
    return ProducerRecord("t", value, key, timestamp_ms=timestamp_ms, headers=headers)


def append_all(builder: MemoryRecordsBuilder, records: Sequence[ProducerRecord]) -> int:
    return builder.append_many(records, range(len(records)), 0, WALL_MS)


# -- the bytes ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REC-01", "REC-03")
def test_a_batch_is_these_bytes() -> None:
    builder = PlainRecordsBuilder(1000)
    builder.append(WALL_MS, None, b"a")
    builder.append(WALL_MS + 1, b"k", None, (("h", b"v"),))
    expected = (
        "0000000000000000"  # int64 base offset
        "00000045"  # int32 length of what follows
        "ffffffff"  # int32 partition leader epoch: none
        "02"  # int8 magic
        "{crc:08x}"  # uint32 CRC-32C of what follows
        "0000"  # int16 attributes
        "00000001"  # int32 last offset delta
        "0000018bcfe56800"  # int64 base timestamp
        "0000018bcfe56801"  # int64 max timestamp
        "ffffffffffffffff"  # int64 producer id: none
        "ffff"  # int16 producer epoch: none
        "ffffffff"  # int32 base sequence: none
        "00000002"  # int32 count
        "0e 00 00 00 01 02 61 00"  # length 7, attributes, times +0, +0, key null, value a, no headers
        "16 00 02 02 02 6b 01 02 02 68 02 76"  # length 11, ..., +1, +1, key k, value null, 1 header: h = v
    )
    built = builder.build()
    crc = crc32c(built[21:])
    assert built.hex() == expected.format(crc=crc).replace(" ", "")


def test_building_twice_gives_the_same_object() -> None:
    builder = PlainRecordsBuilder(128)
    builder.append(WALL_MS, None, b"a")
    assert builder.build() is builder.build()


@pytest.mark.behaviour("REC-02")
def test_timestamps_are_stored_as_their_distance_to_the_first() -> None:
    builder = PlainRecordsBuilder(1000)
    for timestamp_ms in (20, 5, 30, 30):
        builder.append(timestamp_ms, None, b"v")
    batch = decode_record_batch(builder.build())
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (20, 30)
    assert [r.timestamp_ms for r in batch.records()] == [20, 5, 30, 30]
    assert [builder.timestamps.at(position) for position in range(4)] == [20, 5, 30, 30]


def test_the_checksum_does_not_depend_on_how_records_came_in() -> None:
    records = [record(bytes([n]) * n, timestamp_ms=WALL_MS + n // 3) for n in range(50)]
    at_once, one_by_one = PlainRecordsBuilder(10_000), PlainRecordsBuilder(10_000)
    append_all(at_once, records)
    for r in records:
        one_by_one.append(r.timestamp_ms or 0, r.key, r.value, r.headers)
    assert decode_record_batch(at_once.build()).crc == decode_record_batch(one_by_one.build()).crc


@pytest.mark.parametrize("size", [*range(TABLE_SIZE - 12, TABLE_SIZE + 2), 20_000])
def test_sizes_beyond_the_tables_are_encoded_too(size: int) -> None:
    content = bytes(size)
    for key in (None, b"k", content):
        builder, alone, copied = (PlainRecordsBuilder(100_000) for _ in range(3))
        append_all(builder, [record(content, key)])
        alone.append_where_more_fits(record(content, key), size + len(key or b""), WALL_MS)
        builder.copy_to(copied, [range(1)])
        (read,) = decode_record_batch(builder.build()).records()
        assert (read.value, read.key) == (content, key)
        assert builder.build() == alone.build() == copied.build()


def test_offsets_beyond_the_tables_are_encoded_too() -> None:
    builder = PlainRecordsBuilder(1_000_000)
    count = TABLE_SIZE + 2
    assert append_all(builder, [record(b"")] * count) == count
    assert [r.offset for r in decode_record_batch(builder.build()).records()] == list(range(count))


# -- taking many -------------------------------------------------------------------------------------------


OPTIONAL_BYTES = st.none() | st.binary(max_size=90)
PRODUCER_RECORDS = st.lists(
    st.builds(
        ProducerRecord,
        st.just("t"),
        OPTIONAL_BYTES,
        OPTIONAL_BYTES,
        timestamp_ms=st.none() | st.integers(0, 2**50),
        headers=st.just(()) | st.just((("h", b"v"), ("h", None))),
    ),
    max_size=40,
)


@given(PRODUCER_RECORDS, st.integers(0, 600))
def test_append_many_takes_exactly_what_one_by_one_would(
    records: list[ProducerRecord], write_limit: int
) -> None:
    at_once, one_by_one = PlainRecordsBuilder(write_limit), PlainRecordsBuilder(write_limit)
    taken = append_all(at_once, records)
    for r in records[:taken]:
        timestamp_ms = WALL_MS if r.timestamp_ms is None else r.timestamp_ms
        assert one_by_one.has_room_for(timestamp_ms, r.key, r.value, r.headers)
        one_by_one.append(timestamp_ms, r.key, r.value, r.headers)
    if taken < len(records):
        r = records[taken]
        timestamp_ms = WALL_MS if r.timestamp_ms is None else r.timestamp_ms
        assert not one_by_one.has_room_for(timestamp_ms, r.key, r.value, r.headers)
    assert at_once.estimated_size_bytes == one_by_one.estimated_size_bytes
    assert at_once.build() == one_by_one.build()


def test_append_many_takes_the_records_at_the_indices_from_first_on() -> None:
    records = [record(bytes([n])) for n in range(6)]
    builder = PlainRecordsBuilder(1000)
    assert builder.append_many(records, (5, 3, 1, 0), 1, WALL_MS) == 3
    assert [r.value for r in decode_record_batch(builder.build()).records()] == [b"\x03", b"\x01", b"\x00"]


def test_append_many_ends_with_the_record_that_reaches_the_stop() -> None:
    builder = PlainRecordsBuilder(1000)
    records = [record(bytes(10))] * 5
    append_all(builder, records[:1])
    one = builder.estimated_size_bytes - HEADER_SIZE
    stop_at = HEADER_SIZE + 2 * one + 1
    assert builder.append_many(records, range(5), 1, WALL_MS, stop_at) == 2
    assert builder.estimated_size_bytes == HEADER_SIZE + 3 * one
    assert not builder.is_full
    at_most = PlainRecordsBuilder(1000)
    assert at_most.append_many(records, range(5), 0, WALL_MS, HEADER_SIZE + 2 * one) == 2  # reached exactly


def test_a_record_that_cant_be_encoded_leaves_the_batch_as_it_was() -> None:
    builder = PlainRecordsBuilder(1000)
    append_all(builder, [record(b"0", timestamp_ms=10), record(b"1", timestamp_ms=11)])
    lone_surrogate = record(b"2", headers=(("\ud800", b""),))
    with pytest.raises(UnicodeEncodeError):
        append_all(builder, [record(b"x", timestamp_ms=99), lone_surrogate])
    append_all(builder, [record(b"2", timestamp_ms=11), record(b"3", timestamp_ms=12)])
    batch = decode_record_batch(builder.build())
    assert [(r.value, r.timestamp_ms) for r in batch.records()] == [
        (b"0", 10),
        (b"1", 11),
        (b"2", 11),
        (b"3", 12),
    ]
    assert batch.max_timestamp_ms == 12


def test_a_batch_whose_first_record_cant_be_encoded_begins_with_the_next() -> None:
    for next_ms in (5, 99):
        builder = PlainRecordsBuilder(1000)
        with pytest.raises(IllegalArgumentError, match="Invalid negative timestamp -2"):
            append_all(builder, [record(b"x", timestamp_ms=99), record(b"y", timestamp_ms=-2)])
        append_all(builder, [record(b"0", timestamp_ms=next_ms)])
        batch = decode_record_batch(builder.build())
        assert (batch.base_timestamp_ms, batch.max_timestamp_ms, batch.record_count) == (next_ms, next_ms, 1)
        assert builder.timestamps.between(0, 1) == [(0, 1, next_ms)]


# -- room --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REC-05")
def test_the_first_record_always_fits() -> None:
    builder = PlainRecordsBuilder(0)
    assert builder.has_room_for(0, None, bytes(1000))
    assert append_all(builder, [record(bytes(1000)), record(b"")]) == 1
    assert builder.is_full
    assert not builder.has_room_for(0, None, b"")


def test_a_batch_is_full_when_its_limit_is_reached_exactly() -> None:
    one = PlainRecordsBuilder(0)
    append_all(one, [record(b"12345")])
    builder = PlainRecordsBuilder(one.estimated_size_bytes)
    assert append_all(builder, [record(b"12345")]) == 1
    assert builder.is_full
    roomier = PlainRecordsBuilder(one.estimated_size_bytes + 1)
    append_all(roomier, [record(b"12345")])
    assert not roomier.is_full


@pytest.mark.parametrize(("codec", "ratio"), [(NO_COMPRESSION, 1.0), (Halving(), 1.0), (Halving(), 0.1)])
def test_the_smallest_records_are_taken_until_exactly_no_more_fit(codec: Compression, ratio: float) -> None:
    smallest = record(None)
    for limit in range(HEADER_SIZE, HEADER_SIZE + 300):
        at_once, one_by_one = (
            PlainRecordsBuilder(limit, compression=codec, estimated_compression_ratio=ratio) for _ in range(2)
        )
        append_all(at_once, [smallest] * 1000)
        while one_by_one.has_room_for(WALL_MS, None, None):
            one_by_one.append(WALL_MS, None, None)
        assert at_once.record_count == one_by_one.record_count, limit


def test_a_record_taken_alone_leaves_room_however_long_its_lengths_and_times_are() -> None:
    large = record(bytes(1 << 20), bytes(1 << 20))
    for limit in range((1 << 21) + HEADER_SIZE + 7, (1 << 21) + HEADER_SIZE + 7 + 40):
        builder = PlainRecordsBuilder(limit)
        builder.append(0, None, None)
        builder.append_where_more_fits(large, 1 << 21, 1 << 62)
        assert builder.estimated_size_bytes < limit


def test_a_batch_closed_for_appends_is_full_and_takes_nothing() -> None:
    builder = PlainRecordsBuilder(1000)
    append_all(builder, [record()])
    builder.close_for_record_appends()
    assert builder.is_full
    assert not builder.has_room_for(WALL_MS, None, b"")
    assert append_all(builder, [record()]) == 0


@pytest.mark.behaviour("REC-05")
def test_the_estimate_is_exact_without_compression() -> None:
    builder = PlainRecordsBuilder(1000)
    append_all(builder, [record(b"a", b"k"), record(None, headers=(("h", None),))])
    estimate = builder.estimated_size_bytes
    assert len(builder.build()) == builder.estimated_size_bytes == estimate


@pytest.mark.behaviour("REC-05")
def test_the_estimate_with_a_codec_is_what_its_ratio_makes_of_it_and_a_twentieth() -> None:
    plain = PlainRecordsBuilder(10_000)
    packed = PlainRecordsBuilder(10_000, compression=Halving(), estimated_compression_ratio=0.5)
    for builder in (plain, packed):
        append_all(builder, [record(bytes(1000))])
    raw = plain.estimated_size_bytes - HEADER_SIZE
    assert packed.estimated_size_bytes == HEADER_SIZE + int(raw * 0.5 * 1.05)
    assert packed.compression_ratio == 1.0
    assert len(packed.build()) == packed.estimated_size_bytes == HEADER_SIZE + raw // 2
    assert packed.compression_ratio == pytest.approx(0.5, abs=0.001)


@pytest.mark.behaviour("REC-05")
def test_room_with_a_codec_goes_by_the_estimate_but_takes_the_new_record_as_it_is() -> None:
    builder = PlainRecordsBuilder(HEADER_SIZE + 500, compression=Halving(), estimated_compression_ratio=0.1)
    taken = append_all(builder, [record(bytes(100))] * 100)
    assert 5 < taken < 100
    assert not builder.has_room_for(WALL_MS, None, bytes(100))
    assert builder.has_room_for(WALL_MS, None, b"")


@given(OPTIONAL_BYTES, OPTIONAL_BYTES, st.integers(0, 3))
def test_the_upper_bound_covers_the_record_at_any_offset(
    key: bytes | None, value: bytes | None, headers: int
) -> None:
    named = (("name", b"value"),) * headers
    bound = estimate_size_in_bytes_upper_bound(key, value, named)
    builder = PlainRecordsBuilder(2**31)
    builder.append(2**62, key, value, named)
    assert builder.estimated_size_bytes <= bound
    before = builder.estimated_size_bytes
    builder.append(0, key, value, named)
    assert builder.estimated_size_bytes - before + HEADER_SIZE <= bound


# -- producer state ----------------------------------------------------------------------------------------


def idempotent(producer_id: int, epoch: int, sequence: int) -> MemoryRecordsBuilder:
    builder = PlainRecordsBuilder(1000)
    append_all(builder, [record()] * 3)
    builder.set_producer_state(producer_id, epoch, sequence)
    return builder


@pytest.mark.behaviour("REC-04")
def test_the_producer_state_is_in_the_batch() -> None:
    batch = decode_record_batch(idempotent(9809, 15, 2**31 - 2).build())
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9809, 15, 2**31 - 2)
    assert [r.sequence for r in batch.records()] == [2**31 - 2, 2**31 - 1, 0]


def test_an_invalid_epoch_or_sequence_is_refused_when_the_batch_is_built() -> None:
    with pytest.raises(IllegalArgumentError, match="Invalid negative producer epoch"):
        idempotent(9809, -1, 2342).build()
    with pytest.raises(IllegalArgumentError, match="Invalid negative sequence number used"):
        idempotent(9809, 15, -1).build()


def test_a_built_batch_does_not_take_another_state() -> None:
    builder = idempotent(1, 2, 3)
    builder.build()
    with pytest.raises(IllegalStateError, match="already closed batch"):
        builder.set_producer_state(1, 2, 4)


@pytest.mark.parametrize("was_built", [True, False])
def test_a_reopened_batch_has_the_same_records_under_another_state(was_built: bool) -> None:
    builder = idempotent(1, 2, 3)
    if was_built:
        builder.build()
    builder.reopen_and_rewrite_producer_state(1, 3, 0)
    assert not builder.is_built
    batch, fresh = builder.build(), idempotent(1, 3, 0).build()
    assert batch == fresh


def test_a_reopened_batch_is_not_packed_twice() -> None:
    builder = PlainRecordsBuilder(1000, compression=Halving())
    append_all(builder, [record(bytes(100))])
    builder.set_producer_state(1, 1, 0)
    size = len(builder.build())
    builder.reopen_and_rewrite_producer_state(1, 2, 0)
    assert len(builder.build()) == size


# -- giving up -----------------------------------------------------------------------------------------------


def test_an_aborted_batch_takes_and_builds_nothing() -> None:
    builder = PlainRecordsBuilder(1000)
    append_all(builder, [record()])
    builder.abort()
    builder.abort()
    assert append_all(builder, [record()]) == 0
    with pytest.raises(IllegalStateError, match="Attempting to build an aborted record batch"):
        builder.build()
    with pytest.raises(IllegalStateError, match="Should not reopen"):
        builder.reopen_and_rewrite_producer_state(1, 1, 0)


# -- one record by itself ------------------------------------------------------------------------------------

#: Sizes around those at which a varint gets longer, and beyond the tables.
SIZES = st.sampled_from([0, 1, 62, 63, 64, 65, 100, 4_094, 4_095, 4_096, 9_000])


@given(
    sizes=st.lists(st.tuples(st.none() | SIZES, SIZES, st.integers(0, 2)), min_size=1, max_size=8),
    codec=st.sampled_from([NO_COMPRESSION, Halving()]),
    ratio=st.sampled_from([0.05, 0.5, 1.0]),
    taken_before=st.sampled_from([0, 63, TABLE_SIZE - 2]),
)
def test_records_by_themselves_are_written_as_together(
    sizes: list[tuple[int | None, int, int]], codec: Compression, ratio: float, taken_before: int
) -> None:
    alone, together = (
        PlainRecordsBuilder(1 << 20, compression=codec, estimated_compression_ratio=ratio) for _ in range(2)
    )
    for builder in (alone, together):
        append_all(builder, [record(b"x")] * taken_before)
    for key_size, size, later_ms in sizes:
        one = record(bytes(size), None if key_size is None else bytes(key_size))
        before = alone.estimated_size_bytes
        took = alone.append_where_more_fits(one, size + (key_size or 0), WALL_MS + later_ms)
        assert took == alone.estimated_size_bytes - before
        together.append_many([one], [0], 0, WALL_MS + later_ms)
        assert alone.estimated_size_bytes == together.estimated_size_bytes
        assert alone.record_count == together.record_count
    assert alone.build() == together.build()


def test_a_record_that_might_be_the_last_to_fit_is_left_to_who_counts_exactly() -> None:
    builder = PlainRecordsBuilder(HEADER_SIZE + 200)
    assert builder.append_where_more_fits(record(bytes(100)), 100, WALL_MS)
    assert builder.append_where_more_fits(record(bytes(80)), 80, WALL_MS) is None
    assert builder.record_count == 1
    builder.close_for_record_appends()
    assert builder.append_where_more_fits(record(b""), 0, WALL_MS) is None


@pytest.mark.behaviour("REC-05")
def test_a_record_counts_unpacked_until_it_is_in_a_batch_that_packs_well() -> None:
    builder = PlainRecordsBuilder(
        HEADER_SIZE + 1000, compression=compression_of("gzip"), estimated_compression_ratio=0.5
    )
    append_all(builder, [record(bytes(900))])
    assert builder.estimated_size_bytes < HEADER_SIZE + 500
    assert not builder.has_room_for(WALL_MS, None, bytes(600))
    assert builder.append_where_more_fits(record(bytes(600)), 600, WALL_MS) is None
    assert builder.append_where_more_fits(record(bytes(400)), 400, WALL_MS)


# -- copies ------------------------------------------------------------------------------------------------


def mixed(draw: Random, count: int) -> list[ProducerRecord]:
    """Records of all forms: bodies of one to three bytes of length, timestamps that repeat, rise and fall."""
    keys = (None, b"", b"k", b"key" * 30)
    values = (None, b"", b"v", b"x" * 70, b"y" * 9_000)
    headers = ((), (("h", None),), (("a", b"1"), ("a", b"2" * 80)))
    times = (WALL_MS, WALL_MS, WALL_MS, WALL_MS + 1, WALL_MS - 100_000, WALL_MS + (1 << 40))
    return [
        record(
            draw.choices(values, (1, 1, 20, 5, 1))[0],
            draw.choice(keys),
            headers=draw.choices(headers, (8, 1, 1))[0],
            timestamp_ms=draw.choice(times),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_a_copy_of_some_records_has_the_bytes_that_appending_them_makes(seed: int) -> None:
    draw = Random(seed)
    records = [*mixed(draw, TABLE_SIZE * 2 + 99), record(headers=(("name", b"ends in no zero"),))]
    whole = PlainRecordsBuilder(1 << 30)
    assert append_all(whole, records) == len(records)
    cuts = sorted(draw.sample(range(len(records) + 1), 2 * draw.randint(1, 40)))
    kept = [range(*cut) for cut in zip(cuts[::2], cuts[1::2], strict=True)]
    copied, appended = PlainRecordsBuilder(1 << 30), PlainRecordsBuilder(1 << 30)
    whole.copy_to(copied, kept)
    append_all(appended, [records[position] for positions in kept for position in positions])
    for builder in (copied, appended):
        append_all(builder, records[:3])
    assert copied.uncompressed_size_bytes == appended.uncompressed_size_bytes
    places = range(copied.record_count)
    assert [copied.timestamps.at(n) for n in places] == [appended.timestamps.at(n) for n in places]
    assert copied.build() == appended.build()


def test_the_records_of_a_built_batch_are_not_copied() -> None:
    built, again = PlainRecordsBuilder(1 << 10), PlainRecordsBuilder(1 << 10)
    for builder in (built, again):
        append_all(builder, [record()])
        builder.build()
    again.reopen_and_rewrite_producer_state(1, 0, 0)
    for builder in (built, again):
        with pytest.raises(IllegalStateError, match="can't be copied"):
            builder.copy_to(PlainRecordsBuilder(1 << 10), [range(1)])


def test_the_upper_bound_allows_for_java_s_longest_overhead() -> None:
    assert estimate_size_in_bytes_upper_bound(None, b"") == HEADER_SIZE + 21 + 1 + 1 + 1


def test_records_of_one_timestamp_are_one_run_however_they_came() -> None:
    builder, copy = PlainRecordsBuilder(1 << 20), PlainRecordsBuilder(1 << 20)
    for _ in range(2):
        builder.append(WALL_MS, None, b"a")
        append_all(builder, [record(), record(b"b", b"k")])
        assert builder.append_where_more_fits(record(), 5, WALL_MS)
    assert builder.timestamps.before(100) == [(0, WALL_MS)]
    builder.copy_to(copy, [range(2), range(3, 5), range(7, 8)])
    assert copy.record_count == 5
    assert copy.timestamps.before(100) == [(0, WALL_MS)]
