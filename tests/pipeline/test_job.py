"""The job on a folder of files: batch by batch, run again, late files, an empty folder, a stop in between.

It mostly uses tables of its own, because the job does not depend on which tables there are.
"""

from __future__ import annotations

import gzip
import io
import json
import threading
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from pipeline.job import Job, JobError, ReadingEndedError
from pipeline.progress import Progress
from pipeline.refresh import MOST_HELD, Refresh
from pipeline.silver.silver_table import Merge, SilverTable
from pipeline.sources import FilesSource
from pipeline.stores.folders import FAILED
from pipeline.stores.formats import open_store
from pipeline.stores.store import PARQUET
from pipeline.tables import GOLD_DATA_QUALITY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.gold.read import GoldTable, Read
    from pipeline.job import Summary
    from pipeline.sources import Source

_BOOTS = SilverTable(
    "silver_boots", ("sidecar_id",), lambda e: e.select("sidecar_id", "seq"), {"seq": Merge.MAX}
)
_ENDS = SilverTable(
    "silver_ends",
    ("end",),
    lambda boots: boots.select(f.col("seq").alias("end"), "sidecar_id"),
    {"sidecar_id": Merge.MIN},
    source="silver_boots",
)
_SILVER = (_BOOTS, _ENDS)
_GOLD: dict[str, GoldTable] = {
    "gold_last": lambda read: read("silver_boots").select("sidecar_id", f.col("seq").alias("last")),
    "gold_of_gold": lambda read: read("gold_last").select(f.sum("last").alias("events")),
}
_AFTER_SILVER = ["silver_boots", "silver_ends"]
_AFTER_GOLD = ["gold_last", "gold_of_gold", "fresh"]
_AFTER_BRONZE = ["offsets", "bronze_events", "bronze_rejects"]


def _event(sidecar: str, seq: int) -> str:
    return (
        f'{{"v":1,"type":"connection","cluster_id":"c","sidecar_id":"{sidecar}","service":"s","boot_id":1,'
        f'"seq":{seq},"observed_at":"2026-01-01T10:00:00.000000Z","broker":1,"state":"ready","reason":null}}\n'
    )


