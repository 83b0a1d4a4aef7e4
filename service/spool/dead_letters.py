"""What was set aside: records that can never be delivered, each with the reason, and damaged files.

    aside/00000000000000000003-9f86d081884c7d65.records    a number that grows, and the file's salt. Frames
                                          (entry.py) whose payload is a MessagePack array: reason, detail,
                                          when (milliseconds since 1970), version and payload of the entry
    aside/<name of a segment>.damaged     the file as it was found; its sound records went their way

Records are appended to a file until it is large, or a process of its own: however many there are, and of how
many topics, there are few files. Nothing here is ever sent by itself: requeue.py puts records back.
What lies here counts against spool_max_bytes.

Delivery's thread, and the CLI's; the numbers on any thread.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from service.base.disk import Disk
from service.spool.entry import SALT_BYTES, Entry, EntryError, entry_of, frame_of, new_salt, next_frame
from service.spool.folder import Mark
from service.spool.reader import Stored
from service.spool.segments import Segment, Segments

_log: Final = logging.getLogger(__name__)

_FOLDER: Final = "aside"
_RECORDS: Final = re.compile(
    rf"(?P<number>\d{{20}})-(?P<salt>[0-9a-f]{{{2 * SALT_BYTES}}})\.records", re.ASCII
)
_DAMAGED: Final = ".damaged"

#: From this size on the next file is begun.
FILE_BYTES: Final = 1024 * 1024
#: Of how many records that lie here it is known that they may be set aside once more. Beyond, they may lie
#: here twice.
_MOST_KNOWN: Final = 100_000

#: A reason is a label of a metric: there are few of them.
Reason = str
REASONS: Final[Sequence[Reason]] = (
    "too_large",
    "forbidden",
    "topic_gone",
    "partition_gone",
    "invalid",
    "refused",
    "unreadable",
)


class _Payload(msgspec.Struct, array_like=True, frozen=True, gc=False):
    reason: str
    detail: str
    at_wall_ms: int
    version: int
    payload: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Payload).decode


class DeadLetter(NamedTuple):
    """One record that was set aside."""

    sequence: int
    reason: Reason
    detail: str
    at_wall_ms: int
    version: int
    payload: bytes

    @property
    def entry(self) -> Entry | None:
        """The record; None where this version does not understand it."""
        try:
            return entry_of(self.version, self.payload)
        except EntryError:
            return None

    @property
    def topic(self) -> str | None:
        """Its topic; None where this version does not understand the record."""
        entry = self.entry
        return None if entry is None else entry.record.topic


class DeadLetterFile(NamedTuple):
    """A file of records, what is sound in it, and how many bytes are not."""

    path: Path
    records: list[DeadLetter]
    unsound_bytes: int


class _Open:
    """The file that is appended to. `end` is where its last good byte ends."""

    __slots__ = ("descriptor", "end", "path", "salt")

    def __init__(self, path: Path, salt: bytes, descriptor: int) -> None:
        self.path = path
        self.salt = salt
        self.descriptor = descriptor
        self.end = 0


class DeadLetterFolder:
    """The folder of what was set aside."""

    def __init__(self, folder: Path, disk: Disk, mark: Mark) -> None:
        """Makes it where it is missing, and counts what is there. Raises OSError.

        `mark`: what is not done by it may be set aside once more, and is not put here again.
        """
        self._folder = folder / _FOLDER
        self._disk = disk
        self._lock = threading.Lock()
        self._open: _Open | None = None
        if not self._folder.exists():
            disk.make_folder(self._folder, 0o700)
        # Also where it is there: a process that made it may have ended before it was on the disk.
        disk.sync_folder(folder)
        self._known: set[int] = set()
        #: Size and reasons of each file, and their sums.
        self._held: dict[str, tuple[int, Counter[Reason]]] = {}
        self._reasons: Counter[Reason] = Counter()
        self._bytes = 0
        self._number = 0
        self._damaged_files = 0
        self._count(mark)

    # -- numbers, any thread ---------------------------------------------------------------------------------

    @property
    def total_bytes(self) -> int:
        with self._lock:
            return self._bytes

    @property
    def records(self) -> int:
        with self._lock:
            return sum(self._reasons.values())

    @property
    def damaged_files(self) -> int:
        with self._lock:
            return self._damaged_files

    def by_reason(self) -> dict[Reason, int]:
        """How many records lie there, by why."""
        with self._lock:
            return {reason: self._reasons[reason] for reason in (*REASONS, *sorted(self._reasons))}

    # -- putting there ---------------------------------------------------------------------------------------

    def add(self, records: Iterable[tuple[Stored, Reason, str]], at_wall_ms: int) -> None:
        """Has records on the disk as set aside, each with reason and detail. Raises OSError: here or not."""
        new = [
            DeadLetter(one.sequence, reason, detail, at_wall_ms, one.version, one.payload)
            for one, reason, detail in records
            if one.sequence not in self._known
        ]
        if not new:
            return
        opened = self._room()
        data = _bytes_of(new, opened.salt)
        try:
            self._disk.write_all(opened.descriptor, data)
            self._disk.fsync(opened.descriptor)
        except OSError:
            self._leave(opened)
            raise
        opened.end += len(data)
        _, before = self._held.get(opened.path.name, (0, Counter[Reason]()))
        self._note(opened.path, opened.end, before + Counter(one.reason for one in new))

    def move_damaged(self, segments: Segments, segment: Segment) -> None:
        """Moves a file here, of which nothing is read any more. Raises OSError."""
        target = self._folder / f"{segment.name}{_DAMAGED}"
        try:
            size = self._disk.size(segments.path_of(segment))
            self._disk.rename(segments.path_of(segment), target)
        except FileNotFoundError:
            segments.forget(segment)
            return
        segments.forget(segment)
        self._note(target, size, Counter())
        with self._lock:
            self._damaged_files += 1

    def close(self) -> None:
        """Lets go of the file. Idempotent."""
        opened, self._open = self._open, None
        if opened is not None:
            self._disk.close(opened.descriptor)

    def read(self, path: Path) -> DeadLetterFile:
        """A file's records; what is damaged is passed over. Raises OSError, but not for what is lost."""
        return read_dead_letters(path, self._disk)

    # -- taking away -----------------------------------------------------------------------------------------

    def leave_files(self) -> list[Path]:
        """The files of records there are, in order; nothing is appended to them any more. Raises OSError."""
        self.close()
        return [path for path, _ in _sizes_in(self._folder) if _RECORDS.fullmatch(path.name) is not None]

    def leave_only(self, file: DeadLetterFile, left: Sequence[DeadLetter]) -> None:
        """Of a file's records only these are here any more. Raises OSError."""
        data = _bytes_of(left, _salt_of(file.path))
        try:
            if left:
                self._disk.write_whole(file.path, data)
            else:
                self._disk.unlink(file.path)
                self._disk.sync_folder(self._folder)
        except OSError:
            self._note_again(file.path)  # it may have come before the change or after it
            raise
        self._note(file.path, len(data), Counter(one.reason for one in left))

    # -- inside ----------------------------------------------------------------------------------------------

    def _room(self) -> _Open:
        opened = self._open
        if opened is not None and opened.end < FILE_BYTES and os.fstat(opened.descriptor).st_nlink:
            return opened  # a file that somebody took away meanwhile would keep nothing
        self.close()
        salt = new_salt()
        path = self._folder / f"{self._number + 1:020d}-{salt.hex()}.records"
        descriptor = self._disk.create(path)
        self._number += 1
        self._open = opened = _Open(path, salt, descriptor)
        try:
            self._disk.sync_folder(self._folder)
        except OSError:
            self._leave(opened)
            raise
        return opened

    def _leave(self, opened: _Open) -> None:
        """Ends a file at its last good byte: what a failed fsync left is never trusted again."""
        self._open = None
        try:
            self._disk.truncate(opened.descriptor, opened.end)
            if not opened.end:
                # Or a disk that fails for long would be full of empty files.
                self._disk.unlink(opened.path)
        except OSError as e:
            _log.warning("spool: %s can't be cut: %s", _FOLDER, e.strerror or e)
        finally:
            self._disk.close(opened.descriptor)

    def _note(self, path: Path, size: int, reasons: Counter[Reason]) -> None:
        """Counts a file as it is now; of size 0 it is gone."""
        with self._lock:
            size_before, reasons_before = self._held.pop(path.name, (0, Counter[Reason]()))
            self._bytes += size - size_before
            self._reasons.subtract(reasons_before)
            self._reasons.update(reasons)
            if size:
                self._held[path.name] = size, reasons

    def _note_again(self, path: Path) -> None:
        """Counts what is found in a file. Where it can't be read it is counted as before."""
        try:
            size, file = self._disk.size(path), self.read(path)
        except FileNotFoundError:
            self._note(path, 0, Counter())
        except OSError as e:
            _log.warning("spool: can't count what is in %s: %s", _FOLDER, e.strerror or e)
        else:
            self._note(path, size, Counter(one.reason for one in file.records))

    def _count(self, mark: Mark) -> None:
        for draft in self._folder.glob(".*.draft"):
            self._disk.unlink(draft)
        for path, size in _sizes_in(self._folder):
            self._note(path, size, Counter())
        for file in _files_in(self._folder, self._disk):
            self._number = max(self._number, int(file.path.name.partition("-")[0]))
            if file.unsound_bytes:
                _log.error(
                    "spool: %s/%s is damaged: %d bytes of it are passed over",
                    _FOLDER,
                    file.path.name.partition("-")[0],
                    file.unsound_bytes,
                )
            size, _ = self._held.get(file.path.name, (0, None))
            self._note(file.path, size, Counter(one.reason for one in file.records))
            for one in file.records:
                if len(self._known) < _MOST_KNOWN and not mark.is_done(one.sequence, one.topic or ""):
                    self._known.add(one.sequence)
        self._damaged_files = len(damaged_in(self._folder.parent))


