"""Closes days of the tables, so that a run costs as much after a year as after a week.

    bronze       all events, up to the retention
    silver       the facts of the last days, and of older ones only what still holds
    gold         rows that were over before the closed days' end stay as they are; others are made again

        ───────────┬─────────────────┬─────────────────────────────────────▶ time of the latest event
       closed rows since             before            OPEN_DAYS
       not read    read as context   the rows that a run makes begin here

A row is over at a time of its own (OVER_AT): an hour, the end of a leadership. A row without one is not over,
however old. Of what is older than `since`, silver keeps for every partition that existed then its last two
epochs, and its states from the last time on when it was whole; and for every boot that still reports what it
reported last. What it said of closed epochs, and boots that ended, are only in gold.

Events of closed days that arrive later are in bronze, and change no closed row: `run --rebuild` makes all
rows from all of bronze. The row of a boot that reports again is made again (refresh.py).
An incident or a flapping partition that lasts longer than OPEN_DAYS is counted from `since` on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from pipeline import tables
from pipeline.gold.clocks import believed, believed_epochs, left_out
from pipeline.gold.topic_lives import first_end_after, topic_ends
from pipeline.silver.silver_table import BOOT_KEY, NO_EPOCH, PARTITION_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import Column, DataFrame, Row

    from pipeline.gold.read import Read

MARK: Final = "_closed.json"
#: Advice looks back seven days; events may be late by a day.
OPEN_DAYS: Final = 8
_CONTEXT: Final = timedelta(days=1)

#: When a row of a gold table is over. Of the other tables all rows are made again.
OVER_AT: Final[Mapping[str, str]] = {
    tables.GOLD_DATA_QUALITY: "last_event",
    tables.GOLD_LEADER_HISTORY: "valid_to",
    tables.GOLD_CHURN: "hour",
    tables.GOLD_CHURN_BROKERS: "hour",
    tables.GOLD_FLAPPING: "flapping_to",
    tables.GOLD_URP: "end_by",
    # A wait is followed for less than OPEN_DAYS (staleness.py).
    tables.GOLD_STALENESS: "fleet_first_seen",
    tables.GOLD_PRODUCE_SLO: "hour",
    tables.GOLD_INCIDENTS: "over_by",
}

_EPOCH_KEY: Final = (*PARTITION_KEY, "leader_epoch")
#: The keys of those whose rows are not over at a time of their key: an event may begin or end a row again.
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    tables.GOLD_DATA_QUALITY: BOOT_KEY,
    tables.GOLD_LEADER_HISTORY: _EPOCH_KEY,
    tables.GOLD_FLAPPING: (*PARTITION_KEY, "flapping_from"),
    tables.GOLD_URP: (*PARTITION_KEY, "start_by"),
    tables.GOLD_STALENESS: (*_EPOCH_KEY, *BOOT_KEY),
    tables.GOLD_INCIDENTS: ("cluster_id", "kind", "broker", "topic", "partition", "began_by"),
}


@dataclass(frozen=True, slots=True, order=True)
class Closed:
    """The closed days: they end at `before`, and `since` is a day earlier. Midnights, UTC."""

    before: datetime

    @classmethod
    def of(cls, said: Mapping[str, Any] | None) -> Closed | None:
        """Returns what the mark says; None without a mark."""
        return None if said is None else cls(datetime.fromisoformat(said["before"]))

    def says(self) -> dict[str, str]:
        """Returns the mark."""
        return {"before": self.before.isoformat()}

    @property
    def since(self) -> datetime:
        """Returns the time from which on silver is whole."""
        return self.before - _CONTEXT

    def is_over(self, table: str) -> str:
        """Returns the SQL that is true for rows that are not made again."""
        return f"coalesce({OVER_AT[table]} < {sql_time(self.before)}, false)"

    def is_closed(self, table: str) -> str:
        """Returns the SQL that is true for rows that no other row needs; "" if the table has none."""
        return f"coalesce({OVER_AT[table]} < {sql_time(self.since)}, false)" if table in OVER_AT else ""

    def rows(self, table: str, made: DataFrame, before: DataFrame) -> DataFrame:
        """Returns a table's rows: those that were over before, and what was made of the others.

        A boot may report again, and a late event end what was not over: a key has one row all the same.
        """
        is_over = self.is_over(table)
        if table not in _KEYS:
            return made.where(f"NOT {is_over}").unionByName(before.where(is_over))
        # The least of a key counts: made and not over; over before; made, and not over before (the last).
        made = made.withColumn("place", f.expr(f"IF({is_over}, 2, 0)"))
        before = before.withColumn("place", f.expr(f"IF({is_over}, 1, 3)"))
        of_key = Window.partitionBy(*_KEYS[table])
        first, last = f.min("place").over(of_key), f.max("place").over(of_key)
        rows = made.unionByName(before).select("*", first.alias("first_place"), last.alias("last_place"))
        counts = "place = first_place AND (place < 2 OR place = 2 AND last_place = 3)"
        return rows.where(counts).drop("place", "first_place", "last_place")


def of_boots(boots: Iterable[Row]) -> str:
    """Returns the SQL that is true for rows of these boots."""
    named = [
        f"named_struct('s', CAST(X'{row.sidecar_id.encode().hex()}' AS STRING), 'b', {row.boot_id}L)"
        for row in boots
    ]
    return f"named_struct('s', sidecar_id, 'b', boot_id) IN ({', '.join(named)})" if named else "false"


def sql_time(time: datetime) -> str:
    return f"TIMESTAMP '{time.isoformat()}'"


def closed_days(latest: datetime) -> Closed:
    """Returns the days that can be closed if this is the time of the latest event."""
    return Closed(latest.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=OPEN_DAYS))


def least_keep_days() -> int:
    """Returns the shortest retention: nothing is removed that is not closed."""
    return OPEN_DAYS + _CONTEXT.days + 1


# -- what silver keeps ---------------------------------------------------------------------------------------


def _sidecars(read: Read, since: Column) -> DataFrame:
    """Keeps the rows of a boot until it has no later event. A boot may have a row without its cluster."""
    last = f.max("last_event").over(Window.partitionBy(*BOOT_KEY))
    rows = read(tables.SILVER_SIDECARS).select("*", last.alias("last_of_boot"))
    return rows.where(f.col("last_of_boot") >= since).drop("last_of_boot")


def _leader_epochs(read: Read, since: Column) -> DataFrame:
    """Keeps the last two epochs of partitions that existed, as the first one of open days follows on them.

    And those with two leaders. Without the end of their topic, those of others would be current again.
    """
    silver = read(tables.SILVER_LEADER_EPOCHS)
    by_epoch = Window.partitionBy(*PARTITION_KEY).orderBy("leader_epoch")
    # Boots with wrong clocks may end, and the times be those of other boots all the same.
    epochs = believed_epochs(read).select(*silver.columns)
    next_but_one = f.lead("first.seen_at", 2).over(by_epoch)
    is_conflict = f.coalesce(f.col("leader_lo") != f.col("leader_hi"), f.lit(False))
    holds = f.col("exists") & (f.coalesce(f.col("next_but_one") >= since, f.lit(True)) | is_conflict)
    return (
        epochs.select("*", next_but_one.alias("next_but_one"))
        .join(_partitions(read, since), [*PARTITION_KEY], "left")
        .withColumn("exists", f.coalesce("exists", f.lit(False)))
        .where((f.greatest("last_seen", "first.seen_at") >= since) | holds)
        .select(*silver.columns)
    )


def _epoch_sights(read: Read, since: Column) -> DataFrame:
    """Keeps the sights of kept epochs: of boots that ended, the first and the last; and each boot's last."""
    sights = read(tables.SILVER_EPOCH_SIGHTS)
    epochs = read(tables.SILVER_LEADER_EPOCHS).select(*_EPOCH_KEY, f.lit(True).alias("is_kept"))
    wrong = left_out(read).select(*BOOT_KEY, f.lit(True).alias("is_wrong"))
    others = Window.partitionBy(*_EPOCH_KEY, "is_live", "is_wrong")
    is_first_or_last = (f.col("first_seen") == f.min("first_seen").over(others)) | (
        f.col("last_seen") == f.max("last_seen").over(others)
    )
    highest = f.max("leader_epoch").over(Window.partitionBy(*PARTITION_KEY, *BOOT_KEY))
    known = (
        sights.join(epochs, [*_EPOCH_KEY], "left")
        .join(_boots(read), [*BOOT_KEY], "left")
        .join(wrong, [*BOOT_KEY], "left")
        .na.fill(False, ["is_kept", "is_live", "is_wrong"])
        .select("*", is_first_or_last.alias("is_first_or_last"), highest.alias("highest"))
    )
    of_live = f.col("is_live") & (f.col("is_kept") | (f.col("leader_epoch") == f.col("highest")))
    of_ended = f.col("is_kept") & ~f.col("is_live") & ~f.col("is_wrong") & f.col("is_first_or_last")
    return known.where((f.col("last_seen") >= since) | of_live | of_ended).select(*sights.columns)


