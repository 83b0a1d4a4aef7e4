"""A disk whose power can be cut, and any one of whose calls can fail.

    disk = CrashDisk(folder)
    spool = Spool(settings, producer, clock, disk)
    ...
    disk.cut_power()                    the folder is as a machine would find it after the cut
    for state in disk.states(): ...     every folder that a file system may leave at this moment

The disk has the initial state, the bytes of each file's last fsync, and the names of each folder's last
`sync_folder`. `cut_power` keeps no more than that. A real file system may keep more, and `states` yields all
possibilities: any of the names, and of the bytes all, a part, zeros, or their end without their beginning, or
what was cut off. A rename is done whole or not at all.

After a failed fsync the pages are lost, as in Linux: the next fsync of the file succeeds, and the earlier
writes are zeros on the disk. One thread.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.support.spooling import BadDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

#: A write that takes half of what it is given, in place of an error.
SHORT: Final = -1


class _Piece(NamedTuple):
    """Bytes that were written somewhere; with None the file was cut there."""

    at: int
    data: bytes | None


@dataclass(eq=False, slots=True)
class _File:
    """What is on the disk of a file, and what was done to it since."""

    synced: bytes = b""
    size: int = 0
    since: list[_Piece] = field(default_factory=list)


class _Move(NamedTuple):
    """A name that was given (`old` None) or taken away (`new` None), or both; a folder has no file."""

    old: Path | None
    new: Path | None
    file: _File | None


class State(NamedTuple):
    """Folders, and files with their bytes, as a machine finds them after a power cut."""

    folders: frozenset[Path]
    files: Mapping[Path, bytes]

    def leave(self) -> None:
        """Makes the folder so."""
        root = min(self.folders, key=lambda folder: len(folder.parts))
        shutil.rmtree(root, ignore_errors=True)
        for folder in sorted(self.folders):
            folder.mkdir()
        for path, data in self.files.items():
            path.write_bytes(data)


class CrashDisk(BadDisk):
    """See the module. It fails as a BadDisk does, too."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._open: dict[int, _File] = {}
        self._live: dict[Path, _File] = {}
        self._synced: dict[Path, _File | None] = {folder: None}
        self._moves: list[_Move] = []
        #: Each call that was made.
        self.calls: list[str] = []
        #: Which call fails, counted from 0, and how: an errno, or SHORT.
        self.fails_at: tuple[int, int] | None = None
        #: Is called before each call that changes something.
        self.before: Callable[[], None] = lambda: None
        for path in folder.rglob("*"):
            if path.is_dir():
                self._synced[path] = None
            elif path.name != "lock":
                data = path.read_bytes()
                self._synced[path] = self._live[path] = _File(data, len(data))

    # -- states after a power cut ----------------------------------------------------------------------------

    def cut_power(self) -> None:
        """Leaves in the folder what is on the disk, and nothing else."""
        self._state((), _synced_alone).leave()

    def states(self) -> Iterator[State]:
        """Every folder that may be found if the power is cut now, each once."""
        seen = set()
        moves = self._moves
        if len(moves) <= 3:
            done = [chosen for n in range(len(moves) + 1) for chosen in itertools.combinations(moves, n)]
        else:
            done = [tuple(moves[:n]) for n in range(len(moves) + 1)]
        for chosen, bytes_of in itertools.product(done, (_synced_alone, *_KEPT)):
            state = self._state(chosen, bytes_of)
            known = state.folders, frozenset(state.files.items())
            if known not in seen:
                seen.add(known)
                yield state

    def _state(self, moves: Sequence[_Move], bytes_of: Callable[[_File], bytes]) -> State:
        names = dict(self._synced)
        for old, new, file in moves:
            if old is not None:
                names.pop(old, None)
            if new is not None:
                names[new] = file
        folders = frozenset(path for path, file in names.items() if file is None)
        files = {path: bytes_of(file) for path, file in names.items() if file is not None}
        return State(folders, {path: data for path, data in files.items() if path.parent in folders})

    # -- calls -----------------------------------------------------------------------------------------------

    def _look(self, operation: str) -> None:
        number = len(self.calls)
        self.calls.append(operation)
        if operation not in ("read", "read_whole", "size", "reopen"):
            self.before()
        if self.fails_at is not None and self.fails_at[0] == number and self.fails_at[1] != SHORT:
            raise OSError(self.fails_at[1], f"no {operation} here")
        super()._look(operation)

    def create(self, path: Path, mode: int = 0o600) -> int:
        descriptor = super().create(path, mode)
        self._open[descriptor] = self._live[path] = _File()
        self._moves.append(_Move(None, path, self._live[path]))
        return descriptor

    def reopen(self, path: Path) -> int:
        descriptor = super().reopen(path)
        self._open[descriptor] = self._live[path]
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        if self.fails_at == (len(self.calls), SHORT):
            data = data[: max(len(data) // 2, 1)]
        written = super().write(descriptor, data)
        file = self._open[descriptor]
        file.since.append(_Piece(file.size, bytes(data[:written])))
        file.size += written
        return written

    def fsync(self, descriptor: int) -> None:
        file = self._open[descriptor]
        try:
            super().fsync(descriptor)
        except OSError:
            file.since = zeroed(file.since)
            raise
        file.synced = _applied(file.synced, file.since)
        file.since = []

    def truncate(self, descriptor: int, size: int) -> None:
        super().truncate(descriptor, size)
        file = self._open[descriptor]
        file.since.append(_Piece(size, None))
        file.size = size

    def make_folder(self, path: Path, mode: int) -> None:
        super().make_folder(path, mode)
        self._moves.append(_Move(None, path, None))

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        left = []
        for move in self._moves:
            old, new, file = move
            if folder not in (old and old.parent, new and new.parent):
                left.append(move)
                continue
            if old is not None:
                self._synced.pop(old, None)
            if new is not None:
                self._synced[new] = file
        self._moves = left

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        file = self._live.pop(path, None)
        if file is not None:
            self._moves.append(_Move(path, None, file))

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self._live[new] = self._live.pop(old)
        self._moves.append(_Move(old, new, self._live[new]))

    def append_new(self, path: Path, data: bytes) -> None:
        """The same in a file that was not there."""
        path.write_bytes(b"")
        self._live[path] = self._synced[path] = _File()
        self.append(path, data)

    def append(self, path: Path, data: bytes) -> None:
        """Puts bytes at the end of a file, on the disk: what a process left that was killed."""
        with path.open("ab") as file:
            file.write(data)
        known = self._live[path]
        known.synced += data
        known.size += len(data)


def zeroed(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Returns the pieces, with zeros in place of their bytes."""
    return [_Piece(at, data and bytes(len(data))) for at, data in pieces]


def _applied(data: bytes, pieces: Sequence[_Piece]) -> bytes:
    found = bytearray(data)
    for at, piece in pieces:
        if piece is None:
            del found[at:]
        else:
            found.extend(bytes(max(at + len(piece) - len(found), 0)))
            found[at : at + len(piece)] = piece
    return bytes(found)


def _synced_alone(file: _File) -> bytes:
    return file.synced


def _last_piece_as(change: Callable[[bytes], bytes]) -> Callable[[_File], bytes]:
    """All writes to a file, but of the last one only the given part."""

    def bytes_of(file: _File) -> bytes:
        if not file.since or (last := file.since[-1]).data is None:
            return _applied(file.synced, file.since)
        return _applied(file.synced, [*file.since[:-1], _Piece(last.at, change(last.data))])

    return bytes_of


def _before_the_cut(file: _File) -> bytes:
    """All writes to a file, but not that it was truncated at the end."""
    pieces = list(file.since)
    while pieces and pieces[-1].data is None:
        pieces.pop()
    return _applied(file.synced, pieces)


_KEPT: Final = (
    _before_the_cut,
    _last_piece_as(lambda data: data),
    _last_piece_as(lambda data: data[: len(data) // 2]),
    _last_piece_as(lambda data: data[:-1]),
    _last_piece_as(lambda data: bytes(len(data))),
    _last_piece_as(lambda data: bytes(len(data) // 2) + data[len(data) // 2 :]),
)
