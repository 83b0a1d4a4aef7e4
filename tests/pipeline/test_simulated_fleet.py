"""The whole pipeline against the truth: a simulated fleet with known changes, faults and false events."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import functions as f

from pipeline import bronze, event_v1, tables
from pipeline.sources import FilesSource
from tests.pipeline.advice_gain import gains, in_all
from tests.pipeline.gold_samples import SCHEMAS
from tests.pipeline.simulate import plan_for, write
from tests.pipeline.stories import assert_table
from tests.pipeline.whole_pipeline import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAN = plan_for(12_000, 7, sidecars=9, topics=8, hours=0.9, clock_skew_s=600, broken=0.01)
#: Clocks that are right differ by this much at most.
_CLOCKS = timedelta(milliseconds=50)

Row = dict[str, Any]


class Fleet(NamedTuple):
    """The pipeline's tables of a fleet, the truth about it, and each window of produces that it reported."""

    tables: Tables
    truth: dict[str, Any]
    windows: list[Row]


@pytest.fixture(scope="module")
def fleet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("fleet") / "events"
    truth: dict[str, Any] = write(PLAN, folder, folder.with_suffix(".json"), processes=1)
    parsed = bronze.parse(FilesSource(str(folder)).batch(spark)).localCheckpoint()
    given = {tables.BRONZE_EVENTS: bronze.events(parsed), tables.BRONZE_REJECTS: bronze.rejects(parsed)}
    broken = {line["sha256"] for line in truth["rejected"]}
    lines = {line for path in folder.iterdir() for line in path.read_bytes().splitlines()}
    sound = (json.loads(line) for line in lines if hashlib.sha256(line).hexdigest() not in broken)
    windows = [event for event in sound if event["type"] == event_v1.WINDOW]
    for window in windows:
        window["broker"] = -1 if window["broker"] is None else window["broker"]
    return Fleet(Tables(spark, (), **given), truth, windows)


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


def _seen_changes(fleet: Fleet) -> dict[tuple[str, int], list[Row]]:
    """The true epochs of each partition that a sidecar saw, in order."""
    seen = {epoch_of(row) for row in fleet.tables.rows(tables.GOLD_LEADER_HISTORY)}
    changes: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for change in fleet.truth["leader_changes"]:
        if epoch_of(change) in seen:
            changes[epoch_of(change)[:2]].append(change)
    return changes


def _summed(rows: list[Row], name: str, count: str) -> Counter[Any]:
    """The counts by name over all hours, without those of 0."""
    counts: Counter[Any] = Counter()
    for row in rows:
        counts[row[name]] += row[count]
    return +counts


def test_churn_is_that_of_the_true_leaders(fleet: Fleet) -> None:
    elections, moves, gained, lost = (Counter[Any]() for _ in range(4))
    for changes in _seen_changes(fleet).values():
        for before, change in pairwise(changes):
            is_move = before["leader"] != change["leader"]
            elections[change["topic"]] += 1
            moves[change["topic"]] += is_move
            gained[change["leader"]] += is_move
            lost[before["leader"]] += is_move
    del gained[-1], lost[-1]
    assert moves.total() > 30
    churn, brokers = fleet.tables.rows(tables.GOLD_CHURN), fleet.tables.rows(tables.GOLD_CHURN_BROKERS)
    assert _summed(churn, "topic", "elections") == elections
    assert _summed(churn, "topic", "leader_changes") == +moves
    assert _summed(brokers, "broker", "gained") == +gained
    assert _summed(brokers, "broker", "lost") == +lost


def test_brokers_have_their_true_leaders_and_loads(fleet: Fleet) -> None:
    alive = {topic["topic_id"] for topic in fleet.truth["topics"] if topic["deleted_at"] is None}
    last = [changes[-1] for (key, _), changes in _seen_changes(fleet).items() if key in alive]
    leaders = Counter(change["leader"] for change in last)
    brokers = {broker for change in last for broker in change["replicas"]} | leaders.keys() - {-1}
    load = {count: _summed(fleet.windows, "broker", count) for count in ("records", "bytes")}
    all_led, all_bytes = sum(leaders[broker] for broker in brokers), load["bytes"].total()
    assert_table(
        fleet.tables.rows(tables.GOLD_LEADER_SKEW),
        "broker leaders share fair_share excess records bytes load_share",
        *(
            (
                *(broker, leaders[broker], leaders[broker] / all_led, 1 / len(brokers)),
                leaders[broker] / all_led * len(brokers) - 1,
                *(load["records"][broker], load["bytes"][broker], load["bytes"][broker] / all_bytes),
            )
            for broker in brokers
        ),
    )


def test_produces_are_those_of_the_windows_and_the_slow_broker_is_slow(fleet: Fleet) -> None:
    """The fleet is watched within one hour."""
    counts = ("records", "batches", "bytes", "retries")
    totals: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    errors: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    latencies: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    for window in fleet.windows:
        key = (window["topic"], window["broker"])
        totals[key].update({name: window[name] for name in counts})
        errors[key].update(window["errors"])
        latencies[key].update({int(bucket): records for bucket, records in window["latency_us"].items()})
    hour = datetime.fromisoformat(fleet.truth["end"]) - timedelta(hours=1)
    rows = fleet.tables.rows(tables.GOLD_PRODUCE_SLO)
    assert_table(
        rows,
        f"topic broker hour {' '.join(counts)} failed errors p50_us p95_us p99_us",
        *(
            (
                *(*key, hour, *(total[name] for name in counts), errors[key].total()),
                [{"error": error, "records": errors[key][error]} for error in sorted(errors[key])],
                *(_quantile_us(sorted(latencies[key].elements()), percent) for percent in (50, 95, 99)),
            )
            for key, total in totals.items()
        ),
    )
    medians = {row["broker"]: row["p50_us"] for row in rows if row["p50_us"] is not None}
    assert max(medians, key=lambda broker: medians[broker]) == fleet.truth["slow_broker"]


def _quantile_us(buckets: list[int], percent: int) -> int | None:
    """By nearest rank."""
    rank = -(-len(buckets) * percent // 100)
    return event_v1.upper_bound_us(buckets[rank - 1]) if buckets else None


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


def test_the_advice_makes_leaders_less_out_of_date(fleet: Fleet) -> None:
    """By the true history, when each sidecar lives the same time again by the advice."""
    advice = fleet.tables.rows(tables.GOLD_ADVICE)
    found = gains(PLAN, advice)
    assert found.keys() == {row["service"] for row in advice}
    assert all(gain.advised_s <= gain.interval_s for gain in found.values())
    before, after = in_all(found)
    assert after.stale_us < 0.9 * before.stale_us
    assert after.refreshes > before.refreshes


def test_the_columns_are_those_that_the_report_is_tested_with(fleet: Fleet) -> None:
    for table, columns in SCHEMAS.items():
        assert [*fleet.tables(table).columns] == [*columns], table
