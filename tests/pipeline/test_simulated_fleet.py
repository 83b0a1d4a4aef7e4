"""The whole pipeline against the truth: a simulated fleet with known changes, faults and false events."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import functions as f

from pipeline import bronze, tables
from pipeline.sources import FilesSource
from tests.pipeline.gold_samples import SCHEMAS
from tests.pipeline.simulate import plan_for, write
from tests.pipeline.whole_pipeline import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAN = plan_for(12_000, 7, sidecars=9, topics=8, hours=0.9, clock_skew_s=600, broken=0.01)
#: Clocks that are right differ by this much at most.
_CLOCKS = timedelta(milliseconds=50)

Row = dict[str, Any]


class Fleet(NamedTuple):
    """The pipeline's tables of a fleet, and the truth about it."""

    tables: Tables
    truth: dict[str, Any]


@pytest.fixture(scope="module")
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("fleet") / "events"
    truth = write(PLAN, folder, folder.with_suffix(".json"), processes=1)
    parsed = bronze.parse(FilesSource(str(folder)).batch(spark)).localCheckpoint()
    given = {tables.BRONZE_EVENTS: bronze.events(parsed), tables.BRONZE_REJECTS: bronze.rejects(parsed)}
    return Fleet(Tables(spark, (), **given), truth)


def epoch_of(row: Row) -> tuple[str, int, int]:
    return row.get("topic_key") or row["topic_id"], row["partition"], row["leader_epoch"]


def test_every_line_is_an_event_or_a_reject_with_its_true_reason(fleet: Fleet) -> None:
    rejects = fleet.tables.rows(tables.BRONZE_REJECTS)
    assert Counter(row["reason"] for row in rejects) == fleet.truth["rejects"]
    assert {(row["reason"], row["line_sha256"]) for row in rejects} == {
        (row["reason"], row["sha256"]) for row in fleet.truth["rejected"]
    }
    assert fleet.tables(tables.BRONZE_EVENTS).count() + len(rejects) == fleet.truth["lines"]


def test_leader_history_holds_what_was_true_and_nothing_else(fleet: Fleet) -> None:
    true = {epoch_of(change): change for change in fleet.truth["leader_changes"]}
    history = fleet.tables.rows(tables.GOLD_LEADER_HISTORY)
    assert len(history) > 0.9 * len(true)
    for row in history:
        assert row["leader"] == true[epoch_of(row)]["leader"]
        assert not row["is_conflict"]
        assert row["valid_from"] > datetime.fromisoformat(true[epoch_of(row)]["at"]) - _CLOCKS
    # An epoch that no sidecar saw lies between two that were seen, or after the last refresh.
    missed = sum(row["missed_epochs"] for row in history)
    last = {}
    for key in sorted(epoch_of(row) for row in history):
        last[key[:2]] = key[2]
    unseen = [key for key in true if key not in {epoch_of(row) for row in history}]
    assert len([key for key in unseen if key[2] < last[key[:2]]]) == missed


def test_topics_that_ended_lead_to_no_current_leader(fleet: Fleet) -> None:
    alive = {topic["topic_id"] for topic in fleet.truth["topics"] if topic["deleted_at"] is None}
    current = fleet.tables.rows(tables.GOLD_CURRENT_LEADER)
    assert {row["topic_key"] for row in current} == alive
    counts = {topic["topic_id"]: topic["partitions"] for topic in fleet.truth["topics"]}
    assert Counter(row["topic_key"] for row in current) == {key: counts[key] for key in alive}


def test_what_never_came_is_counted_and_the_silent_and_the_wrong_clock_are_named(fleet: Fleet) -> None:
    quality = fleet.tables.rows(tables.GOLD_DATA_QUALITY)
    boots = {boot["boot_id"]: boot for sidecar in fleet.truth["sidecars"] for boot in sidecar["boots"]}
    assert {row["boot_id"]: (row["received"], row["missing"]) for row in quality} == {
        boot_id: (boot["events"], boot["dropped"]) for boot_id, boot in boots.items()
    }
    silent = {row["sidecar_id"] for row in quality if row["is_silent"]}
    assert silent == {s["sidecar_id"] for s in fleet.truth["sidecars"] if s["boots"][-1]["end"] == "silence"}
    suspect = {row["sidecar_id"]: row["clock_offset_ms"] for row in quality if row["is_clock_suspect"]}
    (wrong,) = wrong_clocks(fleet)
    intervals = {s["sidecar_id"]: s["metadata_max_age_ms"] for s in fleet.truth["sidecars"]}
    assert suspect.keys() - {wrong} <= {s["sidecar_id"] for s in fleet.truth["sidecars"] if s["delayed"]}
    assert 600_000 - intervals[wrong] - 60_000 < suspect[wrong] < 600_000 + 60_000


