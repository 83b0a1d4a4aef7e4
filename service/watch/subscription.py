"""One watcher's place in the log of changes: where it stands, what concerns it, and its waiting.

Nothing is queued for a watcher: it reads from the log that all share, and one that stands too far behind has
lost its place. Event loop only.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from client_core import MetadataCache
from service.admission.caller import Caller
from service.watch.change_log import ChangeLog, LoggedChange


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
