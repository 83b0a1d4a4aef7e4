"""Tries mutants in forks of one pytest session, so that tests are collected and the product is imported once.

A fork replaces the code objects of the functions that a mutant changes. Code that runs at import (constants,
decorators, class bodies) can't be replaced in this way: `replaced_code` returns None for it.
"""

from __future__ import annotations

import gc
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.one_line_trials import Trial, try_trials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.mutants.one_line import Mutant

#: CO_OPTIMIZED: the code of a function, and not of a module or a class.
_OF_A_FUNCTION: Final = 1

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
        # A comprehension runs in place.
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


class _Place(NamedTuple):
    """The identity of a function, independent of its compilation."""

    file: str
    qualname: str
    line: int


def _place(code: CodeType) -> _Place:
    return _Place(code.co_filename, code.co_qualname, code.co_firstlineno)


class ForkingSession:
    """A plugin of pytest that tries mutants in the place of running tests; `say` gets each result."""

    def __init__(
        self,
        trials: Sequence[tuple[Trial, Replacements]],
        say: Callable[[Trial, str], None],
        *,
        processes: int,
        timeout_s: float,
    ) -> None:
        self._replacements = {trial.key: replacements for trial, replacements in trials}
        self._trials = [trial for trial, _ in trials]
        self._say = say
        self._processes = processes
        self._timeout_s = timeout_s

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        functions: dict[_Place, list[FunctionType]] = {}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                functions.setdefault(_place(thing.__code__), []).append(thing)
        gc.freeze()

        def run(planted: Trial | None, tests: Sequence[str], note: Callable[[int], None]) -> bool:
            for before, after in self._replacements[planted.key] if planted else ():
                for function in functions.get(_place(before), ()):
                    function.__code__ = after
            return _all_pass(tests, items, note)

        collected = [
            Trial(mutant, [test for test in tests if test in items]) for mutant, tests in self._trials
        ]
        try_trials(collected, run, self._say, processes=self._processes, timeout_s=self._timeout_s)
        return True


def _all_pass(tests: Sequence[str], items: Mapping[str, pytest.Item], note: Callable[[int], None]) -> bool:
    for index, test in enumerate(tests):
        note(index)
        following = items[tests[index + 1]] if index + 1 < len(tests) else None
        reports = runtestprotocol(items[test], log=False, nextitem=following)
        if any(report.failed for report in reports):
            return False
    return True
