"""A disk whose power can be cut: what was not synced is gone then, contents and names.

    disk = CrashDisk(folder)
    spool = Spool(settings, producer, clock, disk)
    ...
    disk.cut_power()                    the folder is as a machine would find it after the cut

A file has the bytes of its last fsync, a folder the names of its last `sync_folder`. So it keeps the least
that a file system may keep; a real one mostly keeps more. What is there at the beginning is on the disk. One
thread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.support.spooling import BadDisk

if TYPE_CHECKING:
    from pathlib import Path


class CrashDisk(BadDisk):
    """See the module. It fails as a BadDisk does, too."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        #: The bytes of each file that are on the disk, and the names in each folder, by inode.
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        #: Keep inodes from being used again.
        self._held: list[int] = []
        for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            for path in place.iterdir():
                if path.is_file():
                    self._hold(path)
                    self._contents[path.stat().st_ino] = path.read_bytes()
            self.sync_folder(place)

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        self._hold(path)
        return descriptor

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        with open(f"/proc/self/fd/{descriptor}", "rb") as file:
            self._contents[os.fstat(descriptor).st_ino] = file.read()

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        self._names[folder] = {path.name: path.stat().st_ino for path in folder.iterdir() if path.is_file()}

    def cut_power(self) -> None:
        """Leaves in the folder what is on the disk, and nothing else."""
        for place in (self._folder, *(path for path in self._folder.rglob("*") if path.is_dir())):
            names = self._names.get(place, {})
            for path in place.iterdir():
                if path.is_file() and path.name != "lock":
                    path.unlink()
            for name, inode in names.items():
                if name != "lock":
                    (place / name).write_bytes(self._contents.get(inode, b""))
        while self._held:
            os.close(self._held.pop())

    def _hold(self, path: Path) -> None:
        self._held.append(os.open(path, os.O_RDONLY))