def dead_letters_in(folder: Path) -> Iterator[DeadLetterFile]:
    """What was set aside of the spool in a folder, in the order in which it was. Raises OSError."""
    return _files_in(folder / _FOLDER, Disk())


def damaged_in(folder: Path) -> list[tuple[str, int]]:
    """The damaged files of the spool in a folder, with their sizes in bytes. Raises OSError."""
    return [(path.name, size) for path, size in _sizes_in(folder / _FOLDER) if path.name.endswith(_DAMAGED)]


def dead_letter_bytes_in(folder: Path) -> int:
    """How much lies aside of the spool in a folder. Raises OSError."""
    return sum(size for _, size in _sizes_in(folder / _FOLDER))


def _sizes_in(folder: Path) -> list[tuple[Path, int]]:
    if not folder.exists():
        return []
    return [(path, path.stat().st_size) for path in sorted(folder.iterdir())]


def _files_in(folder: Path, disk: Disk) -> Iterator[DeadLetterFile]:
    for path, _ in _sizes_in(folder):
        if _RECORDS.fullmatch(path.name) is not None:
            yield read_dead_letters(path, disk)


def _salt_of(path: Path) -> bytes:
    match = _RECORDS.fullmatch(path.name)
    assert match is not None
    return bytes.fromhex(match["salt"])


def _bytes_of(records: Sequence[DeadLetter], salt: bytes) -> bytes:
    return b"".join(
        frame_of(salt, r.sequence, _encode(_Payload(r.reason, r.detail, r.at_wall_ms, r.version, r.payload)))
        for r in records
    )


def read_dead_letters(path: Path, disk: Disk) -> DeadLetterFile:
    """The records of a file; what is damaged is passed over. Raises OSError, but not for what is lost."""
    salt = _salt_of(path)
    try:
        data = disk.read_whole(path)
    except OSError as e:
        if e.errno != errno.EIO:
            raise
        return DeadLetterFile(path, [], disk.size(path))
    found: list[DeadLetter] = []
    at = sound_bytes = 0
    while (there := next_frame(salt, data, at)) is not None:
        start, frame = there
        at = frame.end
        try:
            held = _decode(frame.payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        sound_bytes += frame.end - start
        found.append(
            DeadLetter(frame.sequence, held.reason, held.detail, held.at_wall_ms, held.version, held.payload)
        )
    return DeadLetterFile(path, found, len(data) - sound_bytes)
