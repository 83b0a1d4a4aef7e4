"""Updates silver and gold from bronze, and marks whether they are up to date.

    <out>/_fresh.json    {"version": …, "tables": […]}   exists while silver and gold have all data of bronze
    <out>/_failed.json   {"gold_churn": "why"}           the tables that could not be made, if any

The mark is deleted before a batch is added to bronze, and written after the last gold table. So a run that
starts after a driver was killed at any moment sees that work is left. A run with nothing new and the same
tables sees that there is none.

A table that fails does not stop the others. It stays unchanged, as do the tables made from it, and each is
reported. A silver table whose merge failed lacks a batch: this run or the next one makes it again from all of
bronze.

If days are closed (closing.py), only the rows of gold that are not over are made again; the others stay.

_fresh.json names the version of the installed package.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from pipeline import closing
from pipeline.closing import Closed, sql_time
from pipeline.errors import PipelineError, first_line
from pipeline.gold import GOLD
from pipeline.silver import SILVER
from pipeline.silver.silver_table import BOOT_KEY
from pipeline.stores.folders import FAILED, MARK, Folders
from pipeline.stores.store import CLOSED_LAYOUT
from pipeline.tables import BRONZE_EVENTS, BRONZE_REJECTS, GOLD_DATA_QUALITY, SILVER_SEQS, SILVER_SIDECARS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import SparkSession

    from pipeline.gold.read import GoldTable
    from pipeline.progress import Progress
    from pipeline.silver.silver_table import SilverTable
    from pipeline.stores.store import Store


_MARK: Final = "_fresh.json"
_REBUILD: Final = "`pilotfish-pipeline run --rebuild`"
_ANEW: Final = "A run that makes it from all of bronze did not end."
#: The causes of a table's failure: its own rows, its sources, or the place where it is written.
_FAILURES: Final = (PySparkException, Py4JError, PipelineError)


def pilotfish_version() -> str:
    """Returns the package's version; "unknown" if it was sent to a cluster as files."""
    for name in ("pilotfish-pipeline", "pilotfish"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "unknown"


class OtherColumnsError(PipelineError):
    """The closed rows of a table are of another version."""


class SourceNotMadeError(PipelineError):
    """A source of this table could not be made."""


#: More boots are not held in the driver's memory: they would be part of every plan.
MOST_HELD: Final = 10_000


class Refresh:
    """Updates silver and gold of a store. `at` is called with a table's name when it is written."""

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
        self._spark = spark
        self._store = store
        self._silver = silver
        self._gold = gold
        self.silver_names = [table.name for table in silver]
        #: All tables, in the order in which they are made.
        self.names = [*self.silver_names, *gold]
        self._says = {"version": pilotfish_version(), "tables": self.names}
        self._folders = Folders(spark)
        self._mark = f"{store.out}/{_MARK}"
        self._failed_mark = f"{store.out}/{FAILED}"
        self._closed_mark = f"{store.out}/{closing.MARK}"
        self._closed = Closed.of(self._folders.read_json(self._closed_mark))
        self.progress = progress
        self._at = at
        #: The tables as read last, until they change: reading one costs Spark a job for its columns.
        self._frames: dict[str, DataFrame] = {}
        #: The number of rows of each replaced table.
        self._rows: dict[str, int] = {}
        #: The tables that could not be made, and why.
        self.failed: dict[str, str] = {}
        #: The tables that were not up to date before this run, and why, until it makes them.
        self._lacking: dict[str, str] = {}

    def is_due(self) -> bool:
        """Returns whether silver and gold lack data of bronze, or are of another version."""
        return self._folders.read_json(self._mark) != self._says

    def begins(self) -> None:
        """Deletes the mark, because bronze is about to change."""
        self._frames.clear()
        self._folders.delete_json(self._mark)

    def begins_anew(self) -> None:
        """Records that silver lacks something until it was made from all of bronze: after an upgrade, or if
        events are removed. If this run is killed, the next one does it. Opens the closed days.
        """
        self.begins()
        self._lacking = {table.name: _ANEW for table in self._silver}
        self._folders.write_json(self._failed_mark, self._lacking)
        self._folders.delete_json(self._closed_mark)
        self._closed = None

    def silver(self) -> None:
        """Makes every silver table from all of bronze."""
        for table in self._silver:
            self._make_silver(table)
        self._store.note_merged(BRONZE_EVENTS)

    def missing_silver(self) -> list[str]:
        """Makes silver tables that batches can't be merged into from all of bronze: those that are missing,
        have the columns of another version, or failed and so lack a batch. Returns their names.
        """
        self._lacking = self._folders.read_json(self._failed_mark) or {}
        made = [each for each in self._silver if each.name in self._lacking or not self._is_mergeable(each)]
        for table in made:
            self._make_silver(table)
        return [table.name for table in made]

    def unmerged_silver(self) -> None:
        """Merges the batches of bronze that silver lacks; makes tables that are missing from all of it."""
        made = self.missing_silver()
        news = self._store.unmerged(BRONZE_EVENTS)
        if news is not None:
            self.merge_into_silver(news, made)
            self._store.note_merged(BRONZE_EVENTS)

    def merge_into_silver(self, events: DataFrame, but: Sequence[str] = ()) -> None:
        """Merges bronze events into every silver table, but those that have them."""
        sources = {BRONZE_EVENTS: events}
        for table in self._silver:
            if table.name in but:
                sources[table.name] = table.of(sources[table.source])
                continue
            # A failed table lacks at least this batch, and so would tables made from it.
            if table.name in self.failed or table.source in self.failed:
                self._note(table.name, self.failed.get(table.name) or _needs(table.source))
                continue
            self.progress.doing(table.name)
            sources[table.name] = table.of(sources[table.source])
            try:
                self._frames.pop(table.name, None)
                self._store.merge(table, sources[table.name])
            except _FAILURES as e:
                self._note(table.name, first_line(e))
            else:
                self._rows.pop(table.name, None)
                self._at(table.name)

    def bring_up_to_date(self) -> None:
        """Makes silver and gold of what bronze has. In a store that merges in place, batches are already in
        silver.
        """
        if not self._store.merges_in_place:
            self.unmerged_silver()
        self._open_boots_that_returned()
        self.gold()

    def gold(self) -> None:
        """Makes failed silver tables again, then every gold table from silver, then writes the mark."""
        for table in self._silver:
            if table.name in self.failed:
                self._make_silver(table)
        for name in self._gold:
            self.failed.pop(name, None)
        for name in self._gold:
            self._make(name, partial(self._gold_rows, name), self._closed_rows(name))
        if self.failed:
            self._folders.write_json(self._failed_mark, self.failed)
            return
        self._folders.delete_json(self._failed_mark)
        self._folders.write_json(self._mark, self._says)
        self._at("fresh")

    def close(self, closed: Closed, keep_from: datetime | None) -> None:
        """Closes the days before `closed.before`; drops gold rows that were over before `keep_from`.

        Silver and gold must be up to date. May be repeated after a kill. A closed day is not opened.
        """
        if self._closed is not None:
            closed = max(closed, self._closed)
        mark = f"{self._store.out}/{MARK}"
        self._folders.write_json(mark, {**(self._folders.read_json(mark) or {}), "layout": CLOSED_LAYOUT})
        self._folders.write_json(self._closed_mark, closed.says())
        for table, kept in closing.KEPT.items():
            if self._store.has(table):
                self._replace(table, kept(self._read, f.lit(closed.since)), "")
        self._closed = closed
        self._frames.clear()
        for name in self._gold:
            if is_closed := self._closed_rows(name):
                self.progress.doing(f"closing {name}")
                drop = "false" if keep_from is None else f"{closing.OVER_AT[name]} < {sql_time(keep_from)}"
                self._store.close(name, is_closed, drop)
                self._at(f"closed {name}")

    def _open_boots_that_returned(self) -> None:
        """Brings back to silver what boots reported before their days were closed, if they report again.

        So that their row is made of all lines: without the earlier ones, these would count as missing.
        """
        closed_rows = self._closed_rows(GOLD_DATA_QUALITY)
        if not closed_rows or SILVER_SIDECARS in self.failed or not self._store.has(GOLD_DATA_QUALITY):
            return
        assert self._closed is not None, "_closed_rows"
        ended = self._store.read(GOLD_DATA_QUALITY).where(closed_rows).select(*BOOT_KEY)
        reporting = self._read(SILVER_SIDECARS).where(f.col("last_event") >= f.lit(self._closed.before))
        boots = reporting.join(ended, [*BOOT_KEY], "left_semi").select(*BOOT_KEY).distinct().collect()
        if not boots:
            return
        are_theirs = closing.of_boots(boots)
        others = [name for name in self.silver_names if name not in (SILVER_SIDECARS, SILVER_SEQS)]
        self.merge_into_silver(self._read(BRONZE_EVENTS).where(are_theirs), others)
        self._store.close(GOLD_DATA_QUALITY, closed_rows, are_theirs)
        self._frames.pop(GOLD_DATA_QUALITY, None)

    def rows_of_all(self) -> dict[str, int]:
        """Returns the number of rows of each table, in the order in which they are made."""
        self.progress.doing("counting")
        return {
            name: self._rows[name] if name in self._rows else self._store.read(name).count()
            for name in (BRONZE_EVENTS, BRONZE_REJECTS, *self.names)
            if name not in self.failed and self._store.has(name)
        }

    def _make_silver(self, table: SilverTable) -> None:
        self._make(table.name, lambda: table.of(self._read(table.source)))

    def _make(self, name: str, rows: Callable[[], DataFrame], closed: str = "") -> None:
        """Replaces the table's rows that are not closed; on failure it stays as it was, and its name is added
        to `failed`.
        """
        self.failed.pop(name, None)
        try:
            self._replace(name, rows(), closed)
            self._lacking.pop(name, None)
        except _FAILURES as e:
            self._note(name, first_line(e))

    def _gold_rows(self, name: str) -> DataFrame:
        """Returns the rows of a gold table that are not closed: those that were over before stay."""
        made = self._gold[name](self._read)
        if not self._closed_rows(name) or not self._store.has(name):
            return made
        assert self._closed is not None, "_closed_rows"
        before = self._read(name)
        if before.columns != made.columns:
            raise OtherColumnsError(f"Its closed days have other columns: {_REBUILD} makes them again.")
        return self._closed.rows(name, made, before)

    def _closed_rows(self, name: str) -> str:
        """Returns the SQL that is true for the closed rows of a table; "" if it has none."""
        return "" if self._closed is None else self._closed.is_closed(name)

    def _note(self, name: str, why: str) -> None:
        """Records a failure on disk before the batch ends, so that the next run knows it."""
        if self.failed.get(name) != why:
            self.failed[name] = why
            self.progress.done(f"{name} failed: {why}")
            self._folders.write_json(self._failed_mark, self._lacking | self.failed)

    def _read(self, name: str) -> DataFrame:
        if name in self.failed:
            raise SourceNotMadeError(_needs(name))
        if name not in self._frames:
            rows = self._store.read(name, self._closed_rows(name))
            is_held = name == GOLD_DATA_QUALITY and self._rows.get(name, MOST_HELD + 1) <= MOST_HELD
            self._frames[name] = held(self._spark, rows) if is_held else rows
        return self._frames[name]

    def _is_mergeable(self, table: SilverTable) -> bool:
        has = self._store.has(table.name)
        return has and {*self._store.read(table.name).columns} == {*table.columns}

    def _replace(self, name: str, rows: DataFrame, closed: str) -> None:
        self.progress.doing(name)
        self._frames.pop(name, None)
        observation = Observation()
        self._store.replace(name, rows.observe(observation, f.count(f.lit(1)).alias("rows")), closed)
        if closed:
            self._rows.pop(name, None)
        else:
            self._rows[name] = observation.get["rows"]
        self._at(name)


def held(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Returns the rows, held in the driver's memory. Runs a job of Spark, and blocks.

    Of gold_data_quality, Spark's optimizer then knows which boots are left out, in most fleets none, and
    removes the joins with them from the plans of other tables.
    """
    rows_of_java = rows._jdf.collectAsList()
    return DataFrame(spark._jsparkSession.createDataFrame(rows_of_java, rows._jdf.schema()), spark)


def _needs(name: str) -> str:
    return f"It is made of {name}, which failed."
