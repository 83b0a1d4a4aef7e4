"""Builds a Metadata request: which topics, and whether it may create them.

Topics are requested by name; None requests all (UPD-16), an empty list only the brokers. The response is
compared with the topics known when it arrives (`known_topics`), so that unchanged ones are reused. If all of
them were requested, it is first compared as a whole with the last such response (`in_order`). Built by
Metadata, on the I/O thread; immutable. Source: MetadataRequest.Builder, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from client_core.metadata.metadata_response import (
    KnownTopics,
    MetadataReader,
    MetadataResponse,
    read_metadata_response,
)
from client_core.metadata.topic_layout import LATEST_VERSION, OLDEST_VERSION
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.metadata.topic_table import TopicTable

#: The first version that can forbid the broker to create requested topics (KIP-487).
FIRST_VERSION_WITHOUT_CREATION: Final = 4


@dataclass(frozen=True, slots=True)
class MetadataRequestBuilder:
    """A Metadata request without a version yet; implements `protocol.request.RequestBuilder`."""

    api: ClassVar[ApiKey] = ApiKey.METADATA
    latest_allowed_version: ClassVar[int] = LATEST_VERSION

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool
    known_topics: Callable[[], KnownTopics] = dict
    in_order: Callable[[], tuple[TopicTable, ...]] = tuple

    @property
    def oldest_allowed_version(self) -> int:
        """The oldest version: never 0, and without auto-creation at least version 4."""
        return OLDEST_VERSION if self.allow_auto_topic_creation else FIRST_VERSION_WITHOUT_CREATION

    def encode(self, version: int) -> bytes:
        """Returns the request's body. Raises UnsupportedVersionError if the version can't carry it."""
        topics = None if self.topics is None else tuple(MetadataRequestTopic(name=t) for t in self.topics)
        return MetadataRequest(topics, self.allow_auto_topic_creation).encode(version)

    def decode_response(self, body: bytes, version: int) -> MetadataResponse:
        """Returns the requested topics of the response, compared with the known ones. Raises SchemaError."""
        return read_metadata_response(body, version, self.known_topics(), self.topics, self.in_order())

    def response_reader(self, size_bytes: int, version: int) -> MetadataReader:
        """Returns a reader that decodes the response while it arrives."""
        return MetadataReader(size_bytes, version, self.known_topics(), self.topics, in_order=self.in_order())
