"""An event loop that notes how much CPU each of its turns takes: what others wait for at most.

    turns = Turns()
    turns.run(scenario())
    assert turns.longest_ms < 50

CPU time of this thread, so that a busy machine makes no turn longer by itself. Without the collector, which
runs when it likes. One thread.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.counted_work import no_collector

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class _Loop(asyncio.SelectorEventLoop):
    """asyncio's own, whose every turn is measured."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def _run_once(self) -> None:
        began_s = time.thread_time()
        super()._run_once()  # type: ignore[misc]  # no part of its face, and what run_forever calls
        self._turns.ms.append((time.thread_time() - began_s) * 1000)


class Turns:
    """What was measured."""

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

        with no_collector(), asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(noted())
