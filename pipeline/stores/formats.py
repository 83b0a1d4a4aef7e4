"""Stores tables as Parquet or Delta; `open_store` opens a folder as one of them.

Parquet needs only Spark, and every tool reads it:

    <out>/bronze_events/batch=files-1f0c93aa-12/part-….parquet     a batch, replaced if it is repeated
    <out>/bronze_events/batch=compact-3/part-….parquet             batches that were written together
    <out>/gold_churn/part-….parquet                                replaced as a whole
    <out>/gold_churn/part=closed, …/part=open                      the same, once days are closed (closing.py)
    <out>/.gold_churn.new, <out>/.gold_churn.old                   temporary; Spark skips dot names
    <out>/_exchange.json                                           what `.gold_churn.new` replaces
    <out>/_merged.json                                             the batches that silver has

A table is written to another folder and then renamed. A reader sees the old table or the new one, except in
the instant between two renames. What is replaced may be the only copy: once the new one is whole,
`_exchange.json` names it, and whoever opens the store next finishes. A Parquet file cannot be changed, so
`merge` writes the whole table again: once for all batches of a run.

Delta merges a batch into silver in place, and readers see whole versions. A table's log identifies a batch
of bronze by the query's name and the batch's number (Delta's txnAppId and txnVersion). They are options of
each write, not settings of the session, because all streams of a session share its settings
(delta-io/delta#1421). Silver needs no such guard: merging the same rows again changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.session import evaluation_for
from pipeline.stores.folders import MARK, Folders, mark_of, no_tables, refuse_if_foreign
from pipeline.stores.store import DELTA, PARQUET, BatchId, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pipeline.silver.silver_table import SilverTable
    from pipeline.stores.store import Store


#: A file of a table's log after its first commit. Before that, Delta makes the folder and others within it.
#: If a driver is killed at that moment, the folders remain, but are not a table yet.
_COMMITTED: Final = re.compile(r"\d{20}\.(json|checkpoint\..+)")
_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
#: The parts of a table of Parquet in which days were closed.
_CLOSED: Final = "part=closed"
_OPEN: Final = "part=open"
#: Folders of batches that were written together: silver has them.
_COMPACT: Final = "batch=compact-"
#: Smaller folders are written together. Spark reads as much in one task.
_SMALL_BYTES: Final = 128 * 2**20


def _no_table(out: str, table: str) -> StoreError:
    return StoreError(f"{out} has no table {table}: `pilotfish-pipeline run` with this --out makes it.")


class DeltaStore:
    """A Store of Delta tables. Made by `open_store`, which checks the folder."""

    kind = DELTA
    merges_in_place = True

    def __init__(self, spark: SparkSession, out: str) -> None:
        if _EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise StoreError(
                "The Delta store needs Delta's jar: get it by `pilotfish-pipeline jars`, then give --jars."
            )
        self.out = out
        self._spark = spark
        self._folders = Folders(spark)

    def __repr__(self) -> str:
        return f"<DeltaStore {self.out}>"

    def has(self, table: str) -> bool:
        names = self._folders.names(f"{self._folder(table)}/_delta_log")
        return any(_COMMITTED.fullmatch(name) for name in names)

    def read(self, table: str, closed: str = "") -> DataFrame:
        if not self.has(table):
            raise _no_table(self.out, table)
        rows = self._spark.read.format("delta").load(self._folder(table))
        return rows.where(f"NOT ({closed})") if closed else rows

    def create(self, table: str, schema: StructType) -> None:
        if not self.has(table):
            self.replace(table, self._spark.createDataFrame([], schema))

    def append(self, table: str, rows: DataFrame, batch: BatchId) -> None:
        writer = rows.write.format("delta").mode("append")
        with evaluation_for(rows):
            writer.options(txnAppId=batch.query, txnVersion=batch.number).save(self._folder(table))

    def merge(self, table: SilverTable, rows: DataFrame) -> None:
        news = table.merge(rows)
        if not self.has(table.name):
            self.replace(table.name, news)
            return
        path = self._folder(table.name).replace("`", "``")
        same = " AND ".join(f"there.`{key}` = news.`{key}`" for key in table.keys)
        merged = ", ".join(
            f"`{name}` = {merge.of_two(f'there.`{name}`', f'news.`{name}`')}"
            for name, merge in table.merges.items()
        )
        rows.sparkSession.sql(
            f"MERGE INTO delta.`{path}` AS there USING {{news}} AS news ON {same}"
            f" WHEN MATCHED THEN UPDATE SET {merged} WHEN NOT MATCHED THEN INSERT *",
            news=news,
        )

    def replace(self, table: str, rows: DataFrame, closed: str = "") -> None:
        writer = rows.write.format("delta").mode("overwrite")
        if closed and self.has(table):
            # Files of closed rows alone are not touched: a file's least and greatest values say so.
            writer = writer.option("replaceWhere", f"NOT ({closed})")
        else:
            writer = writer.option("overwriteSchema", True)
        with evaluation_for(rows):
            writer.save(self._folder(table))

    def remove(self, table: str, which: str) -> None:
        self._sql("DELETE FROM", table, f"WHERE {which}")

    def close(self, table: str, closed: str, which: str) -> None:
        self.remove(table, which)
        self.compact(table)
        # So that the closed rows are in files of their own, which later writes do not touch.
        self.replace(table, self.read(table, closed), closed)

    def unmerged(self, table: str) -> DataFrame | None:
        return None

    def note_merged(self, table: str) -> None:
        """Each batch is merged before it ends."""

    def compact(self, table: str) -> int:
        done = self._sql("OPTIMIZE", table).select("metrics.numFilesRemoved").first()
        return int(done[0]) if done is not None else 0

    def vacuum(self, tables: Iterable[str]) -> None:
        for table in tables:
            self._sql("VACUUM", table)

    def _sql(self, verb: str, table: str, rest: str = "") -> DataFrame:
        path = self._folder(table).replace("`", "``")
        return self._spark.sql(f"{verb} delta.`{path}` {rest}")

    def _folder(self, table: str) -> str:
        return f"{self.out}/{table}"


class ParquetStore:
    """A Store of Parquet folders. Made by `open_store`, which checks the folder."""

    kind = PARQUET
    merges_in_place = False

    def __init__(self, spark: SparkSession, out: str) -> None:
        self.out = out
        self._spark = spark
        self._folders = Folders(spark)
        self._exchange = f"{out}/_exchange.json"
        self._merged = f"{out}/_merged.json"

    def __repr__(self) -> str:
        return f"<ParquetStore {self.out}>"

    def has(self, table: str) -> bool:
        # A killed driver may have made a table's folder without any file in it.
        return any(name[0] not in "._" for name in self._folders.names(self._folder(table)))

    def read(self, table: str, closed: str = "") -> DataFrame:
        if not self.has(table):
            raise _no_table(self.out, table)
        folder = self._folder(table)
        if closed and self._folders.exists(f"{folder}/{_OPEN}"):
            return self._rows([f"{folder}/{_OPEN}"])
        rows = self._rows([folder])
        is_split = closed and self._folders.exists(f"{folder}/{_CLOSED}")
        return rows.where(f"NOT ({closed})") if is_split else rows

    def create(self, table: str, schema: StructType) -> None:
        if not self.has(table):
            # In a batch folder: an empty file beside the batches' folders would hide them from other readers.
            self.append(table, self._spark.createDataFrame([], schema), BatchId("none", 0))

    def append(self, table: str, rows: DataFrame, batch: BatchId) -> None:
        self._write(table, rows, f"{self._folder(table)}/batch={batch}")

    def merge(self, table: SilverTable, rows: DataFrame) -> None:
        if self.has(table.name):
            rows = rows.unionByName(self.read(table.name))
        self.replace(table.name, table.merge(rows))

    def replace(self, table: str, rows: DataFrame, closed: str = "") -> None:
        is_split = closed and self._folders.exists(f"{self._folder(table)}/{_CLOSED}")
        self._write(table, rows, f"{self._folder(table)}/{_OPEN}" if is_split else self._folder(table))

    def remove(self, table: str, which: str) -> None:
        files = self.read(table).where(which).select("_metadata.file_path").distinct().collect()
        for batch in sorted({row["file_path"].rsplit("/", 2)[1] for row in files}):
            to = f"{self._folder(table)}/{batch}"
            rows = self._rows([to]).where(f"NOT coalesce({which}, false)")
            if rows.isEmpty():
                self._folders.delete(to)
            else:
                self._write(table, rows, to)

    def close(self, table: str, closed: str, which: str) -> None:
        part = f"CASE WHEN {closed} THEN '{_CLOSED}' ELSE '{_OPEN}' END".replace("part=", "")
        rows = self.read(table).where(f"NOT coalesce({which}, false)")
        if rows.where(closed).isEmpty():
            self._write(table, rows, self._folder(table))
        else:
            self._write(table, rows.withColumn("part", f.expr(part)), self._folder(table), "part")

    def unmerged(self, table: str) -> DataFrame | None:
        merged = (self._folders.read_json(self._merged) or {}).get("batches", ())
        batches = self._batches(table)
        news = [batch for batch in batches if batch not in merged and not batch.startswith(_COMPACT)]
        return self._rows([f"{self._folder(table)}/{batch}" for batch in news]) if news else None

    def note_merged(self, table: str) -> None:
        self._folders.write_json(self._merged, {"batches": self._batches(table)})

    def compact(self, table: str) -> int:
        batches = self._batches(table)
        if not batches:
            return 0
        sizes = {batch: self._folders.size_bytes(f"{self._folder(table)}/{batch}") for batch in batches}
        small = [batch for batch in batches if sizes[batch] < _SMALL_BYTES]
        if len(small) < 2:
            return 0
        numbers = [int(batch[len(_COMPACT) :]) for batch in batches if batch.startswith(_COMPACT)]
        files = 1 + sum(sizes[batch] for batch in small) // _SMALL_BYTES
        paths = [f"{self._folder(table)}/{batch}" for batch in small]
        # An older version wrote batches with fewer columns.
        rows = self._spark.read.option("mergeSchema", True).parquet(*paths)
        to = f"{self._folder(table)}/{_COMPACT}{max(numbers, default=0) + 1}"
        self._write(table, rows.coalesce(files), to, instead_of=[f"{table}/{batch}" for batch in small])
        return len(small)

    def vacuum(self, tables: Iterable[str]) -> None:
        for table in tables:
            for left in ("new", "old"):
                self._folders.delete(f"{self.out}/.{table}.{left}")

    def finish_exchange(self) -> None:
        """Puts what is whole in the place of the old one, which nothing else has."""
        exchange = self._folders.read_json(self._exchange)
        if exchange is None:
            return
        new, to = f"{self.out}/{exchange['new']}", f"{self.out}/{exchange['to']}"
        old = new.removesuffix("new") + "old"
        # Written last. An object store that was interrupted while it renamed has copied everything before.
        if self._folders.exists(f"{new}/_SUCCESS"):
            if self._folders.exists(to):
                self._folders.move(to, old)
            self._folders.move(new, to)
        for path in exchange.get("instead_of", ()):
            self._folders.delete(f"{self.out}/{path}")
        self._folders.delete(old)
        self._folders.delete_json(self._exchange)

    def _write(self, table: str, rows: DataFrame, to: str, *by: str, instead_of: Sequence[str] = ()) -> None:
        # One that failed on a full disk has the only copy of a table.
        self.finish_exchange()
        new = f".{table}.new"
        with evaluation_for(rows):
            rows.write.mode("overwrite").partitionBy(*by).parquet(f"{self.out}/{new}")
        exchange = {"new": new, "to": to[len(self.out) + 1 :], "instead_of": [*instead_of]}
        self._folders.write_json(self._exchange, exchange)
        self.finish_exchange()

    def _batches(self, table: str) -> list[str]:
        return [name for name in self._folders.names(self._folder(table)) if name.startswith("batch=")]

    def _rows(self, paths: Sequence[str]) -> DataFrame:
        # Reads the folders of batches and parts; their names do not become a column.
        return self._spark.read.option("recursiveFileLookup", True).parquet(*paths)

    def _folder(self, table: str) -> str:
        return f"{self.out}/{table}"


_STORES: Final[dict[str, Callable[[SparkSession, str], Store]]] = {DELTA: DeltaStore, PARQUET: ParquetStore}


def open_store(spark: SparkSession, out: str, kind: str = PARQUET, *, to_write: bool = False) -> Store:
    """Returns the store of this kind in the folder `out`; makes the folder if `to_write`.

    Raises StoreError for no tables, tables of another kind or layout, no write access, or no Delta.
    """
    folders, out = Folders(spark), out.rstrip("/") or "/"
    path = f"{out}/{MARK}"
    mark = folders.read_json(path)
    if mark is not None:
        refuse_if_foreign(mark, out, kind)
    elif not to_write:
        raise no_tables(out)
    store = _STORES[kind](spark, out)
    if to_write and not folders.exists(path):
        # A driver that was killed may have left it beside its place, where programs of others do not look.
        folders.make(out)
        folders.write_json(path, mark or mark_of(kind))
    if to_write and isinstance(store, ParquetStore):
        store.finish_exchange()
    return store
