"""Columns that several silver tables share. From silver on nothing in a key is null.

null in an event                     in silver
cluster_id: not known yet            ""
service                              ""
topic_id: the brokers tell none      topic_key is the topic's name
leader_epoch: none to rely on        -1
broker: who would it have been       -1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
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
