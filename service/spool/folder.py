"""The spool's folder: made for its owner alone, and held by one process at a time.

    spool_folder/                                 0700
        lock                                      held (flock) while a sidecar or a requeue uses the folder
        <sequence>-<generation>.segment           segments.py
        mark.json                                 mark.py
        aside/<sequence>.records, *.damaged       dead_letters.py

The kernel lets go of the lock when its process ends, in whichever way.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from service.base.disk import Disk

#: What is said of a folder that others own, or of a file system that is only read.
_NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL})

_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


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
                f"another process uses {path}: each sidecar needs a folder of its own; end the other one "
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
