"""Calls counted by the interpreter: a repeatable measure of the work that a piece of code does.

Functions written in Python are counted by file and name, those in C by name; both only on the calling thread.
A test compares counts with a bound, or those of much work with those of little: the rest is the cost of the
difference. Nothing is patched. The collector is off meanwhile, because its work depends on earlier tests.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.counted_work import no_collector

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


@dataclass(frozen=True, slots=True)
class Calls:
    """What a piece of work called. `python` by (file without .py, function), `c` by name."""

    python: Counter[tuple[str, str]] = field(default_factory=Counter)
    c: Counter[str] = field(default_factory=Counter)

    def into(self, file: str) -> int:
        """How many calls of functions of this file."""
        return sum(count for (where, _), count in self.python.items() if where == file)


def calls_of(work: Callable[[], object]) -> Calls:
    """Does the work and counts what it calls, comprehensions and generators' turns among it."""
    calls = Calls()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            code = frame.f_code
            calls.python[Path(code.co_filename).stem, code.co_name] += 1
        elif event == "c_call":
            calls.c[getattr(argument, "__name__", repr(argument))] += 1

    before = sys.getprofile()
    with no_collector():
        sys.setprofile(count)
        try:
            work()
        finally:
            sys.setprofile(before)
    del calls.c["setprofile"]
    return calls
