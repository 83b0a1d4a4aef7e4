"""The bodies of metadata answers: from a snapshot to JSON bytes, the one place where they are spelled.

Both the prepared look-ups and FastAPI's routes answer with these bytes; `schemas.py` describes them for the
OpenAPI document, and a test holds the two equal. Pure; any thread.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from client_core import Errors, MetadataCache, Node, PartitionInfo, TopicTable
from service.access.caller import TopicRules

_encode = msgspec.json.Encoder().encode


def topic_id_text(topic_id: UUID | None) -> str | None:
    """A topic's id as Kafka's own tools print it: URL-safe base64 without padding."""
    return None if topic_id is None else base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def node_json(node: Node) -> dict[str, Any]:
    return {"id": node.id, "host": node.host, "port": node.port, "rack": node.rack}


def cluster_body(cache: MetadataCache) -> bytes:
    brokers = [node_json(node) for _, node in sorted(cache.nodes_by_id.items())]
    return _encode({"cluster_id": cache.cluster_id, "brokers": brokers})


def topic_body(topic: TopicTable, nodes: Mapping[int, Node]) -> bytes:
    found = (topic.partition(p, nodes) for p in topic.numbers)
    return _encode(
        {
            "name": topic.name,
            "id": topic_id_text(topic.topic_id),
            "internal": topic.is_internal,
            "partitions": [_partition_json(info) for info in found if info is not None],
        }
    )


def partition_body(topic: TopicTable, partition: int, nodes: Mapping[int, Node]) -> bytes | None:
    """None if there is no such partition."""
    info = topic.partition(partition, nodes)
    return None if info is None else _encode(_partition_json(info))


def leader_body(topic: TopicTable, partition: int, nodes: Mapping[int, Node]) -> bytes | None:
    """None if there is no such partition."""
    found = leader_json(topic, partition, nodes)
    return None if found is None else _encode(found)


def leader_json(topic: TopicTable, partition: int, nodes: Mapping[int, Node]) -> dict[str, Any] | None:
    info = topic.partition(partition, nodes)
    if info is None:
        return None
    return {
        "topic": topic.name,
        "partition": partition,
        "leader": None if info.leader is None else node_json(info.leader),
        "leader_epoch": info.leader_epoch,
    }


def broker_body(cache: MetadataCache, node: Node, rules: TopicRules) -> bytes:
    """A broker and what it leads among the allowed topics known here. Walks them all: not for a hot path."""
    leads: dict[str, list[int]] = {}
    for name, topic in sorted(cache.topics.items()):
        if not rules.allow(name):
            continue
        partitions = [p for p in topic.numbers if topic.leader_id(p) == node.id]
        if partitions:
            leads[name] = partitions
    listed = [{"topic": name, "partitions": partitions} for name, partitions in leads.items()]
    return _encode({**node_json(node), "leads": listed})


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
