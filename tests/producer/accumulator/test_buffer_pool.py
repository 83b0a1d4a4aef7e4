"""BufferPool: which caller gets memory, when, and that none is lost. Twins of BufferPoolTest."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from client_core.errors import BufferExhaustedError, IllegalArgumentError, ProducerClosedError
from client_core.events import WaitFinished
from client_core.producer.accumulator.buffer_pool import BufferPool, PoolWaiter
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

LEFT_OUT: Final = {
    "BufferPoolTest.CleanupMemoryAvailabilityOnMetricsException": (
        "Listeners of events must not raise; nothing is measured inside the pool."
    ),
    "BufferPoolTest.outOfMemoryOnAllocation": "The pool counts bytes; there is no buffer to allocate.",
}

TOTAL = 1024
FOREVER = 10**9


@dataclass
class Rig:
    """A pool, and threads that wait for some of it."""

    threads: ThreadPoolExecutor
    clock: MockClock = field(default_factory=MockClock)
    events: RecordedEvents = field(default_factory=RecordedEvents)

    def __post_init__(self) -> None:
        self.pool = BufferPool(TOTAL, 256, self.clock, self.events)

    def block(self, size_bytes: int, deadline_ms: int = FOREVER) -> Future[None]:
        """Starts a thread that waits for so much, and returns when it waits."""
        before = self.clock.waiters
        blocked = self.threads.submit(self.pool.allocate, size_bytes, deadline_ms)
        wait_until(lambda: self.clock.waiters > before, what="a thread to wait", every_s=0.001)
        return blocked

    @property
    def left(self) -> tuple[int, int]:
        return self.pool.available_bytes, self.pool.waiters


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ThreadPoolExecutor() as threads:
        rig = Rig(threads)
        yield rig
        rig.pool.close()


@pytest.fixture
def full(rig: Rig) -> Rig:
    """Where all is taken."""
    rig.pool.allocate(TOTAL, 0)
    return rig


@pytest.fixture
def pool(rig: Rig) -> BufferPool:
    return rig.pool


@pytest.mark.java("BufferPoolTest.Simple")
def test_memory_is_taken_and_comes_back(pool: BufferPool) -> None:
    pool.allocate(1024, 10)
    assert pool.available_bytes == 0
    assert not pool.try_allocate(1)
    pool.deallocate(1024)
    assert pool.available_bytes == TOTAL
    assert pool.try_allocate(300)
    assert pool.available_bytes == 724


@pytest.mark.behaviour("BUF-01")
@pytest.mark.java("BufferPoolTest.CantAllocateMoreMemoryThanWeHave")
def test_more_than_the_whole_pool_is_refused(pool: BufferPool) -> None:
    said = "Attempt to allocate 1025 bytes, but there is a hard limit of 1024 on memory allocations."
    asks: list[Callable[[], object]] = [
        lambda: pool.allocate(1025, 0),
        lambda: pool.try_allocate(1025),
        lambda: pool.wait_for(1025, lambda: None),
    ]
    for ask in asks:
        with pytest.raises(IllegalArgumentError, match=said):
            ask()


@pytest.mark.java("BufferPoolTest.DelayedAllocation")
def test_a_blocked_thread_goes_on_when_memory_is_there(full: Rig) -> None:
    blocked = full.block(100)
    assert not blocked.done()
    full.pool.deallocate(512)
    blocked.result(10)
    assert full.left == (412, 0)


@pytest.mark.behaviour("BUF-03")
@pytest.mark.java("BufferPoolTest.BufferExhaustedExceptionIsThrown")
def test_waiting_in_vain_ends_in_javas_words(pool: BufferPool) -> None:
    pool.allocate(1000, 0)
    with pytest.raises(BufferExhaustedError) as exhausted:
        pool.allocate(256, 0)
    assert exhausted.value.message == (
        "Failed to allocate 256 bytes within the configured max blocking time 0 ms. Total memory: 1024 "
        "bytes. Available memory: 24 bytes. Poolable size: 256 bytes"
    )
    assert isinstance(exhausted.value, TimeoutError)


@pytest.mark.behaviour("BUF-02", "BUF-03")
@pytest.mark.java("BufferPoolTest.BlockTimeout")
def test_a_thread_that_waited_in_vain_gives_back_what_it_collected(full: Rig) -> None:
    blocked = full.block(600, 50)
    full.pool.deallocate(500)
    assert full.left == (0, 1)  # the waiter collects
    full.clock.advance(49)
    assert not blocked.done()
    full.clock.advance(1)
    with pytest.raises(BufferExhaustedError):
        blocked.result(10)
    assert full.left == (500, 0)


@pytest.mark.behaviour("BUF-02")
@pytest.mark.java("BufferPoolTest.CleanupMemoryAvailabilityWaiterOnBlockTimeout")
def test_a_thread_that_waited_in_vain_is_waited_for_no_longer() -> None:
    pool = BufferPool(2, 1, MockClock())
    pool.allocate(1, 10)
    with pytest.raises(BufferExhaustedError):
        pool.allocate(2, 0)
    assert (pool.available_bytes, pool.waiters) == (1, 0)
    assert pool.try_allocate(1)


@pytest.mark.behaviour("BUF-02")
def test_memory_that_an_impatient_thread_gives_back_goes_to_the_next(full: Rig) -> None:
    first, second = full.block(600, 50), full.block(400)
    full.pool.deallocate(500)
    full.clock.advance(50)
    with pytest.raises(BufferExhaustedError):
        first.result(10)
    second.result(10)
    assert full.pool.available_bytes == 100


@pytest.mark.behaviour("BUF-02")
def test_waiters_are_served_in_their_order_be_they_blocked_or_parked(full: Rig) -> None:
    pool, served = full.pool, list[str]()
    pool.wait_for(200, lambda: served.append("parked first"))
    blocked = full.block(300)
    pool.wait_for(10, lambda: served.append("parked last"))
    pool.deallocate(199)
    assert served == []
    assert not pool.try_allocate(1), "nobody overtakes who waits for more"
    pool.deallocate(1)
    assert served == ["parked first"]
    pool.deallocate(299)
    assert not blocked.done()
    pool.deallocate(1)
    blocked.result(10)
    assert served == ["parked first"]
    pool.deallocate(10)
    assert served == ["parked first", "parked last"]
    assert full.left == (0, 0)


def test_on_granted_may_use_the_pool(full: Rig) -> None:
    full.pool.wait_for(100, lambda: full.pool.deallocate(100))
    full.pool.deallocate(300)
    assert full.pool.available_bytes == 300


@pytest.mark.java("BufferPoolTest.LargeAvailableMemory")
def test_a_large_pool_counts_beyond_32_bits() -> None:
    pool = BufferPool(20_000_000_000, 2_000_000_000, MockClock())
    for _ in range(5):
        pool.allocate(2_000_000_000, 0)
    assert pool.available_bytes == 10_000_000_000
    pool.deallocate(2_000_000_000)
    assert pool.available_bytes == 12_000_000_000


@pytest.mark.behaviour("BUF-04")
@pytest.mark.java("BufferPoolTest.CloseAllocations")
def test_a_closed_pool_gives_nothing(pool: BufferPool) -> None:
    pool.allocate(10, 0)
    pool.close()
    for ask in (lambda: pool.allocate(1, 0), lambda: pool.wait_for(1, lambda: None)):
        with pytest.raises(ProducerClosedError, match="Producer closed while allocating memory"):
            ask()
    with pytest.raises(ProducerClosedError):
        pool.try_allocate(1)
    pool.deallocate(10)
    assert pool.available_bytes == TOTAL


@pytest.mark.behaviour("BUF-04")
@pytest.mark.java("BufferPoolTest.CloseNotifyWaiters")
def test_closing_wakes_all_blocked_threads(full: Rig) -> None:
    blocked = [full.block(600) for _ in range(3)]
    full.pool.deallocate(500)
    full.pool.close()
    for future in blocked:
        with pytest.raises(ProducerClosedError, match="Producer closed while allocating memory"):
            future.result(10)
    assert full.left == (500, 0)


def test_closing_completes_no_parked_request(full: Rig) -> None:
    reported: list[bool] = []
    waiter = full.pool.wait_for(100, lambda: reported.append(True))
    full.pool.close()
    full.pool.deallocate(1024)
    assert reported == []
    assert waiter.cancel()
    assert full.left == (TOTAL, 0)


def test_waits_are_reported_with_their_length(full: Rig) -> None:
    assert full.events.events == []
    full.pool.wait_for(24, lambda: None)
    full.clock.advance(30)
    full.pool.deallocate(24)
    with pytest.raises(BufferExhaustedError):
        full.pool.allocate(1, 0)
    assert full.events.events == [WaitFinished("buffer", "success", 30), WaitFinished("buffer", "timeout", 0)]


def test_an_interrupted_thread_leaves_nothing_behind() -> None:
    class Interrupted(MockClock):
        def wait_for(self, *_: object) -> bool:
            raise KeyboardInterrupt

    events = RecordedEvents()
    pool = BufferPool(TOTAL, 256, Interrupted(), events)
    pool.allocate(1024, 0)
    with pytest.raises(KeyboardInterrupt):
        pool.allocate(512, FOREVER)
    assert pool.waiters == 0
    assert events.events == [WaitFinished("buffer", "error", 0)]
    pool.deallocate(1024)
    assert pool.available_bytes == TOTAL


@pytest.mark.behaviour("BUF-02")
@pytest.mark.java("BufferPoolTest.CleanupMemoryAvailabilityWaiterOnInterruption")
def test_two_interrupted_threads_leave_the_queue_each_for_itself(rig: Rig) -> None:
    interrupted = threading.Event()

    class Interruptible(MockClock):
        def wait_for(
            self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
        ) -> bool:
            super().wait_for(condition, lambda: predicate() or interrupted.is_set(), deadline_ms)
            raise KeyboardInterrupt

    small = Rig(rig.threads, Interruptible())
    small.pool = BufferPool(2, 1, small.clock)
    small.pool.allocate(1, 10)
    both = [small.block(2), small.block(2)]
    assert small.pool.waiters == 2
    interrupted.set()
    small.clock.advance(1)  # both look up
    for one in both:
        assert isinstance(one.exception(10), KeyboardInterrupt)
    assert small.left == (1, 0)


def test_a_thread_that_is_interrupted_when_it_has_its_memory_gives_it_back() -> None:
    class InterruptedTooLate(MockClock):
        def wait_for(self, condition: threading.Condition, *_: object) -> bool:
            condition.release()  # as a condition does while it waits
            try:
                whole.deallocate(TOTAL)
            finally:
                condition.acquire()
            raise KeyboardInterrupt

    whole = BufferPool(TOTAL, 256, InterruptedTooLate())
    whole.allocate(TOTAL, 0)
    with pytest.raises(KeyboardInterrupt):
        whole.allocate(512, FOREVER)
    assert (whole.available_bytes, whole.waiters) == (TOTAL, 0)


@pytest.mark.java("BufferPoolTest.StressfulSituation")
def test_many_threads_leave_the_pool_whole(rig: Rig) -> None:
    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(200):
            size = random.choice([256, random.randrange(1, TOTAL)])
            rig.pool.allocate(size, FOREVER)
            rig.pool.deallocate(size)

    for future in [rig.threads.submit(work, seed) for seed in range(6)]:
        future.result(60)
    assert rig.left == (TOTAL, 0)


def test_repr_says_how_full_it_is(pool: BufferPool) -> None:
    pool.allocate(24, 0)
    assert repr(pool) == "<BufferPool available=1000 total=1024 waiters=0>"


# -- any interleaving ----------------------------------------------------------------------------------------

TOTAL_BYTES: Final = 100
SIZES: Final = st.one_of(st.integers(1, 30), st.integers(1, TOTAL_BYTES))


@dataclass(eq=False)
class Waiting:
    """One place in the queue: what the model expects, and what the pool said."""

    size_bytes: int
    waiter: PoolWaiter | None = None
    collected_bytes: int = 0
    granted: int = 0


class PoolMachine(RuleBasedStateMachine):
    """The pool, and a model of it."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(TOTAL_BYTES, 10, MockClock())
        self.queue: deque[Waiting] = deque()
        self.free_bytes = TOTAL_BYTES
        self.taken: list[int] = []
        self.is_closed = False
        self.order: list[Waiting] = []
        self.expected_order: list[Waiting] = []

    def served(self) -> None:
        """The pool's rule for free bytes: the first in the queue collects them, and no other overtakes it."""
        while self.queue and self.free_bytes and not self.is_closed:
            first = self.queue[0]
            given = min(self.free_bytes, first.size_bytes - first.collected_bytes)
            first.collected_bytes += given
            self.free_bytes -= given
            if first.collected_bytes < first.size_bytes:
                return
            self.queue.popleft()
            self.expected_order.append(first)

    @rule(size=SIZES)
    def try_to_allocate(self, size: int) -> None:
        if self.is_closed:
            with pytest.raises(ProducerClosedError):
                self.pool.try_allocate(size)
            return
        fits = not self.queue and size <= self.free_bytes
        assert self.pool.try_allocate(size) is fits
        if fits:
            self.free_bytes -= size
            self.taken.append(size)

    @rule(size=SIZES)
    def wait_for(self, size: int) -> None:
        waiting = Waiting(size)

        def granted() -> None:
            waiting.granted += 1
            self.order.append(waiting)

        if self.is_closed:
            with pytest.raises(ProducerClosedError):
                self.pool.wait_for(size, granted)
            return
        if not self.queue and size <= self.free_bytes:
            self.free_bytes -= size
            self.expected_order.append(waiting)
        else:
            self.queue.append(waiting)
        waiting.waiter = self.pool.wait_for(size, granted)

    @rule(more=st.integers(1, 50))
    def more_than_there_is(self, more: int) -> None:
        with pytest.raises(IllegalArgumentError):
            self.pool.try_allocate(TOTAL_BYTES + more)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        size = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.free_bytes += size
        self.served()
        self.pool.deallocate(size)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        waiting = self.queue[data.draw(st.integers(0, len(self.queue) - 1))]
        assert waiting.waiter is not None
        self.queue.remove(waiting)
        self.free_bytes += waiting.collected_bytes
        self.served()
        assert waiting.waiter.cancel()
        assert waiting.waiter.cancel(), "who has left has left, and gave nothing back twice"

    @precondition(lambda self: self.order)
    @rule(data=st.data())
    def leave_too_late(self, data: st.DataObject) -> None:
        """What was granted is the caller's."""
        waiting = self.order[data.draw(st.integers(0, len(self.order) - 1))]
        assert waiting.waiter is not None
        assert waiting.waiter.granted
        assert not waiting.waiter.cancel()

    @precondition(lambda self: self.order)
    @rule()
    def use_what_was_granted(self) -> None:
        for waiting in self.order:
            if waiting.granted == 1 and waiting.collected_bytes >= 0:
                self.taken.append(waiting.size_bytes)
                waiting.collected_bytes = -1

    @precondition(lambda self: not self.is_closed)
    @rule(really=st.integers(0, 9))
    def close(self, really: int) -> None:
        if not really:
            self.is_closed = True
            self.pool.close()

    @invariant()
    def the_first_was_served_first_and_each_once(self) -> None:
        assert self.order == self.expected_order
        assert all(waiting.granted == 1 for waiting in self.order)
        assert all(not waiting.granted for waiting in self.queue)

    @invariant()
    def every_byte_is_free_or_somebodys(self) -> None:
        assert self.pool.available_bytes == self.free_bytes
        assert self.pool.waiters == len(self.queue)
        granted = sum(waiting.size_bytes for waiting in self.order if waiting.collected_bytes >= 0)
        collected = sum(waiting.collected_bytes for waiting in self.queue)
        assert self.free_bytes + granted + collected + sum(self.taken) == TOTAL_BYTES


