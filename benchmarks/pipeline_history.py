"""Computes leader history from bronze in one Spark session: by silver's facts, and by windows.

    python -m benchmarks.pipeline_history TABLES ROUNDS       TABLES: the folder that a run has filled

    facts      the pipeline's way: one row per epoch and boot, then one per epoch, then lead() over those.
               Which clocks are wrong is read and held in memory: the job has made that table before
    windows    row_number, min, max and collect_set over the events of each epoch, then lead(): as many
               columns
    lags       the least that plain windows can do: lag() over the events of a partition, without last_seen,
               observers and conflicts

Contestants take turns after one turn each that is not counted (JIT warm-up). Their CPU is that of this
process and its JVM; the work itself runs no Python. Nothing is written (Spark's noop sink). Prints a JSON
object: contestant to a list of [CPU s, wall s], and the rows of each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from benchmarks.measure import process_cpu_s
from pipeline.event_v1 import PARTITION
from pipeline.gold import GOLD
from pipeline.refresh import held
from pipeline.session import spark_session
from pipeline.silver import SILVER
from pipeline.stores.formats import open_store
from pipeline.stores.store import PARQUET
from pipeline.tables import (
    BRONZE_EVENTS,
    GOLD_DATA_QUALITY,
    GOLD_LEADER_HISTORY,
    SILVER_EPOCH_SIGHTS,
    SILVER_LEADER_EPOCHS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

_PARTITION_KEY: Final = ("cluster_id", "topic_key", "partition")
#: By the history, the ends of topics and, if a clock is wrong, its correction.
_READ_AGAIN: Final = (SILVER_EPOCH_SIGHTS, SILVER_LEADER_EPOCHS)


def facts(events: DataFrame, quality: DataFrame) -> DataFrame:
    """The job's way: shared tables are computed once, and kept in memory instead of written."""
    silver = {table.name: table for table in SILVER}
    made = {BRONZE_EVENTS: events, GOLD_DATA_QUALITY: quality}

    def read(name: str) -> DataFrame:
        if name not in made:
            made[name] = silver[name].of(read(silver[name].source))
            if name in _READ_AGAIN:
                made[name].persist()
        return made[name]

    return GOLD[GOLD_LEADER_HISTORY](read)


def windows(events: DataFrame) -> DataFrame:
    """The usual solution with window functions: all results of the facts, from the events themselves."""
    of_epoch = Window.partitionBy(*_PARTITION_KEY, "leader_epoch")
    firsts = (
        _sightings(events)
        .select(
            "*",
            F.row_number().over(of_epoch.orderBy("observed_at", "sidecar_id")).alias("n"),
            F.max("observed_at").over(of_epoch).alias("last_seen"),
            F.min("leader").over(of_epoch).alias("leader_lo"),
            F.max("leader").over(of_epoch).alias("leader_hi"),
            F.size(F.collect_set("sidecar_id").over(of_epoch)).alias("observers"),
        )
        .where("n = 1")
    )
    return _history(firsts, "leader_lo", "last_seen", "observers", "leader_hi")


def lags(events: DataFrame) -> DataFrame:
    """The shortest query that returns intervals of leaders."""
    in_order = Window.partitionBy(*_PARTITION_KEY).orderBy("leader_epoch", "observed_at", "sidecar_id")
    before = F.lag("leader_epoch").over(in_order)
    firsts = _sightings(events).withColumn("before", before)
    return _history(firsts.where("before IS NULL OR before < leader_epoch"), "leader")


def _sightings(events: DataFrame) -> DataFrame:
    reported = events.where((F.col("type") == PARTITION) & (F.col("leader_epoch") >= 0))
    return reported.withColumn("topic_key", F.coalesce("topic_id", "topic"))


def _history(firsts: DataFrame, leader: str, *more: str) -> DataFrame:
    by_epoch = Window.partitionBy(*_PARTITION_KEY).orderBy("leader_epoch")
    return firsts.select(
        *_PARTITION_KEY,
        "topic",
        "leader_epoch",
        leader,
        *more,
        F.col("observed_at").alias("valid_from"),
        F.lead("observed_at").over(by_epoch).alias("valid_to"),
        F.col("sidecar_id").alias("first_observer"),
        (F.lag(leader).over(by_epoch) != F.col(leader)).alias("is_leader_change"),
    )


def contestants(quality: DataFrame) -> dict[str, Callable[[DataFrame], DataFrame]]:
    """Returns what makes the history of events, by name. `quality`: the job's gold_data_quality."""
    return {"facts": partial(facts, quality=quality), "windows": windows, "lags": lags}


def main() -> None:
    tables, rounds = sys.argv[1], int(sys.argv[2])
    spark = spark_session("pilotfish-bench", master="local[2]", driver_memory="4g")
    try:
        store = open_store(spark, tables, PARQUET, to_write=False)
        events, quality = store.read(BRONZE_EVENTS), store.read(GOLD_DATA_QUALITY)
        histories = contestants(held(spark, quality))
        rows = {name: history(events).count() for name, history in histories.items()}
        spark.catalog.clearCache()
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in histories}
        for _ in range(rounds):
            for name, history in histories.items():
                costs[name].append(_cost(spark, history(events)))
    finally:
        spark.stop()
    print(json.dumps({"costs": costs, "rows": rows}))


def _cost(spark: SparkSession, rows: DataFrame) -> tuple[float, float]:
    """Returns CPU and wall seconds of computing all rows."""
    cpu_s, wall_s = _cpu_s(spark), time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    cost = _cpu_s(spark) - cpu_s, time.perf_counter() - wall_s
    spark.catalog.clearCache()
    return cost


def _cpu_s(spark: SparkSession) -> float:
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "the session was started by this process"
    return process_cpu_s(os.getpid()) + process_cpu_s(gateway.proc.pid)


if __name__ == "__main__":
    main()
