"""`python -m tests.simulation.mutants`: which planted faults the simulation finds, and after how many seeds.

    --only PATTERN   mutants in whose name the pattern is found
    --seeds N        how many seeds are run at most; 1,000 unless given
    --first N        the first seed

The mutants are those of tests/mutants/behaviour that change produce, keys, the spool or the producer, without
those that no request of a seed could meet.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.mutants.behaviour.mutant import copied_tree, environment_of, planted, read_mutants

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.mutants.behaviour.mutant import Mutant

_ROOMS: Final = ("client_core/producer/", "service/produce/", "service/spool/", "service/admission/admission")
#: What the simulation can't see, and why: other suites find them.
_OUT_OF_SIGHT: Final[Mapping[str, str]] = {
    "offset-one-too-high": "receipts of requests are made elsewhere, see offset-of-a-shared-batch",
    "status-shows-hidden-topics": "nobody asks for the status",
    "flush-forgets-split-batches": "a sidecar never flushes",
    "refresh-ended-by-an-earlier-answer": "nobody looks anything up",
    "listing-of-before": "nobody looks anything up",
    "answers-of-before-on-a-left-connection": "nobody looks anything up",
}
_FOUND: Final = re.compile(r"^seed (?P<seed>\d+): (?P<why>.*)$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    mutants = [
        mutant for mutant in read_mutants() if re.search(arguments.only, mutant.name) and _is_ours(mutant)
    ]
    needed: list[int] = []
    missed: list[str] = []
    with copied_tree() as tree:
        for mutant in mutants:
            with planted(mutant, tree):
                seeds, why = _seeds_until_found(tree, arguments.first, arguments.seeds)
            if seeds is None:
                missed.append(mutant.name)
                print(f"{mutant.name}: not found in {arguments.seeds} seeds", flush=True)
            else:
                needed.append(seeds)
                print(f"{mutant.name}: found after {seeds} seeds: {why[:110]}", flush=True)
    median = statistics.median(needed) if needed else 0
    print(f"{len(needed)} of {len(mutants)} found, after {median:g} seeds (median); not: {', '.join(missed)}")
    return 1 if missed else 0


def _is_ours(mutant: Mutant) -> bool:
    if mutant.name in _OUT_OF_SIGHT:
        return False
    return any(file.startswith(room) for file in mutant.files for room in _ROOMS)


def _seeds_until_found(tree: Path, first: int, seeds: int) -> tuple[int | None, str]:
    command = [
        sys.executable,
        "-m",
        "tests.simulation",
        "--first",
        str(first),
        "--seeds",
        str(seeds),
        "--stop",
    ]
    ended = subprocess.run(
        command, cwd=tree, env=environment_of(tree), capture_output=True, text=True, check=False
    )
    found = _FOUND.search(ended.stdout)
    if found is not None:
        return int(found["seed"]) - first + 1, found["why"]
    if ended.returncode:
        return 1, ended.stderr.strip().rpartition("\n")[2]
    return None, ""


if __name__ == "__main__":
    sys.exit(main())
