"""Stores dead letters: records that cannot be delivered, each with its reason; and damaged files.

    aside/00000000000000000003-9f86d081884c7d65.records    an increasing number, and the file's salt. Frames
                                          (entry.py) whose payload is a MessagePack array: reason, detail,
                                          time (milliseconds since 1970), version and payload of the entry
    aside/<name of a segment>.damaged     the file as it was found; its sound records were read from it

Records are appended to one file until it is large; each process begins its own. So there are few files for
any number of records and topics. Nothing here is sent automatically: requeue.py moves records back into the
spool. These files count against spool_max_bytes.

Delivery's thread and the CLI's; the counts on any thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import threading
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

#: A file of this size is followed by a new one.
FILE_BYTES: Final = 1024 * 1024
#: The most sequence numbers remembered to avoid duplicates. Records beyond this may be stored twice.
_MOST_KNOWN: Final = 100_000

#: A label value of a metric, so there are few of them.
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
    """One record that could not be delivered, and why."""

    sequence: int
    reason: Reason
    detail: str
    at_wall_ms: int
    version: int
    payload: bytes

    @property
    def entry(self) -> Entry | None:
        """The record; None if this version cannot decode it."""
        try:
            return entry_of(self.version, self.payload)
        except EntryError:
            return None

    @property
    def topic(self) -> str | None:
        """The record's topic; None if this version cannot decode the record."""
        entry = self.entry
        return None if entry is None else entry.record.topic


class DeadLetterFile(NamedTuple):
    """A file of dead letters, its sound records, and the number of its damaged bytes."""

    path: Path
    records: list[DeadLetter]
    unsound_bytes: int


class _Open:
    """The file that is appended to. `end` is the offset after its last good byte."""

    __slots__ = ("descriptor", "end", "path", "records", "salt")

    def __init__(self, path: Path, salt: bytes, descriptor: int) -> None:
        self.path = path
        self.salt = salt
        self.descriptor = descriptor
        self.end = self.records = 0


