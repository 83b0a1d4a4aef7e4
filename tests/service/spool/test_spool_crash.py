"""After a power cut the spool has all that it answered for, and no file is held open for nothing."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from client_core import IllegalStateError, TopicAuthorizationError
from service.base.disk import Disk
from service.spool import dead_letters as aside_module
from service.spool.dead_letters import FILE_BYTES, dead_letters_in
from service.spool.delivery import PAUSE_MS
from service.spool.folder import FolderError, FolderInUseError, SpoolFolder
from service.spool.requeue import Requeued
from tests.support.crash_disk import CrashDisk
from tests.support.spooling import SpoolRig, aside, failure, record, records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[SpoolRig]:
    rig = begun(tmp_path / "spool")
    yield rig
    rig.let_go()


def begun(folder: Path, **settings: Any) -> SpoolRig:
    """A spool on a disk whose power can be cut. Its folder is there: what mkdir made is on the disk."""
    (folder / "aside").mkdir(parents=True, exist_ok=True)
    rig = SpoolRig(folder, disk=CrashDisk(folder), **settings)
    return rig


def after_the_cut(rig: SpoolRig) -> SpoolRig:
    """The next process, after the machine is up again."""
    disk = rig.disk
    assert isinstance(disk, CrashDisk)
    rig.let_go()
    disk.cut_power()
    return begun(rig.folder)


def test_what_was_answered_is_there_after_a_power_cut(rig: SpoolRig) -> None:
    rig.spool_in(records(3))
    rig = after_the_cut(rig)
    rig.deliver()
    assert rig.sent == ["orders-0", "orders-1", "orders-2"]


def test_what_was_delivered_before_the_mark_is_not_delivered_again(rig: SpoolRig) -> None:
    rig.spool_in(records(3))
    rig.settle()
    rig = after_the_cut(rig)
    rig.deliver()
    assert (rig.sent, rig.spool.entries) == ([], 0)


def test_dead_letters_are_there_after_a_power_cut(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    rig.spool_in(records(3))
    rig.wait_out()
    rig.settle()
    rig = after_the_cut(rig)
    rig.deliver()
    assert (rig.sent, rig.spool.aside.records) == ([], 3)
    assert [value for value, _ in aside(rig)] == ["orders-0", "orders-1", "orders-2"]


def test_what_was_requeued_is_aside_no_more_after_a_power_cut(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    rig.spool_in(records(3))
    rig.wait_out()
    rig.producer.outcome_of = None
    ends: list[Requeued] = []
    rig.spool.requeue(lambda one: one.sequence != 2, ends.append)
    while not ends:
        rig.deliver()
        rig.spool.writer.turn()
    assert ends == [Requeued(2)]
    rig.settle()
    rig = after_the_cut(rig)
    rig.deliver()
    assert (rig.sent, [value for value, _ in aside(rig)]) == ([], ["orders-1"])


def test_a_file_of_dead_letters_that_was_taken_away_stays_away(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    rig.spool_in(records(3))
    rig.wait_out()
    rig.spool.aside.close()
    (file,) = dead_letters_in(rig.folder)
    rig.spool.aside.leave_only(file, [])
    rig.settle()
    rig = after_the_cut(rig)
    assert (rig.spool.aside.records, list(dead_letters_in(rig.folder))) == (0, [])


def test_a_torn_tail_that_was_cut_stays_cut(rig: SpoolRig) -> None:
    rig.spool_in(records(1))
    rig.let_go()
    path = rig.segments[0]
    path.write_bytes(path.read_bytes() + b"torn")
    whole = path.stat().st_size - 4
    again = begun(rig.folder)
    assert again.spool.segments.cut_bytes == 4
    assert open_files(rig.folder) == []
    again = after_the_cut(again)
    assert (again.spool.segments.cut_bytes, path.stat().st_size) == (0, whole)
    again.let_go()


def test_folders_that_are_made_are_on_the_disk(tmp_path: Path) -> None:
    synced: list[Path] = []
    folder = SpoolFolder(tmp_path / "var" / "spool", sync_folder=synced.append)
    folder.close()
    assert synced[:2] == [tmp_path / "var", tmp_path]
    synced.clear()
    SpoolFolder(tmp_path / "var" / "spool", sync_folder=synced.append).close()
    assert synced == []


def test_folders_of_a_process_that_ended_before_they_were_on_the_disk_are_synced_by_the_next(
    tmp_path: Path,
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(FolderError, match="Input/output error"):
        SpoolFolder(tmp_path / "var" / "spool", sync_folder=fail)
    assert (tmp_path / "var" / "spool").is_dir()
    synced: list[Path] = []
    SpoolFolder(tmp_path / "var" / "spool", sync_folder=synced.append).close()
    assert synced[:2] == [tmp_path / "var", tmp_path]


def test_a_folder_above_that_is_not_ours_to_read_keeps_nobody_from_starting(tmp_path: Path) -> None:
    def forbid(folder: Path) -> None:
        if folder != tmp_path:
            raise OSError(errno.EACCES, "Permission denied")

    SpoolFolder(tmp_path / "spool", sync_folder=forbid).close()
    (tmp_path / "held").mkdir()
    with pytest.raises(FolderError, match="Permission denied"):
        SpoolFolder(tmp_path / "held" / "spool", sync_folder=forbid)


def test_the_folder_of_dead_letters_is_on_the_disk_when_it_was_made(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    rig = SpoolRig(folder)
    assert rig.disk.synced == [folder]
    rig.let_go()


# -- descriptors ---------------------------------------------------------------------------------------------


def open_files(folder: Path) -> list[str]:
    """The files of the folder that this process holds open, without its lock."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(f"{folder}/") and not target.endswith("/lock"):
            found.append(target)
    return sorted(found)


