"""Who saw which leader epoch of a partition, when, and with what leader.

A leader is elected once an epoch, so that all that was ever told of an epoch is one fact, and the first and
the last time that it was told are a minimum and a maximum.

    silver_epoch_sights    per boot of a sidecar: what staleness and clocks are measured by. A partition that
                           half of all events are about is spread over as many keys as there are boots
    silver_leader_epochs   of the whole fleet, made of the sights: what leader history is made of

leader_lo and leader_hi differ when two leaders were told for one epoch, which Kafka rules out: it is an
alarm. A broker that can't reach an epoch's leader tells the epoch without one (LEADER_NOT_AVAILABLE, or
LISTENER_NOT_FOUND): that contradicts nobody, so only real leaders are compared, and null, which loses
against all of them, means that nobody named one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.event_v1 import PARTITION
from pipeline.silver.columns import BOOT_KEY, PARTITION_KEY, cluster_id, of_type, service, topic_key
from pipeline.silver.silver_table import Merge, SilverTable
from pipeline.tables import SILVER_EPOCH_SIGHTS, SILVER_LEADER_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

_EPOCH_KEY: Final = (*PARTITION_KEY, "leader_epoch")
_FACTS: Final[Mapping[str, Merge]] = {
    "leader_lo": Merge.MIN,
    "leader_hi": Merge.MAX,
    "first_seen": Merge.MIN,
    "last_seen": Merge.MAX,
}


def _told(events: DataFrame) -> DataFrame:
    told = of_type(events, PARTITION).where(f.col("leader_epoch") >= 0)
    leader = f.when(f.col("leader") >= 0, f.col("leader"))
    return told.select(
        cluster_id(),
        topic_key(),
        "partition",
        "leader_epoch",
        *BOOT_KEY,
        "topic",
        service(),
        leader.alias("leader_lo"),
        leader.alias("leader_hi"),
        f.col("observed_at").alias("first_seen"),
        f.col("observed_at").alias("last_seen"),
    )


def _of_the_fleet(sights: DataFrame) -> DataFrame:
    """Merged as far as one pass can; who saw an epoch as a set, which is not to have an element a sight.

    A least struct and a set can't be added up in place: beyond a few keys Spark sorts for them. A number
    first in the key has it sort by a number.
    """
    return sights.groupBy("leader_epoch", *PARTITION_KEY).agg(
        f.min("topic").alias("topic"),
        f.min("leader_lo").alias("leader_lo"),
        f.max("leader_hi").alias("leader_hi"),
        f.min(f.struct(f.col("first_seen").alias("seen_at"), "sidecar_id")).alias("first"),
        f.max("last_seen").alias("last_seen"),
        f.array_sort(f.collect_set("sidecar_id")).alias("observers"),
    )


EPOCH_SIGHTS: Final = SilverTable(
    SILVER_EPOCH_SIGHTS,
    # A topic's id has one name and a boot one service: in the key they cost less than as a least text.
    keys=(*_EPOCH_KEY, *BOOT_KEY, "topic", "service"),
    rows=_told,
    merges=_FACTS,
)

LEADER_EPOCHS: Final = SilverTable(
    SILVER_LEADER_EPOCHS,
    keys=_EPOCH_KEY,
    source=SILVER_EPOCH_SIGHTS,
    rows=_of_the_fleet,
    merges={
        "topic": Merge.MIN,
        "leader_lo": Merge.MIN,
        "leader_hi": Merge.MAX,
        "first": Merge.MIN,
        "last_seen": Merge.MAX,
        "observers": Merge.UNION,
    },
)
