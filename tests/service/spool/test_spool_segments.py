"""Spooled records as bytes in files: exactly the written records are read, whatever is damaged."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_core import EncodedHeaders, InvalidRecordError, ProducerRecord, TopicAuthorizationError
from service.base.disk import Disk
from service.spool.dead_letters import damaged_in, dead_letters_in
from service.spool.entry import (
    FRAME_BYTES,
    SALT_BYTES,
    VERSION,
    Entry,
    EntryError,
    Frame,
    entry_of,
    frame_at,
    frame_end,
    frame_of,
    most_bytes_of,
    new_salt,
    next_frame,
    payload_of,
)
from service.spool.reader import SpoolReader
from service.spool.segments import Segments
from service.spool.writer import Spooled
from tests.support.spooling import SpoolRig, failure, record, records, salt_of


def sent_after(folder: Path) -> list[str]:
    """What a process that starts now sends."""
    rig = SpoolRig(folder)
    rig.deliver()
    rig.let_go()
    return rig.sent


def written(folder: Path, count: int = 3) -> Path:
    """A spool of one file with that many records, one request each."""
    rig = SpoolRig(folder)
    for one in records(count):
        assert isinstance(rig.spool_in([one]), Spooled)
    rig.let_go()
    (path,) = rig.segments
    return path


def test_a_torn_tail_is_ignored_wherever_it_was_torn(tmp_path: Path) -> None:
    whole = written(tmp_path / "once").read_bytes()
    for cut in range(1, len(whole) // 3 + 1):
        folder = tmp_path / f"cut-{cut}"
        path = written(folder)
        path.write_bytes(path.read_bytes()[:-cut])
        assert sent_after(folder) == ["orders-0", "orders-1"]
        assert damaged_in(folder) == []


def test_a_tail_of_no_record_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for n, tail in enumerate((b"\x00" * 5_000, b"MARK\xff\xff\xff\xff", b"noise")):
        folder = tmp_path / f"{n}"
        path = written(folder)
        tail = tail.replace(b"MARK", salt_of(path)[:4])
        path.write_bytes(path.read_bytes() + tail)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert sent_after(folder) == ["orders-0", "orders-1", "orders-2"]
        assert [line.getMessage().partition(": ")[2] for line in caplog.records] == [
            f"00000000000000000001-0000000001 ends in the middle of a record: {len(tail)} bytes are ignored"
        ]
        assert damaged_in(folder) == []


def test_numbers_go_on_behind_a_torn_tail_and_nobody_reads_it(tmp_path: Path) -> None:
    path = written(tmp_path / "spool")
    path.write_bytes(path.read_bytes()[:-3])
    rig = SpoolRig(tmp_path / "spool")
    assert rig.spool_in([record("new")]) == Spooled(3, 1)
    assert rig.spool_in([record("newer")]) == Spooled(4, 1)
    rig.let_go()
    assert sent_after(rig.folder) == ["orders-0", "orders-1", "new", "newer"]
    assert damaged_in(rig.folder) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_flipped_bit_costs_no_record_but_its_own(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        path = written(Path(name) / "spool", 6)
        whole = bytearray(path.read_bytes())
        starts = [at for at in range(len(whole)) if whole.startswith(salt_of(path)[:4], at)]
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        hit = sum(start <= bit // 8 for start in starts) - 1
        whole[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(whole))
        assert sent_after(Path(name) / "spool") == [f"orders-{n}" for n in range(6) if n != hit]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_is_written_over_a_file_nothing_is_sent_that_was_not_spooled(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        path = written(Path(name) / "spool", 6)
        whole = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(whole) - 1))
        noise = data.draw(st.binary(min_size=1, max_size=80))
        whole[at : at + len(noise)] = noise
        path.write_bytes(bytes(whole))
        sent = sent_after(Path(name) / "spool")
        assert sent == sorted(set(sent) & {f"orders-{n}" for n in range(6)})


def test_a_damaged_file_is_quarantined_and_does_not_hold_up_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    rig = SpoolRig(folder)
    rig.spool_in(records(3))
    rig = rig.again()
    rig.spool_in([record("later")])
    first = rig.segments[0]
    damaged = bytearray(first.read_bytes())
    damaged[damaged.index(b"orders-1")] ^= 0xFF
    first.write_bytes(bytes(damaged))
    rig = rig.again()
    rig.deliver()
    assert rig.sent == ["orders-0", "orders-2", "later"]
    assert rig.spool.delivery.lost == 1
    rig.deliver_after(1_000)
    assert damaged_in(rig.folder) == [(f"{first.name}.damaged", len(damaged))]
    assert (folder / "aside" / f"{first.name}.damaged").read_bytes() == bytes(damaged)
    assert not first.exists()
    assert rig.spool.status(lambda _: True)["damaged_files"] == 1
    assert rig.again().spool.dead_letters.damaged_files == 1


def test_a_missing_file_is_logged_and_does_not_hold_up_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = SpoolRig(tmp_path / "spool")
    for value in ("a", "b", "c"):
        rig.spool_in([record(value)])
        rig = rig.again()
    rig.segments[1].unlink()
    rig.deliver()
    assert rig.sent == ["a", "c"]
    assert "1 records of it are lost" in caplog.text
    rig.deliver_after(1_000)
    assert len(rig.segments) == 1


def test_a_refused_record_that_was_left_behind_a_lost_one_is_not_read(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    ends = []
    for value in ("a", "b"):
        rig.spool_in([record(value)])
        ends.append(rig.segments[0].stat().st_size)
    rig.disk.fails.update(fsync=1, truncate=1)
    rig.spool_in([record("refused")])
    rig.spool_in([record("next")])
    whole = rig.segments[0].read_bytes()
    rig.segments[0].write_bytes(whole[: ends[0]] + whole[ends[1] :])
    rig = rig.again()
    rig.deliver()
    assert (rig.sent, rig.spool.delivery.lost) == (["a", "next"], 1)


def test_a_read_that_fails_for_a_while_loses_nothing_and_at_the_start_is_an_error(
    tmp_path: Path,
) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.spool_in(records(3))
    rig.disk.fails["read"] = 1
    rig.disk.errno = 24  # EMFILE
    with pytest.raises(OSError, match="no read here"):
        rig.spool.delivery.turn(rig.clock.now_ms())
    rig.deliver()
    assert rig.sent == ["orders-0", "orders-1", "orders-2"]
    rig.disk.fails["read"] = 2  # it is tried twice
    with pytest.raises(OSError, match="no read here"):
        Segments(rig.folder, rig.disk)


def test_a_last_file_that_the_disk_has_lost_keeps_no_sidecar_from_its_start(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    for value in ("a", "b", "c"):
        rig.spool_in([record(value)])
        if value == "a":
            rig = rig.again()
    size = rig.segments[-1].stat().st_size
    for failures, expected in ((1, 4), (2, 2 + size // FRAME_BYTES + 1)):  # it is tried twice
        rig.disk.fails["read"] = failures
        assert Segments(rig.folder, rig.disk).next_sequence == expected
    assert rig.segments[-1].stat().st_size == size


def test_a_file_that_only_looks_like_one_of_the_spool_is_left_alone(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.spool_in([record("a")])
    (rig.folder / f"{0:020d}-{9:010d}-{'0' * 16}.segment").mkdir()
    (rig.folder / f"{0:020d}-{9:010d}.segment").write_bytes(b"of an older format")
    (rig.folder / f"{'٣' * 20}-{9:010d}-{'0' * 16}.segment").write_bytes(b"other digits")
    (rig.folder / "lost+found").mkdir()
    rig = rig.again()
    rig.deliver()
    assert (rig.sent, rig.spool.delivery.lost) == (["a"], 0)


def test_records_larger_than_what_is_read_at_once_are_read(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    values = [f"{n}" * size for n, size in enumerate((10, 3_000_000, 20, 1_500_000, 30))]
    for value in values:
        rig.spool_in([record(value)])
    rig.deliver()
    assert rig.sent == values


def test_a_reader_may_begin_at_any_number(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    for first in (0, 4, 8):
        rig.spool_in(records(12)[first : first + 4])
        rig = rig.again()
    rig.let_go()
    segments = Segments(rig.folder, Disk())
    for sequence in range(1, 14):
        reader = SpoolReader(segments, sequence, lambda *_: pytest.fail("nothing is damaged"))
        found = [stored.sequence for stored in reader.read(13, 10**9)]
        assert found == list(range(sequence, 13))
        one_by_one = SpoolReader(segments, sequence, lambda *_: pytest.fail("nothing is damaged"))
        parts = [[stored.sequence for stored in one_by_one.read(13, 1)] for _ in range(14 - sequence)]
        assert parts == [*([n] for n in range(sequence, 13)), []]


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
def test_a_frame_is_found_after_any_bytes_before_it(before: bytes, payload: bytes) -> None:
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


def test_a_head_gives_the_end_of_its_frame_before_the_rest_is_there() -> None:
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


def test_a_payload_that_is_no_record_is_refused_and_a_later_version_of_the_format_named() -> None:
    for payload in (b"", b"\xc1", b"\x91\xa1x", payload_of(ProducerRecord("t"), 1)[:-1]):
        with pytest.raises(EntryError, match="not a spooled record"):
            entry_of(VERSION, payload)
    with pytest.raises(EntryError, match="version 2 of the format; this pilotfish reads 1"):
        entry_of(2, b"")


STOLEN = payload_of(ProducerRecord("secrets", b"stolen"), 1)


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    rig = SpoolRig(tmp_path / "spool")
    rig.producer.set_topics({"orders": 3, "secrets": 3})
    return rig


def holding(frame: bytes) -> ProducerRecord:
    """A record that its sender may send, with a frame in its value."""
    return ProducerRecord("orders", b"before" + frame + b"after")


def damage_before(path: Path, frame: bytes) -> None:
    """Spoils the bytes around a frame inside a record's value, but not the frame."""
    data = bytearray(path.read_bytes())
    at = data.index(frame)
    data[at - 3] ^= 0xFF
    path.write_bytes(bytes(data))


