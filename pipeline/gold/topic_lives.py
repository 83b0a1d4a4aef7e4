"""Determines when topics ended, as far as the events prove it.

    reported    `gone` or `recreated`, unless a partition of that topic was seen later: right after a topic is
                created, one broker may not know it yet although another one does
    superseded  another topic of that name was first seen later: a name has one topic at a time, and a sidecar
                that restarted meanwhile can't see that the topic was re-created

Only a topic with an id supersedes another one. If brokers report no ids, a re-created topic looks like the
same one; and during a cluster upgrade the same topic is reported with and without its id.

Ends reported by boots with wrong clocks count only if no other boot reports an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.clocks import believed_epochs, set_right
from pipeline.silver.partitions import GONE, RECREATED
from pipeline.tables import SILVER_TOPIC_ENDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.gold.read import Read

_TOPIC_KEY: Final = ("cluster_id", "topic_key")


def topic_ends(read: Read) -> DataFrame:
    """Returns cluster_id, topic_key and `ends`, the end times ascending; no row for a topic without one."""
    lives = (
        believed_epochs(read)
        .groupBy("topic", *_TOPIC_KEY)
        .agg(f.min("first.seen_at").alias("first_seen"), f.max("last_seen").alias("last_reported"))
    )
    ends = _reported(read, lives).unionByName(_superseded(lives))
    by_whom = ends.groupBy(*_TOPIC_KEY).agg(
        f.array_sort(f.collect_set(f.when(f.col("is_believed"), f.col("ended_at")))).alias("believed"),
        f.array_sort(f.collect_set("ended_at")).alias("all_ends"),
    )
    ends_of_topic = f.when(f.size("believed") > 0, f.col("believed")).otherwise(f.col("all_ends"))
    return by_whom.select(*_TOPIC_KEY, ends_of_topic.alias("ends"))


def first_end_after(time: Column) -> Column:
    """Returns the first of `ends` after this time; null if there is none."""
    return f.array_min(f.filter("ends", lambda end: end > time))


def _reported(read: Read, lives: DataFrame) -> DataFrame:
    last_reported = lives.groupBy(*_TOPIC_KEY).agg(f.max("last_reported").alias("last_reported"))
    ends = read(SILVER_TOPIC_ENDS).where(f.col("change").isin(GONE, RECREATED))
    return (
        set_right(read, ends, "observed_at")
        .join(last_reported, [*_TOPIC_KEY], "left")
        .where(f.col("last_reported").isNull() | (f.col("last_reported") <= f.col("observed_at")))
        .select(
            *_TOPIC_KEY,
            f.col("observed_at").alias("ended_at"),
            f.col("is_time_believed").alias("is_believed"),
        )
    )


def _superseded(lives: DataFrame) -> DataFrame:
    later_first = Window.partitionBy("cluster_id", "topic").orderBy(f.desc("first_seen"), f.desc("topic_key"))
    later = later_first.rowsBetween(Window.unboundedPreceding, -1)
    of_an_id = f.when(f.col("topic_key") != f.col("topic"), f.col("first_seen"))
    ended_at = f.last(of_an_id, ignorenulls=True).over(later).alias("ended_at")
    reported = lives.select(*_TOPIC_KEY, ended_at, f.lit(True).alias("is_believed"))
    return reported.where(f.col("ended_at").isNotNull())
