"""Files that change while the sidecar runs: when a change counts, and what stays in force."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from client_core import Event, SecretReloaded
from service.base.watched_file import (
    MAX_FILE_BYTES,
    SETTLE_MS,
    FileFaultError,
    InForce,
    Reading,
    Reload,
    WatchedFiles,
    read_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def text_of(contents: Sequence[bytes]) -> str:
    """The tests' reading of files: their text, and a complaint about `bad`."""
    text = b"+".join(contents).decode()
    if "bad" in text:
        raise FileFaultError("the file is bad; write a better one")
    return text


def reading(*contents: bytes) -> Reading:
    return Reading(contents)


class Files(InForce[str]):
    """In force from the text `one`, with times that count from 0."""

    def __init__(self) -> None:
        super().__init__(text_of, reading(b"one"))


# -- the pure part -------------------------------------------------------------------------------------------


def test_an_unchanged_file_is_not_reported() -> None:
    files = Files()
    assert [files.take(reading(b"one"), now_ms) for now_ms in (0, 5_000, 10_000)] == [None] * 3


def test_a_change_counts_when_it_has_stood_still() -> None:
    files = Files()
    assert files.take(reading(b"two"), 10_000) is None
    assert files.take(reading(b"two"), 10_000 + SETTLE_MS - 1) is None
    assert files.made == "one"
    assert files.take(reading(b"two"), 10_000 + SETTLE_MS) == Reload(None)
    assert files.made == "two"
    assert files.take(reading(b"two"), 99_000) is None


def test_a_file_that_is_still_being_written_is_not_judged() -> None:
    files = Files()
    for now_ms, content in enumerate([b"", b"bad", b"bad t", b"tw", b"two"], 10):
        assert files.take(reading(content), now_ms * (SETTLE_MS - 1)) is None
    assert files.take(reading(b"two"), 99_000) == Reload(None)


def test_a_change_that_cannot_be_used_is_logged_once_and_the_old_value_stays() -> None:
    files = Files()
    files.take(reading(b"bad"), 10_000)
    assert files.take(reading(b"bad"), 12_000) == Reload("the file is bad; write a better one")
    assert files.take(reading(b"bad"), 14_000) is None
    assert files.made == "one"


def test_each_change_that_cannot_be_used_is_reported_and_so_is_the_return_to_the_value_in_use() -> None:
    for contents, are_faults in (
        ((b"bad", b"bad again"), [True, True]),
        ((b"bad", b"one", b"bad"), [True, False, True]),
    ):
        files = Files()
        reported = [files.take(reading(content), at) for at, content in enumerate_twice(*contents)]
        assert [one.fault is not None for one in reported if one is not None] == are_faults
        assert files.made == "one"


def test_a_change_that_memory_is_lacking_for_is_in_force_as_soon_as_there_is_some() -> None:
    is_short = False

    def made(contents: Sequence[bytes]) -> str:
        if is_short:
            raise MemoryError
        return text_of(contents)

    files = InForce(made, reading(b"one"))
    assert files.take(reading(b"two"), 10_000) is None
    is_short = True
    with pytest.raises(MemoryError):
        files.take(reading(b"two"), 10_000 + SETTLE_MS)
    assert files.made == "one"
    is_short = False
    assert files.take(reading(b"two"), 20_000) == Reload(None)
    assert files.made == "two"


def test_a_change_that_is_taken_back_is_a_change() -> None:
    files = Files()
    in_use = []
    for at, content in enumerate_twice(b"two", b"one", b"bad", b"one", b"two"):
        files.take(reading(content), at)
        in_use.append(files.made)
    assert in_use[1::2] == ["two", "one", "one", "one", "two"]


def test_a_file_that_cannot_be_read_leaves_the_old_in_force() -> None:
    files = Files()
    gone = Reading(fault="can't read it")
    assert [files.take(gone, at) for at in (10_000, 12_000, 14_000)] == [None, Reload("can't read it"), None]
    assert files.made == "one"


def test_a_first_reading_that_cannot_be_used_is_an_error() -> None:
    with pytest.raises(FileFaultError, match="is bad"):
        InForce(text_of, reading(b"bad"))
    with pytest.raises(FileFaultError, match="can't"):
        InForce(text_of, Reading(fault="can't read it"))


def enumerate_twice(*contents: bytes) -> list[tuple[int, bytes]]:
    """Each content seen twice, far enough apart to count."""
    return [
        (at * SETTLE_MS, content) for at, content in enumerate((c for c in contents for _ in range(2)), 10)
    ]


