"""Fleets with wrong clocks: what the tables say is true, and hardly less than by clocks that are right."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.clock_judge import judge
from tests.pipeline.skewed_fleet import skewed_fleet

if TYPE_CHECKING:
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from tests.pipeline.clock_judge import Judged
    from tests.pipeline.fleets import Event

#: With constant errors, steps, drift and paused machines. A hundred: `make test-pipeline-clocks`.
SEEDS = (3, 4)


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> Judged:
    return judge(spark, SEEDS)


def test_wrong_clocks_make_up_no_shortage_and_hide_none(judged: Judged) -> None:
    ours, theirs = judged.skewed, judged.right
    assert ours.rows > 100
    assert ours.inverted == 0
    assert ours.phantoms <= 0.01 * ours.rows
    assert ours.found >= 0.99 * theirs.found


def test_bounds_of_shortages_hold_the_truth_and_are_not_wide(judged: Judged) -> None:
    ours, theirs = judged.skewed, judged.right
    assert ours.bounds_true >= 0.99 * ours.bounds
    assert ours.certain_true_s >= 0.99 * ours.certain_s
    assert ours.certain_true_s >= 0.95 * theirs.certain_true_s
    assert statistics.median(ours.widths) <= 2 * statistics.median(theirs.widths)


def test_no_epoch_is_dated_before_it_began(judged: Judged) -> None:
    assert judged.epochs > 50
    assert judged.epochs_too_early == 0
    assert statistics.median(judged.lateness_s) <= 2 * statistics.median(judged.lateness_right_s)


def test_delays_and_hours_are_those_of_right_clocks(judged: Judged) -> None:
    assert judged.waits >= 0.9 * judged.waits_right
    assert judged.waits_true >= 0.97 * judged.waits
    for table, counted in judged.counted.items():
        assert judged.misplaced[table] <= 0.01 * counted, table
    assert statistics.median(judged.advice) <= 0.05


def test_the_wrong_clocks_are_named_and_no_right_ones(judged: Judged) -> None:
    assert judged.wrong_named >= 5
    assert judged.missed == []
    assert judged.right_named == []


def test_the_events_by_right_clocks_are_the_same_but_for_the_times_of_wrong_ones() -> None:
    fleet = skewed_fleet(1, hours=0.5, sidecars=10)
    kinds = {sidecar.name: sidecar.kind for sidecar in fleet.sidecars}
    assert {*kinds.values()} > {"right"}
    pairs = zip(fleet.events(skewed=True), fleet.events(skewed=False), strict=True)
    differ = {ours["sidecar_id"] for ours, theirs in pairs if _apart_s(ours, theirs) > 1}
    assert differ == {name for name, kind in kinds.items() if kind != "right"}


def _apart_s(ours: Event, theirs: Event) -> float:
    """How far apart two events are in seconds, that are otherwise the same."""
    times = ("observed_at", "started_at")
    assert {n: v for n, v in ours.items() if n not in times} == {
        n: v for n, v in theirs.items() if n not in times
    }
    apart: timedelta = ours["observed_at"] - theirs["observed_at"]
    return abs(apart.total_seconds())
