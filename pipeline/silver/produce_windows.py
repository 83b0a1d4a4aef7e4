"""What was produced in each window, as it was told: counts can't be merged, so each is kept once.

A window is known by the boot and the number of its line. Should two lines of a boot bear one number, which
no sidecar does, the lesser of the two windows is kept, whichever came first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.event_v1 import WINDOW
from pipeline.silver.columns import BOOT_KEY, NOBODY, cluster_id, of_type, service
from pipeline.silver.silver_table import Merge, SilverTable
from pipeline.tables import SILVER_PRODUCE_WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def _windows(events: DataFrame) -> DataFrame:
    window = f.struct(
        cluster_id(),
        service(),
        "topic",
        "partition",
        f.coalesce("broker", f.lit(NOBODY)).alias("broker"),
        "started_at",
        f.col("observed_at").alias("ended_at"),
        "records",
        "batches",
        "bytes",
        "retries",
        _pairs("errors", "error", "string").alias("errors"),
        _pairs("latency_us", "bucket", "int").alias("latency"),
    )
    return of_type(events, WINDOW).select(*BOOT_KEY, "seq", window.alias("window"))


def _pairs(counts: str, name: str, kind: str) -> Column:
    """A map of counts as an array of pairs: those have an order, which a least one needs."""

    def pair(entry: Column) -> Column:
        # Bronze has seen to it that a bucket is a number.
        return f.struct(entry["key"].try_cast(kind).alias(name), entry["value"].alias("records"))

    return f.array_sort(f.transform(f.map_entries(counts), pair))


PRODUCE_WINDOWS: Final = SilverTable(
    SILVER_PRODUCE_WINDOWS,
    keys=(*BOOT_KEY, "seq"),
    rows=_windows,
    merges={"window": Merge.MIN},
)
