"""buffer.memory: how many bytes of records may wait in the client, and the one queue for those who want more.

Only the accounting is Java's, not the buffers: Python needs none. Whoever can't be served stands in one FIFO queue,
be it a thread that blocks or a request that is parked; memory that comes free goes to the first of them, who collects
until its request is whole (BUF-02). So while anyone waits, nothing is available, and nobody overtakes.

Any thread. One lock, held for a few operations on integers; `on_granted` is called outside of it, by the thread that
freed the memory. Source: BufferPool, Kafka 4.3.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS
from client_core.errors import BufferExhaustedError, IllegalArgumentError, ProducerClosedError
from client_core.events import NO_EVENTS, EventSink, WaitFinished

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.clock import Clock

_CLOSED: Final = "Producer closed while allocating memory"


class PoolWaiter:
    """A place in the pool's queue. Its fields belong to the pool's lock."""

    __slots__ = ("_on_granted", "_pool", "collected_bytes", "condition", "granted", "size_bytes", "since_ms")

    def __init__(
        self,
        pool: BufferPool,
        size_bytes: int,
        since_ms: int,
        *,
        condition: threading.Condition | None = None,
        on_granted: Callable[[], None] | None = None,
    ) -> None:
        self._pool = pool
        self._on_granted = on_granted
        self.size_bytes = size_bytes
        self.since_ms = since_ms
        self.condition = condition
        self.collected_bytes = 0
        self.granted = False

    def cancel(self) -> bool:
        """Leaves the queue; what was collected goes to the next. Any thread.

        False when the memory was granted before: then it is the caller's, to use or to deallocate.
        """
        return self._pool.leave(self)

    def tell(self) -> None:
        """Says that the memory is there. Called once, outside the lock."""
        if self._on_granted is not None:
            self._on_granted()


class BufferPool:
    """The memory that appended records may take, and who waits for it."""

    def __init__(
        self, total_bytes: int, poolable_bytes: int, clock: Clock, events: EventSink = NO_EVENTS
    ) -> None:
        self.total_bytes: Final = total_bytes
        self.poolable_bytes: Final = poolable_bytes  # batch.size; named in messages only
        self._clock = clock
        self._events = events
        self._lock = threading.Lock()
        self._available_bytes = total_bytes
        self._waiters: deque[PoolWaiter] = deque()
        self._closed = False

    def __repr__(self) -> str:
        return (
            f"<BufferPool available={self._available_bytes} total={self.total_bytes} "
            f"waiters={len(self._waiters)}>"
        )

    @property
    def available_bytes(self) -> int:
        """Memory that nobody has; a plain read."""
        return self._available_bytes

    @property
    def waiters(self) -> int:
        """How many wait, threads and parked requests; a plain read."""
        return len(self._waiters)

    def try_allocate(self, size_bytes: int) -> bool:
        """Takes memory if it is there now. Raises as `allocate` does, but never waits."""
        with self._lock:
            return self._take(size_bytes)

    def allocate(self, size_bytes: int, max_block_ms: int) -> None:
        """Takes memory, and blocks for it for up to max_block_ms.

        Raises BufferExhaustedError when that was not enough (BUF-03), ProducerClosedError when the pool is closed
        (BUF-04), IllegalArgumentError when the pool could never give so much (BUF-01).
        """
        with self._lock:
            if self._take(size_bytes):
                return
            waiter = PoolWaiter(
                self, size_bytes, self._clock.now_ms(), condition=threading.Condition(self._lock)
            )
            self._waiters.append(waiter)
        outcome, granted = "error", ()
        try:
            granted = self._wait(waiter, max_block_ms)
            outcome = "success"
        except BufferExhaustedError:
            outcome = "timeout"
            raise
        finally:
            self._report(waiter, outcome)
