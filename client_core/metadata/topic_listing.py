"""Lists every topic of the cluster, apart from the producer's own topics.

Requested only while callers wait, and never merged into Metadata: otherwise the client would refresh all
listed topics for ever. Partitions are skipped. Pure; used on the I/O thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import SchemaError
from client_core.metadata.metadata_request import FIRST_VERSION_WITHOUT_CREATION, MetadataRequestBuilder
from client_core.metadata.metadata_response import MetadataReader, PassedTopic
from client_core.metadata.topic_layout import LATEST_VERSION
from client_core.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID


#: Source: Topic.MAX_NAME_LENGTH.
_LONGEST_NAME: Final = 249


class ListedTopic(NamedTuple):
    """A topic in the list. `error_code` is 0 unless the broker can't describe the topic now.

    `replication_factor` is that of the first partition in the response, 0 without one. During a reassignment
    partitions differ.
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partition_count: int
    error_code: int = 0
    replication_factor: int = 0


@dataclass(frozen=True, slots=True)
class TopicListing:
    """All topics visible to this client, by name, and the response's error code, 0 for none."""

    topics: Mapping[str, ListedTopic]
    error_code: int = 0
    throttle_time_ms: int = 0


class TopicListingRequestBuilder:
    """Requests all topics and creates none; implements `protocol.request.RequestBuilder`."""

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
        """Returns the list; keeps only the fields of `ListedTopic`, no partitions. Raises SchemaError."""
        reader = self.response_reader(len(body), version)
        reader.feed(body)
        return reader.finish()

    def response_reader(self, size_bytes: int, version: int) -> TopicListingReader:
        """Returns a reader that decodes the response while it arrives."""
        return TopicListingReader(size_bytes, version)


class TopicListingReader:
    """Decodes the list while it arrives. One thread."""

    def __init__(self, size_bytes: int, version: int) -> None:
        topics = self._topics = dict[str, ListedTopic]()
        # Not a method of this object: that would be a reference cycle with the reader.
        self._reader = MetadataReader(size_bytes, version, on_passed=lambda topic: _list(topic, topics))

    def feed(self, piece: bytes) -> None:
        """Takes the next bytes of the response. Raises SchemaError."""
        self._reader.feed(piece)

    def finish(self) -> TopicListing:
        """Returns the list, after the last byte."""
        response = self._reader.finish()
        return TopicListing(MappingProxyType(self._topics), response.error_code, response.throttle_time_ms)


def _list(topic: PassedTopic, topics: dict[str, ListedTopic]) -> None:
    name, topic_id, is_internal, error_code, partition_count, replication_factor = topic
    if name is None:
        return
    if len(name) > _LONGEST_NAME:
        raise SchemaError(f"a topic's name of {len(name)} characters, more than {_LONGEST_NAME}")
    if error_code:
        replication_factor = 0
    topics[name] = ListedTopic(name, topic_id, is_internal, partition_count, error_code, replication_factor)
