"""Sends Metadata requests when due, and handles their responses and failures.

`NetworkClient` calls `maybe_update` in each turn and passes itself as `MetadataClient`, so that neither holds
the other. `DefaultMetadataUpdater` keeps at most one request in flight. It waits, in this order: until an
update is due and the backoff is over; for the answer, at most request.timeout.ms; for a connection being set
up, or until a node may be tried again, reconnect.backoff.ms at a time. `metadata/` decides what is due and
what a response means. I/O thread only. Source: MetadataUpdater, ManualMetadataUpdater,
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

#: The shortest wait for a node that is not to be had yet.
_SHORTEST_WAIT_MS: Final = 1


class RefreshFailure(NamedTuple):
    """Why a metadata request came to nothing. `outcome` is one of events.MetadataRefreshFailed's words."""

    outcome: str
    detail: str
    fatal: KafkaError | None = None  # waiters are woken with it


class MetadataClient(Protocol):
    """What an updater asks of NetworkClient."""

    def least_loaded_node(self, now_ms: int, avoid: int | None = None) -> LeastLoadedNode: ...

    def can_send_request(self, node_id: int, now_ms: int) -> bool: ...

    def can_connect(self, node: Node, now_ms: int) -> bool: ...

    def is_any_node_connecting(self) -> bool: ...

    def initiate_connect(self, node: Node, now_ms: int) -> None: ...

    def send_internal_metadata_request(self, builder: RequestBuilder, node_id: int, now_ms: int) -> None: ...


class MetadataUpdater(Protocol):
    """Where NetworkClient learns which nodes there are."""

    def fetch_nodes(self) -> Collection[Node]:
        """The nodes that may be asked."""
        ...

    def is_update_due(self, now_ms: int) -> bool: ...

    def maybe_update(self, now_ms: int, client: MetadataClient) -> int:
        """Begins an update if one is due; returns how long, in ms, until it wants to be asked again."""
        ...

    def handle_server_disconnect(self, now_ms: int, node_id: int, fatal: AuthenticationError | None) -> None:
        """A connection ended, or could not be made; `fatal` if the node refused us."""
        ...

    def handle_failed_request(self, now_ms: int, failure: RefreshFailure) -> None:
        """The updater's own request won't be answered."""
        ...

    def handle_successful_response(self, now_ms: int, answered: InFlightRequest, response: object) -> None:
        """The updater's own request was answered."""
        ...

    def needs_rebootstrap(self, now_ms: int) -> bool:
        """Whether every known node is to be dropped now (KIP-1102)."""
        ...

    def rebootstrap(self, now_ms: int) -> None:
        """Forgets the known nodes and begins again with bootstrap.servers."""
        ...

    def close(self) -> None: ...


class ManualMetadataUpdater:
    """Nodes that a caller sets; never due, deaf to responses and disconnections (UPD-15)."""

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
        """The client's log says enough."""

    def handle_failed_request(self, now_ms: int, failure: RefreshFailure) -> None:
        """Nothing was asked for."""

    def handle_successful_response(self, now_ms: int, answered: InFlightRequest, response: object) -> None:
        """Nothing was asked for."""

    def needs_rebootstrap(self, now_ms: int) -> bool:
        return False

    def rebootstrap(self, now_ms: int) -> None:
        """There is nothing to begin again with."""

    def close(self) -> None:
        """Nothing is held."""


class _InProgress(NamedTuple):
    """The request that is under way."""

    request_version: int
    is_partial: bool
    reason: str
    sent_ms: int
    node_id: int


