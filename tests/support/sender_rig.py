"""A Sender over MockClient and MockClock with a real accumulator, turned by hand; and brokers' answers.

rig = SenderRig(idempotent=False)
future = rig.send(partition=0)                    the request is in rig.client.requests
rig.answer(produced(ORDERS_0, offset=7))          future.done()
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from client_core.backoff import ExponentialBackoff
from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.metadata.metadata import MetadataConfig
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.producer.accumulator.buffer_pool import BufferPool
from client_core.producer.accumulator.producer_batch import ProducerIdAndEpoch
from client_core.producer.accumulator.record_accumulator import AccumulatorConfig, RecordAccumulator
from client_core.producer.results.future_record_metadata import FutureRecordMetadata
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.sender.batch_settlement import SenderConfig
from client_core.producer.sender.produce_request import ProduceRequestBuilder
from client_core.producer.sender.sender import Sender
from client_core.producer.sender.transaction_manager import TransactionManager
from client_core.producer.sender.wiring import causes_of
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from client_core.record.compression import NO_COMPRESSION
from client_core.record.record_batch import decode_record_batch
from tests.support.metadata_responses import metadata_response
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from client_core.cluster import Node
    from client_core.record.compression import Compression
    from client_core.record.record_batch import RecordBatch

ORDERS_0: Final = TopicPartition("orders", 0)
ORDERS_1: Final = TopicPartition("orders", 1)

REQUEST_TIMEOUT_MS: Final = 5_000
DELIVERY_TIMEOUT_MS: Final = 1_500
RETRY_BACKOFF_MS: Final = 50
PRODUCER_ID: Final = 123456


def produced(
    topic_partition: TopicPartition,
    *,
    offset: int = -1,
    error: Errors = Errors.NONE,
    log_append_time_ms: int = -1,
    log_start_offset: int = -1,
    message: str | None = None,
    record_errors: Sequence[tuple[int, str | None]] = (),
    leader: tuple[int, int] = (-1, -1),
    nodes: Sequence[NodeEndpoint] = (),
) -> ProduceResponse:
    """A broker's answer for one partition."""
    answered = PartitionProduceResponse(
        partition_index=topic_partition.partition,
        error_code=error.code,
        base_offset=offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
        record_errors=tuple(BatchIndexAndErrorMessage(*one) for one in record_errors),
        error_message=message,
        current_leader=LeaderIdAndEpoch(*leader),
    )
    topic = TopicProduceResponse(name=topic_partition.topic, partition_responses=(answered,))
    return ProduceResponse(responses=(topic,), node_endpoints=tuple(nodes))


def together(*answers: ProduceResponse) -> ProduceResponse:
    """One answer for several partitions."""
    topics = tuple(topic for answer in answers for topic in answer.responses)
    nodes = tuple(node for answer in answers for node in answer.node_endpoints)
    return ProduceResponse(responses=topics, node_endpoints=nodes)


def producer_id_given(producer_id: int = PRODUCER_ID, epoch: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def producer_id_refused(error: Errors) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code)


