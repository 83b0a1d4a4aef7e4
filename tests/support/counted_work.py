"""Counts the work of a piece of code: calls of Python functions, kept memory, acquired locks, descriptors.

Counts are the same on a busy machine as on an idle one, so a test can compare them with a bound, unlike
seconds. One thread at a time.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType


class PythonCalls:
    """How many Python functions this thread enters as long as it is entered; generators at each step.

    The collector is off meanwhile: it would run the finalizers of what other tests left behind.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._before: Any = None
        self._no_collector = no_collector()

    def __enter__(self) -> PythonCalls:
        self._no_collector.__enter__()
        self._before = sys.getprofile()
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)
        self.calls -= 1  # this one
        self._no_collector.__exit__(None, None, None)

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.calls += event == "call"


def python_calls(run: Callable[[], object]) -> int:
    """How many Python functions this thread enters meanwhile, `run` among them; generators at each step."""
    with PythonCalls() as counted:
        run()
    return counted.calls


def calls_of(code: CodeType, run: Callable[[], object]) -> int:
    """How often this thread enters the function of Python that has this code meanwhile."""
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is code

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls


def python_lines(run: Callable[[], object]) -> int:
    """How many lines of Python this thread runs meanwhile: this also finds loops that call nothing."""
    lines = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    with no_collector():
        sys.settrace(count)
        try:
            run()
        finally:
            sys.settrace(before)
    return lines


def kept_blocks(run: Callable[[], object]) -> int:
    """How many more blocks of memory are in use when `run` is over than before, what it returns included."""
    gc.collect()  # it gives back what the interpreter keeps for its next lists and dicts
    with no_collector():
        before = sys.getallocatedblocks()
        kept = run()
        blocks = sys.getallocatedblocks() - before
    del kept
    return blocks


@contextmanager
def no_collector() -> Iterator[None]:
    """Without the collector, which runs when it likes and frees what others left behind.

    Nothing is collected before: a walk over all that a process of tests holds takes half a second.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class CountedLocks:
    """How often the locks of a package were taken, of those that it makes inside `made_here`."""

    def __init__(self, package: str) -> None:
        self._package: Final = package
        self.taken = 0

    @contextmanager
    def made_here(self) -> Iterator[None]:
        """The package's modules get counted locks of `threading`, all others what they always get."""
        with (
            mock.patch.object(threading, "Lock", self._maker(threading.Lock)),
            mock.patch.object(threading, "RLock", self._maker(threading.RLock)),
        ):
            yield

    def _maker(self, make: Callable[[], Any]) -> Callable[[], Any]:
        def made() -> Any:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_globals["__name__"] == threading.__name__:
                frame = frame.f_back  # a Condition makes its lock itself
            is_theirs = frame.f_globals["__name__"].partition(".")[0] == self._package
            return _CountedLock(make(), self) if is_theirs else make()

        return made


class _CountedLock:
    """A lock that counts. A Condition takes all other attributes from the lock inside."""

    def __init__(self, lock: Any, counted: CountedLocks) -> None:
        self._lock = lock
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._counted.taken += 1
        acquired: bool = self._lock.acquire(blocking, timeout)
        return acquired

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def open_descriptors() -> Counter[str]:
    """What this process has open, and how often. Not by numbers: others end when they like and free some."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # it listed itself
            found[os.readlink(f"/proc/self/fd/{name}")] += 1
    return found
