"""gold_churn, gold_churn_brokers, gold_flapping: how often leaders are elected and move.

An election is an epoch that follows another one of its partition; a change is an election after which another
broker leads, or none. The hour is that in which the fleet first saw the epoch. All three tables use only
leader history, which has a row for each observed election.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.read import hour_of
from pipeline.silver.silver_table import NOBODY, PARTITION_KEY
from pipeline.tables import GOLD_LEADER_HISTORY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.gold.read import Read

#: A leader change within this time after the one before belongs to the same run.
FLAPPING_WITHIN_S: Final = 600
#: A broker's restart changes a leader only twice: away and back.
FLAPPING_FROM_CHANGES: Final = 3


def churn(read: Read) -> DataFrame:
    """Returns gold_churn: elections by cluster, hour and topic; hours without elections have no row."""
    return (
        _elections(read)
        .groupBy("cluster_id", hour_of("valid_from"), "topic")
        .agg(
            f.count("*").alias("elections"),
            f.count_if("is_leader_change").alias("leader_changes"),
            f.count_distinct("topic_key", "partition").alias("partitions"),
        )
    )


def churn_brokers(read: Read) -> DataFrame:
    """Returns gold_churn_brokers: leaderships gained and lost. "No leader" is not counted as a broker."""
    moves = f.array(
        f.struct(f.col("leader").alias("broker"), f.lit(1).alias("gained"), f.lit(0).alias("lost")),
        f.struct(f.col("leader_before").alias("broker"), f.lit(0).alias("gained"), f.lit(1).alias("lost")),
    )
    return (
        _elections(read)
        .where("is_leader_change")
        .select("cluster_id", hour_of("valid_from"), f.inline(moves))
        .where(f.col("broker") != NOBODY)
        .groupBy("cluster_id", "hour", "broker")
        .agg(f.sum("gained").alias("gained"), f.sum("lost").alias("lost"))
    )


def flapping(read: Read) -> DataFrame:
    """Returns gold_flapping: runs of leader changes of a partition, each soon after the one before."""
    by_epoch = Window.partitionBy(*PARTITION_KEY).orderBy("leader_epoch")
    since_us = f.abs(f.unix_micros("valid_from") - f.unix_micros(f.lag("valid_from").over(by_epoch)))
    begins = f.coalesce(since_us > FLAPPING_WITHIN_S * 1_000_000, f.lit(True))
    up_to_here = by_epoch.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        read(GOLD_LEADER_HISTORY)
        .where("is_leader_change")
        .select("*", begins.alias("begins"))
        .select("*", f.count_if("begins").over(up_to_here).alias("run"))
        .groupBy(*PARTITION_KEY, "run")
        .agg(
            f.min("topic").alias("topic"),
            f.min("valid_from").alias("flapping_from"),
            f.max("valid_from").alias("flapping_to"),
            f.count("*").alias("leader_changes"),
        )
        .where(f.col("leader_changes") >= FLAPPING_FROM_CHANGES)
        .select(
            "cluster_id", "topic", "topic_key", "partition", "flapping_from", "flapping_to", "leader_changes"
        )
    )


def _elections(read: Read) -> DataFrame:
    """Returns the rows that are not the partition's first, with the leader before."""
    by_epoch = Window.partitionBy(*PARTITION_KEY).orderBy("leader_epoch")
    rows = read(GOLD_LEADER_HISTORY).select("*", f.lag("leader").over(by_epoch).alias("leader_before"))
    return rows.where(f.col("leader_before").isNotNull())