def _isr_obs(read: Read, since: Column) -> DataFrame:
    """Keeps the states of partitions that existed from the last one on that was whole.

    Before Kafka 2.4 partitions have no history. They existed unless their topic ended.
    """
    states = read(tables.SILVER_ISR_OBS)
    is_whole = f.size("state.isr") >= f.size("state.replicas")
    old = believed(read, states).where(is_whole & (f.col("observed_at") < since))
    whole = old.groupBy(*PARTITION_KEY).agg(f.max("observed_at").alias("whole_at"))
    lasts = f.coalesce(first_end_after(f.col("observed_at")) >= since, f.lit(True))
    exists = f.when(f.col("leader_epoch") == NO_EPOCH, lasts).otherwise(f.col("exists"))
    holds = exists & (f.col("whole_at").isNull() | (f.col("observed_at") >= f.col("whole_at")))
    return (
        states.join(whole, [*PARTITION_KEY], "left")
        .join(_partitions(read, since), [*PARTITION_KEY], "left")
        .join(topic_ends(read), ["cluster_id", "topic_key"], "left")
        .where((f.col("observed_at") >= since) | f.coalesce(holds, f.lit(False)))
        .select(*states.columns)
    )


def _topic_ends(read: Read, since: Column) -> DataFrame:
    """Keeps the ends of topics that existed: of a boot that no longer follows one."""
    ends = read(tables.SILVER_TOPIC_ENDS)
    topics = _partitions(read, since).select("cluster_id", "topic_key", "exists").distinct()
    known = ends.join(topics, ["cluster_id", "topic_key"], "left")
    return known.where((f.col("observed_at") >= since) | f.col("exists")).select(*ends.columns)


