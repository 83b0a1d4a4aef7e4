"""Sends requests to nodes, returns their responses: Kafka's network client.

One `poll` is one turn: request metadata if due, let the selector do its I/O, then handle its reports in
Java's order (NET-08). `send` never connects and never blocks; `ready` connects and never waits. Not here:
sockets (`network/`), when metadata is due (`metadata_updater.py`), connection states (`node_connections.py`).

Unlike in Java, `poll` does not raise for an unreadable or mismatched response. It closes that connection,
logs the reason, and keeps it as the node's last error.

    ACTIVE -> CLOSING (initiate_close, any thread) -> CLOSED (close); close may skip CLOSING

A lock guards this state, because another thread may call `initiate_close` while the I/O thread closes.
I/O thread only, except `wakeup`, `initiate_close`, `active`, `in_flight_request_count()` and `node_statuses`.
Source: NetworkClient, NetworkClient.State, Kafka 4.3.
"""

from __future__ import annotations

import logging
import threading
from enum import Enum
from typing import TYPE_CHECKING, Final

from client_core.client import disconnection
from client_core.client.api_versions import client_throttles
from client_core.client.connection_ends import ConnectionEnds
from client_core.client.credential_renewal import CredentialRenewal
from client_core.client.kafka_client import SILENT_MS, ClientResponse
from client_core.client.metadata_updater import RefreshFailure
from client_core.client.node_connections import NodeConnections, choose_least_loaded
from client_core.client.request_sender import RequestSender
from client_core.client.response_parsing import parse_response
from client_core.errors import DisconnectError, IllegalArgumentError, IllegalStateError, ProtocolError
from client_core.events import NO_EVENTS
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.request import throttle_time_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from random import Random

    from client_core.client.connection_status import ConnectionStatus
    from client_core.client.host_resolver import NodeResolver
    from client_core.client.in_flight_requests import InFlightRequest
    from client_core.client.kafka_client import ClientRequest, LeastLoadedNode
    from client_core.client.metadata_updater import MetadataUpdater
    from client_core.client.network_client_config import NetworkClientConfig
    from client_core.cluster import Node
    from client_core.errors import AuthenticationError
    from client_core.events import EventSink
    from client_core.network.selectable import CredentialsVersion, Selectable
    from client_core.protocol.request import RequestBuilder


_log = logging.getLogger(__name__)


class Life(Enum):
    """The states of a client."""

    ACTIVE = "ACTIVE"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"


_ALLOWED_MOVES: Final = {
    Life.ACTIVE: frozenset({Life.CLOSING, Life.CLOSED}),
    Life.CLOSING: frozenset({Life.CLOSED}),
    Life.CLOSED: frozenset[Life](),
}


