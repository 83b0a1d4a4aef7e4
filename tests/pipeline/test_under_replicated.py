"""gold_urp: intervals with the known bounds of their begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.tables import GOLD_URP
from tests.pipeline.fleets import CLUSTER, ID, TOPIC, Boot, at
from tests.pipeline.stories import Stories, assert_table

if TYPE_CHECKING:
    from tests.pipeline.stories import Outcome, Rows, Story, Tale
    from tests.pipeline.whole_pipeline import Tables

story = Stories()

_BOUNDS = ("start_after", "start_by", "end_after", "end_by")
_DURATIONS = ("min_duration_ms", "max_duration_ms")


def _found(rows: Rows, *columns: str) -> list[tuple[object, ...]]:
    return [
        tuple(row[column] for column in columns)
        for row in sorted(rows(GOLD_URP), key=lambda row: row["start_by"])
    ]


@story
def a_shortage_lies_between_what_was_seen_around_it() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(0)
    a.sees(30, isr=[1, 2])
    b.sees(45, isr=[1])
    a.sees(60.0015)
    rows = yield a.events + b.events
    missing = [
        {"since": at(30), "until": at(45), "brokers": [3]},
        {"since": at(45), "until": at(60.0015), "brokers": [2, 3]},
    ]
    bounds = (at(0), at(30), at(45), at(60.0015))
    assert_table(
        rows(GOLD_URP),
        "cluster_id topic topic_key partition start_after start_by end_after end_by min_isr replicas missing"
        " is_leaderless min_duration_ms max_duration_ms",
        (CLUSTER, TOPIC, ID, 0, *bounds, 1, 3, missing, False, 15_000, 60_001),
    )


@story
def a_shortage_that_nobody_saw_begin_or_end_is_open_there() -> Story:
    boot = Boot("a")
    boot.sees(30, isr=[1, 2])
    rows = yield boot.events
    assert _found(rows, *_BOUNDS, *_DURATIONS) == [(None, at(30), at(30), None, 0, None)]


@story
def a_topic_that_is_gone_is_short_of_replicas_no_longer() -> Story:
    boot = Boot("a")
    boot.sees(0)
    boot.sees(30, isr=[1, 2])
    boot.ends(90, "gone")
    rows = yield boot.events
    assert _found(rows, *_BOUNDS, *_DURATIONS) == [(at(0), at(30), at(30), at(90), 0, 90_000)]


@story
def within_an_epoch_states_are_ordered_by_time_and_epochs_come_first() -> Story:
    a, b = Boot("a"), Boot("b", clock_s=-3_000)
    a.sees(0, epoch=1)
    a.sees(30, epoch=1, isr=[1, 2])
    b.sees(40, epoch=2)  # reported as if it had been before all of that
    rows = yield a.events + b.events
    assert _found(rows, *_BOUNDS, *_DURATIONS) == [(at(0), at(30), at(30), at(30), 0, None)]
    assert _found(rows, "missing") == [([{"since": at(30), "until": at(30), "brokers": [3]}],)]


@story
def a_shortage_over_several_epochs_and_hours_is_one() -> Story:
    boot = Boot("a")
    boot.sees(0, epoch=1)
    for seconds, epoch in ((600, 1), (1_300, 1), (1_400, 2), (9_000, 3)):
        boot.sees(seconds, epoch=epoch, isr=[1])
    boot.sees(9_060, epoch=3)
    rows = yield boot.events
    assert _found(rows, *_BOUNDS) == [(at(0), at(600), at(9_000), at(9_060))]


@story
def shortages_with_a_whole_state_between_them_are_two() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(0, isr=[1])
    b.sees(10)
    a.sees(20, isr=[1])
    rows = yield a.events + b.events
    assert _found(rows, *_BOUNDS) == [
        (None, at(0), at(0), at(10)),
        (at(10), at(20), at(20), None),
    ]


@story
def a_shortage_without_a_leader_says_so() -> Story:
    boot = Boot("a")
    boot.sees(0, leader=None, epoch=1, isr=[])
    boot.sees(9, leader=1, epoch=2, isr=[1])
    boot.sees(10, leader=1, epoch=2)
    boot.sees(20, leader=1, epoch=2, isr=[1])
    rows = yield boot.events
    assert _found(rows, "is_leaderless", "min_isr") == [(True, 0), (False, 1)]


@story
def a_clock_that_is_wrong_makes_up_no_shortage() -> Story:
    boots = [*(Boot(name) for name in "abc"), Boot("ahead", clock_s=900)]
    for boot in boots:
        for epoch in range(1, 6):
            boot.looks(epoch * 100 - 1)
            boot.sees(epoch * 100, epoch=epoch)
        boot.sees(600, epoch=5, isr=[1, 2])
        boot.sees(700, epoch=5)
        boot.beats(3_000)
    rows = yield [event for boot in boots for event in boot.events]
    assert _found(rows, *_BOUNDS) == [(at(500), at(600), at(600), at(700))]


@story
def a_shortage_that_began_before_the_last_complete_state_has_no_start() -> Story:
    a, b = Boot("a"), Boot("b", clock_s=-20)
    a.sees(30, epoch=1)
    b.sees(40, epoch=2, isr=[1])  # at 20, by its clock
    b.sees(60, epoch=3)
    rows = yield a.events + b.events
    assert _found(rows, *_BOUNDS, *_DURATIONS) == [(None, at(20), at(20), at(40), 0, None)]


@story
def brokers_that_tell_no_epochs_have_shortages_too() -> Story:
    boot = Boot("a")
    boot.sees(0, epoch=None, topic_id=None)
    boot.sees(10, epoch=None, topic_id=None, isr=[2, 3])
    rows = yield boot.events
    assert _found(rows, "topic_key", "start_after") == [("orders", at(0))]


@story.test
def test_under_replicated(story: Tale, reported: Outcome, tables: Tables) -> None:
    reported.check(story, tables)
