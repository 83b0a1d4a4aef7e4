"""Mutants are made where behaviour depends on the text, and nowhere else."""

from __future__ import annotations

import os
import select
import signal
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coverage

from tests.mutants.one_line import Mutant, mutants
from tests.mutants.one_line_run import EQUIVALENT_PATH, ROOMS, Equivalents, reaching_tests
from tests.mutants.one_line_session import replaced_code
from tests.mutants.one_line_trials import Trial, try_trials

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ROOT: Final = Path(__file__).parents[2]


def _becoming(source: str) -> set[str]:
    return {mutant.becomes for mutant in mutants("a.py", source.encode())}


def test_a_comparison_is_moved_by_one_and_turned_round() -> None:
    assert _becoming("b = a < c") == {"b = a <= c", "b = a >= c"}


def test_the_text_around_a_mutant_stays_as_it_is() -> None:
    source = "# é\nx = min(a,  b)  # kept\n".encode()
    (mutant,) = mutants("a.py", source)
    assert mutant.of(source) == "# é\nx = max(a,  b)  # kept\n".encode()
    assert mutant.line == 2


def test_docstrings_annotations_and_logged_texts_are_left_alone() -> None:
    assert not _becoming('def f(a: "int"):\n    "What it does."\n    logger.info("text", a)\n')


def test_code_without_effect_on_behaviour_is_left_alone() -> None:
    assert _becoming("x = _I.unpack_from(b)[0]") == set()
    assert _becoming("@dataclass(frozen=True)\nclass A: pass") == set()
    assert _becoming("def f():\n    return False") == {"return True"}
    assert _becoming('A = Literal["a", "b"]\nT = TypeVar("T")') == set()
    assert _becoming("class A(Protocol):\n    def f(self, a: int = 1) -> int: ...") == set()
    assert _becoming('x = cast("int", a < b)') == {'x = cast("int", a <= b)', 'x = cast("int", a >= b)'}


def test_a_count_is_moved_by_one_and_a_limit_is_halved_and_doubled() -> None:
    assert _becoming("x = 3") == {"x = 4", "x = 2"}
    assert _becoming("x = 1_000") == {"x = 2000", "x = 500"}


def test_a_handler_becomes_one_that_catches_nothing() -> None:
    source = "try:\n    a = b\nexcept (KeyError, OSError):\n    c = d\n"
    assert _becoming(source) == {"except ():"}


def test_the_code_of_functions_is_replaced_and_what_runs_at_import_is_not() -> None:
    source = b"A = 1\ndef f(a, b=2):\n    def g():\n        return a < 3\n    return g\n"
    functions: dict[str, tuple[str, ...]] = {}
    for mutant in mutants("a.py", source):
        replaced = replaced_code("a.py", source, mutant) or []
        functions[mutant.becomes] = tuple(before.co_name for before, _ in replaced)
    at_import = ("A = 2", "A = 0", "def f(a, b=3):", "def f(a, b=1):")
    in_f = ("return a <= 3", "return a >= 3", "return a < 4", "return a < 2", "return None")
    assert functions == dict.fromkeys(at_import, ()) | dict.fromkeys(in_f, ("f",))


_A, _B, _C, _D = (f"tests/network/__init__.py::{name}" for name in "abcd")
_TABLES: Final = "tests/network/test_large_answers.py::test_a"


_GIVEN: Final = {
    "none reaches it, but files that import it": ("network/selectable", 27, {_A, _B, _C}),
    "a test file imports what it says": ("network/kafka_channel", 45, {_B, _TABLES}),
    "a test reaches it": ("network/kafka_channel", 30, {_B}),
    "a function is called once": ("metadata/topic_layout", 131, {_C, _D}),
}


