"""Two brokers as a model behind a MockClient: logs with Kafka's checks, requests that are under way, answers
that get lost.

    brokers = ModelBrokers(client, clock, partitions=2)
    brokers.apply(1)              node 1 takes the oldest request that it has not taken yet
    brokers.answer(1)             its oldest answer reaches the client
    brokers.refuse(1, code)       it refuses instead, and stores nothing
    brokers.disconnect(1)         nothing of what is under way comes back

Nothing happens by itself: the test makes each step. Answers are true, except those of `lie`. All brokers
share one log, as if replication were perfect. Used by the property tests of tests/producer; one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.producer.sender.produce_request import ProduceRequestBuilder
from client_core.producer.sender.transaction_manager import InitProducerIdRequestBuilder
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.produce_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from client_core.testing.controller import TopicConfig
from client_core.testing.partition_log import PartitionLog, read_batch, records_of
from tests.support.metadata_responses import metadata_response, node, partition, topic, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.client.kafka_client import ClientRequest
    from client_core.producer.sender.produce_request import PartitionRecords
    from tests.support.mock_client import MockClient
    from tests.support.mock_clock import MockClock

TOPIC: Final = "orders"
NODES: Final = (0, 1)
#: Errors about the records themselves, which don't change later.
_FAULTS_OF_RECORDS: Final = frozenset(
    {Errors.INVALID_RECORD, Errors.MESSAGE_TOO_LARGE, Errors.INVALID_TIMESTAMP, Errors.POLICY_VIOLATION}
)


class _Leader(NamedTuple):
    node_id: int
    epoch: int


class ModelBrokers:
    """What the brokers have, and what is on its way back from them."""

    def __init__(
        self, client: MockClient, clock: MockClock, *, partitions: int, max_message_bytes: int = 1_048_588
    ) -> None:
        self.partitions = partitions
        self.logs = {TopicPartition(TOPIC, number): PartitionLog() for number in range(partitions)}
        #: Whether an error was said of something that was stored, or success of something that was not.
        self.has_lied = False
        self._config = TopicConfig(max_message_bytes=max_message_bytes)
        self._client = client
        self._clock = clock
        self._leaders = {number: _Leader(NODES[number % 2], 0) for number in range(partitions)}
        self._answers: dict[int, object] = {}  # by correlation id: applied, and not yet with the client
        self._under_way: dict[int, ClientRequest] = {}  # what the client waits for, as of the last look
        self._next_producer_id = 1_000

    # -- metadata and leaders --------------------------------------------------------------------------------

    def metadata(self, partitions: int | None = None) -> bytes:
        """The metadata that any broker returns now; with `partitions`, while the topic has only so many."""
        states = [
            partition(number, leader=leader.node_id, epoch=leader.epoch, replicas=NODES)
            for number, leader in self._leaders.items()
            if partitions is None or number < partitions
        ]
        if not states:
            missing = topic(TOPIC, (), error=Errors.UNKNOWN_TOPIC_OR_PARTITION.code)
            return metadata_response([node(node_id) for node_id in NODES], [missing])
        described = topic(TOPIC, states, topic_id=topic_id_of(TOPIC))
        return metadata_response([node(node_id) for node_id in NODES], [described])

    def move_leader(self, number: int) -> None:
        """The other broker leads from now on; answers to metadata and produce requests say so."""
        leader = self._leaders[number]
        self._leaders[number] = _Leader(1 - leader.node_id, leader.epoch + 1)

    # -- requests on their way -------------------------------------------------------------------------------

    def waiting(self, node_id: int) -> Sequence[ClientRequest]:
        """What the client waits for from a node, oldest first."""
        return [request for request in self._client.requests if request.destination == node_id]

    def look(self, *, applied_when_lost: bool) -> None:
        """Notes what has come and gone: of requests that timed out some reach the log all the same."""
        now = {request.correlation_id: request for request in self._client.requests}
        for correlation_id, request in self._under_way.items():
            if correlation_id not in now:
                self._lose(request, applied=applied_when_lost)
        self._under_way = now

    def _lose(self, request: ClientRequest, *, applied: bool) -> None:
        if self._answers.pop(request.correlation_id, None) is None and applied:
            self._applied(request)

    def apply(self, node_id: int) -> bool:
        """The node takes its oldest request that it has not taken; whether there was one."""
        request = self._next(node_id)
        if request is None:
            return False
        self._answers[request.correlation_id] = self._applied(request)
        return True

    def answer(self, node_id: int) -> bool:
        """The oldest answer of a node arrives, if its request was taken; whether there was one."""
        waiting = self.waiting(node_id)
        if not waiting or waiting[0].correlation_id not in self._answers:
            return False
        self._arrive(waiting[0], self._answers.pop(waiting[0].correlation_id))
        return True

    def refuse(self, node_id: int, error: Errors) -> bool:
        """The node answers its oldest request with an error for each partition, and stores nothing.

        A producer id is only late, where the error would refuse it for ever and says nothing of ids.
        """
        request = self._next(node_id)
        if request is None or request is not self.waiting(node_id)[0]:
            return False
        builder = request.builder
        if isinstance(builder, InitProducerIdRequestBuilder):
            is_meant = error.retriable or error is Errors.CLUSTER_AUTHORIZATION_FAILED
            said = error if is_meant else Errors.COORDINATOR_LOAD_IN_PROGRESS
            self._arrive(request, InitProducerIdResponse(error_code=said.code))
        elif isinstance(builder, ProduceRequestBuilder):
            refused = [
                self._append(node_id, batch) if self._is_stored(batch, error) else self._said(batch, error)
                for batch in builder.batches
            ]
            self._arrive(request, self._response(refused))
        return True

    def _is_stored(self, batch: PartitionRecords, error: Errors) -> bool:
        """Whether the broker has accepted these records before, so that it can't refuse them now."""
        if error not in _FAULTS_OF_RECORDS:
            return False
        stored = {record.value for record in self.logs[batch.topic_partition].records(0)}
        return any(record.value in stored for record in records_of(read_batch(batch.records)))

    def disconnect(self, node_id: int, *, applied: bool) -> None:
        """The connection breaks; `applied`: what was sent and not taken reaches the log all the same."""
        for request in self.waiting(node_id):
            self._lose(request, applied=applied)
            self._under_way.pop(request.correlation_id, None)
        self._client.disconnect(node_id)

    def _next(self, node_id: int) -> ClientRequest | None:
        return next((r for r in self.waiting(node_id) if r.correlation_id not in self._answers), None)

    def _arrive(self, request: ClientRequest, body: object) -> None:
        self._under_way.pop(request.correlation_id, None)
        self._client.respond_to_request(request, body)

    # -- actions of a broker ---------------------------------------------------------------------------------

    def _applied(self, request: ClientRequest) -> object:
        builder = request.builder
        if isinstance(builder, InitProducerIdRequestBuilder):
            self._next_producer_id += 1
            return InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)
        assert isinstance(builder, ProduceRequestBuilder), builder
        return self._response([self._append(request.destination, batch) for batch in builder.batches])

    def _append(self, node_id: int, batch: PartitionRecords) -> PartitionProduceResponse:
        leader = self._leaders[batch.topic_partition.partition]
        if leader.node_id != node_id:
            hint = LeaderIdAndEpoch(*leader)
            return self._said(batch, Errors.NOT_LEADER_OR_FOLLOWER)._replace(current_leader=hint)
        log = self.logs[batch.topic_partition]
        appended = log.append(batch.records, self._config, self._clock.wall_ms())
        if appended.base_offset is None:
            return self._said(batch, appended.error)._replace(log_start_offset=0)
        return PartitionProduceResponse(
            batch.topic_partition.partition, 0, appended.base_offset, log_start_offset=0
        )

    def _said(self, batch: PartitionRecords, error: Errors) -> PartitionProduceResponse:
        return PartitionProduceResponse(batch.topic_partition.partition, error.code, -1)

    def _response(self, partitions: Sequence[PartitionProduceResponse]) -> ProduceResponse:
        named = {p.current_leader.leader_id for p in partitions if p.current_leader.leader_id >= 0}
        endpoints = tuple(
            NodeEndpoint(node(node_id).id, node(node_id).host, node(node_id).port)
            for node_id in sorted(named)
        )
        said = TopicProduceResponse(TOPIC, topic_id_of(TOPIC), tuple(partitions))
        return ProduceResponse((said,), node_endpoints=endpoints)

    # -- lies ------------------------------------------------------------------------------------------------

    def lie(self, node_id: int, error: Errors) -> bool:
        """The node's oldest answer says something else than what it did, in each partition."""
        waiting = self.waiting(node_id)
        if not waiting:
            return False
        answer = self._answers.get(waiting[0].correlation_id)
        if not isinstance(answer, ProduceResponse):
            return False
        builder = waiting[0].builder
        assert isinstance(builder, ProduceRequestBuilder)
        self.has_lied = True
        self._answers[waiting[0].correlation_id] = self._response(
            [self._said(batch, error) for batch in builder.batches]
        )
        return True

    def say_late(self, node_id: int, error: Errors) -> bool:
        """The same with an error that is true of what was stored, but was not acknowledged in time."""
        waiting = self.waiting(node_id)
        answer = self._answers.get(waiting[0].correlation_id) if waiting else None
        if not isinstance(answer, ProduceResponse):
            return False
        late = [
            p._replace(error_code=error.code, base_offset=-1) if p.error_code == 0 else p
            for t in answer.responses
            for p in t.partition_responses
        ]
        self._answers[waiting[0].correlation_id] = self._response(late)
        return True

    # -- the logs --------------------------------------------------------------------------------------------

    def values(self, number: int) -> Sequence[bytes]:
        """The values of a partition's records, in the order of their offsets."""
        log = self.logs[TopicPartition(TOPIC, number)]
        return [record.value or b"" for record in log.records(number)]
