"""Tests that are coroutines: each runs on an event loop of its own (tests/conftest.py).

`run` is for a scenario within a test, `until` for a condition without a notification, `timed` for deadlines.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")

#: In real time; a scenario that takes longer hangs.
PATIENCE_S = patient(30.0)


def run(scenario: Awaitable[T]) -> T:
    """Runs a scenario to its end, on a loop of its own."""

    async def bounded() -> T:
        return await asyncio.wait_for(scenario, PATIENCE_S)

    return asyncio.run(bounded())


async def until(condition: Any) -> None:
    """Lets the loop turn until the condition holds; wait_for in `run` bounds it."""
    while not condition():  # noqa: ASYNC110 - what is awaited is anybody's plain attribute
        await asyncio.sleep(0)


#: Turns of a loop at one moment; a scenario that takes more waits for a time that does not come.
_MOST_TURNS: Final = 20_000


class _JumpingSelector(selectors.DefaultSelector):
    """Where nothing is ready, the time until the next timer is over at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            self._turns += 1
            if self._turns == _MOST_TURNS:
                raise AssertionError("the loop turns and waits for nothing")
            return super().select(timeout)
        self._turns = 0
        ready = super().select(0)
        if not ready:
            self.now_s += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def timed(scenario: Awaitable[T]) -> tuple[T, float]:
    """Runs a scenario that waits for timers alone; returns its result and how long it waited, in ms.

    Its loop's clock goes on only where nothing else is to do, to the next timer: a deadline takes no time and
    is exact.
    """

    async def measured() -> tuple[T, float]:
        loop = asyncio.get_running_loop()
        result = await scenario
        return result, round(loop.time() * 1000, 3)

    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(measured())
