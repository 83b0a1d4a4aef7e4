"""After a power cut or a fault of the disk the spool has every accepted record, and holds no file open."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from client_core import IllegalStateError, RecordMetadata, TopicAuthorizationError
from service.base.disk import Disk
from service.base.settings_sources import SettingsError
from service.spool import dead_letters as dead_letters_module
from service.spool.dead_letters import FILE_BYTES, dead_letters_in
from service.spool.delivery import PAUSE_MS
from service.spool.folder import FolderError, FolderInUseError, SpoolFolder
from service.spool.requeue import Requeued
from service.spool.writer import Spooled, SpoolFault, SpoolFullError
from tests.support.counted_work import open_descriptors
from tests.support.crash_disk import SHORT, CrashDisk, State
from tests.support.log_lines import log_lines
from tests.support.mock_clock import MockClock
from tests.support.spooling import SpoolRig, dead_letters_of, failure, record, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from client_core import ProducerRecord
    from tests.support.fake_producer import Outcome


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


def test_answered_records_are_there_after_a_power_cut(rig: SpoolRig) -> None:
    rig.spool_in(records(3))
    rig = after_the_cut(rig)
    rig.deliver()
    assert rig.sent == ["orders-0", "orders-1", "orders-2"]


def test_records_delivered_before_the_mark_are_not_delivered_again(rig: SpoolRig) -> None:
    rig.spool_in(records(3))
    rig.settle()
    rig = after_the_cut(rig)
    rig.deliver()
    assert (rig.sent, rig.spool.entries) == ([], 0)


def forbidden(rig: SpoolRig, count: int = 3) -> None:
    """So many records are dead letters."""
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    rig.spool_in(records(count))
    rig.wait_out()


def test_dead_letters_are_there_after_a_power_cut(rig: SpoolRig) -> None:
    forbidden(rig)
    rig.settle()
    rig = after_the_cut(rig)
    rig.deliver()
    assert (rig.sent, rig.spool.dead_letters.records) == ([], 3)
    assert [value for value, _ in dead_letters_of(rig)] == ["orders-0", "orders-1", "orders-2"]


def test_requeued_records_are_no_dead_letters_any_more_after_a_power_cut(rig: SpoolRig) -> None:
    forbidden(rig)
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
    assert (rig.sent, [value for value, _ in dead_letters_of(rig)]) == ([], ["orders-1"])


def test_a_file_of_dead_letters_that_was_taken_away_stays_away(rig: SpoolRig) -> None:
    forbidden(rig)
    rig.spool.dead_letters.close()
    (file,) = dead_letters_in(rig.folder)
    rig.spool.dead_letters.keep_only(file, [])
    rig.settle()
    rig = after_the_cut(rig)
    assert (rig.spool.dead_letters.records, list(dead_letters_in(rig.folder))) == (0, [])


def test_folders_that_are_made_are_on_the_disk_if_need_be_by_the_next_process(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    folder = tmp_path / "var" / "spool"
    with pytest.raises(FolderError, match="Input/output error"):
        SpoolFolder(folder, sync_folder=fail)
    assert folder.is_dir()
    synced: list[Path] = []
    for already in (folder, tmp_path / "other" / "spool"):
        synced.clear()
        SpoolFolder(already, sync_folder=synced.append).close()
        assert synced[:2] == [already.parent, tmp_path]
        synced.clear()
        SpoolFolder(already, sync_folder=synced.append).close()
        assert synced == []
    (tmp_path / "spool").mkdir()
    rig = SpoolRig(tmp_path / "spool")
    assert rig.disk.synced == [tmp_path / "spool"]  # the folder of dead letters was made
    rig.let_go()


def test_an_unreadable_parent_folder_keeps_no_sidecar_from_starting(tmp_path: Path) -> None:
    def forbid(folder: Path) -> None:
        if folder != tmp_path:
            raise OSError(errno.EACCES, "Permission denied")

    SpoolFolder(tmp_path / "spool", sync_folder=forbid).close()
    (tmp_path / "held").mkdir()
    with pytest.raises(FolderError, match="Permission denied"):
        SpoolFolder(tmp_path / "held" / "spool", sync_folder=forbid)


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


def test_after_faults_of_the_disk_no_file_is_held_open_that_is_not_written_to(tmp_path: Path) -> None:
    for fault in ("fsync", "write", "create", "sync_folder"):
        rig = SpoolRig(tmp_path / fault)
        for _ in range(5):
            rig.disk.fails[fault] = 1
            rig.spool_in(records(1))
            rig.spool_in(records(1))
        assert open_files(rig.folder) == [str(rig.segments[-1])], fault
        rig.let_go()


def test_a_file_of_dead_letters_is_held_open_while_it_is_written_to_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file_bytes in (1, FILE_BYTES):
        monkeypatch.setattr(dead_letters_module, "FILE_BYTES", file_bytes)
        rig = SpoolRig(tmp_path / f"{file_bytes}")
        for fault in ("fsync", "write", "sync_folder", "create"):
            forbidden(rig, 1)
            rig.disk.fails[fault] = 1
            forbidden(rig, 1)
        held = [path for path in open_files(rig.folder) if "/aside/" in path]
        assert len(held) == 1
        rig.spool.dead_letters.finished_files()
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
    held = open_descriptors()
    with pytest.raises(FolderInUseError):
        SpoolFolder(tmp_path / "spool")
    assert open_descriptors() <= held
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
    for _ in range(3):
        forbidden(rig, 1)
        rig.settle()
        rig = rig.again()
    numbers = [path.name.partition("-")[0] for path in sorted((rig.folder / "aside").iterdir())]
    assert [int(number) for number in numbers] == [1, 2, 3]
    rig.let_go()


def test_a_disk_fails_from_its_first_failure_until_it_took_records_half_a_minute_after_the_last(
    tmp_path: Path,
) -> None:
    for fault in ("create", "write", "fsync"):
        rig = SpoolRig(tmp_path / fault)
        writer = rig.spool.writer
        assert writer.failing_ms == 0, fault
        for _ in range(3):
            rig.disk.fails[fault] = 1
            rig.spool_in(records(1))
            rig.clock.advance(30_000)
        assert writer.failing_ms == 90_000, "nobody knows whether it works"
        rig.disk.fails[fault] = 1
        rig.spool_in(records(1))
        rig.spool_in(records(1))
        rig.clock.advance(29_999)
        assert writer.failing_ms == 119_999, "a full disk takes small records"
        rig.clock.advance(1)
        assert writer.failing_ms == 0, fault
        rig.disk.fails["fsync"] = 1
        rig.spool_in(records(1))
        rig.clock.advance(1_000)
        assert writer.failing_ms == 1_000, fault
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


#: A third file is begun with these.
_LARGE: Final = "x" * 40_000
#: The smallest spool there may be; its files are 64 KiB.
_MAX_BYTES: Final = 1_048_576
#: What a power cut may have delivered twice is no older.
_DELIVERED_TWICE_MS: Final = 1_000
#: How each kind of call fails, besides with EIO.
_ERRORS: Final[Mapping[str, Sequence[int]]] = {
    "write": (errno.ENOSPC, errno.EINTR, SHORT),
    "fsync": (errno.ENOSPC, errno.EINTR),
    "create": (errno.ENOSPC,),
    "rename": (errno.ENOSPC,),
    "sync_folder": (errno.ENOSPC,),
    "make_folder": (errno.ENOSPC,),
    "truncate": (errno.EINTR,),
    "reopen": (errno.EINTR,),
    "read": (errno.EINTR,),
    "read_whole": (errno.EINTR,),
    "unlink": (),
    "size": (),
}
#: These are sent with one that brokers refuse, so the mark does not pass them until it is a dead letter.
_SENT_WITH_REFUSED: Final = frozenset({"b3", "c1"})


class Promised(NamedTuple):
    """The answers to callers, and the records of brokers, at one moment."""

    accepted: tuple[str, ...]
    refused: tuple[str, ...]
    delivered: tuple[tuple[str, int], ...]
    #: How many records of requests there are that have no answer yet.
    open: int
    now_ms: int


@dataclass
class Life:
    """The scenario, over a disk that may fail. Brokers refuse values with `bad` in front until they don't."""

    folder: Path
    disk: CrashDisk
    clock: MockClock = field(default_factory=lambda: MockClock(now_ms=1_000_000))
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    delivered: list[tuple[str, int]] = field(default_factory=list)
    #: What the disk's faults were said to be, but for the log.
    said: list[str] = field(default_factory=list)
    is_bad_refused: bool = True
    open: int = 0

    def play(self) -> None:
        """All of it."""
        self.start()
        self.spool("a1", "a2")
        self.settle()
        for n in range(3):
            self.spool(f"large{n}" + _LARGE)
        self.settle()
        self.spool("bad1", "bad2", "b3")
        self.settle(wait=True)
        self.spool("bad4", "c1")
        self.settle(wait=True)
        self.is_bad_refused = False
        self.requeue("bad1", "bad4")
        self.settle()
        self.spool("d1", "d2")
        self.rig.let_go()  # as a SIGKILL does
        if self.rig.segments:
            self.disk.append(self.rig.segments[-1], b"torn")
        self.start()
        self.settle()
        self.spool("e1")
        self.requeue("bad2")
        self.settle()
        self.spool("f1")
        self.rig.spool.close(1_000)

    def start(self) -> None:
        """A process over the folder; one that ends at its start is started anew, as a kubelet does."""
        try:
            self._start()
        except SettingsError as e:
            self.said.append(str(e))
            self._start()

    def _start(self) -> None:
        rig = SpoolRig(
            self.folder,
            disk=self.disk,
            clock=self.clock,
            spool_max_bytes=_MAX_BYTES,
            spool_topic_wait_ms=3_000,
        )
        rig.producer.set_topics({"orders": 1})
        rig.producer.outcome_of = self._outcome
        self.rig = rig

    def _outcome(self, index: int, one: ProducerRecord) -> Outcome:
        value = (one.value or b"").decode()
        if value.startswith("bad") and self.is_bad_refused:
            return failure(TopicAuthorizationError())
        outcome = self.rig.producer.receipt(index, one)
        assert isinstance(outcome, RecordMetadata)
        self.delivered.append((value, self.clock.now_ms()))
        return outcome

    def spool(self, *values: str) -> None:
        """A request; if it is refused, its caller tries once more, with different values."""
        for again in ("", "-again"):
            sent = [value + again for value in values]
            self.open = len(sent)
            try:
                outcome = self.rig.spool_in([record(value) for value in sent])
            except SpoolFullError as e:
                outcome = SpoolFault(str(e), "no")
            self.open = 0
            if isinstance(outcome, Spooled):
                self.accepted += sent
                return
            self.said.append(outcome.detail)
            (self.refused if outcome.written == "no" else self.unknown).extend(sent)
        raise AssertionError(f"refused twice: {self.said}")

    def settle(self, *, wait: bool = False) -> None:
        """Delivers and writes the mark; `wait`: until no refused record is left. A failed turn pauses."""
        for _ in range(8 if wait else 3):
            with self._paused():
                self.rig.deliver()
            self.clock.advance(PAUSE_MS)
        with self._paused():
            self.rig.deliver()

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            self.said.append(str(e))

    def requeue(self, *values: str) -> None:
        """Puts dead letters back; repeats it if the disk failed."""
        for _ in range(2):
            ends: list[Requeued] = []
            self.open = len(values)
            self.rig.spool.requeue(
                lambda one: one.entry is not None and _text(one.entry.record.value).startswith(values),
                ends.append,
            )
            while not ends:
                with self._paused():
                    self.rig.deliver()
                self.rig.spool.writer.turn()
            self.open = 0
            if ends[0].fault is None:
                return
            self.said.append(ends[0].fault)
        raise AssertionError(f"requeue failed twice: {self.said}")

    def promised(self) -> Promised:
        return Promised(
            tuple(self.accepted),
            tuple(self.refused),
            tuple(self.delivered),
            self.open,
            self.clock.now_ms(),
        )


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def _begun(folder: Path) -> Life:
    """The scenario before it begins: the folder is there, and on the disk."""
    folder.mkdir()
    return Life(folder, CrashDisk(folder))


