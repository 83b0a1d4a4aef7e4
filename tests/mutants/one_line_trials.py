"""Tries mutants, each in a fork of its own, until a test fails.

A fault is found where a test fails with it, or takes too long, and passes without it. A test that fails
without it is left out from then on. If the time is over after some tests, a new fork goes on with the test
that it ended in: on a busy machine many quick tests take long together.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.mutants.one_line import Mutant

    #: Runs tests in the fork until one fails, and says before each one its index; whether all passed.
    Run = Callable[["Trial | None", Sequence[str], Callable[[int], None]], bool]


class Trial(NamedTuple):
    """A mutant, and the tests that reach it, quick first."""

    mutant: Mutant
    tests: Sequence[str]

    @property
    def key(self) -> str:
        return f"{self.mutant.path}:{self.mutant.line} {self.mutant.start} {self.mutant.text}"


class _Child:
    """A fork that runs tests, and says in shared memory which one it is at."""

    def __init__(
        self, run: Callable[[Callable[[int], None]], bool], timeout_s: float, clock: Callable[[], float]
    ) -> None:
        self._at = mmap.mmap(-1, mmap.PAGESIZE)
        self._clock = clock
        self._deadline_s = clock() + timeout_s
        #: Whether it was killed because its time was over.
        self.is_late = False
        self._pid = os.fork()
        if self._pid == 0:
            passed = False
            try:
                os.setsid()
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, 1)
                os.dup2(nothing, 2)
                passed = run(self._note)
            finally:
                os._exit(0 if passed else 1)

    def _note(self, index: int) -> None:
        self._at[:4] = index.to_bytes(4, "big")

    @property
    def at(self) -> int:
        return int.from_bytes(self._at[:4], "big")

    def ended(self) -> bool | None:
        """Whether all its tests passed; None while it runs. One that takes too long has not passed."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid and self._clock() < self._deadline_s:
            return None
        self.kill(is_reaped=bool(pid))
        self.is_late = not pid
        return bool(pid) and os.waitstatus_to_exitcode(status) == 0

    def kill(self, *, is_reaped: bool = False) -> None:
        """Ends it, and all that it has started."""
        if not is_reaped:
            os.kill(self._pid, signal.SIGKILL)  # it may not lead a group yet
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        if not is_reaped:
            os.waitpid(self._pid, 0)


class _Running(NamedTuple):
    trial: Trial
    tests: Sequence[str]
    child: _Child
    is_planted: bool


def try_trials(
    trials: Iterable[Trial],
    run: Run,
    say: Callable[[Trial, str], None],
    *,
    processes: int,
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Tries all; `say` gets each trial, and `found` or `alive`."""
    waiting = list(trials)
    running: list[_Running] = []
    sound: set[str] = set()
    unsound: set[str] = set()

    def start(trial: Trial, tests: Sequence[str], *, is_planted: bool) -> None:
        planted = trial if is_planted else None
        child = _Child(lambda note: run(planted, tests, note), timeout_s, clock)
        running.append(_Running(trial, tests, child, is_planted))

    try:
        while waiting or running:
            while waiting and len(running) < processes:
                trial = waiting.pop(0)
                start(trial, [test for test in trial.tests if test not in unsound], is_planted=True)
            for entry in list(running):
                trial, tests, child, is_planted = entry
                passed = child.ended()
                if passed is None:
                    continue
                running.remove(entry)
                failing = tests[child.at] if tests else ""
                if child.is_late and child.at:
                    start(trial, tests[child.at :], is_planted=is_planted)
                elif is_planted and not passed and tests and failing not in sound:
                    start(trial, [failing], is_planted=False)
                elif is_planted:
                    say(trial, "alive" if passed else "found")
                elif passed:
                    sound.add(failing)
                    say(trial, "found")
                else:
                    unsound.add(failing)
                    waiting.insert(0, trial)
            time.sleep(0.005)
    finally:
        for entry in running:
            entry.child.kill()
