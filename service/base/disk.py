"""The file operations of the spool and the event log; tests replace them to simulate disk errors.

Every method except `close` may raise OSError. Any thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

#: The errors of a full disk, and of an exhausted quota.
DISK_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_MODE: Final = 0o600
_APPEND: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Disk:
    """The operating system's files."""

    def create(self, path: Path, mode: int = _MODE) -> int:
        """Creates a file and opens it for appending. Only its owner can read it unless `mode` differs."""
        return os.open(path, _APPEND, mode)

    def reopen(self, path: Path) -> int:
        """Opens an existing file, to read and truncate it."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        """Closes a file. Only logs an error: the descriptor is free, and durability comes from `fsync`."""
        try:
            os.close(descriptor)
        except OSError as e:  # NFS reports late write errors here; important data was fsynced before
            _log.warning("closing a file failed: %s", e.strerror or e)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Writes some of the bytes, and returns how many."""
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        """Returns when all that was written to the file is on the disk."""
        os.fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def read(self, path: Path, offset: int, size: int) -> bytes:
        """Returns up to `size` bytes from `offset` on."""
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
        return path.read_bytes()

    def size(self, path: Path) -> int:
        """Returns the size of a file in bytes."""
        return path.stat().st_size

    def is_at(self, descriptor: int, path: Path) -> bool:
        """Returns whether an open file still has this name: somebody may have deleted or moved it."""
        try:
            return os.path.samestat(os.fstat(descriptor), path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False

    def make_folder(self, path: Path, mode: int) -> None:
        """Creates a folder in an existing one."""
        path.mkdir(mode=mode)

    def sync_folder(self, folder: Path) -> None:
        """Returns when the names in a folder are on the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_whole(self, path: Path, data: bytes) -> None:
        """Replaces the content of a file durably: after a crash it is the old or the new, never a part."""
        self.write_draft(path, data)
        self.put_draft(path)

    def write_draft(self, path: Path, data: bytes) -> None:
        """Writes a file's next content to the disk, beside the file; `put_draft` replaces the file by it."""
        draft = _draft_of(path)
        self.unlink(draft)
        descriptor = self.create(draft)
        try:
            self.write_all(descriptor, data)
            self.fsync(descriptor)
        except OSError:
            self.drop_draft(path)
            raise
        finally:
            self.close(descriptor)

    def put_draft(self, path: Path) -> None:
        """Replaces a file by its draft, durably."""
        self.rename(_draft_of(path), path)
        self.sync_folder(path.parent)

    def drop_draft(self, path: Path) -> None:
        """Deletes a file's draft if it can: other files need the space on a full disk."""
        with contextlib.suppress(OSError):
            self.unlink(_draft_of(path))

    def write_all(self, descriptor: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = self.write(descriptor, rest)
            if not written:
                raise OSError(errno.EIO, "a write wrote no bytes")
            rest = rest[written:]

    def unlink(self, path: Path) -> None:
        """Deletes a file if it exists."""
        path.unlink(missing_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        """Renames a file within one file system."""
        old.rename(new)


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.draft")
