"""The client's events to everyone in the sidecar who wants them.

`emit` runs on the client's threads, in its hot path: each sink is as quick as it must be. Any thread.
"""

from __future__ import annotations

from typing import Final

from client_core import Event, EventSink


class FanOut:
    """An EventSink that hands each event to several, in their order."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks: Final = sinks

    def emit(self, event: Event, /) -> None:
        """Tells every sink."""
        for sink in self._sinks:
            sink.emit(event)
