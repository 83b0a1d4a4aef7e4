"""Shared by the tests of Metadata: a Metadata of some topics, and responses to its newest request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.cluster import TopicPartition
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_response import read_metadata_response
from tests.metadata.test_refresh_schedule import Unjittered
from tests.support.metadata_responses import metadata_response

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from client_core.cluster import Node, PartitionInfo
    from client_core.metadata.metadata_request import MetadataRequestBuilder
    from client_core.protocol.messages.metadata_response import MetadataResponseTopic

CONFIG = MetadataConfig(refresh_backoff_ms=100, refresh_backoff_max_ms=1_000, max_age_ms=1_000)
TP = TopicPartition("topic", 0)


class HoldingSome(Metadata):
    """Metadata of a set of topics that a test changes; may ask for all of them in a partial request too."""

    def __init__(self, held: Iterable[str] | None = None, *, is_partial_supported: bool = False) -> None:
        super().__init__(CONFIG, Unjittered(0))
        self.held = None if held is None else set(held)
        self._is_partial_supported = is_partial_supported

    def retain_topic(self, topic: str, now_ms: int) -> bool:
        return self.held is None or topic in self.held

    def _retains_all(self, now_ms: int) -> bool:
        return self.held is None

    def _new_partial_request(self, is_enough: bool) -> MetadataRequestBuilder | None:
        return self._new_request() if is_enough and self._is_partial_supported else None


def answer(
    metadata: Metadata,
    nodes: int | Iterable[Node] = 1,
    topics: Mapping[str, int] | Iterable[MetadataResponseTopic] = (),
    *,
    version: int = 13,
    errors: Mapping[str, int] | None = None,
    cluster_id: str | None = "dummy",
    epoch: int | None = 0,
    is_partial: bool = False,
    now_ms: int = 0,
) -> None:
    """A response to the newest request, read against what is known."""
    body = metadata_response(
        nodes, topics, version=version, errors=errors, cluster_id=cluster_id, epoch=epoch
    )
    response = read_metadata_response(body, version, metadata.cache.topics)
    metadata.update(metadata.request_version, response, is_partial, now_ms)


def info(metadata: Metadata, topic_partition: TopicPartition = TP) -> PartitionInfo:
    found = metadata.fetch().partition(topic_partition)
    assert found is not None
    return found


def is_update_requested(metadata: Metadata) -> bool:
    return metadata.update_requested
