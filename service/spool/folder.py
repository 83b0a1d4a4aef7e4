"""Creates and locks the spool's folder, and stores the mark: how far delivery is.

    spool_folder/                                 0700
        lock                                      held (flock) by a sidecar, a requeue or a discard
        <sequence>-<generation>-<salt>.segment    segments.py
        mark.json                                 the mark
        aside/<number>-<salt>.records, *.damaged  dead_letters.py

The kernel releases the lock when the process ends, however it ends. The mark is replaced as a whole, so it is
intact after a kill:

    {"done": 1200, "behind": {"orders": 17}, "undone": 40, "check": 2868365343}

Every entry below `done` is delivered or a dead letter, except for the topics in `behind`: their entries from
that number on may be undelivered. `undone` is the number of these topics' undelivered entries below `done`.
`check` is the CRC-32C of the other fields as JSON: a number changed by the disk would skip records. If the
mark is lost or too old, records are delivered again, but none is skipped.

Delivery's thread and the CLI's.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
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


class SpoolFolder:
    """A folder that only this process uses until `close`."""

    def __init__(self, path: Path, sync_folder: Callable[[Path], None] | None = None) -> None:
        """Creates the folder if it is missing, and locks it. Raises FolderError, FolderInUseError.

        `sync_folder`: Disk's, or a test's replacement.
        """
        self.path: Final = path
        sync_folder = Disk().sync_folder if sync_folder is None else sync_folder
        try:
            missing = [one for one in (path, *path.parents) if not one.exists()]
            path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            if not (path / "lock").exists():
                _sync_names(path, missing, sync_folder)
            descriptor = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, _FILE_MODE)
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

    def close(self) -> None:
        """Releases the lock. Idempotent."""
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
