"""A silver table: facts under a key that merge, so that nothing about how they arrived can be seen in it.

Each value is the least, the greatest or the union of what was told under its key. All three are commutative,
associative and idempotent, and so is the table: a join-semilattice. Order, doubles, splits and replays can't
change it, whence the pipeline needs neither a watermark nor a state store nor exactly-once delivery, and a
driver that was killed may simply do its batch again.

The tables themselves are in the other rooms of silver/; how they are stored, in stores/.

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
#: Older brokers give none, or none that can be relied on (Java: hasReliableLeaderEpochs).
NO_EPOCH: Final = -1

#: What names a partition. A topic that was re-created under its name is another one.
PARTITION_KEY: Final = ("cluster_id", "topic_key", "partition")
#: One life of a sidecar.
BOOT_KEY: Final = ("sidecar_id", "boot_id")


def of_type(events: DataFrame, kind: str) -> DataFrame:
    """The events of this type."""
    return events.where(f.col("type") == kind)


def cluster_id() -> Column:
    """The cluster's id, "" as long as the sidecar did not know it."""
    return f.coalesce("cluster_id", f.lit("")).alias("cluster_id")


def service() -> Column:
    """The service beside the sidecar, "" if it has no name."""
    return f.coalesce("service", f.lit("")).alias("service")


def topic_key() -> Column:
    """The topic's id; its name where the brokers tell no ids (before Kafka 2.8)."""
    return f.coalesce("topic_id", "topic").alias("topic_key")


class Merge(Enum):
    """How two values under one key become one. Each skips nulls, so null is "not told"."""

    MIN = "min"
    MAX = "max"
    #: Bit by bit, of whole numbers: the union of two sets of up to 64.
    OR = "or"
    #: Of arrays: all that is in any of them, once, in order.
    UNION = "union"

    def aggregate(self, column: str) -> Column:
        """The value of all values of this column under one key."""
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
        """The same of two values in a row, as SQL: for a MERGE, which has the old row beside the new one."""
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
    """The name, the key, the values with how they merge, and what makes rows of the table's source."""

    name: str
    keys: tuple[str, ...]
    #: Bronze events (or the rows of the silver table `source`) to rows with the keys and values; any number
    #: under one key. A key is never null.
    rows: Callable[[DataFrame], DataFrame]
    merges: Mapping[str, Merge]
    #: The table that `rows` reads: bronze events, or a silver table that stands before this one.
    source: str = BRONZE_EVENTS

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys, then the values."""
        return (*self.keys, *self.merges)

    def merge(self, rows: DataFrame) -> DataFrame:
        """One row a key: merge(merge(a) and merge(b)) is merge(a and b)."""
        values = [merge.aggregate(name).alias(name) for name, merge in self.merges.items()]
        return rows.groupBy(*self.keys).agg(*values)

    def of(self, source: DataFrame) -> DataFrame:
        """The table as these rows of its source have it, all of them or only a batch."""
        return self.merge(self.rows(source))