def _produce_windows(read: Read, since: Column) -> DataFrame:
    return read(tables.SILVER_PRODUCE_WINDOWS).where(f.col("window.ended_at") >= since)


def _refreshes(read: Read, since: Column) -> DataFrame:
    """Keeps of each boot the last one, and the last before each of its sights: they bound its clock."""
    refreshes = read(tables.SILVER_REFRESHES)
    sights = read(tables.SILVER_EPOCH_SIGHTS).select(*BOOT_KEY, f.col("first_seen").alias("observed_at"))
    is_sight = f.lit(True).alias("is_sight")
    both = refreshes.unionByName(sights.select("*", is_sight), allowMissingColumns=True)
    by_time = Window.partitionBy(*BOOT_KEY).orderBy("observed_at", f.col("is_sight").desc_nulls_first())
    following = f.lead(f.coalesce("is_sight", f.lit(False)), 1, True).over(by_time)
    rows = both.select("*", following.alias("is_before_a_sight")).where("is_sight IS NULL")
    kept = rows.where((f.col("observed_at") >= since) | f.col("is_before_a_sight"))
    return kept.join(_boots(read), [*BOOT_KEY], "left_semi").select(*refreshes.columns)


def _seqs(read: Read, since: Column) -> DataFrame:
    del since
    return read(tables.SILVER_SEQS).join(_boots(read), [*BOOT_KEY], "left_semi")


def _partitions(read: Read, since: Column) -> DataFrame:
    """Returns the partitions that existed then or later: rows that are still made need what was before."""
    lasts = read(tables.GOLD_LEADER_HISTORY).where(f.coalesce(f.col("valid_to") >= since, f.lit(True)))
    return lasts.select(*PARTITION_KEY, f.lit(True).alias("exists")).distinct()


def _boots(read: Read) -> DataFrame:
    """Returns the boots that have events of open days, once the others are removed from silver_sidecars."""
    return read(tables.SILVER_SIDECARS).select(*BOOT_KEY, f.lit(True).alias("is_live")).distinct()


#: The rows of silver tables that are kept, given the time since which all are. In this order: some read the
#: tables before them, as these were left.
KEPT: Final[Mapping[str, Callable[[Read, Column], DataFrame]]] = {
    tables.SILVER_SIDECARS: _sidecars,
    tables.SILVER_LEADER_EPOCHS: _leader_epochs,
    tables.SILVER_EPOCH_SIGHTS: _epoch_sights,
    tables.SILVER_ISR_OBS: _isr_obs,
    tables.SILVER_TOPIC_ENDS: _topic_ends,
    tables.SILVER_PRODUCE_WINDOWS: _produce_windows,
    tables.SILVER_REFRESHES: _refreshes,
    tables.SILVER_SEQS: _seqs,
}
