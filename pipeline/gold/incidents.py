"""gold_incidents: what went wrong, why, and what it hurt: one row for what an operator would call one thing.

    gold_urp: brokers that were missing  ──┐
    gold_leader_history: leaders that moved├──▶ facts of a cluster ──▶ incident_rules.py ──▶ its incidents
    windows: records that failed         ──┘

Spark reduces the events to few facts; which of them belong together is decided for each cluster at once, in
plain Python on an executor. A worker needs Python for that, and no packages.

Times are those at which the fleet saw it; boots with wrong clocks are left out or set right (clocks.py).
Pure: no clock, no action.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline.gold.clocks import set_right
from pipeline.gold.incident_rules import Absence, Failure, Harm, Move, incidents_of
from pipeline.silver.silver_table import BOOT_KEY, NOBODY, PARTITION_KEY
from pipeline.tables import (
    GOLD_CURRENT_LEADER,
    GOLD_DATA_QUALITY,
    GOLD_LEADER_HISTORY,
    GOLD_URP,
    SILVER_ISR_OBS,
    SILVER_PRODUCE_WINDOWS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, Row

    from pipeline.gold.read import Read

_MINUTE_US: Final = 60_000_000
_PLACE: Final = ("topic", "topic_key", "partition")
_FOUND: Final = (
    "array<struct<kind:string, broker:int, topic:string, partition:int, began_us:bigint, over_us:bigint,"
    " times:bigint, partitions_short:bigint, leaders_moved:bigint, failed:bigint,"
    " errors:array<struct<error:string, records:bigint>>, topics:array<string>, services:array<string>>>"
)
_LONGEST: Final = 2**63 - 1


def incidents(read: Read) -> DataFrame:
    """Returns gold_incidents. over_by is null if the incident was not over at the last event."""
    judge = f.udf(_judge, _FOUND)
    facts = _now(read)
    for name, rows in {
        "absences": _absences(read),
        "moves": _moves(read),
        "failures": _failures(read),
        "replicas": _replicas(read),
    }.items():
        columns = [column for column in rows.columns if column != "cluster_id"]
        collected = rows.groupBy("cluster_id").agg(f.collect_list(f.struct(*columns)).alias(name))
        facts = facts.join(collected, "cluster_id", "left")
    found = facts.select("cluster_id", f.inline(judge("absences", "moves", "failures", "replicas", "now_us")))
    return found.select(
        "cluster_id",
        "kind",
        "broker",
        "topic",
        "partition",
        f.timestamp_micros("began_us").alias("began_by"),
        f.timestamp_micros("over_us").alias("over_by"),
        "times",
        "partitions_short",
        "leaders_moved",
        "failed",
        "errors",
        "topics",
        "services",
    )


# -- facts ---------------------------------------------------------------------------------------------------


def _now(read: Read) -> DataFrame:
    """Returns each cluster with the time of its last event, without boots that are left out."""
    last_us = f.unix_micros("last_event")
    right = f.max(f.when(~f.col("is_left_out"), last_us))
    boots = read(GOLD_DATA_QUALITY).where(f.col("cluster_id") != "")
    return boots.groupBy("cluster_id").agg(f.coalesce(right, f.max(last_us)).alias("now_us"))


def _absences(read: Read) -> DataFrame:
    states = read(GOLD_URP).select("cluster_id", *_PLACE, "end_by", f.inline("missing"))
    return states.select(
        "cluster_id",
        *_PLACE,
        f.explode("brokers").alias("broker"),
        f.unix_micros("since").alias("since_us"),
        f.unix_micros(f.coalesce("until", "end_by")).alias("until_us"),
    )


def _moves(read: Read) -> DataFrame:
    by_epoch = Window.partitionBy(*PARTITION_KEY).orderBy("leader_epoch")
    before = f.lag("leader").over(by_epoch).alias("leader_before")
    history = read(GOLD_LEADER_HISTORY)
    moved = history.select("*", before).where("is_leader_change")
    return moved.select(
        "cluster_id",
        *_PLACE,
        *(_unless_nobody(name) for name in ("leader", "leader_before")),
        f.unix_micros("valid_from").alias("at_us"),
        f.unix_micros("valid_to").alias("until_us"),
    )


def _unless_nobody(leader: str) -> Column:
    return f.when(f.col(leader) != NOBODY, f.col(leader)).alias(leader)


def _replicas(read: Read) -> DataFrame:
    """Returns the number of existing partitions with a replica on each broker."""
    assigned = read(SILVER_ISR_OBS).select(*PARTITION_KEY, f.col("state.replicas").alias("brokers"))
    current = read(GOLD_CURRENT_LEADER).select(*PARTITION_KEY)
    return (
        assigned.join(current, [*PARTITION_KEY], "left_semi")
        .select(*PARTITION_KEY, f.explode("brokers").alias("broker"))
        # A partition that was reassigned has had several lists of replicas.
        .distinct()
        .groupBy("cluster_id", "broker")
        .agg(f.count("*").alias("partitions"))
    )


def _failures(read: Read) -> DataFrame:
    """Returns the failed records by minute, partition, broker, service and error, with the acknowledged ones.

    The counts of a topic's acknowledged records in that minute are of all its windows.
    """
    windows = set_right(
        read, read(SILVER_PRODUCE_WINDOWS).select(*BOOT_KEY, "window.*"), "started_at", "ended_at"
    )
    minute = f.floor(f.unix_micros("ended_at") / _MINUTE_US).alias("minute")
    where = ("cluster_id", "topic", "minute")
    what = ("partition", "broker", "service", "error")
    timed = windows.select("*", minute)
    failed = (
        timed.where(f.size("errors") > 0)
        .select(*where, "partition", "broker", "service", "started_at", "ended_at", f.inline("errors"))
        .groupBy(*where, *what)
        .agg(
            # A BIGINT may not hold the sum of two counts.
            f.least(f.sum(f.col("records").cast("decimal(38)")), f.lit(_LONGEST)).alias("records"),
            f.unix_micros(f.min("started_at")).alias("from_us"),
            f.unix_micros(f.max("ended_at")).alias("to_us"),
        )
    )
    acknowledged = (
        timed.join(f.broadcast(failed.select("cluster_id", "topic").distinct()), ["cluster_id", "topic"])
        .groupBy(*where)
        .agg(f.sum(f.col("records").cast("double")).alias("acknowledged"))
    )
    return failed.join(acknowledged, [*where]).select(
        "cluster_id",
        "topic",
        "minute",
        "acknowledged",
        *what,
        f.col("records").cast("bigint").alias("records"),
        "from_us",
        "to_us",
    )


# -- on an executor ------------------------------------------------------------------------------------------


def _judge(
    absences: list[Row] | None,
    moves: list[Row] | None,
    failures: list[Row] | None,
    replicas: list[Row] | None,
    now_us: int,
) -> list[tuple[Any, ...]]:
    """Returns the incidents of a cluster as _FOUND has them, in order."""
    found = incidents_of(
        (Absence(*row) for row in absences or ()),
        (Move(*row) for row in moves or ()),
        (Failure(*row) for row in failures or ()),
        {row["broker"]: row["partitions"] for row in replicas or ()},
        now_us,
    )
    return sorted((*incident, *_summary(harm)) for incident, harm in found)


def _summary(harm: Harm) -> tuple[Any, ...]:
    errors: Counter[str] = Counter()
    for failure in harm.failures:
        errors[failure.error] += failure.records
    return (
        len(harm.short),
        len(harm.moved),
        min(errors.total(), _LONGEST),
        [(error, min(records, _LONGEST)) for error, records in sorted(errors.items())],
        _names(failure.topic for failure in harm.failures),
        _names(failure.service for failure in harm.failures),
    )


def _names(names: Iterable[str]) -> list[str]:
    return sorted(set(names))
