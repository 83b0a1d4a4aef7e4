"""What was set aside: records that can never be delivered, each with the reason, and damaged files.

    aside/00000000000000000017.records    frames (entry.py) whose payload is a MessagePack array: reason,
                                          detail, when (milliseconds since 1970), version and payload of
                                          the entry
    aside/<name of a segment>.damaged     the file as it was found; its sound records went their way

Nothing here is ever sent by itself: `pilotfish spool requeue` puts records back. What lies here counts
against spool_max_bytes.

Delivery's thread, and the CLI's; the numbers on any thread.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from service.spool.disk import Disk
from service.spool.entry import Entry, EntryError, entry_of, frame_of, next_frame
from service.spool.reader import Stored
from service.spool.segments import Segment, Segments

_log: Final = logging.getLogger(__name__)

_FOLDER: Final = "aside"
_RECORDS: Final = ".records"
_DAMAGED: Final = ".damaged"

#: A reason is a label of a metric: there are few of them.
Reason = str
REASONS: Final[Sequence[Reason]] = (
    "too_large",
    "forbidden",
    "topic_gone",
    "partition_gone",
    "invalid",
    "refused",
    "unreadable",
)


class _Payload(msgspec.Struct, array_like=True, frozen=True, gc=False):
    reason: str
    detail: str
    at_wall_ms: int
    version: int
    payload: bytes


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Payload).decode


class SetAside(NamedTuple):
    """One record that was set aside."""

    sequence: int
    reason: Reason
    detail: str
    at_wall_ms: int
    version: int
    payload: bytes

    @property
    def entry(self) -> Entry | None:
        """The record; None where this version does not understand it."""
        try:
            return entry_of(self.version, self.payload)
        except EntryError:
            return None


class Aside:
    """The folder of what was set aside."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        """Makes it where it is missing, and counts what is there. Raises OSError."""
        self._folder = folder / _FOLDER
        self._disk = disk
        self._lock = threading.Lock()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._count()

    # -- numbers, any thread ---------------------------------------------------------------------------------

    @property
    def total_bytes(self) -> int:
        with self._lock:
            return self._bytes

    @property
    def records(self) -> int:
        with self._lock:
            return sum(self._reasons.values())

    @property
    def damaged_files(self) -> int:
        with self._lock:
            return self._damaged_files

    def by_reason(self) -> dict[Reason, int]:
        """How many records lie there, by why."""
        with self._lock:
            return {reason: self._reasons[reason] for reason in (*REASONS, *sorted(self._reasons))}

    # -- putting there ---------------------------------------------------------------------------------------

    def add(self, stored: Sequence[Stored], reason: Reason, detail: str, at_wall_ms: int) -> None:
        """Has records on the disk as set aside, all for one reason. Raises OSError: none of them is then."""
        self._write(
            [SetAside(one.sequence, reason, detail, at_wall_ms, one.version, one.payload) for one in stored]
        )

    def move_damaged(self, segments: Segments, segment: Segment) -> None:
        """Moves a file here, of which nothing is read any more. Raises OSError."""
        target = self._folder / f"{segment.name}{_DAMAGED}"
        try:
            self._disk.rename(segments.path_of(segment), target)
            size = target.stat().st_size
        except FileNotFoundError:
            segments.forget(segment)
            return
        segments.forget(segment)
        with self._lock:
            self._bytes += size
            self._damaged_files += 1

    # -- looking, and taking away ----------------------------------------------------------------------------

    def all(self) -> list[SetAside]:
        """Every record that was set aside, in order. Raises OSError."""
        return [found for path in self._files() for found in _read(path)]

    def damaged(self) -> list[tuple[str, int]]:
        """The damaged files, with their sizes in bytes. Raises OSError."""
        return [
            (path.name, path.stat().st_size)
            for path in sorted(self._folder.iterdir())
            if path.name.endswith(_DAMAGED)
        ]

    def remove(self, sequences: Collection[int]) -> None:
        """These records are here no more. Raises OSError."""
        for path in self._files():
            found = _read(path)
            left = [one for one in found if one.sequence not in sequences]
            if not left:
                self._disk.unlink(path)
            elif len(left) < len(found):
                self._disk.write_whole(path, _bytes_of(left))
        self._disk.sync_folder(self._folder)
        self._count()

    # -- inside ----------------------------------------------------------------------------------------------

    def _write(self, records: Sequence[SetAside]) -> None:
        path = self._folder / f"{records[0].sequence:020d}{_RECORDS}"
        data = _bytes_of(records)
        # A record that was delivered again after a kill may be set aside again: it is here once.
        before = path.stat().st_size if path.exists() else 0
        kept = (
            [one for one in _read(path) if one.sequence not in {r.sequence for r in records}]
            if before
            else []
        )
        if kept:
            data += _bytes_of(kept)
        self._disk.write_whole(path, data)
        if before:
            self._count()
            return
        with self._lock:
            self._bytes += len(data)
            self._reasons.update(record.reason for record in records)

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.iterdir() if path.name.endswith(_RECORDS))

    def _count(self) -> None:
        reasons = Counter(found.reason for found in self.all())
        sizes = [path.stat().st_size for path in self._folder.iterdir()]
        damaged_files = len(self.damaged())
        with self._lock:
            self._reasons = reasons
            self._bytes = sum(sizes)
            self._damaged_files = damaged_files


def _bytes_of(records: Sequence[SetAside]) -> bytes:
    return b"".join(
        frame_of(r.sequence, _encode(_Payload(r.reason, r.detail, r.at_wall_ms, r.version, r.payload)))
        for r in records
    )


def _read(path: Path) -> list[SetAside]:
    """The records of a file; what is damaged is passed over, and told in the log."""
    data = path.read_bytes()
    found: list[SetAside] = []
    at = 0
    while (there := next_frame(data, at)) is not None:
        start, frame = there
        if start > at:
            _log.error("spool: %s is damaged: %d bytes are passed over", path, start - at)
        at = frame.end
        try:
            held = _decode(frame.payload)
        except msgspec.DecodeError as e:
            _log.error("spool: a record in %s can't be read: %s", path, e)
            continue
        found.append(
            SetAside(frame.sequence, held.reason, held.detail, held.at_wall_ms, held.version, held.payload)
        )
    if at < len(data):
        _log.error("spool: %s is damaged: its last %d bytes are passed over", path, len(data) - at)
    return found
