"""When the next metadata request is due, and why."""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.backoff import ExponentialBackoff
from client_core.metadata.refresh_schedule import RefreshSchedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.metadata.refresh_schedule import RefreshReason

MAX_AGE_MS = 10_000


class Unjittered(Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class Drawn(Random):
    """Returns the given fractions in turn: 0 is the least of the requested range, 1 the most."""

    def __init__(self, *parts: float) -> None:
        super().__init__(0)
        self._parts = list(parts)

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._parts.pop(0)


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


@pytest.mark.behaviour("META-25")
def test_after_an_event_a_response_lasts_for_a_part_of_its_age_and_then_for_all_of_it() -> None:
    """What made many clients refresh together does not make them do so again and again."""
    schedule = RefreshSchedule(ExponentialBackoff(100, 1_000, Drawn(0, 0.5, 1)), MAX_AGE_MS, spreads=True)
    lasted = []
    for reason in (None, None, "disconnect", None, "leader_error"):
        if reason is not None:
            schedule.need_full(reason)
        schedule.take_reason()
        schedule.succeeded(0, False, 0)
        lasted.append(schedule.time_to_expire(0))
    tenth_ms = MAX_AGE_MS // 10
    assert lasted == [tenth_ms, MAX_AGE_MS, 5.5 * tenth_ms, MAX_AGE_MS, MAX_AGE_MS]


@pytest.mark.behaviour("META-25")
def test_a_refresh_by_age_that_came_late_counts_as_an_event() -> None:
    """Brokers that were away or slow have delayed those of many clients to the same moment."""
    schedule = RefreshSchedule(ExponentialBackoff(100, 1_000, Drawn(1, 0)), MAX_AGE_MS, spreads=True)
    schedule.take_reason()
    schedule.succeeded(0, False, 0)
    lasted = []
    for late_ms in (0, 999, 1_000):
        now_ms = (schedule.last_successful_refresh_ms or 0) + MAX_AGE_MS + late_ms
        assert schedule.take_reason() == "expired"
        schedule.succeeded(0, False, now_ms)
        lasted.append(schedule.time_to_expire(now_ms))
    assert lasted == [MAX_AGE_MS, MAX_AGE_MS, MAX_AGE_MS // 10]


def test_a_part_of_an_age_that_is_lowered_is_not_raised() -> None:
    schedule = RefreshSchedule(ExponentialBackoff(100, 1_000, Drawn(0, 0)), MAX_AGE_MS, spreads=True)
    schedule.succeeded(0, False, 0)
    schedule.lower_max_age(5_000)
    assert schedule.time_to_expire(0) == MAX_AGE_MS // 10
    schedule.succeeded(0, False, 0)
    assert schedule.time_to_expire(0) == 500


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


@pytest.mark.behaviour("META-10")
def test_a_partial_request_is_enough_until_the_last_millisecond(schedule: RefreshSchedule) -> None:
    schedule.succeeded(0, False, 0)
    assert schedule.is_partial_enough(MAX_AGE_MS - 1)
    assert not schedule.is_partial_enough(MAX_AGE_MS)


@pytest.mark.behaviour("META-06")
def test_a_response_ends_the_backoff_of_failures(schedule: RefreshSchedule) -> None:
    for _ in range(4):
        schedule.failed(0)
    schedule.succeeded(0, False, 0)
    schedule.progressed()
    assert schedule.time_to_allow_update(0) == 100


@pytest.mark.behaviour("META-09")
def test_new_topics_count_equivalent_responses_anew(schedule: RefreshSchedule) -> None:
    for _ in range(4):
        schedule.succeeded(0, False, 0)
    schedule.need_new_topics()
    schedule.succeeded(1, True, 0)
    assert schedule.time_to_allow_update(0) == 100


@pytest.mark.behaviour("META-02")
def test_the_first_equivalent_response_has_a_backoff_of_its_own() -> None:
    """Two are drawn, one for failures and one for equivalent responses; the longer one holds."""
    schedule = RefreshSchedule(ExponentialBackoff(100, 1_000, Drawn(0, 1)), MAX_AGE_MS)
    schedule.succeeded(0, False, 0)
    assert schedule.time_to_allow_update(0) == 120


@pytest.mark.behaviour("META-07")
def test_after_a_failure_no_backoff_of_equivalent_responses_is_drawn() -> None:
    schedule = RefreshSchedule(ExponentialBackoff(100, 1_000, Drawn(0)), MAX_AGE_MS)
    schedule.succeeded(0, False, 0)
    schedule.failed(0)
    assert schedule.time_to_allow_update(0) == 80


# -- values that Metadata reads without its lock -------------------------------------------------------------


def test_before_anything_happened_there_is_no_such_moment(schedule: RefreshSchedule) -> None:
    assert schedule.expires_at_ms == 0


@pytest.mark.parametrize("left_ms", [1_000, 1_001, MAX_AGE_MS])
def test_while_only_expiry_makes_a_request_due_its_moment_is_kept(
    schedule: RefreshSchedule, left_ms: int
) -> None:
    """From the longest backoff on: nothing but a change can make one due before that moment."""
    schedule.succeeded(0, False, 50)
    assert schedule.expires_at_ms == 0
    assert schedule.time_to_next_update(50 + MAX_AGE_MS - left_ms) == left_ms
    assert schedule.expires_at_ms == 50 + MAX_AGE_MS


def test_where_a_backoff_may_hold_a_request_up_no_moment_is_kept(schedule: RefreshSchedule) -> None:
    schedule.succeeded(0, False, 50)
    assert schedule.time_to_next_update(50 + MAX_AGE_MS - 999) == 999
    assert schedule.expires_at_ms == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda schedule: schedule.lower_max_age(5_000),
        lambda schedule: schedule.need_full("manual"),
        lambda schedule: schedule.need_new_topics(),
        lambda schedule: schedule.succeeded(0, False, 60),
        lambda schedule: schedule.failed(60),
    ],
    ids=["lower_max_age", "need_full", "need_new_topics", "succeeded", "failed"],
)
def test_a_change_ends_that_moment(
    schedule: RefreshSchedule, change: Callable[[RefreshSchedule], None]
) -> None:
    schedule.succeeded(0, False, 50)
    schedule.time_to_next_update(60)
    assert schedule.expires_at_ms > 0
    change(schedule)
    assert schedule.expires_at_ms == 0


