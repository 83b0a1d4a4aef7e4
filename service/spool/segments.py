"""The files of the spool: each named by the sequence number of its first entry, its generation and its salt.

    00000000000000000017-0000000003-9f86d081884c7d65.segment

The salt (entry.py) stands in the name, and not in the file: no damage to the file can take it from there.

The generation grows with every file. What a file holds from the first number of its successor on is void: a
group of records whose fsync failed was refused, and its numbers were given anew, whatever the disk still has
of it. So nothing that was answered by 503 comes back, not even where the file could not be cut.

At the start the last file's torn tail is cut: bytes at its end that are no whole frame, behind which no frame
comes. Bytes in the middle that are none are damage; the reader finds the frames behind them.

One lock; the writer's thread adds files, the delivery's takes them away.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import threading
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from service.base.disk import Disk
from service.spool.entry import FRAME_BYTES, SALT_BYTES, new_salt, next_frame

_log: Final = logging.getLogger(__name__)

_NAME: Final = re.compile(
    rf"(?P<first>\d{{20}})-(?P<generation>\d{{10}})-(?P<salt>[0-9a-f]{{{2 * SALT_BYTES}}})\.segment", re.ASCII
)


class Segment(NamedTuple):
    """A file; they sort in the order in which they are read."""

    first_sequence: int
    generation: int
    salt: bytes

    @property
    def name(self) -> str:
        return f"{self}-{self.salt.hex()}.segment"

    def __str__(self) -> str:
        """For the log: the name without the salt, which no reader of a log needs to know."""
        return f"{self.first_sequence:020d}-{self.generation:010d}"


def segments_in(folder: Path) -> dict[Segment, int]:
    """The files in a folder, in order, with their sizes in bytes. Raises OSError."""
    found: dict[Segment, int] = {}
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        segment = Segment(int(match["first"]), int(match["generation"]), bytes.fromhex(match["salt"]))
        try:
            found[segment] = path.stat().st_size
        except FileNotFoundError:
            continue  # a sidecar has delivered it meanwhile
    return dict(sorted(found.items()))


class Segments:
    """All files of one spool."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        """Looks at what an earlier process left, and cuts a torn tail. Raises OSError."""
        self.folder: Final = folder
        self.disk: Final = disk
        self._lock = threading.Lock()
        self._sizes = segments_in(folder)
        self._generation = max((segment.generation for segment in self._sizes), default=0)
        self.cut_bytes = 0
        #: The number that the next entry gets.
        self.next_sequence = self._recover()

    @property
    def total_bytes(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    def path_of(self, segment: Segment) -> Path:
        return self.folder / segment.name

    # -- what is there ---------------------------------------------------------------------------------------

    def holding(self, sequence: int) -> Segment | None:
        """The file in which an entry stands, or the first one behind it; None where there are no files."""
        with self._lock:
            before = [segment for segment in self._sizes if segment.first_sequence <= sequence]
            return before[-1] if before else next(iter(self._sizes), None)

    def after(self, segment: Segment) -> Segment | None:
        """The successor of a file, which may be gone itself."""
        with self._lock:
            return next((other for other in self._sizes if other > segment), None)

    # -- writing: the writer's thread ------------------------------------------------------------------------

    def begin(self, first_sequence: int) -> tuple[Segment, int]:
        """A new file, whose name is on the disk, and its descriptor. Raises OSError."""
        self._generation += 1
        segment = Segment(first_sequence, self._generation, new_salt())
        descriptor = self.disk.create(self.path_of(segment))
        try:
            self.disk.sync_folder(self.folder)
        except OSError:
            self.disk.close(descriptor)
            with contextlib.suppress(OSError):
                self.disk.unlink(self.path_of(segment))
            raise
        with self._lock:
            self._sizes = dict(sorted({**self._sizes, segment: 0}.items()))
        return segment, descriptor

    def has_size(self, segment: Segment, size: int) -> None:
        """So much of a file counts now."""
        with self._lock:
            if segment in self._sizes:
                self._sizes[segment] = size

    # -- taking away: the delivery's thread ------------------------------------------------------------------

    def wholly_before(self, sequence: int) -> list[Segment]:
        """The files of which no entry has this number or a later one. The last file is never among them."""
        with self._lock:
            segments = list(self._sizes)
        return [segment for segment, successor in pairwise(segments) if successor.first_sequence <= sequence]

    def delete(self, segment: Segment) -> None:
        """Takes a file away. Raises OSError."""
        self.disk.unlink(self.path_of(segment))
        self.forget(segment)

    def forget(self, segment: Segment) -> None:
        """A file is gone from the folder."""
        with self._lock:
            self._sizes.pop(segment, None)

    # -- the start -------------------------------------------------------------------------------------------

    def _recover(self) -> int:
        if not self._sizes:
            return 1
        last = next(reversed(self._sizes))
        try:
            try:
                data = self.disk.read(self.path_of(last), 0, self._sizes[last])
            except OSError as e:
                _log.warning("spool: can't read %s: %s; it is tried once more", last, e.strerror or e)
                data = self.disk.read(self.path_of(last), 0, self._sizes[last])
        except OSError as e:
            if e.errno != errno.EIO:
                raise
            _log.error("spool: can't read %s: %s", last, e.strerror or e)
            # It is left to the reader, with all the numbers that may stand in it.
            return last.first_sequence + self._sizes[last] // FRAME_BYTES + 1
        sequence, end = last.first_sequence, 0
        at = 0
        while (found := next_frame(last.salt, data, at)) is not None:
            _, frame = found
            at = end = frame.end
            sequence = max(sequence, frame.sequence + 1)
        if end < len(data):
            self._cut(last, end, len(data))
        return sequence

    def _cut(self, segment: Segment, end: int, size: int) -> None:
        _log.warning("spool: %s ended in the middle of a record: %d bytes cut off", segment, size - end)
        descriptor = self.disk.reopen(self.path_of(segment))
        try:
            self.disk.truncate(descriptor, end)
            self.disk.fsync(descriptor)
        finally:
            self.disk.close(descriptor)
        self.cut_bytes = size - end
        self._sizes[segment] = end
