"""Metadata responses for hypothesis: such as brokers send, and any other that the schema allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from hypothesis import strategies as st

from client_core.protocol.messages import metadata_response as wire
from client_core.protocol.primitives import ZERO_UUID, FlexibleWriter, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSIONS: Final = range(1, 14)
_INT32: Final = st.integers(-(1 << 31), (1 << 31) - 1)
_NODE_IDS: Final = st.lists(st.integers(0, 300), max_size=5).map(tuple)
_ERRORS: Final = st.sampled_from([0, 0, 0, 3, 5, 9, 17, 29, 72, -1, 999])
_TOPIC_IDS: Final = st.sampled_from([ZERO_UUID, UUID(int=1), UUID(int=(1 << 128) - 1)])


def partitions(number: int) -> st.SearchStrategy[wire.MetadataResponsePartition]:
    """A partition of that number, anything else free."""
    return st.builds(
        wire.MetadataResponsePartition,
        error_code=_ERRORS,
        partition_index=st.just(number),
        leader_id=st.integers(-1, 300),
        leader_epoch=st.integers(-1, 70_000),
        replica_nodes=_NODE_IDS,
        isr_nodes=_NODE_IDS,
        offline_replicas=_NODE_IDS,
    )


@st.composite
def regular_partitions(draw: st.DrawFn) -> tuple[wire.MetadataResponsePartition, ...]:
    """As a cluster has them: equally many replicas each, and each replica in sync or offline."""
    count = draw(st.integers(0, 300))
    replicas = tuple(range(draw(st.integers(1, 4))))
    offline_in = draw(st.dictionaries(st.integers(0, 299), st.integers(0, len(replicas)), max_size=4))
    leaderless = draw(st.sets(st.integers(0, 299), max_size=2))
    epoch = draw(st.integers(-1, 300))
    return tuple(
        wire.MetadataResponsePartition(
            5 if number in leaderless else 0,
            number,
            -1 if number in leaderless else number % len(replicas),
            epoch,
            replicas,
            replicas[offline_in.get(number, 0) :],
            replicas[: offline_in.get(number, 0)],
        )
        for number in range(count)
    )


@st.composite
def any_partitions(draw: st.DrawFn) -> tuple[wire.MetadataResponsePartition, ...]:
    """In any order, with gaps and repetitions."""
    numbers = draw(st.lists(st.integers(0, 6), max_size=6))
    return tuple(draw(partitions(number)) for number in numbers)


def topics(version: int) -> st.SearchStrategy[wire.MetadataResponseTopic]:
    """A topic; from version 12 on it may lack a name."""
    names = st.text(st.characters(codec="utf-8"), max_size=8) | st.just("t" * 200)
    return st.builds(
        wire.MetadataResponseTopic,
        error_code=_ERRORS,
        name=names | st.none() if version >= 12 else names,
        topic_id=_TOPIC_IDS,
        is_internal=st.booleans(),
        partitions=regular_partitions() | any_partitions(),
        topic_authorized_operations=_INT32 if version >= 8 else st.just(-(1 << 31)),
    )


def messages(version: int) -> st.SearchStrategy[wire.MetadataResponse]:
    """A response; what its version can't carry has its default after decoding, not here."""
    text = st.text(st.characters(codec="utf-8"), max_size=8)
    broker = st.builds(wire.MetadataResponseBroker, _INT32, text, _INT32, st.none() | text)
    return st.builds(
        wire.MetadataResponse,
        throttle_time_ms=_INT32,
        brokers=st.lists(broker, max_size=3).map(tuple),
        cluster_id=st.none() | text,
        controller_id=st.integers(-1, 300),
        topics=st.lists(topics(version), max_size=3).map(tuple),
        cluster_authorized_operations=_INT32 if 8 <= version <= 10 else st.just(-(1 << 31)),
        error_code=st.sampled_from([0, 129]),
    )


Tags = list[tuple[int, bytes]]
tags: Final = st.lists(
    st.tuples(st.integers(0, 300), st.binary(max_size=5)), max_size=2, unique_by=lambda tag: tag[0]
).map(sorted)


def encode_with_tags(message: wire.MetadataResponse, version: int, fields: Sequence[Tags]) -> bytes:
    """A flexible version's bytes with tagged fields: of the response, brokers, topics and partitions."""
    of_response, of_brokers, of_topics, of_partitions = fields
    writer: Writer = FlexibleWriter()
    writer.int32(message.throttle_time_ms)
    writer.array_length(len(message.brokers))
    for broker in message.brokers:
        writer.int32(broker.node_id)
        writer.string(broker.host)
        writer.int32(broker.port)
        writer.nullable_string(broker.rack)
        writer.tags(of_brokers)
    writer.nullable_string(message.cluster_id)
    writer.int32(message.controller_id)
    writer.array_length(len(message.topics))
    for topic in message.topics:
        writer.int16(topic.error_code)
        writer.nullable_string(topic.name)
        if version >= 10:
            writer.uuid(topic.topic_id)
        writer.boolean(topic.is_internal)
        writer.array_length(len(topic.partitions))
        for number, partition in enumerate(topic.partitions):
            write_partition(writer, partition, version, of_partitions if number % 2 else [])
        writer.int32(topic.topic_authorized_operations)
        writer.tags(of_topics)
    if version <= 10:
        writer.int32(message.cluster_authorized_operations)
    if version >= 13:
        writer.int16(message.error_code)
    writer.tags(of_response)
    return writer.getvalue()


def write_partition(
    writer: Writer, partition: wire.MetadataResponsePartition, version: int, fields: Tags
) -> None:
    """One partition of a topic, in any version."""
    writer.int16(partition.error_code)
    writer.int32(partition.partition_index)
    writer.int32(partition.leader_id)
    if version >= 7:
        writer.int32(partition.leader_epoch)
    writer.int32_array(partition.replica_nodes)
    writer.int32_array(partition.isr_nodes)
    if version >= 5:
        writer.int32_array(partition.offline_replicas)
    writer.tags(fields)
