"""Answers that a broker must not give: tens of megabytes that were not requested, or that no cluster has.

    cluster.react_next(ApiKey.METADATA, GiantAnswer(GIANTS["brokers"], 38_000_000), times=…)

A giant is bytes: it is made of repeated pieces, not of messages, and of Metadata's flexible versions. It
begins with the fake broker's ordinary answer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from client_core.protocol.primitives import ZERO_UUID, FlexibleWriter, unsigned_varint
from client_core.testing.reactions import Reaction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from client_core.testing.requests import Response

#: The version that the pieces are made for.
VERSION: Final = 13
#: A topic that callers ask for.
ASKED: Final = "orders"
_MIB: Final = 1024 * 1024


class Giant(NamedTuple):
    """What is added to an answer: brokers and topics, each as their number and their bytes."""

    brokers: tuple[int, bytes] = (0, b"")
    topics: tuple[int, bytes] = (0, b"")
    cluster_id: str | None = None
    #: Whether the requested topics are left out, except in the giant.
    hides_asked: bool = False
    #: Tagged fields at its end.
    tags: tuple[int, bytes] = (0, b"")


def body_of(honest: MetadataResponse, giant: Giant) -> bytes:
    """The honest answer's body with the giant in it."""
    topics = [t for t in honest.topics if not (t.name == ASKED and giant.hides_asked)]
    writer = FlexibleWriter()
    writer.int32(honest.throttle_time_ms)
    writer.array_length(len(honest.brokers) + giant.brokers[0])
    writer.parts += map(broker_bytes, honest.brokers)
    writer.parts.append(giant.brokers[1])
    writer.nullable_string(honest.cluster_id if giant.cluster_id is None else giant.cluster_id)
    writer.int32(honest.controller_id)
    writer.array_length(len(topics) + giant.topics[0])
    writer.parts += (giant.topics[1], *map(topic_bytes, topics))
    writer.int16(honest.error_code)
    writer.parts += (unsigned_varint(giant.tags[0]), giant.tags[1])
    return writer.getvalue()


def broker_bytes(broker: MetadataResponseBroker) -> bytes:
    writer = FlexibleWriter()
    writer.int32(broker.node_id)
    writer.string(broker.host)
    writer.int32(broker.port)
    writer.nullable_string(broker.rack)
    writer.tags()
    return writer.getvalue()


def topic_bytes(topic: MetadataResponseTopic) -> bytes:
    assert topic.name is not None
    partitions = b"".join(map(partition_bytes, topic.partitions))
    return topic_of(topic.name, len(topic.partitions), partitions, topic.error_code, topic.topic_id)


def topic_of(
    name: str, count: int, partitions: bytes, error_code: int = 0, topic_id: UUID = ZERO_UUID
) -> bytes:
    """A topic of so many partitions, given as their bytes."""
    writer = FlexibleWriter()
    writer.int16(error_code)
    writer.string(name)
    writer.uuid(topic_id)
    writer.boolean(False)
    writer.array_length(count)
    writer.parts.append(partitions)
    writer.int32(-(2**31))
    writer.tags()
    return writer.getvalue()


def partition_bytes(partition: MetadataResponsePartition) -> bytes:
    writer = FlexibleWriter()
    writer.int16(partition.error_code)
    writer.int32(partition.partition_index)
    writer.int32(partition.leader_id)
    writer.int32(partition.leader_epoch)
    for nodes in (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas):
        writer.int32_array(nodes)
    writer.tags()
    return writer.getvalue()


