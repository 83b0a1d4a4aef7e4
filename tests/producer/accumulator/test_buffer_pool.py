"""BufferPool: who gets memory, when, and that none is lost. Twins of BufferPoolTest."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import BufferExhaustedError, IllegalArgumentError, ProducerClosedError
from client_core.events import WaitFinished
from client_core.producer.accumulator.buffer_pool import BufferPool
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from client_core.events import Event

LEFT_OUT: Final = {
    "BufferPoolTest.CleanupMemoryAvailabilityOnMetricsException": (
        "Whoever listens to events must not raise; nothing is measured inside the pool."
    ),
    "BufferPoolTest.outOfMemoryOnAllocation": "The pool counts bytes; there is no buffer to allocate.",
}

TOTAL = 1024
FOREVER = 10**9


class Events:
    def __init__(self) -> None:
        self.seen: list[Event] = []

    def emit(self, event: Event, /) -> None:
        self.seen.append(event)


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def pool(clock: MockClock, events: Events) -> BufferPool:
    return BufferPool(TOTAL, 256, clock, events)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as executor:
        yield executor


def wait_until_waiting(clock: MockClock, count: int) -> None:
    """Threads are real here: lets them get to where they wait."""
    patience = threading.Event()
    for _ in range(5000):
        if clock.waiters >= count:
            return
        patience.wait(0.001)
    raise AssertionError(f"{clock.waiters} of {count} threads wait")


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
    with pytest.raises(IllegalArgumentError, match=said):
        pool.allocate(1025, 0)
    with pytest.raises(IllegalArgumentError, match=said):
        pool.try_allocate(1025)
    with pytest.raises(IllegalArgumentError, match=said):
        pool.wait_for(1025, lambda: None)


@pytest.mark.java("BufferPoolTest.DelayedAllocation")
def test_a_blocked_thread_goes_on_when_memory_is_there(
    pool: BufferPool, clock: MockClock, threads: ThreadPoolExecutor
) -> None:
    pool.allocate(1024, 0)
    blocked = threads.submit(pool.allocate, 100, FOREVER)
    wait_until_waiting(clock, 1)
    assert not blocked.done()
    pool.deallocate(512)
    blocked.result(10)
    assert pool.available_bytes == 412


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
def test_a_thread_that_waited_in_vain_gives_back_what_it_collected(
    pool: BufferPool, clock: MockClock, threads: ThreadPoolExecutor
) -> None:
    pool.allocate(1024, 0)
    blocked = threads.submit(pool.allocate, 600, 50)
    wait_until_waiting(clock, 1)
    pool.deallocate(500)
    assert pool.available_bytes == 0  # the waiter collects
    clock.advance(49)
    assert not blocked.done()
    clock.advance(1)
    with pytest.raises(BufferExhaustedError):
        blocked.result(10)
    assert (pool.available_bytes, pool.waiters) == (500, 0)


@pytest.mark.behaviour("BUF-02")
@pytest.mark.java("BufferPoolTest.CleanupMemoryAvailabilityWaiterOnBlockTimeout")
def test_a_thread_that_waited_in_vain_is_waited_for_no_longer(clock: MockClock) -> None:
    pool = BufferPool(2, 1, clock)
    pool.allocate(1, 10)
    with pytest.raises(BufferExhaustedError):
        pool.allocate(2, 0)
    assert (pool.available_bytes, pool.waiters) == (1, 0)
    assert pool.try_allocate(1)


@pytest.mark.behaviour("BUF-02")
def test_what_an_impatient_thread_gives_back_goes_to_the_next(
    pool: BufferPool, clock: MockClock, threads: ThreadPoolExecutor
) -> None:
    pool.allocate(1024, 0)
    first = threads.submit(pool.allocate, 600, 50)
    wait_until_waiting(clock, 1)
    second = threads.submit(pool.allocate, 400, FOREVER)
    wait_until_waiting(clock, 2)
    pool.deallocate(500)
    clock.advance(50)
    with pytest.raises(BufferExhaustedError):
        first.result(10)
    second.result(10)
    assert pool.available_bytes == 100


@pytest.mark.behaviour("BUF-02")
def test_waiters_are_served_in_their_order_be_they_blocked_or_parked(
    pool: BufferPool, clock: MockClock, threads: ThreadPoolExecutor
) -> None:
    pool.allocate(1024, 0)
    served: list[str] = []

    def block() -> None:
        pool.allocate(300, FOREVER)
        served.append("blocked")

    pool.wait_for(200, lambda: served.append("parked first"))
    blocked = threads.submit(block)
    wait_until_waiting(clock, 1)
    pool.wait_for(10, lambda: served.append("parked last"))
    pool.deallocate(199)
    assert served == []
    pool.deallocate(1)
    assert served == ["parked first"]
    pool.deallocate(299)
    assert not blocked.done()
    pool.deallocate(1)
    blocked.result(10)
    assert served == ["parked first", "blocked"]
    pool.deallocate(10)
    assert served[-1] == "parked last"
    assert (pool.available_bytes, pool.waiters) == (0, 0)


@pytest.mark.behaviour("BUF-02")
def test_nobody_overtakes_who_waits_for_more(pool: BufferPool) -> None:
    pool.allocate(1000, 0)
    pool.wait_for(100, lambda: None)
    assert not pool.try_allocate(1)
    pool.deallocate(50)
    assert not pool.try_allocate(1)
    assert pool.available_bytes == 0


def test_a_parked_request_gets_memory_at_once_when_it_is_there(pool: BufferPool) -> None:
    reported: list[bool] = []
    waiter = pool.wait_for(100, lambda: reported.append(True))
    assert reported == [True]
    assert waiter.granted
    assert pool.available_bytes == 924


def test_on_granted_may_use_the_pool(pool: BufferPool) -> None:
    pool.allocate(1024, 0)
    pool.wait_for(100, lambda: pool.deallocate(100))
    pool.deallocate(300)
    assert pool.available_bytes == 300


def test_who_leaves_the_queue_frees_his_place(pool: BufferPool) -> None:
    pool.allocate(1024, 0)
    reported: list[str] = []
    first = pool.wait_for(500, lambda: reported.append("first"))
    pool.wait_for(100, lambda: reported.append("second"))
    pool.deallocate(400)
    assert first.cancel()
    assert reported == ["second"]
    assert first.cancel()  # once more does no harm
    assert pool.available_bytes == 300
    pool.deallocate(1024 - 400)
    assert reported == ["second"]


def test_who_leaves_too_late_keeps_the_memory(pool: BufferPool) -> None:
    waiter = pool.wait_for(100, lambda: None)
    assert not waiter.cancel()
    assert pool.available_bytes == 924


@pytest.mark.java("BufferPoolTest.LargeAvailableMemory")
def test_a_large_pool_counts_beyond_32_bits(clock: MockClock) -> None:
    pool = BufferPool(20_000_000_000, 2_000_000_000, clock)
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
def test_closing_wakes_all_blocked_threads(
    pool: BufferPool, clock: MockClock, threads: ThreadPoolExecutor
) -> None:
    pool.allocate(1024, 0)
    blocked: list[Future[None]] = [threads.submit(pool.allocate, 600, FOREVER) for _ in range(3)]
    wait_until_waiting(clock, 3)
    pool.deallocate(500)
    pool.close()
    for future in blocked:
        with pytest.raises(ProducerClosedError, match="Producer closed while allocating memory"):
            future.result(10)
    assert (pool.available_bytes, pool.waiters) == (500, 0)


def test_closing_tells_parked_requests_nothing(pool: BufferPool) -> None:
    pool.allocate(1024, 0)
    reported: list[bool] = []
    waiter = pool.wait_for(100, lambda: reported.append(True))
    pool.close()
    pool.deallocate(1024)
    assert reported == []
    assert waiter.cancel()
    assert pool.available_bytes == TOTAL


def test_waits_are_reported_with_their_length(pool: BufferPool, clock: MockClock, events: Events) -> None:
    pool.allocate(1024, 0)
    assert events.seen == []
    pool.wait_for(24, lambda: None)
    clock.advance(30)
    pool.deallocate(24)
    with pytest.raises(BufferExhaustedError):
        pool.allocate(1, 0)
    assert events.seen == [WaitFinished("buffer", "success", 30), WaitFinished("buffer", "timeout", 0)]


def test_an_interrupted_thread_leaves_nothing_behind(events: Events) -> None:
    class Interrupted(MockClock):
        def wait_for(self, *_: object) -> bool:
            raise KeyboardInterrupt

    pool = BufferPool(TOTAL, 256, Interrupted(), events)
    pool.allocate(1024, 0)
    with pytest.raises(KeyboardInterrupt):
        pool.allocate(512, FOREVER)
    assert pool.waiters == 0
    assert events.seen == [WaitFinished("buffer", "error", 0)]
    pool.deallocate(1024)
    assert pool.available_bytes == TOTAL


@pytest.mark.behaviour("BUF-02")
@pytest.mark.java("BufferPoolTest.CleanupMemoryAvailabilityWaiterOnInterruption")
def test_two_interrupted_threads_leave_the_queue_each_for_itself(clock: MockClock) -> None:
    interrupted = threading.Event()

    class Interruptible(MockClock):
        def wait_for(
            self, condition: threading.Condition, predicate: Callable[[], bool], deadline_ms: int
        ) -> bool:
            super().wait_for(condition, lambda: predicate() or interrupted.is_set(), deadline_ms)
            raise KeyboardInterrupt

    clock = Interruptible()
    pool = BufferPool(2, 1, clock)
    pool.allocate(1, 10)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(pool.allocate, 2, FOREVER)
        wait_until_waiting(clock, 1)
        second = threads.submit(pool.allocate, 2, FOREVER)
        wait_until_waiting(clock, 2)
        assert pool.waiters == 2
        interrupted.set()
        clock.advance(1)  # both look up
        for one in (first, second):
            assert isinstance(one.exception(10), KeyboardInterrupt)
    assert (pool.available_bytes, pool.waiters) == (1, 0)


def test_a_thread_that_is_interrupted_when_it_has_its_memory_gives_it_back(events: Events) -> None:
    class InterruptedTooLate(MockClock):
        def wait_for(self, condition: threading.Condition, *_: object) -> bool:
            condition.release()  # as a condition does while it waits
            try:
                full.deallocate(TOTAL)
            finally:
                condition.acquire()
            raise KeyboardInterrupt

    full = BufferPool(TOTAL, 256, InterruptedTooLate(), events)
    full.allocate(TOTAL, 0)
    with pytest.raises(KeyboardInterrupt):
        full.allocate(512, FOREVER)
    assert (full.available_bytes, full.waiters) == (TOTAL, 0)


@pytest.mark.java("BufferPoolTest.StressfulSituation")
def test_many_threads_leave_the_pool_whole(pool: BufferPool, threads: ThreadPoolExecutor) -> None:
    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(200):
            size = random.choice([256, random.randrange(1, TOTAL)])
            pool.allocate(size, FOREVER)
            pool.deallocate(size)

    for future in [threads.submit(work, seed) for seed in range(6)]:
        future.result(60)
    assert (pool.available_bytes, pool.waiters) == (TOTAL, 0)


def test_repr_says_how_full_it_is(pool: BufferPool) -> None:
    pool.allocate(24, 0)
    assert repr(pool) == "<BufferPool available=1000 total=1024 waiters=0>"
