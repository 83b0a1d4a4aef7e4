"""Whether the sidecar is on its way out, for everyone who has to know: guards, probes, and open streams."""

from __future__ import annotations

from collections.abc import Callable


class Drain:
    """Set by the server on the event loop; the flags may be read by any thread."""

    def __init__(self) -> None:
        #: SIGTERM came: not ready any more, but serving (drain_delay_ms).
        self.announced = False
        #: Nothing new is taken on.
        self.begun = False
        self._listeners: set[Callable[[], None]] = set()

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
