"""The spool's disk: a CrashDisk whose calls take simulated time, and fail by plan.

While a slow call lasts, the other threads run on. `killed`: the calls of a process that was killed end with
KilledError, wherever its threads are.

A file of which an fsync failed is spoilt: later ones succeed, and what was written since is zeros on the
disk. A file system whose journal was aborted, or whose blocks could not be allocated, does no better.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from tests.support.crash_disk import SHORT, CrashDisk, zeroed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tests.simulation.world import World

_ERRORS: Final = {"eio": errno.EIO, "enospc": errno.ENOSPC, "short": SHORT}
_SEGMENT: Final = ".segment"
_DEAD_LETTERS: Final = ".records"

#: A hard state.
NO_DEAD_LETTER: Final = "a dead letter could not be written"


class KilledError(BaseException):
    """The process was killed while one of its threads was in a call."""


class SimulatedDisk(CrashDisk):
    """See the module."""

    def __init__(self, folder: Path, world: World, random: Random, *, sync_ms: int) -> None:
        super().__init__(folder)
        self.folder = folder
        self._world = world
        self._random = random
        #: The longest time of an fsync.
        self.sync_ms = sync_ms
        self.generation = 0
        #: Whether dead letters can't be written.
        self.no_dead_letters = False
        #: Whether the spool's file fails, and no new one can begin.
        self.no_new_files = False
        #: The suffix of the file that each descriptor was opened for.
        self._suffixes: dict[int, str] = {}
        self._spoilt: set[object] = set()
        #: Called with the bytes of a file that is put into place.
        self.renamed: Callable[[Path], None] = lambda _: None
        #: Called when a dead letter is on the disk.
        self.set_aside: Callable[[], None] = lambda: None

    def fail_next(self, kind: str, operation: str) -> None:
        """The next call of this operation fails: with eio or enospc, or a write is short."""
        if kind == "short":
            self.fails_at = len(self.calls), SHORT
        else:
            self.errno = _ERRORS[kind]
            self.fails[operation] = 1

    def _look(self, operation: str) -> None:
        if operation in ("fsync", "sync_folder") and self.sync_ms:
            self._pass_time(self._random.randint(0, self.sync_ms))
        before = self.fails.get(operation, 0)
        try:
            super()._look(operation)
        finally:
            if before and self.fails.get(operation, 0) < before:
                self._world.log("disk", f"{operation} fails")
                self._world.reach("a call to the disk failed")

    def _pass_time(self, ms: int) -> None:
        if not ms:
            return
        generation = self.generation
        self._world.run_until(lambda: self.generation != generation, ms)
        if self.generation != generation:
            self._world.reach("killed within a call to the disk")
            raise KilledError

    def create(self, path: Path, mode: int = 0o600) -> int:
        if path.suffix == _DEAD_LETTERS:
            self._refuse_dead_letters()
        if path.suffix == _SEGMENT and self.no_new_files:
            self._world.reach("no file of the spool could begin")
            self._world.moment("no file can begin")
            raise OSError(errno.ENOSPC, "no new files here")
        descriptor = super().create(path, mode)
        self._suffixes[descriptor] = path.suffix
        return descriptor

    def _refuse_dead_letters(self) -> None:
        if self.no_dead_letters:
            self._world.reach(NO_DEAD_LETTER)
            raise OSError(errno.EIO, "no dead letters here")

    def fsync(self, descriptor: int) -> None:
        suffix = self._suffixes.get(descriptor)
        if suffix == _DEAD_LETTERS:
            self._refuse_dead_letters()
        file = self._open[descriptor]
        if suffix == _SEGMENT and self.no_new_files:
            self._spoilt.add(file)
            raise OSError(errno.EIO, "no fsync here")
        if file in self._spoilt:
            file.since = zeroed(file.since)
        try:
            super().fsync(descriptor)
        except OSError:
            self._spoilt.add(file)
            raise
        self._world.moment("a file is synced")
        if suffix == _DEAD_LETTERS:
            self._world.moment("a dead letter is stored")
            self.set_aside()

    def write(self, descriptor: int, data: memoryview) -> int:
        if self.fails_at is not None and self.fails_at[1] == SHORT:
            self.fails_at = (len(self.calls), SHORT)
            written = super().write(descriptor, data)
            self.fails_at = None
            self._world.reach("a write was short")
            return written
        return super().write(descriptor, data)

    def truncate(self, descriptor: int, size: int) -> None:
        if self._suffixes.get(descriptor) == _SEGMENT and self.no_new_files:
            self._world.reach("a failed write to the spool could not be cut off")
            raise OSError(errno.EIO, "no truncate here")
        super().truncate(descriptor, size)

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        if path.suffix == _SEGMENT:
            self._world.reach("a file of the spool was deleted")

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self.renamed(new)
        self._world.moment("a file is renamed")

    def heal(self) -> None:
        """Ends what makes calls fail."""
        self.fails.clear()
        self.fails_at = None
        self.no_dead_letters = self.no_new_files = False

    def kill(self) -> None:
        """The process ends: its descriptors are closed, its calls never return."""
        self.generation += 1
        self.let_go()
        self.fails.clear()
