"""Tables as Delta: a batch is merged into silver where it is, and readers see whole versions.

A batch of bronze is known to the table's log by the query's name and its number (Delta's txnAppId and
txnVersion, as options of each write: session settings would be shared by all streams of a session, see
delta-io/delta#1421). Silver needs no such guard, as merging the same rows again changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pipeline.stores.folders import Folders
from pipeline.stores.store import DELTA, StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pipeline.silver.silver_table import SilverTable
    from pipeline.stores.store import BatchId

#: What a table's log has from its first commit on. Before that Delta makes the folder and others within it,
#: and a driver that is killed then leaves them: that is no table yet, and is made as if nothing were there.
_COMMITTED: Final = re.compile(r"\d{20}\.(json|checkpoint\..+)")
_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"


class DeltaStore:
    """A Store of Delta tables. Made by `open_store`, which sees to it that the folder is one."""

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

    def _folder(self, table: str) -> str:
        return f"{self.out}/{table}"
