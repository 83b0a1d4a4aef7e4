"""`make mutants ROOM=spool`: plants a seeded sample of one-line mutants and prints those that no test finds.

The tests run once with a coverage context each. Then each mutant is a fork that runs the tests that reached
the line, quick first, until one fails (one_line_trials.py). Most mutants are tried in forks of one pytest
session, which has imported everything (one_line_session.py). Mutants of code that runs at import, and those
that survived, are tried again in a process that imports the mutated source. Those that the tests of the room
do not find are tried by tests of other rooms that reach them. Processes that tests start run without the
fault. Results are kept in `.cache/mutants`, by the contents of sources and tests; a second run resumes there.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import coverage
import pytest

from tests.mutants.one_line import Mutant, mutants
from tests.mutants.one_line_recording import DURATIONS_VARIABLE
from tests.mutants.one_line_session import ForkingSession, replaced_code
from tests.mutants.one_line_trials import Trial, try_trials
from tests.support.tiers import HYPOTHESIS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.mutants.one_line_session import Replacements

_ROOT: Final = Path(__file__).parents[2]
_KEPT: Final = _ROOT / ".cache" / "mutants"
#: Mutants without a visible effect, each with its reason.
EQUIVALENT_PATH: Final = Path(__file__).with_name("equivalent.toml")
_TIMEOUT_S: Final = 120
#: Where a session of Spark is part of it.
_LONG_TIMEOUT_S: Final = 900
_MOST_TESTS: Final = 600
_ALIVE_AT_MOST: Final = 0.05
_PYTEST: Final = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly")
_NUMBER: Final = re.compile(r"\b\d[\d_]*\b")
_QUICK: Final = "not kafka and not spark and not tools and not long"


class Room(NamedTuple):
    """Its files, what of the product is recorded, and the folder of tests by which it is recorded.

    `others`: folders and files of tests by which those are tried that survive the tests of the room.
    `instead`: test files that are all run for each mutant, in this order, where one test computes for others.
    """

    sources: tuple[str, ...]
    record: str
    tests: str
    others: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()


_CORE_ROOMS: Final = ("producer", "metadata", "client", "network", "record")
_TESTS_OF_ALL: Final = ("tests/golden", "tests/security", "tests/console", "tests/test_docs.py")


def _core(name: str) -> Room:
    others = tuple(f"tests/{other}" for other in _CORE_ROOMS if other != name)
    return Room((f"client_core/{name}/**/*.py",), "client_core", f"tests/{name}", others + _TESTS_OF_ALL)


def _service(*sources: str) -> Room:
    return Room(sources, "service", "tests/service", _TESTS_OF_ALL)


ROOMS: Final = {
    **{name: _core(name) for name in _CORE_ROOMS},
    "spool": _service("service/spool/*.py"),
    "listener": _service("service/listener/*.py"),
    "lookup": _service("service/lookup/*.py"),
    "admission": _service("service/admission/*.py"),
    "produce": _service("service/produce/*.py", "service/wire/json_parts.py"),
    "watch": _service("service/watch/*.py"),
    "dialects": _service("service/dialects/**/*.py"),
    # One session of Spark computes all tables, for whichever test asks first.
    "gold": Room(
        ("pipeline/gold/*.py",),
        "pipeline",
        "tests/pipeline",
        instead=tuple(
            f"tests/pipeline/test_{name}.py"
            for name in (
                *("churn", "leader_history", "leader_skew", "data_quality", "produce_slo", "staleness"),
                *("under_replicated", "advice", "gold_tables", "simulated_fleet"),
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


def _recorded(record: str, tests: str) -> tuple[coverage.CoverageData, dict[str, float]]:
    """Which test of a folder or file ran which line of a package, and how long each took."""
    pattern = tests if tests.endswith(".py") else f"{tests}/**/*.py"
    name = f"{record}-{tests.replace('/', '-')}-{_digest([f'{record}/**/*.py', pattern])}"
    data, durations = _KEPT / f"{name}.coverage", _KEPT / f"{name}.json"
    if not durations.exists():
        # Under names of our own until it is complete: another run may record the same.
        settings, own_data, own_durations = (
            _KEPT / f"{name}.{os.getpid()}.{kind}" for kind in ("rc", "coverage", "json")
        )
        settings.write_text(f"[run]\nsource = {record}\nrelative_files = true\ndata_file = {own_data}\n")
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q"]
        command += ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "tests.mutants.one_line_recording"]
        command += ["-m", _QUICK, tests]
        print(f"recording {tests} ...", flush=True)
        environment = {**os.environ, DURATIONS_VARIABLE: str(own_durations)}
        subprocess.run(command, check=False, cwd=_ROOT, env=environment, stdout=subprocess.DEVNULL)
        settings.unlink()
        own_data.replace(data)
        own_durations.replace(durations)
    lines = coverage.CoverageData(str(data))
    lines.read()
    return lines, json.loads(durations.read_text(encoding="utf-8"))


def _importing(path: str, files: Iterable[str]) -> list[str]:
    """Those of the files that import from the module at `path`."""
    statement = f"from {path.removesuffix('.py').replace('/', '.')} import "
    return [file for file in sorted(files) if statement in (_ROOT / file).read_text(encoding="utf-8")]


def _runs_once(mutant: Mutant) -> bool:
    """Whether the line is in a function that keeps what it returned: only its first caller reached it."""
    for node in ast.walk(ast.parse((_ROOT / mutant.path).read_bytes())):
        if isinstance(node, ast.FunctionDef) and node.lineno <= mutant.line <= (node.end_lineno or 0):
            return any("cache" in ast.unparse(decorator) for decorator in node.decorator_list)
    return False


def reaching_tests(mutant: Mutant, lines: coverage.CoverageData, durations_s: dict[str, float]) -> list[str]:
    """The tests that reach the line, quick first.

    Of many those whose file imports it, those in the folder of the same name, and those that cover most.
    For what runs at import, or once, those that reach the file, and those of test files that import it; if
    there are none, those that reach a file that imports it.
    """
    by_line = lines.contexts_by_lineno(mutant.path)
    files = _importing(mutant.path, {test.partition("::")[0] for test in durations_s})
    importing = {test for test in durations_s if test.partition("::")[0] in files}
    reached = {test for test in by_line.get(mutant.line, ()) if test in durations_s}
    if not reached or _runs_once(mutant):
        reached = {test for tests in by_line.values() for test in tests if test in durations_s} | importing
    if not reached:
        for path in _importing(mutant.path, lines.measured_files()):
            for line, tests in lines.contexts_by_lineno(path).items():
                by_line.setdefault(line, []).extend(tests)
                reached.update(test for test in tests if test in durations_s)
    if not reached:  # it describes: what it becomes is the OpenAPI document
        reached = {test for test in durations_s if "test_openapi_examples" in test}
    covered = Counter(test for tests in by_line.values() for test in tests)
    beside = f"tests/{Path(mutant.path).parent}/".replace("client_core/", "")

    def distance(test: str) -> tuple[bool, bool, int, str]:
        return test not in importing, not test.startswith(beside), -covered[test], test

    nearest = sorted(reached, key=distance)[:_MOST_TESTS]
    return sorted(nearest, key=lambda test: (durations_s[test], test))


class Equivalents:
    """The listed mutants that change nothing that anybody could see: by path, line and what becomes of it.

    An entry without `becomes` is a threshold that only saves work: any other number in its line is as good.
    """

    def __init__(self, listed: Iterable[Mapping[str, str]]) -> None:
        self._listed = {(one["path"], one["was"], one.get("becomes")) for one in listed}

    @classmethod
    def read(cls) -> Equivalents:
        return cls(tomllib.loads(EQUIVALENT_PATH.read_text(encoding="utf-8"))["equivalent"])

    def __contains__(self, mutant: Mutant) -> bool:
        """Whether it is listed."""
        is_number = _NUMBER.sub("0", mutant.was) == _NUMBER.sub("0", mutant.becomes)
        return (mutant.path, mutant.was, mutant.becomes) in self._listed or (
            is_number and (mutant.path, mutant.was, None) in self._listed
        )


def _in_a_session(
    trials: Sequence[Trial], say: Callable[[Trial, str], None], tests: Sequence[str], processes: int
) -> None:
    """Tries them in forks of one pytest session, but for those that change what runs at import."""
    planted: list[tuple[Trial, Replacements]] = []
    for trial in trials:
        path = _ROOT / trial.mutant.path
        replacements = replaced_code(str(path), path.read_bytes(), trial.mutant)
        if replacements:
            planted.append((trial, replacements))
    if not planted:
        return
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w", buffering=1) as results:

            def write(trial: Trial, result: str) -> None:
                results.write(json.dumps([trial.key, result]) + "\n")

            plugin = ForkingSession(planted, write, processes=processes, timeout_s=_TIMEOUT_S)
            ended = pytest.main([*_PYTEST, "-s", "-m", _QUICK, *tests], plugins=[plugin])
            results.flush()
            os._exit(int(ended))
    os.close(writing)
    by_key = {trial.key: trial for trial, _ in planted}
    try:
        with os.fdopen(reading) as lines:
            for line in lines:
                key, result = json.loads(line)
                say(by_key[key], result)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


class _Progress:
    """A plugin of pytest that says which of the tests it was given it is at: by name, or by file."""

    def __init__(self, tests: Sequence[str], note: Callable[[int], None]) -> None:
        self._indexes = {test: index for index, test in enumerate(tests)}
        self._note = note

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        index = self._indexes.get(nodeid, self._indexes.get(nodeid.partition("::")[0]))
        if index is not None:
            self._note(index)


def _import_and_run(planted: Trial | None, tests: Sequence[str], note: Callable[[int], None]) -> bool:
    """Runs tests in this process, which has not imported the product yet; whether all passed."""
    if planted is not None:
        sys.meta_path.insert(0, _MutatedSource(planted.mutant))
    return pytest.main([*_PYTEST, "-x", *tests], plugins=[_Progress(tests, note)]) == 0


class _Results:
    """What was found, or is alive, kept as it comes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.by_key: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def keep(self, trial: Trial, result: str) -> None:
        self.by_key[trial.key] = result
        self._path.write_text(json.dumps(self.by_key), encoding="utf-8")
        if result != "found":
            self.print(trial)

    def print(self, trial: Trial) -> None:
        mutant = trial.mutant
        result = self.by_key[trial.key].upper()
        print(f"{result} {mutant.path}:{mutant.line}", flush=True)
        print(f"  - {mutant.was}\n  + {mutant.becomes}", flush=True)

    def keep_found(self, trial: Trial, result: str) -> None:
        """What survives here may be found by tests that run later: it has no result yet."""
        if result == "found":
            self.keep(trial, result)

    def open(self, trials: Iterable[Trial]) -> list[Trial]:
        return [trial for trial in trials if trial.key not in self.by_key]


