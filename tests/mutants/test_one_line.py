"""Mutants are made where behaviour hangs on the text, and nowhere else."""

from __future__ import annotations

from tests.mutants.one_line import mutants


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
