"""Encodes the bodies of metadata answers: from a snapshot to JSON bytes.

Prepared look-ups and FastAPI's routes both send these bytes. `native/schemas.py` describes them for the
OpenAPI document; a test compares the two. Pure; any thread.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from client_core import Errors, MetadataCache, Node, PartitionInfo, TopicTable
from service.admission.caller import TopicRules
from service.wire.long_answers import joined

_encode = msgspec.json.Encoder().encode

#: Partitions whose leaders are read between two pauses: a quarter of a millisecond.
_PARTITIONS_AT_ONCE: Final = 500


def topic_id_text(topic_id: UUID | None) -> str | None:
    """Returns a topic id as Kafka's own tools print it: URL-safe base64 without padding."""
    return None if topic_id is None else base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def node_json(node: Node) -> dict[str, Any]:
    return {"id": node.id, "host": node.host, "port": node.port, "rack": node.rack}


def cluster_body(cache: MetadataCache) -> bytes:
    brokers = [node_json(node) for _, node in sorted(cache.nodes_by_id.items())]
    return _encode({"cluster_id": cache.cluster_id, "brokers": brokers})


def topic_body(topic: TopicTable, nodes: Mapping[int, Node]) -> bytes:
    """Returns the whole body, for a topic with few partitions."""
    return b"".join(topic_pieces(topic, nodes))


def topic_pieces(topic: TopicTable, nodes: Mapping[int, Node]) -> Iterator[bytes]:
    """Yields a topic's body in pieces, one per partition."""
    head = {"name": topic.name, "id": topic_id_text(topic.topic_id), "internal": topic.is_internal}
    found = (topic.partition(p, nodes) for p in topic.numbers)
    yield _encode(head)[:-1] + b',"partitions":['
    yield from joined(_encode(_partition_json(info)) for info in found if info is not None)
    yield b"]}"


def partition_body(topic: TopicTable, partition: int, nodes: Mapping[int, Node]) -> bytes | None:
    """Returns the body about one partition; None if it does not exist."""
    info = topic.partition(partition, nodes)
    return None if info is None else _encode(_partition_json(info))


def leader_body(topic: TopicTable, partition: int, nodes: Mapping[int, Node]) -> bytes | None:
    """Returns the body about a partition's leader; None if the partition does not exist."""
    found = leader_json(topic, partition, nodes)
    return None if found is None else _encode(found)


def leader_json(topic: TopicTable, partition: int, nodes: Mapping[int, Node]) -> dict[str, Any] | None:
    """Returns a partition's leader; None if the partition does not exist. Its replicas are not decoded."""
    if partition not in topic.numbers:
        return None
    leader_id, leader_epoch = topic.leader_id_and_epoch(partition)
    leader = None if leader_id is None else nodes.get(leader_id)
    return {
        "topic": topic.name,
        "partition": partition,
        "leader": None if leader is None else node_json(leader),
        "leader_epoch": leader_epoch,
    }


def broker_pieces(
    cache: MetadataCache, node: Node, rules: TopicRules, names: Iterable[str]
) -> Iterator[bytes]:
    """Yields a broker with the partitions that it leads, of the topics that the rules allow."""
    yield _encode(node_json(node))[:-1] + b',"leads":['
    yield from joined(_leads(cache, node, (name for name in names if rules.allow(name))))
    yield b"]}"


def _leads(cache: MetadataCache, node: Node, names: Iterable[str]) -> Iterator[bytes]:
    """Yields an item per topic in which the broker leads partitions, and empty pieces as pauses."""
    for name in names:
        topic = cache.topics[name]
        leads: list[int] = []
        numbers = topic.numbers
        for start in range(0, len(numbers), _PARTITIONS_AT_ONCE):
            some = numbers[start : start + _PARTITIONS_AT_ONCE]
            leads += [p for p in some if topic.leader_id(p) == node.id]
            yield b""
        if leads:
            yield _encode({"topic": name, "partitions": leads})


def _partition_json(info: PartitionInfo) -> dict[str, Any]:
    return {
        "partition": info.partition,
        "leader": None if info.leader is None else node_json(info.leader),
        "leader_epoch": info.leader_epoch,
        "replicas": [node.id for node in info.replicas],
        "isr": [node.id for node in info.in_sync_replicas],
        "offline_replicas": [node.id for node in info.offline_replicas],
        "error": Errors.of(info.error_code).name if info.error_code else None,
    }
