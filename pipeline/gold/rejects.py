"""gold_rejects: why lines were turned away, and one of each kind to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from pipeline.tables import BRONZE_REJECTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.gold.read import Read


def rejects(read: Read) -> DataFrame:
    """gold_rejects: a row a reason. A line that came several times is counted once."""
    return (
        read(BRONZE_REJECTS)
        .groupBy("reason")
        .agg(
            f.count_distinct("line_sha256").alias("lines"),
            f.min("received_at").alias("first_received"),
            f.max("received_at").alias("last_received"),
            f.min("line_head").alias("example"),
        )
    )
