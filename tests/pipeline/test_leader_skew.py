"""gold_leader_skew: each broker's part of the leaders and of the load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.tables import GOLD_LEADER_SKEW
from tests.pipeline.fleets import CLUSTER, Boot
from tests.pipeline.stories import Stories, assert_table

if TYPE_CHECKING:
    from tests.pipeline.stories import Outcome, Story, Tale
    from tests.pipeline.whole_pipeline import Tables

story = Stories()


@story
def a_broker_that_leads_nothing_is_the_one_to_see() -> Story:
    boot = Boot("a")
    for partition, leader in enumerate([1, 1, 1, 2]):
        boot.sees(0, partition=partition, leader=leader)
    rows = yield boot.events
    assert_table(
        rows(GOLD_LEADER_SKEW),
        "cluster_id broker leaders share fair_share excess records bytes load_share",
        (CLUSTER, 1, 3, 0.75, 1 / 3, 1.25, 0, 0, None),
        (CLUSTER, 2, 1, 0.25, 1 / 3, -0.25, 0, 0, None),
        (CLUSTER, 3, 0, 0.0, 1 / 3, -1.0, 0, 0, None),
    )


@story
def brokers_are_those_of_the_latest_state_of_a_topic_that_is_there() -> Story:
    boot = Boot("a")
    boot.sees(0, leader=1, replicas=[1, 9])
    boot.sees(10, leader=1, replicas=[1, 2])
    boot.sees(0, partition=1, leader=4, replicas=[1, 2])
    boot.sees(0, topic="old", topic_id="old", leader=7, replicas=[7, 8])
    boot.ends(20, "gone", topic="old", topic_id="old")
    rows = yield boot.events
    assert_table(rows(GOLD_LEADER_SKEW), "broker leaders", (1, 1), (2, 0), (4, 1))


@story
def a_clock_that_is_wrong_says_nothing_of_replicas_that_others_see() -> Story:
    boots = [*(Boot(name) for name in "abc"), Boot("ahead", clock_s=900)]
    for boot in boots:
        for epoch in range(1, 6):
            boot.looks(epoch * 100 - 1)
            boot.sees(epoch * 100, epoch=epoch)
    boots[-1].sees(600, epoch=5, replicas=[1, 9])
    rows = yield [event for boot in boots for event in boot.events]
    assert_table(rows(GOLD_LEADER_SKEW), "broker leaders", (1, 1), (2, 0), (3, 0))


@story
def load_is_that_of_the_windows_and_its_shares_those_of_all_of_it() -> Story:
    boot = Boot("a")
    boot.sees(0, leader=1, replicas=[1, 2])
    boot.produces(-8 * 24 * 3_600, broker=1, latency={1_000: 7})  # more than a week before
    for broker, records in ((1, 1), (2, 2), (9, 1)):
        boot.produces(10, broker=broker, latency={1_000: records})
    rows = yield boot.events
    assert_table(
        rows(GOLD_LEADER_SKEW), "broker records bytes load_share", (1, 1, 100, 0.25), (2, 2, 200, 0.5)
    )


@story
def without_leaders_and_load_there_are_no_shares() -> Story:
    boot = Boot("a")
    boot.sees(0, leader=None, replicas=[1])
    rows = yield boot.events
    columns = "broker leaders share fair_share excess records bytes load_share"
    assert_table(rows(GOLD_LEADER_SKEW), columns, (1, 0, None, 1.0, None, 0, 0, None))


@story.test
def test_leader_skew(story: Tale, reported: Outcome, tables: Tables) -> None:
    reported.check(story, tables)
