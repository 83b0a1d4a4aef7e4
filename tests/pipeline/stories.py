"""Tests of tables as stories: the events of a fleet, and the rows that the tables have of it.

    story = Stories()

    @story
    def a_leader_is_valid_until_the_next_one() -> Story:
        boot = Boot("a")
        boot.sees(0, epoch=1)
        boot.sees(9, epoch=2)
        rows = yield boot.events
        assert_table(rows(GOLD_LEADER_HISTORY), "leader_epoch valid_to", (1, at(9)), (2, None))

    @story.test
    def test_leader_history(story: Tale, reported: Outcome, tables: Tables) -> None:
        reported.check(story, tables)

Each story has a cluster of its own, so that the events of all modules go through one run: a Spark job takes
half a second, and all stories need no more jobs than one. They share one clock: a story may rely on what
happens after it only if it ends at LATEST_S, after all others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest
from pyspark.sql import Row as SparkRow
from pyspark.testing import assertDataFrameEqual

from tests.pipeline.fleets import Event, number_of, without_number
from tests.pipeline.whole_pipeline import Row

if TYPE_CHECKING:
    from tests.pipeline.whole_pipeline import Tables

Rows: TypeAlias = Callable[[str], list[Row]]
Story: TypeAlias = Generator[list[Event], Rows, None]
Tale: TypeAlias = Callable[[], Story]

LATEST_S: Final = 30 * 24 * 3_600

_ALL: Final[list[Tale]] = []
#: The number of the first story; below it are fleets that nobody made up.
_FIRST: Final = 500


class Stories:
    """The stories of a module."""

    def __init__(self) -> None:
        self._own: list[Tale] = []

    def __call__(self, tale: Tale) -> Tale:
        self._own.append(tale)
        _ALL.append(tale)
        return tale

    def test(self, function: Callable[..., None]) -> Callable[..., None]:
        """Makes a test of a function that takes each `story` in turn."""
        ids = [tale.__name__ for tale in self._own]
        marked: Callable[..., None] = pytest.mark.parametrize("story", self._own, ids=ids)(function)
        return marked


class Outcome:
    """All stories, begun; `events` are those that each story yielded, by a number of its own."""

    def __init__(self) -> None:
        self._begun = {tale: tale() for tale in _ALL}
        self._numbers = {tale: _FIRST + n for n, tale in enumerate(_ALL)}
        self.events = {self._numbers[tale]: next(story) for tale, story in self._begun.items()}
        self._rows: dict[str, dict[int | None, list[Row]]] = {}

    def check(self, tale: Tale, tables: Tables) -> None:
        """Resumes the story with its own rows."""
        number = self._numbers[tale]

        def rows(table: str) -> list[Row]:
            if table not in self._rows:
                by_number = self._rows[table] = {}
                for row in tables.rows(table):
                    by_number.setdefault(number_of(row), []).append(row)
            return [without_number(number, row) for row in self._rows[table].get(number, [])]

        with pytest.raises(StopIteration):
            self._begun[tale].send(rows)


def assert_table(found: list[Row], columns: str, *expected: tuple[object, ...]) -> None:
    """Fails unless the columns, named with spaces between, have the expected rows, in any order.

    Shares to nine digits. Lists of rows are compared, which needs no job of Spark.
    """
    names = SparkRow(*columns.split())
    actual = [names(*(row[name] for name in columns.split())) for row in found]
    assertDataFrameEqual(actual, [names(*row) for row in expected], rtol=1e-9, atol=0)