def wrong_clocks(fleet: Fleet) -> set[str]:
    return {s["sidecar_id"] for s in fleet.truth["sidecars"] if abs(s["clock_offset_ms"]) > 1_000}


def _shortages(truth: dict[str, Any]) -> dict[tuple[str, int], list[tuple[datetime, datetime]]]:
    """When each partition was truly short of replicas."""
    found: dict[tuple[str, int], list[tuple[datetime, datetime]]] = {}
    began: dict[tuple[str, int], datetime] = {}
    changes = sorted(truth["leader_changes"] + truth["isr_changes"], key=lambda change: change["at"])
    for change in changes:
        key, at = (change["topic_id"], change["partition"]), datetime.fromisoformat(change["at"])
        if len(change["isr"]) < len(change["replicas"]):
            began.setdefault(key, at)
        elif key in began:
            found.setdefault(key, []).append((began.pop(key), at))
    for key, at in began.items():
        found.setdefault(key, []).append((at, datetime.fromisoformat(truth["end"])))
    return found


def test_every_shortage_was_one_and_its_bounds_are_in_order_whatever_a_clock_says(fleet: Fleet) -> None:
    true = _shortages(fleet.truth)
    found = fleet.tables.rows(tables.GOLD_URP)
    assert len(found) > 5
    for row in found:
        bounds = [row[name] for name in ("start_after", "start_by", "end_after", "end_by")]
        known = [bound for bound in bounds if bound is not None]
        assert known == sorted(known)
        # An answer takes a while, and two shortages count as one if no sidecar saw the end of the first.
        slack = timedelta(seconds=5)
        begins = [begin for begin, _ in true[row["topic_key"], row["partition"]]]
        assert any(
            begin - slack <= at <= end + slack
            for at in (row["start_by"], row["end_after"])
            for begin, end in true[row["topic_key"], row["partition"]]
        )
        assert min(begins) - slack <= row["start_by"]


def test_a_wrong_clock_changes_neither_history_nor_shortages_nor_advice(
    spark: SparkSession, fleet: Fleet
) -> None:
    """Beside the same events by clocks that are right."""
    offsets = {s["sidecar_id"]: s["clock_offset_ms"] for s in fleet.truth["sidecars"]}
    (wrong,) = wrong_clocks(fleet)
    by_ms = f.when(f.col("sidecar_id") == wrong, offsets[wrong]).otherwise(0)
    events = fleet.tables(tables.BRONZE_EVENTS)
    times = {
        name: f.timestamp_micros(f.unix_micros(name) - by_ms * 1_000)
        for name in ("observed_at", "started_at")
    }
    right = Tables(spark, (), **{tables.BRONZE_EVENTS: events.withColumns(times).localCheckpoint()})

    for table in (tables.GOLD_LEADER_HISTORY, tables.GOLD_CHURN, tables.GOLD_PRODUCE_SLO):
        ignored = ("observers", "first_observer", "last_seen")
        ours, theirs = (
            [{name: value for name, value in row.items() if name not in ignored} for row in of.rows(table)]
            for of in (fleet.tables, right)
        )
        same = sum(one == other for one, other in zip(ours, theirs, strict=True))
        assert same >= 0.95 * len(theirs), table
    advised = {row["service"]: row["refresh_max_age_ms"] for row in fleet.tables.rows(tables.GOLD_ADVICE)}
    for row in right.rows(tables.GOLD_ADVICE):
        assert advised[row["service"]] == pytest.approx(row["refresh_max_age_ms"], rel=0.05)


def test_only_a_paused_sidecar_is_later_than_twice_its_interval(fleet: Fleet) -> None:
    delayed = {s["sidecar_id"] for s in fleet.truth["sidecars"] if s["delayed"]}
    rows = fleet.tables.rows(tables.GOLD_STALENESS)
    beyond = {row["sidecar_id"] for row in rows if row["is_beyond_twice_the_interval"]}
    assert beyond - wrong_clocks(fleet) == delayed != set()


def test_the_columns_are_those_that_the_report_is_tested_with(fleet: Fleet) -> None:
    for table, columns in SCHEMAS.items():
        assert [*fleet.tables(table).columns] == [*columns], table
