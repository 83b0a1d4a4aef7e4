"""Loops that did not turn when they were asked to: each told once, with where every thread stands.

    turns ──asked, and did not turn──▶ stands still: told, counted ──turned──▶ turns: told, and ready anew

Probes, and the sidecar's own watch, go on asking a loop that stands, and kubelet restarts the container after
some of them: the log then holds one dump of the stacks, from when it began. Admin thread only.

Where every thread of the process stands at this moment, as text: for the log, when one stands still.

File, line and function of each call, and nothing that the functions work on: no values, no lines of source,
and no file is opened for it, since a disk that hangs may be what holds the others up. Any thread; it asks
nobody and waits for nobody.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

_log: Final = logging.getLogger(__name__)

#: The loops that are asked.
POLL_LOOP: Final = "poll loop"
EVENT_LOOP: Final = "event loop"


#: More threads than these are not shown, nor more calls of each: of those, the innermost are.
MAX_THREADS: Final = 32
MAX_CALLS: Final = 50


class ThreadStack(NamedTuple):
    """One thread: `calls` is a line for each, the innermost last."""

    thread: str
    calls: str


def stacks() -> list[ThreadStack]:
    """All threads by their names, but for the caller's own; the first MAX_THREADS of them."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    standing = [
        ThreadStack(names.get(ident) or f"thread {ident}", _calls(frame))
        for ident, frame in sys._current_frames().items()
        if ident != own
    ]
    return sorted(standing)[:MAX_THREADS]


def _calls(frame: FrameType | None) -> str:
    """Walked from the innermost outwards, for a bounded way: a recursion may be very deep."""
    calls: deque[str] = deque()
    while frame is not None and len(calls) < MAX_CALLS:
        code = frame.f_code
        calls.appendleft(f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}")
        frame = frame.f_back
    if frame is not None:
        calls.appendleft("(calls further out are left out)")
    return "\n".join(calls)


class LoopWatchdog(Collector):
    """Which loops stand still, and how often each came to that."""

    def __init__(self, take_stacks: Callable[[], Sequence[ThreadStack]] = stacks) -> None:
        self._stacks = take_stacks
        self._stalled: set[str] = set()
        self._count = {POLL_LOOP: 0, EVENT_LOOP: 0}

    def judged(self, *, turned: Iterable[str], stand: Iterable[str], after_ms: int) -> None:
        """Somebody saw that these turned, and that those did not within that time."""
        for loop in turned:
            if loop in self._stalled:
                self._stalled.discard(loop)
                _log.warning("the %s turns again", loop)
        new = [loop for loop in stand if loop not in self._stalled]
        if not new:
            return
        for loop in new:
            self._stalled.add(loop)
            self._count[loop] += 1
        standing = self._stacks()
        _log.error(
            "the %s did not turn within %d ms; the stacks of %d threads follow:",
            " and the ".join(new),
            after_ms,
            len(standing),
        )
        for thread, calls in standing:  # a line each: all in one would be cut in its middle
            _log.error("thread %s is at\n%s", thread, calls)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """For Prometheus."""
        family = CounterMetricFamily(
            "pilotfish_loop_standstills",
            "Times that a loop did not turn when it was asked to; the log has all stacks.",
            labels=("loop",),
        )
        for loop, count in self._count.items():
            family.add_metric((loop.split()[0],), count)
        yield family
