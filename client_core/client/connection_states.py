"""All nodes' connection states: whether, when and to which address to connect.

Two waits grow per node. The reconnect backoff grows with every failure, and only READY resets it (CONN-02).
The set-up timeout grows with failures while CONNECTING, and any later state resets it (CONN-03). The states
and allowed moves are in `node_connection_state.py`. I/O thread only. Source: ClusterConnectionStates, Kafka
4.3 (KIP-144, KIP-601, KIP-602).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from client_core.backoff import ExponentialBackoff
from client_core.client.connection_status import ConnectionFacts
from client_core.client.node_connection_state import ConnectionFailures, ConnectionState, NodeConnectionState
from client_core.clock import FOREVER_MS
from client_core.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from random import Random

    from client_core.client.disconnection import Disconnection
    from client_core.client.host_resolver import NodeResolver
    from client_core.errors import AuthenticationError

_log = logging.getLogger(__name__)


class ClusterConnectionStates:
    """The connections by node id. I/O thread only."""

    def __init__(
        self,
        reconnect_backoff: ExponentialBackoff,
        connection_setup_timeout: ExponentialBackoff,
        resolver: NodeResolver,
    ) -> None:
        self._reconnect_backoff = reconnect_backoff
        self._connection_setup_timeout = connection_setup_timeout
        self._resolver = resolver
        self._nodes: dict[int, NodeConnectionState] = {}
        #: Nodes in CONNECTING. Only this class changes it.
        self.connecting_nodes: Final[set[int]] = set()
        #: Nodes that failed after the last time that any node became READY.
        self._failed_since_ready: set[int] = set()

    @staticmethod
    def from_settings(
        reconnect_backoff_ms: int,
        reconnect_backoff_max_ms: int,
        connection_setup_timeout_ms: int,
        connection_setup_timeout_max_ms: int,
        resolver: NodeResolver,
        random: Random,
    ) -> ClusterConnectionStates:
        """States with waits from Kafka's four settings."""
        return ClusterConnectionStates(
            ExponentialBackoff(reconnect_backoff_ms, reconnect_backoff_max_ms, random),
            ExponentialBackoff(connection_setup_timeout_ms, connection_setup_timeout_max_ms, random),
            resolver,
        )

    @property
    def nodes(self) -> Collection[NodeConnectionState]:
        """Every connection that was attempted and not removed."""
        return self._nodes.values()

    def get(self, node_id: int) -> NodeConnectionState | None:
        return self._nodes.get(node_id)

    # -- when to connect -------------------------------------------------------------------------------------

    def can_connect(self, node_id: int, now_ms: int) -> bool:
        """Returns whether a connect is allowed: unknown, or disconnected and past its backoff (CONN-01)."""
        node = self._nodes.get(node_id)
        return node is None or (node.is_disconnected and node.backoff_left_ms(now_ms) == 0)

    def is_blacked_out(self, node_id: int, now_ms: int) -> bool:
        """Returns whether the node is disconnected and within its backoff."""
        node = self._nodes.get(node_id)
        return node is not None and node.is_disconnected and node.backoff_left_ms(now_ms) > 0

    def connection_delay_ms(self, node_id: int, now_ms: int) -> int:
        """Milliseconds until the caller should check again (CONN-04).

        Never 0 while CONNECTING, or the sender would spin. The event that ends CONNECTING wakes the poll.
        """
        node = self._nodes.get(node_id)
        if node is None:
            return 0
        if node.state is ConnectionState.CONNECTING:
            return node.connection_setup_timeout_ms
        return node.backoff_left_ms(now_ms) if node.is_disconnected else FOREVER_MS

    def throttle_delay_ms(self, node_id: int, now_ms: int) -> int:
        node = self._nodes.get(node_id)
        return 0 if node is None else node.throttle_delay_ms(now_ms)

    def poll_delay_ms(self, node_id: int, now_ms: int) -> int:
        """Returns the remaining throttle time of a connected node, else connection_delay_ms (CONN-05)."""
        node = self._nodes.get(node_id)
        if node is not None and node.is_connected:
            throttle_ms = node.throttle_delay_ms(now_ms)
            if throttle_ms > 0:
                return throttle_ms
        return self.connection_delay_ms(node_id, now_ms)

    def last_connect_attempt_ms(self, node_id: int) -> int | None:
        """Returns the time of the last attempt or disconnection; None if the node was never tried."""
        node = self._nodes.get(node_id)
        return None if node is None else node.last_connect_attempt_ms

    def connecting_since(self, ms: int) -> Sequence[int]:
        """Returns the nodes to which the present connection was begun at that time or before."""
        nodes = self._nodes
        return [one for one in self.connecting_nodes if nodes[one].last_connect_attempt_ms <= ms]

    # -- current state ---------------------------------------------------------------------------------------

    def is_connecting(self, node_id: int) -> bool:
        return node_id in self.connecting_nodes

    def is_preparing_connection(self, node_id: int) -> bool:
        """Returns whether the node is CONNECTING or CHECKING_API_VERSIONS."""
        node = self._nodes.get(node_id)
        return node is not None and node.is_preparing

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and node.is_ready(now_ms)

    def is_up(self, node_id: int) -> bool:
        """Returns whether the connection is READY, even if throttled."""
        node = self._nodes.get(node_id)
        return node is not None and node.state is ConnectionState.READY

    def has_ready_nodes(self, now_ms: int) -> bool:
        return any(node.is_ready(now_ms) for node in self._nodes.values())

    def is_connected(self, node_id: int) -> bool:
        node = self._nodes.get(node_id)
        return node is not None and node.is_connected

    def is_disconnected(self, node_id: int) -> bool:
        """Returns whether the last attempt failed or the connection ended; False for a node never tried."""
        node = self._nodes.get(node_id)
        return node is not None and node.is_disconnected

    def authentication_error(self, node_id: int) -> AuthenticationError | None:
        """Returns why the node rejected authentication; kept until it is READY (CONN-12)."""
        node = self._nodes.get(node_id)
        return None if node is None else node.authentication_error

    def connection_state(self, node_id: int) -> ConnectionState:
        return self._node(node_id).state

    def connection_setup_timeout_ms(self, node_id: int) -> int:
        return self._node(node_id).connection_setup_timeout_ms

    def nodes_with_connection_setup_timeout(self, now_ms: int) -> Sequence[int]:
        """Returns the nodes that have been CONNECTING for longer than their timeout (CONN-07)."""
        return [node_id for node_id in self.connecting_nodes if self._is_setup_timed_out(node_id, now_ms)]

    def nodes_with_address_due(self, now_ms: int) -> Sequence[int]:
        """Returns the nodes that are to try another address, because none has accepted (CONN-14)."""
        return [node_id for node_id in self.connecting_nodes if self._is_address_due(node_id, now_ms)]

    def until_next_address_ms(self, now_ms: int) -> int:
        """Returns the time until the first of them is due; FOREVER_MS if none will be."""
        due = (self._nodes[node_id].address_due_ms for node_id in self.connecting_nodes)
        return max(min((due_ms for due_ms in due if due_ms is not None), default=FOREVER_MS) - now_ms, 0)

    def has_untried_address(self, node_id: int) -> bool:
        """Returns whether the node is CONNECTING, and this attempt has not tried all addresses."""
        return node_id in self.connecting_nodes and self._nodes[node_id].has_untried_address

    def try_next_address(self, node_id: int, under_way: Collection[str]) -> bool:
        """Moves a CONNECTING node to its next address within this attempt; False if all are under way."""
        return node_id in self.connecting_nodes and self._nodes[node_id].try_next_address(under_way)

    def is_patient(self, node_id: int, now_ms: int) -> bool:
        """Returns whether slow addresses of the node get more time, although others have refused."""
        return self._node(node_id).is_patient(now_ms)

    def race_addresses(self, node_id: int, now_ms: int) -> None:
        """Notes that the node's current address is being connected to."""
        self._node(node_id).race(now_ms)

    def address_accepted(self, node_id: int, remote_address: str) -> None:
        """Notes which address has accepted (host:port). TLS and SASL may take longer."""
        self._node(node_id).accepted_by(remote_address)

    def current_address(self, node_id: int) -> str | None:
        """Returns the address for the current attempt; None while the name is being resolved.

        Raises OSError when the name can't be resolved.
        """
        return self._node(node_id).current_address()

    # -- state changes ---------------------------------------------------------------------------------------

    def connecting(self, node_id: int, now_ms: int, host: str, port: int = 0) -> None:
        """Starts an attempt at the next address; a changed host resets the state (CONN-08, CONN-11)."""
        node = self._nodes.get(node_id)
        if node is not None and node.host == host:
            if self._begins_new_run(node, now_ms):
                node.failures = None
            node.move_to(ConnectionState.CONNECTING)
            node.port = port
            node.last_connect_attempt_ms = now_ms
            node.move_to_next_address()
        else:
            if node is not None:
                _log.info("Hostname for node %d changed from %s to %s", node_id, node.host, host)
            self._nodes[node_id] = NodeConnectionState(
                node_id,
                host,
                port,
                now_ms,
                self._reconnect_backoff.backoff_ms(0),
                self._connection_setup_timeout.backoff_ms(0),
                self._resolver,
            )
        self.connecting_nodes.add(node_id)

    def disconnected(self, node_id: int, now_ms: int) -> None:
        """Starts the backoff, after a failed attempt or a disconnection (CONN-01)."""
        node = self._node(node_id)
        was = node.state
        node.move_to(ConnectionState.DISCONNECTED)
        node.address_due_ms = None
        node.is_held = False
        node.last_connect_attempt_ms = now_ms
        self._grow_reconnect_backoff(node)
        if was is ConnectionState.CONNECTING:
            node.failed_connect_attempts += 1
            failures = node.failed_connect_attempts
            node.connection_setup_timeout_ms = self._connection_setup_timeout.backoff_ms(failures)
            self.connecting_nodes.discard(node_id)
        else:
            self._reset_connection_setup_timeout(node)
            # It was up, so its address may have changed since: resolve again (CONN-09).
            node.clear_addresses()

    def throttle(self, node_id: int, until_ms: int) -> None:
        """Pauses a node; never shortens its pause, ignores an unknown node (CONN-06)."""
        node = self._nodes.get(node_id)
        if node is not None and (node.throttle_until_ms is None or node.throttle_until_ms < until_ms):
            node.throttle_until_ms = until_ms

    def hold(self, node_id: int) -> None:
        """Sends nothing more on this connection; the next one is not held."""
        self._node(node_id).is_held = True

    def release(self, node_id: int) -> None:
        """Allows requests on this connection again."""
        node = self.get(node_id)
        if node is not None:
            node.is_held = False

    def checking_api_versions(self, node_id: int) -> None:
        """ApiVersions is being sent: connection set-up is complete (CONN-03)."""
        node = self._node(node_id)
        node.move_to(ConnectionState.CHECKING_API_VERSIONS)
        self._reset_connection_setup_timeout(node)
        self.connecting_nodes.discard(node_id)

    def ready(self, node_id: int) -> None:
        """Allows requests and resets all failure counts (CONN-02)."""
        node = self._node(node_id)
        node.move_to(ConnectionState.READY)
        node.authentication_error = None
        node.failures = None
        self._failed_since_ready.clear()
        node.failed_attempts = 0
        node.reconnect_backoff_ms = self._reconnect_backoff.backoff_ms(0)
        self._reset_connection_setup_timeout(node)
        self.connecting_nodes.discard(node_id)

    def authentication_failed(self, node_id: int, now_ms: int, error: AuthenticationError) -> None:
        """Notes a failed authentication: the backoff grows once more than for a disconnection (CONN-12)."""
        node = self._node(node_id)
        node.move_to(ConnectionState.AUTHENTICATION_FAILED)
        node.authentication_error = error
        node.last_connect_attempt_ms = now_ms
        self._grow_reconnect_backoff(node)
        self.connecting_nodes.discard(node_id)

    def failed(self, node_id: int, now_ms: int, ended: Disconnection) -> None:
        """Keeps the last error and its time, and counts the failures of this run, for status."""
        node = self._node(node_id)
        node.last_error = ended.detail
        node.last_error_ms = now_ms
        error = ended.error
        if error is None:
            return
        self._failed_since_ready.add(node_id)
        before = node.failures
        attempts, since_ms = (1, now_ms) if before is None else (before.attempts + 1, before.since_ms)
        node.failures = ConnectionFailures(ended.reason, error, attempts, since_ms, ended.detail)
        if ended.authentication_error is not None:  # it fails the waits for metadata, at once and as it is
            ended.authentication_error.cause = ConnectionFacts.of(node).cause(now_ms)

    def remove(self, node_id: int) -> None:
        """Forgets the node: the next attempt may start at once (CONN-13)."""
        self._nodes.pop(node_id, None)
        self.connecting_nodes.discard(node_id)
        self._failed_since_ready.discard(node_id)

    def _begins_new_run(self, node: NodeConnectionState, now_ms: int) -> bool:
        """Returns whether an attempt at `now_ms` belongs to another outage than the failures before it.

        Another node became READY since then, and nobody needed this one for longer than the longest backoff.
        """
        idle_ms = now_ms - node.last_connect_attempt_ms - node.reconnect_backoff_ms
        return node.node_id not in self._failed_since_ready and idle_ms > self._reconnect_backoff.max_ms

    def _node(self, node_id: int) -> NodeConnectionState:
        node = self._nodes.get(node_id)
        if node is None:
            raise IllegalStateError(f"No entry found for connection {node_id}")
        return node

    def _grow_reconnect_backoff(self, node: NodeConnectionState) -> None:
        node.reconnect_backoff_ms = self._reconnect_backoff.backoff_ms(node.failed_attempts)
        node.failed_attempts += 1

    def _reset_connection_setup_timeout(self, node: NodeConnectionState) -> None:
        node.failed_connect_attempts = 0
        node.connection_setup_timeout_ms = self._connection_setup_timeout.backoff_ms(0)

    def _is_address_due(self, node_id: int, now_ms: int) -> bool:
        due_ms = self._nodes[node_id].address_due_ms
        return due_ms is not None and due_ms <= now_ms

    def _is_setup_timed_out(self, node_id: int, now_ms: int) -> bool:
        node = self._nodes[node_id]
        return now_ms - node.last_connect_attempt_ms > node.connection_setup_timeout_ms
