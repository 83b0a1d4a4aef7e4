"""A one-shot event that survives a KeyboardInterrupt.

`threading.Event` takes its lock in Python code. A KeyboardInterrupt between the acquire and the `with` block
leaves the lock held for good. The next `set` then blocks for ever, for example on the I/O thread. Here `wait`
acquires the lock in one C call, and `set` only releases it. Source: Java's CountDownLatch(1).
"""

from __future__ import annotations

from threading import Lock
from typing import Final

#: A wait is split into pieces of this length. A signal that arrives just before a piece begins is handled
#: when the piece ends.
_LONGEST_PIECE_S: Final = 0.5


class Latch:
    """Initially not set. Any thread may wait; one thread calls `set`."""

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()
        self.is_set = False

    def set(self) -> None:
        """Wakes all waiting threads; later waits return at once. Never blocks."""
        if not self.is_set:
            self.is_set = True
            self._lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Returns whether it was set within `timeout_s` seconds; None waits without a limit."""
        left_s = float("inf") if timeout_s is None else timeout_s
        while not self.is_set and left_s > 0:
            # An interrupted thread may keep the lock, so others check `is_set` after each piece.
            if self._lock.acquire(timeout=min(left_s, _LONGEST_PIECE_S)):
                self._lock.release()
            left_s -= _LONGEST_PIECE_S
        return self.is_set

    def __repr__(self) -> str:
        return f"<Latch is_set={self.is_set}>"
