"""gold_urp: when partitions had too few replicas in sync, with bounds of the times.

Sidecars look only now and then. Known about a shortage are four times: when the partition was last seen whole
before it, first and last seen short, and first seen whole again:

    whole          short            short          whole
    start_after    start_by    ...  end_after      end_by       it lasts at least start_by..end_after
                                                                and at most start_after..end_by

Since metadata version 3.6 a replica that falls behind raises no leader epoch (KAFKA-15021). So within an
epoch only clocks order the observations: a clock error longer than a shortage can split it in two, or invent
one. So boots whose clocks are known to be wrong are left out (clocks.py). Between epochs small differences of
clocks can still put bounds in the wrong order. Then start_after is null, or end_by is the time when the
partition was last seen short; the maximum duration is then null.

    states   per partition, epoch and hour, by time      spreads a partition with half of all events over its
       │     runs that lack the same brokers             epochs and hours
       ▼
    runs     per partition, by epoch, hour and time      few: a run has hundreds of states
       │     merges neighbours that lack the same brokers
       ▼
    shortages    merges neighbours that lack any
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.clocks import believed
from pipeline.gold.read import hour_of, ms_between
from pipeline.gold.topic_lives import first_end_after, topic_ends
from pipeline.silver.silver_table import BOOT_KEY, NOBODY, PARTITION_KEY
from pipeline.tables import SILVER_ISR_OBS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

    from pipeline.gold.read import Read

_EPOCH_KEY: Final = (*PARTITION_KEY, "leader_epoch")


def urp(read: Read) -> DataFrame:
    """Returns gold_urp. start_after <= start_by <= end_after <= end_by, as far as they are known."""
    # If clocks put the end before the last short sight, the end is not known; that sight is the bound.
    is_end_known = f.coalesce(f.col("whole_by") >= f.col("end_after"), f.lit(True))
    whole_by = f.when(is_end_known, f.col("whole_by")).otherwise(f.col("end_after"))
    most_ms = ms_between(f.col("start_after"), f.col("end_by"))
    return (
        _shortages(_runs(_runs_of_an_hour(_states(read))))
        .where("is_short")
        .join(topic_ends(read), ["cluster_id", "topic_key"], "left")
        .withColumnsRenamed({"first": "start_by", "isr": "min_isr"})
        .select(
            "*",
            f.when(f.col("whole_until") <= f.col("start_by"), f.col("whole_until")).alias("start_after"),
            f.greatest("start_by", "last").alias("end_after"),
        )
        .select("*", f.coalesce(whole_by, first_end_after(f.col("end_after"))).alias("end_by"))
        .select(
            "cluster_id",
            "topic",
            "topic_key",
            "partition",
            "start_after",
            "start_by",
            "end_after",
            "end_by",
            "min_isr",
            "replicas",
            "missing",
            "is_leaderless",
            ms_between(f.col("start_by"), f.col("end_after")).alias("min_duration_ms"),
            f.when(is_end_known, most_ms).alias("max_duration_ms"),
        )
    )


def _states(read: Read) -> DataFrame:
    isr, replicas = f.size("state.isr"), f.size("state.replicas")
    missing = f.array_except("state.replicas", "state.isr")
    return believed(read, read(SILVER_ISR_OBS)).select(
        *_EPOCH_KEY,
        hour_of("observed_at"),
        "observed_at",
        *BOOT_KEY,
        "topic",
        (isr < replicas).alias("is_short"),
        f.when(isr < replicas, missing).alias("brokers"),
        isr.alias("isr"),
        replicas.alias("replicas"),
        (f.col("state.leader") == NOBODY).alias("is_leaderless"),
    )


def _runs_of_an_hour(states: DataFrame) -> DataFrame:
    """Returns runs of states that lack the same brokers, within an epoch's hour."""
    by_time = Window.partitionBy(*_EPOCH_KEY, "hour").orderBy("observed_at", *BOOT_KEY)
    return (
        _numbered(states, by_time, "brokers")
        .groupBy(*_EPOCH_KEY, "hour", "run")
        .agg(
            f.min("observed_at").alias("first"),
            f.max("observed_at").alias("last"),
            f.min("brokers").alias("brokers"),
            *_what_a_run_is_like(),
        )
    )


def _runs(runs_of_hours: DataFrame) -> DataFrame:
    """Returns runs over a whole partition. Times may decrease at a new epoch if clocks differ."""
    pieces = runs_of_hours.withColumnRenamed("run", "piece")
    place = ("leader_epoch", "hour", "piece")
    return (
        _numbered(pieces, Window.partitionBy(*PARTITION_KEY).orderBy(*place), "brokers")
        .groupBy(*PARTITION_KEY, "run")
        .agg(
            f.min_by("first", f.struct(*place)).alias("first"),
            f.max_by("last", f.struct(*place)).alias("last"),
            f.min("brokers").alias("brokers"),
            *_what_a_run_is_like(),
        )
    )


def _shortages(runs: DataFrame) -> DataFrame:
    """Returns runs of equally short states, with `missing`, and the whole states before and after."""
    beside = Window.partitionBy(*PARTITION_KEY).orderBy("run")
    following = f.lead("first").over(beside)
    # Clocks may put the next state before this one.
    until = f.when(following.isNotNull(), f.greatest(following, f.col("first")))
    pieces = (
        runs.select("*", until.alias("until"))
        .select("*", f.struct(f.col("first").alias("since"), "until", "brokers").alias("piece"))
        .withColumnRenamed("run", "number")
    )
    return (
        _numbered(pieces, Window.partitionBy(*PARTITION_KEY).orderBy("number"), "is_short")
        .groupBy(*PARTITION_KEY, "run")
        .agg(
            f.min_by("first", "number").alias("first"),
            f.max_by("last", "number").alias("last"),
            f.array_sort(f.collect_list(f.when(f.col("is_short"), f.col("piece")))).alias("missing"),
            *_what_a_run_is_like(),
        )
        .select(
            "*",
            f.lag("last").over(beside).alias("whole_until"),
            f.lead("first").over(beside).alias("whole_by"),
        )
    )


def _numbered(rows: DataFrame, order: WindowSpec, what: str) -> DataFrame:
    """Adds to each row the number of its run of rows with the same value of `what`."""
    is_first = f.row_number().over(order) == 1
    is_other = ~is_first & ~f.col(what).eqNullSafe(f.lag(what).over(order))
    up_to_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return rows.select("*", is_other.alias("is_other")).select(
        "*", f.count_if("is_other").over(up_to_here).alias("run")
    )


def _what_a_run_is_like() -> list[Column]:
    """Returns the aggregates of a run, whose states are all equally short."""
    return [
        f.bool_or("is_short").alias("is_short"),
        f.min("isr").alias("isr"),
        f.max("replicas").alias("replicas"),
        f.bool_or("is_leaderless").alias("is_leaderless"),
        f.min("topic").alias("topic"),
    ]
