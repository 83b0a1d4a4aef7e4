"""Whether something grows: a rule for numbers that were taken round after round. Pure.

    | warm-up | settled … | later … |        the rounds, in three parts
               median     median             compared

A number grows when the median of the last part lies above that of the middle part by more than its
allowance, and most pairs of rounds after the warm-up say the same (Theil and Sen's slope is upward). Medians
because a round may end in the middle of a garbage collection or of a refresh.

The allowance is the variation of a number without any leak: none for threads and metric series, some for
descriptors and bytes. A leak of one object a request is found if a part of the rounds makes more requests
than the allowance; `tests/soak/test_growth.py` checks that.
"""

from __future__ import annotations

from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Fewer rounds than this have no parts worth a median.
FEWEST_ROUNDS: Final = 6


class Allowance(NamedTuple):
    """How much more a number may be: so much, or such a part of what it was, whichever is more."""

    absolute: float
    part: float = 0.0

    def of(self, level: float) -> float:
        return max(self.absolute, level * self.part)


class DeliveryOutcome(NamedTuple):
    """The result for one number: its medians in the middle and at the end, and the rule's answer."""

    name: str
    settled: float
    later: float
    per_round: float
    allowed: float
    grows: bool


def judge(name: str, values: Sequence[float], allowance: Allowance) -> DeliveryOutcome:
    """Judges the numbers of one measure, oldest first. ValueError for too few rounds."""
    if len(values) < FEWEST_ROUNDS:
        raise ValueError(f"{name}: {len(values)} rounds are too few to judge, {FEWEST_ROUNDS} are needed")
    third = len(values) // 3
    after_warm_up = values[third:]
    settled, later = median(after_warm_up[:third]), median(values[-third:])
    allowed = allowance.of(settled)
    per_round = slope(after_warm_up)
    grows = later - settled > allowed and per_round > 0
    return DeliveryOutcome(name, settled, later, per_round, allowed, grows)


def slope(values: Sequence[float]) -> float:
    """How much more from round to round: the median over all pairs (Theil 1950, Sen 1968)."""
    pairs = combinations(enumerate(values), 2)
    return median((later - earlier) / (there - here) for (here, earlier), (there, later) in pairs)
