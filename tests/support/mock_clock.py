"""A clock that only a test advances. Advancing it wakes the callers of `wait_for`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable

#: How long a test may wait in real time before the waiting itself is the failure.
_PATIENCE_S: Final = patient(30.0)


class MockClock:
    """Any thread may advance it; `auto_tick_ms` is added at each reading, as in Java's MockTime."""

    def __init__(self, *, now_ms: int = 0, wall_ms: int = 1_700_000_000_000, auto_tick_ms: int = 0) -> None:
        self._lock = threading.Lock()
        self._now_ms = now_ms
        self._wall_offset_ms = wall_ms - now_ms
        self._auto_tick_ms = auto_tick_ms
        self._waiting: list[threading.Condition] = []

    def now_ms(self) -> int:
        with self._lock:
            self._now_ms += self._auto_tick_ms
            return self._now_ms

    def wall_ms(self) -> int:
        return self.now_ms() + self._wall_offset_ms

    def advance(self, ms: int) -> None:
        """Turns the clock forward and lets every waiter look at its deadline again."""
        with self._lock:
            self._now_ms += ms
            waiting = list(self._waiting)
        for condition in waiting:
            with condition:
                condition.notify_all()

    @property
    def waiters(self) -> int:
        """How many threads wait by this clock now: what a test looks at before it advances."""
        with self._lock:
            return len(self._waiting)

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
    ) -> bool:
        with self._lock:
            self._waiting.append(condition)
        try:
            while not predicate():
                if self.now_ms() >= deadline_ms:
                    return False
                if not condition.wait(_PATIENCE_S):
                    raise AssertionError(
                        f"nobody advanced the clock or woke the waiter within {_PATIENCE_S} s"
                    )
            return True
        finally:
            with self._lock:
                self._waiting.remove(condition)
