"""Where every thread of the process stands at this moment, as text: for the log, when one stands still.

File, line and function of each call, and nothing that the functions work on: no values, no lines of source,
and no file is opened for it, since a disk that hangs may be what holds the others up. Any thread; it asks
nobody and waits for nobody.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from types import FrameType
from typing import Final, NamedTuple

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
