"""gold_data_quality: each boot's missing lines and whether its clock is plausible.

    missing            lines that it numbered but that are not there: dropped, lost, or not yet arrived
    dropped_reported   lines that it reports as dropped because its queue was full
    is_silent          without events for SILENT_AFTER_S, and no other boot of its sidecar followed within
                       LOOK_BACK_DAYS. A sidecar that was stopped for good is silent, too: the data does not
                       show the difference
    clock_offset_ms    the least error of its clock that explains when it saw leader epochs: above 0 it is
                       ahead, 0 if it may be right; of a clock that was stepped by how much it moved
    is_left_out        no table compares its times with those of others (clocks.py)

Made from silver only and before all other gold tables, which leave out the boots that it marks.

gold_rejects, the other table here, has the reasons why lines were rejected, with one example of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.clocks import boots, clock_bounds, with_clocks_judged
from pipeline.gold.read import LOOK_BACK
from pipeline.silver.silver_table import BOOT_KEY, PARTITION_KEY
from pipeline.tables import BRONZE_REJECTS, SILVER_EPOCH_SIGHTS, SILVER_LEADER_EPOCHS, SILVER_SEQS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.gold.read import Read


#: Three heartbeats.
SILENT_AFTER_S: Final = 180

_EPOCH_KEY: Final = (*PARTITION_KEY, "leader_epoch")


def rejects(read: Read) -> DataFrame:
    """Returns gold_rejects: one row per reason. A line that came several times is counted once."""
    return (
        read(BRONZE_REJECTS)
        .groupBy("reason")
        .agg(
            f.count_distinct("line_sha256").alias("lines"),
            f.min("received_at").alias("first_received"),
            f.max("received_at").alias("last_received"),
            f.min("line_head").alias("example"),
        )
    )


def data_quality(read: Read) -> DataFrame:
    received = read(SILVER_SEQS).groupBy(*BOOT_KEY).agg(f.sum(f.bit_count("bitmap")).alias("received"))
    known = (
        boots(read)
        .join(received, [*BOOT_KEY], "left")
        .join(clock_bounds(read), [*BOOT_KEY], "left")
        .join(_epoch_conflicts(read), [*BOOT_KEY], "left")
    )
    none = f.lit(0).cast("bigint")
    got = f.coalesce("received", none)
    return _with_silence(with_clocks_judged(known)).select(
        "cluster_id",
        *BOOT_KEY,
        "service",
        "version",
        "first_event",
        "last_event",
        got.alias("received"),
        f.greatest(f.try_subtract(f.col("max_seq"), got), none).alias("missing"),
        f.coalesce("dropped", none).alias("dropped_reported"),
        "is_silent",
        "clock_offset_ms",
        "is_clock_suspect",
        "is_left_out",
        "clock_shift_ms",
        "clock_shift_error_ms",
        f.coalesce("epoch_conflicts", none).alias("epoch_conflicts"),
    )


def _with_silence(known: DataFrame) -> DataFrame:
    """Adds is_silent. Boots that are left out do not determine the current time, and are corrected.

    Where leaders rest, a clock that is ahead can't be found. But no line is written after it was received.
    """
    by_its_clock_ms = f.unix_millis("last_event") - f.coalesce("clock_shift_ms", f.lit(0))
    last_ms = f.least(by_its_clock_ms, f.unix_millis("last_received"))
    now_ms = f.coalesce(f.max(f.when(~f.col("is_left_out"), f.col("last_ms"))), f.max("last_ms"))
    heard = known.select("*", last_ms.alias("last_ms"))
    later = Window.partitionBy("sidecar_id").orderBy("first_event", "boot_id")
    following = f.lead("first_event").over(later)
    is_last = following.isNull() | (following > f.col("last_event") + f.expr(LOOK_BACK))
    is_quiet = f.col("last_ms") < f.col("now_ms") - SILENT_AFTER_S * 1000
    # One row, joined to each of the others: the current time without asking a clock.
    return heard.crossJoin(f.broadcast(heard.agg(now_ms.alias("now_ms")))).select(
        "*", (is_last & is_quiet).alias("is_silent")
    )


def _epoch_conflicts(read: Read) -> DataFrame:
    """Returns per boot the number of epochs it saw for which two leaders were reported."""
    conflicts = read(SILVER_LEADER_EPOCHS).where("leader_lo <> leader_hi").select(*_EPOCH_KEY)
    return (
        read(SILVER_EPOCH_SIGHTS)
        .join(conflicts, [*_EPOCH_KEY], "left_semi")
        .groupBy(*BOOT_KEY)
        .agg(f.count("*").alias("epoch_conflicts"))
    )
