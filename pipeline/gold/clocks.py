"""Estimates the error of each boot's clock once, and leaves out or corrects the times of wrong ones.

Leader epochs are a clock that all sidecars share. An epoch begins once, between a boot's last look that did
not show it and its first that did. So each epoch has a span that most of the boots agree about, and compared
with it the looks of a boot give bounds of its clock's error:

    asked          seen              the boot's looks, by its clock
    ──┼──────────────┼──
         │ begun │                   the span that most boots agree about
         lo     hi                   asked - hi  <  error of the clock  <=  seen - lo

The narrowest bounds of all its epochs count. If those contradict each other, a twentieth is left out: a lost
line, or the answer of a broker that lags, can make one wrong. A held sidecar looks late but rightly, so it is
no wrong clock. A clock is wrong if 0 is more than CLOCK_SUSPECT_MS out of its bounds, or if it is not steady:
the bounds still contradict each other, or the time of start (heartbeat less uptime) moved, as at a step of
NTP. gold_data_quality says which boots those are (`is_left_out`), and is made before all other tables.

    believed     leaves out the rows of those boots: for first sights and shortages, because a clock that is
                 15 minutes off would invent some
    known        subtracts the clock's error if it is known to KNOWN_TO_MS, else leaves out: for delays
    set_right    subtracts the clock's error from their times: for hours, for the latest state and for ends of
                 topics, where some seconds do not matter and no row may be lost

If half or more of the comparable boots would be left out, it is unknown which are right: none is left out.

`boots` has one row per boot, with its cluster. The first lines of a sidecar may lack the cluster, because the
brokers have not answered yet. They are separate rows in silver_sidecars and are joined to the boot here.
If a boot names two clusters, the last one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.read import LOOK_BACK
from pipeline.silver.silver_table import BOOT_KEY, PARTITION_KEY
from pipeline.tables import (
    GOLD_DATA_QUALITY,
    SILVER_EPOCH_SIGHTS,
    SILVER_LEADER_EPOCHS,
    SILVER_REFRESHES,
    SILVER_SIDECARS,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.gold.read import Read


#: Brokers may answer with a state that is as old. Sidecars whose clocks NTP keeps differ by milliseconds.
CLOCK_SUSPECT_MS: Final = 1_000
#: That agree about the span of an epoch. With two it is unknown whose clock is wrong.
LEAST_BOOTS: Final = 3

_EPOCH_KEY: Final = (*PARTITION_KEY, "leader_epoch")
#: An hour. A longer one is made up; it could not be subtracted from any time.
_LONGEST_LOOK_US: Final = 3_600_000_000
#: The part of a boot's looks that may be wrong.
_WRONG: Final = 0.05
#: An error that is known to this is corrected in delays, which are as long as refresh intervals.
KNOWN_TO_MS: Final = 5_000


def boots(read: Read) -> DataFrame:
    """Returns sidecar_id, boot_id; cluster_id ("" if none was named) and the values of silver_sidecars."""
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
            f.max("last_received").alias("last_received"),
            f.max("max_seq").alias("max_seq"),
            f.max("dropped").alias("dropped"),
            f.max("metadata_max_age_ms").alias("metadata_max_age_ms"),
            f.min("began_lo").alias("began_lo"),
            f.max("began_hi").alias("began_hi"),
        )
    )


# -- detection -----------------------------------------------------------------------------------------------


def clock_bounds(read: Read) -> DataFrame:
    """Returns per boot error_lo_us and error_hi_us, the bounds of its clock's error; lo may be null."""
    sights = _sights_after_looks(read)
    compared = sights.join(_begun(sights), [*_EPOCH_KEY]).select(
        *BOOT_KEY,
        (f.col("asked_us") - f.col("begun_hi_us")).alias("lo_us"),
        (f.col("seen_us") - f.col("begun_lo_us")).alias("hi_us"),
    )
    bounds = compared.groupBy(*BOOT_KEY).agg(
        f.struct(f.max("lo_us").alias("lo_us"), f.min("hi_us").alias("hi_us")).alias("of_all"),
        f.struct(
            f.expr(f"percentile_disc({1 - _WRONG}) WITHIN GROUP (ORDER BY lo_us)").alias("lo_us"),
            f.expr(f"percentile_disc({_WRONG}) WITHIN GROUP (ORDER BY hi_us)").alias("hi_us"),
        ).alias("of_most"),
    )
    contradict = f.col("of_all.lo_us") > f.col("of_all.hi_us")
    narrowest = f.when(contradict, f.col("of_most")).otherwise(f.col("of_all"))
    return bounds.select(
        *BOOT_KEY, narrowest["lo_us"].alias("error_lo_us"), narrowest["hi_us"].alias("error_hi_us")
    )


