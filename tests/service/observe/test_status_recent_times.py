"""Times and sums of the last minute, in memory that does not grow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.observe.slowness.recent_times import NOTHING_RECENT, PerSecond, Recent, RecentTimes


def times(*took_ms: int, now_ms: int = 0) -> RecentTimes:
    recent = RecentTimes()
    for one_ms in took_ms:
        recent.add(one_ms, now_ms)
    return recent


def test_nothing_was_recent_before_anything_was() -> None:
    assert RecentTimes().summary(0) == NOTHING_RECENT


def test_quantiles_are_right_to_a_quarter_and_the_maximum_exactly() -> None:
    summary = times(*range(1, 1001)).summary(0)
    assert summary.count == 1000
    assert summary.max_ms == 1000
    assert summary.p50_ms is not None
    assert summary.p99_ms is not None
    assert 500 <= summary.p50_ms <= 630
    assert 990 <= summary.p99_ms <= 1000


def test_one_slow_request_in_a_hundred_is_the_99th_percentile_only_when_there_are_more() -> None:
    assert times(*[5] * 99, 3000).summary(0).p99_ms == 5
    assert times(*[5] * 98, 3000, 3000).summary(0).p99_ms == 3000


def test_no_quantile_exceeds_the_maximum() -> None:
    assert times(101).summary(0).p99_ms == 101


def test_times_longer_than_any_range_count_as_the_longest() -> None:
    assert times(10_000_000).summary(0).p50_ms == 10_000_000


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    recent = times(7, now_ms=5_000)
    assert recent.summary(64_999).count == 1
    assert recent.summary(70_000).count == 0
    recent.add(9, 71_000)
    assert recent.summary(71_000).max_ms == 9


def test_the_latest_are_those_of_the_last_seconds() -> None:
    recent = times(*[2] * 1_000, now_ms=1_000)
    recent.add(300, 10_000)
    assert recent.latest(9_000).p50_ms == 2
    assert recent.latest(10_000) == Recent(1, 300, 300, 300)
    assert recent.summary(10_000).count == 1_001


def test_a_clock_that_another_thread_read_a_moment_earlier_loses_nothing() -> None:
    recent = times(7, now_ms=10_001)
    recent.add(8, 9_999)
    assert recent.summary(10_001).count == 2


@given(st.lists(st.tuples(st.integers(0, 400_000), st.integers(0, 600_000)), min_size=1))
def test_memory_is_bounded_and_summaries_are_ordered(added: list[tuple[int, int]]) -> None:
    recent = RecentTimes()
    for took_ms, now_ms in sorted(added, key=lambda one: one[1]):
        recent.add(took_ms, now_ms)
    latest_ms = max(now_ms for _, now_ms in added)
    summary = recent.summary(latest_ms)
    assert summary.p50_ms is not None
    assert summary.p99_ms is not None
    assert summary.max_ms is not None
    assert summary.p50_ms <= summary.p99_ms <= summary.max_ms
    assert len(recent._slots) <= 13


def test_seconds_that_are_over_are_told_oldest_first_quiet_ones_included() -> None:
    seconds = PerSecond()
    seconds.at(100_500).records += 3
    seconds.at(102_100).records += 4
    reported = seconds.whole_seconds(103_000)
    assert len(reported) == 60
    assert [second.number for second in reported[-3:]] == [100, 101, 102]
    assert [second.records for second in reported[-3:]] == [3, 0, 4]


def test_the_second_that_runs_is_not_told_yet() -> None:
    seconds = PerSecond()
    seconds.at(100_500).records += 3
    assert sum(second.records for second in seconds.whole_seconds(100_900)) == 0
    assert seconds.whole_seconds(101_000)[-1].records == 3


def test_what_is_told_does_not_change_any_more() -> None:
    seconds = PerSecond()
    seconds.at(1_000).records = 1
    reported = seconds.whole_seconds(2_000)
    seconds.at(1_500).records = 2
    assert reported[-1].records == 1
