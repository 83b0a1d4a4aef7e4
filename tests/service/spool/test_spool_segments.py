"""What a killed process and a bad disk leave in the files of the spool, and what the next one makes of it."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.base.disk import Disk
from service.spool.dead_letters import damaged_in
from service.spool.entry import FRAME_BYTES
from service.spool.reader import SpoolReader
from service.spool.segments import Segments
from service.spool.writer import Spooled
from tests.support.spooling import SpoolRig, record, records, salt_of


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


def test_a_torn_tail_is_cut_wherever_it_was_torn(tmp_path: Path) -> None:
    whole = written(tmp_path / "once").read_bytes()
    for cut in range(1, len(whole) // 3 + 1):
        folder = tmp_path / f"cut-{cut}"
        path = written(folder)
        whole = path.read_bytes()
        third = whole.rindex(salt_of(path)[:4])
        path.write_bytes(whole[:-cut])
        assert sent_after(folder) == ["orders-0", "orders-1"]
        assert path.read_bytes() == whole[:third]


@pytest.mark.parametrize("tail", [b"\x00" * 5_000, b"MARK\xff\xff\xff\xff", b"noise"])
def test_a_tail_of_no_record_is_cut(tmp_path: Path, tail: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "spool")
    tail = tail.replace(b"MARK", salt_of(path)[:4])
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    with caplog.at_level(logging.WARNING):
        assert sent_after(tmp_path / "spool") == ["orders-0", "orders-1", "orders-2"]
    assert path.read_bytes() == whole
    assert f"{len(tail)} bytes cut off" in caplog.text


def test_numbers_go_on_behind_a_cut_tail(tmp_path: Path) -> None:
    path = written(tmp_path / "spool")
    path.write_bytes(path.read_bytes()[:-3])
    rig = SpoolRig(tmp_path / "spool")
    assert rig.spool_in([record("new")]) == Spooled(3, 1)
    rig.let_go()
    assert sent_after(rig.folder) == ["orders-0", "orders-1", "new"]


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


def test_a_damaged_file_is_set_aside_and_does_not_hold_up_the_next(tmp_path: Path) -> None:
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
    assert rig.again().spool.aside.damaged_files == 1


def test_a_file_that_is_gone_is_told_and_does_not_hold_up_the_next(
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


def test_a_read_that_fails_for_a_reason_that_passes_loses_nothing(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.spool_in(records(3))
    rig.disk.fails["read"] = 1
    rig.disk.errno = 24  # EMFILE
    with pytest.raises(OSError, match="no read here"):
        rig.spool.delivery.turn(rig.clock.now_ms())
    rig.deliver()
    assert rig.sent == ["orders-0", "orders-1", "orders-2"]


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


def test_a_start_that_fails_for_a_reason_that_passes_is_told(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.spool_in([record("a")])
    rig.disk.fails["read"] = 2  # it is tried twice
    rig.disk.errno = 24  # EMFILE
    with pytest.raises(OSError, match="no read here"):
        Segments(rig.folder, rig.disk)


def test_what_only_looks_like_a_file_of_the_spool_is_left_alone(tmp_path: Path) -> None:
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