class DefaultMetadataUpdater:
    """Keeps a Metadata up to date by asking the least loaded node."""

    def __init__(
        self, metadata: Metadata, config: NetworkClientConfig, events: EventSink = NO_EVENTS
    ) -> None:
        self._metadata = metadata
        self._config = config
        #: How soon to look for a node again: reconnect.backoff.ms may be 0, which would burn a core.
        self._look_again_ms = max(config.reconnect_backoff_ms, _SHORTEST_WAIT_MS)
        self._events = events
        self._in_progress: _InProgress | None = None
        #: When the attempts began that have not succeeded yet (UPD-12).
        self._attempt_start_ms: int | None = None
        self._broker_asks_for_rebootstrap = False
        self._has_reported_no_node = False
        #: Whose answer is in doubt: another broker is to be asked next, if there is one that can be.
        self._doubted_node_id: int | None = None
        self._log_limiter = RefreshLogLimiter()

    def __repr__(self) -> str:
        return f"<DefaultMetadataUpdater in_progress={self._in_progress}>"

    @property
    def is_in_progress(self) -> bool:
        """Whether a request is under way. A plain read, for status."""
        return self._in_progress is not None

    def fetch_nodes(self) -> Collection[Node]:
        return self._metadata.fetch().nodes

    def is_update_due(self, now_ms: int) -> bool:
        """Whether a request should go out now: none is under way, and metadata wants one (UPD-01)."""
        return self._in_progress is None and self._metadata.time_to_next_update(now_ms) == 0

    # -- asking ----------------------------------------------------------------------------------------------

    def maybe_update(self, now_ms: int, client: MetadataClient) -> int:
        """Begins an update if one is due; returns how long, in ms, until it wants to be asked again."""
        wait_ms = self._metadata.time_to_next_update(now_ms)
        if self._in_progress is not None:
            wait_ms = max(wait_ms, self._config.request_timeout_ms)
        if wait_ms > 0:
            return wait_ms  # UPD-02
        if self._attempt_start_ms is None:
            self._attempt_start_ms = now_ms
        least_loaded = client.least_loaded_node(now_ms, self._doubted_node_id)
        if self._config.rebootstraps and not least_loaded.has_node_available_or_connection_ready:
            least_loaded = self._choose_again(now_ms, client)
        if least_loaded.node is None:
            self._report_no_node(now_ms)
            return self._look_again_ms  # UPD-03
        return self._ask(least_loaded.node, now_ms, client)

    def _choose_again(self, now_ms: int, client: MetadataClient) -> LeastLoadedNode:
        """No node can be used and no connection is up: begin again with bootstrap.servers (UPD-11).

        Where only these are known there is nothing to forget. Java does it all the same, and says so, at
        every turn of an outage.
        """
        self._log_limiter.no_node(now_ms)
        if self._metadata.fetch().is_bootstrap_configured:
            self._attempt_start_ms = now_ms
        else:
            self.rebootstrap(now_ms)
        return client.least_loaded_node(now_ms)

    def _ask(self, node: Node, now_ms: int, client: MetadataClient) -> int:
        """Sends to the node, or connects to it, or waits; returns for how long."""
        if client.can_send_request(node.id, now_ms):
            asked = self._metadata.new_metadata_request_and_version(now_ms)
            # Before it is sent: sending may fail at once, and that must find and clear it. Java sets it
            # after.
            self._in_progress = _InProgress(
                asked.request_version, asked.is_partial, asked.reason, now_ms, node.id
            )
            self._has_reported_no_node = False
            _log.debug("Sending metadata request (%s) %s to node %s", asked.reason, asked.builder, node)
            client.send_internal_metadata_request(asked.builder, node.id, now_ms)
            return self._config.request_timeout_ms  # UPD-04
        if client.is_any_node_connecting():
            return self._look_again_ms  # UPD-05: one connection at a time is enough
        if client.can_connect(node, now_ms):
            _log.debug("Initialize connection to node %s for sending metadata request", node)
            client.initiate_connect(node, now_ms)
            return self._look_again_ms  # UPD-06
        return FOREVER_MS  # UPD-07: connected but busy, or checking versions; the network will wake us

    def _report_no_node(self, now_ms: int) -> None:
        _log.debug("Give up sending metadata request since no node is available")
        if (
            not self._has_reported_no_node
        ):  # once, not twenty times a second for as long as the cluster is away
            self._has_reported_no_node = True
            self._log_limiter.no_node(now_ms)
            reason = self._metadata.refresh_reason
            self._events.emit(MetadataRefreshFailed(reason, "no_node", "no node is available"))

    # -- what became of it -----------------------------------------------------------------------------------

    def handle_server_disconnect(self, now_ms: int, node_id: int, fatal: AuthenticationError | None) -> None:
        """Metadata may be stale, since a connection ended: asks for an update, after a backoff (UPD-08)."""
        self._doubted_node_id = None
        if self.is_update_due(now_ms):
            self._metadata.failed_update(now_ms)
        if fatal is not None:
            self._metadata.fatal_error(fatal)
        self._metadata.request_update(False, reason="disconnect")

    def handle_failed_request(self, now_ms: int, failure: RefreshFailure) -> None:
        """Lets the backoff begin, and the waiters know if it is fatal (UPD-09)."""
        in_progress, self._in_progress = self._in_progress, None
        if failure.fatal is not None:
            self._metadata.fatal_error(failure.fatal)
        self._failed(now_ms, in_progress, failure.outcome, failure.detail)

    def handle_successful_response(self, now_ms: int, answered: InFlightRequest, response: object) -> None:
        """Applies an answer, or finds it of no use (UPD-10, UPD-13)."""
        if not isinstance(response, MetadataResponse):
            raise IllegalStateError(f"{response!r} is no answer to a metadata request")
        in_progress, self._in_progress = self._in_progress, None
        correlation_id = answered.request.correlation_id
        self._log_limiter.response_came(response, correlation_id, now_ms)
        if response.error_code == Errors.REBOOTSTRAP_REQUIRED.code and self._config.rebootstraps:
            _log.info("Rebootstrap requested by server.")
            self._broker_asks_for_rebootstrap = True
            detail = "the broker asked to begin again with bootstrap.servers"
            self._report_failure(now_ms, in_progress, "error", detail)
        elif not response.brokers:
            # A broker that is just starting knows no brokers yet, itself included.
            _log.debug("Ignoring empty metadata response with correlation id %d.", correlation_id)
            self._failed(now_ms, in_progress, "error", "the response lists no brokers")
        elif in_progress is not None:
            request_version, is_partial = in_progress.request_version, in_progress.is_partial
            # A bootstrap address may be any of the brokers.
            node_id = in_progress.node_id if in_progress.node_id >= 0 else None
            summary = self._metadata.update(request_version, response, is_partial, now_ms, node_id)
            self._doubted_node_id = node_id if self._metadata.is_in_doubt else None
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

    # -- beginning again -------------------------------------------------------------------------------------

    def needs_rebootstrap(self, now_ms: int) -> bool:
        """Whether no update has succeeded for too long (UPD-12), or a broker asks for it (UPD-13)."""
        if self._broker_asks_for_rebootstrap:
            return True
        start_ms = self._attempt_start_ms
        return (
            start_ms is not None
            and self._config.rebootstraps
            and now_ms - start_ms > self._config.rebootstrap_trigger_ms
        )

    def rebootstrap(self, now_ms: int) -> None:
        """Forgets the known brokers; the attempts begin anew (UPD-11, UPD-12)."""
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
