"""`make mutants ROOM=spool`: plants a seeded sample of one-line mutants and prints those that no test finds.

The room's tests run once with a coverage context each. Then each mutant is a forked child of this process.
An import hook gives the child the mutated source, and it runs the tests that reached the line, quick first.
Too long counts as found. Results are kept in `.cache/mutants`, and a second run goes on from them.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import coverage
import pytest

from tests.mutants.one_line import Mutant, mutants
from tests.mutants.one_line_recording import DURATIONS_VARIABLE

_ROOT: Final = Path(__file__).parents[2]
_KEPT: Final = _ROOT / ".cache" / "mutants"
#: The sources of a room and the tests that are recorded for it.
_ROOMS: Final[dict[str, tuple[str, str]]] = {
    "producer": ("client_core/producer", "tests/producer/test_*.py"),
    "metadata": ("client_core/metadata", "tests/metadata/test_*.py"),
    "client": ("client_core/client", "tests/client/test_*.py"),
    "network": ("client_core/network", "tests/network/**/test_*.py"),
    "record": ("client_core/record", "tests/record/test_*.py"),
    "spool": ("service/spool", "tests/service/test_spool_*.py"),
}
_TIMEOUT_S: Final = 90
_TESTS_OF_A_MUTANT: Final = 40
_ALIVE_AT_MOST: Final = 0.05


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


def _recorded(room: str) -> tuple[coverage.CoverageData, dict[str, float]]:
    sources, tests = _ROOMS[room]
    data, durations = _KEPT / f"{room}.coverage", _KEPT / f"{room}.json"
    if not durations.exists():
        _KEPT.mkdir(parents=True, exist_ok=True)
        settings = _KEPT / f"{room}.rc"
        settings.write_text(f"[run]\nsource = {sources.replace('/', '.')}\ndata_file = {data}\n")
        files = sorted(str(file.relative_to(_ROOT)) for file in _ROOT.glob(tests))
        command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q"]
        command += ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "tests.mutants.one_line_recording"]
        command += ["-m", "not kafka and not spark and not tools", *files]
        subprocess.run(
            command, check=False, cwd=_ROOT, env={**os.environ, DURATIONS_VARIABLE: str(durations)}
        )
    lines = coverage.CoverageData(str(data))
    lines.read()
    return lines, json.loads(durations.read_text(encoding="utf-8"))


def _is_found(mutant: Mutant, tests: list[str]) -> str:
    """`found`, `timeout` or `alive`."""
    child = os.fork()
    if child == 0:
        os.setsid()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        sys.meta_path.insert(0, _MutatedSource(mutant))
        ended = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests])
        os._exit(int(ended))
    deadline_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline_s:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return "alive" if os.waitstatus_to_exitcode(status) == 0 else "found"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _known(tests: list[str], durations_s: dict[str, float]) -> list[str]:
    return sorted({test for test in tests if test in durations_s})


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("room", choices=sorted(_ROOMS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--count", type=int, default=150)
    asked = parser.parse_args()
    lines, durations_s = _recorded(asked.room)
    every = [
        mutant
        for file in sorted((_ROOT / _ROOMS[asked.room][0]).rglob("*.py"))
        for mutant in mutants(str(file.relative_to(_ROOT)), file.read_bytes())
    ]
    sample = random.Random(asked.seed).sample(every, min(asked.count, len(every)))
    kept = _KEPT / f"{asked.room}-{asked.seed}.json"
    results: dict[str, str] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    print(f"{asked.room}: {len(sample)} of {len(every)} mutants, seed {asked.seed}", flush=True)
    is_sound = False
    for mutant in sample:
        key = f"{mutant.path}:{mutant.line} {mutant.start} {mutant.text}"
        by_line = lines.contexts_by_lineno(str(_ROOT / mutant.path))
        # A line that ran at import belongs to no test: any test that reached its file may find it.
        reached = _known(by_line.get(mutant.line, []), durations_s) or _known(
            [test for tests in by_line.values() for test in tests], durations_s
        )
        tests = sorted(reached, key=lambda test: durations_s[test])[:_TESTS_OF_A_MUTANT]
        if tests and not is_sound:
            nothing = Mutant(mutant.path, mutant.line, 0, 0, "", "", "")
            if _is_found(nothing, tests) != "alive":
                raise SystemExit(f"tests fail without a fault: {tests}")
            is_sound = True
        if key not in results:
            results[key] = _is_found(mutant, tests) if tests else "alive"
            kept.write_text(json.dumps(results), encoding="utf-8")
        if results[key] == "alive":
            print(
                f"ALIVE {mutant.path}:{mutant.line}\n  - {mutant.was}\n  + {mutant.becomes}\n  {tests[:5]}",
                flush=True,
            )
    alive = sum(result == "alive" for result in results.values())
    timeouts = sum(result == "timeout" for result in results.values())
    print(f"{len(results)} planted, {alive} alive, {timeouts} found by timeout")
    return 1 if alive > _ALIVE_AT_MOST * len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