def test_of_many_files_only_the_last_is_held_open(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool", spool_max_bytes=1_048_576)
    for n in range(10):
        rig.spool_in([record(f"{n}" + "x" * 40_000)])
    assert open_files(rig.folder) == [str(rig.segments[-1])]
    rig.let_go()


@pytest.mark.parametrize("fault", ["fsync", "write", "create", "sync_folder"])
def test_after_faults_of_the_disk_no_file_is_held_open_that_is_not_written_to(
    tmp_path: Path, fault: str
) -> None:
    rig = SpoolRig(tmp_path / "spool")
    for _ in range(5):
        rig.disk.fails[fault] = 1
        rig.spool_in(records(1))
        rig.spool_in(records(1))
    assert open_files(rig.folder) == [str(rig.segments[-1])]
    rig.let_go()


@pytest.mark.parametrize("file_bytes", [1, FILE_BYTES])
def test_a_file_of_dead_letters_is_held_open_while_it_is_written_to_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_bytes: int
) -> None:
    monkeypatch.setattr(aside_module, "FILE_BYTES", file_bytes)
    rig = SpoolRig(tmp_path / "spool")
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    for fault in ("fsync", "write", "sync_folder", "create"):
        rig.spool_in(records(1))
        rig.wait_out()
        rig.disk.fails[fault] = 1
        rig.spool_in(records(1))
        rig.wait_out()
    held = [path for path in open_files(rig.folder) if "/aside/" in path]
    assert len(held) == 1
    rig.spool.aside.leave_files()
    assert [path for path in open_files(rig.folder) if "/aside/" in path] == []
    rig.let_go()


def test_threads_that_have_ended_hold_nothing_open(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.spool.start(lambda function: function())
    reported = rig.submit(records(2))
    rig.spool.close(10_000)
    assert len(reported) == 1
    assert open_files(rig.folder) == []
    SpoolFolder(rig.folder).close()  # the lock is free, too


def test_a_folder_that_another_one_has_is_not_held_open(tmp_path: Path) -> None:
    folder = SpoolFolder(tmp_path / "spool")
    held = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FolderInUseError):
        SpoolFolder(tmp_path / "spool")
    assert len(os.listdir("/proc/self/fd")) == held
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    folder.close()


def test_the_disk_has_the_system_write_files_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    disk = Disk()
    descriptor = disk.create(tmp_path / "file")
    disk.fsync(descriptor)
    os.close(descriptor)
    disk.sync_folder(tmp_path)
    assert synced == [str(tmp_path / "file"), str(tmp_path)]


# -- numbers -------------------------------------------------------------------------------------------------


def test_each_process_begins_a_file_of_dead_letters_behind_those_there_are(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    for number in range(3):
        rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
        rig.spool_in([record(f"{number}")])
        rig.wait_out()
        rig.settle()
        rig = rig.again()
    numbers = [path.name.partition("-")[0] for path in sorted((rig.folder / "aside").iterdir())]
    assert [int(number) for number in numbers] == [1, 2, 3]
    rig.let_go()


@pytest.mark.parametrize("fault", ["create", "write"])
def test_what_can_not_be_written_is_counted(tmp_path: Path, fault: str) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.disk.fails[fault] = 1
    rig.spool_in(records(1))
    assert (rig.spool.writer.write_failures, rig.spool.writer.fsync_failures) == (1, 0)
    rig.let_go()


def test_a_topic_that_the_client_takes_nothing_of_is_looked_at_after_its_pause(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool")
    rig.producer.refuses = IllegalStateError("closed")
    rig.spool_in(records(1))
    now_ms = rig.clock.now_ms()
    assert rig.spool.delivery.turn(now_ms) == now_ms + PAUSE_MS
    rig.producer.refuses = None
    rig.deliver_after(PAUSE_MS)
    assert rig.sent == ["orders-0"]
    rig.let_go()
