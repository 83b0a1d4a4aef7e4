"""Monotonic and wall-clock time, passed in so that tests control it.

`now_ms` is monotonic: deadlines, backoffs and ages. `wall_ms` is wall-clock time: only timestamps of records
and events. Only KafkaProducer, Sender, Selector and BufferPool hold a Clock; everything else takes `now_ms`.
Tests use `tests/support/mock_clock.py`. Source: Time, SystemTime, Kafka 4.3.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

#: Later than any deadline, for unbounded waits. Java's Long.MAX_VALUE.
FOREVER_MS: Final = (1 << 63) - 1


class Clock(Protocol):
    """The client's source of time."""

    def now_ms(self) -> int:
        """Milliseconds since an arbitrary moment; never decreases."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC by the machine's clock; may jump."""
        ...

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
    ) -> bool:
        """Waits on a held condition until the predicate holds (True) or now_ms reaches deadline_ms (False).

        Source: Time.waitObject.
        """
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def wait_for(
        self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
    ) -> bool:
        while not predicate():
            left_ms = deadline_ms - self.now_ms()
            if left_ms <= 0:
                return False
            condition.wait(min(left_ms / 1000, threading.TIMEOUT_MAX))
        return True
