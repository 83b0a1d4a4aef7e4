"""Every topic of the cluster by name: a request and a snapshot of their own, apart from the producer's
topics.

Asked for only while somebody wants the list; never merged into Metadata, so that listing a thousand topics
does not make the client refresh them for ever. Pure; the request is built and its answer read on the I/O
thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from client_core.metadata.metadata_request import FIRST_VERSION_WITHOUT_CREATION, MetadataRequestBuilder
from client_core.metadata.metadata_response import MetadataResponse, TopicFailure, read_metadata_response
from client_core.metadata.topic_layout import LATEST_VERSION
from client_core.metadata.topic_table import TopicTable
from client_core.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID


class ListedTopic(NamedTuple):
    """A topic in the list. `error_code` is 0 but for a topic that the broker can't describe at the moment.

    `replication_factor` is that of the first partition, 0 where none is described.
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partition_count: int
    error_code: int = 0
    replication_factor: int = 0


@dataclass(frozen=True, slots=True)
class TopicListing:
    """All topics that we may see, by name, and the response's own error, 0 for none."""

    topics: Mapping[str, ListedTopic]
    error_code: int = 0
    throttle_time_ms: int = 0


class TopicListingRequestBuilder:
    """Asks for all topics and creates none; satisfies `protocol.request.RequestBuilder`."""

    def __init__(self) -> None:
        self._request = MetadataRequestBuilder(None, allow_auto_topic_creation=False)

    @property
    def api(self) -> ApiKey:
        return ApiKey.METADATA

    @property
    def oldest_allowed_version(self) -> int:
        return FIRST_VERSION_WITHOUT_CREATION

    @property
    def latest_allowed_version(self) -> int:
        return LATEST_VERSION

    def encode(self, version: int) -> bytes:
        return self._request.encode(version)

    def decode_response(self, body: bytes, version: int) -> TopicListing:
        """The list; of the partitions only what `ListedTopic` says is kept. Raises SchemaError."""
        return listing_of(read_metadata_response(body, version))


def listing_of(response: MetadataResponse) -> TopicListing:
    """The list that a response to an all-topics request holds."""
    listed = {
        topic.name: ListedTopic(
            topic.name,
            topic.topic_id,
            topic.is_internal,
            topic.partition_count,
            *_error_and_replicas(topic),
        )
        for topic in response.topics
    }
    return TopicListing(MappingProxyType(listed), response.error_code, response.throttle_time_ms)


def _error_and_replicas(topic: TopicTable | TopicFailure) -> tuple[int, int]:
    return (0, topic.replication_factor) if isinstance(topic, TopicTable) else (topic.error_code, 0)
