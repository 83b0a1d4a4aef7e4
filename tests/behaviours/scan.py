"""Reads from the tests' source which behaviours and cases of Java's they show, and which they leave out.

The source is parsed, not imported: it takes a second, and a test that can't be collected here is seen as
well. Pure but for reading files.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MARKERS: Final = ("behaviour", "java")
_LEFT_OUT: Final = "LEFT_OUT"
#: A file that has none of these says nothing, and need not be parsed.
_SAID: Final = (*(f".{marker}(" for marker in _MARKERS), _LEFT_OUT)

_Test = ast.FunctionDef | ast.AsyncFunctionDef


class MarkerError(Exception):
    """A marker or a LEFT_OUT that can't be read without running the module."""


@dataclass(slots=True)
class Shown:
    """What the tests say of themselves. Tests are named `path::test_name`, relative to the tests' folder."""

    tests: dict[str, list[str]] = field(default_factory=dict)  # behaviour id or java case -> tests
    left_out: dict[str, str] = field(default_factory=dict)  # behaviour id or java case -> reason


def scan(folder: Path) -> Shown:
    """What every test module below a folder says. Raises MarkerError."""
    shown = Shown()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        if not any(word in text for word in _SAID):
            continue
        where = path.relative_to(folder).as_posix()
        module = ast.parse(text, where)
        for name, marked in _marked_tests(module, where):
            for id_ in marked:
                shown.tests.setdefault(id_, []).append(f"{where}::{name}")
        _read_left_out(module, where, shown.left_out)
    return shown


def _marked_tests(module: ast.Module, where: str) -> Iterator[tuple[str, list[str]]]:
    of_all = [id_ for statement in module.body for id_ in _ids_of_module(statement, where)]
    for test in ast.walk(module):
        if not isinstance(test, _Test) or not test.name.startswith("test"):
            continue
        ids = of_all + [id_ for decorator in test.decorator_list for id_ in _ids_of(decorator, where)]
        ids += [id_ for id_ in _ids_of_cases(test, where) if id_ not in ids]
        if ids:
            yield test.name, ids


def _ids_of_module(statement: ast.stmt, where: str) -> Iterator[str]:
    """Marks on all tests of a module: pytestmark = pytest.mark.behaviour("...")."""
    if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
        yield from _ids_of(statement.value, where)


def _ids_of_cases(test: _Test, where: str) -> Iterator[str]:
    """Marks on single cases of a parametrised test: pytest.param(..., marks=pytest.mark.java("..."))."""
    for decorator in test.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call) and node is not decorator:
                yield from _ids_of(node, where)


def _ids_of(node: ast.AST, where: str) -> Iterator[str]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    if node.func.attr not in _MARKERS or not ast.unparse(node.func).startswith("pytest.mark."):
        return
    for argument in node.args:
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            raise MarkerError(f"{where}:{node.lineno}: pytest.mark.{node.func.attr} takes literal names only")
        yield argument.value


def _read_left_out(module: ast.Module, where: str, into: dict[str, str]) -> None:
    for statement in module.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name == _LEFT_OUT:
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == _LEFT_OUT:
                pass
            case _:
                continue
        try:
            reasons = ast.literal_eval(value)
        except ValueError as error:
            raise MarkerError(f"{where}:{statement.lineno}: LEFT_OUT must be a literal dict") from error
        for id_, reason in reasons.items():
            if id_ in into:
                raise MarkerError(f"{where}:{statement.lineno}: {id_} is left out twice")
            into[id_] = reason
