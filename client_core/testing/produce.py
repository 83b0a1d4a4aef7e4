"""Answers Produce requests: validates and stores like a broker, returns offsets or errors.

The checks are in the broker's order: authorization, partition exists, exactly one batch, valid
acks, leadership, enough in-sync replicas; then the log's own (partition_log.py). From version 10 on a broker
that does not lead returns the leader (KIP-951). acks=0 gets no response; a failure ends the connection.
Source: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords, Kafka 4.3, and tests of a 4.3.1 broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.protocol.messages.produce_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from client_core.testing.broker import EndConnectionError
from client_core.testing.partition_log import Appended, BadBatchError, read_batch

if TYPE_CHECKING:
    from client_core.protocol.messages.produce_request import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )
    from client_core.testing.state import ClusterState

_TOPIC_IDS_SINCE: Final = 13
_LEADERS_SINCE: Final = 10
_ZSTD: Final = 4
_ZSTD_SINCE: Final = 7
_ALL: Final = -1
_ACKS: Final = frozenset({-1, 0, 1})
_ANSWER_HAS_NO_TIME: Final = -1
_NO_OFFSET: Final = -1
#: Errors of the log itself: their response contains the log start offset. Source:
#: ReplicaManager.appendRecordsToLeader and tests of a 4.3.1 broker.
_LOG_REFUSES: Final = frozenset(
    {
        Errors.INVALID_TIMESTAMP,
        Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Errors.INVALID_PRODUCER_EPOCH,
        Errors.NOT_ENOUGH_REPLICAS,
    }
)


@dataclass(slots=True)
class ProduceFault:
    """A test's error for the next batches of a partition (or of any)."""

    error_code: int
    times_left: int
    topic: str | None
    partition: int | None
    is_appended: bool
    message: str | None = None

    def is_meant(self, topic: str, partition: int) -> bool:
        return self.topic in {None, topic} and self.partition in {None, partition} and self.times_left > 0


def answer(
    state: ClusterState, broker_id: int, request: ProduceRequest, version: int
) -> ProduceResponse | None:
    """Returns broker `broker_id`'s response; None for acks=0.

    Raises EndConnectionError for acks=0 with a refused batch: a broker can report that in no other way.
    """
    topics = tuple(_topic(state, broker_id, topic, request.acks, version) for topic in request.topic_data)
    partitions = [partition for topic in topics for partition in topic.partition_responses]
    if request.acks == 0:
        if any(partition.error_code for partition in partitions):
            raise EndConnectionError
        return None
    return ProduceResponse(topics, node_endpoints=_endpoints(state, broker_id, partitions))


def _topic(
    state: ClusterState, broker_id: int, data: TopicProduceData, acks: int, version: int
) -> TopicProduceResponse:
    cache = state.caches[broker_id]
    name = cache.name_of(data.topic_id) if version >= _TOPIC_IDS_SINCE else data.name
    return TopicProduceResponse(
        data.name,
        data.topic_id,
        tuple(
            _partition(state, broker_id, name, partition, acks, version) for partition in data.partition_data
        ),
    )


def _partition(
    state: ClusterState,
    broker_id: int,
    topic: str | None,
    data: PartitionProduceData,
    acks: int,
    version: int,
) -> PartitionProduceResponse:
    number = data.partition_index
    meanwhile = state.take_meanwhile(topic, number) if topic is not None else None
    if meanwhile is not None:
        meanwhile()
    fault = state.take_produce_fault(topic, number) if topic is not None else None
    if fault is not None and not fault.is_appended:
        appended = Appended(Errors.of(fault.error_code), message=fault.message)
    else:
        appended = _append(state, broker_id, topic, data, acks, version)
    code = appended.error.code if fault is None else fault.error_code
    failed = code != Errors.NONE.code
    response = PartitionProduceResponse(
        number,
        code,
        _NO_OFFSET if failed or appended.base_offset is None else appended.base_offset,
        _ANSWER_HAS_NO_TIME if failed or appended.log_append_time_ms is None else appended.log_append_time_ms,
        _NO_OFFSET if failed and appended.error not in _LOG_REFUSES else 0,
        error_message=appended.message if version >= 8 else None,
    )
    if code == Errors.NOT_LEADER_OR_FOLLOWER.code and version >= _LEADERS_SINCE and topic is not None:
        known = state.caches[broker_id].partition(topic, number)
        if known is not None and known.leader is not None and known.leader != broker_id:
            return response._replace(current_leader=LeaderIdAndEpoch(known.leader, known.leader_epoch))
    return response


def _append(
    state: ClusterState,
    broker_id: int,
    topic: str | None,
    data: PartitionProduceData,
    acks: int,
    version: int,
) -> Appended:
    number = data.partition_index
    if topic is None:
        return Appended(Errors.UNKNOWN_TOPIC_ID)
    if topic in state.unwritable or topic in state.undescribable:
        return Appended(Errors.TOPIC_AUTHORIZATION_FAILED)
    known = state.caches[broker_id].partition(topic, number)
    if known is None:
        return Appended(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        batch = read_batch(data.records)
    except BadBatchError as error:
        if error.error is Errors.INVALID_RECORD:
            return Appended(error.error, message=str(error))
    else:
        if batch.codec == _ZSTD and version < _ZSTD_SINCE:
            return Appended(Errors.UNSUPPORTED_COMPRESSION_TYPE)
    if acks not in _ACKS:
        return Appended(Errors.INVALID_REQUIRED_ACKS)
    if known.leader != broker_id:
        return Appended(Errors.NOT_LEADER_OR_FOLLOWER)
    config = state.controller.config(topic)
    # At most all replicas can be required. Source: Partition.effectiveMinIsr.
    if acks == _ALL and len(known.isr) < min(config.min_insync_replicas, len(known.replicas)):
        return Appended(Errors.NOT_ENOUGH_REPLICAS)
    return state.log(topic, number).append(data.records, config, state.wall_ms())


def _endpoints(
    state: ClusterState, broker_id: int, partitions: list[PartitionProduceResponse]
) -> tuple[NodeEndpoint, ...]:
    """Returns the addresses of the leaders in the partitions' responses."""
    named = sorted({p.current_leader.leader_id for p in partitions if p.current_leader.leader_id >= 0})
    found = [state.caches[broker_id].alive_broker(leader) for leader in named]
    return tuple(NodeEndpoint(b.id, b.host, b.port, b.rack) for b in found if b is not None)
