"""Events in files: whole lines under names without a dot, rotated and kept to a number; full disks."""

from __future__ import annotations

import errno
import json
import logging
from typing import TYPE_CHECKING

import pytest

from service.base.settings_sources import SettingsError
from service.events.event_files import EventFiles, FileLimits
from service.events.event_v1 import Origin
from service.events.outbox import Line, Outbox
from tests.support.crash_disk import SHORT, CrashDisk, State
from tests.support.spooling import BadDisk

if TYPE_CHECKING:
    from pathlib import Path

ORIGIN = Origin("pod-1", "shop", 0xB007)
LIMITS = FileLimits(max_bytes=1_000, max_age_ms=60_000, files=100)
STEM = "events-pod-1-000000000000b007"


class Desk:
    """Files in a folder, and an outbox for them."""

    def __init__(self, folder: Path, origin: Origin = ORIGIN, **limits: int) -> None:
        self.folder = folder
        self.outbox = Outbox(100_000)
        self.files = EventFiles(str(folder), origin, LIMITS._replace(**limits))
        self.files.begin()

    def write(self, *texts: str, now_ms: int = 0) -> None:
        for text in texts:
            self.outbox.put(Line(text.encode()))
        self.files.turn(self.outbox, now_ms)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def lines(self) -> list[str]:
        return [line for name in self.names() for line in (self.folder / name).read_text().splitlines()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_file_has_a_dot_while_it_is_written_and_none_at_the_end(desk: Desk) -> None:
    desk.write("one", "two")
    assert desk.names() == [f".{STEM}-000001.jsonl"]
    assert desk.lines() == ["one", "two"]  # they are in the system's hands at once
    desk.files.close(desk.outbox, 0)
    assert desk.names() == [f"{STEM}-000001.jsonl"]
    assert desk.lines() == ["one", "two"]
    assert desk.files.written == 2


def test_where_nothing_was_told_there_is_no_file(desk: Desk) -> None:
    desk.write()
    desk.files.close(desk.outbox, 0)
    assert desk.names() == []


def test_a_full_file_is_finished_and_the_next_begun(desk: Desk) -> None:
    texts = [f"{n:03d}" + "." * 197 for n in range(12)]
    for text in texts:
        desk.write(text)
    assert desk.names() == [f".{STEM}-000003.jsonl", f"{STEM}-000001.jsonl", f"{STEM}-000002.jsonl"]
    assert all((desk.folder / name).stat().st_size <= 1_000 for name in desk.names())
    desk.files.close(desk.outbox, 0)
    assert desk.lines() == texts


def test_many_lines_at_once_go_into_files_of_the_same_size(desk: Desk) -> None:
    texts = [f"{n:03d}" + "." * 97 for n in range(40)]
    desk.write(*texts)
    desk.files.close(desk.outbox, 0)
    assert desk.lines() == texts
    assert all((desk.folder / name).stat().st_size <= 1_010 for name in desk.names())


def test_a_file_that_is_old_is_finished_even_if_nothing_comes(desk: Desk) -> None:
    desk.write("one", now_ms=5_000)
    desk.write(now_ms=64_999)
    assert desk.names() == [f".{STEM}-000001.jsonl"]
    desk.write(now_ms=65_000)
    assert desk.names() == [f"{STEM}-000001.jsonl"]
    desk.write("two", now_ms=66_000)
    assert desk.names() == [f".{STEM}-000002.jsonl", f"{STEM}-000001.jsonl"]


def test_only_so_many_finished_files_are_kept_and_only_ours_are_deleted(tmp_path: Path) -> None:
    others = [
        "events-pod-1-x-000000000000b007-000001.jsonl",
        "events-pod-2-000000000000b007-000001.jsonl",
        "events-pod-1-000000000000b007-000001.jsonl.gz",
        "notes.txt",
    ]
    for name in (*others, "events-pod-1-000000000000a000-000009.jsonl"):
        (tmp_path / name).write_text("{}\n")
    desk = Desk(tmp_path, files=2)
    for n in range(3):
        desk.write("one", now_ms=n * 100_000)
    desk.files.close(desk.outbox, 0)
    assert set(desk.names()) == {*others, f"{STEM}-000002.jsonl", f"{STEM}-000003.jsonl"}
    assert desk.files.deleted == 2


def test_the_millionth_file_is_younger_than_the_one_before_it(tmp_path: Path) -> None:
    for number in (999_999, 1_000_000):
        (tmp_path / f"{STEM}-{number}.jsonl").write_text("{}\n")
    assert Desk(tmp_path, files=1).names() == [f"{STEM}-1000000.jsonl"]


# -- what an earlier start left ------------------------------------------------------------------------------


def test_what_a_killed_sidecar_left_is_finished_without_its_half_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left = tmp_path / ".events-pod-1-000000000000a000-000003.jsonl"
    left.write_text('{"v":1}\n{"v":2}\n{"v":')
    desk = Desk(tmp_path)
    assert desk.names() == ["events-pod-1-000000000000a000-000003.jsonl"]
    assert [json.loads(line) for line in desk.lines()] == [{"v": 1}, {"v": 2}]
    assert "5 bytes cut off" in caplog.text


@pytest.mark.parametrize("text", ["", '{"v":'])
def test_of_one_that_holds_no_line_nothing_stays(tmp_path: Path, text: str) -> None:
    (tmp_path / ".events-pod-1-000000000000a000-000003.jsonl").write_text(text)
    assert Desk(tmp_path).names() == []


def test_a_long_half_line_is_cut_off_too(tmp_path: Path) -> None:
    (tmp_path / ".events-pod-1-000000000000a000-000003.jsonl").write_text("whole\n" + "x" * 700_000)
    assert Desk(tmp_path).lines() == ["whole"]


def test_files_of_other_sidecars_are_left_alone(tmp_path: Path) -> None:
    names = [
        ".events-pod-1-x-000000000000a000-000003.jsonl",
        ".events-pod-2-000000000000a000-000003.jsonl",
        ".hidden",
    ]
    for name in names:
        (tmp_path / name).write_text("one\n")
    assert Desk(tmp_path).names() == names


def test_a_file_that_another_process_is_writing_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Desk(tmp_path)
    first.write("one")
    second = Desk(tmp_path, ORIGIN._replace(boot_id=0xB008))
    assert first.names() == [f".{STEM}-000001.jsonl"]
    assert "two sidecars have one sidecar_id" in caplog.text
    second.write("two")
    for desk in (first, second):
        desk.files.close(desk.outbox, 0)
    assert first.lines() == ["one", "two"]


# -- folders and disks ---------------------------------------------------------------------------------------


def test_a_folder_that_is_missing_is_made(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "a" / "b")
    desk.write("one")
    assert desk.lines() == ["one"]


def test_a_folder_that_can_not_be_used_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        SettingsError, match=r"^events_folder: can't write files into .*file.*; name a folder"
    ):
        Desk(tmp_path / "file")


