"""The client's events to everyone in the sidecar who wants them.

`emit` runs on the client's threads, in its hot path: each sink is as quick as it must be. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from client_core import Event


class Subscriber(Protocol):
    """An EventSink that says which kinds of events it wants."""

    def wants(self, kind: type) -> bool:
        """Whether events of this class are of use; the same answer for ever."""
        ...

    def emit(self, event: Event, /) -> None: ...


class FanOut:
    """An EventSink that hands each event to several, in their order: to those that want its kind."""

    def __init__(self, *sinks: Subscriber) -> None:
        self._sinks: Final = sinks
        # Who wants a kind: found out when the first of it comes.
        self._by_kind: dict[type, tuple[Callable[[Event], None], ...]] = {}

    def emit(self, event: Event, /) -> None:
        """Tells every sink that wants to know."""
        kind = type(event)
        takers = self._by_kind.get(kind)
        if takers is None:
            takers = self._by_kind[kind] = tuple(sink.emit for sink in self._sinks if sink.wants(kind))
        for take in takers:
            take(event)
