"""buffer.memory: limits the bytes of waiting records, with one FIFO queue of waiters.

The accounting is Java's; there are no buffers to reuse, because Python needs none. Blocked threads and parked
requests wait in the same queue. Freed memory goes to the first waiter until its request is complete (BUF-02).
While anyone waits, nobody else is served.

Any thread. One lock, held for a few integer operations. `on_granted` is called outside it, by the thread that
freed the memory. Source: BufferPool, Kafka 4.3.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS
from client_core.errors import BufferExhaustedError, IllegalArgumentError, ProducerClosedError
from client_core.events import NO_EVENTS, WaitFinished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from client_core.clock import Clock
    from client_core.events import EventSink

_CLOSED: Final = "Producer closed while allocating memory"


class PoolWaiter:
    """An entry in the pool's queue. Its fields are guarded by the pool's lock."""

    __slots__ = ("_on_granted", "_pool", "collected_bytes", "condition", "granted", "since_ms", "size_bytes")

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
        """Leaves the queue; its collected memory goes to the next waiter. Any thread.

        Returns False if the memory was granted before: then it is the caller's, to use or to deallocate.
        """
        return self._pool.leave(self)

    def wake(self) -> None:
        """Reports that the memory is granted. Called once, outside the lock."""
        if self._on_granted is not None:
            self._on_granted()


class BufferPool:
    """The memory for appended records, and its waiters."""

    def __init__(
        self, total_bytes: int, poolable_bytes: int, clock: Clock, events: EventSink = NO_EVENTS
    ) -> None:
        self.total_bytes: Final = total_bytes
        self.poolable_bytes: Final = poolable_bytes  # batch.size; named in messages only
        self._clock = clock
        self._events = events
        # An interrupted Condition.wait may return without the lock. An RLock then refuses the release that
        # follows; a Lock would release that of another thread.
        self._lock = threading.RLock()
        #: Free memory; others read it without the lock.
        self.available_bytes = total_bytes
        self._waiters: deque[PoolWaiter] = deque()
        self._refuses_threads = False
        self._closed = False

    def __repr__(self) -> str:
        return (
            f"<BufferPool available={self.available_bytes} total={self.total_bytes} "
            f"waiters={len(self._waiters)}>"
        )

    @property
    def waiters(self) -> int:
        """How many wait, threads and parked requests; a plain read."""
        return len(self._waiters)

    def try_allocate(self, size_bytes: int) -> bool:
        """Takes memory if it is free now. Raises as `allocate` does, but never waits."""
        is_taken = False
        try:
            with self._lock:
                is_taken = self._take(size_bytes)
            return is_taken
        except BaseException:
            if is_taken:  # the caller is interrupted, and will not know
                self.deallocate(size_bytes)
            raise

    def allocate(self, size_bytes: int, max_block_ms: int) -> None:
        """Takes memory; blocks for up to max_block_ms.

        Raises BufferExhaustedError when the time is over (BUF-03), ProducerClosedError when the pool is
        closed (BUF-04), IllegalArgumentError if the pool could never grant so much (BUF-01).
        """
        with self._lock:
            if self._refuses_threads:
                raise ProducerClosedError(_CLOSED)
            if self._take(size_bytes):
                return
            condition = threading.Condition(self._lock)
            waiter = PoolWaiter(self, size_bytes, self._clock.now_ms(), condition=condition)
            self._waiters.append(waiter)
        outcome = "error"
        try:
            self._wait(waiter, condition, max_block_ms)
            outcome = "success"
        except BufferExhaustedError:
            outcome = "timeout"
            raise
        finally:
            if outcome != "success" and not self.leave(waiter):
                self.deallocate(size_bytes)  # granted while this thread was being interrupted
            self._report(waiter, outcome)

    def wait_for(self, size_bytes: int, on_granted: Callable[[], None]) -> PoolWaiter:
        """Queues a caller that does not block. Raises as `try_allocate` does.

        `on_granted` is called once, when all of the memory is granted: by the thread that freed it, or before
        this returns if it was free. It is not called after a `cancel` that returned True, nor after the
        pool is closed. Then the owner of the parked request ends the request.
        """
        waiter = PoolWaiter(self, size_bytes, self._clock.now_ms(), on_granted=on_granted)
        with self._lock:
            waiter.granted = self._take(size_bytes)
            if not waiter.granted:
                self._waiters.append(waiter)
        if waiter.granted:
            waiter.wake()
        return waiter

    def deallocate(self, size_bytes: int) -> None:
        """Returns memory to the pool, and grants it to waiters.

        The caller must hold no lock, because this calls the waiters' `on_granted`.
        """
        with self._lock:
            self.available_bytes += size_bytes
            granted = self._serve() if self._waiters else ()
        self._wake(granted)

    def leave(self, waiter: PoolWaiter) -> bool:
        """Removes a waiter from the queue; False if its memory was granted. See PoolWaiter.cancel."""
        with self._lock:
            if waiter.granted:
                return False
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            self.available_bytes += waiter.collected_bytes
            waiter.collected_bytes = 0
            granted = self._serve()
        self._wake(granted)
        return True

    def refuse_threads(self) -> None:
        """Wakes blocked threads and refuses new ones; they raise (BUF-04). Parked requests continue."""
        with self._lock:
            self._refuses_threads = True
            for waiter in self._waiters:
                if waiter.condition is not None:
                    waiter.condition.notify()

    def close(self) -> None:
        """Refuses all further requests. Blocked threads wake and raise (BUF-04)."""
        self.refuse_threads()
        with self._lock:
            self._closed = True

    # -- under the lock ------------------------------------------------------------------------------------

    def _take(self, size_bytes: int) -> bool:
        if size_bytes > self.total_bytes:
            raise IllegalArgumentError(
                f"Attempt to allocate {size_bytes} bytes, but there is a hard limit of {self.total_bytes} "
                "on memory allocations."
            )
        if self._closed:
            raise ProducerClosedError(_CLOSED)
        if self._waiters or self.available_bytes < size_bytes:
            return False
        self.available_bytes -= size_bytes
        return True

    def _serve(self) -> list[PoolWaiter]:
        """Grants free memory to the waiters in turn; returns the parked ones to notify."""
        parked: list[PoolWaiter] = []
        while self._waiters and self.available_bytes and not self._closed:
            first = self._waiters[0]
            given = min(first.size_bytes - first.collected_bytes, self.available_bytes)
            self.available_bytes -= given
            first.collected_bytes += given
            if first.collected_bytes < first.size_bytes:
                break
            self._waiters.popleft()
            first.granted = True
            if first.condition is not None:
                first.condition.notify()
            else:
                parked.append(first)
        return parked

    # -- outside of it -------------------------------------------------------------------------------------

    def _wait(self, waiter: PoolWaiter, condition: threading.Condition, max_block_ms: int) -> None:
        deadline_ms = min(waiter.since_ms + max_block_ms, FOREVER_MS)
        with self._lock:
            self._clock.wait_for(condition, lambda: waiter.granted or self._refuses_threads, deadline_ms)
            if waiter.granted:
                return
            if self._refuses_threads:
                raise ProducerClosedError(_CLOSED)
            raise self.exhausted(waiter.size_bytes, max_block_ms)

    def exhausted(self, size_bytes: int, max_block_ms: int) -> BufferExhaustedError:
        """Returns the error of a wait that timed out, with Java's text (BUF-03)."""
        return BufferExhaustedError(
            f"Failed to allocate {size_bytes} bytes within the configured max blocking time "
            f"{max_block_ms} ms. Total memory: {self.total_bytes} bytes. Available memory: "
            f"{self.available_bytes} bytes. Poolable size: {self.poolable_bytes} bytes"
        )

    def _wake(self, granted: Iterable[PoolWaiter]) -> None:
        for waiter in granted:
            self._report(waiter, "success")
            waiter.wake()

    def _report(self, waiter: PoolWaiter, outcome: str) -> None:
        self._events.emit(WaitFinished("buffer", outcome, self._clock.now_ms() - waiter.since_ms))