def _sights_after_looks(read: Read) -> DataFrame:
    """Returns the first sight of each epoch by each boot, seen_us, and asked_us, when it asked the last time
    before; null for the first epoch that it sees of a partition, which may be old.
    """
    at_us = f.unix_micros("observed_at")
    # An answer may show less than what was true when it came, but not than when it was asked for.
    refreshes = read(SILVER_REFRESHES).where(f.col("duration_us").between(0, _LONGEST_LOOK_US))
    looks = refreshes.select(*BOOT_KEY, at_us.alias("seen_us"), (at_us - f.col("duration_us")).alias("asked"))
    sights = read(SILVER_EPOCH_SIGHTS).select(
        *_EPOCH_KEY, *BOOT_KEY, f.unix_micros("first_seen").alias("seen_us")
    )
    before = Window.partitionBy(*BOOT_KEY).orderBy("seen_us").rangeBetween(Window.unboundedPreceding, -1)
    lowest = f.min("leader_epoch").over(Window.partitionBy(*PARTITION_KEY, *BOOT_KEY))
    return (
        sights.unionByName(looks, allowMissingColumns=True)
        .select("*", f.max("asked").over(before).alias("asked_before"))
        .where(f.col("leader_epoch").isNotNull())
        .select("*", lowest.alias("lowest"))
        .withColumn("asked_us", f.when(f.col("leader_epoch") > f.col("lowest"), f.col("asked_before")))
        .drop("asked", "asked_before", "lowest")
    )


def _begun(sights: DataFrame) -> DataFrame:
    """Returns the epochs with begun_lo_us and begun_hi_us: when most of the boots say that it began."""
    looked = sights.where(f.col("asked_us").isNotNull())
    ends = looked.select(
        *_EPOCH_KEY,
        f.inline(
            f.array(
                f.struct(f.col("asked_us").alias("at_us"), f.lit(1).alias("step")),
                f.struct(f.col("seen_us").alias("at_us"), f.lit(-1).alias("step")),
            )
        ),
    )
    in_order = Window.partitionBy(*_EPOCH_KEY).orderBy("at_us", f.desc("step"))
    up_to_here = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = ends.select(
        *_EPOCH_KEY,
        "step",
        f.sum("step").over(up_to_here).alias("agree"),
        (-f.col("at_us")).alias("minus_lo_us"),
        f.lead("at_us").over(in_order).alias("hi_us"),
    ).where("step = 1")
    return (
        begins.groupBy(*_EPOCH_KEY)
        .agg(
            f.count("*").alias("boots"),
            f.max(f.struct("agree", "minus_lo_us")).alias("earliest"),
            f.max(f.struct("agree", "hi_us")).alias("latest"),
        )
        .where(f.col("earliest.agree") >= LEAST_BOOTS)
        .where(f.col("earliest.agree") * 2 > f.col("boots"))
        .select(
            *_EPOCH_KEY,
            (-f.col("earliest.minus_lo_us")).alias("begun_lo_us"),
            f.col("latest.hi_us").alias("begun_hi_us"),
        )
    )


def with_clocks_judged(known: DataFrame) -> DataFrame:
    """Adds clock_offset_ms, is_clock_suspect, is_left_out, clock_shift_ms and its error to boots with bounds.

    Also leaves out a boot that can't be compared if another boot of its sidecar is left out: same clock.
    """
    lo, hi = f.col("error_lo_us"), f.col("error_hi_us")
    middle_us = f.coalesce((lo + hi) / 2, hi)
    steady_us = f.greatest(lo, f.lit(0)) + f.least(hi, f.lit(0))
    is_unbound = hi.isNull() | (lo.isNull() & (hi >= 0))
    bound_us = f.when(is_unbound, None).when(lo > hi, middle_us).otherwise(steady_us)
    most_us = CLOCK_SUSPECT_MS * 1_000
    moved_us = f.unix_micros("began_hi") - f.unix_micros("began_lo")
    has_moved = f.coalesce(moved_us > most_us, f.lit(False))
    offset_us = f.when(has_moved, f.greatest(f.abs(bound_us), moved_us)).otherwise(bound_us)
    is_wrong = (f.abs(bound_us) > most_us) | (lo > hi + most_us)
    suspect = f.coalesce(is_wrong, f.lit(False)) | has_moved
    cluster, sidecar = Window.partitionBy("cluster_id"), Window.partitionBy("sidecar_id")
    is_compared = f.col("clock_offset_ms").isNotNull() | f.col("is_clock_suspect")
    is_few = f.count_if("is_clock_suspect").over(cluster) * 2 < f.count_if(is_compared).over(cluster)
    of_suspects = f.when(
        f.col("is_suspect_of_few"), f.struct("last_event", "boot_id", "middle_ms", "error_ms")
    )
    of_sidecar = f.max(of_suspects).over(sidecar)
    is_unknown = ~is_compared & f.col("of_sidecar").isNotNull()
    error_us = f.greatest(f.abs(hi - lo) / 2, moved_us, f.lit(0))

    def of_left_out(name: str) -> Column:
        own = f.when(f.col("is_suspect_of_few"), f.col(name)).otherwise(f.col(f"of_sidecar.{name}"))
        return f.when(f.col("is_left_out"), own)

    return (
        known.select(
            "*",
            f.floor(offset_us / 1_000).alias("clock_offset_ms"),
            f.coalesce(f.floor(middle_us / 1_000), f.lit(0)).alias("middle_ms"),
            f.ceil(f.when(lo.isNull(), None).otherwise(error_us) / 1_000).alias("error_ms"),
            suspect.alias("is_clock_suspect"),
        )
        .select("*", (f.col("is_clock_suspect") & is_few).alias("is_suspect_of_few"))
        .select("*", of_sidecar.alias("of_sidecar"))
        .select("*", (f.col("is_suspect_of_few") | is_unknown).alias("is_left_out"))
        .select(
            "*",
            of_left_out("middle_ms").alias("clock_shift_ms"),
            of_left_out("error_ms").alias("clock_shift_error_ms"),
        )
    )


