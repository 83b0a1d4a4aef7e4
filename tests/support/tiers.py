"""Which tests are too long for `make test`: the table tests/tiers.toml, as the mark `long`.

`make test` runs what does not bear the mark, `make test-long` what does, a plain `pytest` both. A row of the
table names a file:

    file     its path from the root of the tree
    tests    the functions that are long; all of the file where it is missing
    but      where `tests` is missing: the functions that are not
    keep     one case in so many stays in `make test`, always at least one of each function; 0 is none
    why      what makes it long
    instead  a quick test elsewhere that finds most of the same faults: required if all of a file is long
"""

from __future__ import annotations

import tomllib
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Names the profile of hypothesis that tests/conftest.py loads, where it is set.
HYPOTHESIS_VARIABLE: Final = "TEST_HYPOTHESIS_PROFILE"
TABLE: Final = Path(__file__).parents[1] / "tiers.toml"
ROOT: Final = TABLE.parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table."""

    file: str
    why: str
    tests: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    keep: int = 0
    instead: tuple[str, ...] = ()

    def is_of(self, file: str, function: str) -> bool:
        """Whether the row is about this test function."""
        if file != self.file:
            return False
        return function in self.tests if self.tests else function not in self.but


def rows(table: Path = TABLE) -> tuple[Row, ...]:
    """The table. Raises TypeError on a key that it does not have."""
    entries: list[dict[str, Any]] = tomllib.loads(table.read_text(encoding="utf-8"))["long"]
    lists = ("tests", "but", "instead")
    return tuple(Row(**entry | {name: tuple(entry.get(name, ())) for name in lists}) for entry in entries)


def long_tests(some: Iterable[Row], tests: Iterable[str]) -> set[str]:
    """Those of the tests, by their ids, that are long.

    Which cases are kept depends on their names alone, not on their order or on chance.
    """
    of_file: defaultdict[str, list[Row]] = defaultdict(list)
    for row in some:
        of_file[row.file].append(row)
    cases: defaultdict[tuple[Row, str], list[str]] = defaultdict(list)
    for test in tests:
        file, _, name = test.partition("::")
        function = name.partition("[")[0]
        for row in of_file.get(file, ()):
            if row.is_of(file, function):
                cases[row, function].append(test)
    return {test for (row, _), all_of_it in cases.items() for test in _without_kept(row.keep, all_of_it)}


def whole_files(some: Iterable[Row]) -> frozenset[str]:
    """The files whose tests are all long."""
    return frozenset(row.file for row in some if not (row.tests or row.but or row.keep))


def _without_kept(keep: int, cases: list[str]) -> list[str]:
    if keep == 0:
        return cases
    ordered = sorted(cases, key=lambda test: (zlib.crc32(test.encode()), test))
    return ordered[-(-len(ordered) // keep) :]
