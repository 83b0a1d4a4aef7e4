"""Runs Kafka's producer and ours in lockstep, and prints how many traces are equal.

python -m tests.lockstep --seeds 50                          all modes; 1 on an undeclared difference
python -m tests.lockstep --mode default --seed 7 --trace     one trace, and its first difference
python -m tests.lockstep --mode default --seed 7 --trace --shadows all --shrink
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.lockstep.campaign import ALL, UNDECLARED, ModeCount, Sides, explain, run_modes, shrink
from tests.lockstep.modes import MODES, Mode
from tests.lockstep.traces import run_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lockstep.java_side import JavaSide
    from tests.lockstep.traces import Result


def main(arguments: Sequence[str] | None = None) -> int:
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="python -m tests.lockstep", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=20, help="traces per mode")
    parser.add_argument(
        "--shadowed-seeds", type=int, help="traces per mode with the deviations shadowed; as --seeds"
    )
    parser.add_argument("--minutes", type=float, help="ends the last pass after so many minutes")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=300, help="steps per trace")
    parser.add_argument("--mode", action="append", choices=[mode.name for mode in MODES])
    parser.add_argument("--seed", type=int, help="one trace")
    parser.add_argument("--trace", action="store_true", help="print its steps")
    parser.add_argument("--shrink", action="store_true", help="drop steps that do not matter")
    parser.add_argument("--shadows", default="", help="deviations that Java shadows: names, or all")
    options = parser.parse_args(arguments)
    modes = [mode for mode in MODES if not options.mode or mode.name in options.mode]
    shadows = ALL if options.shadows == "all" else tuple(filter(None, options.shadows.split(",")))
    with Sides() as sides:
        if options.seed is not None:
            java = sides.shadowed() if shadows else sides.plain()
            return _one(java, modes[0], options.seed, options.steps, shadows, options)
        shadowed = options.seeds if options.shadowed_seeds is None else options.shadowed_seeds
        seeds = range(options.first, options.first + options.seeds)
        shadowed_seeds = range(options.first, options.first + shadowed)
        undeclared = _plain(sides, modes, seeds, options.steps) if seeds else []
        deadline_s = None if options.minutes is None else time.monotonic() + 60 * options.minutes
        undeclared += _shadowed(sides, modes, shadowed_seeds, options.steps, deadline_s)
        for line in undeclared:
            _say(f"UNDECLARED: python -m tests.lockstep {line} --trace")
        return 1 if undeclared else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _plain(sides: Sides, modes: Sequence[Mode], seeds: range, limit: int) -> list[str]:
    """Compares with Kafka's jar as it is, and names what ended each trace; returns what nothing explains."""
    _say("Kafka as it is:")
    counts = run_modes(sides.plain(), modes, seeds, limit=limit, say=_say)
    _say("Why the others ended:")
    java = sides.shadowed()
    undeclared: list[str] = []
    for mode in modes:
        count = counts[mode.name]
        for result in count.ended:
            reason = explain(java, mode, result)
            count.reasons[reason] += 1
            if reason == UNDECLARED:
                undeclared.append(f"--mode {mode.name!r} --seed {result.seed}")
        _say(f"{mode.name}: {', '.join(f'{n} {reason}' for reason, n in count.reasons.most_common())}")
    return undeclared


def _shadowed(
    sides: Sides, modes: Sequence[Mode], seeds: range, limit: int, deadline_s: float | None
) -> list[str]:
    """Compares with Kafka's classes and all shadows; returns every difference."""
    _say("Kafka with the declared deviations shadowed:")
    java = sides.shadowed()
    undeclared: list[str] = []
    totals: dict[str, ModeCount] = {}
    for seed in seeds:
        if deadline_s is not None and time.monotonic() > deadline_s:
            break
        for mode in modes:
            if mode.begins_without_id:
                continue  # Java's thread blocks until there is an id: no shadow makes it go on
            count = totals.setdefault(mode.name, ModeCount())
            before = len(count.ended)
            count.add(run_trace(java, mode, seed, limit=limit, shadows=ALL))
            if len(count.ended) > before:
                undeclared.append(f"--mode {mode.name!r} --seed {seed} --shadows all")
    for name, count in totals.items():
        _say(f"{name}: {count}")
    steps = sum(count.equal_steps for count in totals.values())
    transitions = sum(len(count.transitions) for count in totals.values())
    _say(f"Shadowed: {steps} equal steps, {transitions} distinct transitions")
    return undeclared


def _one(
    java: JavaSide,
    mode: Mode,
    seed: int,
    limit: int,
    shadows: Sequence[str],
    options: argparse.Namespace,
) -> int:
    result = run_trace(java, mode, seed, limit=limit, shadows=shadows)
    if result.differences and options.shrink:
        steps = shrink(java, mode, seed, result.steps, shadows)
        result = run_trace(java, mode, seed, steps=steps, shadows=shadows)
    _print(result, with_steps=options.trace)
    return 1 if result.differences else 0


def _print(result: Result, *, with_steps: bool) -> None:
    if with_steps:
        for number, step in enumerate(result.steps):
            _say(f"{number:4} {step}")
    _say(f"{result.equal_steps} equal steps")
    for difference in result.differences:
        ours, theirs = _unlike(difference.ours, difference.theirs)
        _say(f"{difference.field}:\n  ours   {ours}\n  Kafka's {theirs}")
    if result.moment is not None:
        for title, state in (
            ("before", result.moment.before),
            ("ours", result.moment.ours),
            ("Kafka's", result.moment.theirs),
        ):
            _say(f"{title}: { {key: value for key, value in state.items() if key != 'sent'} }")


def _unlike(ours: Any, theirs: Any) -> tuple[Any, Any]:
    if isinstance(ours, list) and isinstance(theirs, list):
        return [one for one in ours if one not in theirs], [one for one in theirs if one not in ours]
    return ours, theirs


if __name__ == "__main__":
    sys.exit(main())