class DeadLetterFolder:
    """The folder of the dead letters and the damaged files."""

    def __init__(self, folder: Path, disk: Disk, mark: Mark) -> None:
        """Creates the folder if it is missing, and counts its contents. Raises OSError.

        `mark`: dead letters that it does not count as done may be added again, and are not stored twice.
        """
        self._folder = folder / _FOLDER
        self._disk = disk
        self._lock = threading.Lock()
        self._open: _Open | None = None
        self._make_folder()
        self._known: set[int] = set()
        #: The greatest number of a dead letter of earlier processes.
        self.last_sequence = 0
        #: The size and the number of records of each file; below, their totals.
        self._held: dict[str, tuple[int, int]] = {}
        self._bytes = self._records = 0
        self._number = 0
        self._damaged_files = 0
        self._count(mark)

    # -- counts, any thread ----------------------------------------------------------------------------------

    @property
    def total_bytes(self) -> int:
        with self._lock:
            return self._bytes

    @property
    def records(self) -> int:
        with self._lock:
            return self._records

    @property
    def damaged_files(self) -> int:
        with self._lock:
            return self._damaged_files

    # -- adding ----------------------------------------------------------------------------------------------

    def add(self, records: Iterable[tuple[Stored, Reason, str]], at_wall_ms: int) -> None:
        """Stores records, each with reason and detail. Raises OSError: they may be on the disk or not."""
        new = [
            DeadLetter(one.sequence, reason, detail, at_wall_ms, one.version, one.payload)
            for one, reason, detail in records
            if one.sequence not in self._known
        ]
        if not new:
            return
        opened = self._writable()
        data = _bytes_of(new, opened.salt)
        try:
            self._disk.write_all(opened.descriptor, data)
            self._disk.fsync(opened.descriptor)
        except OSError:
            self._abandon(opened)
            raise
        opened.end += len(data)
        opened.records += len(new)
        self._note(opened.path, opened.end, opened.records)

    def move_damaged(self, segments: Segments, segment: Segment) -> None:
        """Moves a damaged file here, of which nothing is read any more. Raises OSError."""
        target = self._folder / f"{segment.name}{_DAMAGED}"
        try:
            size = self._disk.size(segments.path_of(segment))
            self._disk.rename(segments.path_of(segment), target)
        except FileNotFoundError:
            segments.forget(segment)
            return
        segments.forget(segment)
        self._note(target, size, 0)
        with self._lock:
            self._damaged_files += 1

    def close(self) -> None:
        """Closes the file. Idempotent."""
        opened, self._open = self._open, None
        if opened is not None:
            self._disk.close(opened.descriptor)

    def read(self, path: Path) -> DeadLetterFile:
        """Returns a file's sound records; after EIO there are none. Raises OSError for other errors."""
        return read_dead_letters(path, self._disk)

    # -- removing --------------------------------------------------------------------------------------------

    def finished_files(self) -> list[Path]:
        """Returns the files of dead letters in order; nothing is appended to them again. Raises OSError."""
        self.close()
        return [path for path, _ in _sizes_in(self._folder) if _RECORDS.fullmatch(path.name) is not None]

    def keep_only(self, file: DeadLetterFile, kept: Sequence[DeadLetter]) -> None:
        """Keeps only these records of a file, and removes the others. Raises OSError."""
        self.prepare(file, kept)
        self.remove_others(file, kept)

    def prepare(self, file: DeadLetterFile, kept: Sequence[DeadLetter]) -> None:
        """Does the part of `keep_only` that needs room on the disk, and changes nothing. Raises OSError."""
        if kept:
            self._disk.write_draft(file.path, _bytes_of(kept, _salt_of(file.path)))

    def remove_others(self, file: DeadLetterFile, kept: Sequence[DeadLetter]) -> None:
        """Does the rest of `keep_only`. Raises OSError."""
        try:
            if kept:
                self._disk.put_draft(file.path)
            else:
                self._disk.unlink(file.path)
                self._disk.sync_folder(self._folder)
        except OSError:
            self._note_again(file.path)  # the error may have come before the change or after it
            raise
        self._note(file.path, len(_bytes_of(kept, _salt_of(file.path))), len(kept))

    def drop_prepared(self, file: DeadLetterFile) -> None:
        """Undoes `prepare`."""
        self._disk.drop_draft(file.path)

    # -- files and counts ------------------------------------------------------------------------------------

    def _make_folder(self) -> None:
        """Creates the folder if it is missing, and has its name on the disk. Raises OSError."""
        if not self._folder.exists():
            self._disk.make_folder(self._folder, 0o700)
        # Also if it exists: a process may have created it and ended before it was on the disk.
        self._disk.sync_folder(self._folder.parent)

    def _writable(self) -> _Open:
        opened = self._open
        if (
            opened is not None
            and opened.end < FILE_BYTES
            and self._disk.is_at(opened.descriptor, opened.path)
        ):
            return opened  # not a deleted file: it would lose what is written to it
        self.close()
        if not self._folder.exists():
            self._make_folder()  # somebody has emptied the spool's folder
        salt = new_salt()
        path = self._folder / f"{self._number + 1:020d}-{salt.hex()}.records"
        descriptor = self._disk.create(path)
        self._number += 1
        self._open = opened = _Open(path, salt, descriptor)
        try:
            self._disk.sync_folder(self._folder)
        except OSError:
            self._abandon(opened)
            raise
        return opened

    def _abandon(self, opened: _Open) -> None:
        """Ends a file at its last good byte: what a failed fsync left is never trusted again."""
        self._open = None
        try:
            self._disk.truncate(opened.descriptor, opened.end)
            if not opened.end:
                # Otherwise a disk that keeps failing would fill with empty files.
                self._disk.unlink(opened.path)
        except OSError as e:
            _log.warning("spool: %s can't be truncated: %s", _FOLDER, e.strerror or e)
        finally:
            self._disk.close(opened.descriptor)

    def _note(self, path: Path, size: int, records: int) -> None:
        """Updates the counts for a file. Size 0: the file is gone."""
        with self._lock:
            size_before, records_before = self._held.pop(path.name, (0, 0))
            self._bytes += size - size_before
            self._records += records - records_before
            if size:
                self._held[path.name] = size, records

    def _note_again(self, path: Path) -> None:
        """Counts the contents of a file again. If it cannot be read, the old counts stay."""
        try:
            size, file = self._disk.size(path), self.read(path)
        except FileNotFoundError:
            self._note(path, 0, 0)
        except OSError as e:
            _log.warning("spool: can't count what is in %s: %s", _FOLDER, e.strerror or e)
        else:
            self._note(path, size, len(file.records))

    def _count(self, mark: Mark) -> None:
        for draft in self._folder.glob(".*.draft"):
            self._disk.unlink(draft)
        for path, size in _sizes_in(self._folder):
            self._note(path, size, 0)
        for file in _files_in(self._folder, self._disk):
            self._number = max(self._number, int(file.path.name.partition("-")[0]))
            if file.unsound_bytes:
                _log.error(
                    "spool: %s/%s is damaged: %d bytes of it are skipped",
                    _FOLDER,
                    file.path.name.partition("-")[0],
                    file.unsound_bytes,
                )
            size, _ = self._held.get(file.path.name, (0, 0))
            self._note(file.path, size, len(file.records))
            for one in file.records:
                self.last_sequence = max(self.last_sequence, one.sequence)
                if len(self._known) < _MOST_KNOWN and not mark.is_done(one.sequence, one.topic or ""):
                    self._known.add(one.sequence)
        self._damaged_files = len(damaged_in(self._folder.parent))


