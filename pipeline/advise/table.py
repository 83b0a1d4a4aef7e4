"""The rows of gold_advice: Parquet on a disk is read without Spark, in a moment, all else by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.stores.mark import require_mark_on_disk
from pipeline.stores.store import PARQUET, StoreError
from pipeline.tables import GOLD_ADVICE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


def rows_of_advice(out: str, kind: str = PARQUET) -> Sequence[dict[str, Any]]:
    """The rows, in no order; times are aware of their zone. Raises StoreError."""
    read = _without_spark if kind == PARQUET and "://" not in out else _with_spark
    rows: list[dict[str, Any]] = read(out, kind).to_pylist()
    return rows


def _without_spark(out: str, kind: str) -> pa.Table:
    from pyarrow import ArrowException
    from pyarrow import parquet as pq

    require_mark_on_disk(out, kind)
    folder = Path(out, GOLD_ADVICE)
    if not any(folder.glob("*.parquet")):
        raise StoreError(
            f"{out} has no table {GOLD_ADVICE}: `pilotfish-pipeline run` with this --out makes it."
        )
    try:
        return pq.read_table(folder)
    except (OSError, ArrowException) as error:
        raise StoreError(f"{folder} can't be read as Parquet: {error}") from error


def _with_spark(out: str, kind: str) -> pa.Table:
    from pipeline.jars.connector_jars import connector_jars, default_folder
    from pipeline.session import is_submitted, spark_session
    from pipeline.stores.opening import open_store

    jars = () if kind == PARQUET or is_submitted() else connector_jars(default_folder())
    spark = spark_session(jars=jars, is_short=True)
    try:
        return open_store(spark, out, kind).read(GOLD_ADVICE).toArrow()
    finally:
        spark.stop()
