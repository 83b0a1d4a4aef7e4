"""ExponentialBackoffTest, and the figures of the documentation."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.backoff import ExponentialBackoff
from client_core.errors import IllegalArgumentError


@pytest.mark.java("ExponentialBackoffTest.ExponentialBackoff")
def test_terms_double_within_their_jitter_up_to_the_maximum() -> None:
    backoff = ExponentialBackoff(initial_ms=100, max_ms=2_000, random=Random(7))
    for attempts in range(11):
        for _ in range(100):
            term_ms = backoff.backoff_ms(attempts)
            base_ms = 100 * 2**attempts
            if base_ms * 0.8 >= 2_000:
                assert 1_600 <= term_ms <= 2_000
            else:
                assert int(base_ms * 0.8) <= term_ms <= min(base_ms * 1.2, 2_000)


@pytest.mark.java("ExponentialBackoffTest.ExponentialBackoffWithoutJitter")
def test_without_jitter_terms_are_exact() -> None:
    backoff = ExponentialBackoff(initial_ms=100, max_ms=400, random=Random(0), jitter=0.0)
    assert [backoff.backoff_ms(n) for n in range(5)] == [100, 200, 400, 400, 400]


@pytest.mark.java("ExponentialBackoffTest.ExponentialBackoffWithInvalidJitter")
def test_a_jitter_that_could_turn_the_term_negative_is_refused() -> None:
    for jitter in (-1, -0.1, 1.0, 1.5, 3000):
        with pytest.raises(IllegalArgumentError, match="jitter must be between 0 inclusive and 1 exclusive"):
            ExponentialBackoff(initial_ms=1, max_ms=2, random=Random(0), jitter=jitter)


def test_a_maximum_not_above_the_initial_term_is_constant_and_draws_nothing() -> None:
    random = Random(3)
    before = random.getstate()
    backoff = ExponentialBackoff(initial_ms=100, max_ms=100, random=random)
    assert {backoff.backoff_ms(n) for n in range(50)} == {100}
    assert ExponentialBackoff(initial_ms=100, max_ms=40, random=random).backoff_ms(9) == 40
    assert random.getstate() == before


def test_reconnect_terms_of_50_to_1000_ms_lie_where_java_was_measured() -> None:
    for attempts, low_ms, high_ms in (
        (0, 40, 59),
        (1, 80, 119),
        (2, 160, 239),
        (4, 640, 959),
        (9, 800, 1_000),
    ):
        backoff = ExponentialBackoff(initial_ms=50, max_ms=1_000, random=Random(11))
        drawn = [backoff.backoff_ms(attempts) for _ in range(5_000)]
        assert low_ms <= min(drawn) <= max(drawn) <= high_ms, attempts
        assert max(drawn) - min(drawn) > (high_ms - low_ms) * 0.9, attempts


@given(initial_ms=st.integers(0, 100_000), max_ms=st.integers(0, 1_000_000), attempts=st.integers(0, 1 << 40))
def test_no_term_is_negative_or_beyond_the_maximum(initial_ms: int, max_ms: int, attempts: int) -> None:
    term_ms = ExponentialBackoff(initial_ms=initial_ms, max_ms=max_ms, random=Random(1)).backoff_ms(attempts)
    assert 0 <= term_ms <= max_ms
