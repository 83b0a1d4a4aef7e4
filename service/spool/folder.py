"""The spool's folder: made for its owner alone, and held by one process at a time.

    spool_folder/                                 0700
        lock                                      held (flock) while a sidecar or a requeue uses the folder
        <sequence>-<generation>.segment           segments.py
        mark.json                                 how far delivery is
        aside/<sequence>.records, *.damaged       dead_letters.py

The kernel lets go of the lock when its process ends, in whichever way.

How far the spool has been delivered, in a file that a killed process leaves whole.

    {"done": 1200, "behind": {"orders": 17}, "undone": 40, "check": 2868365343}

Every entry below `done` is delivered or set aside, but for those of the topics in `behind`, of which
everything from that number on may still be to be delivered; of these topics together `undone` entries below
`done` are. `check` is the CRC-32C of the others as JSON: a number that the disk changed would have records
left out. A mark that is lost, or older than the truth, has records delivered again; never one left out.

Delivery's thread, and the CLI's.
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

#: What is said of a folder that others own, or of a file system that is only read.
_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


_log: Final = logging.getLogger(__name__)

_NAME: Final = "mark.json"


class Mark(msgspec.Struct, frozen=True):
    """See above. Of an empty spool: nothing is done."""

    done: int = 1
    behind: Mapping[str, int] = {}
    undone: int = 0

    @property
    def low(self) -> int:
        """Every entry below it is done, of whatever topic."""
        return min(self.behind.values(), default=self.done)

    def is_done(self, sequence: int, topic: str) -> bool:
        """Whether an entry needs no delivery any more."""
        return sequence < self.done and sequence < self.behind.get(topic, self.done)


class _Checked(msgspec.Struct, frozen=True):
    done: int
    behind: Mapping[str, int]
    undone: int
    check: int


def read_mark(folder: Path, disk: Disk) -> Mark:
    """The mark, or that of an empty spool where there is none that can be read. Raises OSError."""
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
    return mark if found.check == _check_of(mark) else _damaged(folder, "its checksum is another")


def write_mark(folder: Path, mark: Mark, disk: Disk) -> None:
    """Has the mark on the disk. Raises OSError."""
    checked = _Checked(mark.done, mark.behind, mark.undone, _check_of(mark))
    disk.write_whole(folder / _NAME, msgspec.json.encode(checked))


def _check_of(mark: Mark) -> int:
    return crc32c(msgspec.json.encode(mark))


def _damaged(folder: Path, why: str) -> Mark:
    _log.error(
        "spool: %s/%s is damaged (%s): all that the spool holds is delivered again", folder, _NAME, why
    )
    return Mark()


class FolderError(Exception):
    """The folder can't be used; the message names it, the reason and the remedy."""


class FolderInUseError(FolderError):
    """Another process has the folder."""


class SpoolFolder:
    """A folder that this process alone uses until `close`."""

    def __init__(self, path: Path, sync_folder: Callable[[Path], None] | None = None) -> None:
        """Makes the folder where it is missing, and takes its lock. Raises FolderError, FolderInUseError.

        `sync_folder`: Disk's, or a test's in its place.
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
                f"the file system of {path} has no locks ({e.strerror or e}): take one that has, such as a "
                "volume of block storage"
            ) from e
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        """Lets go of the lock. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _sync_names(path: Path, made: Sequence[Path], sync_folder: Callable[[Path], None]) -> None:
    """Has the folder's name on the disk, or a power cut takes it away with all that is in it. Raises OSError.

    The names of the folders above it, too: a process that made them may have ended before they were there.
    One that is not ours may not be ours to read, and its name was there before.
    """
    for one in (path, *path.parents):
        try:
            sync_folder(one.parent)
        except OSError as e:
            if one in made or e.errno not in _NOT_OURS:
                raise
