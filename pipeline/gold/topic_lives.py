"""When topics ended, as far as that can be believed.

    told        `gone` or `recreated`, unless the same boot told a partition of that topic after it: one
                broker may not know a topic yet that the next one has. The same boot, as only its times are
                of one clock
    superseded  another topic of that name was first seen later: a name has one topic at a time, and who
                restarted meanwhile can't tell that it was re-created

Names supersede nothing: where brokers tell no ids a topic that was re-created is taken for the same, and
while a cluster is upgraded the same topic comes with and without its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.silver.columns import BOOT_KEY
from pipeline.silver.topic_ends import GONE, RECREATED
from pipeline.tables import SILVER_EPOCH_SIGHTS, SILVER_LEADER_EPOCHS, SILVER_TOPIC_ENDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.gold.read import Read

_TOPIC_KEY = ("cluster_id", "topic_key")


def topic_ends(read: Read) -> DataFrame:
    """cluster_id, topic_key, `ends`: the times at which it ended, ascending; no row if it did not."""
    ends = _told(read).unionByName(_superseded(read))
    return ends.groupBy(*_TOPIC_KEY).agg(f.array_sort(f.collect_set("ended_at")).alias("ends"))


def first_end_after(time: Column) -> Column:
    """The first of `ends` that is later than this time; null if there is none."""
    return f.array_min(f.filter("ends", lambda end: end > time))


def _told(read: Read) -> DataFrame:
    ended = read(SILVER_TOPIC_ENDS).where(f.col("change").isin(GONE, RECREATED))
    last_told = (
        read(SILVER_EPOCH_SIGHTS)
        .join(ended.select(*_TOPIC_KEY).distinct(), [*_TOPIC_KEY], "left_semi")
        .groupBy(*_TOPIC_KEY, *BOOT_KEY)
        .agg(f.max("last_seen").alias("last_told"))
    )
    return (
        ended.join(last_told, [*_TOPIC_KEY, *BOOT_KEY], "left")
        .where(f.col("last_told").isNull() | (f.col("last_told") <= f.col("observed_at")))
        .select(*_TOPIC_KEY, f.col("observed_at").alias("ended_at"))
    )


def _superseded(read: Read) -> DataFrame:
    lives = (
        read(SILVER_LEADER_EPOCHS)
        .groupBy("topic", *_TOPIC_KEY)
        .agg(f.min("first.seen_at").alias("first_seen"))
    )
    later_first = Window.partitionBy("cluster_id", "topic").orderBy(f.desc("first_seen"), f.desc("topic_key"))
    later = later_first.rowsBetween(Window.unboundedPreceding, -1)
    of_an_id = f.when(f.col("topic_key") != f.col("topic"), f.col("first_seen"))
    return lives.select(*_TOPIC_KEY, f.last(of_an_id, ignorenulls=True).over(later).alias("ended_at")).where(
        f.col("ended_at").isNotNull()
    )
