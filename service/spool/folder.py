"""Creates and locks the spool's folder, and stores the mark: how far delivery is.

    spool_folder/                                 0700
        lock                                      held (flock) by a sidecar, a requeue or a discard
        <sequence>-<generation>-<salt>.segment    segments.py
        mark.json                                 the mark
        aside/<number>-<salt>.records, *.damaged  dead_letters.py

The kernel releases the lock when the process ends, however it ends. If somebody deletes the lock's file,
`keep` locks a new one. If another process has done so before, only that one uses the folder from then on.

The mark is replaced as a whole, so it is intact after a kill:

    {"done": 1200, "behind": {"orders": 17}, "undone": 40, "check": 2868365343}

Every entry below `done` is delivered or a dead letter, except for the topics in `behind`: their entries from
that number on may be undelivered. `undone` is the number of these topics' undelivered entries below `done`.
`check` is the CRC-32C of the other fields as JSON: a number changed by the disk would skip records. If the
mark is lost or too old, records are delivered again, but none is skipped.

Delivery's thread and the CLI's; `keep` also the writer's.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from crc32c import crc32c

from service.base.disk import Disk

#: The errors of a folder that others own, or of a read-only file system.
_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_LOCK: Final = "lock"
_LOCK_FLAGS: Final = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC

_log: Final = logging.getLogger(__name__)

_NAME: Final = "mark.json"


class Mark(msgspec.Struct, frozen=True):
    """How far delivery is; see above. The default is that of an empty spool: nothing is done."""

    done: int = 1
    behind: Mapping[str, int] = {}
    undone: int = 0

    @property
    def low(self) -> int:
        """Every entry below this number is done, in every topic."""
        return min(self.behind.values(), default=self.done)

    def is_done(self, sequence: int, topic: str) -> bool:
        """Returns whether an entry needs no delivery any more."""
        return sequence < self.done and sequence < self.behind.get(topic, self.done)


class _Checked(Mark, frozen=True, kw_only=True):
    check: int


def read_mark(folder: Path, disk: Disk) -> Mark:
    """Returns the mark; that of an empty spool if it is missing or damaged. Raises OSError."""
    try:
        found = msgspec.json.decode(disk.read_whole(folder / _NAME), type=_Checked)
    except FileNotFoundError:
        return Mark()
    except OSError as e:
        if e.errno != errno.EIO:
            raise
        return _damaged(folder, e.strerror or str(e))
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        return _damaged(folder, str(e))
    mark = Mark(found.done, found.behind, found.undone)
    return mark if found.check == _check_of(mark) else _damaged(folder, "its checksum does not match")


def write_mark(folder: Path, mark: Mark, disk: Disk) -> None:
    """Writes the mark to the disk, with an fsync. Raises OSError."""
    checked = _Checked(mark.done, mark.behind, mark.undone, check=_check_of(mark))
    disk.write_whole(folder / _NAME, msgspec.json.encode(checked))


def _check_of(mark: Mark) -> int:
    return crc32c(msgspec.json.encode(mark))


def _damaged(folder: Path, why: str) -> Mark:
    _log.error(
        "spool: %s/%s is damaged (%s): all records in the spool are delivered again", folder, _NAME, why
    )
    return Mark()


class FolderError(Exception):
    """The folder can't be used; the message names it, the reason and the remedy."""


class FolderInUseError(FolderError):
    """Another process uses the folder."""


class FolderTakenError(OSError):
    """The lock's file was replaced, and another process uses the folder."""

    def __init__(self) -> None:
        super().__init__(errno.EBUSY, "another process uses the folder, because its file `lock` was replaced")


class SpoolFolder:
    """A folder that only this process uses until `close`."""

    def __init__(self, path: Path, sync_folder: Callable[[Path], None] | None = None) -> None:
        """Creates the folder if it is missing, and locks it. Raises FolderError, FolderInUseError.

        `sync_folder`: Disk's, or a test's replacement.
        """
        self.path: Final = path
        self._disk = Disk()
        self._lock = threading.Lock()
        sync_folder = self._disk.sync_folder if sync_folder is None else sync_folder
        try:
            missing = [one for one in (path, *path.parents) if not one.exists()]
            path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            if not (path / _LOCK).exists():
                _sync_names(path, missing, sync_folder)
            descriptor = os.open(path / _LOCK, _LOCK_FLAGS, _FILE_MODE)
        except OSError as e:
            raise FolderError(
                f"can't use {path}: {e.strerror or e}; name a folder in which this process may make files"
            ) from e
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(descriptor)
            raise FolderInUseError(
                f"another process uses {path}: each sidecar needs its own folder; end the other one "
                "first, or name another folder"
            ) from e
        except OSError as e:
            os.close(descriptor)
            raise FolderError(
                f"the file system of {path} has no locks ({e.strerror or e}); use one with locks, such "
                "as block storage"
            ) from e
        self._descriptor: int | None = descriptor

    def keep(self) -> None:
        """Locks the folder again if the lock's file is missing. Any thread.

        Raises FolderTakenError if another process has locked it, or after `close`. Raises OSError if the
        folder is missing or can't be read.
        """
        with self._lock:
            if self._descriptor is None:
                raise FolderTakenError
            path = self.path / _LOCK
            if self._disk.is_at(self._descriptor, path):
                return
            try:
                descriptor = os.open(path, _LOCK_FLAGS | os.O_EXCL, _FILE_MODE)
            except FileExistsError as e:
                raise FolderTakenError from e
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                os.close(descriptor)
                raise FolderTakenError from e
            os.close(self._descriptor)
            self._descriptor = descriptor
            _log.warning("spool: somebody deleted the file lock of %s; it is locked again", self.path)

    def close(self) -> None:
        """Releases the lock. Idempotent."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _sync_names(path: Path, made: Sequence[Path], sync_folder: Callable[[Path], None]) -> None:
    """Syncs the folder's name to the disk, so that a power cut does not remove the folder. Raises OSError.

    Also the names of its parents: a process that created them may have ended before they were on the disk.
    A parent of another owner may be unreadable, but it existed before.
    """
    for one in (path, *path.parents):
        try:
            sync_folder(one.parent)
        except OSError as e:
            if one in made or e.errno not in _NOT_OURS:
                raise
