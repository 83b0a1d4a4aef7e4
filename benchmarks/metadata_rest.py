"""What metadata costs beside CPU: the memory that it takes at rest, and how long a refresh stalls others.

The stall is what another thread sees, an event loop for example, that wants to run every fifth of a
millisecond while a refresh is applied, under the switch interval of the sidecar: the most that it is late by.
The interpreter's own garbage collection is left as it is by default, which the sidecar's is not.
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

#: What stalls are looked for in: the least and the most that a response can change.
STALLING: Final = (FIRST, AGAIN, BROKER_DOWN)
_NAP_S: Final = 0.000_2
_QUIET_S: Final = 0.1


def bytes_at_rest(make: Callable[[], Cache], answers: Answers) -> int:
    """What Python's allocator holds for a cache with the first response in it; no answers are built."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        cache = make()
        cache.hold(answers.added[FIRST])
        # A copy, so that a cache that keeps the response itself has it counted.
        cache.apply(bytes(bytearray(answers.bodies[cache.version][FIRST])))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


def worst_stall_s(make: Callable[[], Cache], answers: Answers) -> float:
    """The worst that another thread is late by, over the refreshes of `STALLING`."""
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
    """The same while nothing is done: what the machine and its other programs do to a thread."""
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
