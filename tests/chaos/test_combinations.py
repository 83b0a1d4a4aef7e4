"""Combinations are drawn by their seed."""

from __future__ import annotations

from tests.chaos.combinations import combinations
from tests.chaos.faults import all_faults


def test_a_seed_draws_the_same_again_and_another_seed_something_else() -> None:
    names = [fault.name for fault in combinations(5, 7)]
    assert names == [fault.name for fault in combinations(5, 7)]
    assert names != [fault.name for fault in combinations(5, 8)]
    assert len(set(names)) == 5


def test_every_fault_has_a_name_of_its_own_and_each_group_one_that_is_quick_to_play() -> None:
    faults = all_faults(7)
    assert len({fault.name for fault in faults}) == len(faults) >= 40
    assert sum(fault.short for fault in faults) >= 3
