"""The log of numbered changes, and one watcher's position in it.

No queue per watcher: all read from the shared log, and a watcher too far behind loses its position. A change
is numbered and encoded once for all watchers. The log is bounded in changes and in bytes. When it overflows,
its oldest quarter is dropped at once, so that trimming costs nothing per change. Event loop only.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from client_core import MetadataCache
from service.admission.caller import Caller
from service.watch.changes import Change
from service.wire.freshness import version_text


class LoggedChange:
    """A change with its number, encoded for the wire."""

    __slots__ = ("_data_at", "event", "frame", "number", "topic")

    def __init__(self, change: Change, number: int, version: str) -> None:
        head = b"event: %s\nid: %s\ndata: " % (change.event.encode(), version.encode())
        #: The number of the last change that was returned or skipped.
        self.number = number
        self.event = change.event
        self.topic = change.topic
        #: A server-sent event.
        self.frame = head + change.data + b"\n\n"
        self._data_at = len(head)

    @property
    def data(self) -> bytes:
        """The change as JSON."""
        return self.frame[self._data_at : -2]


class ChangeLog:
    """The latest changes of this process. Numbers only grow, and none is used twice."""

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
        """Numbers and stores a change."""
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
        """Drops all changes: the next ones do not follow from them, so nobody may resume from before."""
        self.number += 1
        self._changes.clear()
        self._bytes = 0

    def after(self, number: int) -> list[LoggedChange] | None:
        """Returns the changes after that number; None if some were dropped, or if it was never used."""
        missed = self.number - number
        if missed < 0 or missed > len(self._changes):
            return None
        return self._changes[len(self._changes) - missed :]


class Start(NamedTuple):
    """A watcher's start: a snapshot, the number of the last change in it, and the reason for a restart."""

    cache: MetadataCache
    number: int
    reason: str | None


class Subscription:
    """A watcher of some topics, or of all (`names` None), limited to those that its caller may read."""

    def __init__(self, log: ChangeLog, caller: Caller, names: frozenset[str] | None, max_behind: int) -> None:
        self.caller: Final = caller
        self.names: Final = names
        self._log = log
        self._max_behind = max_behind
        self.number = log.number
        self._woken = asyncio.Event()
        #: Set when the watcher must start, or start again; cleared by `take_start`.
        self._start: Start | None = None
        self._sees_all = names is None and caller.may_read_all
        #: The sidecar shuts down; no more changes follow.
        self.is_over = False

    # -- the feed's part -------------------------------------------------------------------------------------

    def begin_at(self, start: Start) -> None:
        """Makes the watcher start from this snapshot, whatever it has received before, once it is woken."""
        self._start = start

    def wake(self) -> None:
        """Wakes the watcher: there may be changes to read."""
        self._woken.set()

    def end(self) -> None:
        """Ends the watcher: no more changes follow."""
        self.is_over = True
        self.wake()

    # -- the watcher's part ----------------------------------------------------------------------------------

    def sees(self, topic: str) -> bool:
        """Whether the watcher gets changes of a topic."""
        return (self.names is None or topic in self.names) and self.caller.read.allow(topic)

    def take_start(self) -> Start | None:
        """Returns the snapshot to start with, once; `take` then returns the changes after it."""
        start, self._start = self._start, None
        if start is not None:
            self.number = start.number
        return start

    def resume(self, number: int) -> list[LoggedChange] | None:
        """Returns the changes after that number; None if they are not in the log."""
        missed = self._log.after(number)
        if missed is None:
            return None
        self._start = None
        self.number = self._log.number
        return self._visible(missed)

    def take(self) -> list[LoggedChange] | None:
        """Returns the changes since the last call; None if the watcher is too far behind.

        None have come for a watcher that must start again: its position is in a log that was dropped.
        """
        if self._start is not None:
            return []
        came = self._log.after(self.number)
        if came is None or len(came) > self._max_behind:
            return None
        self.number = self._log.number
        return self._visible(came)

    async def wait(self, timeout_s: float) -> None:
        """Waits until there may be changes to read, or for `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    def _visible(self, changes: list[LoggedChange]) -> list[LoggedChange]:
        if self._sees_all:
            return changes
        return [change for change in changes if change.topic is None or self.sees(change.topic)]
