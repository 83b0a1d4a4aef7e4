"""gold_data_quality: gaps, silence, clocks and conflicts; and gold_rejects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pipeline.bronze import REJECTS_SCHEMA
from pipeline.gold.data_quality import rejects
from pipeline.tables import BRONZE_REJECTS, GOLD_DATA_QUALITY
from tests.pipeline.fleets import CLUSTER, Boot, at
from tests.pipeline.stories import LATEST_S, Stories, assert_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.fleets import Event
    from tests.pipeline.stories import Outcome, Rows, Story, Tale
    from tests.pipeline.whole_pipeline import Tables

story = Stories()


def _said(rows: Rows, *columns: str) -> dict[tuple[str, int], tuple[object, ...]]:
    """Those columns by sidecar and boot."""
    return {
        (row["sidecar_id"], row["boot_id"]): tuple(row[column] for column in columns)
        for row in rows(GOLD_DATA_QUALITY)
    }


@story
def lines_that_are_not_there_are_missing_whatever_the_reason() -> Story:
    boot = Boot("a")
    for seq in (1, 2, 64, 65, 130):
        boot.emits(seq, "connection", seq=seq, broker=1, state="ready")
    boot.emits(200, "heartbeat", seq=131, dropped=7, metadata_max_age_ms=1, version="1.2")
    rows = yield boot.events * 2
    lines = (6, 125, 7, True)
    assert_table(
        rows(GOLD_DATA_QUALITY),
        "cluster_id sidecar_id boot_id service version first_event last_event"
        " received missing dropped_reported is_silent clock_offset_ms is_clock_suspect is_left_out"
        " clock_shift_ms clock_shift_error_ms epoch_conflicts",
        (CLUSTER, "a", 1, "shop", "1.2", at(1), at(200), *lines, None, False, False, None, None, 0),
    )


@story
def a_boot_is_on_the_cluster_that_it_came_to_know() -> Story:
    boot, never = Boot("a", cluster=None), Boot("b", cluster=None)
    boot.beats(0)
    boot.cluster = "c"
    boot.beats(60, dropped=1)
    never.beats(0)
    rows = yield boot.events + never.events
    assert _said(rows, "cluster_id", "received", "first_event", "last_event") == {
        ("a", 1): ("c", 2, at(0), at(60)),
        ("b", 1): ("", 1, at(0), at(0)),
    }


@story
def a_boot_that_was_pointed_at_another_cluster_is_on_that_one() -> Story:
    boot = Boot("a", cluster="x")
    boot.beats(0)
    boot.cluster = "b"
    boot.beats(60)
    boot.cluster = None
    boot.beats(120)
    rows = yield boot.events
    assert _said(rows, "cluster_id", "last_event") == {("a", 1): ("b", at(120))}


@story
def a_sidecar_is_silent_if_its_last_boot_was_not_heard_of_for_three_minutes() -> Story:
    stopped, restarted, again, alive = Boot("a"), Boot("b", boot_id=2), Boot("b", boot_id=1), Boot("c")
    stopped.beats(LATEST_S - 181)
    restarted.beats(LATEST_S - 500)
    again.beats(LATEST_S - 180)
    alive.beats(LATEST_S)
    rows = yield stopped.events + restarted.events + again.events + alive.events
    assert _said(rows, "is_silent") == {
        ("a", 1): (True,),
        ("b", 1): (False,),
        ("b", 2): (False,),
        ("c", 1): (False,),
    }


def _sees(boot: Boot, seconds: float, epoch: int, *, looked_s: float = 1) -> None:
    """Of an epoch that began since the boot looked the last time, so many seconds before."""
    boot.looks(seconds - looked_s)
    boot.sees(seconds, epoch=epoch)


def _watching(*clocks_s: float, until: float, epochs: int = 5) -> list[Event]:
    """Sidecars 0, 1, 2... that see epochs at once, each by its own clock, and one heartbeat at the end."""
    boots = [Boot(str(n), clock_s=clock_s) for n, clock_s in enumerate(clocks_s)]
    for boot in boots:
        for epoch in range(epochs):
            _sees(boot, until - 1_000 + epoch * 100, epoch)
        boot.beats(until)
    return [event for boot in boots for event in boot.events]


@story
def a_clock_that_is_off_by_a_second_more_than_its_looks_explain_is_suspect() -> Story:
    rows = yield _watching(0, 0, 2, 2.001, -135.0005, 0, 0, until=1_000)
    assert _said(rows, "clock_offset_ms", "is_clock_suspect") == {
        ("0", 1): (0, False),
        ("1", 1): (0, False),
        ("2", 1): (1_000, False),
        ("3", 1): (1_001, True),
        ("4", 1): (-134_001, True),
        ("5", 1): (0, False),
        ("6", 1): (0, False),
    }


@story
def the_narrowest_of_all_looks_bound_a_clocks_error() -> Story:
    boot = Boot("wrong", clock_s=-30)
    for epoch, (looked_s, later_s) in enumerate([(1, 0), (9, 0), (90, 50), (95, 90), (9, 4)]):
        _sees(boot, epoch * 100 + later_s, epoch, looked_s=looked_s)
    boot.beats(1_000)
    rows = yield _watching(0, 0, 0, until=1_000) + boot.events
    # It asked 5 s before the last two epochs were there, and saw the first of these at once.
    assert _said(rows, "clock_offset_ms", "clock_shift_ms", "clock_shift_error_ms")["wrong", 1] == (
        -29_000,
        -32_000,
        3_000,
    )


@story
def of_many_looks_one_may_be_wrong() -> Story:
    """Its line about an epoch was lost, and it reports the epoch again later."""
    lost = Boot("lost")
    for epoch in range(30):
        _sees(lost, epoch * 100 + (50 if epoch == 9 else 0), epoch)
    rows = yield _watching(0, 0, 0, until=1_000, epochs=30) + lost.events
    assert _said(rows, "clock_offset_ms", "is_clock_suspect")["lost", 1] == (0, False)


@story
def a_refresh_that_failed_is_no_look_and_an_answer_is_as_old_as_its_question() -> Story:
    failed, slow = Boot("failed", clock_s=50), Boot("slow", clock_s=50)
    for epoch in range(5):
        failed.looks(epoch * 100 - 60)
        slow.looks(epoch * 100 - 1, duration_s=59)
        failed.looks(epoch * 100 - 1, outcome="timeout")
        for boot in (failed, slow):
            boot.sees(epoch * 100, epoch=epoch)
    rows = yield _watching(0, 0, 0, 0, until=1_000) + failed.events + slow.events
    assert _said(rows, "clock_offset_ms")["failed", 1] == (0,)
    assert _said(rows, "clock_offset_ms")["slow", 1] == (0,)


@story
def a_clock_that_was_stepped_or_drifts_is_suspect() -> Story:
    stepped, drifts, both = Boot("stepped"), Boot("drifts"), Boot("steady")
    for boot in (stepped, both):
        boot.beats(0)
        boot.beats(500, uptime_s=500 - (1.001 if boot is stepped else 1))
    for epoch in range(5):
        _sees(drifts, epoch * 104, epoch)
    rows = yield _watching(0, 0, 0, 0, 0, until=1_000) + stepped.events + drifts.events + both.events
    assert _said(rows, "is_clock_suspect", "is_left_out")["stepped", 1] == (True, True)
    assert _said(rows, "clock_offset_ms")["stepped", 1] == (1_001,)
    assert _said(rows, "is_clock_suspect", "is_left_out")["drifts", 1] == (True, True)
    assert _said(rows, "is_clock_suspect", "is_left_out")["steady", 1] == (False, False)


@story
def a_boot_whose_clock_is_wrong_is_left_out_with_those_of_its_sidecar_that_tell_nothing() -> Story:
    short, right = Boot("3", boot_id=2, clock_s=600), Boot("3", boot_id=3)
    short.beats(1_010)
    for epoch in range(3):
        _sees(right, epoch * 100, epoch)  # by a clock that was right then
    rows = yield _watching(0, 0, 0, 600, until=1_000) + short.events + right.events
    assert _said(rows, "is_clock_suspect", "is_left_out", "clock_shift_ms", "clock_shift_error_ms") == {
        ("0", 1): (False, False, None, None),
        ("1", 1): (False, False, None, None),
        ("2", 1): (False, False, None, None),
        ("3", 1): (True, True, 600_000, 1_000),
        ("3", 2): (False, True, 600_000, 1_000),
        ("3", 3): (False, False, None, None),
    }


@story
def where_half_of_the_clocks_are_suspect_none_is_left_out() -> Story:
    stepped = [Boot(name) for name in "abcd"]
    for boot in stepped:
        boot.beats(0)
        boot.beats(500, uptime_s=9)
    rows = yield _watching(0, 0, 0, 0, until=1_000) + [event for boot in stepped for event in boot.events]
    assert {_said(rows, "is_clock_suspect", "is_left_out")[name, 1] for name in "abcd"} == {(True, False)}


@story
def where_no_three_clocks_agree_none_is_compared() -> Story:
    rows = yield _watching(0, 1_200, 2_400, 3_600, 0, until=1_000)
    assert set(_said(rows, "clock_offset_ms", "is_clock_suspect").values()) == {(None, False)}


@story
def a_sidecar_that_saw_some_epochs_in_time_was_held_back_and_has_the_right_clock() -> Story:
    held = Boot("held")
    for epoch, later in enumerate((0, 0, 2, 900, 800)):
        if epoch < 4:  # then it is held
            held.looks(epoch * 100 - 1)
        held.sees(epoch * 100 + later, epoch=epoch)
    held.beats(1_300)
    rows = yield _watching(0, 0, 0, until=1_000) + held.events
    assert _said(rows, "clock_offset_ms", "is_left_out")["held", 1] == (0, False)


@story
def two_sidecars_cannot_tell_whose_clock_is_wrong() -> Story:
    rows = yield _watching(0, 500, until=1_000)
    assert set(_said(rows, "clock_offset_ms", "is_clock_suspect").values()) == {(None, False)}


@story
def what_a_boot_finds_when_it_starts_says_nothing_of_its_clock() -> Story:
    late = Boot("late")
    late.sees(990, epoch=4)
    rows = yield _watching(0, 0, 0, until=1_000) + late.events
    assert _said(rows, "clock_offset_ms")["late", 1] == (None,)


@story
def a_clock_that_is_ahead_makes_nobody_silent_and_one_behind_is_set_right() -> Story:
    # These are after all others, by the clocks that can be believed.
    rows = yield _watching(0, 0, 0, 600, -600, until=LATEST_S)
    assert set(_said(rows, "is_silent").values()) == {(False,)}


@story
def a_clock_that_is_ahead_and_cannot_be_compared_makes_nobody_silent() -> Story:
    boots = [Boot("a"), Boot("b"), Boot("ahead", clock_s=3_590)]
    for boot in boots:
        boot.beats(LATEST_S)
    rows = yield [event | {"received_at": at(LATEST_S)} for boot in boots for event in boot.events]
    assert set(_said(rows, "is_silent", "clock_offset_ms").values()) == {(False, None)}
    assert _said(rows, "last_event")["ahead", 1] == (at(LATEST_S + 3_590),)


@story
def a_boot_that_saw_an_epoch_with_two_leaders_has_a_conflict() -> Story:
    a, b, c = Boot("a"), Boot("b"), Boot("c")
    a.sees(0, epoch=1, leader=1)
    b.sees(1, epoch=1, leader=2)
    c.sees(2, epoch=2, leader=2)
    rows = yield a.events + b.events + c.events
    assert _said(rows, "epoch_conflicts") == {("a", 1): (1,), ("b", 1): (1,), ("c", 1): (0,)}


@story.test
def test_data_quality(story: Tale, reported: Outcome, tables: Tables) -> None:
    reported.check(story, tables)


def test_a_rejected_line_counts_once_by_reason_and_the_least_is_the_example(spark: SparkSession) -> None:
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
    lines = [("not_json", "{b"), ("not_json", "{a"), ("not_json", "{b"), ("too_old", "{}")]
    bronze = spark.createDataFrame(
        [
            (reason, None, head, 2, f"hash of {head}", "file", time)
            for (reason, head), time in zip(lines, times, strict=True)
        ],
        REJECTS_SCHEMA,
    )
    found = rejects({BRONZE_REJECTS: bronze}.__getitem__).toArrow().to_pylist()
    assert_table(
        found,
        "reason lines first_received last_received example",
        ("not_json", 2, times[0], times[2], "{a"),
        ("too_old", 1, times[3], times[3], "{}"),
    )
