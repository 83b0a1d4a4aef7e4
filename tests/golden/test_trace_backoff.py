"""Backoff terms against what 20 000 draws of Java's gave: ours stay inside, and come near both ends."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core.backoff import ExponentialBackoff

if TYPE_CHECKING:
    from tests.golden.conftest import Cases

_DRAWS: Final = 1_000

#: How near to Java's ends ours must come, as a share of its width: 1 000 draws miss a fiftieth of a uniform
#: range with probability (1 - 1/50) ** 1000 < 2e-9.
_NEAR: Final = 1 / 50


@pytest.mark.golden("traces/exponential_backoff.json")
def test_terms_lie_where_javas_lie(cases: Cases) -> None:
    for case in cases:
        backoff = ExponentialBackoff(
            case["initial_ms"], case["max_ms"], Random(1), case["multiplier"], case["jitter"]
        )
        for attempts, lowest_ms, highest_ms in case["attempt_observed_min_max_over_20000"]:
            drawn = [backoff.backoff_ms(attempts) for _ in range(_DRAWS)]
            slack_ms = _slack_ms(lowest_ms, highest_ms)
            assert max(drawn) <= case["max_ms"]
            assert lowest_ms - slack_ms <= min(drawn) <= lowest_ms + slack_ms, attempts
            assert highest_ms - slack_ms <= max(drawn) <= highest_ms + slack_ms, attempts


def _slack_ms(lowest_ms: int, highest_ms: int) -> int:
    """Java's ends are observed, not exact: a term may lie a little outside as well. 0 without jitter."""
    width_ms = highest_ms - lowest_ms
    return 0 if width_ms == 0 else 1 + int(width_ms * _NEAR)
