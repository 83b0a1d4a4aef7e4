"""Many traces: how many are equal to the end, what the first difference of each other one is, and why.

Three passes over the same seeds, one JVM at a time:

1. Kafka's jar as it is. A trace is equal to the end, or ends at its first difference: the headline.
2. Kafka's classes with shadows. The steps of each trace that ended are run again, with the shadow of one
   deviation after the other. The first one with which they are equal explains the difference. If it takes
   several, all are named. A difference that all shadows together do not explain is undeclared.
3. All shadows on, new traces: everything else must be equal.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from tests.lockstep.java_side import JavaSide
from tests.lockstep.shadows import DEVIATIONS, compile_shadows
from tests.lockstep.traces import Result, run_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.lockstep.modes import Mode
    from tests.lockstep.steps import Step

UNDECLARED: Final = "UNDECLARED"
ALL: Final = tuple(each.name for each in DEVIATIONS)


@dataclass
class ModeCount:
    """The traces of one mode in one pass."""

    traces: int = 0
    equal_traces: int = 0
    equal_steps: int = 0
    transitions: set[int] = field(default_factory=set)
    ended: list[Result] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.equal_traces} of {self.traces} traces equal to the end, {self.equal_steps} equal steps, "
            f"{len(self.transitions)} distinct transitions"
        )

    def add(self, result: Result) -> None:
        self.traces += 1
        self.equal_steps += result.equal_steps
        self.transitions |= result.transitions
        if result.differences:
            result.moment = None  # it holds both sides
            self.ended.append(result)
        else:
            self.equal_traces += 1


def run_modes(
    java: JavaSide,
    modes: Sequence[Mode],
    seeds: Iterable[int],
    *,
    limit: int,
    shadows: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, ModeCount]:
    """Runs each seed in each mode."""
    counts: dict[str, ModeCount] = {}
    for mode in modes:
        count = counts[mode.name] = ModeCount()
        for seed in seeds:
            count.add(run_trace(java, mode, seed, limit=limit, shadows=shadows))
        say(f"{mode.name}: {count}")
    return counts


def explain(java: JavaSide, mode: Mode, result: Result) -> str:
    """Returns the name of the deviation that explains a trace's difference, or names; or UNDECLARED.

    "asking" has no shadow: it explains what differs while there is no producer id.
    """
    if result.had_no_id:
        return "asking"

    def is_equal(shadows: Sequence[str]) -> bool:
        return not run_trace(java, mode, result.seed, steps=result.steps, shadows=shadows).differences

    for name in ALL:
        if is_equal((name,)):
            return name
    if not is_equal(ALL):
        return UNDECLARED
    needed = list(ALL)
    for name in ALL:
        fewer = [each for each in needed if each != name]
        if is_equal(fewer):
            needed = fewer
    return " + ".join(needed)


def shrink(java: JavaSide, mode: Mode, seed: int, steps: list[Step], shadows: Sequence[str]) -> list[Step]:
    """Returns fewer steps that still end in a difference of the same fields."""
    wanted = _fields(run_trace(java, mode, seed, steps=steps, shadows=shadows))
    size = max(len(steps) // 2, 1)
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            tried = run_trace(java, mode, seed, steps=fewer, shadows=shadows)
            if tried.differences and _fields(tried) == wanted:
                steps = tried.steps
            else:
                at += size
        size //= 2
    return steps


def _fields(result: Result) -> tuple[str, ...]:
    return tuple(each.field for each in result.differences)


class Sides:
    """A JVM of the jar's classes, or of the shadowed ones; the other one is ended first."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(TemporaryDirectory()))
        self._java = ExitStack()

    def __enter__(self) -> Sides:
        return self

    def __exit__(self, *_: object) -> None:
        self._java.close()
        self._stack.close()

    def plain(self) -> JavaSide:
        self._java.close()
        return self._java.enter_context(JavaSide(self._folder))

    def shadowed(self) -> JavaSide:
        self._java.close()
        return self._java.enter_context(JavaSide(self._folder, patched=compile_shadows(self._folder)))
