"""The few things that the spool and the event log do to a disk, so that a test can have a disk that fails.

Every method may raise OSError. Any thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

#: The errors of a disk that has no room, or no more for this user.
DISK_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_MODE: Final = 0o600
_APPEND: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Disk:
    """The operating system's files."""

    def create(self, path: Path, mode: int = _MODE) -> int:
        """A new file, open for appending. Only its owner reads it unless `mode` says otherwise."""
        return os.open(path, _APPEND, mode)

    def reopen(self, path: Path) -> int:
        """A file that is there, open for reading and to be cut."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        """Closes a file. The descriptor is free also where this fails; nothing is promised by it."""
        try:
            os.close(descriptor)
        except OSError as e:  # NFS reports late writes here, and what counts was fsynced before
            _log.warning("closing a file failed: %s", e.strerror or e)

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

    def read_whole(self, path: Path) -> bytes:
        """All bytes of a file."""
        return path.read_bytes()

    def size(self, path: Path) -> int:
        """How many bytes a file has."""
        return path.stat().st_size

    def make_folder(self, path: Path, mode: int) -> None:
        """A new folder; its parent is there."""
        path.mkdir(mode=mode)

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
        self.unlink(draft)
        descriptor = self.create(draft)
        try:
            self.write_all(descriptor, data)
            self.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                self.unlink(draft)  # on a full disk others need the room
            raise
        finally:
            self.close(descriptor)
        self.rename(draft, path)
        self.sync_folder(path.parent)

    def write_all(self, descriptor: int, data: bytes) -> None:
        """All of the bytes."""
        rest = memoryview(data)
        while rest:
            written = self.write(descriptor, rest)
            if not written:
                raise OSError(errno.EIO, "a write took no bytes")
            rest = rest[written:]

    def unlink(self, path: Path) -> None:
        """Takes a file away; one that is not there is no fault."""
        path.unlink(missing_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Gives a file another name, in a folder of the same file system."""
        old.rename(new)
