"""The changes between two snapshots, as events: brokers, topics, leaders.

Only topics whose tables differ are compared. A comparison made while the response was read is reused.
Metadata calls this after the swap, outside its lock, on the thread that applied the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.events import BrokersChanged, LeadersChanged, PartitionCountChanged
from client_core.metadata.leader_epochs import TopicDifference, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from client_core.events import Event
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.topic_table import TopicTable


def changes_between(
    before: MetadataCache,
    after: MetadataCache,
    differences: Mapping[str, TopicDifference],
    is_held: Callable[[str], bool],
) -> Iterator[Event]:
    """Yields the events of an update. A topic that is no longer wanted leaves without an event."""
    brokers = _brokers_changed(before, after)
    if brokers is not None:
        yield brokers
    if after.topics is before.topics:
        return
    for name, table in after.topics.items():
        earlier = before.topics.get(name)
        if earlier is not table:
            yield from _topic_changed(earlier, table, differences.get(name))
    for name, earlier in before.topics.items():
        if name not in after.topics and is_held(name):
            yield PartitionCountChanged(name, earlier.partition_count, None)


def _brokers_changed(before: MetadataCache, after: MetadataCache) -> BrokersChanged | None:
    """Returns the brokers that joined, left or moved; bootstrap addresses do not count."""
    if before.nodes_by_id == after.nodes_by_id:
        return None
    were = {node.id: node for node in before.nodes_by_id.values() if node.id >= 0}
    are = {node.id: node for node in after.nodes_by_id.values() if node.id >= 0}
    joined = tuple(sorted(are.keys() - were.keys()))
    left = tuple(sorted(were.keys() - are.keys()))
    moved = tuple(sorted(i for i in are.keys() & were.keys() if are[i] != were[i]))
    return BrokersChanged(joined, left, moved) if joined or left or moved else None


def _topic_changed(
    earlier: TopicTable | None, table: TopicTable, difference: TopicDifference | None
) -> Iterator[Event]:
    if earlier is None:
        yield PartitionCountChanged(table.name, None, table.partition_count)
        return
    if earlier.partition_count != table.partition_count or not table.has_id_of(earlier):
        yield PartitionCountChanged(table.name, earlier.partition_count, table.partition_count)
    if difference is None or difference.old is not earlier or difference.new is not table:
        difference = compare(earlier, table)
    # A missing or lower epoch alone is not a leader change.
    rows = [row for row in difference.changes if row[2][1] > row[1][1] or row[2][0] != row[1][0]]
    if rows:
        yield LeadersChanged(table.name, rows)
