"""Makes a failing plan smaller while it breaks the same rule, and spells it as a story."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tests.simulation.run import run
from tests.simulation.world import SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.plan import Plan
    from tests.simulation.run import Run

_T = TypeVar("_T")
#: Runs that one plan is shrunk by, at most.
_MOST_RUNS: Final = 400


def rule_broken(plan: Plan) -> str | None:
    """Runs a plan; returns the rule that it breaks, if any. An unexpected exception is a rule of its own."""
    try:
        run(plan)
    except SimulationError as error:
        return error.rule
    except Exception as error:  # noqa: BLE001 -- of the product, or of the simulation
        return type(error).__name__
    return None


def shrunk(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Returns a plan with fewer faults and requests that fails, too: by halves, then one by one."""
    left = [_MOST_RUNS]

    def still_fails(smaller: Plan) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(smaller)

    plan = _fewer(plan.faults, plan, lambda of, some: of.without(faults=some), still_fails)
    plan = _fewer(plan.requests, plan, lambda of, some: of.without(requests=some), still_fails)
    return _fewer(plan.faults, plan, lambda of, some: of.without(faults=some), still_fails)


def _fewer(
    items: Sequence[_T],
    plan: Plan,
    without: Callable[[Plan, Sequence[_T]], Plan],
    still_fails: Callable[[Plan], bool],
) -> Plan:
    """Drops as many items as it can, in smaller and smaller parts. Source: Zeller, ddmin."""
    rest = list(items)
    size = max(len(rest) // 2, 1)
    while rest:
        at = 0
        while at < len(rest):
            part = rest[at : at + size]
            smaller = without(plan, part)
            if still_fails(smaller):
                plan = smaller
                del rest[at : at + size]
            else:
                at += size
        if size == 1:
            break
        size //= 2
    return plan


def story_of(plan: Plan, most_lines: int = 400) -> list[str]:
    """Runs a plan again, and returns what happened, line by line, and how it ended."""
    kept: list[Run] = []
    try:
        run(plan, keep=kept, story=True)
        end = "every rule is kept"
    except SimulationError as error:
        end = str(error)
    except Exception as error:  # noqa: BLE001
        end = f"{type(error).__name__}: {error}"
    story = [f"{at_ms:7} ms  {who}: {what}" for at_ms, who, what in kept[0].world.story or ()]
    if len(story) > most_lines:
        story = [*story[: most_lines // 2], "        (…)", *story[-most_lines // 2 :]]
    return [*plan.lines(), *story, end]
