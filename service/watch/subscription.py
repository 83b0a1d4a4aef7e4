"""One watcher's place in the log of changes: where it stands, what concerns it, and its waiting.

Nothing is queued for a watcher: it reads from the log that all share, and one that stands too far behind has
lost its place. Event loop only.

Numbered changes, the latest of them kept: what a watcher reads from, and resumes from.

A change gets the next number and its bytes once, for everybody. The log is bounded by number and by bytes;
when it overflows its oldest quarter goes, so that keeping it short costs nothing per change. Event loop only.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from client_core import MetadataCache
from service.admission.caller import Caller
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


class Start(NamedTuple):
    """Where a watcher begins: a snapshot, the change that led to it, and why it begins (anew)."""

    cache: MetadataCache
    number: int
    reason: str | None


class Subscription:
    """A watcher of some topics, or of all (`names` None), as far as its caller may read them."""

    def __init__(self, log: ChangeLog, caller: Caller, names: frozenset[str] | None, max_behind: int) -> None:
        self.caller: Final = caller
        self.names: Final = names
        self._log = log
        self._max_behind = max_behind
        self._at = log.number
        self._woken = asyncio.Event()
        #: Set where the watcher must begin, or begin anew; it takes it away by `take_start`.
        self._start: Start | None = None
        self._sees_all = names is None and caller.may_read_all
        #: The sidecar shuts down: nothing will follow.
        self.is_over = False

    # -- the feed's part -------------------------------------------------------------------------------------

    def begin_at(self, start: Start) -> None:
        """The watcher is to begin with this snapshot, whatever it knew before."""
        self._start = start
        self.wake()

    def wake(self) -> None:
        """There may be something to read."""
        self._woken.set()

    def end(self) -> None:
        """Nothing will follow."""
        self.is_over = True
        self.wake()

    @property
    def number(self) -> int:
        """The last change that was given out, or passed over."""
        return self._at

    # -- the watcher's part ----------------------------------------------------------------------------------

    def sees(self, topic: str) -> bool:
        """Whether the watcher is to hear of a topic."""
        return (self.names is None or topic in self.names) and self.caller.read.allow(topic)

    def take_start(self) -> Start | None:
        """The snapshot to begin with, once; from here on `take` gives what follows it."""
        start, self._start = self._start, None
        if start is not None:
            self._at = start.number
        return start

    def resume(self, number: int) -> list[LoggedChange] | None:
        """What was missed after that change; None where the log does not tell. `take` gives what follows."""
        missed = self._log.after(number)
        if missed is None:
            return None
        self._start = None
        self._at = self._log.number
        return self._visible(missed)

    def take(self) -> list[LoggedChange] | None:
        """What came since the last time; None where the watcher has fallen behind too far."""
        came = self._log.after(self._at)
        if came is None or len(came) > self._max_behind:
            return None
        self._at = self._log.number
        return self._visible(came)

    async def wait(self, timeout_s: float) -> None:
        """Waits until there may be something to read, or for so long."""
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
