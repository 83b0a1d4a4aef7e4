"""Builds Produce requests of any version, and reads one outcome per batch.

A request has one batch per partition. Versions 3-12 name topics; version 13 carries topic ids from metadata
(SND-08). The names of these ids are fixed when the request is built, because a topic may be re-created before
the answer comes. Wire sentinels end here: -1 becomes None. Pure. Source: ProduceRequest, ProduceResponse,
Sender.sendProduceRequest and handleProduceResponse, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from client_core.cluster import Node, TopicPartition
from client_core.error_codes import Errors
from client_core.errors import InvalidRecordError, UnsupportedCompressionTypeError
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
from client_core.metadata.metadata_response import LONGEST_HOST
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from client_core.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from client_core.protocol.quick_produce import FIRST_FLEXIBLE, encode_produce_request, read_produce_response
from client_core.record.compression import Codec
from client_core.record.record_batch import (
    CODEC_MASK,
    CRC_SPAN_OFFSET,
    HEAD,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

#: `acks` as a setting and on the wire.
_WIRE_ACKS: Final = {"all": -1, "1": 1, "0": 0}

#: The limit of a broker's message: its own are far shorter, and each record of a batch repeats them.
_LONGEST_MESSAGE: Final = 1_000

#: KIP-110: brokers with lower versions do not know zstd.
_FIRST_VERSION_WITH_ZSTD: Final = 7


class PartitionRecords(NamedTuple):
    """One partition's batch, encoded."""

    topic_partition: TopicPartition
    records: bytes


@dataclass(slots=True, eq=False)
class ProduceRequestBuilder:
    """Batches for the partitions that one node leads.

    `topic_ids`: those of their topics, as far as they are known.
    """

    acks: str
    timeout_ms: int
    batches: Sequence[PartitionRecords]
    topic_ids: Mapping[str, UUID]

    api: ClassVar[ApiKey] = ApiKey.PRODUCE
    oldest_allowed_version: ClassVar[int] = ApiKey.PRODUCE.min_version
    latest_allowed_version: ClassVar[int] = ApiKey.PRODUCE.max_version

    def encode(self, version: int) -> bytes:
        """Returns the request's body.

        Raises UnsupportedCompressionTypeError for zstd below version 7, InvalidRecordError for records that
        are not one batch.
        """
        by_topic: dict[str, list[tuple[int, bytes]]] = {}
        for (topic, partition), records in self.batches:
            _validate_records(version, records)
            by_topic.setdefault(topic, []).append((partition, records))
        acks = _WIRE_ACKS[self.acks]
        if version >= FIRST_FLEXIBLE:
            # An unknown id is sent as zero: the broker answers UNKNOWN_TOPIC_ID, and we retry.
            return encode_produce_request(version, acks, self.timeout_ms, by_topic, self.topic_ids)
        topics = tuple(
            TopicProduceData(
                name=topic, partition_data=tuple(PartitionProduceData(*partition) for partition in partitions)
            )
            for topic, partitions in by_topic.items()
        )
        request = ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=self.timeout_ms, topic_data=topics
        )
        return request.encode(version)

    def decode_response(self, body: bytes, version: int) -> ProduceResponse:
        stored = read_produce_response(body, version) if version >= FIRST_FLEXIBLE else None
        return ProduceResponse.decode(body, version) if stored is None else stored

    def topic_names(self) -> Mapping[UUID, str]:
        """Returns the names behind the ids of this request."""
        return {topic_id: topic for topic, topic_id in self.topic_ids.items()}

    def __repr__(self) -> str:
        size = sum(len(batch.records) for batch in self.batches)
        return f"<Produce acks={self.acks} partitions={len(self.batches)} bytes={size}>"


def _validate_records(version: int, records: bytes) -> None:
    """Raises for records that Java rejects. Source: ProduceRequest.validateRecords."""
    if len(records) < HEADER_SIZE:
        raise InvalidRecordError(
            f"Produce requests with version {version} must have at least one record batch per partition"
        )
    _, length, _, magic, _ = HEAD.unpack_from(records)
    if magic != MAGIC:
        raise InvalidRecordError(
            f"Produce requests with version {version} are only allowed to contain record batches with magic "
            f"version {MAGIC}"
        )
    codec_id = records[CRC_SPAN_OFFSET + 1] & CODEC_MASK  # the lower byte of the attributes
    if version < _FIRST_VERSION_WITH_ZSTD and codec_id == Codec.ZSTD.id:
        raise UnsupportedCompressionTypeError(
            f"Produce requests with version {version} are not allowed to use ZStandard compression"
        )
    if LOG_OVERHEAD + length != len(records):
        raise InvalidRecordError(
            f"Produce requests with version {version} are only allowed to contain exactly one record batch "
            "per partition"
        )


class RecordError(NamedTuple):
    """A faulty record that the broker names."""

    batch_index: int
    message: str | None


class PartitionResponse(NamedTuple):
    """The outcome of one batch, from a broker or from the client itself."""

    error: Errors
    code: int = 0
    base_offset: int | None = None
    log_append_time_ms: int | None = None
    log_start_offset: int | None = None
    record_errors: tuple[RecordError, ...] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None

    def __str__(self) -> str:
        suffix = f". Error Message: {self.error_message}" if self.error_message else ""
        return f"{self.error.name}{suffix}"


def failure(error: Errors, message: str | None = None) -> PartitionResponse:
    """Returns the client's own outcome, when no broker answered."""
    return PartitionResponse(error, error.code, error_message=message)


#: The outcome with acks=0, which has no response (SND-12).
NOTHING_SAID: Final = PartitionResponse(Errors.NONE)


def partition_responses(
    response: ProduceResponse, topic_names: Mapping[UUID, str]
) -> Iterable[tuple[TopicPartition, PartitionResponse]]:
    """Yields each partition of a response with its outcome.

    For an id that we did not send, the topic's name is the one in the response.
    """
    for topic in response.responses:
        name = topic_names.get(topic.topic_id, topic.name)
        for partition in topic.partition_responses:
            yield TopicPartition(name, partition.partition_index), _outcome(partition)


def leader_nodes(response: ProduceResponse) -> tuple[Node, ...]:
    """Returns the brokers that a response introduces along with new leaders."""
    return tuple(
        Node(node.node_id, node.host, node.port, node.rack)
        for node in response.node_endpoints
        if node.host and node.port >= 0 and len(node.host) <= LONGEST_HOST
    )


def _outcome(answered: PartitionProduceResponse) -> PartitionResponse:
    _, code, offset, log_append_ms, log_start, culprits, message, (leader_id, leader_epoch) = answered
    return PartitionResponse(
        Errors.of(code) if code else Errors.NONE,
        code,
        offset if offset >= 0 else None,
        log_append_ms if log_append_ms >= 0 else None,
        log_start if log_start >= 0 else None,
        tuple(RecordError(index, _shortened(said)) for index, said in culprits) if culprits else (),
        None if message is None else _shortened(message),
        LeaderIdAndEpoch(leader_id, leader_epoch) if leader_id >= 0 and leader_epoch >= 0 else None,
    )


def _shortened(message: str | None) -> str | None:
    """Returns a broker's message, cut off if it is long."""
    if message is None or len(message) <= _LONGEST_MESSAGE:
        return message
    return f"{message[:_LONGEST_MESSAGE]}..."
