"""Silver and gold of bronze events for tests: computed as the job does it but kept in memory, or by the job.

    tables = Tables(spark, events)
    tables.rows(GOLD_CHURN)                     its rows, as a list of dicts
    WholeRun(spark, root, events).tables        the same, as the command `run` left it in a folder

A table is computed when it is first asked for, once.
"""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.dataset
from click.testing import CliRunner
from pyspark.sql import DataFrame

from pipeline.bronze import REJECTS_SCHEMA
from pipeline.cli import main
from pipeline.gold import GOLD
from pipeline.silver import SILVER
from pipeline.stores.formats import open_store
from pipeline.stores.store import PARQUET, BatchId
from pipeline.tables import BRONZE_EVENTS, BRONZE_REJECTS
from tests.pipeline.fleets import bronze, mangled, numbered
from tests.pipeline.simulate import plan_for, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from pipeline.stores.store import Store
    from tests.pipeline.fleets import Event

Row = dict[str, Any]

_SILVER = {table.name: table for table in SILVER}


class Tables:
    """Reads a table by its name, as a Store does."""

    def __init__(self, spark: SparkSession, events: Iterable[Event] = (), **given: DataFrame) -> None:
        self._spark = spark
        self._there = (
            dict(given) if BRONZE_EVENTS in given else {BRONZE_EVENTS: bronze(spark, events), **given}
        )
        self._rows: dict[str, list[Row]] = {}

    def __call__(self, name: str) -> DataFrame:
        if name not in self._there:
            # Computed here and now, so that the plans above it stay small.
            self._there[name] = self._made(name).localCheckpoint()
        return self._there[name]

    def merge(self, batches: Iterable[Iterable[Event]]) -> None:
        """Merges batches into silver, as a store does that keeps it from batch to batch."""
        brought = [bronze(self._spark, batch) for batch in batches]
        # Of each batch by itself: a table is made of what the batch brought to its source.
        made = [{BRONZE_EVENTS: events} for events in (self(BRONZE_EVENTS), *brought)]
        for table in SILVER:
            for part in made:
                part[table.name] = table.of(part[table.source])
            rows = reduce(DataFrame.unionByName, [part[table.name] for part in made])
            self._there[table.name] = table.merge(rows).localCheckpoint()
        self._rows.clear()

    def rows(self, name: str) -> list[Row]:
        """The rows of a table ordered by their values, not by how they were made."""
        if name not in self._rows:
            self._rows[name] = in_order(self._all_rows(name))
        return self._rows[name]

    def _all_rows(self, name: str) -> list[Row]:
        rows: list[Row] = self(name).toArrow().to_pylist()
        return rows

    def _made(self, name: str) -> DataFrame:
        if name in _SILVER:
            return _SILVER[name].of(self(_SILVER[name].source))
        if name == BRONZE_REJECTS:
            return self._spark.createDataFrame([], REJECTS_SCHEMA)
        return GOLD[name](self)


class TablesOnDisk(Tables):
    """The tables of a Parquet store; their rows are read without Spark."""

    def __init__(self, spark: SparkSession, store: Store) -> None:
        names = [BRONZE_EVENTS, BRONZE_REJECTS, *_SILVER, *GOLD]
        super().__init__(spark, (), **{name: store.read(name) for name in names})
        self._out = Path(store.out)

    def _all_rows(self, name: str) -> list[Row]:
        files = [str(path) for path in (self._out / name).rglob("part-*.parquet")]
        rows: list[Row] = pyarrow.dataset.dataset(files, format="parquet").to_table().to_pylist()
        return rows


class WholeRun:
    """A run of the whole job by its command: its output, the truth, and the tables that it left.

    Bronze holds these events before it; the job reads a simulated fleet's, of months earlier.
    """

    def __init__(self, spark: SparkSession, root: Path, already: Sequence[Event]) -> None:
        self.events, self.out = root / "events", root / "out"
        self.already = len(already)
        self.truth = write(plan_for(1_000, seed=5, duplicates=0.01, broken=0.05), self.events, root / "truth")
        store = open_store(spark, str(self.out), PARQUET, to_write=True)
        store.append(BRONZE_EVENTS, bronze(spark, already), BatchId("already", 0))
        self.words = ["run", "--source", "files", "--input", str(self.events), "--out", str(self.out)]
        self.said = CliRunner().invoke(main, [*self.words, "--progress"])
        assert self.said.exit_code == 0, self.said.output
        self.tables: Final = TablesOnDisk(spark, store)


class ManyFleets:
    """Fleets by their numbers, in one set of tables; each again as `mangled` brings it.

    They share no name, except the cluster of those that have none.
    """

    #: The number of a mangled fleet is that of the fleet and this.
    mangled_from: Final = 1_000

    def __init__(self, spark: SparkSession, fleets: Mapping[int, list[Event]]) -> None:
        self.of = fleets
        reported = [event for n, fleet in fleets.items() for event in numbered(fleet, n)]
        self.tables: Final = Tables(spark, reported)
        batches: list[list[Event]] = [[], []]
        for n, fleet in fleets.items():
            for batch, part in zip(batches, mangled(fleet, n), strict=True):
                batch += numbered(part, self.mangled_from + n)
        self.tables.merge(batches)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """The rows ordered by their values, column by column: times as they are, everything else as text."""
    return sorted(rows, key=lambda row: [_sortable(value) for value in row.values()])


def _sortable(value: object) -> str:
    return value.isoformat(timespec="microseconds") if isinstance(value, datetime) else repr(value)
