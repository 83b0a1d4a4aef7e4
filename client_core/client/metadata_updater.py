"""Sends Metadata requests when due, and handles their responses and failures.

`NetworkClient` calls `maybe_update` in each turn and passes itself as `MetadataClient`, so that the updater
does not hold the client. `DefaultMetadataUpdater` keeps at most one request in flight. First it waits until
an update is due and the backoff is over. Then it sends the request, and waits for the response, at most
request.timeout.ms. If it can't send a due request, it waits for a connection or an available node,
reconnect.backoff.ms at a time. `metadata/refresh_schedule.py` decides when an update is due, `metadata/`
interprets responses. I/O thread only. Source: MetadataUpdater, ManualMetadataUpdater,
NetworkClient.DefaultMetadataUpdater, Kafka 4.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from client_core.client.refresh_log_limiter import RefreshLogLimiter
from client_core.clock import FOREVER_MS
from client_core.error_codes import Errors
from client_core.errors import IllegalStateError
from client_core.events import NO_EVENTS, MetadataRefreshed, MetadataRefreshFailed, Rebootstrapped
from client_core.metadata.metadata_response import MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from client_core.client.in_flight_requests import InFlightRequest
    from client_core.client.kafka_client import LeastLoadedNode
    from client_core.client.network_client_config import NetworkClientConfig
    from client_core.cluster import Node
    from client_core.errors import AuthenticationError, KafkaError
    from client_core.events import EventSink
    from client_core.metadata.metadata import Metadata, UpdateSummary
    from client_core.protocol.request import RequestBuilder

_log = logging.getLogger(__name__)

#: The shortest wait for a node that is not available yet.
_SHORTEST_WAIT_MS: Final = 1


class RefreshFailure(NamedTuple):
    """Why a metadata request failed. `outcome` is a value of events.MetadataRefreshFailed."""

    outcome: str
    detail: str
    fatal: KafkaError | None = None  # waiters are woken with it


class MetadataClient(Protocol):
    """The part of NetworkClient that an updater uses."""

    def least_loaded_node(self, now_ms: int, avoid: int | None = None) -> LeastLoadedNode: ...

    def can_send_request(self, node_id: int, now_ms: int) -> bool: ...

    def can_connect(self, node: Node, now_ms: int) -> bool: ...

    def is_any_node_connecting(self) -> bool: ...

    def initiate_connect(self, node: Node, now_ms: int) -> None: ...

    def send_internal_metadata_request(self, builder: RequestBuilder, node_id: int, now_ms: int) -> None: ...


class MetadataUpdater(Protocol):
    """Supplies NetworkClient with the known nodes."""

    def fetch_nodes(self) -> Collection[Node]:
        """Returns the nodes that requests may be sent to."""
        ...

    def is_update_due(self, now_ms: int) -> bool: ...

    def maybe_update(self, now_ms: int, client: MetadataClient) -> int:
        """Starts an update if one is due; returns the milliseconds until the next call."""
        ...

    def handle_server_disconnect(self, now_ms: int, node_id: int, fatal: AuthenticationError | None) -> None:
        """Handles the end or failure of a connection; `fatal` if authentication failed."""
        ...

    def handle_failed_request(self, now_ms: int, failure: RefreshFailure) -> None:
        """Handles a failure of the updater's own request."""
        ...

    def handle_successful_response(self, now_ms: int, answered: InFlightRequest, response: object) -> None:
        """Handles the response to the updater's own request."""
        ...

    def needs_rebootstrap(self, now_ms: int) -> bool:
        """Returns whether every known node must be dropped now (KIP-1102)."""
        ...

    def rebootstrap(self, now_ms: int) -> None:
        """Forgets the known nodes and starts again from bootstrap.servers."""
        ...

    def close(self) -> None: ...


class ManualMetadataUpdater:
    """Nodes that a caller sets (UPD-15). No update is ever due; responses and disconnections are ignored."""

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self._nodes = tuple(nodes)

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        self._nodes = tuple(nodes)

    def fetch_nodes(self) -> Collection[Node]:
        return self._nodes

    def is_update_due(self, now_ms: int) -> bool:
        return False

    def maybe_update(self, now_ms: int, client: MetadataClient) -> int:
        return FOREVER_MS

    def handle_server_disconnect(self, now_ms: int, node_id: int, fatal: AuthenticationError | None) -> None:
        """Ignored: the client logs it."""

    def handle_failed_request(self, now_ms: int, failure: RefreshFailure) -> None:
        """Ignored: it sends no requests."""

    def handle_successful_response(self, now_ms: int, answered: InFlightRequest, response: object) -> None:
        """Ignored: it sends no requests."""

    def needs_rebootstrap(self, now_ms: int) -> bool:
        return False

    def rebootstrap(self, now_ms: int) -> None:
        """Ignored: it has no bootstrap.servers."""

    def close(self) -> None:
        """Nothing to release."""


