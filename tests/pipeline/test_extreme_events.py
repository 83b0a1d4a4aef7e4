"""No event that its schema allows stops a table: extremes of every field, through both stores."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pytest

from pipeline import event_v1, tables
from pipeline.gold import GOLD
from pipeline.job import Job
from pipeline.progress import Progress
from pipeline.reject_reasons import REASONS
from pipeline.silver import SILVER
from pipeline.sources import FilesSource
from pipeline.stores.opening import open_store
from pipeline.stores.store import KINDS
from tests.pipeline.event_lines import good
from tests.pipeline.extreme_events import extreme_lines
from tests.pipeline.whole_pipeline import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.fleets import Event

NEVER_MS: Final = 2**63 - 1
_RECEIVED_S: Final = datetime.fromisoformat("2026-11-21T10:00:05Z").timestamp()
_TABLES: Final = (tables.BRONZE_EVENTS, tables.BRONZE_REJECTS, *(table.name for table in SILVER), *GOLD)


def _sound_fleet() -> list[str]:
    """Four sidecars in order, of which one never refreshes by itself."""
    lines = []
    for number in range(4):
        max_age_ms = NEVER_MS if number == 3 else 60_000
        for seq, minute in enumerate(range(0, 40, 5), 1):
            common: Event = {"sidecar_id": f"sound-{number}", "cluster_id": "sound", "service": "sound"}
            common |= {"observed_at": f"2026-11-21T09:{minute:02d}:0{number}Z", "boot_id": 1}
            beat = good(event_v1.HEARTBEAT) | {"metadata_max_age_ms": max_age_ms}
            sees = good(event_v1.PARTITION) | {"leader": 1 + seq % 2, "leader_epoch": seq}
            lines.append(json.dumps(beat | common | {"seq": 2 * seq - 1}))
            lines.append(json.dumps(sees | common | {"seq": 2 * seq}))
    return lines


def _write(folder: Path, lines: list[str], files: int) -> None:
    """In an order in which nobody wrote them; a file is a batch."""
    random.Random(3).shuffle(lines)
    folder.mkdir()
    for name, part in ((f"{n}.jsonl", lines[n::files]) for n in range(files)):
        (folder / name).write_text("\n".join(part) + "\n", encoding="utf-8")
        os.utime(folder / name, (_RECEIVED_S, _RECEIVED_S))


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_values_stop_no_table_and_leave_a_sound_fleet_as_it_is(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    lines = [*extreme_lines(drawn=200), *_sound_fleet()]
    store = open_store(spark, str(tmp_path / "out"), kind, to_write=True)
    _write(tmp_path / "events", lines, files=2 if store.merges_in_place else 1)
    progress = Progress(sys.stderr, lambda: 0.0, shows=False)
    source = FilesSource(str(tmp_path / "events"), max_files_per_batch=1)

    summary = Job(spark, source, store, progress, stop=threading.Event()).run()

    assert summary.failed == {}
    assert [*summary.rows] == [*_TABLES]
    assert summary.lines == len(lines)
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


def _of_an_older_bronze() -> list[Event]:
    """Events with any values that the types allow, as a store may hold them that was filled without rules."""
    events = []
    for text in extreme_lines(drawn=300):
        event = json.loads(text)
        if len(text) > 50_000:
            continue
        for name in ("observed_at", "started_at"):
            if event.get(name) is not None:
                event[name] = datetime.fromisoformat(event[name])
        events.append(event)
    return events


@pytest.fixture(scope="module")
def older(spark: SparkSession) -> tuple[Tables, Tables]:
    """What is made of them at once, and merged in three batches."""
    events = _of_an_older_bronze()
    merged = Tables(spark, events[::3])
    merged.merge([events[1::3], events[2::3]])
    return Tables(spark, events), merged


@pytest.mark.parametrize("table", [*(table.name for table in SILVER), *GOLD])
def test_a_table_is_made_of_whatever_bronze_holds(table: str, older: tuple[Tables, Tables]) -> None:
    at_once, merged = older
    # None of these lines was rejected, and no leader goes to and fro.
    is_empty = table in (tables.GOLD_REJECTS, tables.GOLD_FLAPPING)
    assert (at_once(table).count() == 0) == is_empty
    assert merged(table).count() == at_once(table).count()
