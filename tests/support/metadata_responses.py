"""Metadata responses for tests: a short description becomes the message, its bytes, or what the client reads.

metadata_response(nodes=3, topics={"orders": 3})    bytes of version 13; leaders in turn, epochs 0
topic("orders", [partition(0, leader=2, epoch=5)])  a topic in full
metadata_message(...)                               the generated message, to alter and encode
read(...)                                           the response as Metadata.update takes it
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from uuid import UUID

from client_core.cluster import Node
from client_core.metadata.metadata_response import (
    NO_KNOWN_TOPICS,
    KnownTopics,
    MetadataResponse,
    read_metadata_response,
)
from client_core.protocol.messages import metadata_response as wire
from client_core.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LATEST_VERSION = 13


def node(node_id: int, *, host: str = "localhost", port: int | None = None, rack: str | None = None) -> Node:
    """A broker; by default its port is 9092 plus its id."""
    return Node(node_id, host, 9092 + node_id if port is None else port, rack)


def topic_id_of(name: str) -> UUID:
    """An id that depends on nothing but the name."""
    return UUID(bytes=hashlib.sha256(name.encode()).digest()[:16])


def partition(
    number: int = 0,
    *,
    leader: int | None = 0,
    epoch: int | None = 0,
    replicas: Sequence[int] = (0, 1, 2),
    isr: Sequence[int] | None = None,
    offline: Sequence[int] = (),
    error: int = 0,
) -> wire.MetadataResponsePartition:
    """One partition; by default all replicas are in sync. None: no leader, no epoch."""
    return wire.MetadataResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=-1 if leader is None else leader,
        leader_epoch=-1 if epoch is None else epoch,
        replica_nodes=tuple(replicas),
        isr_nodes=tuple(replicas if isr is None else isr),
        offline_replicas=tuple(offline),
    )


def topic(
    name: str,
    partitions: int | Sequence[wire.MetadataResponsePartition] = 1,
    *,
    nodes: Sequence[int] = (0,),
    epoch: int | None = 0,
    topic_id: UUID | None = None,
    is_internal: bool = False,
    error: int = 0,
) -> wire.MetadataResponseTopic:
    """One topic. A number of partitions spreads their leaders over `nodes`; `topic_id` None sends no id."""
    if isinstance(partitions, int):
        partitions = [
            partition(p, leader=nodes[p % len(nodes)], epoch=epoch, replicas=nodes[:3])
            for p in range(partitions)
        ]
    return wire.MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=ZERO_UUID if topic_id is None else topic_id,
        is_internal=is_internal,
        partitions=tuple(partitions),
    )


def metadata_message(
    nodes: int | Iterable[Node] = 1,
    topics: Mapping[str, int] | Iterable[wire.MetadataResponseTopic] = (),
    *,
    errors: Mapping[str, int] | None = None,
    cluster_id: str | None = "cluster",
    controller_id: int = 0,
    epoch: int | None = 0,
    error_code: int = 0,
    throttle_time_ms: int = 0,
) -> wire.MetadataResponse:
    """The message.

    `nodes` as a number are brokers 0 to n - 1. `topics` map names to partition counts (then the ids depend
    on the names), or are given in full. `errors` map the names of topics that failed to their codes.
    """
    brokers = [node(n) for n in range(nodes)] if isinstance(nodes, int) else list(nodes)
    ids = [broker.id for broker in brokers] or [0]
    if isinstance(topics, dict):
        described = [
            topic(name, count, nodes=ids, epoch=epoch, topic_id=topic_id_of(name))
            for name, count in topics.items()
        ]
    else:
        described = [t for t in topics if isinstance(t, wire.MetadataResponseTopic)]
    failed = [topic(name, 0, error=code) for name, code in (errors or {}).items()]
    return wire.MetadataResponse(
        throttle_time_ms=throttle_time_ms,
        brokers=tuple(wire.MetadataResponseBroker(b.id, b.host, b.port, b.rack) for b in brokers),
        cluster_id=cluster_id,
        controller_id=controller_id,
        topics=(*described, *failed),
        error_code=error_code,
    )


def metadata_response(
    nodes: int | Iterable[Node] = 1,
    topics: Mapping[str, int] | Iterable[wire.MetadataResponseTopic] = (),
    *,
    version: int = LATEST_VERSION,
    errors: Mapping[str, int] | None = None,
    cluster_id: str | None = "cluster",
    controller_id: int = 0,
    epoch: int | None = 0,
    error_code: int = 0,
    throttle_time_ms: int = 0,
) -> bytes:
    """The body of a response (without header) at a version."""
    return metadata_message(
        nodes,
        topics,
        errors=errors,
        cluster_id=cluster_id,
        controller_id=controller_id,
        epoch=epoch,
        error_code=error_code,
        throttle_time_ms=throttle_time_ms,
    ).encode(version)


def read(
    nodes: int | Iterable[Node] = 1,
    topics: Mapping[str, int] | Iterable[wire.MetadataResponseTopic] = (),
    *,
    version: int = LATEST_VERSION,
    known_topics: KnownTopics = NO_KNOWN_TOPICS,
    errors: Mapping[str, int] | None = None,
    cluster_id: str | None = "cluster",
    controller_id: int = 0,
    epoch: int | None = 0,
    error_code: int = 0,
) -> MetadataResponse:
    """The response as the client reads it, against the topics of a snapshot where these are given."""
    body = metadata_response(
        nodes,
        topics,
        version=version,
        errors=errors,
        cluster_id=cluster_id,
        controller_id=controller_id,
        epoch=epoch,
        error_code=error_code,
    )
    return read_metadata_response(body, version, known_topics)
