"""The boots of the fleet, one row each, with the cluster that each of them turned out to be on.

A sidecar's first lines may say nothing of the cluster, as the brokers have not told it yet: they are rows of
their own in silver_sidecars, and are one with the boot's others here. Should a boot name two clusters, the
one counts that it named last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.silver.columns import BOOT_KEY
from pipeline.tables import SILVER_SIDECARS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.gold.read import Read

#: metadata.max.age.ms, of a boot that has not said what it is set to.
_DEFAULT_INTERVAL_MS: Final = 300_000
#: A year. Who is set to more (Long.MAX_VALUE means never) counts as refreshing once a year by itself.
LONGEST_INTERVAL_MS: Final = 365 * 24 * 3_600_000


def interval_us() -> Column:
    """The refresh interval of a boot, from 0 to a year: microseconds that can be added to any time."""
    told_ms = f.coalesce("metadata_max_age_ms", f.lit(_DEFAULT_INTERVAL_MS))
    return f.greatest(f.least(told_ms, f.lit(LONGEST_INTERVAL_MS)), f.lit(0)) * 1_000


def boots(read: Read) -> DataFrame:
    """sidecar_id, boot_id; cluster_id ("" if none was named) and the values of silver_sidecars."""
    named = f.when(f.col("cluster_id") != "", f.struct("last_event", "cluster_id"))
    return (
        read(SILVER_SIDECARS)
        .groupBy(*BOOT_KEY)
        .agg(
            f.coalesce(f.max(named)["cluster_id"], f.lit("")).alias("cluster_id"),
            f.min("service").alias("service"),
            f.max("version").alias("version"),
            f.min("first_event").alias("first_event"),
            f.max("last_event").alias("last_event"),
            f.max("max_seq").alias("max_seq"),
            f.max("dropped").alias("dropped"),
            f.max("metadata_max_age_ms").alias("metadata_max_age_ms"),
        )
    )
