"""Answers Metadata requests: all or named topics, with authorization and auto-creation.

Each broker answers from its own cache, like a real 4.3.1 broker. A missing topic that is being created first
gets error 3 without partitions, and exists the next time. An illegal name gets error 17. A denied topic gets
29 if named, otherwise it is omitted. The controller id is a random broker's. Source:
KafkaApis.handleTopicMetadataRequest, Kafka 0.8 and 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from client_core.protocol.primitives import ZERO_UUID
from client_core.testing.controller import is_legal_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
    from client_core.testing.metadata_cache import MetadataCache, PartitionState
    from client_core.testing.state import ClusterState

_NO_LEADER: Final = -1
#: From version 12 on a request may name a topic by its id.
_BY_ID_SINCE: Final = 12


def answer(state: ClusterState, broker_id: int, request: MetadataRequest, version: int) -> MetadataResponse:
    """Returns broker `broker_id`'s response; may create topics."""
    cache = state.caches[broker_id]
    topics = (
        _all_topics(state, cache)
        if request.topics is None or (version == 0 and not request.topics)
        else [_named_topic(state, cache, wanted, request, version) for wanted in request.topics]
    )
    alive = cache.alive_brokers
    return MetadataResponse(
        brokers=tuple(MetadataResponseBroker(b.id, b.host, b.port, b.rack) for b in alive),
        cluster_id=state.cluster_id,
        controller_id=state.random.choice(alive).id if alive else -1,
        topics=tuple(topics),
    )


def _all_topics(state: ClusterState, cache: MetadataCache) -> Sequence[MetadataResponseTopic]:
    return [_known_topic(cache, name) for name in cache.topic_names if name not in state.undescribable]


def _named_topic(
    state: ClusterState,
    cache: MetadataCache,
    wanted: MetadataRequestTopic,
    request: MetadataRequest,
    version: int,
) -> MetadataResponseTopic:
    name = wanted.name
    if name is None or (version >= _BY_ID_SINCE and wanted.topic_id != ZERO_UUID):
        name = cache.name_of(wanted.topic_id)
        if name is None or name in state.undescribable:
            return MetadataResponseTopic(Errors.UNKNOWN_TOPIC_ID.code, None, wanted.topic_id)
    if name in state.undescribable:
        return MetadataResponseTopic(Errors.TOPIC_AUTHORIZATION_FAILED.code, name)
    if cache.topic(name) is not None:
        return _known_topic(cache, name)
    if not is_legal_name(name):
        return MetadataResponseTopic(Errors.INVALID_TOPIC_EXCEPTION.code, name)
    if state.auto_create and request.allow_auto_topic_creation:
        state.create_missing_topic(name)
    return MetadataResponseTopic(Errors.UNKNOWN_TOPIC_OR_PARTITION.code, name)


def _known_topic(cache: MetadataCache, name: str) -> MetadataResponseTopic:
    topic = cache.topic(name)
    assert topic is not None
    return MetadataResponseTopic(
        Errors.NONE.code,
        name,
        topic.topic_id,
        topic.is_internal,
        tuple(_partition(cache, number, state) for number, state in cache.partitions(name).items()),
    )


def _partition(cache: MetadataCache, number: int, state: PartitionState) -> MetadataResponsePartition:
    has_leader = state.leader is not None and cache.is_alive(state.leader)
    return MetadataResponsePartition(
        Errors.NONE.code if has_leader else Errors.LEADER_NOT_AVAILABLE.code,
        number,
        _NO_LEADER if state.leader is None or not has_leader else state.leader,
        state.leader_epoch,
        state.replicas,
        state.isr,
        tuple(replica for replica in state.replicas if not cache.is_alive(replica)),
    )
