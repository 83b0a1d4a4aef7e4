"""Detects stalled loops and logs the other threads' stacks, at most MAX_THREADS, once per stall.

    turning ──no turn in time──▶ stalled: logged, counted ──turned──▶ turning: logged, ready again

Probes and the sidecar's own watch keep checking a stalled loop, and the kubelet restarts the container after
some failed probes. By then the log has one dump of the stacks, taken when the stall was first noticed. Admin
thread only.

A dump has file, line and function of each call, but no values and no source lines. No file is opened for it,
because a hanging disk may be the cause of the stall. Any thread may call `stacks`, which never blocks.
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

#: The loops that are checked.
POLL_LOOP: Final = "poll loop"
EVENT_LOOP: Final = "event loop"


#: The most threads that are shown, and the most calls of each.
MAX_THREADS: Final = 32
MAX_CALLS: Final = 50


class ThreadStack(NamedTuple):
    """The stack of one thread. `calls` has one line per call, the innermost last."""

    thread: str
    calls: str


def stacks() -> list[ThreadStack]:
    """Returns the stacks of all threads except the caller's, by name; at most MAX_THREADS."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    found = [
        ThreadStack(names.get(ident) or f"thread {ident}", _calls(frame))
        for ident, frame in sys._current_frames().items()
        if ident != own
    ]
    return sorted(found)[:MAX_THREADS]


def _calls(frame: FrameType | None) -> str:
    """Returns the innermost MAX_CALLS calls, because a recursion may be very deep."""
    calls: deque[str] = deque()
    while frame is not None and len(calls) < MAX_CALLS:
        code = frame.f_code
        calls.appendleft(f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}")
        frame = frame.f_back
    if frame is not None:
        calls.appendleft("(calls further out are left out)")
    return "\n".join(calls)


class LoopWatchdog(Collector):
    """Which loops are stalled, and how often each one stalled."""

    def __init__(self, take_stacks: Callable[[], Sequence[ThreadStack]] = stacks) -> None:
        self._stacks = take_stacks
        self._stalled: set[str] = set()
        self._count = {POLL_LOOP: 0, EVENT_LOOP: 0}

    def judged(self, *, turned: Iterable[str], stalled: Iterable[str], after_ms: int) -> None:
        """Logs and counts changes.

        The loops in `turned` have turned; those in `stalled` have not turned within `after_ms`.
        """
        for loop in turned:
            if loop in self._stalled:
                self._stalled.discard(loop)
                _log.warning("the %s completes turns again", loop)
        new = [loop for loop in stalled if loop not in self._stalled]
        if not new:
            return
        for loop in new:
            self._stalled.add(loop)
            self._count[loop] += 1
        dump = self._stacks()
        _log.error(
            "the %s did not complete a turn within %d ms; the stacks of %d threads follow:",
            " and the ".join(new),
            after_ms,
            len(dump),
        )
        for thread, calls in dump:  # one log line per thread: a single one would be shortened
            _log.error("thread %s is at\n%s", thread, calls)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yields the counter for Prometheus."""
        family = CounterMetricFamily(
            "pilotfish_loop_standstills",
            f"Times that a loop stalled; the log has the stacks of at most {MAX_THREADS} threads.",
            labels=("loop",),
        )
        for loop, count in self._count.items():
            family.add_metric((loop.split()[0],), count)
        yield family
