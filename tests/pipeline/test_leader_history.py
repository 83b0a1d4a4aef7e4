"""gold_leader_history and gold_current_leader: epochs in their order, and what is odd in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.pipeline_history import facts
from pipeline.tables import BRONZE_EVENTS, GOLD_CURRENT_LEADER, GOLD_DATA_QUALITY, GOLD_LEADER_HISTORY
from tests.pipeline.fleets import CLUSTER, ID, NEXT_ID, TOPIC, Boot, at
from tests.pipeline.stories import Stories, assert_table
from tests.pipeline.whole_pipeline import in_order

if TYPE_CHECKING:
    from tests.pipeline.stories import Outcome, Rows, Story, Tale
    from tests.pipeline.whole_pipeline import Row, Tables

story = Stories()


def _flagged(rows: Rows, flag: str) -> list[int]:
    return [row["leader_epoch"] for row in rows(GOLD_LEADER_HISTORY) if row[flag]]


@story
def an_epoch_is_valid_from_its_first_sight_until_that_of_the_next_one() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(10, leader=1, epoch=4)
    b.sees(12, leader=1, epoch=4)
    b.sees(20, leader=2, epoch=5)
    a.sees(25, leader=2, epoch=5)
    b.sees(30, leader=None, epoch=7)
    a.sees(35, leader=None, epoch=7)
    rows = yield a.events + b.events
    place = (CLUSTER, TOPIC, ID, 0)
    assert_table(
        rows(GOLD_LEADER_HISTORY),
        "cluster_id topic topic_key partition leader_epoch leader valid_from valid_to is_current"
        " first_observer last_seen observers missed_epochs is_conflict is_clock_suspect is_leader_change",
        (*place, 4, 1, at(10), at(20), False, "a", at(12), 2, 0, False, False, False),
        (*place, 5, 2, at(20), at(30), False, "b", at(25), 2, 0, False, False, True),
        (*place, 7, -1, at(30), None, True, "b", at(35), 2, 1, False, False, True),
    )
    assert_table(
        rows(GOLD_CURRENT_LEADER),
        "cluster_id topic topic_key partition leader leader_epoch since last_seen",
        (*place, -1, 7, at(30), at(35)),
    )


@story
def epochs_that_are_seen_out_of_order_are_sorted() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(10, leader=1, epoch=4)
    a.sees(30, leader=3, epoch=6)
    b.sees(31, leader=2, epoch=5)  # by an answer of a broker that lags behind
    rows = yield a.events + b.events
    assert_table(
        rows(GOLD_LEADER_HISTORY),
        "leader_epoch leader valid_to",
        (4, 1, at(31)),
        (5, 2, at(30)),
        (6, 3, None),
    )
    assert _flagged(rows, "is_clock_suspect") == [6]


@story
def a_row_says_how_many_epochs_before_it_nobody_saw() -> Story:
    boot = Boot("a")
    for seconds, epoch in enumerate([3, 4, 9]):
        boot.sees(seconds, epoch=epoch)
    rows = yield boot.events
    assert_table(rows(GOLD_LEADER_HISTORY), "leader_epoch missed_epochs", (3, 0), (4, 0), (9, 4))


@story
def a_new_epoch_with_the_same_leader_is_no_leader_change() -> Story:
    boot = Boot("a")
    for epoch, leader in enumerate([1, 1, 2, None, 2]):
        boot.sees(epoch, epoch=epoch, leader=leader)
    rows = yield boot.events
    assert _flagged(rows, "is_leader_change") == [2, 3, 4]
    assert_table(rows(GOLD_LEADER_HISTORY), "leader_epoch leader", (0, 1), (1, 1), (2, 2), (3, -1), (4, 2))


@story
def two_leaders_in_one_epoch_are_a_conflict_and_the_lesser_one_leads() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(0, leader=3, epoch=1)
    b.sees(1, leader=2, epoch=1)
    rows = yield a.events + b.events
    assert_table(rows(GOLD_LEADER_HISTORY), "leader is_conflict", (2, True))


@story
def a_broker_that_cannot_reach_the_leader_contradicts_nobody() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(0, leader=None, epoch=1)
    b.sees(1, leader=2, epoch=1)
    rows = yield a.events + b.events
    assert_table(rows(GOLD_LEADER_HISTORY), "leader is_conflict valid_from", (2, False, at(0)))


@story
def of_two_who_see_an_epoch_at_one_instant_the_lesser_id_was_first() -> Story:
    b, a = Boot("b"), Boot("a")
    b.sees(5, epoch=1)
    a.sees(5, epoch=1)
    rows = yield b.events + a.events
    assert_table(rows(GOLD_LEADER_HISTORY), "first_observer observers", ("a", 2))


@story
def a_sidecar_that_restarts_is_one_observer() -> Story:
    first, second = Boot("a", boot_id=1), Boot("a", boot_id=2)
    first.sees(0, epoch=1)
    second.sees(50, epoch=1)
    rows = yield first.events + second.events
    assert_table(rows(GOLD_LEADER_HISTORY), "observers last_seen", (1, at(50)))


@story
def without_an_epoch_to_rely_on_there_is_no_history() -> Story:
    boot = Boot("a")
    boot.sees(0, epoch=None)
    rows = yield boot.events
    assert rows(GOLD_LEADER_HISTORY) == []


# -- how topics end ------------------------------------------------------------------------------------------


@story
def a_topic_that_is_gone_has_no_current_leader() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(0, epoch=1)
    a.sees(5, epoch=2)
    a.ends(60, "gone")
    b.ends(40, "gone")
    rows = yield a.events + b.events
    assert_table(rows(GOLD_LEADER_HISTORY), "leader_epoch valid_to", (1, at(5)), (2, at(40)))
    assert rows(GOLD_CURRENT_LEADER) == []


@story
def an_end_at_the_instant_of_a_sight_ends_what_was_seen_before_it() -> Story:
    boot = Boot("a")
    boot.sees(0)
    boot.sees(60)
    boot.sees(60, partition=1)
    boot.ends(60, "gone")
    rows = yield boot.events
    columns = "partition valid_to is_current"
    assert_table(rows(GOLD_LEADER_HISTORY), columns, (0, at(60), False), (1, None, True))


@story
def a_topic_that_nobody_asks_for_any_more_still_has_its_leader() -> Story:
    boot = Boot("a")
    boot.sees(0, epoch=1, leader=2)
    boot.ends(60, "forgotten")
    rows = yield boot.events
    assert_table(rows(GOLD_CURRENT_LEADER), "leader since", (2, at(0)))


@story
def a_topic_that_was_recreated_begins_anew_under_its_own_id() -> Story:
    boot = Boot("a")
    boot.sees(0, epoch=7, leader=1)
    boot.ends(60, "recreated", topic_id=ID)
    boot.sees(60, epoch=0, leader=2, topic_id=NEXT_ID)
    rows = yield boot.events
    assert_table(
        rows(GOLD_LEADER_HISTORY),
        "topic_key leader_epoch valid_to is_current is_leader_change",
        (ID, 7, at(60), False, False),
        (NEXT_ID, 0, None, True, False),
    )


@story
def a_topic_is_over_when_another_of_its_name_is_seen_even_if_nobody_says_so() -> Story:
    before, after = Boot("a", boot_id=1), Boot("a", boot_id=2)
    before.sees(0, epoch=7, topic_id=NEXT_ID)
    for partition, seconds in enumerate([90, 120]):
        after.sees(seconds, epoch=0, partition=partition, topic_id=ID)
    rows = yield before.events + after.events
    columns = "topic_key partition valid_to"
    assert_table(rows(GOLD_LEADER_HISTORY), columns, (NEXT_ID, 0, at(90)), (ID, 0, None), (ID, 1, None))
    assert_table(rows(GOLD_CURRENT_LEADER), "topic_key partition", (ID, 0), (ID, 1))


@story
def a_topic_is_not_gone_if_anybody_sees_it_again() -> Story:
    a, b = Boot("a"), Boot("b")
    for partition in (0, 1):
        a.sees(0, epoch=0, partition=partition)
    a.ends(1, "gone")  # a broker that has not heard of it yet
    b.sees(2, epoch=0, partition=1)
    rows = yield a.events + b.events
    assert_table(rows(GOLD_LEADER_HISTORY), "partition valid_to is_current", (0, None, True), (1, None, True))


@story
def a_topic_that_a_clock_ahead_saw_later_ends_when_that_one_says_so() -> Story:
    a, ahead = Boot("a"), Boot("b", clock_s=300)
    a.sees(0, epoch=0)
    ahead.sees(10, epoch=0)
    a.ends(60, "gone")
    ahead.ends(61, "gone")
    rows = yield a.events + ahead.events
    assert_table(rows(GOLD_LEADER_HISTORY), "valid_to last_seen", (at(361), at(310)))


@story
def a_wrong_clock_dates_only_what_nobody_else_saw_and_that_not_after_the_next_epoch() -> Story:
    boots = [*(Boot(name) for name in "abc"), Boot("behind", clock_s=-900)]
    for boot in boots:
        for epoch in range(1, 6):
            boot.looks(epoch * 100 - 1)
            boot.sees(epoch * 100, epoch=epoch)
        if boot is boots[-1]:
            boot.sees(695, epoch=6)
            boot.sees(999, epoch=8)
        boot.sees(690, epoch=7)
        boot.beats(1_000)
    boots[0].sees(300, partition=1)
    for seconds in (250, 350):
        boots[-1].sees(seconds, partition=1)
    rows = yield [event for boot in boots for event in boot.events]
    of_two = [row for row in rows(GOLD_LEADER_HISTORY) if row["partition"] == 1]
    assert_table(of_two, "valid_from last_seen first_observer", (at(300), at(300), "a"))
    assert_table(
        [row for row in rows(GOLD_LEADER_HISTORY) if row["leader_epoch"] >= 5],
        "leader_epoch valid_from first_observer is_clock_suspect",
        (5, at(500), "a", False),
        (6, at(690), "behind", True),
        (7, at(690), "a", False),
        (8, at(999), "behind", True),
    )


@story
def names_do_not_supersede_ids_nor_each_other() -> Story:
    boot = Boot("a")
    boot.sees(0, topic_id=ID)
    boot.sees(9, topic_id=None)  # an older broker answers, amid an upgrade
    rows = yield boot.events
    assert_table(rows(GOLD_CURRENT_LEADER), "topic_key", (ID,), ("orders",))


@story
def partitions_and_clusters_have_histories_of_their_own() -> Story:
    a, b = Boot("a"), Boot("b", cluster="other")
    a.sees(0, epoch=1, partition=0)
    a.sees(1, epoch=2, partition=1)
    b.sees(2, epoch=3, partition=0)
    rows = yield a.events + b.events
    assert [row["is_current"] for row in rows(GOLD_LEADER_HISTORY)] == [True] * 3


@story.test
def test_leader_history(story: Tale, reported: Outcome, tables: Tables) -> None:
    reported.check(story, tables)


def test_the_benchmark_makes_the_same_history_as_the_job(tables: Tables) -> None:
    made: list[Row] = facts(tables(BRONZE_EVENTS), tables(GOLD_DATA_QUALITY)).toArrow().to_pylist()
    assert in_order(made) == tables.rows(GOLD_LEADER_HISTORY)
