"""What the brokers of a trace do: leaders, logs with Kafka's checks, and the bytes of each answer.

Both sides send the same requests, as long as they are equal, so one cluster answers both; only the
correlation id differs. `client_core.testing.partition_log` holds the records. Pure; one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_request_header, encode_response_header
from client_core.protocol.messages.init_producer_id_request import InitProducerIdRequest
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.metadata_request import MetadataRequest
from client_core.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from client_core.protocol.messages.produce_request import ProduceRequest
from client_core.protocol.messages.produce_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from client_core.testing import api_versions
from client_core.testing.controller import TopicConfig
from client_core.testing.partition_log import PartitionLog, read_batch
from tests.support.metadata_responses import topic_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

HOST: Final = "127.0.0.1"
#: A broker appends the batch, and answers with the error all the same.
_STORED_ALL_THE_SAME: Final = frozenset(
    {Errors.REQUEST_TIMED_OUT.code, Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND.code}
)
_HINTS: Final = frozenset({Errors.NOT_LEADER_OR_FOLLOWER.code, Errors.FENCED_LEADER_EPOCH.code})


#: What a metadata answer has for a drawn error. No broker denies a topic that exists: see decision 0002.
_TOPIC_ERRORS: Final = {
    error.code: error.code
    for error in (
        Errors.LEADER_NOT_AVAILABLE,
        Errors.TOPIC_AUTHORIZATION_FAILED,
        Errors.INVALID_TOPIC_EXCEPTION,
        Errors.UNKNOWN_SERVER_ERROR,
    )
}


class SentBatch(NamedTuple):
    """A batch as it is on the wire."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int
    size_bytes: int
    data: bytes


class Request(NamedTuple):
    """A request as it is on the wire; `batches` of a Produce, `topics` of a Metadata request.

    Both are sorted: in which order a request has its partitions is no matter for a broker, and depends on
    when a client first heard of each.
    """

    node: int
    api: ApiKey
    version: int
    correlation_id: int
    acks: int
    batches: tuple[SentBatch, ...]
    topics: tuple[str, ...]
    payload: bytes
    body_offset: int


def read_request(node: int, payload: bytes, names: Mapping[UUID, str]) -> Request:
    """Decodes a frame. Topics of a Produce request are named by their ids where it has ids."""
    header = decode_request_header(payload)
    batches: list[SentBatch] = []
    topics: tuple[str, ...] = ()
    acks = -1
    if header.api is ApiKey.PRODUCE:
        produce = ProduceRequest.decode(payload, header.version, header.body_offset)
        acks = produce.acks
        for topic in produce.topic_data:
            name = names.get(topic.topic_id, topic.name) if header.version >= 13 else topic.name
            for partition in topic.partition_data:
                data = bytes(partition.records or b"")
                batch = read_batch(data)
                batches.append(
                    SentBatch(
                        name,
                        partition.partition_index,
                        -1 if batch.producer_id is None else batch.producer_id,
                        -1 if batch.producer_epoch is None else batch.producer_epoch,
                        -1 if batch.base_sequence is None else batch.base_sequence,
                        batch.record_count,
                        len(data),
                        data,
                    )
                )
    elif header.api is ApiKey.METADATA:
        wanted = MetadataRequest.decode(payload, header.version, header.body_offset).topics
        topics = ("*",) if wanted is None else tuple(sorted(topic.name or "" for topic in wanted))
    return Request(
        node,
        header.api,
        header.version,
        header.correlation_id,
        acks,
        tuple(sorted(batches, key=lambda batch: (batch.topic, batch.partition))),
        topics,
        payload,
        header.body_offset,
    )


