"""Decides which boots' clocks can be believed, and corrects the times of the others.

Leader epochs are a clock that all sidecars share: an epoch begins once, and each sidecar that follows the
partition sees it within its refresh interval. So a boot that sees each epoch long before or after the others
has a wrong clock. gold_data_quality says which (`is_left_out`), and is made before all other tables.

    believed     leaves out the rows of those boots: for first sights and for shortages, because a clock that
                 is 15 minutes off would invent some
    set_right    subtracts the clock's error from their times: for hours, for a boot's own delays and for ends
                 of topics, where some seconds do not matter and no row may be lost

If half or more of the comparable boots would be left out, it is unknown which are right: none is left out.

`boots` has one row per boot, with its cluster. The first lines of a sidecar may lack the cluster, because the
brokers have not answered yet. They are separate rows in silver_sidecars and are joined to the boot here.
If a boot names two clusters, the last one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.silver.silver_table import BOOT_KEY, PARTITION_KEY
from pipeline.tables import GOLD_DATA_QUALITY, SILVER_EPOCH_SIGHTS, SILVER_LEADER_EPOCHS, SILVER_SIDECARS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.gold.read import Read


CLOCK_SUSPECT_MS: Final = 60_000
#: With two it is unknown which of them is wrong.
LEAST_SIDECARS: Final = 3

_EPOCH_KEY: Final = (*PARTITION_KEY, "leader_epoch")
#: The part of a boot's sights that may be on time although its clock is ahead: epochs that only few others
#: saw, with wrong clocks as well. A power of two, for which Spark's rank is exact.
_ON_TIME: Final = 0.25


#: metadata.max.age.ms of a boot that has not reported it.
_DEFAULT_INTERVAL_MS: Final = 300_000
#: A year. A longer interval (Long.MAX_VALUE means never) counts as one refresh per year.
LONGEST_INTERVAL_MS: Final = 365 * 24 * 3_600_000


def interval_us() -> Column:
    """Returns a boot's refresh interval in microseconds, from 0 to a year, so it can be added to any time."""
    reported_ms = f.coalesce("metadata_max_age_ms", f.lit(_DEFAULT_INTERVAL_MS))
    return f.greatest(f.least(reported_ms, f.lit(LONGEST_INTERVAL_MS)), f.lit(0)) * 1_000


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
            f.max("max_seq").alias("max_seq"),
            f.max("dropped").alias("dropped"),
            f.max("metadata_max_age_ms").alias("metadata_max_age_ms"),
        )
    )


# -- detection -----------------------------------------------------------------------------------------------


def clock_offsets(read: Read) -> DataFrame:
    """Returns per boot early_ms, its clock's error, and clock_offset_ms, what intervals do not explain of it.

    early_ms is the least delay between the fleet's first sight of an epoch and the boot's: in that case the
    boot was as fast as the first, so the delay is its clock's error. Sights that are earlier than the median
    by more than the interval can't come from a constant clock error, and are ignored.
    """
    intervals = boots(read).select(*BOOT_KEY, interval_us().alias("interval_us"))
    sights = read(SILVER_EPOCH_SIGHTS).select(
        *_EPOCH_KEY, *BOOT_KEY, f.unix_micros("first_seen").alias("seen_us")
    )
    lowest = f.min("leader_epoch").over(Window.partitionBy(*PARTITION_KEY, *BOOT_KEY))
    new = (
        sights.select("*", lowest.alias("lowest"))
        .where(f.col("leader_epoch") > f.col("lowest"))
        .join(intervals, [*BOOT_KEY])
        .select("*", (f.col("seen_us") - f.col("interval_us")).alias("earliest_us"))
    )

    def could_be(seen_us: Column) -> Column:
        """Returns whether the sight is not that of a clock that is behind."""
        return seen_us >= f.col("fleet_earliest_us") - CLOCK_SUSPECT_MS * 1_000

    fleet = (
        new.groupBy(*_EPOCH_KEY)
        .agg(
            f.size(f.collect_set("sidecar_id")).alias("sidecars"),
            f.median("seen_us").alias("fleet_us"),
            f.median("earliest_us").alias("fleet_earliest_us"),
            f.collect_list("seen_us").alias("all_seen_us"),
        )
        .where(f.col("sidecars") >= LEAST_SIDECARS)
        .select("*", f.array_min(f.filter("all_seen_us", could_be)).alias("first_us"))
    )
    compared = new.join(fleet, [*_EPOCH_KEY]).select(
        *BOOT_KEY,
        (f.col("earliest_us") - f.col("fleet_us")).alias("ahead_us"),
        (f.col("seen_us") - f.col("fleet_earliest_us")).alias("behind_us"),
        (f.col("seen_us") - f.col("first_us")).alias("early_us"),
        "interval_us",
    )
    # A delayed sidecar saw some epochs late and others on time; with a clock that is ahead, all are late.
    ahead_us = f.expr(f"percentile_disc({_ON_TIME}) WITHIN GROUP (ORDER BY ahead_us)")
    offset_us = f.greatest(ahead_us, f.lit(0)) + f.least(f.median("behind_us"), f.lit(0))
    of_boots = compared.groupBy(*BOOT_KEY).agg(
        f.floor(offset_us / 1_000).alias("clock_offset_ms"),
        (f.median("early_us") - f.max("interval_us")).alias("least_us"),
        f.collect_list("early_us").alias("all_early_us"),
    )
    constant = f.filter("all_early_us", lambda early_us: early_us >= f.col("least_us"))
    early_ms = f.floor(f.array_min(constant) / 1_000).alias("early_ms")
    return of_boots.select(*BOOT_KEY, "clock_offset_ms", early_ms)