@pytest.mark.behaviour("BUF-01", "BUF-02")
def test_waiting_threads_are_served_in_turn_and_no_byte_is_lost() -> None:
    run_state_machine_as_test(PoolMachine, settings=settings(max_examples=50, stateful_step_count=40))


def test_a_wait_that_is_interrupted_without_the_lock_leaves_it_to_the_thread_that_has_it() -> None:
    """As Condition.wait does, if a signal's handler raises just after it has released the lock."""
    taken, may_leave = threading.Event(), threading.Event()
    errors: list[RuntimeError] = []

    def hold(lock: threading.Condition) -> None:
        try:
            with lock:
                taken.set()
                assert may_leave.wait(patient(20))
        except RuntimeError as error:
            errors.append(error)

    class Interrupted(MockClock):
        def wait_for(
            self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
        ) -> bool:
            condition.release()
            holder.start()
            assert taken.wait(patient(20))
            raise KeyboardInterrupt

    pool = BufferPool(TOTAL, 256, Interrupted())
    condition = threading.Condition(pool._lock)
    holder = threading.Thread(target=hold, args=(condition,))
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        pool._wait(PoolWaiter(pool, 1, 0, condition=condition), condition, 1)
    may_leave.set()
    holder.join(patient(20))
    assert errors == []
