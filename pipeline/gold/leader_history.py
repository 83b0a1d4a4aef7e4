"""gold_leader_history: who led a partition when, with one row per observed leader epoch (SCD type 2).

    epochs    least and greatest per epoch (silver)      many events, hardly any shuffle
    history   each epoch with its neighbours             few rows, so the window function is cheap

valid_from is when the first sidecar saw the epoch: an upper bound of the time of the election. Clocks of
hosts differ, so valid_from may decrease while epochs increase. Such rows are flagged, and the order stays
that of the epochs. An epoch is valid until the next one; the last one, until its topic ended.

Boots whose clocks are known to be wrong date no epoch that another boot saw (clocks.py). Epochs that only
they saw are included, with corrected times that are not after the first sight of the next epoch.

gold_current_leader: the last row of each partition whose topic still exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.clocks import believed_epochs
from pipeline.gold.topic_lives import first_end_after, topic_ends
from pipeline.silver.silver_table import NOBODY, PARTITION_KEY
from pipeline.tables import GOLD_LEADER_HISTORY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.gold.read import Read


def leader_history(read: Read) -> DataFrame:
    leader = f.coalesce("leader_lo", f.lit(NOBODY)).alias("leader")
    beside = Window.partitionBy(*PARTITION_KEY).orderBy("leader_epoch")
    seen_at = f.col("first.seen_at")
    # The next epoch began after this one. `least` skips null.
    at_the_latest = f.least(seen_at, f.lead("first.seen_at").over(beside))
    first_seen = f.when(f.col("is_time_believed"), seen_at).otherwise(at_the_latest)
    placed = (
        believed_epochs(read)
        .select("*", leader, first_seen.alias("first_seen"))
        .select(
            "*",
            f.lag("leader_epoch").over(beside).alias("epoch_before"),
            f.lag("leader").over(beside).alias("leader_before"),
            f.lag("first_seen").over(beside).alias("first_seen_before"),
            f.lead("first_seen").over(beside).alias("first_seen_next"),
        )
    )
    is_last = f.col("first_seen_next").isNull()
    is_before_the_one_before = f.coalesce(f.col("first_seen") < f.col("first_seen_before"), f.lit(False))
    ended_at = f.when(is_last, first_end_after(f.col("first_seen")))
    return placed.join(topic_ends(read), ["cluster_id", "topic_key"], "left").select(
        "cluster_id",
        "topic",
        "topic_key",
        "partition",
        "leader_epoch",
        "leader",
        f.col("first_seen").alias("valid_from"),
        f.coalesce("first_seen_next", ended_at).alias("valid_to"),
        (is_last & ended_at.isNull()).alias("is_current"),
        f.col("first.sidecar_id").alias("first_observer"),
        "last_seen",
        f.size("observers").cast("bigint").alias("observers"),
        f.coalesce(f.col("leader_epoch") - f.col("epoch_before") - 1, f.lit(0)).alias("missed_epochs"),
        f.coalesce(f.col("leader_lo") != f.col("leader_hi"), f.lit(False)).alias("is_conflict"),
        (~f.col("is_time_believed") | is_before_the_one_before).alias("is_clock_suspect"),
        f.coalesce(f.col("leader") != f.col("leader_before"), f.lit(False)).alias("is_leader_change"),
    )


def current_leader(read: Read) -> DataFrame:
    return (
        read(GOLD_LEADER_HISTORY)
        .where("is_current")
        .select(
            "cluster_id",
            "topic",
            "topic_key",
            "partition",
            "leader",
            "leader_epoch",
            f.col("valid_from").alias("since"),
            "last_seen",
        )
    )
