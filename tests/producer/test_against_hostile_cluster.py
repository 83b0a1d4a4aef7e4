"""Brokers that lie, whatever they say: no crash, no hang, no busy loop, no memory without end.

In simulated time by the dozen, over real sockets a few. What is checked stands in
tests/support/hostile_simulation.py and hostile_runs.py; `make fuzz` does the same for longer.
"""

from __future__ import annotations

import logging

import pytest

from tests.support.hostile_runs import survive_over_sockets
from tests.support.hostile_simulation import memory_in_process, survive_in_process


@pytest.fixture(autouse=True)
def _no_log() -> object:
    """Thousands of well-founded complaints would be kept for a failure that they don't explain."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "not idempotent"])
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_hostile_brokers_are_survived_and_produced_to_when_they_are_honest_again(
    first: int, idempotent: bool
) -> None:
    for seed in range(first, first + 10):
        survive_in_process(seed, idempotent=idempotent)


def test_hostile_brokers_are_not_all_fatal_to_an_idempotent_producer() -> None:
    """Else the tests above would prove little: a fatal refusal ends all that could go wrong."""
    ends = [survive_in_process(seed, idempotent=True, rate=0.3) for seed in range(1_000, 1_010)]
    assert sum(end.is_fatal for end in ends) <= 5
    assert all(end.spoilt for end in ends)
    assert sum(end.acknowledged for end in ends) > 500


def test_brokers_that_always_lie_are_survived() -> None:
    for seed in range(5):
        survive_in_process(seed, rate=1.0)


def test_memory_does_not_grow_with_the_lies() -> None:
    rounds = memory_in_process(0, rounds=4)
    held = [now for now, _ in rounds]
    assert max(held) < 3_000_000
    assert max(held[2:]) < max(held[:2]) + 1_000_000
    assert max(peak for _, peak in rounds) < 40_000_000


@pytest.mark.parametrize("seed", range(6))
def test_hostile_brokers_are_survived_over_sockets(seed: int) -> None:
    survive_over_sockets(seed, idempotent=seed % 2 == 0)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_hostile_brokers_that_demand_sasl_are_survived(mechanism: str) -> None:
    for seed in range(2):
        survive_over_sockets(seed, mechanism=mechanism)
