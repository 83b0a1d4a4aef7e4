"""The rule finds what grows, and does not find what varies."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.soak.allowances import allowance_of, growing, with_totals
from tests.soak.growth import FEWEST_ROUNDS, Allowance, judge, slope

SOME: Final = Allowance(absolute=40, part=0.05)


def noise(random: Random, rounds: int, level: int, spread: int) -> list[float]:
    return [level + random.randint(-spread, spread) for _ in range(rounds)]


@pytest.mark.parametrize("seed", range(20))
def test_what_varies_around_a_level_does_not_grow(seed: int) -> None:
    assert not judge("noise", noise(Random(seed), 12, 1_000, 20), SOME).grows


def test_what_fills_up_during_the_warm_up_does_not_grow() -> None:
    assert not judge("cache", [0, 500, 900, 1_000, 1_000, 1_001, 1_000, 999, 1_000], SOME).grows


def test_what_shrinks_does_not_grow() -> None:
    assert not judge("shrinks", [900 - 100 * n for n in range(9)], SOME).grows


def test_one_round_that_is_out_of_line_is_no_growth() -> None:
    assert not judge("spike", [100, 100, 100, 100, 100, 100, 100, 100, 9_000], SOME).grows


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_is_found_through_the_noise(seed: int) -> None:
    random = Random(seed)
    leaking = [value + 20 * n for n, value in enumerate(noise(random, 12, 1_000, 20))]
    assert judge("leak", leaking, SOME).grows


@given(st.integers(6, 60), st.integers(1, 50))
def test_a_leak_of_more_than_the_allowance_in_a_part_of_the_rounds_is_found(rounds: int, more: int) -> None:
    per_round = (40 + more) / (rounds // 3)
    assert judge("leak", [per_round * n for n in range(rounds)], Allowance(40)).grows


def test_without_an_allowance_one_more_is_growth() -> None:
    assert judge("threads", [6, 6, 6, 6, 7, 7], Allowance(0)).grows
    assert not judge("threads", [6, 6, 6, 6, 6, 6], Allowance(0)).grows


def test_too_few_rounds_are_not_judged() -> None:
    with pytest.raises(ValueError, match="5 rounds are too few"):
        judge("short", [1] * (FEWEST_ROUNDS - 1), SOME)


def test_the_slope_is_that_of_most_pairs() -> None:
    assert slope([1, 3, 5, 7, 500, 11]) == 2


def test_what_a_round_does_not_have_counts_as_none() -> None:
    rounds = [{"objects other.Leak": 300.0 * n} if n else {} for n in range(6)]
    assert [outcome.name for outcome in growing(rounds)] == ["objects other.Leak"]


def test_our_own_types_are_allowed_less_than_others() -> None:
    assert (
        allowance_of("objects client_core.cluster.Node").absolute
        < allowance_of("objects builtins.dict").absolute
    )


def test_what_has_a_bound_may_fill_it() -> None:
    name = "length client_core.producer.sender.transaction_manager.TransactionManager._partitions"
    assert allowance_of(name) == Allowance(500)


def test_totals_tell_ours_from_the_rest() -> None:
    measured = {"objects service.a.B": 3.0, "objects builtins.dict": 4.0, "length service.a.B._c": 5.0}
    totals = with_totals(measured)
    assert (totals["all objects"], totals["our objects"], totals["our lengths"]) == (7, 3, 5)
