"""Writes events to files of JSON lines; finishes files regularly, and deletes the oldest.

    .events-<sidecar id>-<boot, 16 hex digits>-<number, 6 digits>.jsonl    while it is written
     events-…                                                              finished: whole lines only

Spark and most log shippers skip names with a leading dot, so nobody reads half a file. A file is finished
when it is full, when it is old enough, and at shutdown. The next sidecar with the same id finishes the files
of a killed one, without a partial last line. A lock shows whether another process is still writing a file, or
has abandoned it. Lines that the disk does not accept stay in the outbox.

Event log's thread: it may wait for the disk here, because no other thread waits for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from service.base.disk import Disk
from service.base.settings_sources import SettingsError
from service.events.event_v1 import Origin
from service.events.outbox import Line, Outbox

_log: Final = logging.getLogger(__name__)

#: The most bytes of one write.
_CHUNK_BYTES: Final = 256 * 1024
_MODE: Final = 0o644


class FileLimits(NamedTuple):
    """When a file is finished, and how many finished files are kept."""

    max_bytes: int
    max_age_ms: int
    files: int


class _Open(NamedTuple):
    """The file that is being written."""

    path: Path
    descriptor: int
    opened_ms: int


class EventFiles:
    """A sink that writes files. Raises SettingsError if the folder can't be used."""

    name: Final = "files"
    in_flight_bytes: Final = 0

    def __init__(
        self,
        folder: str,
        origin: Origin,
        limits: FileLimits,
        disk: Disk | None = None,
    ) -> None:
        self._folder: Final = Path(folder)
        self._origin = origin
        self._limits = limits
        self._disk = Disk() if disk is None else disk
        prefix = re.escape(f"events-{origin.sidecar_id}-")
        self._finished_name = re.compile(prefix + r"(?P<boot>[0-9a-f]{16})-(?P<number>\d{6,})\.jsonl")
        self._number = 0
        self._open: _Open | None = None
        self._size = 0
        self._fault: str | None = None
        self.written = 0
        _check(self._folder, origin.sidecar_id)

    def begin(self) -> None:
        """Finishes the files that earlier processes of this sidecar left."""
        with self._faults_reported():
            for path in sorted(self._folder.iterdir()):
                if path.name[:1] == "." and self._finished_name.fullmatch(path.name[1:]):
                    with self._faults_reported():  # the others are finished nevertheless
                        _finish_left_over(path, self._disk)
            self._delete_oldest()

    def turn(self, outbox: Outbox, now_ms: int) -> None:
        """Writes the waiting lines."""
        if self._open is not None and now_ms - self._open.opened_ms >= self._limits.max_age_ms:
            self._finish()
        self._write_all(outbox, now_ms)

    def close(self, outbox: Outbox, deadline_ms: int) -> None:
        """Writes the remaining lines and finishes the file. Waits for no other system: needs no deadline."""
        self._write_all(outbox, deadline_ms)
        self._finish()

    # -- writing ---------------------------------------------------------------------------------------------

    def _write_all(self, outbox: Outbox, now_ms: int) -> None:
        while lines := outbox.take(min(_CHUNK_BYTES, self._limits.max_bytes)):
            if not self._write(lines, now_ms):
                outbox.put_back(lines)
                return

    def _write(self, lines: list[Line], now_ms: int) -> bool:
        data = b"".join(line.data + b"\n" for line in lines)
        if self._open is not None and self._size and self._size + len(data) > self._limits.max_bytes:
            self._finish()
        try:
            if self._open is not None and not self._disk.is_at(self._open.descriptor, self._open.path):
                self._disk.close(self._open.descriptor)  # what is written to a deleted file is lost
                self._open = None
            if self._open is None:
                self._open = self._new_file(now_ms)
            self._append(self._open, data)
        except OSError as error:
            self._report(error)
            return False
        self._recovered()
        self.written += len(lines)
        return True

    def _new_file(self, now_ms: int) -> _Open:
        self._number += 1
        boot = f"{self._origin.boot_id:016x}"
        path = self._folder / f".events-{self._origin.sidecar_id}-{boot}-{self._number:06d}.jsonl"
        descriptor = self._disk.create(path, _MODE)
        self._size = 0
        _lock(descriptor)
        return _Open(path, descriptor, now_ms)

    def _append(self, opened: _Open, data: bytes) -> None:
        """Writes all bytes, or cuts the file back, so that no partial line stays. Raises OSError.

        A file that cannot be cut keeps its name with a dot; the next start cuts it.
        """
        try:
            self._disk.write_all(opened.descriptor, data)
        except OSError:
            try:
                self._disk.truncate(opened.descriptor, self._size)
            except OSError:
                self._open = None
                self._disk.close(opened.descriptor)
            raise
        self._size += len(data)

    # -- finishing -------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Syncs the file, and gives it its final name."""
        if self._open is None:
            return
        (path, descriptor, _), self._open = self._open, None
        with self._faults_reported():
            try:
                self._sync(path, descriptor)
                # Renamed before the lock is released, or another process would treat it as abandoned.
                _finished(path, self._size, self._disk)
            finally:
                self._disk.close(descriptor)
            self._delete_oldest()

    def _sync(self, path: Path, descriptor: int) -> None:
        """Syncs the file. A failed fsync is logged, not repeated: a second one could hide the loss."""
        try:
            self._disk.fsync(descriptor)
        except OSError as error:
            fault = error.strerror or error
            _log.warning("events_folder: can't fsync %s: %s; events in it may be lost", path, fault)

    def _delete_oldest(self) -> None:
        found = [(path, self._finished_name.fullmatch(path.name)) for path in self._folder.iterdir()]
        # A boot after this one is an earlier one, when the clock was ahead.
        boot = f"{self._origin.boot_id:016x}"
        ours = sorted(
            (m["boot"] <= boot, m["boot"], int(m["number"]), path) for path, m in found if m is not None
        )
        for *_, path in ours[: max(len(ours) - self._limits.files, 0)]:
            self._disk.unlink(path)

    # -- faults ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _faults_reported(self) -> Iterator[None]:
        """Ends the block at an OSError, and logs it."""
        try:
            yield
        except OSError as error:
            self._report(error)

    def _report(self, error: OSError) -> None:
        """Logs a new fault once, until a write succeeds."""
        fault = error.strerror or str(error)
        if fault != self._fault:
            self._fault = fault
            _log.warning("events_folder: can't write to %s: %s; events wait in memory", self._folder, fault)

    def _recovered(self) -> None:
        if self._fault is not None:
            self._fault = None
            _log.info("events_folder: %s can be written to again", self._folder)


