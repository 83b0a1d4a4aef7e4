"""What a caller's thread waits for until another one says so, once: an Event that no interrupt can spoil.

`threading.Event` takes its lock in Python code. A KeyboardInterrupt that comes when the lock is taken, and
before the `with` knows of it, leaves it taken: whoever calls `set` then, the I/O thread for one, waits for
ever. Here the lock is taken in one call of C, and who sets takes none. No Java counterpart: CountDownLatch.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

#: How long an interrupt may go unnoticed: one that comes a moment before a wait begins does not end it.
_LONGEST_DEAF_WAIT_S: Final = 0.5


class Latch:
    """Closed until it is set. Any thread; `set` by one of them."""

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()
        self.is_set = False

    def set(self) -> None:
        """Lets all go on who wait, or come later. Never blocks."""
        if not self.is_set:
            self.is_set = True
            self._lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it was set within so many seconds; None waits for as long as it takes."""
        left_s = float("inf") if timeout_s is None else timeout_s
        while not self.is_set and left_s > 0:
            # An interrupted waiter may keep the lock: the others look at `is_set` after the next piece.
            if self._lock.acquire(timeout=min(left_s, _LONGEST_DEAF_WAIT_S)):
                self._lock.release()
            left_s -= _LONGEST_DEAF_WAIT_S
        return self.is_set

    def __repr__(self) -> str:
        return f"<Latch is_set={self.is_set}>"
