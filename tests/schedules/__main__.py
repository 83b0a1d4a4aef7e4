"""Runs schedules of turns.py's threads, from where the last run ended, and prints what they reached.

python -m tests.schedules --schedules 100000      so many in all, for this code; 1 if one is broken
python -m tests.schedules --seed 7 --trace        one, with its calls
python -m tests.schedules --faults                the first schedule that finds each planted fault

The state is `.cache/schedules.json`. It counts for one text of client_core and of the model: another one
begins anew. A broken seed is kept there, printed, and run first the next time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.mutants.behaviour.mutant import copied_tree, environment_of, planted
from tests.schedules.faults import FAULTS
from tests.schedules.schedule import Broken, run

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT: Final = Path(__file__).parents[2]
_STATE: Final = _ROOT / ".cache" / "schedules.json"
#: So often it is saved and printed.
_PART: Final = 1_000
#: A fault that so many schedules do not find is not found.
_MOST_FOR_A_FAULT: Final = 20_000
#: The exit code of a run that has found a planted fault.
FOUND_A_FAULT: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(prog="python -m tests.schedules", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--schedules", type=int, default=2_000, help="in all; %(default)s")
    parser.add_argument("--first", type=int, default=0, help="the first seed of a fresh run; %(default)s")
    parser.add_argument("--minutes", type=float, help="ends after so many minutes; a later run goes on")
    parser.add_argument("--seed", type=int, help="one schedule")
    parser.add_argument("--trace", action="store_true", help="print its calls")
    parser.add_argument("--faults", action="store_true", help="plant each fault: how soon is it found?")
    parser.add_argument("--only", default="", help="faults with one of these in their name: a,b")
    parser.add_argument("--until-broken", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.seed is not None:
        print(run(options.seed, print if options.trace else None))
        return 0
    if options.faults:
        return _play_faults(options.only)
    if options.until_broken:
        return _until_broken()
    return _go_on(options.first, options.schedules, options.minutes)


def _go_on(first: int, schedules: int, minutes: float | None) -> int:
    state = _load(first)
    ends_s = None if minutes is None else time.monotonic() + 60 * minutes
    for seed in state["broken"]:
        run(seed)
    state["broken"] = []
    counts = Counter(state["counts"])
    end = state["first"] + schedules
    while state["next"] < end and (ends_s is None or time.monotonic() < ends_s):
        for seed in range(state["next"], min(state["next"] + _PART, end)):
            try:
                ran = run(seed)
            except Broken as error:
                state["broken"].append(seed)
                _save(state)
                print(error, f"\nagain: python -m tests.schedules --seed {seed} --trace", flush=True)
                return 1
            counts += ran.counts
            counts["steps"] += ran.steps
            state["next"] = seed + 1
        state["counts"] = dict(counts)
        _save(state)
        print(f"{state['next'] - state['first']} schedules, {dict(counts)}", flush=True)
    return 0


def _until_broken() -> int:
    """In a copy with a planted fault."""
    for seed in range(_MOST_FOR_A_FAULT):
        try:
            run(seed)
        except BaseException as error:  # noqa: BLE001 -- a fault may make anything raise
            print(f"{seed + 1} schedules: {str(error)[:200]}", flush=True)
            os._exit(FOUND_A_FAULT)  # its threads are paused for ever
    print(f"not found by {_MOST_FOR_A_FAULT} schedules")
    return 0


def _play_faults(only: str) -> int:
    missed = 0
    with copied_tree() as tree:
        command = [sys.executable, "-m", "tests.schedules", "--until-broken"]
        for fault in FAULTS:
            if not any(words in fault.name for words in only.split(",")):
                continue
            with planted(fault, tree):
                played = subprocess.run(
                    command, cwd=tree, env=environment_of(tree), capture_output=True, text=True, check=False
                )
            missed += played.returncode != FOUND_A_FAULT
            print(f"{fault.name}: {played.stdout.strip() or played.stderr.strip()[-400:]}", flush=True)
    return int(missed > 0)


def _digest() -> str:
    files = [*(_ROOT / "client_core").rglob("*.py")]
    files += [_ROOT / "tests" / "schedules" / f"{name}.py" for name in ("schedule", "turns")]
    files += [_ROOT / "tests" / "support" / f"{name}.py" for name in ("model_brokers", "mock_client")]
    texts = [f"{path.relative_to(_ROOT)}\0{path.read_text(encoding='utf-8')}" for path in sorted(files)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _load(first: int) -> dict[str, Any]:
    fresh = {"of": _digest(), "first": first, "next": first, "broken": [], "counts": {}}
    if not _STATE.exists():
        return fresh
    state: dict[str, Any] = json.loads(_STATE.read_text(encoding="utf-8"))
    return state if state["of"] == fresh["of"] else fresh


def _save(state: dict[str, Any]) -> None:
    _STATE.parent.mkdir(exist_ok=True)
    whole = _STATE.with_suffix(".new")
    whole.write_text(json.dumps(state), encoding="utf-8")
    whole.replace(_STATE)


if __name__ == "__main__":
    # A broken schedule leaves its threads paused: nothing waits for them.
    code = main()
    sys.stdout.flush()
    os._exit(code)
