"""The suites that may find a mutant, from quick to slow, and the result of a run.

    near     tests of the mutated rooms without brokers: the files that are named like the mutant or its code
    room     all the others of these rooms
    unit     all other tests that need no brokers
    kafka    tests/kafka, on three real brokers
    chaos    `python -m tests.chaos`, all faults of a seed

A suite ends at the first test that fails. Tests run in the order of their names: only the behaviour of real
brokers may vary.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.mutants.behaviour.mutant import environment_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.mutants.behaviour.mutant import Mutant

SUITES: Final = ("near", "room", "unit", "kafka", "chaos")
#: After so long a suite that has not ended is killed: found, and by a timeout.
_MOST_S: Final = {"near": 300, "room": 900, "unit": 3_600, "kafka": 3_600, "chaos": 1_800}
_NO_BROKERS: Final = "not kafka and not spark and not tools"
#: The pipeline's tests are on Spark; those of brokers are not.
_OF_PIPELINE: Final = "not kafka and not tools"
#: Where the tests of a room are, besides the folder of its name.
_MORE_OF_ROOM: Final = {"record": ("golden", "interop"), "protocol": ("golden", "interop")}
#: Tests of the suites themselves, and of other Pythons: no mutant of the product is theirs to find.
_NOT_OF_PRODUCT: Final = (
    "chaos",
    "deploy",
    "fuzz",
    "kafka",
    "lives",
    "mutants",
    "soak",
    "support",
    "support_tests",
)

#: What is shorter links a file to any other.
_SHORTEST_WORD: Final = 3
_NOTHING: Final[Mapping[str, str]] = {}
_NO_PLUGINS: Final = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
_FAILED: Final = re.compile(
    r"^(?:FAILED|ERROR) (?P<test>\S+?\.py(?:::.+?)?)(?: - (?P<why>.*))?$", re.MULTILINE
)
_TIMED_OUT: Final = re.compile(r"Failed: Timeout|Timeout \(>|\+{3,} Timeout \+{3,}")

#: Exit statuses of pytest: it was called wrongly, and there was no test to run.
_USAGE: Final = 4
_NO_TESTS: Final = 5

#: Leaders of the process groups of suites that have not ended.
_running: Final[set[int]] = set()
#: What was killed by `end_running` has found nothing.
_is_ending: Final = threading.Event()


class Run(NamedTuple):
    """One suite on one tree. `test`: the first that failed; None: all passed.

    Seconds of CPU are of all processes that were waited for; a JVM that Spark leaves behind is none of them.
    """

    suite: str
    test: str | None
    why: str
    timed_out: bool
    cpu_s: float
    wall_s: float


def rooms_of(mutant: Mutant) -> list[str]:
    """The rooms that a mutant changes: `client_core/producer/…` is producer, the others their package's."""
    parts = [file.split("/") for file in mutant.files]
    rooms = [path[1] if path[0] == "client_core" and len(path) > 2 else path[0] for path in parts]
    return list(dict.fromkeys("values" if room == "client_core" else room for room in rooms))


def room_tests(mutant: Mutant, tree: Path) -> tuple[list[str], list[str]]:
    """The test files of a mutant's rooms: those whose names share words with it, and the others."""
    folders = [folder for room in rooms_of(mutant) for folder in (room, *_MORE_OF_ROOM.get(room, ()))]
    files = [file for folder in folders for file in sorted((tree / "tests" / folder).rglob("test_*.py"))]
    stems = [Path(file).stem for file in mutant.files]
    names = [*mutant.name.split("-"), *(part for file in mutant.files for part in file.split("/")[1:])]
    words = {word for name in names for word in _words(name) if len(word) > _SHORTEST_WORD} - {"without"}

    def place(test: Path) -> tuple[int, int]:
        name = test.stem.removeprefix("test_")
        return -sum(name.startswith(stem) for stem in stems), -len(words & set(_words(name)))

    near = [file for file in files if place(file) < (0, 0)]
    near.sort(key=place)
    rest = [file for file in files if file not in near]
    return [str(file.relative_to(tree)) for file in near], [str(file.relative_to(tree)) for file in rest]


def _words(name: str) -> list[str]:
    return [word.removesuffix("s") for word in name.removesuffix(".py").split("_")]


def run_suite(suite: str, mutant: Mutant, tree: Path, seed: int, without: Sequence[str] = ()) -> Run:
    """Runs a suite, `without` some tests, where the mutant is planted, up to its first failure."""
    if suite == "chaos":
        return _run(suite, [sys.executable, "-m", "tests.chaos", "--seed", str(seed)], tree)
    deselected = [f"--deselect={test}" for test in without]
    marks = _OF_PIPELINE if "pipeline" in rooms_of(mutant) else _NO_BROKERS
    if suite == "kafka":
        return _run(suite, _pytest(*deselected, "-m", "kafka", "tests/kafka"), tree)
    near, rest = room_tests(mutant, tree)
    if suite in ("near", "room"):
        files = near if suite == "near" else rest
        if not files:
            return Run(suite, None, "", False, 0.0, 0.0)
        return _run(suite, _pytest(*deselected, "-m", marks, *files), tree)
    left_out = [f"--ignore={file}" for file in (*near, *rest)]
    left_out += [f"--ignore=tests/{folder}" for folder in _NOT_OF_PRODUCT]
    return _run(suite, _pytest(*deselected, "-m", _NO_BROKERS, *left_out, "tests"), tree)


def run_test(test: str, tree: Path) -> Run:
    """Runs one test."""
    return _run("test", _pytest(test), tree)


def run_quick_test(test: str, tree: Path) -> Run:
    """Runs one test that needs no plugin: half of what a quick test costs is to import them."""
    return _run("test", _pytest("-p", "pytest_timeout", "-p", "xdist.plugin", test), tree, _NO_PLUGINS)


def _pytest(*arguments: str) -> list[str]:
    quiet = ("-q", "-x", "-n", "0", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly")
    return [sys.executable, "-m", "pytest", *quiet, *arguments]


def _run(suite: str, command: Sequence[str], tree: Path, more: Mapping[str, str] = _NOTHING) -> Run:
    began_s = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env={**environment_of(tree), **more},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _running.add(process.pid)
        hung, status, cpu_s = _awaited(process.pid, began_s + _MOST_S.get(suite, 600))
        process.returncode = status
        output.seek(0)
        said = output.read()
    if _is_ending.is_set():
        raise InterruptedError(f"{suite} was killed: the runner ends")
    wall_s = time.monotonic() - began_s
    found = _FAILED.search(said)
    if hung:
        return Run(suite, "(did not end)", f"killed after {wall_s:.0f} s", True, cpu_s, wall_s)
    if status == _USAGE:
        raise RuntimeError(f"pytest does not understand {command}: {said[-1_000:]}")
    if status in (0, _NO_TESTS):
        return Run(suite, None, "", False, cpu_s, wall_s)
    why = (found["why"] or "") if found is not None else said.strip().rpartition("\n")[2]
    test = found["test"] if found is not None else f"(exit status {status})"
    return Run(suite, test, why[:200], _TIMED_OUT.search(said) is not None, cpu_s, wall_s)


def _awaited(pid: int, until_s: float) -> tuple[bool, int, float]:
    """Whether a process had to be killed, its exit status, and the CPU that it and its children took."""
    hung = False
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            _running.discard(pid)
            return hung, os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        if time.monotonic() >= until_s and not hung:
            hung = True
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.05)


def end_running() -> None:
    """Kills the running suites and the processes that they started, because the runner was asked to end."""
    _is_ending.set()
    for pid in tuple(_running):
        os.killpg(pid, signal.SIGKILL)
