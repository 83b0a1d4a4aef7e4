"""Figures from events: times by node and phase, failures and their runs, sums; in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import Errors
from client_core import events as e
from service.observe.slowness.collector import (
    KEPT_AFTER_LEAVING_MS,
    LEADER_CHANGES,
    MAX_NODES,
    RUN_GAP_MS,
    Failure,
    Slowness,
)
from service.observe.slowness.recent_times import NOTHING_RECENT, PerSecond, Recent, RecentTimes
from tests.support.mock_clock import MockClock


@pytest.fixture
def clock() -> MockClock:
    return MockClock(now_ms=1_000_000)


@pytest.fixture
def slowness(clock: MockClock) -> Slowness:
    return Slowness(clock)


def request(node_id: int, latency_ms: int, api: str = "Produce", error: Errors = Errors.NONE) -> e.Event:
    return e.RequestCompleted(api, node_id, latency_ms, 10, 10, error)


def finished(records: int = 1, produce_ms: int = 5, error: Errors = Errors.NONE, node_id: int = 1) -> e.Event:
    return e.ProduceFinished("orders", 0, node_id, records, 100, produce_ms, 0, error)


def test_produce_requests_are_kept_by_node_and_others_are_not(slowness: Slowness) -> None:
    slowness.emit(request(1, 5))
    slowness.emit(request(2, 70))
    slowness.emit(request(2, 9_000, api="Metadata"))
    observed = slowness.observed()
    assert {node_id: node.produce.max_ms for node_id, node in observed.nodes.items()} == {1: 5, 2: 70}
    assert observed.phases["delivery"].count == 2


def test_a_request_that_failed_has_no_time(slowness: Slowness) -> None:
    """A broker that refuses at once is not quick, and a timeout is the client's own."""
    for api in ("Produce", "Metadata"):
        slowness.emit(request(2, 30_000, api=api, error=Errors.REQUEST_TIMED_OUT))
    observed = slowness.observed()
    assert (observed.nodes[2].produce, observed.nodes[2].others) == (NOTHING_RECENT, NOTHING_RECENT)
    assert observed.nodes[2].latest == {"Produce": NOTHING_RECENT}
    assert observed.phases["delivery"] == NOTHING_RECENT


def test_each_phase_has_its_times(slowness: Slowness) -> None:
    slowness.emit(e.BatchSent(1, 10, 100, 100, 30, 0))
    slowness.emit(e.WaitFinished("metadata", "success", 200))
    slowness.emit(e.WaitFinished("buffer", "timeout", 400))
    slowness.emit(e.WaitFinished("flush", "success", 9_000))
    slowness.emit(request(1, 7))
    phases = slowness.observed().phases
    assert {phase: times.max_ms for phase, times in phases.items()} == {
        "metadata": 200,
        "buffer": 400,
        "queue": 30,
        "delivery": 7,
    }


def test_the_last_failure_of_a_node_is_kept_with_the_beginning_of_its_run(
    slowness: Slowness, clock: MockClock
) -> None:
    slowness.emit(e.BatchRetried("orders", 0, 3, Errors.NOT_ENOUGH_REPLICAS, 2))
    begun_ms = clock.now_ms()
    clock.advance(RUN_GAP_MS)
    slowness.emit(request(2, 100, error=Errors.REQUEST_TIMED_OUT))
    assert slowness.observed().nodes[2].last_failure == Failure(
        "Produce",
        "REQUEST_TIMED_OUT",
        Errors.REQUEST_TIMED_OUT.message,
        since_ms=begun_ms,
        last_ms=clock.now_ms(),
        times=2,
    )


def test_a_run_of_failures_is_one_however_long_it_lasts(slowness: Slowness, clock: MockClock) -> None:
    begun_ms = clock.now_ms()
    for _ in range(5):
        slowness.emit(request(2, 100, error=Errors.REQUEST_TIMED_OUT))
        clock.advance(RUN_GAP_MS)
    failure = slowness.observed().nodes[2].last_failure
    assert failure is not None
    assert (failure.since_ms, failure.times) == (begun_ms, 5)


def test_a_failure_after_a_pause_begins_another_run(slowness: Slowness, clock: MockClock) -> None:
    slowness.emit(e.BatchRetried("orders", 0, 3, Errors.NOT_ENOUGH_REPLICAS, 2))
    clock.advance(RUN_GAP_MS + 1)
    slowness.emit(e.BatchRetried("orders", 0, 3, Errors.NOT_ENOUGH_REPLICAS, 2))
    failure = slowness.observed().nodes[2].last_failure
    assert failure is not None
    assert (failure.since_ms, failure.times) == (clock.now_ms(), 1)


def test_the_latest_requests_of_a_node_are_kept_by_api(slowness: Slowness) -> None:
    slowness.emit(request(2, 5))
    slowness.emit(e.RequestCompleted("Metadata", 2, 1_500, 10, 10))
    node = slowness.observed().nodes[2]
    assert {api: times.max_ms for api, times in node.latest.items()} == {"Produce": 5, "Metadata": 1_500}
    assert node.produce.count == 1


