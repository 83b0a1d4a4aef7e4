"""Each behaviour of first rank has its test, each case of Java's its twin or a reason; the table is fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.behaviours.__main__ import TABLE_PATH, TESTS_FOLDER
from tests.behaviours.catalogue import Behaviour, JavaTestClass, behaviours, java_test_classes
from tests.behaviours.scan import MarkerError, Shown, scan
from tests.behaviours.table import complaints, table

if TYPE_CHECKING:
    from pathlib import Path

_RULES = {"ABC-01": Behaviour("ABC-01", 1, "first."), "ABC-02": Behaviour("ABC-02", 2, "second.")}
_JAVA = {"SomeTest": JavaTestClass("SomeTest", ("Works",), ("MayWork",), ("Transactions",))}


def _complaints(shown: Shown) -> list[str]:
    return list(complaints(_RULES, _JAVA, shown))


def test_nothing_that_must_be_shown_is_missing_and_the_table_is_what_make_behaviours_would_write() -> None:
    catalogue = behaviours(), java_test_classes(), scan(TESTS_FOLDER)
    assert list(complaints(*catalogue)) == []
    assert TABLE_PATH.read_text() == table(*catalogue)


_MARKED = {"ABC-01": ["a"], "ABC-02": ["a"], "SomeTest.Works": ["a"]}
#: The complaints about the tests' markers and LEFT_OUT, and the evidence itself.
COMPLAINTS = {
    "of first rank, without a test, whatever the reason": (
        Shown({"ABC-02": ["a"], "SomeTest.Works": ["a"]}, {"ABC-01": "too hard"}),
        ["ABC-01 is of first rank and has no test"],
    ),
    "of second rank, without a test or a reason": (
        Shown({"ABC-01": ["a"], "SomeTest.Works": ["a"]}),
        ["ABC-02 has no test, and no reason why"],
    ),
    "of second rank, with a reason": (
        Shown({"ABC-01": ["a"], "SomeTest.Works": ["a"]}, {"ABC-02": "nobody asks"}),
        [],
    ),
    "an applicable case of Java's without a twin or a reason": (
        Shown({"ABC-01": ["a"], "ABC-02": ["a"]}),
        ["SomeTest.Works has no twin, and no reason why"],
    ),
    "an id that no catalogue has": (
        Shown({**_MARKED, "ABC-03": ["t.py::test_x"]}),
        ["t.py::test_x is marked with ABC-03, which no catalogue has"],
    ),
    "shown and left out": (
        Shown(_MARKED, {"ABC-02": "nobody asks"}),
        ["ABC-02 is left out, and shown by a"],
    ),
}


def test_what_is_missing_and_what_contradicts_itself_is_a_complaint() -> None:
    assert {case: _complaints(shown) for case, (shown, _) in COMPLAINTS.items()} == {
        case: expected for case, (_, expected) in COMPLAINTS.items()
    }


def test_markers_are_read_from_functions_methods_and_single_cases(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        'pytestmark = pytest.mark.behaviour("ABC-04")\n'
        'LEFT_OUT: dict[str, str] = {"ABC-02": "why"}\n'
        '@pytest.mark.behaviour("ABC-01", "ABC-03")\n'
        "def test_one() -> None: ...\n"
        "class TestTwo:\n"
        '    @pytest.mark.java("SomeTest.Works")\n'
        "    async def test_two(self) -> None: ...\n"
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.java("SomeTest.MayWork"))])\n'
        "def test_three(x: int) -> None: ...\n"
    )
    assert scan(tmp_path) == Shown(
        {
            "ABC-01": ["test_a.py::test_one"],
            "ABC-03": ["test_a.py::test_one"],
            "ABC-04": ["test_a.py::test_one", "test_a.py::test_three", "test_a.py::test_two"],
            "SomeTest.MayWork": ["test_a.py::test_three"],
            "SomeTest.Works": ["test_a.py::test_two"],
        },
        {"ABC-02": "why"},
    )


def test_a_marker_that_needs_running_code_is_refused_with_its_place(tmp_path: Path) -> None:
    for line in ("@pytest.mark.behaviour(*IDS)\ndef test_it() -> None: ...", "LEFT_OUT = dict(a=REASON)"):
        (tmp_path / "test_a.py").write_text(f"{line}\n")
        with pytest.raises(MarkerError, match=r"test_a\.py:1: .* literal"):
            scan(tmp_path)
