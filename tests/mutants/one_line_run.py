"""`make mutants ROOM=spool`: plants a seeded sample of one-line mutants and prints those that no test finds.

The tests run once with a coverage context each. Then each mutant is a fork that runs the tests that reached
the line, quick first, until one fails. Most mutants are tried in forks of one pytest session, which has
imported all (one_line_session.py). What runs at import, and what survived there, is tried again in a process
that imports the mutated source. A fault counts as found where a test fails with it, or takes too long, and
passes without it. What runs in processes of its own does not have the fault. Results are kept in
`.cache/mutants`, by the contents of sources and tests, and a second run goes on from them.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import coverage
import pytest

from tests.mutants.one_line import Mutant, mutants
from tests.mutants.one_line_recording import DURATIONS_VARIABLE
from tests.mutants.one_line_session import ForkingSession, Trial, replaced_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROOT: Final = Path(__file__).parents[2]
_KEPT: Final = _ROOT / ".cache" / "mutants"
#: Mutants that change nothing that anybody could see, each with its reason.
EQUIVALENT_PATH: Final = Path(__file__).with_name("equivalent.toml")
_TIMEOUT_S: Final = 120
#: Where a session of Spark is part of it.
_LONG_TIMEOUT_S: Final = 900
#: So many run in one process, quick first; the next ones where none of these finds the fault.
_TESTS_AT_ONCE: Final = 60
_MOST_TESTS: Final = 600
_ALIVE_AT_MOST: Final = 0.05
_QUICK: Final = "not kafka and not spark and not tools and not long"


class Room(NamedTuple):
    """Its files, what of the product is recorded, and the folder of tests by which it is recorded.

    `instead`: test files that are all run for each mutant, in this order, where one test computes for others.
    """

    sources: tuple[str, ...]
    record: str
    tests: str
    instead: tuple[str, ...] = ()


def _core(name: str) -> Room:
    return Room((f"client_core/{name}/**/*.py",), "client_core", f"tests/{name}")


def _service(*sources: str) -> Room:
    return Room(sources, "service", "tests/service")


ROOMS: Final = {
    **{name: _core(name) for name in ("producer", "metadata", "client", "network", "record")},
    "spool": _service("service/spool/*.py"),
    "listener": _service("service/listener/*.py"),
    "lookup": _service("service/lookup/*.py"),
    "access": _service("service/access/*.py"),
    "produce": _service("service/produce/*.py", "service/aside.py", "service/json_parts.py"),
    "streams": _service("service/streams/*.py", "service/event_fan_out.py"),
    "dialects": _service("service/dialects/**/*.py"),
    # One session of Spark computes all tables, for whichever test asks first.
    "gold": Room(
        ("pipeline/gold/*.py",),
        "pipeline",
        "tests/pipeline",
        tuple(
            f"tests/pipeline/test_{name}.py"
            for name in (
                *("churn", "leader_history", "leader_skew", "data_quality", "produce_slo", "staleness"),
                *("under_replicated", "advice", "gold_tables", "oracle"),
            )
        ),
    ),
}


class _MutatedSource(importlib.abc.MetaPathFinder):
    """Loads one file with its fault, and everything else as it is."""

    def __init__(self, mutant: Mutant) -> None:
        self._file = _ROOT / mutant.path
        self._source = mutant.of(self._file.read_bytes())

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != ".".join(self._file.relative_to(_ROOT).with_suffix("").parts):
            return None
        source = self._source

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> object:  # type: ignore[override]
                return compile(source, self.path, "exec")

        return importlib.machinery.ModuleSpec(
            fullname, Loader(fullname, str(self._file)), origin=str(self._file)
        )


def _digest(patterns: Iterable[str]) -> str:
    """Of the contents of all files of these patterns: what was recorded of others is not used."""
    digest = hashlib.sha256()
    for pattern in patterns:
        for file in sorted(_ROOT.glob(pattern)):
            digest.update(f"{file.relative_to(_ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _recorded(room: Room) -> tuple[coverage.CoverageData, dict[str, float]]:
    """Which test ran which line, and how long each took."""
    name = f"{room.tests.replace('/', '-')}-{_digest([f'{room.record}/**/*.py', f'{room.tests}/**/*.py'])}"
    data, durations = _KEPT / f"{name}.coverage", _KEPT / f"{name}.json"
    if not durations.exists():
        settings = _KEPT / f"{name}.rc"
        settings.write_text(f"[run]\nsource = {room.record}\nrelative_files = true\ndata_file = {data}\n")
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q"]
        command += ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "tests.mutants.one_line_recording"]
        command += ["-m", _QUICK, room.tests]
        print(f"recording {room.tests} ...", flush=True)
        environment = {**os.environ, DURATIONS_VARIABLE: str(durations)}
        subprocess.run(command, check=False, cwd=_ROOT, env=environment, stdout=subprocess.DEVNULL)
    lines = coverage.CoverageData(str(data))
    lines.read()
    return lines, json.loads(durations.read_text(encoding="utf-8"))


@dataclass(slots=True)
class _Trial:
    """A mutant, the tests that reach it, quick first, and how many of them it has passed."""

    mutant: Mutant
    tests: list[str]
    passed: int = 0

    @property
    def next_tests(self) -> list[str]:
        return self.tests[self.passed : self.passed + _TESTS_AT_ONCE]

    @property
    def key(self) -> str:
        return f"{self.mutant.path}:{self.mutant.line} {self.mutant.start} {self.mutant.text}"


class _Children:
    """Mutants that are being tried, each in a process of its own."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._running: dict[int, tuple[_Trial, float]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, trial: _Trial, mutant: Mutant | None) -> None:
        """Runs the next of its tests in a fork; without a mutant they have to pass."""
        child = os.fork()
        if child == 0:
            os.setsid()
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            if mutant is not None:
                sys.meta_path.insert(0, _MutatedSource(mutant))
            ended = pytest.main(
                ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *trial.next_tests]
            )
            os._exit(int(ended))
        self._running[child] = trial, time.monotonic() + self._timeout_s

    def ended(self) -> tuple[_Trial, str]:
        """Waits for one: its trial, and `passed`, `failed` or `timeout`."""
        while True:
            for child, (trial, deadline_s) in list(self._running.items()):
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    del self._running[child]
                    return trial, "failed" if os.waitstatus_to_exitcode(status) else "passed"
                if time.monotonic() > deadline_s:
                    self._kill(child)
                    return trial, "timeout"
            time.sleep(0.02)

    def close(self) -> None:
        """Ends all of them."""
        for child in list(self._running):
            self._kill(child)

    def _kill(self, child: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        del self._running[child]


def _tests_of(mutant: Mutant, lines: coverage.CoverageData, durations_s: dict[str, float]) -> list[str]:
    """The tests that reach the line and most of its file, quick first; any of its file for one of imports."""
    by_line = lines.contexts_by_lineno(mutant.path)
    reached = {test for test in by_line.get(mutant.line, ()) if test in durations_s}
    if not reached:
        reached = {test for tests in by_line.values() for test in tests if test in durations_s}
    if not reached:  # it describes: what it becomes is the OpenAPI document
        reached = {test for test in durations_s if "test_openapi_examples" in test}
    covered = Counter(test for tests in by_line.values() for test in tests)
    nearest = sorted(reached, key=lambda test: (-covered[test], test))[:_MOST_TESTS]
    return sorted(nearest, key=lambda test: (durations_s[test], test))


def _equivalent() -> set[tuple[str, str, str]]:
    """Path, line and what becomes of it: mutants that change nothing that anybody could see."""
    listed = tomllib.loads(EQUIVALENT_PATH.read_text(encoding="utf-8")).get("equivalent", [])
    return {(one["path"], one["was"], one["becomes"]) for one in listed}


def _try_all(
    trials: Sequence[_Trial], results: dict[str, str], kept: Path, children: _Children, processes: int
) -> None:
    """Tries each that has no result yet. A set of tests that fails without a fault is no judge."""
    waiting = [trial for trial in trials if trial.key not in results]
    for trial in waiting:
        if not trial.tests:
            results[trial.key] = "no test"
    waiting = [trial for trial in waiting if trial.tests]
    confirming: set[int] = set()
    passed: set[tuple[str, ...]] = set()
    try:
        while waiting or len(children):
            while waiting and len(children) < processes:
                children.start(waiting[0], waiting[0].mutant)
                waiting.pop(0)
            trial, ended = children.ended()
            if id(trial) in confirming:
                results[trial.key] = "found" if ended == "passed" else "tests fail without it"
                if ended == "passed":
                    passed.add(tuple(trial.next_tests))
            elif ended in ("failed", "timeout") and tuple(trial.next_tests) in passed:
                results[trial.key] = "found"
            elif ended in ("failed", "timeout"):
                confirming.add(id(trial))
                children.start(trial, None)
                continue
            else:
                trial.passed += _TESTS_AT_ONCE
                if trial.passed < len(trial.tests):
                    waiting.insert(0, trial)
                    continue
                results[trial.key] = "alive"
            kept.write_text(json.dumps(results), encoding="utf-8")
            if results[trial.key] != "found":
                _print(trial, results[trial.key])
    finally:
        children.close()


def _try_in_a_session(
    trials: Sequence[_Trial], results: dict[str, str], kept: Path, room: Room, processes: int
) -> None:
    """Finds what forks of one pytest session can find; what survives there has no result yet."""
    planted: list[Trial] = []
    for trial in trials:
        path = _ROOT / trial.mutant.path
        replacements = replaced_code(str(path), path.read_bytes(), trial.mutant)
        if trial.key not in results and trial.tests and replacements:
            planted.append(Trial(trial.key, replacements, trial.tests))
    if not planted:
        return
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w", buffering=1) as found:

            def say(key: str, result: str) -> None:
                found.write(json.dumps([key, result]) + "\n")

            plugin = ForkingSession(planted, processes, say)
            arguments = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", _QUICK, room.tests]
            ended = pytest.main(arguments, plugins=[plugin])
            found.flush()
            os._exit(int(ended))
    os.close(writing)
    try:
        with os.fdopen(reading) as lines:
            for line in lines:
                key, result = json.loads(line)
                if result == "found":
                    results[key] = result
                    kept.write_text(json.dumps(results), encoding="utf-8")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


def _print(trial: _Trial, result: str) -> None:
    mutant = trial.mutant
    print(f"{result.upper()} {mutant.path}:{mutant.line}, {len(trial.tests)} tests reach it", flush=True)
    print(f"  - {mutant.was}\n  + {mutant.becomes}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("room", choices=sorted(ROOMS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--only", default="", help="files whose path holds this")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    room = ROOMS[asked.room]
    files = sorted({file for source in room.sources for file in _ROOT.glob(source)})
    paths = [str(file.relative_to(_ROOT)) for file in files]
    every = [
        mutant
        for path in paths
        if asked.only in path
        for mutant in mutants(path, (_ROOT / path).read_bytes())
    ]
    sample = random.Random(asked.seed).sample(every, min(asked.count, len(every)))
    equivalent = _equivalent()
    sample = [one for one in sample if (one.path, one.was, one.becomes) not in equivalent]
    digest = _digest([*room.sources, f"{room.tests}/**/*.py", "tests/mutants/one_line.py"])
    kept = _KEPT / f"{asked.room}-{asked.seed}-{digest}.json"
    results: dict[str, str] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    print(f"{asked.room}: {len(sample)} of {len(every)} mutants, seed {asked.seed}", flush=True)
    _KEPT.mkdir(parents=True, exist_ok=True)
    if room.instead:
        trials = [_Trial(mutant, list(room.instead)) for mutant in sample]
    else:
        lines, durations_s = _recorded(room)
        trials = [_Trial(mutant, _tests_of(mutant, lines, durations_s)) for mutant in sample]
    for trial in trials:
        if results.get(trial.key, "found") != "found":
            _print(trial, results[trial.key])
    if not room.instead:
        _try_in_a_session(trials, results, kept, room, asked.processes)
    children = _Children(_LONG_TIMEOUT_S if room.instead else _TIMEOUT_S)
    _try_all(trials, results, kept, children, asked.processes)
    counts = Counter(results[trial.key] for trial in trials)
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    print(f"{asked.room}: {said}; seed {asked.seed}, {cpu.ru_utime + cpu.ru_stime:.0f} CPU s")
    alive = len(trials) - counts["found"]
    return 1 if alive > _ALIVE_AT_MOST * len(trials) else 0


if __name__ == "__main__":
    sys.exit(main())