# -- files ---------------------------------------------------------------------------------------------------


class Watching:
    """A watched file, the value made of it, and the reports."""

    def __init__(self, *paths: Path) -> None:
        self.reported: list[Event] = []
        self.files = WatchedFiles("tokens_file", paths, text_of, reported=self.reported.append)
        self._now_ms = 10_000

    def look(self) -> str:
        """Looks twice, so that a change counts; what is in force then."""
        for _ in range(2):
            self._now_ms += SETTLE_MS
            self.files.look(self._now_ms)
        return self.files.in_force


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("one")
    return path


def test_a_file_is_followed_and_each_reload_counted(path: Path) -> None:
    watching = Watching(path)
    path.write_text("two")
    assert watching.look() == "two"
    path.write_text("bad")
    assert watching.look() == "two"
    fault = "the file is bad; write a better one"
    assert watching.reported == [SecretReloaded("tokens_file", None), SecretReloaded("tokens_file", fault)]


def test_a_file_of_the_same_size_and_time_is_read_all_the_same(path: Path) -> None:
    watching = Watching(path)
    before = path.stat()
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert watching.look() == "two"


def test_a_secret_that_a_kubelet_swaps_is_followed(tmp_path: Path) -> None:
    for version in ("one", "two"):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "tokens").write_text(version)
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "tokens").symlink_to("..data/tokens")
    watching = Watching(tmp_path / "tokens")
    (tmp_path / "..data_tmp").symlink_to("..two")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert watching.look() == "two"


def test_files_that_belong_together_are_judged_together(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_text("c1")
    key.write_text("k1")
    watching = Watching(certificate, key)
    certificate.write_text("c2")
    watching.files.look(10_000)
    key.write_text("k2")
    assert watching.look() == "c2+k2"
    assert len(watching.reported) == 1


def test_a_file_that_goes_away_and_comes_back_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watching = Watching(path)
    path.unlink()
    assert watching.look() == "one"
    assert f"tokens_file: can't read {path}: No such file or directory" in caplog.text
    assert "the earlier value stays in use" in caplog.text
    path.write_text("two")
    assert watching.look() == "two"


def test_a_file_that_cannot_be_read_is_reported_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b" " * (MAX_FILE_BYTES + 1))
    for name in ("folder", "pipe", "nothing", "large", "\0"):
        path = tmp_path / name
        fault = read_files([path]).fault
        assert fault is not None, name
        assert str(path) in fault
        with pytest.raises(FileFaultError, match=r"^tokens_file: "):
            Watching(path)


def test_a_key_in_the_place_of_its_path_is_not_shown() -> None:
    lines = ("-----BEGIN PRIVATE KEY-----", "hunter2" * 40, "-----END PRIVATE KEY-----")
    for key in ("\n".join(lines), " ".join(lines), "[[token]]\nsha256 = 'hunter2'"):
        with pytest.raises(FileFaultError, match="can't read a file whose name is hidden") as raised:
            Watching(Path(key))
        assert "hunter2" not in "".join(traceback.format_exception(raised.value))


class HandTurnedLoop:
    """An event loop's clock and timers: time passes when the test says so."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.timers: list[tuple[float, Callable[[], object], HandTurnedTimer]] = []

    def time(self) -> float:
        return self._now_s

    def call_later(self, delay: float, callback: Callable[[], object], /) -> HandTurnedTimer:
        timer = HandTurnedTimer()
        self.timers.append((self._now_s + delay, callback, timer))
        return timer

    def turn(self) -> None:
        """On to the next timer, and what it does."""
        self._now_s, callback, timer = self.timers.pop(0)
        if not timer.cancelled:
            callback()


class HandTurnedTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def test_it_looks_by_itself_until_it_is_closed(path: Path) -> None:
    loop, files = HandTurnedLoop(), Watching(path).files
    files.watch(loop)
    path.write_text("two")
    for _ in range(2):
        loop.turn()
    assert files.in_force == "two"
    assert loop.time() < 10
    files.close()
    files.close()
    path.write_text("three")
    loop.turn()
    assert (files.in_force, loop.timers) == ("two", [])


def test_a_look_that_fails_is_not_the_last_one(path: Path) -> None:
    def fails(event: Event) -> None:
        raise ZeroDivisionError

    loop = HandTurnedLoop()
    files = WatchedFiles("tokens_file", [path], text_of, reported=fails)
    files.watch(loop)
    path.write_text("two")
    loop.turn()
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    path.write_text("three")
    loop.turn()
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    assert files.in_force == "three"