class _Folder:
    """A folder of events and a store, and the job between them. Parquet: test_killed.py has Delta, too."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.events = root / "events"
        self.events.mkdir()
        self.out = root / "out"
        self.said = io.StringIO()
        #: What the last run did, in its order.
        self.points: list[str] = []
        self.stop = threading.Event()
        self._spark = spark

    def add(self, name: str, *lines: str) -> None:
        (self.events / f".{name}").write_text("".join(lines))
        (self.events / f".{name}").rename(self.events / name)

    def run(
        self,
        every_s: float | None = None,
        *,
        source: Source | None = None,
        at: Callable[[str], None] = lambda _: None,
        rebuilds: bool = False,
        gold: dict[str, GoldTable] | None = None,
    ) -> Summary:
        def note(point: str) -> None:
            self.points.append(point)
            at(point)

        self.points = []
        job = Job(
            self._spark,
            source or FilesSource(str(self.events), max_files_per_batch=2),
            open_store(self._spark, str(self.out), PARQUET, to_write=True),
            Progress(self.said, lambda: 0.0, shows=True),
            stop=self.stop,
            at=note,
            silver=_SILVER,
            gold=gold or _GOLD,
        )
        return job.run(every_s, rebuilds=rebuilds)

    def last(self) -> dict[str, int]:
        """gold_last, as it is now."""
        rows = open_store(self._spark, str(self.out), PARQUET).read("gold_last").collect()
        return {row["sidecar_id"]: row["last"] for row in rows}


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> _Folder:
    return _Folder(spark, tmp_path)


def test_an_empty_folder_gives_empty_tables_and_each_run_reads_what_is_new(folder: _Folder) -> None:
    nothing = folder.run()
    assert (nothing.batches, nothing.lines) == (0, 0)
    assert nothing.rows == {
        **dict.fromkeys(["bronze_events", "bronze_rejects", "silver_boots", "silver_ends", "gold_last"], 0),
        "gold_of_gold": 1,
    }

    folder.add("1.jsonl", _event("a", 1), _event("a", 2), "\n")
    folder.add("2.jsonl", _event("b", 1), "no event\n")
    folder.add("3.jsonl", _event("a", 3), _event("a", 3), "{}\n")
    first = folder.run()
    # Silver and gold are made once, of all batches.
    assert folder.points == [*_AFTER_BRONZE, "batch"] * 2 + [*_AFTER_SILVER, *_AFTER_GOLD]
    assert (first.batches, first.lines, first.events) == (2, 7, 5)
    assert first.rejects == {"not_json": 1, "no_version": 1}
    assert first.rows["bronze_events"] == 5
    assert folder.last() == {"a": 3, "b": 1}

    again = folder.run()
    assert (again.batches, again.lines, folder.points) == (0, 0, [])
    assert again.rows == first.rows
    assert folder.run(rebuilds=True).rows == first.rows
    assert folder.points == [*_AFTER_SILVER, *_AFTER_GOLD]

    folder.add("0-late.jsonl", _event("b", 9))
    late = folder.run()
    assert (late.batches, late.lines) == (1, 1)
    assert folder.last() == {"a": 3, "b": 9}
    assert "batch 2: 1 lines in" in folder.said.getvalue()


def test_a_run_that_follows_brings_all_up_to_date_with_each_batch_until_it_is_asked_to_stop(
    folder: _Folder,
) -> None:
    def add_then_stop(point: str) -> None:
        if point != "fresh":
            return
        if folder.points.count("fresh") == 2:
            folder.add("late.jsonl", _event("b", 1))
        elif folder.points.count("fresh") == 3:
            folder.stop.set()

    folder.add("first.jsonl", _event("a", 1))
    summary = folder.run(0.1, at=add_then_stop)

    batch = [*_AFTER_BRONZE, "batch", *_AFTER_SILVER, *_AFTER_GOLD]
    assert folder.points == [*_AFTER_SILVER, *_AFTER_GOLD, *batch, *batch]
    assert (summary.batches, summary.is_cut_short) == (2, False)
    assert folder.last() == {"a": 1, "b": 1}


def test_a_run_that_is_asked_to_stop_ends_after_the_batch_and_the_next_one_goes_on(folder: _Folder) -> None:
    for name in "12345":
        folder.add(f"{name}.jsonl", _event("a", int(name)))

    cut = folder.run(at=lambda point: folder.stop.set() if point == "batch" else None)
    assert (cut.batches, cut.is_cut_short) == (1, True)
    assert folder.points == [*_AFTER_BRONZE, "batch"]

    folder.stop.clear()
    rest = folder.run()
    assert (rest.batches, rest.is_cut_short) == (2, False)
    assert folder.last() == {"a": 5}


def test_a_table_that_fails_stops_no_other_one_and_is_named_until_it_is_made(folder: _Folder) -> None:
    failing: dict[str, GoldTable] = {
        "gold_before": lambda read: read("silver_boots").select("seq"),
        "gold_last": lambda read: read("silver_boots").select(
            "sidecar_id", (f.lit(2**63 - 1) + f.col("seq")).alias("last")
        ),
        "gold_of_gold": _GOLD["gold_of_gold"],
        "gold_after": lambda read: read("silver_boots").select("seq"),
    }
    folder.add("1.jsonl", _event("a", 1))
    folder.run()
    folder.add("2.jsonl", _event("a", 2))

    summary = folder.run(gold=failing)

    assert summary.failed["gold_last"].startswith("[ARITHMETIC_OVERFLOW]")
    assert summary.failed["gold_of_gold"] == "It is made of gold_last, which failed."
    assert {"gold_before", "gold_after"} <= summary.rows.keys()
    assert folder.points[-2:] == ["gold_before", "gold_after"]
    assert "gold_last failed: [ARITHMETIC_OVERFLOW]" in folder.said.getvalue()
    assert json.loads((folder.out / FAILED).read_text()) == summary.failed
    assert folder.last() == {"a": 1}

    # Nothing is new, and yet there is something left to do.
    assert folder.run().failed == {}
    assert folder.last() == {"a": 2}
    assert not (folder.out / FAILED).exists()


def test_a_checkpoint_goes_with_one_input_and_one_that_is_deleted_reads_all_again(
    folder: _Folder, tmp_path: Path
) -> None:
    folder.add("1.jsonl", _event("a", 1))
    folder.run()
    other = tmp_path / "other"
    other.mkdir()

    with pytest.raises(
        JobError, match=f"has read .*{folder.events}.* so far, but this run reads .*{other}"
    ) as refused:
        folder.run(source=FilesSource(str(other)))
    checkpoint = folder.out / "_checkpoint" / "files"
    assert f"delete {checkpoint}" in str(refused.value)

    for path in sorted(checkpoint.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.add("2.jsonl", _event("b", 7))
    again = folder.run()
    # Twice in bronze, where a batch of the old checkpoint is not taken for one of the new.
    assert (again.lines, again.rows["bronze_events"]) == (2, 3)
    assert folder.last() == {"a": 1, "b": 7}


class _LostSource:
    """A disk that is gone when the lines are read."""

    name = "files"
    reads = "the lost disk"

    def check(self) -> None:
        raise NotImplementedError

    def batch(self, spark: SparkSession) -> DataFrame:
        raise NotImplementedError

    def stream(self, spark: SparkSession) -> DataFrame:
        gone = f.raise_error(f.lit("input/output error\n\tat java.io")).cast("timestamp")
        lines = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        return lines.select(f.lit("x").alias("line"), f.lit("s").alias("source"), gone.alias("received_at"))


def test_a_failure_of_a_source_is_reported_in_one_line(folder: _Folder) -> None:
    with pytest.raises(ReadingEndedError) as lost:
        folder.run(source=_LostSource())

    assert "\n" not in str(lost.value)
    assert "Reading the lost disk ended: " in str(lost.value)
    assert "input/output error" in str(lost.value)
    assert lost.value.exit_code == 1


def test_a_file_that_can_t_be_read_is_named_with_the_cause_and_blocks_no_run_once_it_is_removed(
    folder: _Folder,
) -> None:
    folder.add("1.jsonl", _event("a", 1))
    half = folder.events / "2.jsonl.gz"
    half.write_bytes(gzip.compress(b"x" * 1_000)[:20])
    with pytest.raises(ReadingEndedError, match=r"2\.jsonl\.gz.*Unexpected end of.*Repair.* this file\."):
        folder.run()
    half.unlink()
    assert folder.run().lines == 1
    assert folder.last() == {"a": 1}


@pytest.mark.parametrize("more", [0, 1])
def test_as_many_boots_are_held_as_plans_can_take(spark: SparkSession, folder: _Folder, more: int) -> None:
    boots = spark.range(MOST_HELD + more)
    seen: list[DataFrame] = []

    def another(read: Read) -> DataFrame:
        seen.append(read(GOLD_DATA_QUALITY))
        return seen[0]

    store = open_store(spark, str(folder.out), PARQUET, to_write=True)
    gold = {GOLD_DATA_QUALITY: lambda _: boots, "gold_another": another}
    progress = Progress(folder.said, lambda: 0.0, shows=False)
    Refresh(spark, store, progress, lambda _: None, silver=(), gold=gold).gold()
    assert seen[0].count() == MOST_HELD + more
    assert bool(seen[0].inputFiles()) is bool(more)


def test_a_table_that_fails_does_not_hide_those_that_a_killed_run_did_not_reach(
    spark: SparkSession, folder: _Folder
) -> None:
    folder.add("a", _event("a", 1))
    folder.run()
    broken = SilverTable("silver_broken", ("x",), lambda e: e.select("no_such_column"), {})

    def kill(point: str) -> None:
        if point == _BOOTS.name:
            raise KeyboardInterrupt

    store = open_store(spark, str(folder.out), PARQUET, to_write=True)
    for makes in (Refresh.silver, Refresh.missing_silver):
        refresh = Refresh(
            spark, store, Progress(folder.said, lambda: 0.0, shows=False), kill, silver=(broken, *_SILVER)
        )
        if makes is Refresh.silver:
            refresh.begins_anew()
        with pytest.raises(KeyboardInterrupt):
            makes(refresh)
        assert {broken.name, _ENDS.name} <= json.loads((folder.out / FAILED).read_text()).keys()
