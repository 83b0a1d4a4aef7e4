"""Tables as Parquet: nothing but Spark is needed, and anything that knows Parquet reads them.

    <out>/bronze_events/batch=files-1f0c93aa-12/part-….parquet     a batch, replaced when it is done again
    <out>/gold_churn/part-….parquet                                replaced whole
    <out>/.gold_churn.new, <out>/.gold_churn.old                   while that goes on; Spark skips dot names

A table is written beside its place and then renamed: a reader sees the old one or the new one, but for the
instant between two renames. Silver is best computed again from bronze, as there is no changing a Parquet
file; `merge` writes the whole table again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.stores.folders import Folders
from pipeline.stores.store import PARQUET, BatchId, StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pipeline.silver.silver_table import SilverTable


class ParquetStore:
    """A Store of Parquet folders. Made by `open_store`, which sees to it that the folder is one."""

    kind = PARQUET
    merges_in_place = False

    def __init__(self, spark: SparkSession, out: str) -> None:
        self.out = out
        self._spark = spark
        self._folders = Folders(spark)

    def __repr__(self) -> str:
        return f"<ParquetStore {self.out}>"

    def has(self, table: str) -> bool:
        # A killed driver may have made the folder of a table and not yet moved anything into it.
        return any(name[0] not in "._" for name in self._folders.names(self._folder(table)))

    def read(self, table: str) -> DataFrame:
        if not self.has(table):
            raise StoreError(
                f"{self.out} has no table {table}: `pilotfish-pipeline run` with this --out makes it."
            )
        # Into the folders of bronze's batches, whose names are no column of it.
        return self._spark.read.option("recursiveFileLookup", True).parquet(self._folder(table))

    def create(self, table: str, schema: StructType) -> None:
        if not self.has(table):
            # Under a batch's name: an empty file beside the batches' folders would hide them from others.
            self.append(table, self._spark.createDataFrame([], schema), BatchId("none", 0))

    def append(self, table: str, rows: DataFrame, batch: BatchId) -> None:
        self._write(table, rows, f"{self._folder(table)}/batch={batch}")

    def merge(self, table: SilverTable, rows: DataFrame) -> None:
        if self.has(table.name):
            rows = rows.unionByName(self.read(table.name))
        self.replace(table.name, table.merge(rows))

    def replace(self, table: str, rows: DataFrame) -> None:
        self._write(table, rows, self._folder(table))

    def _write(self, table: str, rows: DataFrame, to: str) -> None:
        new, old = f"{self.out}/.{table}.new", f"{self.out}/.{table}.old"
        rows.write.mode("overwrite").parquet(new)
        if self._folders.exists(to):
            self._folders.move(to, old)
        self._folders.move(new, to)
        self._folders.delete(old)

    def _folder(self, table: str) -> str:
        return f"{self.out}/{table}"
