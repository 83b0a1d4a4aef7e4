"""Each mutant applies to this tree, results.json is of these mutants, and `make test` holds the floor.

The floor are the mutants that name the test which must find them. They are played here, each in a process of
its own; those that need a slower suite are found by `make mutants-behaviour` only.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.mutants.behaviour.mutant import (
    ROOT,
    Change,
    Mutant,
    MutantError,
    copied_tree,
    mutated,
    planted,
    read_mutants,
)
from tests.mutants.behaviour.suites import room_tests, rooms_of, run_quick_test
from tests.mutants.behaviour.table import Result, read_results, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FLOOR = [mutant for mutant in read_mutants() if mutant.floor is not None]
_LEAST_SINGLE = 28


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with copied_tree() as copied:
        yield copied


def test_every_mutant_applies_to_the_present_tree_and_compiles() -> None:
    @cache
    def meaning(text: str) -> str:
        return ast.dump(ast.parse(text))

    unfit: list[str] = []
    for mutant in read_mutants():
        try:
            texts = mutated(mutant, ROOT)
            for file, text in texts.items():
                compile(text, file, "exec")
                if meaning(text) == meaning((ROOT / file).read_text(encoding="utf-8")):
                    unfit.append(f"{mutant.name}: {file} means the same; change what it does")
        except (MutantError, SyntaxError) as error:
            unfit.append(f"{mutant.name}: {error}")
    assert not unfit


def test_every_room_has_mutants_and_some_are_planted_together() -> None:
    mutants = read_mutants()
    rooms = Counter(room for mutant in mutants if not mutant.of for room in rooms_of(mutant))
    assert {"producer", "client", "metadata", "network", "record", "service", "pipeline"} <= rooms.keys()
    assert rooms.total() >= _LEAST_SINGLE
    assert {len(mutant.of) for mutant in mutants} >= {2, 5}
    assert len({mutant.name for mutant in mutants}) == len(mutants)


def test_the_kept_results_are_of_these_mutants_all_found_and_most_without_brokers() -> None:
    results = read_results()
    assert results.keys() == {mutant.name for mutant in read_mutants()}, "run make mutants-behaviour"
    assert [name for name, result in results.items() if result.suite is None] == []
    quick = [name for name, result in results.items() if result.suite in ("near", "room", "unit")]
    assert len(quick) >= 0.9 * len(results)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", _FLOOR, ids=[mutant.name for mutant in _FLOOR])
def test_the_quick_tests_alone_find_the_floor(mutant: Mutant, tree: Path) -> None:
    assert mutant.floor is not None
    with planted(mutant, tree):
        run = run_quick_test(mutant.floor, tree)
    assert run.test == mutant.floor, f"{mutant.fault} Not found: {run}"


# -- the runner itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Change("service/none.py", "a", "b"), "there is no service/none.py"),
        (
            Change("service/admission/drain.py", "no such text", ""),
            "occurs 0 times in service/admission/drain.py",
        ),
        (
            Change("service/admission/drain.py", "self", "it"),
            "times in service/admission/drain.py; rewrite the change",
        ),
    ],
)
def test_a_change_that_does_not_apply_is_refused_by_its_name(change: Change, said: str) -> None:
    with pytest.raises(MutantError, match=f"^some: .*{said}"):
        mutated(Mutant("some", "", [change]), ROOT)


def test_a_planted_mutant_is_in_the_copy_only_and_gone_at_the_end(tree: Path) -> None:
    path, original = (
        tree / "service/admission/drain.py",
        (ROOT / "service/admission/drain.py").read_text(encoding="utf-8"),
    )
    with planted(
        Mutant("some", "", [Change("service/admission/drain.py", "self.begun = True", "pass")]), tree
    ):
        assert path.read_text(encoding="utf-8") == original.replace("self.begun = True", "pass")
        assert (ROOT / "service/admission/drain.py").read_text(encoding="utf-8") == original
    assert path.read_text(encoding="utf-8") == original


def test_tests_named_after_what_is_changed_run_first() -> None:
    near, rest = room_tests(Mutant("some", "", [Change("service/spool/writer.py", "", "")]), ROOT)
    assert near[0] == "tests/service/spool/test_spool_writer.py"
    assert all(file.startswith("tests/service/spool/test_spool_") for file in near)
    assert "tests/service/produce/test_produce.py" in rest
    assert not set(near) & set(rest)


def test_the_table_names_what_was_not_found_and_what_only_a_timeout_found() -> None:
    mutants = [Mutant(name, "", []) for name in ("one", "two", "three")]
    results = {
        "one": Result("0", "room", "tests/a.py::test_a", False, 2.0, 3.0),
        "two": Result("0", "kafka", "tests/b.py::test_b", True, 50.0, 70.0),
        "three": Result("0", None, "", False, 90.0, 100.0),
    }
    lines = list(table(mutants, results))
    assert "NOT FOUND" in lines[3]
    assert "NOT FOUND" not in lines[1] + lines[2]
    assert lines[2].endswith("tests/b.py::test_b (timeout)")
    assert lines[-1] == "2 of 3 found, 1 of them without brokers, 1 by a timeout; 142 CPU s"
