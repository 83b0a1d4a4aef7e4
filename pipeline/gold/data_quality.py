"""gold_data_quality: for each boot of a sidecar, what of it has not come, and whether its clock can be right.

    missing            lines that it numbered and that are not there: dropped, lost, or still to come
    dropped_reported   what it says it dropped itself, as the queue was full
    is_silent          the last boot of its sidecar, and not heard of for SILENT_AFTER_S. A sidecar that was
                       stopped for good is silent, too: nothing tells the one from the other
    clock_offset_ms    how much later (or, below 0, earlier) than the fleet it saw new epochs, beyond what
                       refresh intervals explain: later than that in three cases of four, earlier in the
                       middle. A clock that is ahead looks like this, and so does a sidecar that is always
                       held back; one that is behind is no other thing than a clock
    is_left_out        its times are not compared with those of others in any table (clocks.py)

Only epochs that began while the boot followed the partition tell anything about its clock: what it sees when
it starts may be old. And who asks every five minutes may see an epoch five minutes late: to be late by no
more than the own interval, or early by no more than that of the others, says nothing of a clock.

Made of silver alone, and before all other gold: they leave out what it says.

gold_rejects, the other table here, has the reasons why lines were rejected, with one example of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.clocks import boots, clock_offsets, with_clocks_judged
from pipeline.silver.silver_table import BOOT_KEY, PARTITION_KEY
from pipeline.tables import BRONZE_REJECTS, SILVER_EPOCH_SIGHTS, SILVER_LEADER_EPOCHS, SILVER_SEQS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.gold.read import Read


#: Three heartbeats.
SILENT_AFTER_S: Final = 180

_EPOCH_KEY: Final = (*PARTITION_KEY, "leader_epoch")


def rejects(read: Read) -> DataFrame:
    """gold_rejects: a row a reason. A line that came several times is counted once."""
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
    """gold_data_quality."""
    received = read(SILVER_SEQS).groupBy(*BOOT_KEY).agg(f.sum(f.bit_count("bitmap")).alias("received"))
    known = (
        boots(read)
        .join(received, [*BOOT_KEY], "left")
        .join(clock_offsets(read), [*BOOT_KEY], "left")
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
        f.coalesce("epoch_conflicts", none).alias("epoch_conflicts"),
    )


def _with_silence(known: DataFrame) -> DataFrame:
    """With is_silent. The time it is by now is not taken from a boot that is left out.

    A clock that is behind is set right, or its sidecar would seem silent as long as it lives. One that seems
    ahead is not, as it may be late instead.
    """
    behind_ms = f.least(f.coalesce("clock_shift_ms", f.lit(0)), f.lit(0))
    last_ms = f.unix_millis("last_event") - behind_ms
    now_ms = f.coalesce(f.max(f.when(~f.col("is_left_out"), f.col("last_ms"))), f.max("last_ms"))
    heard = known.select("*", last_ms.alias("last_ms"))
    later = Window.partitionBy("sidecar_id").orderBy("first_event", "boot_id")
    is_last = f.lead("boot_id").over(later).isNull()
    is_quiet = f.col("last_ms") < f.col("now_ms") - SILENT_AFTER_S * 1000
    # One row, beside each of the others: what time it is without asking a clock.
    return heard.crossJoin(f.broadcast(heard.agg(now_ms.alias("now_ms")))).select(
        "*", (is_last & is_quiet).alias("is_silent")
    )


def _epoch_conflicts(read: Read) -> DataFrame:
    """Per boot: the epochs it saw for which two leaders were told."""
    conflicts = read(SILVER_LEADER_EPOCHS).where("leader_lo <> leader_hi").select(*_EPOCH_KEY)
    return (
        read(SILVER_EPOCH_SIGHTS)
        .join(conflicts, [*_EPOCH_KEY], "left_semi")
        .groupBy(*BOOT_KEY)
        .agg(f.count("*").alias("epoch_conflicts"))
    )
