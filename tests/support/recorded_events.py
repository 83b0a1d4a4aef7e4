"""An EventSink that keeps all events, and that can be waited for."""

from __future__ import annotations

from threading import Condition
from typing import TYPE_CHECKING, TypeVar

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.events import Event

_E = TypeVar("_E")

_PATIENCE_S = patient(30.0)


class RecordedEvents:
    """Events in the order in which they came. Any thread."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = Condition()

    def emit(self, event: Event, /) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type[_E]) -> list[_E]:
        """Those of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def wait_for(self, kind: type[_E], which: Callable[[_E], bool], timeout_s: float = _PATIENCE_S) -> None:
        """Blocks until such an event was emitted; AssertionError after timeout_s."""
        with self._changed:
            reported = self._changed.wait_for(lambda: any(map(which, self.of(kind))), timeout_s)
        assert reported, f"no such {kind.__name__} within {timeout_s:g} s; seen: {self.of(kind)}"