class _InProgress(NamedTuple):
    """The request in flight."""

    request_version: int
    is_partial: bool
    reason: str
    sent_ms: int
    node_id: int


class DefaultMetadataUpdater:
    """Refreshes a Metadata from the least loaded node."""

    def __init__(
        self, metadata: Metadata, config: NetworkClientConfig, events: EventSink = NO_EVENTS
    ) -> None:
        self._metadata = metadata
        self._config = config
        #: Wait before the next look for a node: reconnect.backoff.ms may be 0, which would keep a core busy.
        self._look_again_ms = max(config.reconnect_backoff_ms, _SHORTEST_WAIT_MS)
        self._events = events
        self._in_progress: _InProgress | None = None
        #: Start of the attempts since the last success (UPD-12).
        self._attempt_start_ms: int | None = None
        self._broker_asks_for_rebootstrap = False
        self._has_reported_no_node = False
        self._log_limiter = RefreshLogLimiter()

    def __repr__(self) -> str:
        return f"<DefaultMetadataUpdater in_progress={self._in_progress}>"

    @property
    def is_in_progress(self) -> bool:
        """Whether a request is in flight. A plain read, for status."""
        return self._in_progress is not None

    def fetch_nodes(self) -> Collection[Node]:
        return self._metadata.fetch().nodes

    def is_update_due(self, now_ms: int) -> bool:
        """Returns whether to send a request now: none is in flight, and an update is due (UPD-01)."""
        return self._in_progress is None and self._metadata.time_to_next_update(now_ms) == 0

    # -- sending requests ------------------------------------------------------------------------------------

    def maybe_update(self, now_ms: int, client: MetadataClient) -> int:
        """Starts an update if one is due; returns the milliseconds until the next call."""
        wait_ms = self._metadata.time_to_next_update(now_ms)
        if self._in_progress is not None:
            wait_ms = max(wait_ms, self._config.request_timeout_ms)
        if wait_ms > 0:
            return wait_ms  # UPD-02
        if self._attempt_start_ms is None:
            self._attempt_start_ms = now_ms
        least_loaded = client.least_loaded_node(now_ms, self._metadata.doubted_node_id)
        if self._config.rebootstraps and not least_loaded.has_node_available_or_connection_ready:
            least_loaded = self._choose_again(now_ms, client)
        if least_loaded.node is None:
            self._report_no_node(now_ms)
            return self._look_again_ms  # UPD-03
        return self._ask(least_loaded.node, now_ms, client)

    def _choose_again(self, now_ms: int, client: MetadataClient) -> LeastLoadedNode:
        """Starts again from bootstrap.servers, because no node is usable and no connection is up (UPD-11).

        If only the bootstrap servers are known, there is nothing to forget. Java starts again even then, and
        logs that, at every turn of an outage.
        """
        self._log_limiter.no_node(now_ms)
        if self._metadata.fetch().is_bootstrap_configured:
            self._attempt_start_ms = now_ms
        else:
            self.rebootstrap(now_ms)
        return client.least_loaded_node(now_ms)

    def _ask(self, node: Node, now_ms: int, client: MetadataClient) -> int:
        """Sends to the node, connects to it, or waits; returns the wait in ms."""
        if client.can_send_request(node.id, now_ms):
            asked = self._metadata.new_metadata_request_and_version(now_ms)
            # Set before sending: a send may fail at once, and the failure must clear it. Java sets it after.
            self._in_progress = _InProgress(
                asked.request_version, asked.is_partial, asked.reason, now_ms, node.id
            )
            self._has_reported_no_node = False
            _log.debug("Sending metadata request (%s) %s to node %s", asked.reason, asked.builder, node)
            client.send_internal_metadata_request(asked.builder, node.id, now_ms)
            return self._config.request_timeout_ms  # UPD-04
        if client.is_any_node_connecting():
            return self._look_again_ms  # UPD-05: one connection at a time
        if client.can_connect(node, now_ms):
            _log.debug("Initialize connection to node %s for sending metadata request", node)
            client.initiate_connect(node, now_ms)
            return self._look_again_ms  # UPD-06
        return FOREVER_MS  # UPD-07: connected but busy, or checking versions; I/O will wake the poll

    def _report_no_node(self, now_ms: int) -> None:
        _log.debug("Give up sending metadata request since no node is available")
        if (
            not self._has_reported_no_node
        ):  # once, not twenty times a second for as long as the cluster is away
            self._has_reported_no_node = True
            self._log_limiter.no_node(now_ms)
            reason = self._metadata.refresh_reason
            self._events.emit(MetadataRefreshFailed(reason, "no_node", "no node is available"))

    # -- responses and failures ------------------------------------------------------------------------------

    def handle_server_disconnect(self, now_ms: int, node_id: int, fatal: AuthenticationError | None) -> None:
        """Requests an update, after a backoff: a connection ended, so metadata may be stale (UPD-08)."""
        self._metadata.doubted_node_id = None
        if self.is_update_due(now_ms):
            self._metadata.failed_update(now_ms)
        if fatal is not None:
            self._metadata.fatal_error(fatal)
        self._metadata.request_update(False, reason="disconnect")

    def handle_failed_request(self, now_ms: int, failure: RefreshFailure) -> None:
        """Starts the backoff, and wakes waiters if the failure is fatal (UPD-09)."""
        in_progress, self._in_progress = self._in_progress, None
        if failure.fatal is not None:
            self._metadata.fatal_error(failure.fatal)
        self._failed(now_ms, in_progress, failure.outcome, failure.detail)

    def handle_successful_response(self, now_ms: int, answered: InFlightRequest, response: object) -> None:
        """Applies a response, or counts it as a failure (UPD-10, UPD-13)."""
        if not isinstance(response, MetadataResponse):
            raise IllegalStateError(f"{response!r} is no answer to a metadata request")
        in_progress, self._in_progress = self._in_progress, None
        correlation_id = answered.request.correlation_id
        self._log_limiter.response_came(response, correlation_id, now_ms)
        if response.error_code == Errors.REBOOTSTRAP_REQUIRED.code and self._config.rebootstraps:
            _log.info("Rebootstrap requested by server.")
            self._broker_asks_for_rebootstrap = True
            detail = "the broker requested a restart from bootstrap.servers"
            self._report_failure(now_ms, in_progress, "error", detail)
        elif not response.brokers:
            # A starting broker knows no brokers yet, not even itself.
            _log.debug("Ignoring empty metadata response with correlation id %d.", correlation_id)
            self._failed(now_ms, in_progress, "error", "the response lists no brokers")
        elif in_progress is not None:
            request_version, is_partial = in_progress.request_version, in_progress.is_partial
            # A bootstrap address may belong to any broker.
            node_id = in_progress.node_id if in_progress.node_id >= 0 else None
            summary = self._metadata.update(request_version, response, is_partial, now_ms, node_id)
            self._attempt_start_ms = None
            self._log_limiter.refreshed(now_ms)
            self._events.emit(_refreshed(in_progress, summary, now_ms))

    def _failed(self, now_ms: int, in_progress: _InProgress | None, outcome: str, detail: str) -> None:
        self._metadata.failed_update(now_ms)
        self._report_failure(now_ms, in_progress, outcome, detail)

    def _report_failure(
        self, now_ms: int, in_progress: _InProgress | None, outcome: str, detail: str
    ) -> None:
        if in_progress is None:
            failed = MetadataRefreshFailed(self._metadata.refresh_reason, outcome, detail)
        else:
            _, _, reason, sent_ms, node_id = in_progress
            failed = MetadataRefreshFailed(reason, outcome, detail, now_ms - sent_ms, node_id)
        self._log_limiter.failed(failed.reason, outcome, detail, now_ms)
        self._events.emit(failed)

    # -- rebootstrap -----------------------------------------------------------------------------------------

    def needs_rebootstrap(self, now_ms: int) -> bool:
        """Returns whether to start again from bootstrap.servers.

        That is so if it is too long since an update succeeded (UPD-12), or if a broker requested it (UPD-13).
        """
        if self._broker_asks_for_rebootstrap:
            return True
        start_ms = self._attempt_start_ms
        return (
            start_ms is not None
            and self._config.rebootstraps
            and now_ms - start_ms > self._config.rebootstrap_trigger_ms
        )

    def rebootstrap(self, now_ms: int) -> None:
        """Forgets the known brokers and restarts the attempts (UPD-11, UPD-12)."""
        self._broker_asks_for_rebootstrap = False
        self._attempt_start_ms = now_ms
        self._metadata.rebootstrap()
        self._events.emit(Rebootstrapped())

    def close(self) -> None:
        self._metadata.close()


def _refreshed(in_progress: _InProgress, summary: UpdateSummary, now_ms: int) -> MetadataRefreshed:
    return MetadataRefreshed(
        reason=in_progress.reason,
        update_version=summary.update_version,
        request_version=in_progress.request_version,
        is_partial=in_progress.is_partial,
        duration_ms=now_ms - in_progress.sent_ms,
        topics=summary.topics,
        partitions=summary.partitions,
        leaderless_partitions=summary.leaderless_partitions,
        cluster_id=summary.cluster_id,
        node_id=in_progress.node_id,
    )