def spoiled(rig: SpoolRig, frame: bytes) -> SpoolRig:
    """The next process over a file of three records, of which the second, with this frame, is damaged."""
    for one in (holding(frame), record("last")):
        rig.spool_in([one])
    damage_before(rig.segments[0], frame)
    rig = rig.again()
    rig.producer.set_topics({"orders": 3, "secrets": 3})
    rig.deliver()
    return rig


def test_a_frame_in_a_value_is_not_delivered_where_the_bytes_before_it_are_damaged(rig: SpoolRig) -> None:
    rig.spool_in([record("first")])
    # All that a caller can know: the format, and which number comes next.
    rig = spoiled(rig, frame_of(bytes(SALT_BYTES), 2, STOLEN))
    assert rig.sent == ["first", "last"]
    assert rig.spool.delivery.lost == 1


def test_nor_is_one_that_was_made_for_an_earlier_file(rig: SpoolRig) -> None:
    rig.spool_in([record("first")])
    frame = frame_of(salt_of(rig.segments[0]), 2, STOLEN)
    rig = rig.again()
    rig.producer.set_topics({"orders": 3, "secrets": 3})
    rig.spool_in([holding(frame), record("last")])
    damage_before(rig.segments[1], frame)
    rig.deliver()
    assert (rig.sent, rig.spool.delivery.lost) == (["first", "last"], 1)


