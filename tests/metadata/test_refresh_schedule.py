"""When the next metadata request is due, and why."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.backoff import ExponentialBackoff
from client_core.metadata.refresh_schedule import RefreshSchedule

if TYPE_CHECKING:
    from client_core.metadata.refresh_schedule import RefreshReason

MAX_AGE_MS = 10_000


class Unjittered(Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@pytest.fixture
def schedule() -> RefreshSchedule:
    return RefreshSchedule(ExponentialBackoff(100, 1_000, Unjittered(0)), MAX_AGE_MS)


@pytest.mark.behaviour("META-01")
def test_before_the_first_response_a_request_is_due(schedule: RefreshSchedule) -> None:
    """Also on a machine whose monotonic clock has just begun: there is nothing to back off from."""
    assert schedule.time_to_next_update(0) == 0
    assert not schedule.is_partial_enough(0)


@pytest.mark.behaviour("META-01")
def test_a_full_response_lasts_for_its_age(schedule: RefreshSchedule) -> None:
    schedule.succeeded(0, False, 50)
    assert schedule.time_to_next_update(60) == MAX_AGE_MS - 10
    assert schedule.time_to_next_update(50 + MAX_AGE_MS) == 0


def test_an_age_that_is_lowered_counts_at_once_and_is_never_raised(schedule: RefreshSchedule) -> None:
    schedule.succeeded(0, False, 0)
    assert schedule.time_to_next_update(4_000) == MAX_AGE_MS - 4_000
    schedule.lower_max_age(5_000)
    assert schedule.time_to_next_update(4_000) == 1_000
    schedule.lower_max_age(6_000)
    assert (schedule.max_age_ms, schedule.time_to_next_update(4_000)) == (5_000, 1_000)
    schedule.lower_max_age(1_000)
    assert schedule.time_to_next_update(4_000) == 0


@pytest.mark.behaviour("META-06", "META-10")
def test_a_partial_response_does_not_make_the_rest_younger(schedule: RefreshSchedule) -> None:
    schedule.succeeded(0, False, 0)
    schedule.succeeded(0, True, 9_000)
    assert schedule.time_to_expire(9_500) == 500


@pytest.mark.behaviour("META-02", "META-07")
def test_failures_back_off_exponentially(schedule: RefreshSchedule) -> None:
    waits = []
    for _ in range(6):
        schedule.failed(0)
        waits.append(schedule.time_to_allow_update(0))
    assert waits == [100, 200, 400, 800, 1_000, 1_000]


@pytest.mark.behaviour("META-02")
def test_equivalent_responses_back_off_exponentially(schedule: RefreshSchedule) -> None:
    waits = []
    for _ in range(5):
        schedule.succeeded(0, False, 0)
        waits.append(schedule.time_to_allow_update(0))
    assert waits == [100, 200, 400, 800, 1_000]


@pytest.mark.behaviour("META-03")
def test_progress_ends_the_backoff_of_equivalent_responses(schedule: RefreshSchedule) -> None:
    for _ in range(4):
        schedule.succeeded(0, False, 0)
    schedule.progressed()
    assert schedule.time_to_allow_update(0) == 100


@pytest.mark.behaviour("META-03")
def test_periodic_updates_do_not_back_off(schedule: RefreshSchedule) -> None:
    now_ms = 0
    for _ in range(4):
        schedule.succeeded(0, False, now_ms)
        now_ms += MAX_AGE_MS
        assert schedule.time_to_allow_update(now_ms) == 0
    schedule.succeeded(0, False, now_ms)
    assert schedule.time_to_allow_update(now_ms) == 100


@pytest.mark.behaviour("META-03", "META-07")
def test_a_failure_counts_equivalent_responses_anew(schedule: RefreshSchedule) -> None:
    for _ in range(4):
        schedule.succeeded(0, False, 0)
    schedule.failed(0)
    assert schedule.time_to_allow_update(0) == 100


@pytest.mark.behaviour("META-03", "META-09")
def test_new_topics_do_not_wait_for_a_backoff(schedule: RefreshSchedule) -> None:
    schedule.succeeded(0, False, 1_000)
    schedule.need_new_topics()
    assert schedule.time_to_next_update(1_000) == 0
    assert schedule.is_partial_enough(1_000)
    schedule.succeeded(0, True, 1_000)
    assert schedule.need_partial_update  # that request was older than the topics
    schedule.succeeded(1, True, 1_000)
    assert not schedule.update_requested


@pytest.mark.behaviour("META-06")
def test_a_full_need_outlives_a_partial_response(schedule: RefreshSchedule) -> None:
    schedule.succeeded(0, False, 0)
    schedule.need_full("manual")
    schedule.succeeded(0, True, 0)
    assert schedule.need_full_update
    assert not schedule.is_partial_enough(0)


# -- reasons -------------------------------------------------------------------------------------------------


def test_without_a_need_the_reason_is_the_first_request_and_then_expiry(schedule: RefreshSchedule) -> None:
    assert schedule.take_reason() == "initial"
    schedule.succeeded(0, False, 0)
    assert schedule.take_reason() == "expired"


def test_the_gravest_reason_is_told(schedule: RefreshSchedule) -> None:
    reasons: list[RefreshReason] = ["manual", "disconnect", "leader_error", "topic_missing"]
    for reason in reasons:
        schedule.need_full(reason)
    assert schedule.take_reason() == "disconnect"


def test_a_reason_is_told_once(schedule: RefreshSchedule) -> None:
    schedule.need_full("leader_error")
    assert schedule.take_reason() == "leader_error"
    schedule.succeeded(0, False, 0)
    schedule.need_full("manual")
    assert schedule.take_reason() == "manual"


def test_a_failure_brings_the_reason_back(schedule: RefreshSchedule) -> None:
    schedule.succeeded(0, False, 0)
    schedule.need_full("leader_error")
    schedule.take_reason()
    schedule.need_full("manual")
    schedule.failed(0)
    assert schedule.take_reason() == "leader_error"


def test_a_failure_of_an_answered_request_brings_nothing_back(schedule: RefreshSchedule) -> None:
    schedule.need_full("leader_error")
    schedule.take_reason()
    schedule.succeeded(0, False, 0)
    schedule.failed(0)
    assert schedule.take_reason() == "expired"
