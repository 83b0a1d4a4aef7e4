"""Keeps the order of parked requests: which block their topic, and which threads wait.

No record may be appended before an earlier parked request of its topic, and a flush covers all
parked requests. So a request blocks its topic before it is handed to the I/O thread, until it is no
longer parked. A later `submit` for the topic is parked behind it; a later `send` waits here. A request for
a partition that does not exist is unblocked until the topic's number of partitions changes.

Any thread, unless a method says otherwise. One lock. With nothing parked `topics` is empty: a plain read.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections import OrderedDict, deque
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client_core.clock import Clock
    from client_core.producer.requests.pending_request import PendingRequest


class _Waiter:
    """A thread that waits for all requests of a topic up to a number. Guarded by the lock."""

    __slots__ = ("condition", "may_go", "number")

    def __init__(self, number: int, lock: threading.RLock) -> None:
        self.number = number
        self.condition = threading.Condition(lock)
        self.may_go = False


_number: Final = itemgetter(0)


class _GatedTopic:
    """The parked requests of one topic with their numbers, and the threads behind them. Under the lock."""

    __slots__ = ("callbacks", "queued", "unblocked", "unblocked_at_count", "waiters")

    def __init__(self) -> None:
        self.queued: OrderedDict[PendingRequest, int] = OrderedDict()
        self.unblocked: dict[PendingRequest, int] = {}
        #: The topic's partition count when these were last unblocked.
        self.unblocked_at_count = 0
        #: How many of `queued` were submitted in a callback.
        self.callbacks = 0
        self.waiters: deque[_Waiter] = deque()


class OrderingGate:
    """The parked requests, all in one order, and by topic."""

    def __init__(self, partition_count: Callable[[str], int | None]) -> None:
        """`partition_count(topic)`: the count in the present snapshot. Called under the lock."""
        self._partition_count = partition_count
        # An interrupted Condition.wait may return without the lock. An RLock then refuses the release that
        # follows; a Lock would release that of another thread.
        self._lock = threading.RLock()
        self._topics: dict[str, _GatedTopic] = {}
        #: The topics with parked requests.
        self.topics: Final[Mapping[str, object]] = self._topics
        #: No dict, as in TopicQueue.
        self._parked: OrderedDict[PendingRequest, int] = OrderedDict()
        #: The number for `call_after_parked`, for all requests that are parked now. Any thread may read it.
        self.last_number = 0
        #: By number: flushes read it before they come here, and may come in another order.
        self._flushes: deque[tuple[int, Callable[[], None]]] = deque()
        self._closed = False

    # -- parked requests -------------------------------------------------------------------------------------

    def block(self, request: PendingRequest, *, in_callback: bool = False) -> None:
        """Makes later records of the topic wait for this request. Called before it is handed over."""
        request.blocks_others = True
        request.came_in_callback = in_callback
        with self._lock:
            self.last_number += 1
            held = self._topics.get(request.topic)
            if held is None:
                held = self._topics[request.topic] = _GatedTopic()
            held.queued[request] = self._parked[request] = self.last_number
            held.callbacks += in_callback

    def unblock(self, request: PendingRequest, partition_count: int) -> None:
        """Lets others overtake it, while the topic has so many partitions. I/O thread."""
        request.blocks_others = False
        with self._lock:
            held = self._topics[request.topic]
            held.unblocked_at_count = partition_count
            held.unblocked[request] = held.queued.pop(request)
            held.callbacks -= request.came_in_callback
            self._wake_waiters(request.topic, held)

    def block_again(self, topic: str) -> None:
        """Puts the unblocked requests in front of the queue: they came earlier. I/O thread."""
        with self._lock:
            held = self._topics[topic]
            for request in held.unblocked:
                request.blocks_others = True
                held.callbacks += request.came_in_callback
            held.queued = OrderedDict({**held.unblocked, **held.queued})
            held.unblocked = {}

    def remove(self, request: PendingRequest) -> None:
        """Unblocks after a request that is appended, failed or cancelled. I/O thread."""
        request.blocks_others = False
        calls: list[Callable[[], None]] = []
        with self._lock:
            if self._parked.pop(request, None) is None:
                return
            held = self._topics[request.topic]
            if held.unblocked.pop(request, None) is None:
                del held.queued[request]
                held.callbacks -= request.came_in_callback
            self._wake_waiters(request.topic, held)
            if not held.queued and not held.unblocked:
                del self._topics[request.topic]
            first = next(iter(self._parked.values()), FOREVER_MS)
            while self._flushes and self._flushes[0][0] < first:
                calls.append(self._flushes.popleft()[1])
        for call in calls:
            call()

    def look_again(self, topic: str) -> None:
        """Wakes waiting threads, if the new metadata allows it. I/O thread."""
        with self._lock:
            held = self._topics.get(topic)
            if held is not None:  # a turn may have raised between the gate and the queues
                self._wake_waiters(topic, held)

    # -- later requests --------------------------------------------------------------------------------------

    def is_blocked(self, topic: str) -> bool:
        """Returns whether a new record for the topic would overtake a request."""
        with self._lock:
            held = self._topics.get(topic)
            return held is not None and self._blocks(topic, held, self.last_number)

    def has_callbacks(self, topic: str) -> bool:
        """Returns whether a request that was submitted in a callback queues for the topic."""
        with self._lock:
            held = self._topics.get(topic)
            return held is not None and held.callbacks > 0

    def wait_behind(self, topic: str, clock: Clock, deadline_ms: int) -> bool:
        """Blocks until nothing that was parked for the topic before this call would be overtaken.

        False at the deadline. Returns at once, True, when `close` is called. Not on the I/O thread.
        """
        with self._lock:
            held = self._topics.get(topic)
            if held is None or not self._blocks(topic, held, self.last_number):
                return True
            waiter = _Waiter(self.last_number, self._lock)
            held.waiters.append(waiter)
            try:
                return clock.wait_for(waiter.condition, lambda: waiter.may_go or self._closed, deadline_ms)
            finally:
                if not waiter.may_go:
                    held.waiters.remove(waiter)

    def call_after_parked(self, up_to_number: int, call: Callable[[], None]) -> None:
        """Calls `call` when all requests up to that number are appended, or have failed: now, or later on the
        I/O thread. Outside the lock.
        """
        with self._lock:
            if next(iter(self._parked.values()), FOREVER_MS) <= up_to_number:
                insort(self._flushes, (up_to_number, call), key=_number)
                return
        call()

    def close(self) -> None:
        """Ends all waits in `wait_behind`: the producer accepts no more records."""
        with self._lock:
            self._closed = True
            for held in self._topics.values():
                for waiter in held.waiters:
                    waiter.condition.notify()

    # -- under the lock --------------------------------------------------------------------------------------

    def _blocks(self, topic: str, held: _GatedTopic, number: int) -> bool:
        if next(iter(held.queued.values()), FOREVER_MS) <= number:
            return True
        # The I/O thread has yet to check these: a record for a new partition would overtake them.
        return bool(held.unblocked) and held.unblocked_at_count != self._partition_count(topic)

    def _wake_waiters(self, topic: str, held: _GatedTopic) -> None:
        while held.waiters and not self._blocks(topic, held, held.waiters[0].number):
            waiter = held.waiters.popleft()
            waiter.may_go = True
            waiter.condition.notify()
