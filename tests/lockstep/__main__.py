"""Runs Kafka's producer and ours in lockstep, and prints how many traces are equal.

    python -m tests.lockstep --seeds 50                          all modes; 1 on an undeclared difference
    python -m tests.lockstep --mode default --seed 7 --trace     one trace, and its first difference
    python -m tests.lockstep --mode default --seed 7 --trace --shadows all --shrink
"""

from __future__ import annotations

import argparse
import logging
import sys
from typing import TYPE_CHECKING, Any

from tests.lockstep.campaign import ALL, UNDECLARED, Sides, explain, run_modes, shrink
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
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=300, help="steps per trace")
    parser.add_argument("--mode", action="append", choices=[mode.name for mode in MODES])
    parser.add_argument("--seed", type=int, help="one trace")
    parser.add_argument("--trace", action="store_true", help="print the one trace")
    parser.add_argument("--shrink", action="store_true", help="drop steps that do not matter")
    parser.add_argument("--shadows", default="", help="deviations that Java shadows: names, or all")
    options = parser.parse_args(arguments)
    modes = [mode for mode in MODES if not options.mode or mode.name in options.mode]
    shadows = ALL if options.shadows == "all" else tuple(filter(None, options.shadows.split(",")))
    with Sides() as sides:
        if options.seed is not None:
            java = sides.shadowed() if shadows else sides.plain()
            return _one(java, modes[0], options.seed, options.steps, shadows, is_shrunk=options.shrink)
        return _all(sides, modes, range(options.first, options.first + options.seeds), options.steps)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _all(sides: Sides, modes: Sequence[Mode], seeds: range, limit: int) -> int:
    _say("Kafka as it is:")
    plain = run_modes(sides.plain(), modes, seeds, limit=limit, say=_say)
    _say("Why the others ended:")
    java = sides.shadowed()
    undeclared: list[str] = []
    for mode in modes:
        for result in plain[mode.name].ended:
            reason = explain(java, mode, result)
            plain[mode.name].reasons[reason] += 1
            if reason == UNDECLARED:
                undeclared.append(f"--mode {mode.name!r} --seed {result.seed}")
        _say(f"{mode.name}: {dict(plain[mode.name].reasons.most_common())}")
    _say("Kafka with the declared deviations shadowed:")
    told = [mode for mode in modes if not mode.begins_without_id]
    shadowed = run_modes(java, told, seeds, limit=limit, shadows=ALL, say=_say)
    for name, count in shadowed.items():
        undeclared += [f"--mode {name!r} --seed {each.seed} --shadows all" for each in count.ended]
    transitions = sum(len(count.transitions) for count in shadowed.values())
    steps = sum(count.equal_steps for count in shadowed.values())
    _say(f"Shadowed: {steps} equal steps, {transitions} distinct transitions")
    for line in undeclared:
        _say(f"UNDECLARED: python -m tests.lockstep {line} --trace")
    return 1 if undeclared else 0


def _one(
    java: JavaSide, mode: Mode, seed: int, limit: int, shadows: Sequence[str], *, is_shrunk: bool
) -> int:
    result = run_trace(java, mode, seed, limit=limit, shadows=shadows)
    if result.differences and is_shrunk:
        steps = shrink(java, mode, seed, result.steps, shadows)
        result = run_trace(java, mode, seed, steps=steps, shadows=shadows)
    _print(result)
    return 1 if result.differences else 0


def _print(result: Result) -> None:
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
