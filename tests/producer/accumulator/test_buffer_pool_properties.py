"""BufferPool in any interleaving: first come first served, and not a byte lost (BUF-02).

A machine allocates, queues, leaves and gives back; a model says who must have been served. Threads that block
stand in the same queue (test_buffer_pool.py); here all wait without blocking.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
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

from client_core.errors import IllegalArgumentError, ProducerClosedError
from client_core.producer.accumulator.buffer_pool import BufferPool
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from client_core.producer.accumulator.buffer_pool import PoolWaiter

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
        """What the pool must do with free bytes: the first in the queue collects, nobody overtakes him."""
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
def test_whoever_waits_is_served_in_turn_and_no_byte_is_lost() -> None:
    run_state_machine_as_test(PoolMachine, settings=settings(max_examples=50, stateful_step_count=40))
