"""Stores tables as Parquet or Delta; `open_store` opens a folder as one of them.

Parquet needs only Spark, and every tool reads it:

    <out>/bronze_events/batch=files-1f0c93aa-12/part-….parquet     a batch, replaced if it is repeated
    <out>/gold_churn/part-….parquet                                replaced as a whole
    <out>/.gold_churn.new, <out>/.gold_churn.old                   temporary; Spark skips dot names
    <out>/_exchange.json                                           which batch `.bronze_events.new` replaces

A table is written to another folder and then renamed. A reader sees the old table or the new one, except in
the instant between two renames. A Parquet file cannot be changed, so `merge` writes the whole table again,
and it is better to compute silver again from bronze. A batch of bronze from which rows are removed is the
only copy: once the new one is whole, `_exchange.json` names it, and whoever opens the store next finishes.

Delta merges a batch into silver in place, and readers see whole versions. A table's log identifies a batch
of bronze by the query's name and the batch's number (Delta's txnAppId and txnVersion). They are options of
each write, not settings of the session, because all streams of a session share its settings
(delta-io/delta#1421). Silver needs no such guard: merging the same rows again changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pipeline.stores.folders import MARK, Folders, mark_of, no_tables, refuse_if_foreign
from pipeline.stores.store import DELTA, PARQUET, BatchId, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pipeline.silver.silver_table import SilverTable
    from pipeline.stores.store import Store


#: A file of a table's log after its first commit. Before that, Delta makes the folder and others within it.
#: If a driver is killed at that moment, the folders remain, but are not a table yet.
_COMMITTED: Final = re.compile(r"\d{20}\.(json|checkpoint\..+)")
_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"


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

    def read(self, table: str) -> DataFrame:
        if not self.has(table):
            raise StoreError(
                f"{self.out} has no table {table}: `pilotfish-pipeline run` with this --out makes it."
            )
        return self._spark.read.format("delta").load(self._folder(table))

    def create(self, table: str, schema: StructType) -> None:
        if not self.has(table):
            self.replace(table, self._spark.createDataFrame([], schema))

    def append(self, table: str, rows: DataFrame, batch: BatchId) -> None:
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", batch.query)
            .option("txnVersion", batch.number)
            .save(self._folder(table))
        )

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

    def replace(self, table: str, rows: DataFrame) -> None:
        (
            rows.write.format("delta")
            .mode("overwrite")
            .option("overwriteSchema", True)
            .save(self._folder(table))
        )

    def remove(self, table: str, which: str) -> None:
        path = self._folder(table).replace("`", "``")
        self._spark.sql(f"DELETE FROM delta.`{path}` WHERE {which}")  # noqa: S608 - no text as it was typed

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

    def __repr__(self) -> str:
        return f"<ParquetStore {self.out}>"

    def has(self, table: str) -> bool:
        # A killed driver may have made a table's folder without any file in it.
        return any(name[0] not in "._" for name in self._folders.names(self._folder(table)))

    def read(self, table: str) -> DataFrame:
        if not self.has(table):
            raise StoreError(
                f"{self.out} has no table {table}: `pilotfish-pipeline run` with this --out makes it."
            )
        # Reads the folders of bronze's batches; their names do not become a column.
        return self._spark.read.option("recursiveFileLookup", True).parquet(self._folder(table))

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

    def replace(self, table: str, rows: DataFrame) -> None:
        self._write(table, rows, self._folder(table))

    def remove(self, table: str, which: str) -> None:
        files = self.read(table).where(which).select("_metadata.file_path").distinct().collect()
        new = f"{self.out}/.{table}.new"
        for batch in sorted({row["file_path"].rsplit("/", 2)[1] for row in files}):
            to = f"{self._folder(table)}/{batch}"
            rows = self._spark.read.parquet(to)
            rows.where(f"NOT coalesce({which}, false)").write.mode("overwrite").parquet(new)
            self._folders.write_json(self._exchange, {"new": f".{table}.new", "to": f"{table}/{batch}"})
            self.finish_exchange()

    def finish_exchange(self) -> None:
        """Puts a batch without its removed rows in the place of the old one, which nothing else has."""
        exchange = self._folders.read_json(self._exchange)
        if exchange is None:
            return
        new = f"{self.out}/{exchange['new']}"
        # Written last. An object store that was interrupted while it renamed has copied everything before.
        if self._folders.exists(f"{new}/_SUCCESS"):
            self._folders.move(new, f"{self.out}/{exchange['to']}")
        self._folders.delete_json(self._exchange)

    def _write(self, table: str, rows: DataFrame, to: str) -> None:
        new, old = f"{self.out}/.{table}.new", f"{self.out}/.{table}.old"
        rows.write.mode("overwrite").parquet(new)
        if self._folders.exists(to):
            self._folders.move(to, old)
        self._folders.move(new, to)
        self._folders.delete(old)

    def _folder(self, table: str) -> str:
        return f"{self.out}/{table}"


_STORES: Final[dict[str, Callable[[SparkSession, str], Store]]] = {DELTA: DeltaStore, PARQUET: ParquetStore}


def open_store(spark: SparkSession, out: str, kind: str = PARQUET, *, to_write: bool = False) -> Store:
    """Returns the store of this kind in the folder `out`; makes the folder if `to_write`.

    Raises StoreError for no tables, tables of another kind or layout, no write access, or no Delta.
    """
    folders, out = Folders(spark), out.rstrip("/") or "/"
    mark = folders.read_json(f"{out}/{MARK}")
    if mark is not None:
        refuse_if_foreign(mark, out, kind)
    elif not to_write:
        raise no_tables(out)
    store = _STORES[kind](spark, out)
    if mark is None:
        folders.make(out)
        folders.write_json(f"{out}/{MARK}", mark_of(kind))
    if to_write and isinstance(store, ParquetStore):
        store.finish_exchange()
    return store