# -- which request was answered ------------------------------------------------------------------------------


def test_full_requests_are_counted_and_a_full_response_answers_those_made_so_far(
    schedule: RefreshSchedule,
) -> None:
    counts = [(schedule.full_requests, schedule.answered_full_request)]
    for is_partial in (True, False, False):
        schedule.take_reason()
        counts.append((schedule.full_requests, schedule.answered_full_request))
        schedule.succeeded(0, is_partial, 0)
        counts.append((schedule.full_requests, schedule.answered_full_request))
    assert counts == [(0, 0), (1, 0), (1, 0), (2, 0), (2, 2), (3, 2), (3, 3)]


# -- reasons -------------------------------------------------------------------------------------------------


def test_without_a_need_the_reason_is_the_first_request_and_then_expiry(schedule: RefreshSchedule) -> None:
    assert schedule.take_reason() == "initial"
    schedule.succeeded(0, False, 0)
    assert schedule.take_reason() == "expired"


def test_the_gravest_reason_is_taken(schedule: RefreshSchedule) -> None:
    reasons: list[RefreshReason] = ["manual", "disconnect", "leader_error", "topic_missing"]
    for reason in reasons:
        schedule.need_full(reason)
    assert schedule.take_reason() == "disconnect"


_ASCENDING: list[RefreshReason] = [
    "expired",
    "manual",
    "topic_missing",
    "leader_error",
    "disconnect",
    "bootstrap",
    "initial",
]


@pytest.mark.parametrize(("lesser", "graver"), list(itertools.pairwise(_ASCENDING)))
def test_of_two_reasons_the_graver_is_taken_whichever_came_first(
    schedule: RefreshSchedule, lesser: RefreshReason, graver: RefreshReason
) -> None:
    for order in ((lesser, graver), (graver, lesser)):
        for reason in order:
            schedule.need_full(reason)
        assert schedule.take_reason() == graver


def test_the_reason_of_the_next_request_is_read_without_taking_it(schedule: RefreshSchedule) -> None:
    reasons = [schedule.reason]
    schedule.succeeded(0, False, 0)
    reasons.append(schedule.reason)
    schedule.need_new_topics()
    reasons.append(schedule.reason)
    schedule.need_full("manual")
    reasons.append(schedule.reason)
    assert reasons == ["initial", "expired", "topic_missing", "manual"]
    assert schedule.full_requests == 0


def test_new_topics_in_a_full_request_that_is_due_anyhow_have_its_reason(schedule: RefreshSchedule) -> None:
    schedule.need_new_topics()
    schedule.need_full_update = True
    assert schedule.reason == "initial"


def test_a_reason_that_a_failure_brought_back_goes_before_new_topics(schedule: RefreshSchedule) -> None:
    schedule.succeeded(0, False, 0)
    schedule.take_reason()
    schedule.failed(0)
    schedule.need_new_topics()
    assert schedule.reason == "expired"


def test_a_reason_is_taken_once(schedule: RefreshSchedule) -> None:
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
