"""Decides which partitions and leaders to accept, by leader epoch (META-11, KIP-951).

Java keeps a map of every partition's epoch. Here a topic's table holds them. Only exceptions are stored: a
greater epoch from another response (META-14), or the epoch of a partition that no longer exists. So a topic
with unchanged bytes costs nothing, and a topic with an error keeps its epochs.

A Produce response of a broker that lost leadership names the new leader, often earlier than a Metadata
response. The hint is accepted only if its epoch is newer than all seen, and its broker is known (KIP-951).

Called by Metadata, guarded by its lock, on the I/O thread. Source: Metadata.updateLatestMetadata,
updatePartitionLeadership, Kafka 4.3.
"""

from __future__ import annotations

from itertools import compress
from operator import ne
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    from client_core.cluster import Node, TopicPartition
    from client_core.events import LeadershipRow
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.topic_layout import PartitionMetadata
    from client_core.metadata.topic_table import Overlay, TopicTable


class LeaderIdAndEpoch(NamedTuple):
    """A partition's leader in a Produce response."""

    leader_id: int | None
    epoch: int | None


def take_hints(
    cache: MetadataCache,
    last_seen: LastSeenEpochs,
    leaders: Mapping[TopicPartition, LeaderIdAndEpoch],
    nodes: Sequence[Node],
) -> tuple[MetadataCache, set[TopicPartition]]:
    """Returns the snapshot with the accepted leaders, and their partitions (META-22).

    Replicas, errors and update_version stay. Returns `cache` itself if no hint is accepted.
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
    """Returns the cached partition to update with the named leader; None if the hint must be ignored."""
    if named.leader_id is None or named.epoch is None or named.leader_id not in nodes:
        return None
    table = cache.topics.get(topic_partition.topic)
    cached = None if table is None else table.metadata(topic_partition.partition)
    if cached is None:
        return None
    seen = last_seen.get(*topic_partition)
    current_epoch = cached.leader_epoch if seen is None else seen
    return None if current_epoch is not None and named.epoch <= current_epoch else cached


class TopicDifference(NamedTuple):
    """The leadership changes between two tables of one topic, for partitions in both."""

    old: TopicTable
    new: TopicTable
    changes: Sequence[LeadershipRow]


def compare(old: TopicTable, new: TopicTable) -> TopicDifference:
    """Compares the leadership in two tables of one topic."""
    changes = new.changed_leaders(old)
    if changes is not None:
        return TopicDifference(old, new, changes)
    if not old.raw_numbers == old.numbers == new.numbers == new.raw_numbers:
        both = set(old.numbers).intersection(new.numbers)
        numbers: Sequence[int] = sorted(both)
        before: list[tuple[int, ...]] = [_leader_and_epoch(old, number) for number in numbers]
        after: list[tuple[int, ...]] = [_leader_and_epoch(new, number) for number in numbers]
    else:
        numbers = new.raw_numbers
        before = old.leaders_and_epochs()
        after = new.leaders_and_epochs()
    rows = zip(numbers, before, after, strict=True)
    return TopicDifference(old, new, list(compress(rows, map(ne, before, after))))


def _leader_and_epoch(table: TopicTable, partition: int) -> tuple[int, int]:
    found = table.metadata(partition)
    assert found is not None  # it is one of the table's own numbers
    return found.leader_and_epoch


class LastSeenEpochs:
    """The greatest epoch seen of each partition, until its topic is no longer held."""

    def __init__(self) -> None:
        #: Each topic's last accepted table: it implies the epochs of its partitions.
        self._tables: dict[str, TopicTable] = {}
        #: Epochs that the table does not imply, by topic and partition. A topic without any has no entry.
        self._explicit: dict[str, dict[int, int]] = {}

    def get(self, topic: str, partition: int) -> int | None:
        """Returns the last seen epoch of a partition; None if none was seen, or a response removed it."""
        explicit = self._explicit.get(topic)
        if explicit is not None and partition in explicit:
            return explicit[partition]
        table = self._tables.get(topic)
        return None if table is None else table.leader_epoch(partition)

    def put(self, topic: str, partition: int, epoch: int) -> None:
        """Remembers an epoch that is in no table."""
        self._explicit.setdefault(topic, {})[partition] = epoch

    def follow(self, table: TopicTable) -> None:
        """Takes a table with new leaders in its overlay (META-22), which implies their epochs."""
        explicit = self._explicit.get(table.name, {})
        self._tables[table.name] = table
        ahead: dict[int, int] = {}
        for partition, seen in explicit.items():
            epoch = table.leader_epoch(partition)
            if epoch is None or epoch < seen:
                ahead[partition] = seen
        self._write_down(table.name, ahead)

    def retain(self, held: Set[str], is_held: Callable[[str], bool]) -> None:
        """Forgets topics that are no longer held (META-24); calls `is_held` for those not in `held`."""
        if len(self._tables) == len(held):
            return  # those in `held` are all in our tables
        for topic in self._tables.keys() - held:
            if not is_held(topic):
                del self._tables[topic]
                self._explicit.pop(topic, None)

    def knows(self, topic: str) -> bool:
        """Returns whether a table of this topic was accepted."""
        return topic in self._tables

    def is_reported_by(self, table: TopicTable) -> bool:
        """Returns whether this table is the last accepted one, so there is nothing to accept."""
        return self._tables.get(table.name) is table

    def accept(
        self,
        table: TopicTable,
        cached: TopicTable | None,
        *,
        topic_id_changed: bool,
        difference: TopicDifference | None = None,
    ) -> tuple[TopicTable, bool]:
        """Returns the accepted table of a topic, and whether it made progress: an epoch is new or greater
        (META-03).

        `cached` is the topic in the current snapshot, `difference` the reader's comparison with it. Returns
        `table` itself, `cached` if nothing changed, or `table` with its stale partitions replaced.
        """
        known = self._tables.get(table.name)
        explicit = self._explicit.get(table.name)
        if known is None or topic_id_changed:
            if topic_id_changed:
                # It is another topic. Java keeps the epochs of partitions that it does not have yet. It
                # ignores such a partition when it comes, until its epoch is greater.
                self._write_down(table.name, {})
            else:
                self._keep_absent(table)
            self._tables[table.name] = table
            return table, table.partition_count > 0
        if (
            explicit is None
            and difference is not None
            and difference.old is known
            and difference.new is table
            and known.raw_numbers == table.raw_numbers
        ):
            behind = [number for number, was, now in difference.changes if 0 <= now[1] < was[1]]
            if not behind or cached is known:
                believed = table.with_partitions_of(known, behind) if behind else table
                self._tables[table.name] = believed
                return believed, any(now[1] > was[1] for _, was, now in difference.changes)
        return self._accept_each(table, cached)

    def _accept_each(self, table: TopicTable, cached: TopicTable | None) -> tuple[TopicTable, bool]:
        """Compares each partition: epochs went back, or came from another response (META-11)."""
        overlay: Overlay = {}
        ahead: dict[int, int] = {}
        progressed = False
        for partition in table.raw_numbers:
            epoch = table.leader_epoch(partition)
            seen = self.get(table.name, partition)
            if epoch is None:
                continue  # the table has no epoch for it (META-12)
            if seen is None or epoch >= seen:
                progressed = progressed or epoch != seen
                continue
            kept = None if cached is None else cached.metadata(partition)
            overlay[partition] = kept
            if kept is None or kept.leader_epoch != seen:
                ahead[partition] = seen
        self._keep_absent(table, ahead)
        if cached is not None and cached.raw == table.raw and dict(cached.overlay) == overlay:
            table = cached
        elif overlay:
            table = table.with_overlay(overlay)
        self._tables[table.name] = table
        return table, progressed

    def _keep_absent(self, table: TopicTable, explicit: dict[int, int] | None = None) -> None:
        """Stores the seen epochs of partitions that the new table lacks, before it replaces the old one."""
        explicit = {} if explicit is None else explicit
        known = self._tables.get(table.name)
        earlier = self._explicit.get(table.name, {})
        if earlier or (known is not None and known.raw_numbers != table.raw_numbers):
            candidates = set(earlier)
            if known is not None:
                candidates.update(known.raw_numbers)
            for partition in candidates.difference(table.raw_numbers):
                seen = self.get(table.name, partition)
                if seen is not None:
                    explicit[partition] = seen
        self._write_down(table.name, explicit)

    def _write_down(self, topic: str, explicit: dict[int, int]) -> None:
        if explicit:
            self._explicit[topic] = explicit
        else:
            self._explicit.pop(topic, None)
