"""No valid event stops a table: extremes of every field, through both stores."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.sql import functions as f

from pipeline import event_v1, tables
from pipeline.event_v1 import REASONS
from pipeline.gold import GOLD
from pipeline.job import Job
from pipeline.progress import Progress
from pipeline.silver import SILVER
from pipeline.sources import FilesSource
from pipeline.stores.formats import open_store
from pipeline.stores.store import DELTA, KINDS, PARQUET, BatchId
from tests.pipeline.event_lines import good
from tests.pipeline.extreme_events import RECEIVED_S, extreme_lines
from tests.pipeline.whole_pipeline import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.job import Summary
    from pipeline.silver.silver_table import SilverTable
    from pipeline.stores.store import Store
    from tests.pipeline.fleets import Event

NEVER_MS: Final = 2**63 - 1
_BRONZE: Final = (tables.BRONZE_EVENTS, tables.BRONZE_REJECTS)
_SILVER: Final = tuple(table.name for table in SILVER)
#: The tables of a sound fleet. A table costs seconds, so all the others are made only once, further down.
_JUDGING: Final = {name: GOLD[name] for name in (tables.GOLD_DATA_QUALITY, tables.GOLD_STALENESS)}


def _sound_fleet() -> list[str]:
    """Four sidecars in order, of which one never refreshes by itself."""
    lines = []
    for number in range(4):
        max_age_ms = NEVER_MS if number == 3 else 60_000
        for seq, minute in enumerate(range(0, 40, 5), 1):
            common: Event = {"sidecar_id": f"sound-{number}", "cluster_id": "sound", "service": "sound"}
            common |= {"observed_at": f"2026-11-21T09:{minute:02d}:0{number}Z", "boot_id": 1}
            beat = good(event_v1.HEARTBEAT) | {
                "metadata_max_age_ms": max_age_ms,
                "uptime_ms": minute * 60_000,
            }
            sees = good(event_v1.PARTITION) | {"leader": 1 + seq % 2, "leader_epoch": seq}
            lines.append(json.dumps(beat | common | {"seq": 2 * seq - 1}))
            lines.append(json.dumps(sees | common | {"seq": 2 * seq}))
    return lines


def _write(folder: Path, lines: list[str]) -> None:
    """In an order in which nobody wrote them."""
    random.Random(3).shuffle(lines)
    folder.mkdir()
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.utime(folder / "events.jsonl", (RECEIVED_S, RECEIVED_S))


def _rows(rows: DataFrame) -> list[str]:
    """All of them, as text: no type of Python's holds every time that Spark has."""
    return sorted(row[0] for row in rows.select(f.to_json(f.struct(*sorted(rows.columns)))).collect())


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Summary, int]:
    """A store that the job filled from extremes and a sound fleet, what the job said, and how many lines."""
    root = tmp_path_factory.mktemp("filled")
    lines = [*extreme_lines(drawn=5_000), *_sound_fleet()]
    _write(root / "events", lines)
    store = open_store(spark, str(root / "out"), PARQUET, to_write=True)
    progress = Progress(sys.stderr, lambda: 0.0, shows=False)
    source = FilesSource(str(root / "events"), max_files_per_batch=1)
    job = Job(spark, source, store, progress, stop=threading.Event(), gold=_JUDGING)
    return store, job.run(), len(lines)


def test_extreme_values_stop_no_table_and_leave_a_sound_fleet_as_it_is(
    filled: tuple[Store, Summary, int],
) -> None:
    store, summary, lines = filled
    assert summary.failed == {}
    assert [*summary.rows] == [*_BRONZE, *_SILVER, *_JUDGING]
    assert summary.lines == lines
    assert summary.rejects.keys() <= {*REASONS}
    assert summary.rejects["out_of_range"] > 100
    assert summary.rejects["inconsistent"] > 10
    quality = {row["sidecar_id"]: row for row in store.read(tables.GOLD_DATA_QUALITY).collect()}
    for number in range(4):
        assert quality[f"sound-{number}"]["received"] == 16
        assert not quality[f"sound-{number}"]["is_clock_suspect"]
    waits = store.read(tables.GOLD_STALENESS).where("sidecar_id = 'sound-3'").collect()
    assert {row["metadata_max_age_ms"] for row in waits} == {NEVER_MS}
    assert {row["is_beyond_twice_the_interval"] for row in waits} == {False}


@pytest.mark.parametrize("table", _BRONZE)
def test_delta_holds_extreme_lines_too(
    table: str, filled: tuple[Store, Summary, int], spark: SparkSession, tmp_path: Path
) -> None:
    kept, _, _ = filled
    delta = open_store(spark, str(tmp_path / "out"), DELTA, to_write=True)

    delta.append(table, kept.read(table), BatchId("files-1", 0))

    assert _rows(delta.read(table)) == _rows(kept.read(table))


# -- of whatever a bronze holds that was filled without rules ------------------------------------------------


def _of_an_older_bronze() -> list[Event]:
    """Events with any values that the types allow, ordinary ones and a sound fleet included."""
    events = []
    for text in (*extreme_lines(drawn=2_000), *_sound_fleet()):
        event = json.loads(text)
        if len(text) > 50_000:
            continue
        for name in ("observed_at", "started_at"):
            if event.get(name) is not None:
                event[name] = datetime.fromisoformat(event[name])
        events.append(event)
    random.Random(5).shuffle(events)
    return events


@pytest.fixture(scope="module")
def older(spark: SparkSession) -> Tables:
    """What is made of them."""
    return Tables(spark, _of_an_older_bronze())


@pytest.mark.parametrize("table", SILVER, ids=lambda table: table.name)
def test_a_silver_table_is_the_same_whether_made_at_once_or_merged_by_delta(
    table: SilverTable, older: Tables, spark: SparkSession, tmp_path: Path
) -> None:
    source = older(table.source)
    is_first = f.crc32(f.to_json(f.struct("*")).cast("binary")) % 2 == 0
    delta = open_store(spark, str(tmp_path / "out"), DELTA, to_write=True)

    # Some rows twice.
    delta.merge(table, table.of(source.where(is_first)))
    delta.merge(table, table.of(source))

    assert _rows(older(table.name)) == _rows(delta.read(table.name)) != []


@pytest.mark.parametrize("table", GOLD)
def test_a_gold_table_is_made_of_whatever_bronze_holds_and_both_stores_keep_it(
    table: str, older: Tables, spark: SparkSession, tmp_path: Path
) -> None:
    rows = _rows(older(table))
    # None of these lines was rejected.
    assert (rows == []) == (table == tables.GOLD_REJECTS)
    for kind in KINDS:
        store = open_store(spark, str(tmp_path / kind), kind, to_write=True)
        store.replace(table, older(table))
        assert _rows(store.read(table)) == rows
