"""Tries mutants in forks of one pytest session, so that tests are collected and the product is imported once.

A fork replaces the code objects of the functions that a mutant changes, and runs the tests that reach the
line until one fails. What runs as a module is imported (constants, decorators, class bodies) cannot be
replaced so: `replaced_code` returns None for it.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import signal
import time
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.mutants.one_line import Mutant

#: CO_OPTIMIZED: the code of a function, and not of a module or a class.
_OF_A_FUNCTION: Final = 1
_TIMEOUT_S: Final = 120

#: The code of functions that are there, by what it becomes.
Replacements = list[tuple[CodeType, CodeType]]


def replaced_code(path: str, source: bytes, mutant: Mutant) -> Replacements | None:
    """The functions of a file whose code changes; None where code changes that runs at import."""
    pairs: Replacements = []
    before = compile(source, path, "exec", dont_inherit=True)
    after = compile(mutant.of(source), path, "exec", dont_inherit=True)
    return pairs if _replace(before, after, pairs) else None


def _replace(before: CodeType, after: CodeType, pairs: Replacements) -> bool:
    if _same(before, after):
        return True
    if before.co_flags & _OF_A_FUNCTION:
        pairs.append((before, after))
        # A comprehension runs where it stands.
        return not before.co_name.startswith("<") or before.co_name == "<lambda>"
    inner, other = _inner(before), _inner(after)
    return (
        _own(before) == _own(after)
        and len(inner) == len(other)
        and all(_replace(one, another, pairs) for one, another in zip(inner, other, strict=True))
    )


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    """What a code object does, without its line numbers and without the code in it."""
    constants = [repr(each) for each in code.co_consts if not isinstance(each, CodeType)]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_code, constants, names, code.co_flags, code.co_exceptiontable


def _same(one: CodeType, other: CodeType) -> bool:
    inner, others = _inner(one), _inner(other)
    return _own(one) == _own(other) and len(inner) == len(others) and all(map(_same, inner, others))


class Trial(NamedTuple):
    """A mutant, the code that it replaces, and the tests that reach it, quick first."""

    key: str
    replacements: Replacements
    tests: Sequence[str]


class _Place(NamedTuple):
    """By this a function is known, whatever has compiled it."""

    file: str
    qualname: str
    line: int


def _place(code: CodeType) -> _Place:
    return _Place(code.co_filename, code.co_qualname, code.co_firstlineno)


class _Child:
    """A fork that runs tests, and says in shared memory which one it is at."""

    def __init__(self, act: Callable[[Callable[[int], None]], bool]) -> None:
        self._at = mmap.mmap(-1, mmap.PAGESIZE)
        self.deadline_s = time.monotonic() + _TIMEOUT_S
        self.pid = os.fork()
        if self.pid == 0:
            passed = False
            try:
                os.setsid()
                nothing = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, 1)
                os.dup2(nothing, 2)
                passed = act(self._note)
            finally:
                os._exit(0 if passed else 1)

    def _note(self, index: int) -> None:
        self._at[:4] = index.to_bytes(4, "big")

    @property
    def at(self) -> int:
        return int.from_bytes(self._at[:4], "big")

    def ended(self) -> bool | None:
        """Whether all its tests passed; None while it runs. One that takes too long has not passed."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid and time.monotonic() < self.deadline_s:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if not pid:
            os.waitpid(self.pid, 0)
        return bool(pid) and os.waitstatus_to_exitcode(status) == 0


class ForkingSession:
    """A plugin of pytest that tries mutants in the place of running tests.

    `say` gets each trial's key and `found` or `alive`. A fault is found where a test fails with it, or takes
    too long, and passes without it; a test that fails without it is left out from then on.
    """

    def __init__(self, trials: Iterable[Trial], processes: int, say: Callable[[str, str], None]) -> None:
        self._trials = trials
        self._processes = processes
        self._say = say
        self._sound: set[str] = set()
        self._unsound: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        functions: dict[_Place, list[FunctionType]] = {}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                functions.setdefault(_place(thing.__code__), []).append(thing)
        gc.freeze()
        waiting = list(self._trials)
        running: list[tuple[Trial, list[str], _Child, bool]] = []
        while waiting or running:
            while waiting and len(running) < self._processes:
                trial = waiting.pop(0)
                tests = [test for test in trial.tests if test in items and test not in self._unsound]
                running.append((trial, tests, _Child(_planted(trial, tests, items, functions)), True))
            for entry in list(running):
                trial, tests, child, is_planted = entry
                passed = child.ended()
                if passed is None:
                    continue
                running.remove(entry)
                failing = tests[child.at] if tests else ""
                if is_planted and not passed and tests and failing not in self._sound:
                    alone = _Child(_running([failing], items))
                    running.append((trial, [failing], alone, False))
                elif is_planted:
                    self._say(trial.key, "alive" if passed else "found")
                elif passed:
                    self._sound.add(failing)
                    self._say(trial.key, "found")
                else:
                    self._unsound.add(failing)
                    waiting.insert(0, trial)
            time.sleep(0.005)
        return True


def _running(
    tests: Sequence[str], items: Mapping[str, pytest.Item]
) -> Callable[[Callable[[int], None]], bool]:
    def act(note: Callable[[int], None]) -> bool:
        for index, test in enumerate(tests):
            note(index)
            following = items[tests[index + 1]] if index + 1 < len(tests) else None
            reports = runtestprotocol(items[test], log=False, nextitem=following)
            if any(report.failed for report in reports):
                return False
        return True

    return act


def _planted(
    trial: Trial,
    tests: Sequence[str],
    items: Mapping[str, pytest.Item],
    functions: Mapping[_Place, list[FunctionType]],
) -> Callable[[Callable[[int], None]], bool]:
    def act(note: Callable[[int], None]) -> bool:
        for before, after in trial.replacements:
            for function in functions.get(_place(before), ()):
                function.__code__ = after
        return _running(tests, items)(note)

    return act