def with_clocks_judged(known: DataFrame) -> DataFrame:
    """Adds is_clock_suspect, is_left_out and clock_shift_ms to boots with clock_offset_ms and early_ms.

    Also leaves out a boot that can't be compared if another boot of its sidecar is left out: same clock.
    """
    suspect = f.coalesce(f.abs("clock_offset_ms") > CLOCK_SUSPECT_MS, f.lit(False))
    cluster, sidecar = Window.partitionBy("cluster_id"), Window.partitionBy("sidecar_id")
    is_few = f.count_if("is_clock_suspect").over(cluster) * 2 < f.count("clock_offset_ms").over(cluster)
    of_suspects = f.when(f.col("is_suspect_of_few"), f.struct("last_event", "boot_id", "early_ms"))
    of_sidecar = f.max(of_suspects).over(sidecar)["early_ms"]
    is_unknown = f.col("clock_offset_ms").isNull() & f.col("early_of_sidecar").isNotNull()
    shift_ms = f.when(f.col("is_suspect_of_few"), f.col("early_ms")).otherwise(f.col("early_of_sidecar"))
    return (
        known.select("*", suspect.alias("is_clock_suspect"))
        .select("*", (f.col("is_clock_suspect") & is_few).alias("is_suspect_of_few"))
        .select("*", of_sidecar.alias("early_of_sidecar"))
        .select("*", (f.col("is_suspect_of_few") | is_unknown).alias("is_left_out"))
        .select("*", f.when(f.col("is_left_out"), shift_ms).alias("clock_shift_ms"))
    )


# -- correction ----------------------------------------------------------------------------------------------


def left_out(read: Read) -> DataFrame:
    """Returns sidecar_id, boot_id, clock_shift_ms of the boots left out: few, in most fleets none."""
    quality = read(GOLD_DATA_QUALITY).where("is_left_out")
    return f.broadcast(quality.select(*BOOT_KEY, "clock_shift_ms"))


def believed(read: Read, rows: DataFrame) -> DataFrame:
    """Returns the rows without those of boots left out. If there are none, Spark omits the join."""
    return rows.join(left_out(read), [*BOOT_KEY], "left_anti")


def set_right(read: Read, rows: DataFrame, *times: str) -> DataFrame:
    """Returns all rows with the clock error subtracted from the times of boots left out, and
    `is_time_believed`, which is false for these.
    """
    right = {time: _less_shift(f.col(time)) for time in times}
    is_believed = {"is_time_believed": f.col("clock_shift_ms").isNull()}
    joined = rows.join(left_out(read), [*BOOT_KEY], "left")
    return joined.withColumns(right | is_believed).drop("clock_shift_ms")


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
