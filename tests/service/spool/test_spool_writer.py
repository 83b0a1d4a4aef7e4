"""Records into the spool: one fsync for many, and their outcome when the disk fails."""

from __future__ import annotations

import errno
import logging
import re
import stat
import threading
from queue import Queue
from typing import TYPE_CHECKING

import pytest

from client_core import InvalidTopicError, NotEnoughReplicasError, ProducerRecord
from service.base.settings_sources import SettingsError
from service.spool.entry import most_bytes_of
from service.spool.requeue import Requeued
from service.spool.writer import QUEUE_BYTES, SpoolClosedError, Spooled, SpoolFault, SpoolFullError
from tests.support.spooling import SpoolRig, failure, record, records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.spooling import BadDisk


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    return SpoolRig(tmp_path / "spool")


def fail(disk: BadDisk, **times: int) -> None:
    disk.fails.update(times)


def refused(reported: Spooled | SpoolFault) -> SpoolFault:
    assert isinstance(reported, SpoolFault), reported
    return reported


def undelivered(rig: SpoolRig) -> list[str]:
    """What the next process would send."""
    later = rig.again()
    later.deliver()
    later.let_go()
    return later.sent


def test_all_requests_that_wait_share_one_fsync(rig: SpoolRig) -> None:
    reported = [rig.submit([record(f"{n}")]) for n in range(5)]
    before = rig.disk.fsyncs
    assert (reported, rig.spool.entries) == ([[]] * 5, 0)  # nothing is reported before it
    rig.spool.writer.turn()
    assert rig.disk.fsyncs - before == 1
    assert (reported, rig.spool.entries) == ([[Spooled(n, 1)] for n in range(1, 6)], 5)
    assert rig.spool_in(records(3)) == Spooled(6, 3)


def test_files_are_their_owners_alone(rig: SpoolRig) -> None:
    rig.spool_in(records(1))
    assert stat.S_IMODE(rig.folder.stat().st_mode) == 0o700
    modes = {stat.S_IMODE(path.stat().st_mode) for path in rig.folder.iterdir() if path.is_file()}
    assert modes == {0o600}


def test_after_a_failed_fsync_all_of_the_group_are_refused_and_a_new_file_begins(rig: SpoolRig) -> None:
    assert rig.spool_in([record("kept")]) == Spooled(1, 1)
    reported = [rig.submit([record("lost-1")]), rig.submit([record("lost-2")])]
    fail(rig.disk, fsync=1)
    rig.spool.writer.turn()
    for one in reported:
        assert refused(one[0]).written == "no"
    assert rig.spool_in([record("next")]) == Spooled(2, 1)
    assert [path.name.rpartition("-")[0] for path in rig.segments] == [
        "00000000000000000001-0000000001",
        "00000000000000000002-0000000002",
    ]
    assert undelivered(rig) == ["kept", "next"]


def test_what_failed_is_void_where_its_file_can_not_even_be_cut_and_unknown_without_a_new_one(
    tmp_path: Path,
) -> None:
    for name, fails, room_bytes, written in (
        ("no fsync", {"fsync": 1, "truncate": 1}, None, "no"),
        ("no new file", {"fsync": 1, "truncate": 1, "create": 1}, None, "unknown"),
        ("no room", {"truncate": 2}, 2_000, "no"),
    ):
        rig = SpoolRig(tmp_path / name)
        rig.spool_in([record("kept")])
        rig.disk.room_bytes = room_bytes
        fail(rig.disk, **fails)
        assert refused(rig.spool_in(records(100))).written == written, name
        assert b"orders-0" in rig.segments[0].read_bytes(), name
        rig.disk.room_bytes = None
        assert rig.spool_in([record("next")]) == Spooled(2, 1), name
        assert undelivered(rig) == ["kept", "next"], name


def test_a_disk_that_fails_for_long_is_not_filled_with_files(rig: SpoolRig) -> None:
    for n in range(20):
        fail(rig.disk, fsync=1)
        assert isinstance(rig.spool_in([record(f"{n}")]), SpoolFault)
    assert (len(rig.segments), rig.disk.open_files) == (1, 1)