class SenderRig:
    """A Sender and everything around it."""

    def __init__(
        self,
        *,
        idempotent: bool = False,
        has_producer_id: bool = True,
        topics: Mapping[str, int] | None = None,
        acks: str = "all",
        retries: int = 2**31 - 1,
        guarantee_message_order: bool = False,
        linger_ms: int = 0,
        batch_bytes: int = 16_384,
        delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS,
        buffer_bytes: int = 1_048_576,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
        availability_timeout_ms: int = 0,
        producer_epoch: int = 0,
        restarts: bool = False,
        compression: Compression = NO_COMPRESSION,
        client_type: type[MockClient] = MockClient,
    ) -> None:
        """`client_type`: a MockClient with a peculiarity of the test's own."""
        random = Random(7)
        self.clock = MockClock(now_ms=10_000)
        self.events = RecordedEvents()
        self.metadata = ProducerMetadata(
            MetadataConfig(refresh_backoff_ms=0, refresh_backoff_max_ms=0), random, self.clock, self.events
        )
        self.metadata.bootstrap([("localhost", 9092)])
        self.client = client_type(self.clock, self.metadata)
        self.topics = dict(topics or {"orders": 2})
        for topic in self.topics:
            self.metadata.add(topic, self.clock.now_ms())
        self.client.update_metadata(metadata_response(nodes=1, topics=self.topics), 13)
        backoff = ExponentialBackoff(retry_backoff_ms, retry_backoff_ms, random)
        self.pool = BufferPool(buffer_bytes, batch_bytes, self.clock, self.events)
        self.manager = (
            TransactionManager(
                ExponentialBackoff(RETRY_BACKOFF_MS, RETRY_BACKOFF_MS, random), restarts=restarts
            )
            if idempotent
            else None
        )
        self.accumulator = RecordAccumulator(
            AccumulatorConfig(
                batch_bytes=batch_bytes,
                linger_ms=linger_ms,
                delivery_timeout_ms=delivery_timeout_ms,
                compression=compression,
                partition_availability_timeout_ms=availability_timeout_ms,
            ),
            self.pool,
            backoff,
            random,
            self.manager,
        )
        self.sender = Sender(
            self.client,
            self.metadata,
            self.accumulator,
            SenderConfig(
                acks=acks,
                retries=retries,
                max_request_bytes=1_048_576,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                delivery_timeout_ms=delivery_timeout_ms,
                retry_backoff_ms=RETRY_BACKOFF_MS,
                guarantee_message_order=guarantee_message_order,
                whole_requests=False,
            ),
            self.clock,
            self.events,
            causes_of(self.metadata, self.client, self.manager),
            self.manager,
        )
        if self.manager is not None and has_producer_id:
            self.manager.init_sent()
            self.manager.init_succeeded(ProducerIdAndEpoch(PRODUCER_ID, producer_epoch))

    @property
    def idempotence(self) -> TransactionManager:
        assert self.manager is not None
        return self.manager

    @property
    def node(self) -> Node:
        """The one broker."""
        (node,) = self.metadata.fetch().nodes
        return node

    def append(
        self, partition: int = 0, *, topic: str = "orders", value: bytes = b"value", count: int = 1
    ) -> FutureRecordMetadata:
        """Appends so many records at once; the future of the last one."""
        future = FutureRecordMetadata()
        for _ in range(count):
            future = FutureRecordMetadata()
            result = self.accumulator.append_many(
                topic,
                partition,
                (ProducerRecord(topic, value),),
                (0,),
                future,
                self.metadata.fetch(),
                self.clock.now_ms(),
                self.clock.wall_ms(),
            )
            assert result.appended == 1
        return future

    def send(
        self, partition: int = 0, turns: int = 1, *, value: bytes = b"value", count: int = 1
    ) -> FutureRecordMetadata:
        """Appends records, and turns; the future of the last one."""
        future = self.append(partition, value=value, count=count)
        self.turn(turns)
        return future

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.sender.run_once()

    def turn_after(self, pause_ms: int, times: int = 1) -> None:
        self.clock.advance(pause_ms)
        self.turn(times)

    def respond(self, body: object, *, disconnected: bool = False) -> None:
        """Answers the oldest request; the next turn hears of it."""
        self.client.respond(body, disconnected=disconnected)

    def answer(self, body: object, turns: int = 1, *, disconnected: bool = False) -> None:
        """Answers the oldest request, and turns."""
        self.respond(body, disconnected=disconnected)
        self.turn(turns)

    def back_off(self) -> None:
        """Lets a retry's backoff pass."""
        self.clock.advance(RETRY_BACKOFF_MS)

    def sent(self, index: int = -1) -> list[RecordBatch]:
        """The batches of a request that is on its way."""
        builder = self.client.requests[index].builder
        assert isinstance(builder, ProduceRequestBuilder)
        return [decode_record_batch(batch.records) for batch in builder.batches]

    def sent_sequence(self, index: int = -1) -> tuple[int | None, int | None]:
        """Epoch and base sequence of the one batch of a request that is on its way."""
        (batch,) = self.sent(index)
        return batch.producer_epoch, batch.base_sequence

    def update_leaders(self, partitions: int = 2, *, nodes: int = 1, epoch: int = 0) -> None:
        """Applies metadata in which the leaders are spread over so many brokers."""
        self.client.update_metadata(
            metadata_response(nodes=nodes, topics={"orders": partitions}, epoch=epoch), 13
        )


class SleepRecorder:
    """Looks at how long each poll may sleep."""

    def __init__(self, rig: SenderRig) -> None:
        self.timeouts_ms: list[int] = []
        poll = rig.client.poll

        def record(timeout_ms: int, now_ms: int) -> object:
            self.timeouts_ms.append(timeout_ms)
            return poll(timeout_ms, now_ms)

        rig.client.poll = record  # type: ignore[method-assign, assignment]

    def last_ms(self) -> int:
        return self.timeouts_ms[-1]