def _after(folder: Path, promised: Promised) -> Life:
    """The next process delivers all that it finds, and dead letters stay."""
    life = Life(folder, CrashDisk(folder), MockClock(now_ms=promised.now_ms))
    life.start()
    life.settle(wait=True)
    return life


def _violations(promised: Promised, after: Life) -> Iterator[str]:
    """The broken promises."""
    dead = [value for value, _ in dead_letters_of(after.rig)]
    delivered = [value for value, _ in (*promised.delivered, *after.delivered)]
    there = {*delivered, *dead}
    for value in promised.accepted:
        if value not in there:
            yield f"{value[:9]} was accepted and is lost"
    for value in promised.refused:
        if value in there:
            yield f"{value[:9]} was refused and is there"
    # Of an unanswered request the end may be there without its beginning.
    if (lost := after.rig.spool.delivery.lost) > promised.open:
        yield f"{lost} records are said to be lost"
    if after.rig.spool.entries:
        yield f"{after.rig.spool.entries} records wait"
    yield from _wrong_numbers(after.rig)


def _wrong_numbers(rig: SpoolRig) -> Iterator[str]:
    """Numbers of the process that are not those of its folder."""
    spool, folder = rig.spool, rig.folder
    if spool.dead_letters.records != len(dead_letters_of(rig)):
        yield f"{spool.dead_letters.records} dead letters are counted, {len(dead_letters_of(rig))} are stored"
    held = sum(path.stat().st_size for path in (*folder.glob("*.segment"), *(folder / "aside").iterdir()))
    if spool.bytes != held:
        yield f"{spool.bytes} bytes are said to lie there, and {held} do"


