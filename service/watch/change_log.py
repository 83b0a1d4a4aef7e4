"""Numbered changes, the latest of them kept: what a watcher reads from, and resumes from.

A change gets the next number and its bytes once, for everybody. The log is bounded by number and by bytes;
when it overflows its oldest quarter goes, so that keeping it short costs nothing per change. Event loop only.
"""

from __future__ import annotations

from typing import Final

from service.watch.changes import Change
from service.wire.freshness import version_text


class LoggedChange:
    """A change with its number, as it goes over the wire."""

    __slots__ = ("_data_at", "event", "frame", "number", "topic")

    def __init__(self, change: Change, number: int, version: str) -> None:
        head = b"event: %s\nid: %s\ndata: " % (change.event.encode(), version.encode())
        self.number = number
        self.event = change.event
        self.topic = change.topic
        #: A server-sent event.
        self.frame = head + change.data + b"\n\n"
        self._data_at = len(head)

    @property
    def data(self) -> bytes:
        """The JSON of it."""
        return self.frame[self._data_at : -2]


class ChangeLog:
    """The changes of this process, the oldest forgotten. Numbers only grow, and none is given twice."""

    def __init__(self, boot: str, max_changes: int, max_bytes: int) -> None:
        self.boot: Final = boot
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._changes: list[LoggedChange] = []
        self._bytes = 0
        #: The number of the latest change.
        self.number = 0

    def __len__(self) -> int:
        return len(self._changes)

    def append(self, change: Change) -> None:
        """Numbers and keeps a change."""
        self.number += 1
        logged = LoggedChange(change, self.number, version_text(self.boot, self.number))
        self._changes.append(logged)
        self._bytes += len(logged.frame)
        if len(self._changes) > self._max_changes or self._bytes > self._max_bytes:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        gone = max(len(self._changes) // 4, 1)
        self._bytes -= sum(len(logged.frame) for logged in self._changes[:gone])
        del self._changes[:gone]

    def begin_anew(self) -> None:
        """What comes next does not follow from what was: nobody can resume from before."""
        self.number += 1
        self._changes.clear()
        self._bytes = 0

    def after(self, number: int) -> list[LoggedChange] | None:
        """The changes after that one; None where some of them are not kept, or where it was never given."""
        missed = self.number - number
        if missed < 0 or missed > len(self._changes):
            return None
        return self._changes[len(self._changes) - missed :]