def test_a_full_disk_is_a_refusal_of_which_nothing_stays(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.spool_in([record("kept")])
    size = rig.segments[0].stat().st_size
    rig.disk.room_bytes, before = 100, rig.disk.fsyncs
    with caplog.at_level(logging.INFO):
        reported = refused(rig.spool_in(records(30)))
        assert reported == SpoolFault("the spool could not store the records: the disk is full", "no")
        assert (rig.segments[0].stat().st_size, rig.disk.fsyncs - before) == (
            size,
            1,
        )  # the cut is on the disk
        refused(rig.spool_in(records(30)))  # the same again, which is not said again
        rig.disk.room_bytes = None
        assert rig.spool_in([record("next")]) == Spooled(2, 1)
        rig.spool_in([record("last")])
    assert undelivered(rig) == ["kept", "next", "last"]
    said = [r.message for r in caplog.records if r.name.startswith("service.spool.writer")]
    assert [line.split(" in ")[0] for line in said] == ["spool: can't write", said[-1]]
    assert said[-1].endswith("can be written to again")


def test_after_somebody_deleted_its_file_a_new_one_takes_the_next_records(rig: SpoolRig) -> None:
    rig.spool_in([record("deleted")])
    rig.segments[0].unlink()
    for sequence, name in ((2, "next"), (3, "last")):
        assert rig.spool_in([record(name)]) == Spooled(sequence, 1)
    assert (len(rig.segments), rig.disk.open_files) == (1, 1)
    assert undelivered(rig) == ["next", "last"]


def test_a_file_that_can_not_be_begun_is_a_refusal(rig: SpoolRig) -> None:
    rig.disk.errno = errno.EDQUOT
    fail(rig.disk, create=1)
    assert "the disk is full" in refused(rig.spool_in([record("a")])).detail
    rig.disk.errno = errno.EIO
    fail(rig.disk, sync_folder=1)
    said = "the spool could not store the records: begin a file: no sync_folder here"
    assert refused(rig.spool_in([record("b")])) == SpoolFault(said, "no")
    assert (rig.segments, rig.disk.open_files) == ([], 0)
    assert rig.spool_in([record("c")]) == Spooled(1, 1)


def test_the_spool_is_bounded_and_says_by_which_setting(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool", spool_max_bytes=1024 * 1024)
    large = record("x" * 400_000)
    rig.submit([large])
    rig.submit([large])
    with pytest.raises(SpoolFullError, match=r"spool_max_bytes \(1048576\)"):
        rig.submit([large])
    rig.spool.writer.turn()
    with pytest.raises(SpoolFullError):
        rig.submit([large])
    assert isinstance(rig.spool_in([record("small")]), Spooled)
    assert rig.spool.bytes <= 1024 * 1024


def test_records_that_wait_for_a_disk_that_hangs_are_bounded_too(rig: SpoolRig) -> None:
    large = record("x" * (QUEUE_BYTES // 4))
    for _ in range(3):
        rig.submit([large])
    with pytest.raises(SpoolFullError, match="the disk of the spool is behind"):
        rig.submit([large])
    for _ in range(3):
        rig.spool.writer.turn()
    assert isinstance(rig.spool_in([large]), Spooled)
    # One that is larger than what may wait is taken where none waits.
    assert isinstance(rig.spool_in([record("x" * (QUEUE_BYTES + 1))]), Spooled)


def test_room_comes_back_with_what_is_delivered(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool", spool_max_bytes=1024 * 1024)
    for n in range(30):
        rig.spool_in([record(f"{n}" * 50_000)])
        rig.deliver_after(1_000)
    assert len(rig.segments) <= 2
    assert len(rig.sent) == 30


def test_a_large_group_is_parted_so_that_the_first_need_not_wait_for_all(rig: SpoolRig) -> None:
    half = 2 * 1024 * 1024 - most_bytes_of(record(""))
    for more, first in ((0, [1, 1, 0, 0]), (1, [1, 0, 0, 0])):
        reported = [rig.submit([record("x" * (half + more))]) for _ in range(4)]
        rig.spool.writer.turn()
        assert [len(one) for one in reported] == first
        while not reported[-1]:
            rig.spool.writer.turn()


def test_each_request_wakes_the_writer_and_once_closed_it_takes_nothing(rig: SpoolRig) -> None:
    rig.spool.writer.start()
    for n in range(20):  # the writer waits by then, or is about to
        written = threading.Event()
        rig.spool.submit([record(f"{n}")], lambda _, written=written: written.set())  # type: ignore[misc]
        assert written.wait(60)
    reported = rig.submit([record("a")])
    assert rig.spool.writer.close(10_000)
    assert reported == [Spooled(21, 1)]
    with pytest.raises(SpoolClosedError):
        rig.submit([record("b")])


def test_an_exception_ends_the_turn_and_its_group_gets_an_unknown_outcome(
    rig: SpoolRig,
) -> None:
    reported = rig.submit([ProducerRecord("orders", b"x" * (QUEUE_BYTES // 2), partition=object())])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        rig.spool.writer.turn()
    assert reported == [SpoolFault("an unexpected exception; the log has the stack", "unknown")]
    for _ in range(2):  # what was queued waits no more
        rig.submit([record("x" * (QUEUE_BYTES // 2 - 200))])


def test_results_are_reported_through_the_event_loop(rig: SpoolRig) -> None:
    calls: Queue[Callable[[], None]] = Queue()
    rig.spool.start(calls.put)
    reported = rig.submit(records(1))
    report = calls.get(timeout=60)
    assert reported == []
    report()
    assert reported == [Spooled(1, 1)]
    ends: list[Requeued] = []
    assert rig.spool.requeue(lambda _: True, ends.append)
    end = calls.get(timeout=60)
    assert ends == []
    end()
    assert ends == [Requeued(0)]
    rig.spool.close(10_000)


def test_remaining_records_are_logged_at_the_start_and_at_the_end(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "service.spool.spool")

    def logged() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.name == "service.spool.spool"]

    rig.spool.start(lambda function: function())
    rig.spool.close(10_000)
    assert logged() == []
    rig = rig.again()
    rig.producer.outcome_of = lambda *_: failure(NotEnoughReplicasError())
    rig.spool_in(records(2))
    rig.spool.start(lambda function: function())
    rig.spool.close(10_000)
    assert logged() == [
        f"spool: 2 records of {rig.folder} are to be delivered",
        f"spool: 2 records stay in {rig.folder} for the next start",
    ]


def test_one_callers_fault_costs_the_others_nothing(rig: SpoolRig, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: object) -> None:
        raise ValueError("a bug")

    rig.spool.submit([record("a")], fails)
    reported = rig.submit([record("b")])
    rig.spool.writer.turn()
    assert reported == [Spooled(2, 1)]
    assert "a request's callback failed" in caplog.text


def test_two_never_share_a_folder_and_one_that_can_not_be_made_is_named_with_the_remedy(
    rig: SpoolRig, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"spool_folder: another process uses .* end the other one first"):
        SpoolRig(rig.folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="name a folder in which this process may make files"):
        SpoolRig(tmp_path / "file" / "spool")


def test_no_topic_is_part_of_a_files_name(tmp_path: Path) -> None:
    for n, topic in enumerate(("../../etc/passwd", "/etc/passwd", "..", "a\nb", "\x1b[2J", "ß" * 200)):
        rig = SpoolRig(tmp_path / f"{n}" / "spool")
        rig.producer.refuses = InvalidTopicError("no such name")
        rig.spool_in([record("a", topic)])
        rig.deliver()
        (path,) = (rig.folder / "aside").iterdir()
        assert re.fullmatch(r"0{19}1-[0-9a-f]{16}\.records", path.name), topic
        assert [path.name for path in rig.folder.parent.iterdir()] == ["spool"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{n}" for n in range(6)]