def _with_fault(folder: Path, call: int, error: int) -> Iterator[str]:
    """Plays with one failing call, cuts the power at the end, and plays on; returns the faults."""
    life = _begun(folder)
    life.disk.fails_at = call, error
    with log_lines("service.spool", logging.WARNING) as said:
        life.play()
    wrong = list(_wrong_numbers(life.rig))
    if life.rig.spool.delivery.lost or life.rig.spool.dead_letters.damaged_files:
        wrong.append("records are said to be lost")
    life.settle()
    if error != SHORT and not (life.said or any(said)):
        wrong.append("nobody said so")
    life.rig.let_go()
    promised = life.promised()
    life.disk.cut_power()
    after = _after(folder, promised)
    wrong += _violations(promised, after)
    after.rig.let_go()
    return iter(wrong)


def test_any_call_to_the_disk_may_fail_once(tmp_path: Path) -> None:
    plain = _begun(tmp_path / "plain")
    plain.play()
    assert (plain.said, plain.refused) == ([], [])
    found = []
    for call, operation in enumerate(plain.disk.calls):
        for error in (errno.EIO, *_ERRORS[operation]):
            name = "a short write" if error == SHORT else errno.errorcode[error]
            try:
                wrong = list(_with_fault(tmp_path / f"{call}-{error}", call, error))
            except Exception as e:  # noqa: BLE001 - it is named with the call that failed
                wrong = [repr(e)]
            found += [f"call {call} ({operation}) fails with {name}: {one}" for one in wrong]
    assert found == [], "\n" + "\n".join(found)


