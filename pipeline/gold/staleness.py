"""gold_staleness: how late each sidecar saw a leader epoch, if ever.

One row for each epoch and each boot that could have seen it: the boot followed the partition (it had seen an
earlier epoch before the fleet's first sight of this one), was still alive then, and had not lost the topic
since. A boot has reached an epoch when it sees it or a later one. A boot that had not reached it by its last
event is censored: it waited at least that long. Leaving it out would make the fleet look fresher than it is,
the more so the longer sidecars wait. A wait is followed for LOOK_BACK_DAYS; then it is censored, too.

A boot whose clock is wrong is never the first to see an epoch (clocks.py): with a clock that is behind, all
others would seem late. Its own times are corrected if its error is known well enough, else it has no rows.
Epochs that only such boots saw are left out.

Computation: each epoch is joined to the boots that followed its partition. These pairs and the sights are
ordered by epoch for each boot, with minimum and maximum over the earlier and later rows. A partition with
half of all events is spread over as many windows as boots followed it.

gold_staleness_summary: the quantiles over epochs of the last LOOK_BACK_DAYS, by the Kaplan-Meier estimator,
in which a censored wait is at risk until it ended. A quantile is null if too many waits are censored to
estimate it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.clocks import believed_epochs, boots, known, recent
from pipeline.gold.read import LOOK_BACK, ms_between
from pipeline.silver.silver_table import BOOT_KEY, PARTITION_KEY
from pipeline.tables import GOLD_STALENESS, SILVER_EPOCH_SIGHTS, SILVER_TOPIC_ENDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.gold.read import Read

_EPOCH_KEY: Final = (*PARTITION_KEY, "leader_epoch")
_FOLLOWER: Final = (*PARTITION_KEY, *BOOT_KEY)
_GROUP: Final = ("cluster_id", "service", "sidecar_id")
#: The rounding error of products of many fractions; without it 100 uncensored waits could miss p95 at 95.
_ROUNDING: Final = 1e-9


def staleness(read: Read) -> DataFrame:
    lives = known(read, boots(read), "last_event").select(
        *BOOT_KEY, "service", "last_event", "metadata_max_age_ms"
    )
    at_most = f.col("fleet_first_seen") + f.expr(LOOK_BACK)
    until = f.least(f.coalesce("reached_at", "last_event"), at_most)
    lost_it = f.exists("ends", lambda end: (end > f.col("last_below")) & (end <= until))
    waited_ms = f.greatest(ms_between(f.col("fleet_first_seen"), until), f.lit(0))
    is_beyond = f.col("delay_ms") / 2 > f.col("metadata_max_age_ms")
    return (
        _at_risk(read, lives)
        .withColumn("reached_at", f.when(f.col("reached_at") <= at_most, f.col("reached_at")))
        .join(lives, [*BOOT_KEY])
        .join(_ends_of_boots(read), ["cluster_id", "topic_key", *BOOT_KEY], "left")
        .where(~f.coalesce(lost_it, f.lit(False)))
        .select("*", waited_ms.alias("delay_ms"))
        .select(
            "cluster_id",
            "topic",
            "topic_key",
            "partition",
            "leader_epoch",
            *BOOT_KEY,
            "service",
            "fleet_first_seen",
            "reached_at",
            "delay_ms",
            f.col("reached_at").isNull().alias("is_censored"),
            "metadata_max_age_ms",
            is_beyond.alias("is_beyond_twice_the_interval"),
        )
    )


def _at_risk(read: Read, lives: DataFrame) -> DataFrame:
    """Returns epochs and boots with reached_at, and last_below: when the boot last saw an earlier epoch."""
    seen = known(read, read(SILVER_EPOCH_SIGHTS), "first_seen", "last_seen")
    sights = seen.select(*_FOLLOWER, "leader_epoch", "first_seen", "last_seen")
    pairs = _pairs(read, sights, lives)
    facts = sights.unionByName(pairs, allowMissingColumns=True)
    upwards = Window.partitionBy(*_FOLLOWER).orderBy("leader_epoch")
    downwards = Window.partitionBy(*_FOLLOWER).orderBy(f.desc("leader_epoch"))
    below = upwards.rangeBetween(Window.unboundedPreceding, -1)
    # Descending, because Spark recomputes a frame that is unbounded at its end for every row.
    from_here = downwards.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        facts.select(
            "*",
            f.min("first_seen").over(below).alias("first_below"),
            f.max("last_seen").over(below).alias("last_below"),
            f.min("first_seen").over(from_here).alias("reached_at"),
        )
        .where(f.col("first_below") <= f.col("fleet_first_seen"))
        .drop("first_seen", "last_seen", "first_below")
    )


def _pairs(read: Read, sights: DataFrame, lives: DataFrame) -> DataFrame:
    """Returns each epoch with the boots that had followed the partition before and could still see it."""
    followed = (
        sights.groupBy(*_FOLLOWER)
        .agg(f.min("leader_epoch").alias("lowest"), f.max("leader_epoch").alias("highest"))
        .join(lives.select(*BOOT_KEY, "last_event"), [*BOOT_KEY])
    )
    epochs = (
        believed_epochs(read)
        .where("is_time_believed")
        .select(*_EPOCH_KEY, "topic", f.col("first.seen_at").alias("fleet_first_seen"))
    )
    was_there = (f.col("leader_epoch") <= f.col("highest")) | (
        f.col("fleet_first_seen") <= f.col("last_event")
    )
    return (
        epochs.join(followed, [*PARTITION_KEY])
        .where((f.col("leader_epoch") > f.col("lowest")) & was_there)
        .select(*_FOLLOWER, "leader_epoch", "topic", "fleet_first_seen")
    )


def _ends_of_boots(read: Read) -> DataFrame:
    return (
        known(read, read(SILVER_TOPIC_ENDS), "observed_at")
        .groupBy("cluster_id", "topic_key", *BOOT_KEY)
        .agg(f.collect_set("observed_at").alias("ends"))
    )


# -- the summary ---------------------------------------------------------------------------------------------


def staleness_summary(read: Read) -> DataFrame:
    """Returns gold_staleness_summary: per sidecar, service (sidecar_id null) and cluster (both null)."""
    by_delay = (
        recent(read, read(GOLD_STALENESS), "fleet_first_seen")
        .groupBy(*_GROUP, "delay_ms")
        .agg(
            f.count("*").alias("waits"),
            f.count_if("is_censored").alias("censored"),
            f.count_if("is_beyond_twice_the_interval").alias("beyond"),
        )
    )
    levels = by_delay.select("cluster_id", f.inline(_levels()), "delay_ms", "waits", "censored", "beyond")
    group = ("level", *_GROUP)
    by_level = levels.groupBy(*group, "delay_ms").agg(
        *(f.sum(name).alias(name) for name in ("waits", "censored", "beyond"))
    )
    everyone = Window.partitionBy(*group)
    shorter = everyone.orderBy("delay_ms").rowsBetween(Window.unboundedPreceding, -1)
    up_to_here = everyone.orderBy("delay_ms").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    at_risk = f.sum("waits").over(everyone) - f.coalesce(f.sum("waits").over(shorter), f.lit(0))
    still_waiting = 1 - (f.col("waits") - f.col("censored")) / f.col("at_risk")
    return (
        by_level.select("*", at_risk.alias("at_risk"))
        .select("*", still_waiting.alias("still_waiting"))
        .select("*", f.product("still_waiting").over(up_to_here).alias("surviving"))
        .groupBy(*group)
        .agg(
            f.sum("waits").alias("observations"),
            f.sum("censored").alias("censored"),
            f.sum("beyond").alias("beyond_twice_the_interval"),
            *(_quantile(percent).alias(f"p{percent}_ms") for percent in (50, 95, 99)),
            f.max("delay_ms").alias("max_ms"),
        )
        .drop("level")
    )


def _levels() -> Column:
    """Returns each row three times: for its sidecar, its service and its cluster."""

    def level(number: int, service: Column, sidecar_id: Column) -> Column:
        return f.struct(
            f.lit(number).alias("level"), service.alias("service"), sidecar_id.alias("sidecar_id")
        )

    service, all_of_them = f.col("service"), f.lit(None).cast("string")
    return f.array(
        level(0, service, f.col("sidecar_id")),
        level(1, service, all_of_them),
        level(2, all_of_them, all_of_them),
    )


def _quantile(percent: int) -> Column:
    """Returns the least delay within which `percent` of the waits had reached the epoch."""
    has_come = f.col("surviving") <= 1 - percent / 100 + _ROUNDING
    return f.min(f.when(has_come, f.col("delay_ms")))
