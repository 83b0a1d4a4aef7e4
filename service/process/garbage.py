"""Runs full garbage collections when few requests wait, and makes glibc return freed memory.

A full collection visits every object and stops everything: 160 ms with five thousand parked requests, each
time that their number has grown by a quarter. Reference counts free nearly all garbage here, so the rest is
not urgent. Objects made during the start are frozen, and never visited. Young objects are collected as usual,
in small generations. A full collection runs when few requests wait, or when it is long overdue.

`map_large_blocks` makes the C library return the memory of large bodies. Otherwise glibc raises its mmap
threshold to the largest block that was freed. Later blocks are then between others in the heap, and the heap
stays large: 189 MB after some bodies of 16 MB, and 100 MB with a fixed threshold.

On the event loop, in the main thread. Source: CPython's gc module, glibc's mallopt(3).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Final

#: The two young thresholds: the second generation is collected after 20,000 objects, in about 3 ms.
_YOUNG: Final = 2_000
_OLDER: Final = 10
#: The threshold of automatic full collections. They never run: `Garbage` runs them.
_NEVER: Final = 1_000_000_000

#: Parameters of mallopt, malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

LOOK_S: Final = 5.0
#: The most requests that may wait for a full collection, which then has little to visit.
FEW: Final = 200
OVERDUE_S: Final = 300.0


def map_large_blocks(size: int) -> bool:
    """Makes freed blocks of this size and more return to the system. Any thread.

    Returns False if the C library has no such setting (musl, macOS).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    # Free bytes at the end of the heap before it shrinks: glibc uses twice the mmap threshold, too.
    return bool(mallopt(_M_MMAP_THRESHOLD, size) and mallopt(_M_TRIM_THRESHOLD, 2 * size))


class Garbage:
    """Runs full collections at chosen moments. `waiting` returns how many requests wait."""

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
        self._was_frozen = False

    def begin(self) -> None:
        """Freezes the objects made so far, and takes full collections over."""
        self._was_frozen = gc.get_freeze_count() > 0
        gc.freeze()
        gc.set_threshold(_YOUNG, _OLDER, _NEVER)
        self._look_later()

    def end(self) -> None:
        """Restores the interpreter's own collections. What the application froze itself stays frozen."""
        if self._timer is not None:
            self._timer.cancel()
        gc.set_threshold(*self._thresholds)
        if not self._was_frozen:
            gc.unfreeze()

    def look(self) -> None:
        """Collects if few requests wait or it is overdue; schedules the next check."""
        overdue = self._loop.time() - self._collected_s >= OVERDUE_S
        if overdue or self._waiting() <= FEW:
            self._collect()
            self._collected_s = self._loop.time()
        self._look_later()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self.look)
