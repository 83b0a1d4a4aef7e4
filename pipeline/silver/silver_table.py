"""Defines a silver table: facts under a key that merge, independent of how they arrived.

Each value is the minimum, the maximum or the union of the values reported under its key. All three are
commutative, associative and idempotent, and so is the table: a join-semilattice. Order, duplicates, splits
and replays do not change it. So the pipeline needs no watermark, no state store and no exactly-once delivery,
and a killed driver may repeat its batch.

The tables are in the other modules of silver/; their storage is in stores/.

No column of a key is null from silver on:

    null in an event                     in silver
    cluster_id: not known yet            ""
    service                              ""
    topic_id: brokers report none        topic_key is the topic's name
    leader_epoch: none                   -1
    broker: would-be id                  -1
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.tables import BRONZE_EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame


#: A partition without a leader, a window without a broker.
NOBODY: Final = -1
#: Older brokers report none, or none that is reliable (Java: hasReliableLeaderEpochs).
NO_EPOCH: Final = -1

#: The key of a partition. A topic that was re-created under its name has another topic_key.
PARTITION_KEY: Final = ("cluster_id", "topic_key", "partition")
#: The key of one process of a sidecar.
BOOT_KEY: Final = ("sidecar_id", "boot_id")


def of_type(events: DataFrame, kind: str) -> DataFrame:
    return events.where(f.col("type") == kind)


def cluster_id() -> Column:
    """Returns the cluster's id; "" if the sidecar did not know it yet."""
    return f.coalesce("cluster_id", f.lit("")).alias("cluster_id")


def service() -> Column:
    """Returns the service of the sidecar; "" if it has no name."""
    return f.coalesce("service", f.lit("")).alias("service")


def topic_key() -> Column:
    """Returns the topic's id; its name if the brokers report no ids (before Kafka 2.8)."""
    return f.coalesce("topic_id", "topic").alias("topic_key")


class Merge(Enum):
    """How two values under one key are merged. All skip nulls: null means "not reported"."""

    MIN = "min"
    MAX = "max"
    #: Bitwise, of whole numbers: the union of two sets of up to 64 elements.
    OR = "or"
    #: Of arrays: the sorted distinct elements of all of them.
    UNION = "union"

    def aggregate(self, column: str) -> Column:
        """Returns the merged value of this column over all rows with one key."""
        match self:
            case Merge.MIN:
                return f.min(column)
            case Merge.MAX:
                return f.max(column)
            case Merge.OR:
                return f.bit_or(column)
            case Merge.UNION:
                return f.array_sort(f.array_distinct(f.flatten(f.collect_set(column))))

    def of_two(self, one: str, other: str) -> str:
        """Returns the merge of two values as SQL, for a MERGE, which has the old row and the new one."""
        match self:
            case Merge.MIN:
                return f"least({one}, {other})"
            case Merge.MAX:
                return f"greatest({one}, {other})"
            case Merge.OR:
                return f"coalesce({one} | {other}, {one}, {other})"
            case Merge.UNION:
                return f"coalesce(array_sort(array_union({one}, {other})), {one}, {other})"


@dataclass(frozen=True, slots=True)
class SilverTable:
    """A table's name, keys, values with their merges, and the function from its source to its rows."""

    name: str
    keys: tuple[str, ...]
    #: Converts bronze events (or rows of the silver table `source`) to rows with the keys and values. Several
    #: rows may have the same key. A key is never null.
    rows: Callable[[DataFrame], DataFrame]
    merges: Mapping[str, Merge]
    #: The table that `rows` reads: bronze events, or an earlier silver table.
    source: str = BRONZE_EVENTS

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the names of the keys, then of the values."""
        return (*self.keys, *self.merges)

    def merge(self, rows: DataFrame) -> DataFrame:
        """Returns one row per key: merge(merge(a) and merge(b)) is merge(a and b)."""
        values = [merge.aggregate(name).alias(name) for name, merge in self.merges.items()]
        return rows.groupBy(*self.keys).agg(*values)

    def of(self, source: DataFrame) -> DataFrame:
        """Returns the table made from these rows of its source, which may be one batch."""
        return self.merge(self.rows(source))
