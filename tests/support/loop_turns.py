"""An event loop that measures its turns, in CPU time of its thread: how long one of them keeps the others.

    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        …
    runner.get_loop().longest_turn_ms

A turn is one round of `BaseEventLoop._run_once`: the wait for something to happen, which takes no CPU, and
every callback that was ready. CPU time does not count what other threads and processes do meanwhile.
"""

from __future__ import annotations

import asyncio
import time


class MeasuredLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop, with the CPU time of its longest turn since `forget`."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_turn_ms = 0.0
        self.turns = 0

    def forget(self) -> None:
        """Begins anew: what was measured so far does not count."""
        self.longest_turn_ms, self.turns = 0.0, 0

    def _run_once(self) -> None:
        begun_s = time.thread_time()
        super()._run_once()  # type: ignore[misc]  # what every round of run_forever is
        self.longest_turn_ms = max(self.longest_turn_ms, (time.thread_time() - begun_s) * 1_000)
        self.turns += 1