def _cuts(life: Life) -> Sequence[tuple[str, State, Promised]]:
    """Plays; yields every state that a power cut may leave on the way, with the promises until then."""
    cuts: dict[object, tuple[str, State, Promised]] = {}

    def note() -> None:
        promised = life.promised()
        where = f"before call {len(life.disk.calls) - 1} ({life.disk.calls[-1]})"
        for state in life.disk.states():
            reported = len(promised.accepted), len(promised.refused), len(promised.delivered), promised.now_ms
            cuts.setdefault(
                (state.folders, frozenset(state.files.items()), reported), (where, state, promised)
            )

    life.disk.before = note
    life.play()
    return list(cuts.values())


def _twice(promised: Promised, after: Life) -> Iterator[str]:
    again = {value for value, _ in after.delivered}
    for value, at_ms in promised.delivered:
        if value in again - _SENT_WITH_REFUSED and promised.now_ms - at_ms > _DELIVERED_TWICE_MS:
            yield f"{value[:9]} is delivered again after {promised.now_ms - at_ms} ms"


def test_the_power_may_be_cut_before_any_call_to_the_disk(tmp_path: Path) -> None:
    life = _begun(tmp_path / "spool")
    cuts = _cuts(life)
    assert len(cuts) > 100
    found = []
    for where, state, promised in cuts:
        state.leave()
        try:
            after = _after(life.folder, promised)
            wrong = [*_violations(promised, after), *_twice(promised, after)]
            after.rig.let_go()
        except Exception as e:  # noqa: BLE001 - it is named with the call
            wrong = [repr(e)]
        found += [f"{where}: {one}" for one in wrong]
    assert found == [], "\n" + "\n".join(found)
