"""A fleet recovers by itself from what hit all of it at once, and does not move in waves afterwards.

`make test` has fifty sidecars, the long tier a thousand. Rates are of simulated seconds.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.operations.fleet import BROKERS, BUCKET_MS, Fleet

#: metadata.max.age.ms: how often a sidecar refreshes when nothing happens.
_MAX_AGE_MS: Final = 300_000
#: How long after the end of a fault the load must be normal again.
_BACK_MS: Final = 10_000
_WINDOW_MS: Final = 10_000
_CALLS_PER_S: Final = 0.02


def _all(fleet: Fleet, what: str, since_ms: int, until_ms: int) -> list[int]:
    """Returns what came to all brokers together, by bucket."""
    return [
        sum(of) for of in zip(*(fleet.amounts(what, b, since_ms, until_ms) for b in BROKERS), strict=True)
    ]


def _largest_sum(amounts: list[int], ms: int) -> int:
    size = ms // BUCKET_MS
    return max(sum(amounts[at : at + size]) for at in range(0, len(amounts) - size + 1, size // 2 or 1))


def _check_recovered(fleet: Fleet, sidecars: int, back_ms: int) -> None:
    """From `back_ms` on, for a whole metadata.max.age.ms."""
    until_ms = fleet.now_ms
    refreshes = _all(fleet, "Metadata", back_ms, until_ms)
    steady = sidecars * _WINDOW_MS / _MAX_AGE_MS
    # Twice the mean, and three standard deviations of what comes at random.
    assert _largest_sum(refreshes, _WINDOW_MS) <= 2 * steady + 3 * steady**0.5, refreshes
    assert max(refreshes) <= 5, refreshes
    assert sum(refreshes) >= sidecars * 0.9
    for broker_id in BROKERS:
        connects = fleet.amounts("connect", broker_id, back_ms, until_ms)
        assert _largest_sum(connects, _WINDOW_MS) <= sidecars / 10, connects
    assert sum(fleet.amounts("bad", 0, back_ms, until_ms)) == 0
    called = sum(fleet.amounts("call", 0, back_ms, until_ms))
    assert called > 0
    assert sum(fleet.amounts("good", 0, back_ms, until_ms)) == pytest.approx(called, abs=2)


def _start_together(fleet: Fleet) -> None:
    """They begin together, and learn of their topics."""
    fleet.calls_per_s = 0.3
    fleet.run(15_000)
    fleet.calls_per_s = _CALLS_PER_S


def _restart_all(sidecars: int) -> None:
    with Fleet(sidecars, seed=1) as fleet:
        _start_together(fleet)
        fleet.kill_all(10_000)
        fleet.run(10_000)
        recovered_ms = fleet.now_ms
        fleet.run(_BACK_MS + _MAX_AGE_MS)
        _check_recovered(fleet, sidecars, recovered_ms + _BACK_MS)
        came = _all(fleet, "Metadata", recovered_ms - 2_000, recovered_ms + _BACK_MS)
        assert sum(came) <= 2 * sidecars


def _slow_broker(sidecars: int) -> None:
    with Fleet(sidecars, seed=2) as fleet:
        _start_together(fleet)
        fleet.slow(2, 2_000, 45_000)
        fleet.run(45_000)
        recovered_ms = fleet.now_ms
        fleet.run(_BACK_MS + _MAX_AGE_MS)
        _check_recovered(fleet, sidecars, recovered_ms + _BACK_MS)


def test_after_a_restart_of_all_brokers_the_load_is_normal_within_ten_seconds() -> None:
    """They connect and refresh within two seconds, and do not refresh together again five minutes later."""
    _restart_all(50)


def test_a_broker_that_was_slower_than_the_request_timeout_leaves_no_load_behind() -> None:
    _slow_broker(50)


@pytest.mark.parametrize("honours_retry_after", [True, False])
def test_with_more_callers_than_brokers_can_serve_the_goodput_stays_and_all_is_well_afterwards(
    honours_retry_after: bool,
) -> None:
    """Twice as much as brokers can do, and callers that repeat what failed up to ten times.

    Each record takes a broker 200 ms, so that two sidecars are a load: 15 records a second are the most.
    """
    most_per_s = 15
    with Fleet(
        2,
        seed=3,
        calls_per_s=2,
        record_ms=199,
        record_bytes=12_000,
        honours_retry_after=honours_retry_after,
    ) as fleet:
        fleet.run(5_000)
        began_ms = fleet.now_ms
        fleet.calls_per_s = most_per_s
        fleet.run(15_000)
        ended_ms = fleet.now_ms
        fleet.calls_per_s = 2
        fleet.run(40_000)
        assert fleet.rate("good", 0, began_ms + 2_000, ended_ms) >= 0.9 * most_per_s
        back_ms = ended_ms + 30_000
        called = sum(fleet.amounts("call", 0, back_ms, fleet.now_ms))
        assert sum(fleet.amounts("good", 0, back_ms, fleet.now_ms)) == pytest.approx(called, abs=3)
        assert sum(fleet.amounts("bad", 0, back_ms, fleet.now_ms)) == 0
        # Whoever was refused knows that nothing was written: no record is stored for nobody.
        assert set(fleet.answers) == {200, 503}


@pytest.mark.timeout(3_600)
def test_a_thousand_sidecars_recover_from_a_restart_of_all_brokers() -> None:
    _restart_all(1_000)


@pytest.mark.timeout(3_600)
def test_a_thousand_sidecars_recover_from_a_slow_broker() -> None:
    _slow_broker(1_000)
