"""gold_staleness and its summary: which sidecars were at risk, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pipeline.gold.staleness import staleness_summary
from pipeline.tables import GOLD_DATA_QUALITY, GOLD_STALENESS, GOLD_STALENESS_SUMMARY
from tests.pipeline.fleets import CLUSTER, ID, INTERVAL_MS, T0, TOPIC, Boot, at
from tests.pipeline.stories import Stories, assert_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.stories import Outcome, Rows, Story, Tale
    from tests.pipeline.whole_pipeline import Tables

story = Stories()


def _waits(rows: Rows, *columns: str) -> dict[tuple[str, int], tuple[object, ...]]:
    """Those columns by sidecar and epoch."""
    return {
        (row["sidecar_id"], row["leader_epoch"]): tuple(row[column] for column in columns)
        for row in rows(GOLD_STALENESS)
    }


@story
def a_sidecar_waits_from_the_fleets_first_sight_to_its_own() -> Story:
    a, b = Boot("a"), Boot("b")
    for boot, later in ((a, 0), (b, 30.0019)):
        boot.sees(0, epoch=1)
        boot.sees(100 + later, epoch=2)
        boot.sees(150, epoch=2)
        boot.beats(200)
    rows = yield a.events + b.events
    assert_table(
        rows(GOLD_STALENESS),
        "cluster_id topic topic_key partition leader_epoch sidecar_id boot_id service fleet_first_seen"
        " reached_at delay_ms is_censored metadata_max_age_ms is_beyond_twice_the_interval",
        *(
            (CLUSTER, TOPIC, ID, 0, 2, *who, 1, "shop", at(100), reached, delay, False, INTERVAL_MS, False)
            for *who, reached, delay in (("a", at(100), 0), ("b", at(130.0019), 30_001))
        ),
    )


@story
def a_later_epoch_is_as_good_as_the_one_that_was_missed() -> Story:
    a, b = Boot("a"), Boot("b")
    for epoch in (1, 2, 3):
        a.sees(epoch * 100, epoch=epoch)
    b.sees(100, epoch=1)
    b.sees(350, epoch=3)
    rows = yield a.events + b.events
    assert _waits(rows, "delay_ms")["b", 2] == (150_000,)
    assert _waits(rows, "delay_ms")["b", 3] == (50_000,)


@story
def who_saw_a_later_epoch_before_anybody_saw_this_one_did_not_wait() -> Story:
    a, b = Boot("a"), Boot("b")
    for boot in (a, b):
        boot.sees(0, epoch=1)
    a.sees(100, epoch=3)
    b.sees(150, epoch=2)  # by an answer of a broker that lags behind
    rows = yield a.events + b.events
    assert _waits(rows, "delay_ms", "reached_at", "is_censored") == {
        ("a", 2): (0, at(100), False),
        ("a", 3): (0, at(100), False),
        ("b", 2): (0, at(150), False),
        ("b", 3): (50_000, None, True),
    }


@story
def who_never_saw_it_is_censored_when_last_heard_of() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(0, epoch=1)
    b.sees(0, epoch=1)
    a.sees(100, epoch=2)
    b.beats(160)
    rows = yield a.events + b.events
    assert _waits(rows, "delay_ms", "reached_at", "is_censored")["b", 2] == (60_000, None, True)


@story
def a_clock_that_is_behind_makes_nobody_else_late() -> Story:
    right, behind = [Boot(name) for name in "abc"], Boot("behind", clock_s=-600)
    for boot in (*right, behind):
        boot.beats(0)
        for epoch in range(5):
            boot.looks(100 * epoch - 1)
            boot.sees(100 * epoch, epoch=epoch)
    behind.sees(450, epoch=5)  # that nobody else sees: nobody knows when it began
    for boot in right:
        boot.beats(600)
    rows = yield [event for boot in (*right, behind) for event in boot.events]
    waits = _waits(rows, "delay_ms", "fleet_first_seen", "is_beyond_twice_the_interval")
    assert [waits[name, 4] for name in "abc"] == [(0, at(400), False)] * 3
    assert waits["behind", 4][0] == 0
    assert {epoch for _, epoch in waits} == {1, 2, 3, 4}


@story
def a_boot_whose_clock_was_stepped_has_no_delays() -> Story:
    right, stepped, blind = [Boot(name) for name in "abc"], Boot("stepped"), Boot("blind")
    for boot in (stepped, blind):
        boot.beats(0)
        boot.beats(450, uptime_s=400)
    for boot in (*right, stepped, blind):
        for epoch in range(5):
            if boot is not blind:  # of which not even the size of the error is known
                boot.looks(100 * epoch - 1)
            boot.sees(100 * epoch, epoch=epoch)
    rows = yield [event for boot in (*right, stepped, blind) for event in boot.events]
    assert {sidecar for sidecar, _ in _waits(rows)} == {*"abc"}


@story
def who_was_gone_before_or_came_after_was_not_at_risk() -> Story:
    a, gone, late, just = Boot("a"), Boot("b"), Boot("c"), Boot("d")
    a.sees(0, epoch=1)
    gone.sees(0, epoch=1)
    gone.beats(99.999999)
    a.sees(100, epoch=2)
    late.sees(150, epoch=1)  # from a broker that lags
    late.sees(160, epoch=2)
    just.sees(100, epoch=1)  # in the instant in which the fleet saw the next one
    just.sees(130, epoch=2)
    rows = yield a.events + gone.events + late.events + just.events
    assert _waits(rows, "delay_ms") == {("a", 2): (0,), ("d", 2): (30_000,)}


@story
def a_boot_waits_for_itself_and_not_for_the_one_before_it() -> Story:
    a, first, second = Boot("a"), Boot("b", boot_id=1), Boot("b", boot_id=2)
    a.sees(0, epoch=1)
    first.sees(0, epoch=1)
    a.sees(100, epoch=2)
    first.beats(110)
    second.sees(120, epoch=2)
    rows = yield a.events + first.events + second.events
    assert [
        (row["boot_id"], row["delay_ms"]) for row in rows(GOLD_STALENESS) if row["sidecar_id"] == "b"
    ] == [(1, 10_000)]


@story
def who_lost_the_topic_meanwhile_is_not_at_risk() -> Story:
    a = Boot("a")
    a.sees(0, epoch=1)
    a.sees(100, epoch=2)
    others = []
    for sidecar, change in (("b", "forgotten"), ("c", "gone"), ("d", "appeared")):
        boot = Boot(sidecar)
        boot.sees(0, epoch=1)
        boot.ends(50, change)
        boot.beats(500)
        others += boot.events
    rows = yield a.events + others
    assert _waits(rows, "is_censored") == {("a", 2): (False,), ("d", 2): (True,)}


@story
def a_sidecar_whose_last_event_lost_the_topic_is_not_at_risk() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(0, epoch=1)
    a.sees(100, epoch=2)
    b.sees(0, epoch=1)
    b.ends(200, "forgotten")
    rows = yield a.events + b.events
    assert _waits(rows).keys() == {("a", 2)}


@story
def who_lost_the_topic_and_found_it_again_waits_as_others_do() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(0, epoch=1)
    a.sees(100, epoch=2)
    a.sees(200, epoch=3)
    b.sees(0, epoch=1)
    b.ends(20, "forgotten")
    b.sees(20, epoch=1)  # in the same instant: it follows the topic again
    b.sees(130, epoch=2)
    b.sees(240, epoch=3)
    rows = yield a.events + b.events
    assert _waits(rows, "delay_ms")["b", 2] == (30_000,)
    assert _waits(rows, "delay_ms")["b", 3] == (40_000,)


@story
def who_lost_the_topic_long_before_waits_as_others_do() -> Story:
    a, b = Boot("a"), Boot("b")
    for epoch in (1, 2, 3):
        a.sees(epoch * 100, epoch=epoch)
    b.sees(100, epoch=1)
    b.ends(120, "forgotten")
    b.sees(210, epoch=2)
    b.sees(350, epoch=3)
    rows = yield a.events + b.events
    assert {key: wait for key, wait in _waits(rows, "delay_ms").items() if key[0] == "b"} == {
        ("b", 3): (50_000,)
    }


@story
def more_than_twice_the_interval_is_beyond_it() -> Story:
    a, on_time, late, unknown = Boot("a"), Boot("b"), Boot("c"), Boot("d")
    limit_s = 2 * INTERVAL_MS / 1_000
    a.sees(0, epoch=1)
    a.sees(10, epoch=2)
    for boot, seconds in ((on_time, limit_s), (late, limit_s + 0.001), (unknown, limit_s + 1)):
        boot.sees(0, epoch=1)
        boot.sees(10 + seconds, epoch=2)
    on_time.beats(300)
    late.beats(300)
    rows = yield a.events + on_time.events + late.events + unknown.events
    waits = _waits(rows, "metadata_max_age_ms", "is_beyond_twice_the_interval")
    assert waits["b", 2] == (INTERVAL_MS, False)
    assert waits["c", 2] == (INTERVAL_MS, True)
    assert waits["d", 2] == (None, None)


@story
def the_summary_has_a_row_for_each_sidecar_each_service_and_the_cluster() -> Story:
    a, b, c = Boot("a", service="shop"), Boot("b", service="shop"), Boot("c", service="bank")
    for boot, seconds in ((a, 100), (b, 140)):
        boot.sees(0, epoch=1)
        boot.sees(seconds, epoch=2)
    c.sees(0, epoch=1)
    c.beats(300)
    rows = yield a.events + b.events + c.events
    assert_table(
        rows(GOLD_STALENESS_SUMMARY),
        "cluster_id service sidecar_id observations censored beyond_twice_the_interval"
        " p50_ms p95_ms p99_ms max_ms",
        (CLUSTER, "shop", "a", 1, 0, 0, 0, 0, 0, 0),
        (CLUSTER, "shop", "b", 1, 0, 0, 40_000, 40_000, 40_000, 40_000),
        (CLUSTER, "shop", None, 2, 0, 0, 0, 40_000, 40_000, 40_000),
        (CLUSTER, "bank", "c", 1, 1, 1, None, None, None, 200_000),
        (CLUSTER, "bank", None, 1, 1, 1, None, None, None, 200_000),
        (CLUSTER, None, None, 3, 1, 1, 40_000, None, None, 200_000),
    )


@story.test
def test_staleness(story: Tale, reported: Outcome, tables: Tables) -> None:
    reported.check(story, tables)


#: Weeks of remission of 21 patients (Freireich et al., 1963), as every textbook has them; censored: True.
_REMISSIONS = [
    (6, False), (6, False), (6, False), (6, True), (7, False), (9, True), (10, False), (10, True), (11, True),
    (13, False), (16, False), (17, True), (19, True), (20, True), (22, False), (23, False), (25, True),
    (32, True), (32, True), (34, True), (35, True),
]  # fmt: skip


def test_quantiles_are_those_of_kaplan_and_meier(spark: SparkSession) -> None:
    """Thousands of factors do not move one either: of waits of 1 to 5,000 ms each quantile is known."""
    cases: dict[str, tuple[list[tuple[int, bool]], tuple[int | None, ...]]] = {
        "textbook": (_REMISSIONS, (23, None, None)),
        "hundred": ([(n, False) for n in range(1, 101)], (50, 95, 99)),
        "nobody": ([(5, True), (9, True)], (None, None, None)),
        "everybody at once": ([(7, False)] * 3, (7, 7, 7)),
        "censored with the last": ([(1, False), (2, False), (2, True)], (2, None, None)),
        "thousands": ([(n, False) for n in range(1, 5_001)], (2_500, 4_750, 4_950)),
    }
    rows = [
        (cluster, "s", "a", T0, delay, is_censored, False)
        for cluster, (waits, _) in cases.items()
        for delay, is_censored in waits
    ]
    rows.append(("long ago", "s", "a", T0, 1, False, False))
    staleness = spark.createDataFrame(
        rows,
        "cluster_id string, service string, sidecar_id string, fleet_first_seen timestamp, delay_ms bigint,"
        " is_censored boolean, is_beyond_twice_the_interval boolean",
    )
    later = {days: T0 + timedelta(days=days) for days in (1, 8)}
    # The latest event of a boot whose clock is right decides what is recent.
    events = [("hundred", later[1], False), ("hundred", later[8], True), ("long ago", later[8], False)]
    quality = spark.createDataFrame(events, "cluster_id string, last_event timestamp, is_left_out boolean")
    read = {GOLD_STALENESS: staleness, GOLD_DATA_QUALITY: quality}
    found = staleness_summary(read.__getitem__).where("service IS NULL").collect()
    assert {row["cluster_id"]: (row["p50_ms"], row["p95_ms"], row["p99_ms"]) for row in found} == {
        cluster: quantiles for cluster, (_, quantiles) in cases.items()
    }
