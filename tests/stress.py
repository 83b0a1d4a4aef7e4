"""`make test-stress`: `make test` again and again, in random orders, on an overloaded machine.

Twice as many processes as there are cores spin beside pytest. Each run draws a seed and prints it.
pytest-randomly orders the tests by it, and hypothesis draws its cases from it. Whole runs come first, then
runs of the part without brokers and Spark. Waits last longer until they give up, and so does pytest.

It resumes: `.cache/stress.json` has the runs that passed at this commit, with their seeds, and only what is
left is run. A seed that failed comes first the next time, and must pass before the count is full.
Logs are in `.cache/stress`. It ends with 1 at the first run that fails.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.support.waiting import PATIENCE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROOT: Final = Path(__file__).resolve().parents[1]
_STATE: Final = _ROOT / ".cache" / "stress.json"
_LOGS: Final = _ROOT / ".cache" / "stress"
#: A spinning process ends by itself when the process that started it is gone, however that ended.
_SPIN: Final = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(100_000))"
_SEEDS: Final = 1 << 31

#: The parts of `make test`, and their additional options for pytest.
PARTS: Final = {
    "whole": ("-m", "not long"),
    "no-brokers": ("-m", "not long and not kafka and not spark and not tools"),
}


class Ran(NamedTuple):
    """A run: of which part, with which seed, at which commit, and whether it passed."""

    part: str
    seed: int
    commit: str
    passed: bool


def command(part: str, seed: int, timeout_s: int, more: Sequence[str]) -> list[str]:
    """`make test`'s command for a part, with seeds and pytest's timeout."""
    return [
        *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"),
        *("--numprocesses", str((os.cpu_count() or 2) + 3), "--dist", "loadgroup", "--no-loadscope-reorder"),
        *("--max-worker-restart", "0"),
        f"--randomly-seed={seed}",
        *("--hypothesis-profile", "fresh", f"--hypothesis-seed={seed}"),
        f"--timeout={timeout_s}",
        *PARTS[part],
        *more,
    ]


def left(wanted: dict[str, int], commit: str, ran: Sequence[Ran]) -> list[tuple[str, int | None]]:
    """What is still to be run at this commit: parts, each with the seed of one that failed, or None.

    A failed seed is to pass before a fresh one counts.
    """
    here = [one for one in ran if one.commit == commit]
    passed = {(one.part, one.seed) for one in here if one.passed}
    runs: list[tuple[str, int | None]] = []
    for part, count in wanted.items():
        of_part = [one for one in here if one.part == part]
        failed = dict.fromkeys(one.seed for one in of_part if (part, one.seed) not in passed)
        missing = count - sum(name == part for name, _ in passed)
        again: list[int | None] = list(failed)
        fresh: list[int | None] = [None] * (missing - len(again))
        runs += [(part, seed) for seed in again + fresh]
    return runs


@contextmanager
def _spinning(count: int) -> Iterator[None]:
    """So many processes take all the CPU that they get."""
    spinners = [subprocess.Popen([sys.executable, "-c", _SPIN, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def _commit() -> str:
    """What is tested: a change that is not committed has passed nothing."""
    described = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(described, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _load() -> list[Ran]:
    return [Ran(*row) for row in json.loads(_STATE.read_text())] if _STATE.exists() else []


def _save(ran: Sequence[Ran]) -> None:
    _STATE.parent.mkdir(exist_ok=True)
    whole = _STATE.with_suffix(".new")
    whole.write_text(json.dumps(ran, indent=0))
    whole.replace(_STATE)


def main() -> int:
    """Runs what is left; 0 when all has passed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=2, help="of all that `make test` runs; %(default)s")
    options.add_argument(
        "--no-broker-runs", type=int, default=6, help="of the part without brokers; %(default)s"
    )
    options.add_argument("--seed", type=int, help="one run of each part that is asked for, with this seed")
    options.add_argument(
        "--spinning", type=int, default=2 * (os.cpu_count() or 1), help="processes beside; %(default)s"
    )
    options.add_argument("--patience", type=int, default=5, help="of waits: times longer; %(default)s")
    options.add_argument("--timeout", type=int, default=3_600, help="pytest's own, in seconds; %(default)s")
    options.add_argument("--forget", action="store_true", help="what passed before does not count")
    options.add_argument("more", nargs="*", help="for pytest, behind --; then nothing is remembered")
    given = options.parse_args()
    is_remembered = not given.more and given.seed is None
    ran = _load() if is_remembered and not given.forget else []
    commit = _commit()
    wanted = {"whole": given.runs, "no-brokers": given.no_broker_runs}
    if given.seed is not None:
        runs: list[tuple[str, int | None]] = [(part, given.seed) for part, count in wanted.items() if count]
    else:
        runs = left(wanted, commit, ran)
    _LOGS.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, PATIENCE_VARIABLE: str(given.patience)}
    print(f"{commit}: {len(runs)} runs to go, {given.spinning} processes spin beside them", flush=True)
    for part, known in runs:
        seed = secrets.randbelow(_SEEDS) if known is None else known
        log = _LOGS / f"{part}-{seed}.log"
        words = command(part, seed, given.timeout, given.more)
        print(f"{part}, seed {seed}, log {log}", flush=True)
        began_s = time.monotonic()
        with _spinning(given.spinning), log.open("wb") as written:
            ended = subprocess.run(
                words, cwd=_ROOT, env=environment, stdout=written, stderr=written, check=False
            )
        ran.append(Ran(part, seed, commit, ended.returncode == 0))
        if is_remembered:
            _save(ran)
        last = log.read_text(errors="replace").rstrip().rpartition("\n")[2]
        print(
            f"{part}, seed {seed}: exit code {ended.returncode}, {time.monotonic() - began_s:.0f} s; {last}",
            flush=True,
        )
        if ended.returncode:
            print(f"again: {PATIENCE_VARIABLE}={given.patience} {' '.join(words)}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
