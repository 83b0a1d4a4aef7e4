"""The silver tables of partitions and topics: leader epochs, ISR, ends of topics.

A leader is elected once per epoch, so all reports of an epoch are one fact, and its first and last report are
a minimum and a maximum.

    silver_epoch_sights    per boot of a sidecar, for staleness and clocks. A partition with half of all
                           events is spread over as many keys as there are boots
    silver_leader_epochs   of the whole fleet, made from the sights, for leader history

leader_lo and leader_hi differ if two leaders were reported for one epoch. Kafka rules that out, so it is an
alarm. A broker that cannot reach an epoch's leader reports the epoch without one (LEADER_NOT_AVAILABLE,
LISTENER_NOT_FOUND). That is no contradiction: only real leaders are compared, and nulls are skipped.

    silver_isr_obs         an ISR may change within an epoch (KAFKA-15021), so only the clocks of sidecars
                           order these. Each state is kept with its boot, whose clock may be found wrong
                           later. Of two states of a boot at one microsecond the lesser is kept
    silver_topic_ends      gone        the brokers have no such topic. A broker may say so right after the
                                       topic was created: gold ignores an end with later reports of the topic
                           recreated   another topic has this name; topic_key is the one that ended
                           forgotten   this sidecar no longer follows the topic, which may still exist
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.event_v1 import PARTITION, TOPIC
from pipeline.silver.silver_table import (
    BOOT_KEY,
    NO_EPOCH,
    NOBODY,
    PARTITION_KEY,
    Merge,
    SilverTable,
    cluster_id,
    of_type,
    service,
    topic_key,
)
from pipeline.tables import SILVER_EPOCH_SIGHTS, SILVER_ISR_OBS, SILVER_LEADER_EPOCHS, SILVER_TOPIC_ENDS

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


GONE: Final = "gone"
RECREATED: Final = "recreated"
FORGOTTEN: Final = "forgotten"


def _states(events: DataFrame) -> DataFrame:
    state = f.struct(
        f.coalesce("leader", f.lit(NOBODY)).alias("leader"),
        f.sort_array("isr").alias("isr"),
        f.sort_array("replicas").alias("replicas"),
    )
    return of_type(events, PARTITION).select(
        cluster_id(),
        topic_key(),
        "partition",
        f.coalesce("leader_epoch", f.lit(NO_EPOCH)).alias("leader_epoch"),
        "observed_at",
        *BOOT_KEY,
        "topic",
        state.alias("state"),
    )


ISR_OBS: Final = SilverTable(
    SILVER_ISR_OBS,
    # A number first: Spark sorts these rows, nearly half as many as there are events, by it in half the time.
    keys=("observed_at", *PARTITION_KEY, "leader_epoch", *BOOT_KEY),
    rows=_states,
    merges={"topic": Merge.MIN, "state": Merge.MIN},
)


def _ends(events: DataFrame) -> DataFrame:
    ended = of_type(events, TOPIC).where(f.col("change").isin(GONE, RECREATED, FORGOTTEN))
    return ended.select(cluster_id(), topic_key(), *BOOT_KEY, "change", "observed_at", "topic")


TOPIC_ENDS: Final = SilverTable(
    SILVER_TOPIC_ENDS,
    keys=("cluster_id", "topic_key", *BOOT_KEY, "change", "observed_at"),
    rows=_ends,
    merges={"topic": Merge.MIN},
)


def _reported(events: DataFrame) -> DataFrame:
    reported = of_type(events, PARTITION).where(f.col("leader_epoch") >= 0)
    leader = f.when(f.col("leader") >= 0, f.col("leader"))
    return reported.select(
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
    """Aggregates per epoch in one pass; the observers are a set, which does not grow with the sights.

    Spark can't aggregate a minimum of structs or a set in place: beyond a few keys it sorts. A number first
    in the key makes it sort by a number.
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
    # A topic id has one name and a boot one service: as keys they cost less than as a minimum of texts.
    keys=(*_EPOCH_KEY, *BOOT_KEY, "topic", "service"),
    rows=_reported,
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
