"""The silver tables: which facts events become, and how those merge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.silver import SILVER
from pipeline.tables import (
    SILVER_EPOCH_SIGHTS,
    SILVER_ISR_OBS,
    SILVER_LEADER_EPOCHS,
    SILVER_PRODUCE_WINDOWS,
    SILVER_REFRESHES,
    SILVER_SEQS,
    SILVER_SIDECARS,
    SILVER_TOPIC_ENDS,
)
from tests.pipeline.fleets import ID, NEXT_ID, Boot, at
from tests.pipeline.stories import Stories

if TYPE_CHECKING:
    from tests.pipeline.stories import Outcome, Story, Tale
    from tests.pipeline.whole_pipeline import Tables

story = Stories()


@story
def all_reports_of_a_boot_about_an_epoch_are_one_sight() -> Story:
    boot = Boot("a", boot_id=3, service="bank")
    boot.sees(5, epoch=2, leader=1, isr=[1])
    boot.sees(9, epoch=2, leader=None)
    boot.sees(7, epoch=2, leader=1)
    rows = yield boot.events
    assert rows(SILVER_EPOCH_SIGHTS) == [
        {
            "cluster_id": "c",
            "topic_key": ID,
            "partition": 0,
            "leader_epoch": 2,
            "sidecar_id": "a",
            "boot_id": 3,
            "topic": "orders",
            "service": "bank",
            "leader_lo": 1,
            "leader_hi": 1,
            "first_seen": at(5),
            "last_seen": at(9),
        }
    ]


@story
def an_epoch_without_a_leader_has_none_until_somebody_names_one() -> Story:
    a, b = Boot("a"), Boot("b")
    a.sees(0, epoch=1, leader=None)
    a.sees(1, epoch=2, leader=None)
    b.sees(2, epoch=2, leader=3)
    rows = yield a.events + b.events
    found = {row["leader_epoch"]: (row["leader_lo"], row["leader_hi"]) for row in rows(SILVER_LEADER_EPOCHS)}
    assert found == {1: (None, None), 2: (3, 3)}


@story
def the_epochs_of_a_fleet_are_those_of_all_its_sidecars() -> Story:
    a, b, c = Boot("a"), Boot("b", cluster=None), Boot("c")
    a.sees(4, epoch=1, leader=2)
    a.sees(6, epoch=1, leader=5)
    b.sees(1, epoch=1, leader=2)  # the cluster that has no id is another one
    c.sees(4, epoch=1, leader=2)
    rows = yield a.events + b.events + c.events
    columns = ("cluster_id", "leader_lo", "leader_hi", "first", "last_seen", "observers")
    assert [tuple(row[column] for column in columns) for row in rows(SILVER_LEADER_EPOCHS)] == [
        ("", 2, 2, {"seen_at": at(1), "sidecar_id": "b"}, at(1), ["b"]),
        ("c", 2, 5, {"seen_at": at(4), "sidecar_id": "a"}, at(6), ["a", "c"]),
    ]


@story
def a_topic_without_an_id_goes_by_its_name_and_an_epoch_that_is_none_by_no_sight() -> Story:
    boot = Boot("a")
    boot.sees(0, topic_id=None, epoch=None, leader=None, isr=[2, 1], replicas=[3, 2, 1])
    rows = yield boot.events
    (state,) = rows(SILVER_ISR_OBS)
    assert (state["topic_key"], state["leader_epoch"]) == ("orders", -1)
    assert state["state"] == {"leader": -1, "isr": [1, 2], "replicas": [1, 2, 3]}
    assert rows(SILVER_EPOCH_SIGHTS) == []


@story
def each_state_is_kept_and_of_two_at_one_instant_the_lesser() -> Story:
    boot = Boot("a")
    boot.sees(0, isr=[1, 2])
    boot.sees(0, isr=[1])
    boot.sees(1, isr=[1, 2])
    rows = yield boot.events
    assert [row["state"]["isr"] for row in rows(SILVER_ISR_OBS)] == [[1], [1, 2]]


@story
def topics_end_in_three_ways_and_other_changes_are_no_end() -> Story:
    boot = Boot("a")
    for seconds, change in enumerate(["appeared", "grew", "shrank", "gone", "forgotten", "recreated"]):
        boot.ends(seconds, change, topic_id=NEXT_ID)
    rows = yield boot.events * 2
    found = [(row["change"], row["topic_key"], row["observed_at"]) for row in rows(SILVER_TOPIC_ENDS)]
    assert found == [("forgotten", NEXT_ID, at(4)), ("gone", NEXT_ID, at(3)), ("recreated", NEXT_ID, at(5))]


@story
def a_window_is_kept_once_with_its_counts_in_order() -> Story:
    boot = Boot("a")
    boot.produces(10, latency={70_000: 1, 2: 5, 1_000: 3}, errors={"Z": 1, "A": 2}, broker=None, retries=2)
    rows = yield boot.events * 3
    assert [row["window"] for row in rows(SILVER_PRODUCE_WINDOWS)] == [
        {
            "cluster_id": "c",
            "service": "shop",
            "topic": "orders",
            "partition": 0,
            "broker": -1,
            "started_at": at(0),
            "ended_at": at(10),
            "records": 9,
            "batches": 1,
            "bytes": 900,
            "retries": 2,
            "errors": [{"error": "A", "records": 2}, {"error": "Z", "records": 1}],
            "latency": [
                {"bucket": 2, "records": 5},
                {"bucket": 35, "records": 3},
                {"bucket": 60, "records": 1},
            ],
        }
    ]


@story
def of_two_windows_with_one_line_number_the_lesser_is_kept_whichever_came_first() -> Story:
    boot = Boot("a")
    boot.produces(10, latency={1: 5}, seq=1)
    boot.produces(10, latency={1: 4}, seq=1)
    boot.produces(20, latency={1: 4}, seq=2)
    boot.produces(20, latency={1: 5}, seq=2)
    rows = yield boot.events
    assert [row["window"]["records"] for row in rows(SILVER_PRODUCE_WINDOWS)] == [4, 4]


@story
def a_boot_is_from_its_first_event_to_its_last_of_any_type() -> Story:
    boot = Boot("a", cluster=None)
    boot.beats(5, dropped=3, max_age_ms=10, version="1.0")
    boot.cluster = "c"
    boot.sees(6)
    boot.beats(9, dropped=8, max_age_ms=30, version="1.1", uptime_s=7)
    boot.beats(9, dropped=8, max_age_ms=30, version="1.1", uptime_s=10)
    boot.produces(20)
    rows = yield boot.events
    columns = (
        "cluster_id",
        "first_event",
        "last_event",
        "max_seq",
        "dropped",
        "metadata_max_age_ms",
        "version",
        "began_lo",
        "began_hi",
    )
    assert [tuple(row[column] for column in columns) for row in rows(SILVER_SIDECARS)] == [
        ("", at(5), at(5), 1, 3, 10, "1.0", at(0), at(0)),
        ("c", at(6), at(20), 5, 8, 30, "1.1", at(-1), at(2)),
    ]


@story
def a_look_is_a_refresh_that_succeeded_and_of_two_at_one_instant_the_longer_one_counts() -> Story:
    boot = Boot("a")
    boot.looks(1, duration_s=0.5)
    boot.looks(1, duration_s=2)
    boot.looks(2, outcome="timeout")
    rows = yield boot.events
    assert [(row["observed_at"], row["duration_us"]) for row in rows(SILVER_REFRESHES)] == [
        (at(1), 2_000_000)
    ]


@story
def each_line_is_a_bit_of_its_boot() -> Story:
    boot = Boot("a")
    for seq in (1, 2, 64, 65, 2**40, 2**63 - 1, 0, -5):
        boot.emits(1, "connection", seq=seq, broker=1, state="ready")
    rows = yield boot.events * 2
    found = {row["bucket"]: row["bitmap"] for row in rows(SILVER_SEQS)}
    # Bucket 0 has lines 1 to 64; the 64th is the sign of a BIGINT.
    assert found == {0: 0b11 - 2**63, 1: 1, 2**34 - 1: -(2**63), 2**57 - 1: 1 << 62}


@story.test
def test_silver(story: Tale, reported: Outcome, tables: Tables) -> None:
    reported.check(story, tables)


def test_a_table_has_its_columns_and_one_row_a_key(tables: Tables) -> None:
    for table in SILVER:
        assert tuple(tables(table.name).columns) == table.columns
        keys = [tuple(row[key] for key in table.keys) for row in tables.rows(table.name)]
        assert len(set(keys)) == len(keys) > 0, table.name
        assert not [key for key in keys if None in key], table.name


def test_a_table_lags_behind_its_source() -> None:
    there = {"bronze_events"}
    for table in SILVER:
        assert table.source in there
        there.add(table.name)
