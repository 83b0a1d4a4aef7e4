"""When a token is fetched again. After ExpiringCredentialRefreshingLoginTest (Kafka 4.3)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.network.sasl.client_jwt_validator import OAuthBearerToken
from client_core.network.sasl.oauth_bearer_login import ExpiringCredentialRefresh

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def token(*, lives_ms: int, began_ms_ago: int | None = 0) -> OAuthBearerToken:
    """A token that lives so long from now on."""
    start_ms = None if began_ms_ago is None else NOW_MS - began_ms_ago
    return OAuthBearerToken("a.b.c", frozenset(), NOW_MS + lives_ms, "alice", start_ms)


def refresh(
    *,
    factor: float = 0.8,
    jitter: float = 0.0,
    min_period_ms: int = MINUTE_MS,
    buffer_ms: int = 5 * MINUTE_MS,
) -> ExpiringCredentialRefresh:
    return ExpiringCredentialRefresh(factor, jitter, min_period_ms, buffer_ms, random.Random(1))


def test_after_a_part_of_its_life() -> None:
    assert refresh().refresh_ms(token(lives_ms=100 * MINUTE_MS), NOW_MS) == NOW_MS + 80 * MINUTE_MS


def test_a_life_is_counted_from_when_the_token_was_issued() -> None:
    half_over = token(lives_ms=50 * MINUTE_MS, began_ms_ago=50 * MINUTE_MS)
    assert refresh().refresh_ms(half_over, NOW_MS) == NOW_MS + 30 * MINUTE_MS


def test_or_from_now_if_the_token_does_not_say() -> None:
    undated = token(lives_ms=50 * MINUTE_MS, began_ms_ago=None)
    assert refresh().refresh_ms(undated, NOW_MS) == NOW_MS + 40 * MINUTE_MS


def test_not_within_the_buffer_before_its_end() -> None:
    late = refresh(factor=0.99)
    assert late.refresh_ms(token(lives_ms=100 * MINUTE_MS), NOW_MS) == NOW_MS + 95 * MINUTE_MS


def test_not_before_the_min_period_is_over() -> None:
    nearly_over = token(lives_ms=10 * MINUTE_MS, began_ms_ago=90 * MINUTE_MS)
    assert refresh().refresh_ms(nearly_over, NOW_MS) == NOW_MS + MINUTE_MS


def test_a_life_too_short_for_both_is_divided_alone() -> None:
    short = token(lives_ms=5 * MINUTE_MS, began_ms_ago=95 * MINUTE_MS)
    assert refresh().refresh_ms(short, NOW_MS) == NOW_MS + 4 * MINUTE_MS


def test_a_token_that_is_about_to_end_is_not_asked_for_ever_faster() -> None:
    assert refresh().refresh_ms(token(lives_ms=10), NOW_MS) == NOW_MS + 1000
    assert refresh().refresh_ms(token(lives_ms=-10), NOW_MS) == NOW_MS + 1000


@given(
    lives_ms=st.integers(1_000, 10_000 * MINUTE_MS),
    began_ms_ago=st.none() | st.integers(0, 10_000 * MINUTE_MS),
    jitter=st.floats(0, 0.25),
)
def test_always_in_time(lives_ms: int, began_ms_ago: int | None, jitter: float) -> None:
    policy = refresh(factor=0.5, jitter=jitter)
    at_ms = policy.refresh_ms(token(lives_ms=lives_ms, began_ms_ago=began_ms_ago), NOW_MS)
    assert NOW_MS + 1000 <= at_ms <= max(NOW_MS + lives_ms, NOW_MS + 1000)


@pytest.mark.parametrize("seed", range(20))
def test_jitter_spreads_the_refreshes_of_many_clients(seed: int) -> None:
    policy = ExpiringCredentialRefresh(0.8, 0.05, 0, 0, random.Random(seed))
    at_ms = policy.refresh_ms(token(lives_ms=100 * MINUTE_MS), NOW_MS)
    assert 80 * MINUTE_MS <= at_ms - NOW_MS <= 85 * MINUTE_MS
