"""`python -m tests.mutants.behaviour`: plants each mutant, and prints which suite found it.

    --only WORDS         mutants whose name contains these words
    --suites A,B         from quick to slow; near,room,unit,kafka unless given, chaos is another
    --processes N        mutants that are played at the same time; 2 unless given
    --seed N             of the chaos suite
    --fresh              plays those anew, too, that were found earlier
    --list               names and faults

Resumable: results are kept in results.json, and a mutant is played anew if the mutated files have changed.
Ends with 1 if a mutant is not found.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from tests.mutants.behaviour.mutant import copied_tree, planted, read_mutants
from tests.mutants.behaviour.suites import SUITES, end_running, rooms_of, run_suite, run_test
from tests.mutants.behaviour.table import Result, keep_results, read_results, row, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.mutants.behaviour.mutant import Mutant


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.behaviour")
    parser.add_argument("--only", default="")
    parser.add_argument("--suites", default="near,room,unit,kafka")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    suites = arguments.suites.split(",")
    unknown = [suite for suite in suites if suite not in SUITES]
    if unknown:
        print(f"no suite is called {', '.join(unknown)}; there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    every = read_mutants()
    chosen = [mutant for mutant in every if arguments.only in mutant.name]
    if not chosen:
        print(f"no mutant has {arguments.only!r} in its name; --list shows them", file=sys.stderr)
        return 2
    if arguments.list:
        print(*(f"{mutant.name}: {mutant.fault}" for mutant in chosen), sep="\n")
        return 0
    results = {} if arguments.fresh and chosen == every else read_results()
    names = {mutant.name for mutant in every}
    results = {name: result for name, result in results.items() if name in names}
    to_play = [mutant for mutant in chosen if arguments.fresh or not _is_found(mutant, results)]
    to_play.sort(key=lambda mutant: "pipeline" in rooms_of(mutant))  # what takes long to start comes last
    print(f"{len(to_play)} of {len(chosen)} mutants to play, suites {', '.join(suites)}", flush=True)
    lock = threading.Lock()

    def one(mutant: Mutant) -> None:
        result = play(mutant, suites, arguments.seed)
        with lock:
            results[mutant.name] = result
            keep_results(results)
            print(row(mutant.name, result), flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ThreadPoolExecutor(arguments.processes) as pool:
        try:
            for played in as_completed([pool.submit(one, mutant) for mutant in to_play]):
                played.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_running()
            raise
    keep_results(results)
    print(*table(chosen, results), sep="\n")
    return 0 if all(results[mutant.name].suite is not None for mutant in chosen) else 1


def _is_found(mutant: Mutant, results: dict[str, Result]) -> bool:
    result = results.get(mutant.name)
    return result is not None and result.suite is not None and result.digest == mutant.digest


def play(mutant: Mutant, suites: Sequence[str], seed: int) -> Result:
    """Plants a mutant in a copy of the tree, and runs suites until one finds it.

    A test has found nothing if it fails without the mutant, too, or passes when it is run again: a busy
    machine may be the reason. It is skipped.
    """
    cpu_s = wall_s = 0.0
    passed_over: list[str] = []
    with copied_tree() as tree:
        for suite in suites:
            while True:
                with planted(mutant, tree):
                    run = run_suite(suite, mutant, tree, seed, passed_over)
                    fails_again = run.test is None or "::" not in run.test or not _passes(run.test, tree)
                cpu_s, wall_s = cpu_s + run.cpu_s, wall_s + run.wall_s
                if run.test is None:
                    break
                if fails_again and ("::" not in run.test or _passes(run.test, tree)):
                    figures = round(cpu_s, 1), round(wall_s, 1)
                    return Result(mutant.digest, suite, run.test, run.timed_out, *figures)
                passed_over.append(run.test)
    return Result(mutant.digest, None, "", False, round(cpu_s, 1), round(wall_s, 1))


def _passes(test: str, tree: Path) -> bool:
    return run_test(test, tree).test is None


if __name__ == "__main__":
    sys.exit(main())
