"""Lists every topic of the cluster, apart from the producer's own topics.

Requested only while callers wait, and never merged into Metadata: otherwise the client would refresh all
listed topics for ever. Partitions are skipped. Pure; used on the I/O thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from client_core.errors import SchemaError
from client_core.metadata.metadata_request import FIRST_VERSION_WITHOUT_CREATION
from client_core.metadata.metadata_response import ListedTopic, MetadataReader
from client_core.metadata.topic_layout import LATEST_VERSION
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.metadata_request import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Source: Topic.MAX_NAME_LENGTH.
_LONGEST_NAME: Final = 249


@dataclass(frozen=True, slots=True)
class TopicListing:
    """All topics visible to this client, by name, and the response's error code, 0 for none."""

    topics: Mapping[str, ListedTopic]
    error_code: int = 0
    throttle_time_ms: int = 0


class TopicListingRequestBuilder:
    """Requests all topics and creates none; implements `protocol.request.RequestBuilder`."""

    api: ClassVar[ApiKey] = ApiKey.METADATA
    oldest_allowed_version: ClassVar[int] = FIRST_VERSION_WITHOUT_CREATION
    latest_allowed_version: ClassVar[int] = LATEST_VERSION

    def encode(self, version: int) -> bytes:
        return MetadataRequest(None, allow_auto_topic_creation=False).encode(version)

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
        self._reader = MetadataReader(size_bytes, version, on_listed=lambda topic: _list(topic, topics))

    def feed(self, piece: bytes) -> None:
        """Takes the next bytes of the response. Raises SchemaError."""
        self._reader.feed(piece)

    def finish(self) -> TopicListing:
        """Returns the list, after the last byte."""
        response = self._reader.finish()
        return TopicListing(MappingProxyType(self._topics), response.error_code, response.throttle_time_ms)


def _list(topic: ListedTopic, topics: dict[str, ListedTopic]) -> None:
    if len(topic.name) > _LONGEST_NAME:
        raise SchemaError(f"a topic's name of {len(topic.name)} characters, more than {_LONGEST_NAME}")
    topics[topic.name] = topic
