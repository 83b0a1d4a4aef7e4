"""How long the turns of the I/O thread work, their sleep not counted: what Java calls io-time, by size.

A turn that works for long keeps every connection waiting: the tail of this histogram is where requests expire
that the brokers have answered. Times are differences of `now_ms`, so each is exact to a millisecond and their
sum is right in the long run. Most turns are far below the first bound.

Written by the I/O thread only, without a lock, once a turn; read by any thread. Who reads between the two
writes of `add` is off by one turn, never for good. Source: SelectorMetrics' io-time, Kafka 4.3.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

#: Up to 30 s: a turn that blocks for a name that is not resolved may take as long.
BOUNDS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)


@dataclass(frozen=True, slots=True)
class LoopWork:
    """The turns of an I/O thread since its start.

    `counts[i]` are those that worked for at most `bounds_ms[i]` and for more than the bound before; the last
    count is of those beyond all bounds. Turns that ended with a bug are `failed_turns` and nowhere else.
    """

    bounds_ms: tuple[int, ...]
    counts: tuple[int, ...]
    total_ms: int
    failed_turns: int


class TurnTimes:
    """The tally. One writer."""

    __slots__ = ("_counts", "_total_ms")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self._total_ms = 0

    def __repr__(self) -> str:
        return f"<TurnTimes turns={sum(self._counts)} total_ms={self._total_ms}>"

    def add(self, worked_ms: int) -> None:
        """Counts one turn. I/O thread."""
        self._counts[bisect_left(BOUNDS_MS, worked_ms)] += 1
        self._total_ms += worked_ms

    def read(self, *, failed_turns: int) -> LoopWork:
        """What was counted so far. Any thread."""
        return LoopWork(BOUNDS_MS, tuple(self._counts), self._total_ms, failed_turns)
