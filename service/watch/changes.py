"""The changes between two snapshots, as event data: brokers, topics, leaders, replicas. Pure.

    joined, moved    brokers first, so that each leader in a later event is known
    topics           each table that is a new object: the change of the topic, then its partitions
    gone             topics that no longer exist
    left             brokers last

An unchanged topic keeps its table object, so an unchanged snapshot costs one identity check per topic. The
iterators yield None to pause, at least once per PIECE of work. Other callbacks of the event loop can then run
between the pieces of a hundred thousand partitions. An event has the whole present state of a partition, so
receiving it twice is harmless. Shapes: docs/watch.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from client_core import Errors, MetadataCache, Node, TopicTable
from service.lookup.answers import node_json, topic_id_text

_encode: Final = msgspec.json.Encoder().encode

#: Partitions in one event: about 15 kB.
PARTITIONS_PER_EVENT: Final = 100

#: Partitions compared, or unchanged topics skipped, between two pauses: about a millisecond.
PIECE: Final = 500


class Change(NamedTuple):
    """One event without a number yet. `topic` is None for events about brokers."""

    event: str
    topic: str | None
    data: bytes


def changes_between(before: MetadataCache, after: MetadataCache, at: str) -> Iterator[Change | None]:
    """Yields the changes in order, and None for a pause. `at` is the time, as RFC 3339."""
    were, are = brokers_of(before), brokers_of(after)
    for node_id in sorted(are):
        if node_id not in were:
            yield _broker("joined", are[node_id], at)
        elif are[node_id] != were[node_id]:
            yield _broker("moved", are[node_id], at)
    for walked, (name, table) in enumerate(after.topics.items()):
        earlier = before.topics.get(name)
        if earlier is not table:
            yield from _topic_changes(earlier, table, at)
        elif walked % PIECE == 0:
            yield None
    for walked, (name, earlier) in enumerate(before.topics.items()):
        if name not in after.topics:
            yield _topic("gone", earlier, earlier, at)
        elif walked % PIECE == 0:
            yield None
    for node_id in sorted(were.keys() - are.keys()):
        yield _broker("left", were[node_id], at)


def brokers_of(cache: MetadataCache) -> dict[int, Node]:
    """Returns the brokers by id, without the addresses of bootstrap.servers."""
    return {node.id: node for node in cache.nodes_by_id.values() if node.id >= 0}


def partition_json(table: TopicTable, partition: int) -> dict[str, Any] | None:
    """Returns a partition with its brokers' ids; None if the partition does not exist."""
    found = table.metadata(partition)
    if found is None:
        return None
    return {
        "partition": partition,
        "leader": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "replicas": found.replica_ids,
        "isr": found.in_sync_replica_ids,
        "offline_replicas": found.offline_replica_ids,
        "error": Errors.of(found.error_code).name if found.error_code else None,
    }


# -- brokers -------------------------------------------------------------------------------------------------


def _broker(change: str, node: Node, at: str) -> Change:
    return Change("broker", None, _encode({"change": change, "at": at, "broker": node_json(node)}))


# -- topics --------------------------------------------------------------------------------------------------


def _topic_changes(earlier: TopicTable | None, table: TopicTable, at: str) -> Iterator[Change | None]:
    change = _what_became_of(earlier, table)
    if change is not None:
        yield _topic(change, table, earlier, at)
    # After a change that replaces the partitions, events have all of them.
    compared_to = earlier if change in (None, "grew") else None
    collected: dict[str, list[dict[str, Any]]] = {"leader": [], "replicas": []}
    numbers = table.numbers
    for start in range(0, len(numbers), PIECE):
        piece = numbers[start : start + PIECE]
        for number in piece if compared_to is None else table.differing(compared_to, piece):
            _collect(compared_to, table, number, collected)
        yield from _events_of(table.name, collected, at, least=PARTITIONS_PER_EVENT)
        yield None
    yield from _events_of(table.name, collected, at, least=1)


def _what_became_of(earlier: TopicTable | None, table: TopicTable) -> str | None:
    if earlier is None:
        return "appeared"
    if earlier.topic_id != table.topic_id:
        return "recreated"
    if earlier.numbers == table.numbers:
        return None
    return "grew" if set(earlier.numbers) <= set(table.numbers) else "shrank"


def _topic(change: str, table: TopicTable, earlier: TopicTable | None, at: str) -> Change:
    """Returns a topic's event. `table`: the present one; of a topic that is gone, its last."""
    is_gone = change == "gone"
    data = {
        "topic": table.name,
        "at": at,
        "change": change,
        "id": None if is_gone else topic_id_text(table.topic_id),
        "internal": table.is_internal,
        "partition_count": None if is_gone else table.partition_count,
        "previous_partition_count": None if earlier is None else earlier.partition_count,
    }
    return Change("topic", table.name, _encode(data))


# -- partitions ----------------------------------------------------------------------------------------------


def _events_of(
    topic: str, collected: Mapping[str, list[dict[str, Any]]], at: str, *, least: int
) -> Iterator[Change]:
    """Moves a topic's collected partitions into events, while there are `least` of a kind."""
    for event, partitions in collected.items():
        while len(partitions) >= least:
            data = {"topic": topic, "at": at, "partitions": partitions[:PARTITIONS_PER_EVENT]}
            yield Change(event, topic, _encode(data))
            del partitions[:PARTITIONS_PER_EVENT]


def _collect(
    earlier: TopicTable | None,
    table: TopicTable,
    number: int,
    collected: Mapping[str, list[dict[str, Any]]],
) -> None:
    was = None if earlier is None else earlier.metadata(number)
    now = partition_json(table, number)
    if now is None:
        return
    now["previous_leader"] = None if was is None else was.leader_id
    is_moved = was is None or (was.leader_id, was.leader_epoch) != (now["leader"], now["leader_epoch"])
    collected["leader" if is_moved else "replicas"].append(now)
