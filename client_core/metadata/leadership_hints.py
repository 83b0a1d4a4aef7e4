"""Leaders that produce answers name: which of them are believed, and the snapshot that they make (KIP-951).

A broker that no longer leads a partition says who does, often sooner than any Metadata response. Such a hint
counts only if it is newer than all that was seen, and names a broker that is known. Called by Metadata under
its lock, on the I/O thread; it changes nothing but what was seen last. Source:
Metadata.updatePartitionLeadership, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from client_core.cluster import Node, TopicPartition
    from client_core.metadata.leader_epochs import LastSeenEpochs
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.topic_layout import PartitionMetadata
    from client_core.metadata.topic_table import Overlay


class LeaderIdAndEpoch(NamedTuple):
    """Who leads a partition, as a produce answer says."""

    leader_id: int | None
    epoch: int | None


def take_hints(
    cache: MetadataCache,
    last_seen: LastSeenEpochs,
    leaders: Mapping[TopicPartition, LeaderIdAndEpoch],
    nodes: Sequence[Node],
) -> tuple[MetadataCache, set[TopicPartition]]:
    """The snapshot with the leaders that are to be believed, and their partitions (META-22).

    Replicas, errors and update_version stay. It is the snapshot given where nothing is to be believed.
    """
    known_nodes = cache.cluster.with_nodes(nodes)
    overlays: dict[str, Overlay] = {}
    updated: set[TopicPartition] = set()
    for topic_partition, named in leaders.items():
        cached = _outdated_by(topic_partition, named, cache, last_seen, known_nodes)
        if cached is not None:
            topic, partition = topic_partition
            overlay = overlays.setdefault(topic, dict(cache.topics[topic].overlay))
            overlay[partition] = cached._replace(leader_id=named.leader_id, leader_epoch=named.epoch)
            updated.add(topic_partition)
    if not updated:
        return cache, updated
    tables = {topic: cache.topics[topic].with_overlay(overlay) for topic, overlay in overlays.items()}
    for table in tables.values():
        last_seen.follow(table)
    return cache.with_leaders(tables, known_nodes), updated


def _outdated_by(
    topic_partition: TopicPartition,
    named: LeaderIdAndEpoch,
    cache: MetadataCache,
    last_seen: LastSeenEpochs,
    nodes: Mapping[int, Node],
) -> PartitionMetadata | None:
    """The cached partition that a named leader may replace; None where it must be ignored."""
    if named.leader_id is None or named.epoch is None or named.leader_id not in nodes:
        return None
    table = cache.topics.get(topic_partition.topic)
    cached = None if table is None else table.metadata(topic_partition.partition)
    if cached is None:
        return None
    seen = last_seen.get(*topic_partition)
    current_epoch = cached.leader_epoch if seen is None else seen
    return None if current_epoch is not None and named.epoch <= current_epoch else cached
