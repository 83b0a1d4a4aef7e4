"""Things by the moment at which their time is up: cheap to put in, to take out, and to ask for the next.

A heap holds each distinct millisecond, a dict the things due in it; five thousand requests with one deadline
are one entry of the heap. What ends early, as nearly everything does, leaves its millisecond behind in the
heap; when most of that is such remains it is made anew, so that a deadline far away keeps no memory of all
that met it. One owner thread. Pure: the moments come in.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

from client_core.clock import FOREVER_MS

_T = TypeVar("_T", bound=Hashable)

#: So small a heap is not worth making anew. A guess.
_SMALL = 64


class Deadlines(Generic[_T]):
    """A set of things with a deadline each, in the order of their deadlines, then of their coming."""

    def __init__(self) -> None:
        self._due: dict[int, dict[_T, None]] = {}
        self._moments: list[int] = []

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def add(self, deadline_ms: int, thing: _T) -> None:
        due = self._due.get(deadline_ms)
        if due is None:
            due = self._due[deadline_ms] = {}
            heapq.heappush(self._moments, deadline_ms)
        due[thing] = None

    def discard(self, deadline_ms: int, thing: _T) -> None:
        """Takes a thing out before its time, if it is there."""
        due = self._due.get(deadline_ms)
        if due is None:
            return
        due.pop(thing, None)
        if not due:
            del self._due[deadline_ms]
            if len(self._moments) > 2 * len(self._due) + _SMALL:
                self._moments = sorted(self._due)

    @property
    def next_ms(self) -> int:
        """The earliest moment at which something is due; FOREVER_MS if nothing is in here."""
        moments = self._moments
        while moments:
            if moments[0] in self._due:
                return moments[0]
            heapq.heappop(moments)
        return FOREVER_MS

    def pop_due(self, now_ms: int) -> list[_T]:
        """Takes out everything whose time is up."""
        due: list[_T] = []
        while (moment := self.next_ms) <= now_ms:
            due.extend(self._due.pop(moment))
            heapq.heappop(self._moments)
        return due

    def pop_all(self) -> list[_T]:
        """Takes out everything."""
        things = [thing for moment in sorted(self._due) for thing in self._due[moment]]
        self._due.clear()
        self._moments.clear()
        return things
