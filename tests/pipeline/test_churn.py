"""gold_churn, gold_churn_brokers and gold_flapping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.tables import GOLD_CHURN, GOLD_CHURN_BROKERS, GOLD_FLAPPING
from tests.pipeline.fleets import CLUSTER, ID, NEXT_ID, TOPIC, Boot, at
from tests.pipeline.stories import Stories, assert_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.pipeline.fleets import Event
    from tests.pipeline.stories import Outcome, Story, Tale
    from tests.pipeline.whole_pipeline import Tables

story = Stories()

#: T0 is twenty minutes before a full hour.
_NEXT_HOUR_S = 1_200


def _leaders(
    *leaders: int | None, seconds: Sequence[float], partition: int = 0, sidecar: str = "a", topic_id: str = ID
) -> list[Event]:
    boot = Boot(sidecar, boot_id=partition)
    for epoch, (second, leader) in enumerate(zip(seconds, leaders, strict=True)):
        boot.sees(second, epoch=epoch, leader=leader, partition=partition, topic_id=topic_id)
    return boot.events


@story
def elections_are_counted_in_the_hour_in_which_they_were_seen() -> Story:
    events = _leaders(1, 2, 2, 3, seconds=[0, 10, _NEXT_HOUR_S - 0.000001, _NEXT_HOUR_S])
    events += _leaders(1, 2, seconds=[0, 20], partition=1)
    events += _leaders(1, 2, seconds=[0, _NEXT_HOUR_S + 5], partition=1, sidecar="late")
    events += _leaders(1, 2, seconds=[30, 40], sidecar="b", topic_id=NEXT_ID)  # created again
    rows = yield events
    assert_table(
        rows(GOLD_CHURN),
        "cluster_id hour topic elections leader_changes partitions",
        (CLUSTER, at(_NEXT_HOUR_S - 3_600), TOPIC, 4, 3, 3),
        (CLUSTER, at(_NEXT_HOUR_S), TOPIC, 1, 1, 1),
    )
    assert_table(
        rows(GOLD_CHURN_BROKERS),
        "cluster_id hour broker gained lost",
        (CLUSTER, at(_NEXT_HOUR_S - 3_600), 1, 0, 3),
        (CLUSTER, at(_NEXT_HOUR_S - 3_600), 2, 3, 0),
        (CLUSTER, at(_NEXT_HOUR_S), 2, 0, 1),
        (CLUSTER, at(_NEXT_HOUR_S), 3, 1, 0),
    )


@story
def a_partition_whose_leader_nobody_saw_change_has_no_churn() -> Story:
    rows = yield _leaders(1, seconds=[0])
    assert rows(GOLD_CHURN) + rows(GOLD_CHURN_BROKERS) + rows(GOLD_FLAPPING) == []


@story
def what_one_broker_loses_another_gains_unless_there_is_none() -> Story:
    rows = yield _leaders(1, 2, None, 2, seconds=[0, 1, 2, 3])
    assert_table(rows(GOLD_CHURN_BROKERS), "broker gained lost", (1, 0, 1), (2, 2, 1))


@story
def three_leader_changes_each_within_ten_minutes_of_the_last_are_flapping() -> Story:
    rows = yield _leaders(1, 2, 1, 2, 1, seconds=[0, 100, 700, 1_300, 1_900.000001])
    assert_table(
        rows(GOLD_FLAPPING),
        "cluster_id topic topic_key partition flapping_from flapping_to leader_changes",
        (CLUSTER, TOPIC, ID, 0, at(100), at(1_300), 3),
    )


@story
def elections_that_leave_the_leader_in_place_are_no_flapping() -> Story:
    rows = yield _leaders(1, 2, 2, 2, 1, seconds=[0, 1, 2, 3, 4])
    assert rows(GOLD_FLAPPING) == []


@story
def two_runs_of_one_partition_are_two_rows() -> Story:
    seconds = [0, 1, 2, 3, 5_000, 5_001, 5_002]
    events = _leaders(1, 2, 1, 2, 1, 2, 1, seconds=seconds)
    rows = yield events + _leaders(1, 2, 1, 2, seconds=[9, 9, 9, 9], sidecar="late")
    assert_table(rows(GOLD_FLAPPING), "flapping_from flapping_to", (at(1), at(3)), (at(5_000), at(5_002)))


@story.test
def test_churn(story: Tale, reported: Outcome, tables: Tables) -> None:
    reported.check(story, tables)
