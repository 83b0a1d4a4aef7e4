"""`python -m tests.simulation`: runs seed after seed, and says what was judged.

    --seeds N        how many; 1,000 unless given
    --first N        the first one; where the last run ended unless given, so a run can be resumed
    --story N        runs one seed, and prints what happens in it
    --shrink N       makes a failing seed smaller, and prints what is left of it
    --stop           ends at the first seed that breaks a rule

Prints each broken rule with its seed, and at the end requests per CPU second, and how many of a thousand
seeds reached each hard state. Ends with 1 if a rule was broken.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.simulation.drawing import plan_of
from tests.simulation.run import run
from tests.simulation.shrink import rule_broken, shrunk, story_of
from tests.simulation.world import SimulationError

#: Where the next run goes on, and what all have judged.
_STATE: Final = Path(__file__).parents[2] / ".cache" / "simulation.json"
_SAVE_EVERY: Final = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int)
    parser.add_argument("--story", type=int)
    parser.add_argument("--shrink", type=int)
    parser.add_argument("--stop", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # thousands of justified lines
    logging.getLogger().addHandler(logging.NullHandler())
    if arguments.story is not None:
        print(*story_of(plan_of(arguments.story), most_lines=100_000), sep="\n")
        return 0
    if arguments.shrink is not None:
        return _shrink(arguments.shrink)
    state = _read_state()
    first = state["next"] if arguments.first is None else arguments.first
    return _run_seeds(first, arguments.seeds, state, resumes=arguments.first is None, stop=arguments.stop)


def _shrink(seed: int) -> int:
    plan = plan_of(seed)
    rule = rule_broken(plan)
    if rule is None:
        print(f"seed {seed} breaks no rule")
        return 0
    smaller = shrunk(plan, lambda one: rule_broken(one) == rule)
    print(*story_of(smaller), sep="\n")
    numbers = [request.number for request in smaller.requests]
    print(f"seed {seed}: {rule}; {len(smaller.faults)} faults, requests {numbers}")
    return 1


def _run_seeds(first: int, count: int, state: dict[str, Any], *, resumes: bool, stop: bool) -> int:
    totals: Counter[str] = Counter()
    seeds_with: Counter[str] = Counter()
    broken: list[str] = []
    began_s = time.process_time()
    for seed in range(first, first + count):
        try:
            judged = run(plan_of(seed))
        except SimulationError as error:
            broken.append(f"seed {seed}: {error}")
        except Exception as error:  # noqa: BLE001 -- that is what it looks for
            broken.append(f"seed {seed}: {type(error).__name__}: {error}")
        else:
            totals.update(
                requests=judged.requests,
                records=judged.records,
                acknowledged=judged.acknowledged,
                retries=judged.retries,
                faults=judged.faults,
                steps=judged.steps,
                simulated_s=judged.simulated_ms // 1_000,
            )
            seeds_with.update(judged.reached.keys())
        if broken and (len(broken) > totals["printed"]):
            totals["printed"] = len(broken)
            print(broken[-1], flush=True)
        if resumes and (seed + 1 - first) % _SAVE_EVERY == 0:
            _keep_state(state, seed + 1, broken)
            gc.collect()
        if broken and stop:
            count = seed + 1 - first
            break
    if resumes:
        _keep_state(state, first + count, broken)
    _print_summary(first, count, totals, seeds_with, len(broken), time.process_time() - began_s)
    return 1 if broken else 0


def _print_summary(
    first: int, count: int, totals: Counter[str], seeds_with: Counter[str], broken: int, cpu_s: float
) -> None:
    print(
        f"seeds {first} to {first + count - 1}: {totals['requests']:,} requests with {totals['records']:,}"
        f" records judged, {totals['acknowledged']:,} records acknowledged, {totals['retries']:,} retries,"
        f" {totals['faults']:,} faults, {totals['steps']:,} turns, {totals['simulated_s']:,} simulated s;"
        f" {totals['requests'] / max(cpu_s, 0.001):.0f} requests per CPU second; {broken} seeds broke a rule"
    )
    print("seeds that reached a state, of 1,000:")
    for state, seeds in sorted(seeds_with.items()):
        print(f"{seeds * 1_000 / count:7.1f}  {state}")


def _read_state() -> dict[str, Any]:
    if not _STATE.exists():
        return {"next": 0, "broken": []}
    state: dict[str, Any] = json.loads(_STATE.read_text())
    return state


def _keep_state(state: dict[str, Any], next_seed: int, broken: list[str]) -> None:
    _STATE.parent.mkdir(exist_ok=True)
    _STATE.write_text(json.dumps({"next": next_seed, "broken": [*state["broken"], *broken]}))


if __name__ == "__main__":
    sys.exit(main())
