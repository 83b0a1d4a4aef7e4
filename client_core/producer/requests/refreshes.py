"""Builds the metadata and connection parts of ClientStatus; keeps the last failed refresh and answer.

Any thread reads status while the I/O thread runs: all values read here are immutable or plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from client_core.events import MetadataRefreshFailed, NodeDisconnected, RequestCompleted
from client_core.producer.results.status import MetadataStatus, NodeStatus

if TYPE_CHECKING:
    from client_core.client.kafka_client import KafkaClient
    from client_core.client.metadata_updater import DefaultMetadataUpdater
    from client_core.clock import Clock
    from client_core.events import Event, EventSink
    from client_core.metadata.producer_metadata import ProducerMetadata


class RefreshFailure(NamedTuple):
    """A refresh that failed."""

    detail: str
    at_ms: int


class RefreshFailures:
    """An EventSink that passes events on. Written by the I/O thread.

    It remembers the last failed refresh, and when a broker last answered.

    It also passes each disconnection's cause to Metadata.
    """

    def __init__(self, events: EventSink, clock: Clock, metadata: ProducerMetadata) -> None:
        self._metadata = metadata
        self._events = events
        self._clock = clock
        self.last: RefreshFailure | None = None
        #: When a broker last answered any request.
        self.answered_ms: int | None = None
        self.updater: DefaultMetadataUpdater | None = None

    @property
    def in_progress(self) -> bool:
        return self.updater is not None and self.updater.is_in_progress

    def answer_age_ms(self, now_ms: int) -> int | None:
        """Returns how long ago a broker last answered; None before the first answer. Any thread."""
        answered_ms = self.answered_ms
        return None if answered_ms is None else max(now_ms - answered_ms, 0)

    def emit(self, event: Event, /) -> None:
        if isinstance(event, RequestCompleted):
            if event.received_bytes:
                self.answered_ms = self._clock.now_ms()
        elif isinstance(event, MetadataRefreshFailed):
            self.last = RefreshFailure(event.detail, self._clock.now_ms())
        elif isinstance(event, NodeDisconnected):
            self._metadata.note_disconnection(event.detail)
        self._events.emit(event)


def metadata_status(metadata: ProducerMetadata, refreshes: RefreshFailures, now_ms: int) -> MetadataStatus:
    """Returns the snapshot's age and versions, and the last refresh error."""
    cache, failed = metadata.answered_cache, refreshes.last
    refreshed_ms = metadata.last_successful_refresh_ms
    return MetadataStatus(
        update_version=cache.update_version,
        request_version=metadata.request_version,
        age_ms=None if refreshed_ms is None else max(now_ms - refreshed_ms, 0),
        max_age_ms=metadata.max_age_ms,
        refresh_in_progress=refreshes.in_progress,
        topics=len(cache.topics),
        partitions=cache.partition_total,
        last_error=None if failed is None else failed.detail,
        last_error_age_ms=None if failed is None else max(now_ms - failed.at_ms, 0),
    )


def node_statuses(client: KafkaClient, now_ms: int) -> tuple[NodeStatus, ...]:
    """Returns every connection that was ever attempted."""
    return tuple(
        NodeStatus(
            id=node.node_id,
            host=node.host,
            port=node.port,
            state=node.state.value,
            in_flight_requests=node.in_flight_requests,
            oldest_in_flight_age_ms=node.oldest_in_flight_age_ms,
            backoff_left_ms=node.backoff_left_ms,
            throttle_left_ms=node.throttle_left_ms,
            last_error=node.last_error,
            last_error_age_ms=node.last_error_age_ms,
            cause=node.cause,
        )
        for node in client.node_statuses(now_ms)
    )
