"""Spooled records as bytes: what is written is read, and nothing else ever is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import EncodedHeaders, ProducerRecord
from service.spool.entry import (
    FRAME_BYTES,
    VERSION,
    Entry,
    EntryError,
    Frame,
    entry_of,
    frame_at,
    frame_end,
    frame_of,
    most_bytes_of,
    next_frame,
    payload_of,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
BYTES = st.none() | st.binary(max_size=64)
SALT = b"\x8e\x01\xfesalty"
RECORDS = st.builds(
    ProducerRecord,
    topic=TEXT,
    value=BYTES,
    key=BYTES,
    partition=st.none() | st.integers(0, 2**31 - 1),
    timestamp_ms=st.none() | st.integers(0, 2**63 - 1),
    headers=st.lists(st.tuples(TEXT, BYTES), max_size=3).map(tuple),
)


def test_a_frame_is_laid_out_as_the_module_says() -> None:
    frame = frame_of(SALT, 17, b"xyz")
    assert frame[:4] == SALT[:4]
    assert frame[4:8] == (8 + 1 + 3).to_bytes(4, "big")  # sequence, version, payload
    assert frame[12:20] == (17).to_bytes(8, "big")
    assert frame[20:21] == b"\x01"
    assert frame[21:] == b"xyz"
    assert len(frame) == FRAME_BYTES + 3


@given(RECORDS, st.integers(0, 2**60), st.integers(0, 2**64 - 1))
def test_a_record_comes_back_as_it_was(record: ProducerRecord, wall_ms: int, sequence: int) -> None:
    data = frame_of(SALT, sequence, payload_of(record, wall_ms))
    frame = frame_at(SALT, data, 0)
    assert frame is not None
    assert (frame.sequence, frame.version, frame.end) == (sequence, VERSION, len(data))
    assert entry_of(frame.version, frame.payload) == Entry(record, wall_ms)


@given(RECORDS, st.integers(0, 2**60))
def test_a_frame_is_never_larger_than_it_was_counted(record: ProducerRecord, wall_ms: int) -> None:
    frame_bytes = len(frame_of(SALT, 2**64 - 1, payload_of(record, wall_ms)))
    assert frame_bytes <= most_bytes_of(record)
    assert frame_bytes <= most_bytes_of(record._replace(headers=EncodedHeaders(record.headers)))


@given(RECORDS, st.data())
def test_a_frame_with_any_bit_flipped_is_none(record: ProducerRecord, data: st.DataObject) -> None:
    whole = bytearray(frame_of(SALT, 5, payload_of(record, 9)))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert frame_at(SALT, bytes(whole), 0) is None


def test_a_frame_cut_anywhere_is_none() -> None:
    whole = frame_of(SALT, 5, payload_of(ProducerRecord("orders", b"value", b"key"), 9))
    assert [cut for cut in range(len(whole)) if frame_at(SALT, whole[:cut], 0) is not None] == []


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_frame_is_found_behind_whatever_stands_before_it(before: bytes, payload: bytes) -> None:
    frame = frame_of(SALT, 3, payload)
    found = next_frame(SALT, before + frame, 0)
    assert found is not None
    at, there = found
    assert (at, there.payload) == (len(before), payload)


def test_a_frame_is_found_where_its_marker_begins_inside_of_what_looks_like_one() -> None:
    salt = b"\x8e" * len(SALT)
    frame = frame_of(salt, 3, b"")
    assert [next_frame(salt, b"\x8e" * n + frame, 0) for n in range(6)] == [
        (n, Frame(3, VERSION, b"", n + len(frame))) for n in range(6)
    ]


def test_a_head_tells_where_its_frame_ends_before_the_rest_is_there() -> None:
    frame = frame_of(SALT, 3, b"xyz")
    assert [frame_end(SALT, b"--" + frame[:there], 2) for there in (11, 12)] == [None, 2 + len(frame)]
    too_short = frame[:4] + (8).to_bytes(4, "big") + frame[8:]  # not even sequence and version
    assert frame_end(SALT, too_short, 0) is None


def test_a_value_that_looks_like_the_beginning_of_a_frame_is_none() -> None:
    data = SALT[:4] + bytes(30) + frame_of(SALT, 4, SALT[:4] + b"\x00\x00\x00\x09")
    found = next_frame(SALT, data, 0)
    assert found is not None
    assert found[0] == 34
    assert next_frame(SALT, data, 35) is None


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x91\xa1x", payload_of(ProducerRecord("t"), 1)[:-1]])
def test_a_payload_that_is_no_record_is_refused(payload: bytes) -> None:
    with pytest.raises(EntryError, match="not a spooled record"):
        entry_of(VERSION, payload)


def test_a_later_version_of_the_format_is_named() -> None:
    with pytest.raises(EntryError, match="version 2 of the format; this pilotfish reads 1"):
        entry_of(2, b"")
