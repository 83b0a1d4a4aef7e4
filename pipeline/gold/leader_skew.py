"""gold_leader_skew: how unequal brokers' shares of leaders and bytes are.

A cluster's brokers are those that lead a partition or hold a replica of one, as last seen. So a restarted
broker that leads nothing is included, and a removed one is not. Boots with wrong clocks count for replicas
only if no other boot follows the partition (clocks.py). Loads are those of the last LOOK_BACK_DAYS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.clocks import recent, set_right
from pipeline.silver.silver_table import PARTITION_KEY
from pipeline.tables import GOLD_CURRENT_LEADER, SILVER_ISR_OBS, SILVER_PRODUCE_WINDOWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.gold.read import Read

_BROKER: Final = ("cluster_id", "broker")


def leader_skew(read: Read) -> DataFrame:
    """Returns gold_leader_skew. Loads are sums over windows; shares of a total of 0 are null."""
    leaders = read(GOLD_CURRENT_LEADER).where(f.col("leader") >= 0)
    led = leaders.groupBy("cluster_id", f.col("leader").alias("broker")).agg(f.count("*").alias("leaders"))
    brokers = led.select(*_BROKER).union(_replicas(read)).distinct()
    windows = recent(read, read(SILVER_PRODUCE_WINDOWS).select("window.*"), "started_at")
    load = windows.groupBy(*_BROKER).agg(
        f.try_sum("records").alias("records"), f.try_sum("bytes").alias("bytes")
    )
    all_of = Window.partitionBy("cluster_id")
    in_all = load.groupBy("cluster_id").agg(f.sum(f.col("bytes").cast("double")).alias("bytes_of_all"))
    share = f.col("leaders") / f.nullif(f.sum("leaders").over(all_of), f.lit(0))
    return (
        brokers.join(led, [*_BROKER], "left")
        .join(load, [*_BROKER], "left")
        .join(in_all, ["cluster_id"], "left")
        .select(*_BROKER, _or_none("leaders"), _or_none("records"), _or_none("bytes"), "bytes_of_all")
        .select("*", share.alias("share"), (1 / f.count("*").over(all_of)).alias("fair_share"))
        .select(
            *_BROKER,
            "leaders",
            "share",
            "fair_share",
            (f.col("share") / f.col("fair_share") - 1).alias("excess"),
            "records",
            "bytes",
            (f.col("bytes") / f.nullif("bytes_of_all", f.lit(0.0))).alias("load_share"),
        )
    )


def _replicas(read: Read) -> DataFrame:
    """Returns the brokers that hold a replica of an existing partition, by its latest state."""
    states = set_right(read, read(SILVER_ISR_OBS), "observed_at").select(
        *PARTITION_KEY, "observed_at", "is_time_believed", "state.replicas"
    )
    # First the latest times, which Spark can hash-aggregate; then the states of that time, which are few.
    of_believed = f.max(f.when(f.col("is_time_believed"), f.col("observed_at")))
    latest = states.groupBy(*PARTITION_KEY).agg(
        f.coalesce(of_believed, f.max("observed_at")).alias("observed_at"),
        of_believed.isNotNull().alias("is_time_believed"),
    )
    there_are = read(GOLD_CURRENT_LEADER).select(*PARTITION_KEY)
    return (
        states.join(
            latest.join(there_are, [*PARTITION_KEY], "left_semi"),
            [*PARTITION_KEY, "observed_at", "is_time_believed"],
            "left_semi",
        )
        .select("cluster_id", f.explode("replicas").alias("broker"))
        .distinct()
    )


def _or_none(count: str) -> Column:
    return f.coalesce(count, f.lit(0)).cast("bigint").alias(count)
