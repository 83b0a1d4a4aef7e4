"""The tables don't depend on how events arrive: shuffled, doubled, split and late, they give the same tables.

Each fleet is there twice (conftest.py: many_fleets): unchanged, and mangled under another number. The mangled
ones came in four batches, some of which repeat events of others. Each batch became silver rows of its own,
which were then merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.gold import GOLD
from pipeline.silver import SILVER
from tests.pipeline.fleets import number_of, without_number
from tests.pipeline.whole_pipeline import in_order

if TYPE_CHECKING:
    from tests.pipeline.whole_pipeline import ManyFleets, Row


@pytest.mark.parametrize("table", [*(table.name for table in SILVER), *GOLD])
def test_a_table_is_the_same_however_its_events_arrived(table: str, many_fleets: ManyFleets) -> None:
    unchanged: dict[int, list[Row]] = {}
    mangled: dict[int, list[Row]] = {}
    for row in many_fleets.tables.rows(table):
        number = number_of(row)
        if number is not None:
            kind, fleet = divmod(number, many_fleets.mangled_from)
            (mangled if kind else unchanged).setdefault(fleet, []).append(without_number(number, row))
    for fleet, rows in unchanged.items():
        assert in_order(mangled.get(fleet, [])) == in_order(rows), f"fleet {fleet}: {many_fleets.of[fleet]}"
    assert mangled.keys() == unchanged.keys()
