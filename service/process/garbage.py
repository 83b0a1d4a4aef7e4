"""When the interpreter looks for garbage: not while thousands wait.

A full collection visits every object there is, and everybody waits for it: with five thousand parked
requests 160 ms, as often as their number grows by a quarter. Nearly all garbage here is freed by reference
counts, so there is no hurry for the rest: what was made by the start is set aside for good, the young are
collected in small heaps as ever, and a full collection comes when few wait, or when one is long overdue.

`map_large_blocks` is about the C library's memory: large bodies leave none behind. Left alone, glibc raises
its mmap threshold to the largest block that was freed. Later blocks then lie between others in the heap, and
the heap stays large: 189 MB after some bodies of 16 MB, and 100 MB with a threshold that stays.

On the event loop, in the main thread. Source: CPython's gc module, glibc's mallopt(3).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Final

#: New objects until the youngest are looked through, and how often that goes by until those that were left
#: are: 20,000 objects, 3 ms or so.
_YOUNG: Final = 2_000
_OLDER: Final = 10
#: Full collections by count: none of them, they are ours to begin.
_NEVER: Final = 1_000_000_000

#: Blocks of this size are mapped and unmapped, each by itself. Ordinary bodies are smaller.
_MAPPED_BYTES: Final = 4 * 1024 * 1024
#: As much may be free at the heap's end before it shrinks; glibc's own rule is twice the mmap threshold.
_TRIMMED_BYTES: Final = 2 * _MAPPED_BYTES
#: Parameters of mallopt, malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

LOOK_S: Final = 5.0
#: So few may be kept waiting for a full collection, which then has little to visit.
FEW: Final = 200
OVERDUE_S: Final = 300.0


def map_large_blocks() -> bool:
    """Gives blocks of 4 MB and more back to the system when they are freed. Any thread.

    Returns False where the C library has no such setting (musl, macOS).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, _TRIMMED_BYTES))


class Garbage:
    """Full collections at moments of our choice. `waiting` says how many requests wait."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        waiting: Callable[[], int],
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._loop = loop
        self._waiting = waiting
        self._collect = collect
        self._collected_s = loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._thresholds = gc.get_threshold()

    def begin(self) -> None:
        """Sets aside what the start has made, and takes full collections over."""
        gc.freeze()
        gc.set_threshold(_YOUNG, _OLDER, _NEVER)
        self._look_later()

    def end(self) -> None:
        """Leaves the interpreter to itself again."""
        if self._timer is not None:
            self._timer.cancel()
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def look(self) -> None:
        """Collects where few wait or it is overdue, and comes back."""
        overdue = self._loop.time() - self._collected_s >= OVERDUE_S
        if overdue or self._waiting() <= FEW:
            self._collect()
            self._collected_s = self._loop.time()
        self._look_later()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self.look)
