"""`cases`: all cases of the golden files of a test's mark, one after the other.

For quick checks on many hundred cases, each of which would cost more as a test of its own. If a test fails,
the fixture prints the name of the case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import golden_cases

if TYPE_CHECKING:
    from collections.abc import Iterator


class Cases:
    """Iterates over cases, and remembers at which one it is."""

    def __init__(self, cases: list[tuple[str, dict[str, Any]]]) -> None:
        assert cases
        self._cases = cases
        self.current = ""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for name, case in self._cases:
            self.current = name
            yield case


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Iterator[Cases]:
    """The cases of the files that the test's mark names."""
    (pattern,) = request.node.get_closest_marker("golden").args
    found = Cases(golden_cases(request.config, pattern))
    yield found
    print(f"The last golden case: {found.current}")
