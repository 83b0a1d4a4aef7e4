"""Two tiers: tests that `make test` leaves to `make test-long` have a reason, and a quick replacement."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

from tests.support.tiers import ROOT, Row, long_tests, rows, whole_files

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "tests/metadata/test_few.py"
CASES = [f"{FILE}::test_many[{number}]" for number in range(40)]
OTHER = f"{FILE}::test_other"


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def named() -> Iterator[tuple[Row, str]]:
    for row in rows():
        for function in (*row.tests, *row.but):
            yield row, function


def test_a_row_of_the_table_names_tests_that_are_there() -> None:
    assert [row.file for row in rows() if not functions(row.file)] == []
    assert [(row.file, name) for row, name in named() if name not in functions(row.file)] == []


def test_a_row_of_the_table_says_why() -> None:
    assert [row.file for row in rows() if len(row.why) < 10] == []


def test_no_test_is_in_two_rows() -> None:
    twice = [
        (file, function)
        for file in {row.file for row in rows()}
        for function in functions(file)
        if sum(row.is_of(file, function) for row in rows()) > 1
    ]
    assert twice == []


def test_a_file_that_is_long_as_a_whole_names_a_quick_test_in_its_place() -> None:
    table = rows()
    for row in table:
        is_whole = all(any(r.is_of(row.file, f) and not r.keep for r in table) for f in functions(row.file))
        assert not is_whole or row.instead, f"{row.file}: instead = [...] is missing"


def test_the_quick_test_in_place_of_a_long_file_is_there_and_is_not_long() -> None:
    table = rows()
    for row in table:
        for test in row.instead:
            file, _, function = test.partition("::")
            assert function in functions(file), test
            assert not any(other.is_of(file, function) and not other.keep for other in table), test


def test_all_of_a_file_is_long_or_the_functions_that_are_named() -> None:
    assert long_tests([Row(file=FILE, why="slow")], [*CASES, OTHER]) == {*CASES, OTHER}
    assert long_tests([Row(file=FILE, tests=("test_other",), why="slow")], [*CASES, OTHER]) == {OTHER}
    assert long_tests([Row(file=FILE, but=("test_many",), why="slow")], [*CASES, OTHER]) == {OTHER}
    assert long_tests([Row(file="tests/test_few.py", why="slow")], [*CASES, OTHER]) == set()


def test_one_case_in_so_many_stays_whatever_the_order_and_never_none() -> None:
    row = Row(file=FILE, keep=8, why="slow")
    long = long_tests([row], [*CASES, OTHER])
    assert len(CASES) - len(long) == 5
    assert OTHER not in long
    assert long_tests([row], [OTHER, *reversed(CASES)]) == long


def test_a_file_is_not_collected_for_the_quick_tests_only_if_it_has_none() -> None:
    table = [
        Row(file=FILE, why="slow"),
        Row(file="tests/test_kept.py", keep=8, why="slow"),
        Row(file="tests/test_some.py", tests=("test_other",), why="slow"),
        Row(file="tests/test_others.py", but=("test_other",), why="slow"),
    ]
    assert whole_files(table) == {FILE}
