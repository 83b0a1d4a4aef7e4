"""Silver and gold, brought up to date with bronze; and the mark that says whether they are.

    <out>/_fresh.json    {"version": …, "tables": […]}   there while silver and gold hold all that bronze does
    <out>/_failed.json   {"gold_churn": "why"}           the tables that could not be made, if any

The mark goes before a batch is added to bronze and comes back when the last gold table is written. So whoever
starts after a driver was killed, in whichever instant, sees that there is something left to do; and whoever
starts with nothing new, and the same tables to make, sees that there isn't.

A table that fails stops no other one. It stays as it was, those that are made of it do as well, and each is
named. A silver table that could not be merged into lacks a batch: it is made again of all of bronze, by this
run or the next one.

_fresh.json names the version of the installed package.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as f

from pipeline.errors import PipelineError, first_line
from pipeline.gold import GOLD
from pipeline.silver import SILVER
from pipeline.stores.folders import FAILED, Folders
from pipeline.tables import BRONZE_EVENTS, BRONZE_REJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.gold.read import GoldTable
    from pipeline.progress import Progress
    from pipeline.silver.silver_table import SilverTable
    from pipeline.stores.store import Store


_MARK: Final = "_fresh.json"
#: What a table may fail of: its own rows, what it is made of, or where it is written.
_FAILURES: Final = (PySparkException, Py4JError, PipelineError)


def pilotfish_version() -> str:
    """The package's version; "unknown" where it was shipped to a cluster as files."""
    for name in ("pilotfish-pipeline", "pilotfish"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "unknown"


class SourceNotMadeError(PipelineError):
    """A table that another one is made of could not be made."""


class Refresh:
    """Silver and gold of a store. `at` is called with a table's name when it is written."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        progress: Progress,
        at: Callable[[str], None],
        *,
        silver: Sequence[SilverTable] = SILVER,
        gold: Mapping[str, GoldTable] = GOLD,
    ) -> None:
        self._store = store
        self._silver = silver
        self._gold = gold
        self._names = [*(table.name for table in silver), *gold]
        self._says = {"version": pilotfish_version(), "tables": self._names}
        self._folders = Folders(spark)
        self._mark = f"{store.out}/{_MARK}"
        self._failed_mark = f"{store.out}/{FAILED}"
        self._progress = progress
        self._at = at
        #: How many rows each table got that was replaced.
        self._rows: dict[str, int] = {}
        #: The tables that could not be made, and why.
        self.failed: dict[str, str] = {}

    def is_due(self) -> bool:
        """Whether silver and gold lack something that bronze has, or are of another version."""
        return self._folders.read_json(self._mark) != self._says

    def begins(self) -> None:
        """Bronze is about to change."""
        self._folders.delete(self._mark)

    def silver(self) -> None:
        """Every silver table, from all of bronze."""
        for table in self._silver:
            self._make_silver(table)

    def missing_silver(self) -> None:
        """The silver tables that batches can't be merged into, from all of bronze: those that are not there,
        have the columns of another version, or lack a batch since they failed.
        """
        failed = self._folders.read_json(self._failed_mark) or {}
        for table in self._silver:
            if table.name in failed or not self._is_mergeable(table):
                self._make_silver(table)

    def merge_into_silver(self, events: DataFrame) -> None:
        """The bronze events of a batch, merged into every silver table."""
        sources = {BRONZE_EVENTS: events}
        for table in self._silver:
            # What failed lacks this batch and more, and so would what is made of it.
            if table.name in self.failed or table.source in self.failed:
                self._note(table.name, self.failed.get(table.name) or _needs(table.source))
                continue
            self._progress.doing(table.name)
            sources[table.name] = table.of(sources[table.source])
            try:
                self._store.merge(table, sources[table.name])
            except _FAILURES as e:
                self._note(table.name, first_line(e))
            else:
                self._rows.pop(table.name, None)
                self._at(table.name)

    def gold(self) -> None:
        """Silver tables that failed, once more; every gold table, from silver; then the mark."""
        for table in self._silver:
            if table.name in self.failed and self._store.merges_in_place:
                self._make_silver(table)
        for name in self._gold:
            self.failed.pop(name, None)
        for name in self._gold:
            self._make(name, partial(self._gold[name], self._read))
        if self.failed:
            self._folders.write_json(self._failed_mark, self.failed)
            return
        self._folders.delete(self._failed_mark)
        self._folders.write_json(self._mark, self._says)
        self._at("fresh")

    def rows_of_all(self) -> dict[str, int]:
        """How many rows each table has now, by its name, in the order in which they are made."""
        self._progress.doing("counting")
        return {
            name: self._rows[name] if name in self._rows else self._store.read(name).count()
            for name in (BRONZE_EVENTS, BRONZE_REJECTS, *self._names)
            if name not in self.failed and self._store.has(name)
        }

    def _make_silver(self, table: SilverTable) -> None:
        self._make(table.name, lambda: table.of(self._read(table.source)))

    def _make(self, name: str, rows: Callable[[], DataFrame]) -> None:
        """The table instead of what was there; or what was there, and the name among those that failed."""
        self.failed.pop(name, None)
        try:
            self._replace(name, rows())
        except _FAILURES as e:
            self._note(name, first_line(e))

    def _note(self, name: str, why: str) -> None:
        """On the disk before the batch is done: the next run is to know."""
        if self.failed.get(name) != why:
            self.failed[name] = why
            self._progress.done(f"{name} failed: {why}")
            self._folders.write_json(self._failed_mark, self.failed)

    def _read(self, name: str) -> DataFrame:
        if name in self.failed:
            raise SourceNotMadeError(_needs(name))
        return self._store.read(name)

    def _is_mergeable(self, table: SilverTable) -> bool:
        has = self._store.has(table.name)
        return has and {*self._store.read(table.name).columns} == {*table.columns}

    def _replace(self, name: str, rows: DataFrame) -> None:
        self._progress.doing(name)
        observation = Observation()
        self._store.replace(name, rows.observe(observation, f.count(f.lit(1)).alias("rows")))
        self._rows[name] = observation.get["rows"]
        self._at(name)


def _needs(name: str) -> str:
    return f"It is made of {name}, which failed."
