"""gold_incidents: what belongs together, by hand and against the simulator's own account of what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.tables import GOLD_INCIDENTS
from tests.pipeline.fleets import Boot, at
from tests.pipeline.incident_scores import Scores, fleets, found_in_truth, plan_of
from tests.pipeline.stories import Stories

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.stories import Outcome, Rows, Story, Tale
    from tests.pipeline.whole_pipeline import Tables

story = Stories()


def _found(rows: Rows, *columns: str) -> list[tuple[object, ...]]:
    ordered = sorted(rows(GOLD_INCIDENTS), key=lambda row: row["began_by"])
    return [tuple(row[column] for column in columns) for row in ordered]


def _broker_1_goes(boot: Boot, seconds: float, epoch: int) -> None:
    for partition in (0, 1):
        boot.sees(seconds, partition=partition, leader=2, epoch=epoch, isr=[2, 3])


def _broker_1_is_back(boot: Boot, seconds: float, epoch: int) -> None:
    for partition in (0, 1):
        boot.sees(seconds, partition=partition, leader=2, epoch=epoch)


def _all_is_well(boot: Boot, seconds: float, epoch: int = 1) -> None:
    for partition in (0, 1):
        boot.sees(seconds, partition=partition, leader=1, epoch=epoch)


@story
def a_broker_that_fails_is_one_incident_with_its_moves_shortages_and_failures() -> Story:
    boot = Boot("a")
    _all_is_well(boot, 0)
    _broker_1_goes(boot, 100, epoch=2)
    boot.produces(110, latency={900: 5}, errors={"REQUEST_TIMED_OUT": 7}, broker=1, partition=1)
    _broker_1_is_back(boot, 200, epoch=2)
    _all_is_well(boot, 400, epoch=3)
    boot.beats(2_000)
    rows = yield boot.events
    assert _found(rows, "kind", "broker", "began_by", "over_by", "times") == [
        ("broker_down", 1, at(100), at(200), 1)
    ]
    harm = ("partitions_short", "leaders_moved", "failed", "errors", "topics", "services")
    errors = [{"error": "REQUEST_TIMED_OUT", "records": 7}]
    assert _found(rows, *harm) == [(2, 2, 7, errors, ["orders"], ["shop"])]


@story
def a_broker_that_comes_and_goes_is_one_incident_and_one_that_does_not_come_back_is_not_over() -> Story:
    boot = Boot("a")
    _all_is_well(boot, 0)
    for n in range(3):
        _broker_1_goes(boot, 100 + n * 100, epoch=2 + 2 * n)
        _broker_1_is_back(boot, 150 + n * 100, epoch=2 + 2 * n)
        _all_is_well(boot, 160 + n * 100, epoch=3 + 2 * n)
    _broker_1_goes(boot, 2_000, epoch=9)
    boot.beats(2_100)
    rows = yield boot.events
    assert _found(rows, "kind", "broker", "began_by", "over_by", "times") == [
        ("broker_down", 1, at(100), at(350), 3),
        ("broker_down", 1, at(2_000), None, 1),
    ]


@story
def a_follower_that_is_behind_is_an_incident_of_its_partition_after_five_minutes() -> Story:
    boot = Boot("a")
    for partition, until in ((0, 390), (1, 420)):
        boot.sees(0, partition=partition)
        boot.sees(100, partition=partition, isr=[1, 2])
        boot.sees(until, partition=partition)
    rows = yield boot.events
    # Broker 3 is missing from both of its partitions: to a sidecar that sees no more, it is down.
    assert _found(rows, "kind", "broker") == [("broker_down", 3)]


@story
def of_many_partitions_two_that_lack_a_follower_are_incidents_if_they_last() -> Story:
    boot = Boot("a")
    for partition in range(8):
        boot.sees(0, partition=partition)
    for partition, until in ((0, 390), (1, 420)):
        boot.sees(100, partition=partition, isr=[1, 2])
        boot.sees(until, partition=partition)
    rows = yield boot.events
    assert _found(rows, "kind", "broker", "partition", "began_by", "over_by") == [
        ("replicas_behind", -1, 1, at(100), at(420))
    ]


@story
def a_broker_that_is_missing_here_when_it_is_back_there_is_not_down() -> Story:
    """One refresh shows both, so they have the same time."""
    boot = Boot("a")
    for partition in (0, 1):
        boot.sees(0, partition=partition)
    boot.sees(100, partition=0, isr=[1, 2])
    boot.sees(300, partition=0)
    boot.sees(300, partition=1, isr=[1, 2])
    boot.sees(700, partition=1)
    rows = yield boot.events
    assert _found(rows, "kind", "partition", "began_by", "over_by") == [
        ("replicas_behind", 1, at(300), at(700))
    ]


@story
def two_followers_that_are_behind_at_once_are_one_shortage_as_long_as_it_lasts() -> Story:
    boot = Boot("a")
    for partition in range(8):
        boot.sees(0, partition=partition)
    for partition, seconds in ((0, 160), (1, 320)):
        boot.sees(100, partition=partition, isr=[1, 2])
        boot.sees(110, partition=partition, isr=[1])
        boot.sees(100 + seconds, partition=partition)
    rows = yield boot.events
    assert _found(rows, "kind", "partition", "began_by", "over_by", "times") == [
        ("replicas_behind", 1, at(100), at(420), 1)
    ]


@story
def a_broker_stays_down_if_another_one_fails_too() -> Story:
    boot = Boot("a")
    boot.sees(0)
    boot.sees(100, leader=2, epoch=1, isr=[2, 3])
    boot.sees(200, leader=3, epoch=2, isr=[3])
    boot.sees(900, leader=3, epoch=2)
    boot.beats(2_000)
    rows = yield boot.events
    assert _found(rows, "kind", "broker", "began_by", "over_by", "times") == [
        ("broker_down", 1, at(100), at(900), 1),
        ("broker_down", 2, at(200), at(900), 1),
    ]


@story
def a_broker_is_down_if_a_third_of_its_partitions_lack_it_however_often_they_were_reassigned() -> Story:
    boot = Boot("a")
    for seconds, replicas in ((0, [1, 2, 3]), (10, [1, 2, 3, 4]), (20, [1, 3, 4]), (30, [4, 1, 2])):
        for partition in range(3):
            boot.sees(seconds, partition=partition, leader=4, isr=replicas, replicas=replicas)
    for partition in (0, 1):
        boot.sees(100, partition=partition, leader=4, isr=[4, 2], replicas=[4, 1, 2])
    boot.beats(2_000)
    rows = yield boot.events
    assert _found(rows, "kind", "broker", "began_by", "over_by") == [("broker_down", 1, at(100), None)]


@story
def a_leader_that_is_moved_to_and_fro_flaps_and_two_moves_are_none() -> Story:
    boot = Boot("a")
    for partition, moves in ((0, 4), (1, 2)):
        for n in range(moves + 1):
            boot.sees(n * 60, partition=partition, leader=1 + n % 2, epoch=n)
    boot.beats(3_000)
    rows = yield boot.events
    assert _found(rows, "kind", "partition", "began_by", "over_by", "times") == [
        ("leader_flapping", 0, at(60), at(240), 4)
    ]


@story
def records_that_a_topic_refuses_are_no_fault_of_a_broker_that_is_down() -> Story:
    boot = Boot("a")
    _all_is_well(boot, 0)
    _broker_1_goes(boot, 100, epoch=2)
    for n in range(20):
        boot.produces(100 + 10 * n, errors={"INVALID_RECORD": 3}, broker=2, partition=1)
    _broker_1_is_back(boot, 200, epoch=2)
    boot.beats(2_000)
    rows = yield boot.events
    assert _found(rows, "kind", "topic", "failed", "over_by") == [
        ("produces_failing", "orders", 60, at(290)),
        ("broker_down", "", 0, at(200)),
    ]


@story
def failures_that_still_go_on_are_not_over() -> Story:
    boot = Boot("a")
    for n in range(20):
        boot.produces(10 * n, errors={"INVALID_RECORD": 3}, latency={900: 50})
    boot.beats(300)
    rows = yield boot.events
    assert _found(rows, "kind", "over_by") == [("produces_failing", None)]


@story
def a_single_minute_of_failures_and_less_than_a_hundredth_are_no_incident() -> Story:
    boot = Boot("a")
    boot.produces(10, errors={"INVALID_RECORD": 3})
    for n in range(120, 150):
        boot.produces(10 * n, errors={"INVALID_RECORD": 1}, latency={900: 200})
    rows = yield boot.events
    assert _found(rows, "kind") == []


@story.test
def test_incidents(story: Tale, reported: Outcome, tables: Tables) -> None:
    reported.check(story, tables)


def test_the_rules_find_the_incidents_of_the_simulators_own_account() -> None:
    """In the true history they find each one, and nothing else."""
    found, true = zip(*(found_in_truth(plan_of(seed)) for seed in (1, 3)), strict=True)
    scores = Scores([row for rows in found for row in rows], [one for ones in true for one in ones])
    assert len(scores.found) > 20
    assert (scores.wrong, scores.missed) == ([], []), scores.table()


@pytest.mark.timeout(7_200)
def test_the_table_has_the_incidents_of_the_simulators_own_account_over_100_seeds(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables, true = fleets(spark, tmp_path / "events", range(1, 101))
    scores = Scores(tables.rows(GOLD_INCIDENTS), true)
    print(scores.table())
    found = f"{scores.table()}\nwrong: {scores.wrong}\nmissed: {scores.missed}"
    assert scores.precision() >= 0.95, found
    assert scores.recall() >= 0.95, found