def small_disk(room_bytes: int) -> BadDisk:
    """A disk that takes only so many bytes more: a write is cut short, the next one fails."""
    disk = BadDisk()
    disk.room_bytes = room_bytes
    return disk


def test_on_a_full_disk_events_wait_and_no_half_line_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = small_disk(10)
    files = EventFiles(str(tmp_path), ORIGIN, LIMITS, disk)
    outbox = Outbox(100)
    for text in ("first", "second", "third"):
        outbox.put(Line(text.encode()))
        files.turn(outbox, 0)
    (path,) = tmp_path.iterdir()
    assert path.read_text() == "first\n"
    assert (len(outbox), files.written) == (2, 1)
    assert caplog.text.count("No space left on device; events wait") == 1
    disk.room_bytes = 1_000
    files.turn(outbox, 0)
    assert path.read_text() == "first\nsecond\nthird\n"
    assert "can be written to again" in caplog.text
    files.close(outbox, 0)


def test_a_disk_that_stays_full_costs_the_oldest_events_only(tmp_path: Path) -> None:
    files = EventFiles(str(tmp_path), ORIGIN, LIMITS, small_disk(0))
    outbox = Outbox(10)
    for n in range(20):
        outbox.put(Line(b"%03d" % n))
        files.turn(outbox, 0)
    assert (len(outbox), outbox.dropped) == (3, 17)
    files.close(outbox, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_taken_away_is_told_and_costs_no_turn(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.write("one")
    for path in desk.folder.iterdir():
        path.unlink()
    desk.folder.rmdir()
    desk.files.close(desk.outbox, 0)
    assert "No such file or directory" in caplog.text


# -- every call to the disk fails once -----------------------------------------------------------------------


def play(folder: Path, disk: CrashDisk) -> list[str]:
    """A file that was left is finished, three are written, and the next start finishes what is left."""
    folder.mkdir(exist_ok=True)
    disk.append_new(folder / ".events-pod-1-000000000000a000-000001.jsonl", b"left\nhalf")
    outbox = Outbox(100_000)
    texts = [f"{n}" + "." * 400 for n in range(6)]
    files = EventFiles(str(folder), ORIGIN, LIMITS, disk)
    files.begin()
    for n, text in enumerate(texts):
        outbox.put(Line(text.encode()))
        files.turn(outbox, n)
    files.turn(outbox, 10)
    files.close(outbox, 20)
    assert len(outbox) == 0
    EventFiles(str(folder), ORIGIN._replace(boot_id=0xB009), LIMITS).begin()
    return ["left", *texts]


def test_any_call_to_the_disk_may_fail_once_and_no_line_is_lost_or_broken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = CrashDisk(tmp_path)
    play(tmp_path / "plain", plain)
    assert {"create", "write", "fsync", "rename", "truncate", "reopen"} <= set(plain.calls)
    found = []
    for call, operation in enumerate(plain.calls):
        for error in (errno.EIO, errno.ENOSPC, errno.EINTR, *([SHORT] if operation == "write" else [])):
            folder = tmp_path / f"{call}-{error}"
            folder.mkdir()
            disk = CrashDisk(folder)
            disk.fails_at = call, error
            caplog.clear()
            wanted = play(folder, disk)
            lines = [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
            name = f"call {call} ({operation}) fails with {error}"
            if sorted(lines) != sorted(wanted):
                found.append(f"{name}: {[line[:5] for line in lines]}")
            if [path.name for path in folder.iterdir() if path.name[0] == "."]:
                found.append(f"{name}: a file is not finished")
            if error != SHORT and not caplog.records:
                found.append(f"{name}: nobody said so")
    assert found == [], "\n" + "\n".join(found)


def test_after_a_power_cut_at_any_call_finished_files_are_whole_and_the_next_start_finishes_the_others(
    tmp_path: Path,
) -> None:
    """What was not on the disk yet may be missing or zeros, which no event has; nothing else is made up."""
    folder = tmp_path / "events"
    folder.mkdir()
    disk = CrashDisk(folder)
    states: dict[object, tuple[str, State]] = {}

    def note() -> None:
        for state in disk.states():
            states.setdefault((state.folders, frozenset(state.files.items())), (disk.calls[-1], state))

    disk.before = note
    reported = play(folder, disk)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len(states) > 30
    found = []
    for operation, state in states.values():
        state.leave()
        finished = {path.name: path.read_bytes() for path in folder.glob("events-*")}
        found += [f"{operation}: {name} is not whole" for name in finished if finished[name] != whole[name]]
        EventFiles(str(folder), ORIGIN._replace(boot_id=0xB009), LIMITS).begin()
        found += [f"{operation}: {path.name} is not finished" for path in folder.glob(".events-*")]
        lines = [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
        sound = [line for line in lines if "\0" not in line]
        if sound != [line for line in reported if line in sound]:
            found.append(f"{operation}: {[line[:5] for line in lines]}")
    assert found == [], "\n" + "\n".join(found)


def test_a_write_that_can_not_be_taken_back_leaves_no_half_line(tmp_path: Path) -> None:
    disk = small_disk(10)
    files = EventFiles(str(tmp_path), ORIGIN, LIMITS, disk)
    outbox = Outbox(1_000)
    outbox.put(Line(b"first"))
    files.turn(outbox, 0)
    outbox.put(Line(b"second"))
    disk.fails["truncate"] = 1
    files.turn(outbox, 0)
    disk.room_bytes = 1_000
    files.close(outbox, 0)
    assert Desk(tmp_path, ORIGIN._replace(boot_id=0xB009)).lines() == ["first", "second"]
