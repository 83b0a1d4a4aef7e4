"""An EventSink that keeps what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from client_core.events import Event

_E = TypeVar("_E")


class RecordedEvents:
    """Events in the order in which they came."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event, /) -> None:
        self.events.append(event)

    def of(self, kind: type[_E]) -> list[_E]:
        """Those of one kind."""
        return [event for event in self.events if isinstance(event, kind)]