def test_a_mutant_is_given_the_tests_that_may_see_it() -> None:
    lines = coverage.CoverageData(no_disk=True)
    reached = {
        "network/selector": (_A, 30),
        "network/kafka_channel": (_B, 30),
        "network/channel_builder": (_C, 30),
        "metadata/topic_layout": (_C, 131),
        "network/selectable": ("", 27),
    }
    for file, (context, at) in reached.items():
        lines.set_context(context)
        lines.add_lines({f"client_core/{file}.py": [at]})
    lines.set_context(_D)
    lines.add_lines({"client_core/metadata/topic_layout.py": [150]})
    durations_s = dict.fromkeys([_A, _B, _C, _D, _TABLES], 1.0)
    assert {
        case: set(
            reaching_tests(Mutant(f"client_core/{path}.py", line, 0, 0, "", "", ""), lines, durations_s)
        )
        for case, (path, line, _) in _GIVEN.items()
    } == {case: expected for case, (_, _, expected) in _GIVEN.items()}
    lines.close(force=True)  # its database; Python 3.13 warns about an open one


def test_of_many_tests_those_in_the_folder_of_the_same_name_are_taken() -> None:
    path, beside = "client_core/producer/settings/config.py", "tests/producer/settings/__init__.py::a"
    others = [f"tests/network/__init__.py::{number}" for number in range(600)]
    lines = coverage.CoverageData(no_disk=True)
    for test in (*others, beside):
        lines.set_context(test)
        lines.add_lines({path: [30] if test == beside else [30, 31]})
    mutant = Mutant(path, 30, 0, 0, "", "", "")
    assert beside in reaching_tests(mutant, lines, dict.fromkeys((*others, beside), 1.0))
    lines.close(force=True)


def test_what_is_listed_as_equivalent_is_a_mutant_of_the_present_tree() -> None:
    listed = tomllib.loads(EQUIVALENT_PATH.read_text(encoding="utf-8"))["equivalent"]
    of_tree = [
        mutant
        for path in {one["path"] for one in listed}
        for mutant in mutants(path, (_ROOT / path).read_bytes(), {one["was"] for one in listed})
    ]
    for one in listed:
        assert any(mutant in Equivalents([one]) for mutant in of_tree), one
        assert one["why"]


def test_a_threshold_is_equivalent_with_any_number_and_nothing_else_of_its_line() -> None:
    listed = Equivalents([{"path": "a.py", "was": "if size > 2 * _PART:"}])
    became = ("if size > 3 * _PART:", "if size >= 2 * _PART:", "if size > 2 // _PART:", "if True:")
    assert [Mutant("a.py", 1, 0, 0, "", "if size > 2 * _PART:", text) in listed for text in became] == [
        True,
        *[False] * 3,
    ]
    assert Mutant("b.py", 1, 0, 0, "", "if size > 2 * _PART:", became[0]) not in listed


def test_each_room_has_files_and_tests() -> None:
    for name, room in ROOMS.items():
        assert all(any(_ROOT.glob(source)) for source in room.sources), name
        for tests in (room.tests, *room.others):
            assert any((_ROOT / tests).rglob("test_*.py")) or (_ROOT / tests).is_file(), tests


def test_tests_that_take_long_together_do_not_find_a_fault() -> None:
    """The first fork never ends, the one that goes on with its second test does."""
    trial = Trial(Mutant("a.py", 1, 0, 0, "", "", ""), ["quick", "next"])
    results: list[str] = []
    reading, writing = os.pipe()

    def run(_planted: Trial | None, tests: Sequence[str], note: Callable[[int], None]) -> bool:
        if len(tests) > 1:
            note(1)
            os.write(writing, b".")
            signal.pause()
        return True

    def clock() -> float:
        """The time is over as soon as the first fork is at its second test, and not a second time."""
        return float(bool(select.select([reading], [], [], 0)[0]))

    try_trials(
        [trial], run, lambda _, result: results.append(result), processes=1, timeout_s=0.5, clock=clock
    )
    os.close(reading)
    os.close(writing)
    assert results == ["alive"]


def test_a_fork_that_leads_no_group_yet_is_ended() -> None:
    """Its time is over before it ran at all."""
    trial = Trial(Mutant("a.py", 1, 0, 0, "", "", ""), ["quick"])
    results: list[str] = []

    def run(planted: Trial | None, _tests: Sequence[str], _note: Callable[[int], None]) -> bool:
        if planted:
            signal.pause()
        return True

    seconds = iter((0.0, 1.0))
    try_trials(
        [trial],
        run,
        lambda _, result: results.append(result),
        processes=1,
        timeout_s=0.5,
        clock=lambda: next(seconds, 1.0),
    )
    assert results == ["found"]
