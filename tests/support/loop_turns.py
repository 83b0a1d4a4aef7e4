"""An event loop that measures its turns: the work of each before other callbacks have their turn.

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:    turns = Turns()
        ...                                                      turns.run(scenario())
        runner.get_loop().longest_turn                           assert turns.longest < 50

A turn is one round of `BaseEventLoop._run_once`: the wait for something to happen, which takes no CPU, and
every callback that was ready. Work is counted in units: the CPU time of the turn's thread, divided by the CPU
time of a fixed piece of Python, timed on the same thread at the end. A slow machine makes both longer, so a
bound in units holds on any. One unit is about a millisecond on a core of 2026.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.support.counted_work import no_collector

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


_UNIT_STEPS: Final = 26_000
_UNIT_TRIES: Final = 5


def unit_ms() -> float:
    """CPU time of one unit of work on this thread: the least of a few tries, in ms."""
    tries_s = []
    for _ in range(_UNIT_TRIES):
        begun_s = time.thread_time()
        total = 0
        for step in range(_UNIT_STEPS):
            total += step & 7
        tries_s.append(time.thread_time() - begun_s)
    return min(tries_s) * 1_000


class MeasuredLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, with the CPU time of each turn since `forget`."""

    def __init__(self) -> None:
        super().__init__()
        self.turns_ms: list[float] = []

    @property
    def longest_turn(self) -> float:
        """The longest turn since `forget`, in units."""
        return max(self.turns_ms, default=0.0) / unit_ms()

    @property
    def turns(self) -> int:
        return len(self.turns_ms)

    def forget(self) -> None:
        """Begins anew: what was measured so far does not count."""
        self.turns_ms.clear()

    def _run_once(self) -> None:
        begun_s = time.thread_time()
        super()._run_once()  # type: ignore[misc]  # what every round of run_forever is
        self.turns_ms.append((time.thread_time() - begun_s) * 1_000)


class Turns:
    """The turns of one scenario, without the collector, which runs when it likes. One thread."""

    def __init__(self) -> None:
        self.ms: list[float] = []

    @property
    def longest(self) -> float:
        """The longest turn, in units."""
        return max(self.ms) / unit_ms()

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Runs it on a loop of its own, to its end."""

        async def noted() -> T:
            result = await scenario
            await asyncio.sleep(0)  # the turn that it ended in
            return result

        loop = MeasuredLoop()
        with no_collector(), asyncio.Runner(loop_factory=lambda: loop) as runner:
            result = runner.run(noted())
        self.ms += loop.turns_ms
        return result