def partitions_of(count: int, *, replicas: int = 3, irregular: bool = False) -> bytes:
    """Partitions 0, 1, 2, ...; irregular ones have one in-sync replica more or less than their neighbours."""
    nodes = tuple(range(1, replicas + 1))
    even = partition_bytes(MetadataResponsePartition(0, 0, 1, 5, nodes, nodes))
    odd = partition_bytes(MetadataResponsePartition(0, 0, 1, 5, nodes, nodes[1:] if irregular else nodes))
    pack = struct.Struct(">i").pack
    return b"".join(
        [
            piece[:2] + pack(number) + piece[6:]
            for number, piece in zip(range(count), [even, odd] * (count // 2 + 1), strict=False)
        ]
    )


def _unasked_partitions(size_bytes: int, *, irregular: bool = False) -> Giant:
    partitions = partitions_of(100_000, irregular=irregular)
    topics = max(size_bytes // len(partitions), 1)
    return Giant(
        topics=(topics, b"".join(topic_of(f"other-{n}", 100_000, partitions) for n in range(topics)))
    )


def _asked_partitions(size_bytes: int) -> Giant:
    count = size_bytes // 26
    return Giant(topics=(1, topic_of(ASKED, count, partitions_of(count, replicas=1))), hides_asked=True)


def _repeated(piece: bytes, size_bytes: int) -> tuple[int, bytes]:
    count = max(size_bytes // len(piece), 1)
    return count, piece * count


def _brokers(size_bytes: int) -> Giant:
    each = broker_bytes(MetadataResponseBroker(7, "broker.example", 9_092, "a"))
    pack = struct.Struct(">i").pack
    count = size_bytes // len(each)
    return Giant(brokers=(count, b"".join([pack(n) + each[4:] for n in range(10, count + 10)])))


def _broker(host: str, rack: str | None = None) -> Giant:
    return Giant(brokers=(1, broker_bytes(MetadataResponseBroker(7, host, 9_092, rack))))


def _one_partition(size_bytes: int, name: str) -> Giant:
    nodes = (1,) * (size_bytes // 8)
    return Giant(
        topics=(1, topic_of(name, 1, partition_bytes(MetadataResponsePartition(0, 0, 1, 5, nodes, nodes))))
    )


def _long_lists(size_bytes: int, name: str) -> Giant:
    piece = partition_bytes(MetadataResponsePartition(0, 0, 1, 5, (1,), (1,) * 9_000))
    count, partitions = _repeated(piece, size_bytes)
    return Giant(topics=(1, topic_of(name, count, partitions)), hides_asked=name == ASKED)


#: By their content; each makes about so many bytes.
GIANTS: Final[Mapping[str, Callable[[int], Giant]]] = {
    "partitions of topics that nobody asked for": _unasked_partitions,
    "partitions of no regular size": lambda size: _unasked_partitions(size, irregular=True),
    "partitions of a topic that was asked for": _asked_partitions,
    "a topic that was asked for, again and again": lambda size: Giant(
        topics=_repeated(topic_of(ASKED, 1, partitions_of(1)), size), hides_asked=True
    ),
    "errors of a topic that was asked for": lambda size: Giant(
        topics=_repeated(topic_of(ASKED, 0, b"", 3), size)
    ),
    "topics without partitions": lambda size: Giant(topics=_repeated(topic_of("other", 0, b""), size)),
    "topics with long names": lambda size: Giant(topics=_repeated(topic_of("n" * 32_000, 0, b""), size)),
    "brokers": _brokers,
    "a host name": lambda size: _broker("h" * size),
    "racks": lambda size: Giant(
        brokers=_repeated(broker_bytes(MetadataResponseBroker(7, "b", 9_092, "r" * 32_000)), size)
    ),
    "a cluster id": lambda size: Giant(cluster_id="c" * size),
    "replicas of a partition that was asked for": lambda size: _one_partition(size, ASKED),
    "replicas of a partition that nobody asked for": lambda size: _one_partition(size, "other"),
    "in-sync replicas of partitions that were asked for": lambda size: _long_lists(size, ASKED),
    "in-sync replicas of partitions that nobody asked for": lambda size: _long_lists(size, "other"),
    "tagged fields": lambda size: Giant(tags=_repeated(b"\x7f\x00", size)),
    "a tagged field": lambda size: Giant(tags=(1, b"\x7f" + unsigned_varint(size) + bytes(size))),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GiantAnswer(Reaction):
    """Puts a giant into each Metadata answer, made once."""

    giant: Giant
    #: How many bytes of them were sent.
    sizes: list[int] = field(default_factory=list)

    def encode(self, response: Response, version: int) -> bytes:
        """The answer's body."""
        assert isinstance(response, MetadataResponse)
        assert version >= 12, f"a giant of version {VERSION} in an answer of version {version}"
        body = body_of(response, self.giant)
        self.sizes.append(len(body))
        return body
