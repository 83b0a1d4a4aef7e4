"""An event loop that measures its turns, in CPU time of its thread: how long one of them keeps the others.

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:    turns = Turns()
        ...                                                      turns.run(scenario())
        runner.get_loop().longest_turn_ms                        assert turns.longest_ms < 50

A turn is one round of `BaseEventLoop._run_once`: the wait for something to happen, which takes no CPU, and
every callback that was ready. CPU time does not count what other threads and processes do meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.counted_work import no_collector

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class MeasuredLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, with the CPU time of each turn since `forget`."""

    def __init__(self) -> None:
        super().__init__()
        self.turns_ms: list[float] = []

    @property
    def longest_turn_ms(self) -> float:
        return max(self.turns_ms, default=0.0)

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
    def longest_ms(self) -> float:
        return max(self.ms)

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