# -- correction ----------------------------------------------------------------------------------------------


def left_out(read: Read) -> DataFrame:
    """Returns sidecar_id, boot_id, clock_shift_ms and clock_shift_error_ms of the boots left out: few, in
    most fleets none.
    """
    quality = read(GOLD_DATA_QUALITY).where("is_left_out")
    return f.broadcast(quality.select(*BOOT_KEY, "clock_shift_ms", "clock_shift_error_ms"))


def recent(read: Read, rows: DataFrame, at: str) -> DataFrame:
    """Returns the rows of the last LOOK_BACK before the latest event of their cluster."""
    quality = read(GOLD_DATA_QUALITY)
    believed = f.max(f.when(~f.col("is_left_out"), f.col("last_event")))
    as_of = quality.groupBy("cluster_id").agg(f.coalesce(believed, f.max("last_event")).alias("as_of"))
    # A sidecar's first lines may lack the cluster that gold_data_quality names.
    is_recent = f.coalesce(f.col(at) >= f.col("as_of") - f.expr(LOOK_BACK), f.lit(True))
    return rows.join(f.broadcast(as_of), ["cluster_id"], "left").where(is_recent).drop("as_of")


def believed(read: Read, rows: DataFrame) -> DataFrame:
    """Returns the rows without those of boots left out. If there are none, Spark omits the join."""
    return rows.join(left_out(read), [*BOOT_KEY], "left_anti")


def known(read: Read, rows: DataFrame, *times: str) -> DataFrame:
    """Returns the rows of all boots whose clocks are right or known to KNOWN_TO_MS, with corrected times."""
    is_known = f.coalesce(f.col("clock_shift_error_ms") <= KNOWN_TO_MS, f.lit(False))
    joined = rows.join(left_out(read), [*BOOT_KEY], "left")
    kept = joined.where(f.col("clock_shift_ms").isNull() | is_known)
    right = {time: _less_shift(f.col(time)) for time in times}
    return kept.withColumns(right).drop("clock_shift_ms", "clock_shift_error_ms")


def set_right(read: Read, rows: DataFrame, *times: str) -> DataFrame:
    """Returns all rows with the clock error subtracted from the times of boots left out, and
    `is_time_believed`, which is false for these.
    """
    right = {time: _less_shift(f.col(time)) for time in times}
    is_believed = {"is_time_believed": f.col("clock_shift_ms").isNull()}
    joined = rows.join(left_out(read), [*BOOT_KEY], "left")
    return joined.withColumns(right | is_believed).drop("clock_shift_ms", "clock_shift_error_ms")


def believed_epochs(read: Read) -> DataFrame:
    """Returns silver_leader_epochs with `first` and `last_seen` of boots that are not left out.

    Also has epochs that only left-out boots saw, as leaders and epochs need no clock. Their times are
    corrected, and `is_time_believed` is false.
    """
    sights, out = read(SILVER_EPOCH_SIGHTS), left_out(read)
    touched = sights.join(out, [*BOOT_KEY], "left_semi").select(*_EPOCH_KEY).distinct()
    is_believed = f.col("clock_shift_ms").isNull()
    first = f.struct(_less_shift(f.col("first_seen")).alias("seen_at"), "sidecar_id")
    last = _less_shift(f.col("last_seen"))
    again = (
        sights.join(touched, [*_EPOCH_KEY], "left_semi")
        .join(out, [*BOOT_KEY], "left")
        .groupBy(*_EPOCH_KEY)
        .agg(
            f.min(f.when(is_believed, first)).alias("first_believed"),
            f.max(f.when(is_believed, last)).alias("last_believed"),
            f.min(first).alias("first_set_right"),
            f.max(last).alias("last_set_right"),
        )
    )
    epochs = read(SILVER_LEADER_EPOCHS)
    times = {
        "first": f.coalesce("first_believed", "first_set_right", "first"),
        "last_seen": f.coalesce("last_believed", "last_set_right", "last_seen"),
        "is_time_believed": f.col("first_believed").isNotNull() | f.col("first_set_right").isNull(),
    }
    return (
        epochs.join(again, [*_EPOCH_KEY], "left")
        .withColumns(times)
        .drop("first_believed", "last_believed", "first_set_right", "last_set_right")
    )


def _less_shift(time: Column) -> Column:
    shift_us = f.coalesce("clock_shift_ms", f.lit(0)) * 1_000
    return f.timestamp_micros(f.unix_micros(time) - shift_us)