def _try(room: Room, trials: Sequence[Trial], results: _Results, processes: int) -> None:
    """By the tests of the room; what survives, by the others that reach it."""
    for tests in ((room.tests,), room.others):
        waiting = results.open(trials)
        if not waiting:
            return
        recordings = [_recorded(room.record, folder) for folder in tests]
        lines = coverage.CoverageData(no_disk=True)
        durations_s: dict[str, float] = {}
        for recorded, durations in recordings:
            lines.update(recorded)
            durations_s |= durations
        reached = [Trial(trial.mutant, reaching_tests(trial.mutant, lines, durations_s)) for trial in waiting]
        _in_a_session(reached, results.keep_found, tests, processes)
        reached = results.open(reached)
        try_trials(reached, _import_and_run, results.keep_found, processes=processes, timeout_s=_TIMEOUT_S)
    for trial in results.open(trials):
        results.keep(trial, "alive")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("room", choices=sorted(ROOMS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--only", default="", help="files whose path holds this")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ[HYPOTHESIS_VARIABLE] = "unshrunk"
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
    equivalents = Equivalents.read()
    sample = [one for one in sample if one not in equivalents]
    digest = _digest([*room.sources, f"{room.tests}/**/*.py", "tests/mutants/one_line.py"])
    _KEPT.mkdir(parents=True, exist_ok=True)
    results = _Results(_KEPT / f"{asked.room}-{asked.seed}-{digest}.json")
    print(f"{asked.room}: {len(sample)} of {len(every)} mutants, seed {asked.seed}", flush=True)
    trials = [Trial(mutant, room.instead) for mutant in sample]
    if room.instead:
        try_trials(
            results.open(trials),
            _import_and_run,
            results.keep,
            processes=asked.processes,
            timeout_s=_LONG_TIMEOUT_S,
        )
    else:
        _try(room, trials, results, asked.processes)
    counts = Counter(results.by_key[trial.key] for trial in trials)
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    print(f"{asked.room}: {said}; seed {asked.seed}, {cpu.ru_utime + cpu.ru_stime:.0f} CPU s")
    alive = len(trials) - counts["found"]
    return 1 if alive > _ALIVE_AT_MOST * len(trials) else 0


if __name__ == "__main__":
    sys.exit(main())