def dead_letters_in(folder: Path) -> Iterator[DeadLetterFile]:
    """Yields the files of dead letters of a spool folder, in order. Raises OSError."""
    return _files_in(folder / _FOLDER, Disk())


def damaged_in(folder: Path) -> list[tuple[str, int]]:
    """Returns the damaged files of a spool folder, with their sizes in bytes. Raises OSError."""
    return [(path.name, size) for path, size in _sizes_in(folder / _FOLDER) if path.name.endswith(_DAMAGED)]


def dead_letter_bytes_in(folder: Path) -> int:
    """Returns the bytes of the dead letters and damaged files of a spool folder. Raises OSError."""
    return sum(size for _, size in _sizes_in(folder / _FOLDER))


def _sizes_in(folder: Path) -> list[tuple[Path, int]]:
    if not folder.exists():
        return []
    found: list[tuple[Path, int]] = []
    for path in sorted(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # a sidecar has requeued it
            found.append((path, path.stat().st_size))
    return found


def _files_in(folder: Path, disk: Disk) -> Iterator[DeadLetterFile]:
    for path, _ in _sizes_in(folder):
        if _RECORDS.fullmatch(path.name) is None:
            continue
        try:
            file = read_dead_letters(path, disk)
        except FileNotFoundError:
            continue  # a sidecar has requeued it
        yield file


def _salt_of(path: Path) -> bytes:
    match = _RECORDS.fullmatch(path.name)
    assert match is not None
    return bytes.fromhex(match["salt"])


def _bytes_of(records: Sequence[DeadLetter], salt: bytes) -> bytes:
    return b"".join(frame_of(salt, one.sequence, _encode(one[1:])) for one in records)


def read_dead_letters(path: Path, disk: Disk) -> DeadLetterFile:
    """Returns a file's sound records; after EIO there are none. Raises OSError for other errors."""
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
        found.append(DeadLetter(frame.sequence, *msgspec.structs.astuple(held)))
    return DeadLetterFile(path, found, len(data) - sound_bytes)
