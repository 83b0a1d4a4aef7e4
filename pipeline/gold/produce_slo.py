"""gold_produce_slo: volume, latency and errors of produces, by hour, topic and broker.

Each window has a histogram of latencies. Histograms can be added up, quantiles can't. A quantile is the upper
bound of its bucket, at most a quarter above the measured value.

Windows of boots whose clocks are known to be wrong count with corrected times (clocks.py).

Sums that don't fit into a BIGINT, which only made-up counts reach, are null and raise no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.event_v1 import LAST_BUCKET, SUB_BUCKETS
from pipeline.gold.clocks import set_right
from pipeline.gold.read import hour_of
from pipeline.silver.silver_table import BOOT_KEY
from pipeline.tables import SILVER_PRODUCE_WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.gold.read import Read

_KEY: Final = ("cluster_id", "hour", "topic", "broker")
_COUNTS: Final = ("records", "batches", "bytes", "retries")
_PERCENTS: Final = (50, 95, 99)


def produce_slo(read: Read) -> DataFrame:
    """Returns gold_produce_slo. Latencies are null if nothing was acknowledged."""
    reported = read(SILVER_PRODUCE_WINDOWS).select(*BOOT_KEY, "window.*")
    windows = set_right(read, reported, "started_at").select(
        "cluster_id", hour_of("started_at"), "topic", "broker", *_COUNTS, "errors", "latency"
    )
    totals = windows.groupBy(*_KEY).agg(*(f.try_sum(name).alias(name) for name in _COUNTS))
    failed = f.coalesce("failed", f.lit(0).cast("bigint"))
    # DOUBLE can hold the sum of any two counts.
    tried = f.col("records").cast("double") + failed
    return (
        totals.join(_errors(windows), [*_KEY], "left")
        .join(_latencies(windows), [*_KEY], "left")
        .select(
            *_KEY,
            *_COUNTS,
            failed.alias("failed"),
            f.when(tried > 0, failed / tried).alias("error_rate"),
            f.coalesce("errors", f.array().cast("array<struct<error:string,records:bigint>>")).alias(
                "errors"
            ),
            *(f"p{percent}_us" for percent in _PERCENTS),
        )
    )


def _errors(windows: DataFrame) -> DataFrame:
    """Returns the failed records by error name."""
    by_name = (
        windows.select(*_KEY, f.inline("errors"))
        .groupBy(*_KEY, "error")
        .agg(f.try_sum("records").alias("records"))
    )
    return by_name.groupBy(*_KEY).agg(
        f.try_sum("records").alias("failed"),
        f.array_sort(f.collect_list(f.struct("error", "records"))).alias("errors"),
    )


def _latencies(windows: DataFrame) -> DataFrame:
    """Returns the upper bounds of the quantiles' buckets (nearest rank)."""
    by_bucket = (
        windows.select(*_KEY, f.inline("latency"))
        .groupBy(*_KEY, "bucket")
        .agg(f.sum(f.col("records").cast("decimal(38)")).alias("records"))
        .where(f.col("records") > 0)
    )
    all_of_them = Window.partitionBy(*_KEY)
    up_to_here = all_of_them.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = by_bucket.select(
        *_KEY,
        "bucket",
        (f.sum("records").over(up_to_here) * 100).alias("hundredfold"),
        f.sum("records").over(all_of_them).alias("all"),
    )
    return ranked.groupBy(*_KEY).agg(
        *(
            upper_bound_us(
                f.min(f.when(f.col("hundredfold") >= f.col("all") * percent, f.col("bucket")))
            ).alias(f"p{percent}_us")
            for percent in _PERCENTS
        )
    )


def upper_bound_us(bucket: Column) -> Column:
    """Returns the first latency above the bucket: `event_v1.upper_bound_us` as a Spark column."""
    mantissa = (bucket % SUB_BUCKETS + SUB_BUCKETS + 1).cast("bigint")
    doublings = (f.floor(bucket / SUB_BUCKETS) - 1).cast("int")
    # The first latency above the last bucket does not fit into a BIGINT.
    return (
        f.when(bucket < SUB_BUCKETS, (bucket + 1).cast("bigint"))
        .when(bucket >= LAST_BUCKET, f.lit(2**63 - 1))
        .otherwise(f.call_function("shiftleft", mantissa, doublings))
    )
