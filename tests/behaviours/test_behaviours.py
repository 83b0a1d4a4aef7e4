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


def test_nothing_that_must_be_shown_is_missing() -> None:
    assert list(complaints(behaviours(), java_test_classes(), scan(TESTS_FOLDER))) == []


def test_the_table_is_what_make_behaviours_would_write() -> None:
    assert TABLE_PATH.read_text() == table(behaviours(), java_test_classes(), scan(TESTS_FOLDER))


def test_a_behaviour_of_first_rank_without_a_test_is_a_complaint_whatever_the_reason() -> None:
    shown = Shown({"ABC-02": ["a"], "SomeTest.Works": ["a"]}, {"ABC-01": "too hard"})
    assert _complaints(shown) == ["ABC-01 is of first rank and has no test"]


def test_a_behaviour_of_second_rank_needs_a_test_or_a_reason() -> None:
    shown = Shown({"ABC-01": ["a"], "SomeTest.Works": ["a"]})
    assert _complaints(shown) == ["ABC-02 has no test, and no reason why"]
    shown.left_out["ABC-02"] = "nobody asks"
    assert _complaints(shown) == []


def test_an_applicable_case_of_java_needs_a_twin_or_a_reason() -> None:
    shown = Shown({"ABC-01": ["a"], "ABC-02": ["a"]})
    assert _complaints(shown) == ["SomeTest.Works has no twin, and no reason why"]


def test_an_id_that_no_catalogue_has_is_a_complaint() -> None:
    shown = Shown({"ABC-01": ["a"], "ABC-02": ["a"], "SomeTest.Works": ["a"], "ABC-03": ["t.py::test_x"]})
    assert _complaints(shown) == ["t.py::test_x is marked with ABC-03, which no catalogue has"]


def test_what_is_shown_can_not_be_left_out_as_well() -> None:
    shown = Shown({"ABC-01": ["a"], "ABC-02": ["a"], "SomeTest.Works": ["a"]}, {"ABC-02": "nobody asks"})
    assert _complaints(shown) == ["ABC-02 is left out, and shown by a"]


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


@pytest.mark.parametrize(
    "line", ["@pytest.mark.behaviour(*IDS)\ndef test_it() -> None: ...", "LEFT_OUT = dict(a=REASON)"]
)
def test_what_can_not_be_read_without_running_it_is_refused_with_its_place(line: str, tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(f"{line}\n")
    with pytest.raises(MarkerError, match=r"test_a\.py:1: .* literal"):
        scan(tmp_path)
