"""Whether the sidecar is on its way out, for everyone who has to know: guards, probes, and open streams.

    serving ──ask──▶ announced: not ready, and serving (drain_delay_ms) ──begin──▶ begun: takes nothing on

`ask` is SIGTERM's way and that of POST /quitquitquit, so that both mean the same; whoever runs the app has
said by `when_asked` what is to be done then.
"""

from __future__ import annotations

from collections.abc import Callable


class Drain:
    """Set by the server on the event loop; the flags may be read by any thread."""

    def __init__(self) -> None:
        #: Somebody asked for the end: not ready any more, but serving (drain_delay_ms).
        self.announced = False
        #: Nothing new is taken on.
        self.begun = False
        self._listeners: set[Callable[[], None]] = set()
        self._end: Callable[[], None] = _nothing

    def when_asked(self, end: Callable[[], None]) -> None:
        """Has `end` called when somebody asks for the end, once. By whoever runs the app."""
        self._end = end

    def ask(self) -> bool:
        """Asks for the end; whether this is the first time, and not the same wish again. Event loop only."""
        if self.announced:
            return False
        self.announced = True
        self._end()
        return True

    def begin(self) -> None:
        """Takes on nothing new from here on; tells the listeners, each once."""
        self.begun = True
        while self._listeners:
            self._listeners.pop()()

    def listen(self, listener: Callable[[], None]) -> None:
        """Has `listener` called when the drain begins: at once, if it has. Event loop only."""
        if self.begun:
            listener()
        else:
            self._listeners.add(listener)

    def leave(self, listener: Callable[[], None]) -> None:
        """The listener need not be told any more."""
        self._listeners.discard(listener)


def _nothing() -> None:
    """Nobody runs the app as a process of its own: it is told to end some other way."""
