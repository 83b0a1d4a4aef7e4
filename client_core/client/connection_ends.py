"""Handles the end of a connection: backoff, failed requests, metadata refresh (NET-13).

NetworkClient calls this for connections that the selector reports as closed, and for those that it closes
itself. No request is lost: a caller's gets a disconnected response, and the metadata updater is notified
of its own. Only `drop` leaves requests unanswered, as in Java. Not here: why a connection ended
(`disconnection.py`) and its state (`node_connections.py`). I/O thread only. Source:
NetworkClient.processDisconnection, cancelInFlightRequests, Kafka 4.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from client_core.client import disconnection
from client_core.client.metadata_updater import RefreshFailure
from client_core.client.node_connection_state import TRIAL_NODE_ID
from client_core.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from client_core.client.disconnection import Disconnection
    from client_core.client.kafka_client import ClientResponse
    from client_core.client.metadata_updater import MetadataUpdater
    from client_core.client.node_connections import NodeConnections
    from client_core.client.request_sender import RequestSender
    from client_core.cluster import Node
    from client_core.network.selectable import Selectable

_log = logging.getLogger(__name__)


class ConnectionEnds:
    """Ends the connections of one NetworkClient. Methods append callers' responses to `responses`."""

    def __init__(
        self,
        selector: Selectable,
        connections: NodeConnections,
        requests: RequestSender,
        metadata_updater: MetadataUpdater,
    ) -> None:
        self._selector = selector
        self._connections = connections
        self._requests = requests
        self._in_flight = requests.in_flight
        self._metadata_updater = metadata_updater

    def process(
        self, responses: list[ClientResponse], node_id: int, now_ms: int, ended: Disconnection
    ) -> None:
        """Handles a connection that has ended."""
        in_flight = self._in_flight.count(node_id)
        ended = self._connections.explained(node_id, ended, in_flight)
        self._connections.end(node_id, now_ms, ended, in_flight)
        self._cancel_in_flight(responses, node_id, now_ms, ended)
        if node_id == TRIAL_NODE_ID:
            return  # the other connections still work, and metadata is still valid
        self._metadata_updater.handle_server_disconnect(now_ms, node_id, ended.authentication_error)

    def close_and_process(
        self, responses: list[ClientResponse], node_id: int, now_ms: int, ended: Disconnection
    ) -> None:
        """Closes the connection first: the selector does not report such an end."""
        self._selector.close_connection(node_id)
        self.process(responses, node_id, now_ms, ended)

    def disconnect(self, responses: list[ClientResponse], node_id: int, now_ms: int) -> None:
        """Ends a connection at a caller's request: metadata stays valid (NET-19)."""
        ended = disconnection.local("the client asked to disconnect")
        self._selector.close_connection(node_id)
        self._connections.end(node_id, now_ms, ended, self._in_flight.count(node_id))
        self._cancel_in_flight(responses, node_id, now_ms, ended)

    def drop(self, node_id: int, now_ms: int) -> None:
        """Ends a connection and forgets the node; its requests are dropped unanswered (NET-19)."""
        _log.info("Client requested connection close from node %d", node_id)
        self._selector.close_connection(node_id)
        dropped = disconnection.local("the client closed the connection")
        self._cancel_in_flight([], node_id, now_ms, dropped)
        self._connections.forget(node_id)

    def leave(self, node_id: int, now_ms: int) -> None:
        """Closes an unneeded connection with nothing in flight."""
        self._selector.close_connection(node_id)
        self._connections.leave(node_id, now_ms)

    # -- new credentials (`credential_renewal.py`) -----------------------------------------------------------

    def renew(self, node: Node, now_ms: int) -> None:
        """Closes a connection that has nothing in flight, and connects again at once."""
        self._selector.close_connection(node.id)
        prevented = self._connections.renew(node, now_ms)
        if prevented is not None:
            self.process([], node.id, now_ms, prevented)

    def begin_trial(self, node: Node, now_ms: int) -> None:
        """Opens a second connection to a broker; `node` is TRIAL_NODE_ID at its address."""
        prevented = self._connections.connect(node, now_ms)
        if prevented is not None:
            self.process([], node.id, now_ms, prevented)

    def end_trial(self, now_ms: int) -> None:
        """Closes that connection, if it is still open, and removes its state."""
        self._selector.close_connection(TRIAL_NODE_ID)
        ended = disconnection.local("the trial of new credentials has ended")
        self._cancel_in_flight([], TRIAL_NODE_ID, now_ms, ended)
        self._connections.forget(TRIAL_NODE_ID)

    def _cancel_in_flight(
        self, responses: list[ClientResponse], node_id: int, now_ms: int, ended: Disconnection
    ) -> None:
        """Completes callers' requests as disconnected, oldest first, and notifies the updater of its own."""
        for cancelled, response in self._requests.cancel_all(node_id, now_ms, ended):
            if not cancelled.is_internal:
                responses.append(response)
            elif cancelled.request.builder.api is ApiKey.METADATA:
                outcome = "timeout" if ended.timed_out else "error"
                self._metadata_updater.handle_failed_request(now_ms, RefreshFailure(outcome, ended.detail))