def _check(folder: Path, sidecar_id: str) -> None:
    """Creates the folder if it is missing. Raises SettingsError if files cannot be created in it."""
    probe = folder / f".events-{sidecar_id}-probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(
            f"events_folder: can't write files into {folder}: {error.strerror or error}; "
            "name a folder in which this process may make files"
        ) from error


def _lock(descriptor: int) -> bool:
    """Returns whether only this process writes the file; True on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _log.debug("events_folder: this file system has no locks: %s", error)
    return True


def _finish_left_over(path: Path, disk: Disk) -> None:
    """Cuts off the partial line of a killed process, and gives the file its final name."""
    descriptor = disk.reopen(path)
    try:
        if not _lock(descriptor):
            _log.warning(
                "events_folder: another process writes %s: two sidecars have the same sidecar_id", path
            )
            return
        size = os.fstat(descriptor).st_size
        whole = _end_of_last_line(descriptor, size)
        if whole < size:
            _log.warning("events_folder: %s ended with half a line: %d bytes cut off", path, size - whole)
            disk.truncate(descriptor, whole)
        disk.fsync(descriptor)  # the killed process had not done it
        _finished(path, whole, disk)
    finally:
        disk.close(descriptor)


def _end_of_last_line(descriptor: int, size: int) -> int:
    end = size
    while end:
        start = max(end - _CHUNK_BYTES, 0)
        at = os.pread(descriptor, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _finished(path: Path, size: int, disk: Disk) -> None:
    """Removes the dot from a file's name; deletes an empty file."""
    if size:
        disk.rename(path, path.with_name(path.name.removeprefix(".")))
    else:
        disk.unlink(path)
