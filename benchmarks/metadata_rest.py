"""Measures metadata's costs besides CPU: memory at rest, and how long a refresh stalls other threads.

The stall is the largest delay of another thread, such as an event loop, that wants to run every 0.2 ms while
a refresh is applied, with the sidecar's switch interval. The interpreter's garbage collection has its default
settings, unlike in the sidecar.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from benchmarks.metadata_shapes import AGAIN, BROKER_DOWN, FIRST
from service.process.server import SWITCH_INTERVAL_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.metadata_peers import Cache
    from benchmarks.metadata_shapes import Answers

#: The cases in which stalls are measured: the least and the most that a response can change.
STALLING: Final = (FIRST, AGAIN, BROKER_DOWN)
_NAP_S: Final = 0.000_2
_QUIET_S: Final = 0.1


def bytes_at_rest(make: Callable[[], Cache], answers: Answers) -> int:
    """Returns the bytes of Python's allocator for a cache with the first response; no answers are built."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        cache = make()
        cache.hold(answers.added[FIRST])
        # A copy, so that the response is counted if the cache keeps it.
        cache.apply(bytes(bytearray(answers.bodies[cache.version][FIRST])))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


def worst_stall_s(make: Callable[[], Cache], answers: Answers) -> float:
    """Returns the largest delay of another thread over the refreshes of `STALLING`."""
    cache = make()
    cache.hold(answers.added[FIRST])
    bodies = answers.bodies[cache.version]
    worst = 0.0
    for case in STALLING:
        if case == BROKER_DOWN:
            for added in answers.added.values():
                cache.hold(added)
        gc.collect()
        worst = max(worst, _stall_s(cache.apply, bodies[case]))
    return worst


def quiet_stall_s() -> float:
    """Returns the same without work: the machine's own delays of a thread."""
    return _stall_s(lambda _: time.sleep(_QUIET_S), b"")


def _stall_s(work: Callable[[bytes], object], body: bytes) -> float:
    woken_s: list[float] = []
    over = threading.Event()

    def nap() -> None:
        while not over.is_set():
            time.sleep(_NAP_S)
            woken_s.append(time.perf_counter())

    thread = threading.Thread(target=nap)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    thread.start()
    try:
        while not woken_s:
            time.sleep(_NAP_S)
        first = len(woken_s) - 1
        work(body)
        last = len(woken_s)
        while len(woken_s) <= last:
            time.sleep(_NAP_S)
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval_s)
    during = woken_s[first : last + 1]
    return max(later - earlier for earlier, later in pairwise(during)) - _NAP_S
