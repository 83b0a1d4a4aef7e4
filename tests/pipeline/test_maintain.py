"""`pilotfish-pipeline maintain`: a store that is kept day by day has the tables of one built at once."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner
from pyspark.sql import functions as f

from pipeline.cli import main
from pipeline.closing import KEPT, OVER_AT, Closed, closed_days
from pipeline.gold import GOLD
from pipeline.progress import Progress
from pipeline.refresh import Refresh
from pipeline.stores.folders import MARK
from pipeline.stores.formats import open_store
from pipeline.stores.store import CLOSED_LAYOUT, KINDS, PARQUET, BatchId
from pipeline.tables import (
    BRONZE_EVENTS,
    GOLD_CURRENT_LEADER,
    GOLD_DATA_QUALITY,
    GOLD_INCIDENTS,
    GOLD_LEADER_HISTORY,
    GOLD_URP,
    SILVER_ISR_OBS,
    SILVER_LEADER_EPOCHS,
    SILVER_TOPIC_ENDS,
)
from tests.pipeline.days import Days
from tests.pipeline.fleets import CLUSTER, ID, Boot, at, bronze
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_job import FEW, SILVER_OF
from tests.pipeline.stories import assert_table
from tests.pipeline.whole_pipeline import Tables, in_order

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.pipeline.fleets import Event
    from tests.pipeline.kept_tables import Tables as KeptTables

DAY_S: Final = 24 * 3_600


class _Kept:
    """A store, the folder of its events, and the commands that a user would type."""

    def __init__(self, root: Path, kind: str) -> None:
        root.mkdir()
        self.events, self.out = root / "events", root / "out"
        self.events.mkdir()
        self._kind = kind

    def run(self) -> str:
        return self.says("run", "--source", "files", "--input", str(self.events))

    def says(self, *words: str, exit_code: int = 0) -> str:
        done = CliRunner().invoke(main, [*words, "--out", str(self.out), "--store", self._kind])
        assert done.exit_code == exit_code, done.output
        return done.output

    def gold(self) -> KeptTables:
        return {name: rows for name, rows in kept_tables(self.out).items() if name.startswith("gold_")}


def test_what_cannot_be_maintained_is_named_with_the_remedy(tmp_path: Path) -> None:
    for words, said in (
        (["--out", str(tmp_path / "none")], "none is no folder: give the one that `run` writes to"),
        (["--out", ""], "--out is empty"),
        (["--out", str(tmp_path), "--keep-days", "9"], "--keep-days 9: give at least 10"),
        (["--out", str(tmp_path), "--keep-days", "9999999"], "--keep-days 9999999: to keep all events"),
        (["--out", str(tmp_path), "--keep-days", "a year"], "Invalid value for '--keep-days'"),
    ):
        refused = CliRunner().invoke(main, ["maintain", *words])
        assert refused.exit_code == 2
        assert said in refused.output


def test_tables_that_are_not_up_to_date_are_not_closed(spark: SparkSession, tmp_path: Path) -> None:
    store = _Kept(tmp_path / "kept", PARQUET)
    store.out.mkdir()
    assert "holds no tables: `pilotfish-pipeline run`" in store.says("maintain", exit_code=2)
    open_store(spark, str(store.out), PARQUET, to_write=True)
    assert "are not up to date, and closed days stay" in store.says("maintain", exit_code=2)


def test_a_store_without_events_needs_nothing_and_is_no_error(spark: SparkSession, tmp_path: Path) -> None:
    """A schedule begins before the first event comes."""
    assert spark.version
    store = _Kept(tmp_path / "kept", PARQUET)
    store.run()
    said = store.says("maintain", "--keep-days", "30")
    assert said.endswith(" has no events yet: there is nothing to do.\n")


@pytest.mark.parametrize("kind", KINDS)
def test_days_that_are_closed_have_the_rows_of_a_store_built_at_once(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    days = Days(tmp_path / "day")
    kept, at_once = _Kept(tmp_path / "kept", kind), _Kept(tmp_path / "at-once", kind)
    days.write(kept.events, range(11))
    kept.run()
    before = kept_tables(kept.out)
    assert kept.says("maintain", "--dry-run", "--keep-days", "10").splitlines() == [
        "Days before 2025-01-03 would be closed.",
        "0 events before 2025-01-01 would be removed.",
        "Small files would be written together, and files that are not needed deleted.",
    ]
    assert kept_tables(kept.out) == before
    assert "Days before 2025-01-03 are closed" in kept.says("maintain")
    mark = json.loads((kept.out / MARK).read_text())
    assert mark == {"store": kind, "layout": CLOSED_LAYOUT}, "an older version refuses it"
    days.write(kept.events, range(11, 13))
    kept.run()
    said = kept.says("maintain", "--keep-days", "10").splitlines()
    assert said[0] == "Days before 2025-01-05 are closed."
    assert said[1].endswith(" events before 2025-01-03 are removed.")
    days.write(kept.events, [13])
    kept.run()

    days.write(at_once.events, range(14))
    at_once.run()
    whole = open_store(spark, str(at_once.out), kind, to_write=True)
    for name, over_at in OVER_AT.items():
        whole.close(name, "false", f"{over_at} < TIMESTAMP '2025-01-03'")

    assert differences(kept.gold(), at_once.gold()) == {}


def test_a_topic_that_ends_on_an_open_day_keeps_the_rows_that_began_on_closed_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.version
    boot = topic_that_ended()
    kept, at_once = _Kept(tmp_path / "kept", PARQUET), _Kept(tmp_path / "at-once", PARQUET)
    _write(kept.events / "one.jsonl", boot.events)
    kept.run()
    assert "are closed" in kept.says("maintain")
    boot.beats(-18 * DAY_S + 60, uptime_s=12 * DAY_S + 60)
    _write(kept.events / "two.jsonl", boot.events[-1:])
    kept.run()
    _write(at_once.events / "all.jsonl", boot.events)
    at_once.run()
    # An incident of more than eight days is counted from the last nine.
    assert differences(kept.gold(), at_once.gold()).keys() <= {GOLD_INCIDENTS}


def test_silver_keeps_what_the_last_rows_of_a_topic_that_ended_follow_on(spark: SparkSession) -> None:
    """The topic is gone when days are closed, and the end of its last leadership is on an open one."""
    boot = topic_that_ended()
    closed = closed_days(boot.events[-1]["observed_at"])
    wrong = "sidecar_id string, boot_id bigint, clock_shift_ms bigint, clock_shift_error_ms bigint"
    ends = "cluster_id string, topic_key string, partition int, valid_to timestamp"
    read = Tables(
        spark,
        boot.events,
        **{
            GOLD_DATA_QUALITY: spark.createDataFrame([], f"{wrong}, is_left_out boolean"),
            GOLD_LEADER_HISTORY: spark.createDataFrame(
                [(CLUSTER, ID, 0, at(-29 * DAY_S)), (CLUSTER, ID, 0, at(-20 * DAY_S))], ends
            ),
        },
    )
    for name in (SILVER_LEADER_EPOCHS, SILVER_ISR_OBS, SILVER_TOPIC_ENDS):
        kept = KEPT[name](read, f.lit(closed.since)).toArrow().to_pylist()
        assert in_order(kept) == read.rows(name), name


def topic_that_ended() -> Boot:
    """A boot that reported a shortage and a new leader long before the end of the topic, and that lives."""
    boot = Boot("a")
    boot.sees(-30 * DAY_S, leader=1, epoch=1)
    boot.sees(-29 * DAY_S, leader=2, epoch=2, isr=[2, 3])
    boot.ends(-20 * DAY_S, "gone")
    boot.beats(-18 * DAY_S, uptime_s=12 * DAY_S)
    return boot


def test_boots_that_return_have_one_row_with_all_lines(spark: SparkSession, tmp_path: Path) -> None:
    """One ended between the last two ends of closed days, one before both."""
    day_s = 24 * 3_600
    watch, border, ended = Boot("watch"), Boot("border"), Boot("ended", boot_id=-(2**63))
    boots = (watch, border, ended)
    for boot, day in ((watch, 20), (border, 11.5), (ended, 0)):
        for minute in range(3):
            boot.beats(day * day_s + minute * 60)
    store = open_store(spark, str(tmp_path), PARQUET, to_write=True)
    gold = {name: GOLD[name] for name in (GOLD_DATA_QUALITY, GOLD_LEADER_HISTORY)}

    def refresh() -> Refresh:
        progress = Progress(io.StringIO(), lambda: 0.0, shows=False)
        return Refresh(spark, store, progress, lambda _: None, silver=SILVER_OF[FEW], gold=gold)

    old = [event for boot in boots for event in boot.events]
    store.append(BRONZE_EVENTS, bronze(spark, old), BatchId("old", 0))
    refresh().bring_up_to_date()
    refresh().close(Closed(at(12 * day_s)), None)
    for boot in boots:
        boot.beats(21 * day_s)
    store.append(BRONZE_EVENTS, bronze(spark, [boot.events[-1] for boot in boots]), BatchId("new", 0))
    again = refresh()
    again.bring_up_to_date()
    assert again.failed == {}
    assert_table(
        store.read(GOLD_DATA_QUALITY).toArrow().to_pylist(),
        "sidecar_id first_event last_event received missing",
        ("watch", at(20 * day_s), at(21 * day_s), 4, 0),
        ("border", at(11.5 * day_s), at(21 * day_s), 4, 0),
        ("ended", at(0), at(21 * day_s), 4, 0),
    )


def test_a_row_that_a_late_event_ends_or_goes_on_with_is_there_once(spark: SparkSession) -> None:
    closed = Closed(at(0))
    columns = (
        "cluster_id string, topic_key string, partition int, leader_epoch int, valid_to timestamp, x string"
    )

    def frame(*rows: tuple[int, float | None, str]) -> DataFrame:
        return spark.createDataFrame(
            [("c", "t", 0, epoch, None if end is None else at(end), x) for epoch, end, x in rows], columns
        )

    before = frame((1, -9, "over"), (2, -8, "over"), (3, None, "open"), (4, 9, "open"), (5, 9, "open"))
    made = frame(
        (1, -9, "made"), (2, 7, "made"), (3, -7, "made"), (4, 8, "made"), (6, -6, "made"), (7, 1, "made")
    )
    rows = closed.rows(GOLD_LEADER_HISTORY, made, before).collect()
    assert sorted((row.leader_epoch, row.x) for row in rows) == [
        (1, "over"),
        (2, "made"),
        (3, "made"),
        (4, "made"),
        (7, "made"),
    ]


def test_the_epoch_with_two_leaders_of_a_topic_that_is_gone_is_not_current_again(spark: SparkSession) -> None:
    day_s = 24 * 3_600
    one, other = Boot("a"), Boot("b")
    one.sees(0, leader=1, epoch=1)
    other.sees(1, leader=2, epoch=1)
    one.sees(5, leader=3, epoch=2)
    one.ends(day_s, "gone")
    for boot in (one, other):
        boot.beats(20 * day_s)
    tables = Tables(spark, one.events + other.events)
    assert {row["is_current"] for row in tables.rows(GOLD_LEADER_HISTORY)} == {False}
    assert _closed(spark, tables, at(10 * day_s)).rows(GOLD_CURRENT_LEADER) == []


def test_a_shortage_without_epochs_lasts_until_its_topic_ended(spark: SparkSession) -> None:
    """Before Kafka 2.4 partitions have no epochs."""
    day_s = 24 * 3_600
    boot = Boot("a")
    for topic in ("short", "gone"):
        boot.sees(0, topic=topic, topic_id=None, epoch=None)
        boot.sees(60, topic=topic, topic_id=None, epoch=None, isr=[2, 3])
    boot.ends(day_s, "gone", topic="gone", topic_id=None)
    boot.beats(20 * day_s)
    tables = Tables(spark, boot.events)
    assert {row["topic"] for row in tables.rows(GOLD_URP)} == {"short", "gone"}
    once = _closed(spark, tables, at(10 * day_s))
    for closed in (once, _closed(spark, once, at(11 * day_s))):
        assert_table(closed.rows(GOLD_URP), "topic start_after end_by", ("short", at(0), None))


def _closed(spark: SparkSession, tables: Tables, since: datetime) -> Tables:
    """Tables of what silver keeps of these."""
    silver: dict[str, DataFrame] = {}

    def read(name: str) -> DataFrame:
        return silver[name] if name in silver else tables(name)

    for name, kept in KEPT.items():
        silver[name] = kept(read, f.lit(since)).localCheckpoint()
    return Tables(spark, (), **{BRONZE_EVENTS: tables(BRONZE_EVENTS), **silver})


def _write(file: Path, events: list[Event]) -> None:
    lines = [
        json.dumps(event | {"observed_at": event["observed_at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")})
        for event in events
    ]
    file.write_text("\n".join([*lines, ""]))
