"""The few things that the spool does to a disk, so that a test can have a disk that fails.

Every method may raise OSError. Any thread.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

#: The errors of a disk that has no room, or no more for this user.
DISK_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_MODE: Final = 0o600
_APPEND: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Disk:
    """The operating system's files."""

    def create(self, path: Path) -> int:
        """A new file that only its owner reads, open for appending."""
        return os.open(path, _APPEND, _MODE)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Writes some of the bytes; how many."""
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        """Returns when all that was written to the file is on the disk."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cuts a file."""
        os.ftruncate(descriptor, size)

    def read(self, path: Path, offset: int, size: int) -> bytes:
        """So many bytes from there on, or all there are."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while size > 0 and (part := os.pread(descriptor, size, offset)):
                parts.append(part)
                offset += len(part)
                size -= len(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def sync_folder(self, folder: Path) -> None:
        """Returns when the names in a folder are on the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_whole(self, path: Path, data: bytes) -> None:
        """Puts these bytes in place of what a file was, on the disk: the old or the new, never a part."""
        draft = path.with_name(f".{path.name}.draft")
        draft.unlink(missing_ok=True)
        descriptor = self.create(draft)
        try:
            self.write_all(descriptor, data)
            self.fsync(descriptor)
        except OSError:
            draft.unlink(missing_ok=True)  # on a full disk others need the room
            raise
        finally:
            os.close(descriptor)
        draft.rename(path)
        self.sync_folder(path.parent)

    def write_all(self, descriptor: int, data: bytes) -> None:
        """All of the bytes."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.write(descriptor, rest) :]

    def unlink(self, path: Path) -> None:
        """Takes a file away; one that is not there is no fault."""
        path.unlink(missing_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Gives a file another name, in a folder of the same file system."""
        old.rename(new)