class Brokers:
    """The truth about the cluster of one trace."""

    def __init__(
        self, nodes: Sequence[int], topics: Mapping[str, int], versions: Mapping[ApiKey, int] | None = None
    ) -> None:
        """`versions`: the newest version that the brokers have of some APIs."""
        self.nodes = tuple(nodes)
        #: The partitions that there are by now.
        self.topics = dict(topics)
        self._most = dict(topics)
        #: Brokers that no answer names.
        self._absent: set[int] = set()
        self._ports = {node: 9092 + node for node in nodes}
        self.names = {topic_id_of(topic): topic for topic in topics}
        self.partitions = [TopicPartition(t, p) for t, count in topics.items() for p in range(count)]
        self.leaders: dict[TopicPartition, int] = {
            tp: self.nodes[at % len(self.nodes)] for at, tp in enumerate(self.partitions)
        }
        self.epochs = dict.fromkeys(self.partitions, 0)
        self.logs = {tp: PartitionLog() for tp in self.partitions}
        self._versions = dict(api_versions.KAFKA_4_3)
        for api, newest in (versions or {}).items():
            self._versions[api.id] = self._versions[api.id][0], newest
        self._next_producer_id = 7000

    def move(self, topic_partition: TopicPartition, node: int) -> None:
        """Elects a leader; -1 for none."""
        self.leaders[topic_partition] = node
        self.epochs[topic_partition] += 1

    def grow(self, topic: str) -> None:
        """Adds a partition, up to the number that the cluster began with."""
        self.topics[topic] = min(self.topics[topic] + 1, self._most[topic])

    def leave_or_return(self, node: int) -> None:
        """Takes a broker out of the answers, or back into them; one is always there."""
        if node in self._absent:
            self._absent.discard(node)
        elif len(self._absent) + 1 < len(self.nodes):
            self._absent.add(node)

    def listen_elsewhere(self, node: int) -> None:
        """Gives a broker another port."""
        self._ports[node] += len(self.nodes)

    # -- answers ---------------------------------------------------------------------------------------------

    def store(self, request: Request, now_ms: int) -> None:
        """Takes a Produce request in whose answer is lost."""
        for batch in request.batches:
            tp = TopicPartition(batch.topic, batch.partition)
            if self.leaders.get(tp) == request.node:
                self.logs[tp].append(batch.data, TopicConfig(), now_ms)

    def answer(
        self,
        request: Request,
        now_ms: int,
        *,
        error: int = 0,
        first_only: bool = True,
        throttle_ms: int = 0,
        hints: bool = True,
    ) -> bytes:
        """The answer without its header. `error` is that of the first partition, or of all."""
        if request.api is ApiKey.API_VERSIONS:
            versions = api_versions.answer(
                self._versions, request.payload, request.version, request.body_offset
            )
            answered, version = versions
            return answered.encode(version)
        if request.api is ApiKey.METADATA:
            if error == Errors.REBOOTSTRAP_REQUIRED.code and request.version >= 13:
                refusal = MetadataResponse(throttle_ms, (), None, -1, (), error_code=error)
                return refusal.encode(request.version)
            return self._metadata(request, _TOPIC_ERRORS.get(error, 0), throttle_ms).encode(request.version)
        if request.api is ApiKey.INIT_PRODUCER_ID:
            InitProducerIdRequest.decode(request.payload, request.version, request.body_offset)
            if error:
                return InitProducerIdResponse(error_code=error).encode(request.version)
            self._next_producer_id += 1
            return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0).encode(
                request.version
            )
        return self._produce(request, now_ms, error, first_only, throttle_ms, hints).encode(request.version)

    @staticmethod
    def framed(request: Request, body: bytes, correlation_id: int) -> bytes:
        """The answer with its header."""
        return encode_response_header(request.api, request.version, correlation_id) + body

    def _metadata(self, request: Request, error: int, throttle_ms: int) -> MetadataResponse:
        topics = []
        for name in request.topics:
            if name not in self.topics:
                continue
            topic_id = topic_id_of(name)
            if error:
                topics.append(MetadataResponseTopic(error_code=error, name=name))
                continue
            partitions = []
            for number in range(self.topics[name]):
                tp = TopicPartition(name, number)
                leader = self.leaders[tp]
                partitions.append(
                    MetadataResponsePartition(
                        error_code=Errors.LEADER_NOT_AVAILABLE.code if leader < 0 else 0,
                        partition_index=number,
                        leader_id=leader,
                        leader_epoch=self.epochs[tp],
                        replica_nodes=self.nodes,
                        isr_nodes=self.nodes,
                        offline_replicas=(),
                    )
                )
            topics.append(
                MetadataResponseTopic(
                    name=name, topic_id=topic_id, is_internal=False, partitions=tuple(partitions)
                )
            )
        return MetadataResponse(
            throttle_time_ms=throttle_ms,
            brokers=tuple(
                MetadataResponseBroker(node, HOST, port, None)
                for node, port in self._ports.items()
                if node not in self._absent
            ),
            cluster_id="lockstep",
            controller_id=self.nodes[0],
            topics=tuple(topics),
        )

    def _produce(
        self, request: Request, now_ms: int, error: int, first_only: bool, throttle_ms: int, hints: bool
    ) -> ProduceResponse:
        by_topic: dict[str, list[PartitionProduceResponse]] = {}
        hinted: set[int] = set()
        for at, batch in enumerate(request.batches):
            tp = TopicPartition(batch.topic, batch.partition)
            code, offset = error if at == 0 or not first_only else 0, -1
            if not code and self.leaders[tp] != request.node:
                code = Errors.NOT_LEADER_OR_FOLLOWER.code
            if not code or code in _STORED_ALL_THE_SAME:
                stored = self.logs[tp].append(batch.data, TopicConfig(), now_ms)
                if not code:
                    code = stored.error.code
                    offset = -1 if stored.base_offset is None else stored.base_offset
            leader = LeaderIdAndEpoch(-1, -1)
            if code in _HINTS and hints and self.leaders[tp] >= 0 and request.version >= 10:
                leader = LeaderIdAndEpoch(self.leaders[tp], self.epochs[tp])
                hinted.add(leader.leader_id)
            by_topic.setdefault(batch.topic, []).append(
                PartitionProduceResponse(
                    partition_index=batch.partition,
                    error_code=code,
                    base_offset=offset,
                    log_append_time_ms=-1,
                    log_start_offset=-1 if code and code not in {59} else 0,
                    current_leader=leader,
                )
            )
        with_ids = request.version >= 13
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(
                    name="" if with_ids else name,
                    **({"topic_id": topic_id_of(name)} if with_ids else {}),
                    partition_responses=tuple(partitions),
                )
                for name, partitions in by_topic.items()
            ),
            throttle_time_ms=throttle_ms,
            node_endpoints=tuple(
                NodeEndpoint(node, HOST, port, None) for node, port in self._ports.items() if node in hinted
            ),
        )
