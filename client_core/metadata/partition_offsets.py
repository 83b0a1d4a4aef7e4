"""Requests partitions' first or end offsets with ListOffsets, and reads each partition's result.

Sent to the leader, only while callers wait; not part of Metadata. Offsets are those of a reader of
uncommitted records, as in Kafka's tools. Pure; used on the I/O thread. Source: OffsetSpec,
ListOffsetsHandler, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from client_core.cluster import TopicPartition
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from client_core.protocol.messages.list_offsets_response import ListOffsetsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Wire values of a request's timestamp: the log's start, and the offset of the next record.
EARLIEST: Final = -2
LATEST: Final = -1

#: A replica id of a client, and IsolationLevel.READ_UNCOMMITTED.
_CLIENT: Final = -1
_READ_UNCOMMITTED: Final = 0


class AskedPartition(NamedTuple):
    """A partition with its leader's epoch, by which a broker finds out that either side is behind."""

    topic_partition: TopicPartition
    leader_epoch: int | None


class OffsetFailure(NamedTuple):
    """Why a broker did not return a partition's offset."""

    error_code: int


@dataclass(frozen=True, slots=True)
class ListedOffsets:
    """One response's results, by partition. The response has no error of its own."""

    by_partition: Mapping[TopicPartition, int | OffsetFailure]
    throttle_time_ms: int = 0


class ListOffsetsRequestBuilder:
    """Requests one offset of some partitions; implements `protocol.request.RequestBuilder`."""

    api: ClassVar[ApiKey] = ApiKey.LIST_OFFSETS
    oldest_allowed_version: ClassVar[int] = ApiKey.LIST_OFFSETS.min_version
    latest_allowed_version: ClassVar[int] = ApiKey.LIST_OFFSETS.max_version

    def __init__(self, timestamp: int, partitions: Sequence[AskedPartition], timeout_ms: int) -> None:
        """`timestamp`: EARLIEST or LATEST. Each partition once: a broker refuses a duplicate."""
        self.timestamp: Final = timestamp
        self.partitions: Final = tuple(partitions)
        self._timeout_ms = timeout_ms

    def encode(self, version: int) -> bytes:
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for (topic, partition), epoch in self.partitions:
            known = -1 if epoch is None or version < 4 else epoch
            by_topic.setdefault(topic, []).append(ListOffsetsPartition(partition, known, self.timestamp))
        topics = tuple(ListOffsetsTopic(topic, tuple(asked)) for topic, asked in by_topic.items())
        timeout_ms = self._timeout_ms if version >= 10 else 0
        return ListOffsetsRequest(_CLIENT, _READ_UNCOMMITTED, topics, timeout_ms).encode(version)

    def decode_response(self, body: bytes, version: int) -> ListedOffsets:
        """Returns the results. Raises SchemaError."""
        response = ListOffsetsResponse.decode(body, version)
        reported: dict[TopicPartition, int | OffsetFailure] = {
            TopicPartition(topic.name, one.partition_index): OffsetFailure(one.error_code)
            if one.error_code
            else one.offset
            for topic in response.topics
            for one in topic.partitions
        }
        return ListedOffsets(MappingProxyType(reported), response.throttle_time_ms)
