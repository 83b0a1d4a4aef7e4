"""Reads entries from the spool in order, from a number on, and skips damage.

A file is read up to the first number of its successor (segments.py), the last file up to the last committed
number. Where no intact frame is found, the reader searches for the next one, and reports the missing numbers.
It returns only entries that are exactly as they were written.

Delivery's thread.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from service.spool.entry import Entry, EntryError, Frame, entry_of, frame_at, frame_end, next_frame
from service.spool.segments import Segment, Segments

_log: Final = logging.getLogger(__name__)

#: The bytes of one read.
READ_BYTES: Final = 1024 * 1024


class Stored(NamedTuple):
    """The entry of a number. `entry` None: this version cannot decode it, and `fault` says why."""

    sequence: int
    version: int
    payload: bytes
    entry: Entry | None
    fault: str = ""


class SpoolReader:
    """A position in the spool that moves forward."""

    def __init__(
        self, segments: Segments, sequence: int, missing: Callable[[Segment, int, int], None]
    ) -> None:
        """`missing(file, first, until)` reports entries that a file lacks: from `first`, below `until`."""
        self._segments = segments
        self._report_missing = missing
        self._segment: Segment | None = None
        self._offset = 0
        #: The number of the next entry.
        self.sequence = sequence

    def read(self, committed: int, most_bytes: int) -> list[Stored]:
        """Returns the next entries below `committed`, until `most_bytes` are reached; [] if there are none.

        Raises OSError if a read failed for a reason that may be temporary, such as too many open files.
        """
        taken: list[Stored] = []
        taken_bytes = 0
        while taken_bytes < most_bytes and self.sequence < committed:
            if self._segment is None:
                self._segment, self._offset = self._segments.holding(self.sequence), 0
                if self._segment is None:
                    self.sequence = committed  # somebody deleted all files: nothing is left to wait for
                    break
                self.sequence = max(self.sequence, self._segment.first_sequence)
            successor = self._segments.after(self._segment)
            until = committed if successor is None else min(successor.first_sequence, committed)
            if self.sequence < until:
                before = len(taken)
                try:
                    self._read_on(self._segment, until, most_bytes - taken_bytes, taken)
                except OSError:
                    if taken:
                        break  # the next call raises it
                    raise
                taken_bytes += sum(len(stored.payload) for stored in taken[before:])
            if self.sequence >= until and successor is not None:
                self._segment, self._offset = successor, 0
                self.sequence = max(self.sequence, successor.first_sequence)
        return taken

    def _read_on(self, segment: Segment, until: int, most_bytes: int, taken: list[Stored]) -> None:
        """Takes entries below `until` from one piece of a file."""
        data = self._piece(segment)
        at = 0
        while at < most_bytes and self.sequence < until:
            frame = frame_at(segment.salt, data, at)
            if frame is None:
                break
            at = frame.end
            self._take(segment, frame, until, taken)
        if at == 0:
            at = self._pass_damage(segment, until, taken)
        self._offset += at

    def _take(self, segment: Segment, frame: Frame, until: int, taken: list[Stored]) -> None:
        """Takes a frame, unless it is before the position or superseded."""
        if frame.sequence < self.sequence:
            return
        if frame.sequence > self.sequence:
            sound_from = min(frame.sequence, until)
            self._report_missing(segment, self.sequence, sound_from)
            self.sequence = sound_from
        if frame.sequence < until:
            taken.append(_stored(frame))
            self.sequence = frame.sequence + 1

    def _piece(self, segment: Segment) -> bytes:
        """Returns the next bytes of a file, with at least one whole frame if there is one."""
        path, disk = self._segments.path_of(segment), self._segments.disk
        try:
            data = disk.read(path, self._offset, READ_BYTES)
            end = frame_end(segment.salt, data, 0)
            if end is not None and len(data) < end <= self._offset + disk.size(path):
                data = disk.read(path, self._offset, end)
        except OSError as e:
            _check_lost(e)
            _log.error("spool: can't read %s: %s", segment, e.strerror or e)
            return b""
        return data

    def _pass_damage(self, segment: Segment, until: int, taken: list[Stored]) -> int:
        """Moves past damage: to after the next frame, or to the file's end; returns by how many bytes."""
        path = self._segments.path_of(segment)
        try:
            disk = self._segments.disk
            data = disk.read(path, self._offset, disk.size(path))
        except OSError as e:
            _check_lost(e)
            data = b""
        at = 0
        while (found := next_frame(segment.salt, data, at)) is not None:
            _, frame = found
            at = frame.end
            if self.sequence <= frame.sequence < until:
                self._take(segment, frame, until, taken)
                return at
        self._report_missing(segment, self.sequence, until)
        self.sequence = until
        return len(data)


def _check_lost(error: OSError) -> None:
    """Raises the error again, unless it means that the bytes are lost."""
    if error.errno not in (errno.EIO, errno.ENOENT):
        raise error


def _stored(frame: Frame) -> Stored:
    try:
        return Stored(frame.sequence, frame.version, frame.payload, entry_of(frame.version, frame.payload))
    except EntryError as e:
        return Stored(frame.sequence, frame.version, frame.payload, None, str(e))
