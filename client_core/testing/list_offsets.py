"""Answers ListOffsets requests: the first and the next offset of a partition, from its leader.

A broker that does not lead answers NOT_LEADER_OR_FOLLOWER; one that knows another leader epoch says which
side is behind. It supports the two special timestamps, since our client sends no others. Source:
KafkaApis.handleListOffsetRequest, ReplicaManager.fetchOffset, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.metadata.partition_offsets import EARLIEST, LATEST
from client_core.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from client_core.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
    from client_core.testing.state import ClusterState

_NO_EPOCH: Final = -1


def answer(state: ClusterState, broker_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Returns broker `broker_id`'s offsets of each partition."""
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                topic.name, tuple(_partition(state, broker_id, topic.name, one) for one in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _partition(
    state: ClusterState, broker_id: int, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    number = asked.partition_index
    known = state.caches[broker_id].partition(topic, number)
    if topic in state.undescribable:
        error = Errors.TOPIC_AUTHORIZATION_FAILED
    elif known is None:
        error = Errors.UNKNOWN_TOPIC_OR_PARTITION
    elif known.leader != broker_id:
        error = Errors.NOT_LEADER_OR_FOLLOWER
    elif _NO_EPOCH < asked.current_leader_epoch < known.leader_epoch:
        error = Errors.FENCED_LEADER_EPOCH
    elif asked.current_leader_epoch > known.leader_epoch:
        error = Errors.UNKNOWN_LEADER_EPOCH
    elif asked.timestamp not in (EARLIEST, LATEST):
        error = Errors.INVALID_REQUEST
    else:
        log = state.log(topic, number)
        offset = log.start_offset if asked.timestamp == EARLIEST else log.end_offset
        return ListOffsetsPartitionResponse(number, offset=offset, leader_epoch=known.leader_epoch)
    return ListOffsetsPartitionResponse(number, error.code)