def test_a_failure_names_no_topic(slowness: Slowness) -> None:
    """A caller with the right to read the status may lack the right to some topics."""
    slowness.emit(e.BatchRetried("orders", 0, 3, Errors.NOT_ENOUGH_REPLICAS, 2))
    slowness.emit(finished(error=Errors.TOPIC_AUTHORIZATION_FAILED, node_id=3))
    assert "orders" not in repr(slowness.observed().nodes)


def test_connections_that_end_in_good_order_are_no_failures(slowness: Slowness) -> None:
    slowness.emit(e.NodeDisconnected(1, "idle", "unused", 0))
    slowness.emit(e.NodeDisconnected(2, "local", "closed by us", 0))
    slowness.emit(e.NodeDisconnected(3, "refused", "Connection refused", 50))
    nodes = slowness.observed().nodes
    assert set(nodes) == {3}
    assert nodes[3].last_failure is not None
    assert (nodes[3].last_failure.api, nodes[3].last_failure.error) == (None, "refused")


def test_a_broker_that_left_is_forgotten_after_an_hour(slowness: Slowness, clock: MockClock) -> None:
    for node_id in (1, 2, 3):
        slowness.emit(request(node_id, 5))
    slowness.emit(e.BrokersChanged(joined=(), left=(2, 3), moved=()))
    slowness.emit(e.BrokersChanged(joined=(3,), left=(), moved=()))
    clock.advance(KEPT_AFTER_LEAVING_MS - 1)
    slowness.emit(e.BrokersChanged(joined=(9,), left=(), moved=()))
    assert set(slowness.observed().nodes) == {1, 2, 3}
    clock.advance(1)
    slowness.emit(e.BrokersChanged(joined=(10,), left=(), moved=()))
    assert set(slowness.observed().nodes) == {1, 3}


def test_figures_of_nodes_are_bounded(slowness: Slowness) -> None:
    for node_id in range(MAX_NODES + 5):
        slowness.emit(request(node_id, 5))
    nodes = slowness.observed().nodes
    assert len(nodes) == MAX_NODES
    assert 4 not in nodes


def test_records_are_summed_up_for_good_and_by_second(slowness: Slowness, clock: MockClock) -> None:
    slowness.emit(finished(records=10, produce_ms=20))
    slowness.emit(finished(records=5, produce_ms=40))
    slowness.emit(finished(records=2, error=Errors.NOT_ENOUGH_REPLICAS))
    clock.advance(1_000)
    observed = slowness.observed()
    assert (observed.records, observed.failed_records, observed.delivered_bytes) == (15, 2, 200)
    last = observed.seconds[-1]
    assert (last.records, last.failed_records, last.delivered_bytes) == (15, 2, 200)
    assert (last.batches, last.total_ms, last.max_ms) == (2, 60, 40)
    assert observed.produce.count == 2


def test_records_that_were_taken_back_have_failed_in_their_second(
    slowness: Slowness, clock: MockClock
) -> None:
    slowness.emit(finished(2, error=Errors.REQUEST_TIMED_OUT))
    slowness.emit(e.RecordsCancelled("orders", 3, Errors.REQUEST_TIMED_OUT, Errors.NONE))
    clock.advance(1_000)
    observed = slowness.observed()
    assert (observed.failed_records, observed.seconds[-1].failed_records) == (5, 5)


def test_the_last_leader_changes_are_kept_with_their_time(slowness: Slowness, clock: MockClock) -> None:
    rows = [(partition, (1, 6), (2, 7)) for partition in range(LEADER_CHANGES + 1)]
    slowness.emit(e.LeadersChanged("orders", rows[:10]))
    slowness.emit(e.LeadersChanged("orders", rows[10:]))
    moves = slowness.observed().leader_moves
    assert [move.change.partition for move in moves] == list(range(1, LEADER_CHANGES + 1))
    assert moves[0].at_wall_ms == clock.wall_ms()


# -- times of the last minute --------------------------------------------------------------------------------


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


def test_figures_older_than_a_minute_are_forgotten() -> None:
    recent = times(7, now_ms=5_000)
    assert recent.summary(64_999).count == 1
    assert recent.summary(70_000).count == 0
    assert times(7, now_ms=9_999).summary(65_000).count == 1
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


def test_seconds_that_are_over_are_returned_oldest_first_quiet_ones_included() -> None:
    seconds = PerSecond()
    seconds.at(100_500).records += 3
    seconds.at(102_100).records += 4
    reported = seconds.whole_seconds(103_000)
    assert len(reported) == 60
    assert [second.number for second in reported[-3:]] == [100, 101, 102]
    assert [second.records for second in reported[-3:]] == [3, 0, 4]


def test_each_second_of_a_busy_minute_is_returned() -> None:
    seconds = PerSecond()
    for second in range(61):
        seconds.at(second * 1_000).records += 1
    assert [second.records for second in seconds.whole_seconds(60_000)] == [1] * 60


def test_the_current_second_is_not_returned_yet() -> None:
    seconds = PerSecond()
    seconds.at(100_500).records += 3
    assert sum(second.records for second in seconds.whole_seconds(100_900)) == 0
    assert seconds.whole_seconds(101_000)[-1].records == 3


def test_seconds_that_were_returned_do_not_change_any_more() -> None:
    seconds = PerSecond()
    seconds.at(1_000).records = 1
    reported = seconds.whole_seconds(2_000)
    seconds.at(1_500).records = 2
    assert reported[-1].records == 1