class ClientLife:
    """One client's state. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = Life.ACTIVE

    def __str__(self) -> str:
        return self._state.value

    @property
    def is_active(self) -> bool:
        return self._state is Life.ACTIVE

    def move_to(self, state: Life) -> bool:
        """Changes the state if the move is allowed; of concurrent callers, True for one only."""
        with self._lock:
            is_allowed = state in _ALLOWED_MOVES[self._state]
            if is_allowed:
                self._state = state
            return is_allowed

    def ensure_active(self) -> None:
        """Raises DisconnectError when closing has begun (NET-25)."""
        if self._state is not Life.ACTIVE:
            raise DisconnectError(f"NetworkClient is no longer active, state is {self._state.value}")


class NetworkClient:
    """KafkaClient over a Selectable; also the updater's MetadataClient."""

    def __init__(
        self,
        selector: Selectable,
        metadata_updater: MetadataUpdater,
        config: NetworkClientConfig,
        resolver: NodeResolver,
        random: Random,
        events: EventSink = NO_EVENTS,
        credentials: Callable[[], CredentialsVersion] | None = None,
    ) -> None:
        """`credentials` returns the current credentials' version; None: they never change."""
        self._selector = selector
        self._metadata_updater = metadata_updater
        self._config = config
        self._random = random
        self._connections = NodeConnections(selector, config, resolver, random, events)
        self._states = self._connections.states
        self._requests = RequestSender(selector, self._connections, config, events)
        self._in_flight = self._requests.in_flight
        self.new_client_request: Final = self._requests.new_client_request
        self.has_ready_nodes: Final = self._states.has_ready_nodes
        self.in_flight_request_count: Final = self._in_flight.count
        self.wakeup: Final = selector.wakeup
        self._ends = ConnectionEnds(selector, self._connections, self._requests, metadata_updater)
        self._aborted_sends: list[ClientResponse] = []
        #: Connections to bootstrap.servers, until broker ids are known.
        self._bootstrap_ids: set[int] = set()
        #: Whether a caller was refused a node because of a due update, which the next poll sends.
        self._refused_for_update = False
        self._now_ms = 0  # the latest time from the caller or the selector
        #: How long polls have slept since the start.
        self.waited_ms = 0
        self._life = ClientLife()
        self._renewal = (
            None
            if credentials is None
            else CredentialRenewal(
                credentials,
                selector,
                self._states,
                self._ends,
                self._in_flight,
                metadata_updater.fetch_nodes,
                random,
                events,
            )
        )

    def __repr__(self) -> str:
        nodes, in_flight = len(self._states.nodes), self._in_flight.count()
        return f"<NetworkClient {self._life} nodes={nodes} in_flight={in_flight}>"

    # -- readiness and status --------------------------------------------------------------------------------

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Returns whether a request may be sent now; never while a metadata update is due (NET-02)."""
        if self._metadata_updater.is_update_due(now_ms):
            self._refused_for_update = True
            return False
        return self.can_send_request(node.id, now_ms)

    def ready(self, node: Node, now_ms: int) -> bool:
        """Returns as is_ready; if not ready, starts to connect if the backoff allows it (NET-03)."""
        if node.is_empty:
            raise IllegalArgumentError(f"Cannot connect to empty node {node}")  # NET-01
        if self.is_ready(node, now_ms):
            return True
        if self._states.can_connect(node.id, now_ms):
            self.initiate_connect(node, now_ms)
        return False

    def can_send_request(self, node_id: int, now_ms: int) -> bool:
        """Returns whether the connection is ready, not throttled, and can take another request (NET-04)."""
        return (
            self._states.is_ready(node_id, now_ms)
            and self._in_flight.can_send_more(node_id)
            and self._selector.is_channel_ready(node_id)
        )

    def can_connect(self, node: Node, now_ms: int) -> bool:
        """Returns whether a connection to the node may start now (CONN-01)."""
        return self._states.can_connect(node.id, now_ms)

    def is_any_node_connecting(self) -> bool:
        """Returns whether a connection to any node in metadata is being set up (UPD-05).

        Ignores nodes with slow look-ups: a hanging resolver must not delay the others.
        """
        setting_up = self._states.connecting_nodes - self._connections.slowly_resolving(self._now_ms)
        if not setting_up:
            return False
        return any(node.id in setting_up for node in self._metadata_updater.fetch_nodes())

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        return self._states.connection_delay_ms(node.id, now_ms)

    def throttle_delay_ms(self, node: Node, now_ms: int) -> int:
        """Returns the remaining throttle time of the node, in ms."""
        return self._states.throttle_delay_ms(node.id, now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return self._states.poll_delay_ms(node.id, now_ms)

    def connection_failed(self, node: Node) -> bool:
        return self._states.is_disconnected(node.id)

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        return self._states.authentication_error(node.id)

    def has_in_flight_requests(self, node_id: int | None = None) -> bool:
        return not self._in_flight.is_empty(node_id)

    def node_statuses(self, now_ms: int) -> tuple[ConnectionStatus, ...]:
        """Returns every connection at this moment. Any thread."""
        return self._connections.statuses(now_ms, self._in_flight)

    def least_loaded_node(self, now_ms: int, avoid: int | None = None) -> LeastLoadedNode:
        """Returns the least loaded node, or none (NET-20, NET-21); the order starts at random.

        Returns the node `avoid` only if no other is available.
        """
        return self._least_loaded(now_ms, (avoid,))

    def answering_node(self, now_ms: int, avoid: int | None = None) -> Node | None:
        """Returns the least loaded node that is not silent; if there is none, as least_loaded_node."""
        return self._least_loaded(now_ms, (*self.silent_nodes(now_ms), avoid)).node

    def silent_nodes(self, now_ms: int) -> Sequence[int]:
        """Returns the nodes that have left a request or a connection unanswered for SILENT_MS."""
        since_ms = now_ms - SILENT_MS
        return (*self._states.connecting_since(since_ms), *self._in_flight.nodes_unanswered_since(since_ms))

    def _least_loaded(self, now_ms: int, avoid: Collection[int | None]) -> LeastLoadedNode:
        nodes = list(self._metadata_updater.fetch_nodes())
        if not nodes:
            raise IllegalStateError("There are no nodes in the Kafka cluster")
        start = self._random.randrange(len(nodes))
        nodes = nodes[start:] + nodes[:start]
        others = [node for node in nodes if node.id not in avoid]
        if len(others) < len(nodes):
            chosen = self._choose_among(others, now_ms)
            if chosen.node is not None:
                return chosen
        return self._choose_among(nodes, now_ms)

    def _choose_among(self, nodes: Sequence[Node], now_ms: int) -> LeastLoadedNode:
        is_ready, slow = self._selector.is_channel_ready, self._connections.slowly_resolving(now_ms)
        return choose_least_loaded(nodes, now_ms, self._states, self._in_flight, is_ready, slow)

    # -- connect and disconnect ------------------------------------------------------------------------------

    def initiate_connect(self, node: Node, now_ms: int) -> None:
        """Starts to connect; an immediate failure is a disconnection, not an exception (NET-22)."""
        self._now_ms = now_ms
        if node.id < 0:
            self._bootstrap_ids.add(node.id)
        prevented = self._connections.connect(node, now_ms)
        if prevented is not None:
            self._ends.process([], node.id, now_ms, prevented)

    def disconnect(self, node_id: int) -> None:
        """Closes a connection; its requests are answered as disconnected by the next poll (NET-19)."""
        if not self._is_open(node_id):
            _log.debug("Client requested disconnect from node %d, which is not connected", node_id)
            return
        self._ends.disconnect(self._aborted_sends, node_id, self._now_ms)

    def close_node(self, node_id: int) -> None:
        """Closes a connection and forgets it; its requests are dropped unanswered (NET-19)."""
        self._ends.drop(node_id, self._now_ms)

    def _is_open(self, node_id: int) -> bool:
        """Returns whether there is a connection, or one is being set up."""
        state = self._states.get(node_id)
        return state is not None and not state.is_disconnected

    # -- sending ---------------------------------------------------------------------------------------------

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Queues a caller's request. Raises IllegalStateError if the node is not ready (NET-05)."""
        self._life.ensure_active()
        if not self.can_send_request(request.destination, now_ms):
            raise IllegalStateError(
                f"Attempt to send a request to node {request.destination} which is not ready."
            )
        self._now_ms = now_ms
        refusal = self._requests.send(request, now_ms, is_internal=False)
        if refusal is not None:  # the next poll returns it (NET-07)
            version = request.builder.latest_allowed_version
            self._aborted_sends.append(ClientResponse(request, version, now_ms, 0, version_mismatch=refusal))

    def send_internal_metadata_request(self, builder: RequestBuilder, node_id: int, now_ms: int) -> None:
        """Queues the updater's own request; only the updater gets its response."""
        self._life.ensure_active()
        request = self.new_client_request(node_id, builder, now_ms, expect_response=True)
        self._now_ms = now_ms
        refusal = self._requests.send(request, now_ms, is_internal=True)
        if refusal is not None:  # fatal for callers that wait for metadata (NET-07)
            failure = RefreshFailure("error", str(refusal), fatal=refusal)
            self._metadata_updater.handle_failed_request(now_ms, failure)

    # -- one turn --------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int, now_ms: int) -> Sequence[ClientResponse]:
        """Runs one turn; returns the responses, after calling each one's handler.

        Waits at most timeout_ms and request.timeout.ms, and not past the next metadata update (NET-09).
        Returns requests aborted since the last turn at once, without any I/O (NET-07, NET-08).
        """
        self._life.ensure_active()
        self._now_ms = now_ms
        if self._aborted_sends:
            responses, self._aborted_sends = self._aborted_sends, []
        else:
            metadata_timeout_ms = self._metadata_updater.maybe_update(now_ms, self)
            if self._connections.has_changed:
                self._connections.publish()
            wait_ms = min(timeout_ms, metadata_timeout_ms, self._config.request_timeout_ms)
            if self._states.connecting_nodes:
                wait_ms = min(wait_ms, self._states.until_next_address_ms(now_ms))
            if self._renewal is not None:
                wait_ms = min(wait_ms, self._renewal.wait_ms(now_ms))
            # A request without a response is complete as soon as it is written (NET-10). So is the wait of
            # a caller whose node was only not ready because of an update that was due.
            writes_end_it = self._requests.sent_silent or self._refused_for_update
            self._requests.sent_silent = self._refused_for_update = False
            try:
                now_ms = self._selector.poll(wait_ms, writes_end_it=writes_end_it)
            finally:
                self.waited_ms = self._selector.waited_ms
            responses = self._handle_poll_results(now_ms)
        for response in responses:
            response.complete()
        return responses

    def _handle_poll_results(self, now_ms: int) -> list[ClientResponse]:
        """Handles all selector reports in Java's order (NET-08); `now_ms` is after the wait."""
        self._now_ms = now_ms
        selector = self._selector
        responses: list[ClientResponse] = []
        try:
            if selector.completed_sends:
                self._handle_completed_sends(responses, now_ms)
            if selector.completed_receives:
                self._handle_completed_receives(responses, now_ms)
            if selector.disconnected:
                self._handle_disconnections(responses, now_ms)
            if selector.connected:
                self._handle_connections()
            if self._connections.needing_api_versions:
                self._handle_initiate_api_version_requests(now_ms)
            if self._connections.resolving:
                self._handle_resolved_names(responses, now_ms)
            if self._states.connecting_nodes:
                self._handle_timed_out_connections(responses, now_ms)
            if now_ms > self._in_flight.nothing_expires_before_ms:
                self._handle_timed_out_requests(responses, now_ms)
            if self._metadata_updater.needs_rebootstrap(now_ms):
                self._handle_rebootstrap(responses, now_ms)
            if self._bootstrap_ids:
                self._leave_bootstrap_servers()
            if self._renewal is not None and self._renewal.is_due(now_ms):
                self._renewal.turn(now_ms)
            if self._connections.has_changed:
                self._connections.publish()
        except BaseException:
            # A bug, maybe a listener's. These requests have ended: without this, no caller would know.
            self._aborted_sends[:0] = responses
            raise
        return responses

    def _handle_completed_sends(self, responses: list[ClientResponse], now_ms: int) -> None:
        """Completes requests that expect no response (acks=0) when they are sent (NET-10)."""
        for send in self._selector.completed_sends:
            newest = self._in_flight.last_sent(send.node_id)
            newest.send_completed = True
            if not newest.request.expect_response:
                self._in_flight.complete_last_sent(send.node_id)
                responses.append(self._requests.answered(newest, now_ms))

    def _handle_completed_receives(self, responses: list[ClientResponse], now_ms: int) -> None:
        """Completes a node's oldest request with each frame, or ends the connection (NET-11)."""
        for receive in tuple(self._selector.completed_receives):
            node_id = receive.node_id
            if not self._is_open(node_id):
                continue  # closed by an earlier frame of this turn
            try:
                body = parse_response(receive.payload, self._in_flight.oldest(node_id))
            except ProtocolError as error:
                ended = disconnection.protocol_error(str(error))
                self._ends.close_and_process(responses, node_id, now_ms, ended)
                continue
            answered = self._in_flight.complete_next(node_id)
            throttle_ms = throttle_time_ms(body)
            self._maybe_throttle(answered, throttle_ms, now_ms)
            payload_bytes = len(receive.payload) if answered.pieces is None else answered.pieces.frame_bytes
            response = self._requests.answered(
                answered, now_ms, body=body, payload_bytes=payload_bytes, throttle_ms=throttle_ms
            )
            if answered.is_internal and isinstance(body, ApiVersionsResponse):
                self._handle_api_versions_response(responses, answered, body, now_ms)
                continue
            self._connections.served(node_id)
            if answered.is_internal:
                self._metadata_updater.handle_successful_response(now_ms, answered, body)
            else:
                responses.append(response)

    def _maybe_throttle(self, answered: InFlightRequest, throttle_ms: int, now_ms: int) -> None:
        """Throttles the node as its broker requests, and extends the timeouts in flight (NET-12)."""
        request = answered.request
        if throttle_ms > 0 and client_throttles(request.builder.api, answered.version):
            self._in_flight.increment_throttle_ms(request.destination, throttle_ms)
            self._connections.throttle(request.destination, throttle_ms, now_ms)

    def _handle_api_versions_response(
        self,
        responses: list[ClientResponse],
        answered: InFlightRequest,
        body: ApiVersionsResponse,
        now_ms: int,
    ) -> None:
        node_id = answered.request.destination
        refused = self._connections.api_versions_answered(node_id, body, answered.version)
        if refused is not None:
            self._ends.close_and_process(responses, node_id, now_ms, refused)

    def _handle_disconnections(self, responses: list[ClientResponse], now_ms: int) -> None:
        for node_id, channel in self._selector.disconnected.items():
            # Skip nodes that this turn has closed: one end must not count as two failures.
            if not self._is_open(node_id):
                continue
            ended = disconnection.from_channel(channel)
            if ended.reason == "refused" and self._states.has_untried_address(node_id):
                self._try_next_address(responses, node_id, now_ms)
            elif ended.reason != "refused" or not self._connections.is_waiting_for_others(node_id, now_ms):
                self._ends.close_and_process(responses, node_id, now_ms, ended)

    def _handle_connections(self) -> None:
        for node_id in self._selector.connected:
            if self._is_open(node_id):  # else it ended within this turn
                self._connections.connected(node_id)

    def _handle_initiate_api_version_requests(self, now_ms: int) -> None:
        for node_id in tuple(self._connections.needing_api_versions):
            if self._selector.is_channel_ready(node_id) and self._in_flight.can_send_more(node_id):
                question = self._connections.check_api_versions(node_id)
                request = self.new_client_request(node_id, question, now_ms, expect_response=True)
                self._requests.send(request, now_ms, is_internal=True)

    def _handle_resolved_names(self, responses: list[ClientResponse], now_ms: int) -> None:
        """Connects nodes whose names are resolved. Java waits for DNS in `initiate_connect`."""
        for node in tuple(self._connections.resolving.values()):
            prevented = self._connections.open(node, now_ms)
            if prevented is not None:
                self._ends.process(responses, node.id, now_ms, prevented)

    def _handle_timed_out_connections(self, responses: list[ClientResponse], now_ms: int) -> None:
        for node_id in self._states.nodes_with_connection_setup_timeout(now_ms):
            timeout_ms = self._states.connection_setup_timeout_ms(node_id)
            unresolved = self._connections.resolving.get(node_id)
            if unresolved is None:
                where = self._connections.where(node_id)
                awaits_token = self._selector.awaits_credentials(node_id)
                ended = disconnection.setup_timeout(where, timeout_ms, awaits_token=awaits_token)
            else:
                ended = disconnection.resolve_timeout(unresolved.host, timeout_ms)
            self._ends.close_and_process(responses, node_id, now_ms, ended)  # NET-17
        for node_id in self._states.nodes_with_address_due(now_ms):
            self._try_next_address(responses, node_id, now_ms)

    def _try_next_address(self, responses: list[ClientResponse], node_id: int, now_ms: int) -> None:
        prevented = self._connections.open_next_address(node_id, now_ms)
        if prevented is not None:
            self._ends.close_and_process(responses, node_id, now_ms, prevented)

    def _handle_timed_out_requests(self, responses: list[ClientResponse], now_ms: int) -> None:
        for node_id in self._in_flight.nodes_with_timed_out_requests(now_ms):
            ended = disconnection.request_timeout()
            self._ends.close_and_process(responses, node_id, now_ms, ended)  # NET-18

    def _handle_rebootstrap(self, responses: list[ClientResponse], now_ms: int) -> None:
        """Drops every known broker: metadata is overdue, or a broker requested it (UPD-12, UPD-13)."""
        updater = self._metadata_updater
        for node in updater.fetch_nodes():
            if self._is_open(node.id):
                ended = disconnection.local("the client restarts from bootstrap.servers")
                self._ends.close_and_process(responses, node.id, now_ms, ended)
        updater.rebootstrap(now_ms)

    def _leave_bootstrap_servers(self) -> None:
        """Closes connections to bootstrap.servers, unneeded once metadata lists broker ids.

        Java keeps them until they are idle for nine minutes. With a sidecar in every pod, a broker would hold
        one more connection per pod.
        """
        if not any(node.id >= 0 for node in self._metadata_updater.fetch_nodes()):
            return
        for node_id in tuple(self._bootstrap_ids):
            if self._in_flight.is_empty(node_id):
                self._bootstrap_ids.discard(node_id)
                if self._is_open(node_id):
                    self._ends.leave(node_id, self._now_ms)

    # -- close -----------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        return self._life.is_active

    def initiate_close(self) -> None:
        """Makes the next send or poll raise DisconnectError (NET-25). Any thread."""
        if self._life.move_to(Life.CLOSING):
            self.wakeup()

    def close(self) -> None:
        """Closes connections and updater, after the I/O thread ended; a second call only warns (NET-25)."""
        if not self._life.move_to(Life.CLOSED):
            _log.warning("Attempting to close NetworkClient that has already been closed.")
            return
        self._selector.close()
        self._metadata_updater.close()
