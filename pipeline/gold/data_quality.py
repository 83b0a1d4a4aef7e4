"""gold_data_quality: for each boot of a sidecar, what of it has not come, and whether its clock can be right.

    missing            lines that it numbered and that are not there: dropped, lost, or still to come
    dropped_reported   what it says it dropped itself, as the queue was full
    is_silent          the last boot of its sidecar, and not heard of for SILENT_AFTER_S. A sidecar that was
                       stopped for good is silent, too: nothing tells the one from the other
    clock_offset_ms    how much later (or, below 0, earlier) than the fleet it saw new epochs, in the middle,
                       beyond what refresh intervals explain. A clock that is ahead looks like this, and so
                       does a sidecar that is held back; one that is behind is no other thing than a clock

Only epochs that began while the boot followed the partition tell anything about its clock: what it sees when
it starts may be old. And who asks every five minutes may see an epoch five minutes late: to be late by no
more than the own interval, or early by no more than that of the others, says nothing of a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.boots import boots
from pipeline.silver.columns import BOOT_KEY, PARTITION_KEY
from pipeline.tables import GOLD_LEADER_HISTORY, SILVER_EPOCH_SIGHTS, SILVER_SEQS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.gold.read import Read

#: Three heartbeats.
SILENT_AFTER_S: Final = 180
CLOCK_SUSPECT_MS: Final = 60_000
#: metadata.max.age.ms, of a boot that has not said what it is set to.
_DEFAULT_INTERVAL_MS: Final = 300_000
#: With two there is no telling which of them is wrong.
LEAST_SIDECARS: Final = 3

_EPOCH_KEY: Final = (*PARTITION_KEY, "leader_epoch")


def data_quality(read: Read) -> DataFrame:
    """gold_data_quality."""
    received = read(SILVER_SEQS).groupBy(*BOOT_KEY).agg(f.sum(f.bit_count("bitmap")).alias("received"))
    is_suspect = f.coalesce(f.abs("clock_offset_ms") > CLOCK_SUSPECT_MS, f.lit(False))
    known = (
        boots(read)
        .join(received, [*BOOT_KEY], "left")
        .join(_clock_offsets(read), [*BOOT_KEY], "left")
        .join(_epoch_conflicts(read), [*BOOT_KEY], "left")
        .select("*", is_suspect.alias("is_clock_suspect"))
    )
    none = f.lit(0).cast("bigint")
    got = f.coalesce("received", none)
    return _with_silence(known).select(
        "cluster_id",
        *BOOT_KEY,
        "service",
        "version",
        "first_event",
        "last_event",
        got.alias("received"),
        f.greatest(f.col("max_seq") - got, none).alias("missing"),
        f.coalesce("dropped", none).alias("dropped_reported"),
        "is_silent",
        "clock_offset_ms",
        "is_clock_suspect",
        f.coalesce("epoch_conflicts", none).alias("epoch_conflicts"),
    )


def _with_silence(known: DataFrame) -> DataFrame:
    """With is_silent. The time it is by now is not taken from a clock that is suspect of being ahead.

    And one that is behind is set right, or its sidecar would seem silent as long as it lives. One that seems
    ahead is not, as it may be late instead.
    """
    is_behind = f.col("is_clock_suspect") & (f.col("clock_offset_ms") < 0)
    last_ms = f.unix_millis("last_event") - f.when(is_behind, f.col("early_ms")).otherwise(0)
    is_ahead = f.col("is_clock_suspect") & (f.col("clock_offset_ms") > 0)
    now_ms = f.coalesce(f.max(f.when(~is_ahead, f.col("last_ms"))), f.max("last_ms")).alias("now_ms")
    heard = known.select("*", last_ms.alias("last_ms"))
    later = Window.partitionBy("sidecar_id").orderBy("first_event", "boot_id")
    is_last = f.lead("boot_id").over(later).isNull()
    is_quiet = f.col("last_ms") < f.col("now_ms") - SILENT_AFTER_S * 1000
    # One row, beside each of the others: what time it is without asking a clock.
    return heard.crossJoin(f.broadcast(heard.agg(now_ms))).select(
        "*", (is_last & is_quiet).alias("is_silent")
    )


def _clock_offsets(read: Read) -> DataFrame:
    """Per boot: clock_offset_ms; and early_ms, the median of its own first sight less that of everybody's."""
    interval_ms = f.coalesce("metadata_max_age_ms", f.lit(_DEFAULT_INTERVAL_MS))
    intervals = boots(read).select(*BOOT_KEY, (interval_ms * 1_000).alias("interval_us"))
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
    fleet = (
        new.groupBy(*_EPOCH_KEY)
        .agg(
            f.size(f.collect_set("sidecar_id")).alias("sidecars"),
            f.median("seen_us").alias("fleet_us"),
            f.median("earliest_us").alias("fleet_earliest_us"),
        )
        .where(f.col("sidecars") >= LEAST_SIDECARS)
    )
    ahead_us, behind_us = (
        f.col("earliest_us") - f.col("fleet_us"),
        f.col("seen_us") - f.col("fleet_earliest_us"),
    )
    offset_us = f.greatest(f.median(ahead_us), f.lit(0)) + f.least(f.median(behind_us), f.lit(0))
    early_us = f.median(f.col("seen_us") - f.col("fleet_us"))
    return (
        new.join(fleet, [*_EPOCH_KEY])
        .groupBy(*BOOT_KEY)
        .agg(
            f.floor(offset_us / 1_000).alias("clock_offset_ms"),
            f.floor(early_us / 1_000).alias("early_ms"),
        )
    )


def _epoch_conflicts(read: Read) -> DataFrame:
    """Per boot: the epochs it saw for which two leaders were told."""
    conflicts = read(GOLD_LEADER_HISTORY).where("is_conflict").select(*_EPOCH_KEY)
    return (
        read(SILVER_EPOCH_SIGHTS)
        .join(conflicts, [*_EPOCH_KEY], "left_semi")
        .groupBy(*BOOT_KEY)
        .agg(f.count("*").alias("epoch_conflicts"))
    )