def test_only_with_the_salt_of_its_file_it_would_be_one(rig: SpoolRig) -> None:
    """The two tests above rely on this: the rest of the frame is valid."""
    rig.spool_in([record("first")])
    rig = spoiled(rig, frame_of(salt_of(rig.segments[0]), 2, STOLEN))
    assert rig.sent.count("stolen") == 1


def test_a_frame_of_one_file_is_none_in_another_and_both_halves_of_the_salt_are_looked_at(
    rig: SpoolRig,
) -> None:
    rig.spool_in([record("a")])
    rig = rig.again()
    rig.spool_in([record("b")])
    first, second = rig.segments
    assert salt_of(first) != salt_of(second)
    assert frame_at(salt_of(first), first.read_bytes(), 0) is not None
    assert frame_at(salt_of(second), first.read_bytes(), 0) is None
    assert next_frame(salt_of(second), first.read_bytes() + second.read_bytes(), 0) is not None
    assert next_frame(salt_of(second), first.read_bytes() * 2, 0) is None
    salt = new_salt()
    for half in (0, SALT_BYTES // 2):
        other = bytearray(salt)
        other[half] ^= 1
        assert frame_at(bytes(other), frame_of(salt, 1, STOLEN), 0) is None


def test_requeueing_ignores_a_frame_inside_a_value(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    frame = frame_of(bytes(SALT_BYTES), 1, STOLEN)
    rig.spool_in([holding(frame), record("second")])
    rig.wait_out()
    (path,) = (rig.folder / "aside").glob("*.records")
    damage_before(path, frame)
    path.write_bytes(frame_of(salt_of(path), 3, b"of the future") + path.read_bytes())
    ((left,),) = [file.records for file in dead_letters_in(rig.folder)]
    assert left.sequence == 2
    # Taken away meanwhile, it is begun anew.
    path.unlink()
    rig.spool_in([record("b")])
    rig.wait_out()
    ((left,),) = [file.records for file in dead_letters_in(rig.folder)]
    assert left.sequence == 3


def test_a_brokers_message_is_kept_shortened(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError("no" * 5_000))
    rig.spool_in([record(f"{n}") for n in range(3)])
    rig.wait_out()
    assert rig.spool.dead_letters.total_bytes < 1_500


def test_a_value_holds_no_heads_of_frames(rig: SpoolRig) -> None:
    """After damage each head's bytes are summed up to its length: many large lengths would take hours."""
    rig.spool_in([record("first")])
    heads = b"\xf5PFS\x00\x0f\x00\x00" * 10_000
    rig.spool_in([ProducerRecord("orders", heads)])
    data = rig.segments[0].read_bytes()
    assert data.count(salt_of(rig.segments[0])[: SALT_BYTES // 2]) == 2


def test_no_log_contains_the_salt(rig: SpoolRig, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        rig.spool_in([record("first")])
        salt = salt_of(rig.segments[0])
        rig = spoiled(rig, frame_of(bytes(SALT_BYTES), 2, STOLEN))
        path = rig.segments[0]
        path.write_bytes(path.read_bytes() + b"torn")
        rig.again().let_go()
    assert "is damaged" in caplog.text
    assert "4 bytes are ignored" in caplog.text
    assert salt.hex() not in caplog.text


def test_however_many_records_and_topics_are_dead_lettered_they_are_in_few_files(rig: SpoolRig) -> None:
    topics = {f"topic-{number}": 1 for number in range(300)}
    rig.producer.set_topics(topics)
    rig.producer.outcome_of = lambda *_: failure(InvalidRecordError())
    rig.spool_in([record("x", topic) for topic in topics])
    rig.wait_out()
    assert rig.spool.dead_letters.records == 300
    assert len(list((rig.folder / "aside").iterdir())) == 1
