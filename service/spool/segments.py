"""Manages the spool's files (segments): names, order, sizes, creation and deletion.

    00000000000000000017-0000000003-9f86d081884c7d65.segment    first sequence number, generation, salt

The salt (entry.py) is in the name, not in the file, so that damage to the file cannot destroy it.

Each new file has a higher generation. In a file, entries from the first number of its successor on are
superseded, and ignored. They are from a group whose fsync failed: it was refused and its numbers were used
again, but the disk may still have it. So a record that was reported as not written never comes back, even if
the file could not be cut.

Each process begins a file of its own. So nobody reads the torn tail of an earlier process's last file: the
bytes after its last intact frame. Other bytes that are no frame are damage; the reader finds the frames after
them.

One lock; the writer's thread adds files, the delivery's removes them.
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
    """A file. Segments sort in the order in which they are read."""

    first_sequence: int
    generation: int
    salt: bytes

    @property
    def name(self) -> str:
        return f"{self}-{self.salt.hex()}.segment"

    def __str__(self) -> str:
        """Returns the name for the log, without the salt."""
        return f"{self.first_sequence:020d}-{self.generation:010d}"


def segments_in(folder: Path) -> dict[Segment, int]:
    """Returns the files in a folder, in order, with their sizes in bytes. Raises OSError."""
    found: dict[Segment, int] = {}
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is None or not path.is_file():
            continue
        segment = Segment(int(match["first"]), int(match["generation"]), bytes.fromhex(match["salt"]))
        try:
            found[segment] = path.stat().st_size
        except FileNotFoundError:
            continue  # a sidecar has delivered and deleted it
    return dict(sorted(found.items()))


class Segments:
    """All files of one spool."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        """Lists the files of earlier processes, and finds the next number. Raises OSError."""
        self.folder: Final = folder
        self.disk: Final = disk
        self._lock = threading.Lock()
        self._sizes = segments_in(folder)
        #: The last file of the earlier processes: nobody writes to it any more.
        self.last_earlier: Final = next(reversed(self._sizes), None)
        self._generation = max((segment.generation for segment in self._sizes), default=0)
        self._next_sequence = self._recover()

    @property
    def next_sequence(self) -> int:
        """The number of the next entry, before a writer begins."""
        return self._next_sequence

    def skip_to(self, sequence: int) -> None:
        """Makes this the least number of the next entry: those before it were used.

        A machine crash, or a person, may remove entries from the end. Their numbers must not be used again.
        """
        self._next_sequence = max(self._next_sequence, sequence)

    @property
    def total_bytes(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    def path_of(self, segment: Segment) -> Path:
        return self.folder / segment.name

    # -- finding files ---------------------------------------------------------------------------------------

    def holding(self, sequence: int) -> Segment | None:
        """Returns the file with an entry, or else the first file after it; None if there are no files."""
        with self._lock:
            before = [segment for segment in self._sizes if segment.first_sequence <= sequence]
            return before[-1] if before else next(iter(self._sizes), None)

    def after(self, segment: Segment) -> Segment | None:
        """Returns the successor of a file, which may already be deleted; None if there is none."""
        with self._lock:
            return next((other for other in self._sizes if other > segment), None)

    # -- writing: the writer's thread ------------------------------------------------------------------------

    def begin(self, first_sequence: int) -> tuple[Segment, int]:
        """Creates a file, and syncs its name to the disk; returns it with its descriptor. Raises OSError."""
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
        """Sets the size of a file, in bytes that count."""
        with self._lock:
            if segment in self._sizes:
                self._sizes[segment] = size

    # -- removing: the delivery's thread ---------------------------------------------------------------------

    def wholly_before(self, sequence: int) -> list[Segment]:
        """Returns the files with only entries below this number, never the last file."""
        with self._lock:
            segments = list(self._sizes)
        return [segment for segment, successor in pairwise(segments) if successor.first_sequence <= sequence]

    def delete(self, segment: Segment) -> None:
        """Deletes a file. Raises OSError."""
        self.disk.unlink(self.path_of(segment))
        self.forget(segment)

    def forget(self, segment: Segment) -> None:
        """Removes a file that is gone from the folder."""
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
            # The reader handles the file; skip all the numbers that may be in it.
            return last.first_sequence + self._sizes[last] // FRAME_BYTES + 1
        sequence, end = last.first_sequence, 0
        while (found := next_frame(last.salt, data, end)) is not None:
            _, frame = found
            end = frame.end
            sequence = max(sequence, frame.sequence + 1)
        if end < len(data):
            _log.warning(
                "spool: %s ends in the middle of a record: %d bytes are ignored", last, len(data) - end
            )
        return sequence
