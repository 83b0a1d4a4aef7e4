"""Opens, readies and ends one NetworkClient's connections; chooses the least loaded node.

Every state change is made here, so that the state, the log line, the event and the status for other threads
change together. Not here: requests in flight, metadata, when to connect (`network_client.py`). I/O thread
only, except `statuses`. Source: the connection half of NetworkClient, Kafka 4.3.

Log lines are limited: an unavailable broker gets one line, not one a second. Repeats are logged at DEBUG.

    a connection ended, or failed                    logged once per cause
    ready                                            logged once; later failures are logged again
    ready repeatedly without a served request        not logged: it only seems to work

The log state is reset only when a request is served, or the node is ready after failed attempts. So a broker
that accepts and disconnects each second does not fill the log.

The least loaded node is chosen without side effects, among the snapshot's nodes from a random start, so that
clients spread over the brokers. Source: NetworkClient.leastLoadedNode, Kafka 4.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from client_core.client import disconnection
from client_core.client.api_versions import ApiVersionsRequestBuilder, NodeApiVersions, version_to_ask_next
from client_core.client.connection_states import ClusterConnectionStates
from client_core.client.connection_status import ConnectionFacts
from client_core.client.kafka_client import LeastLoadedNode
from client_core.client.node_connection_state import TRIAL_NODE_ID
from client_core.cluster import Node
from client_core.error_codes import Errors
from client_core.events import NodeConnecting, NodeDisconnected, NodeReady, NodeThrottled

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from random import Random

    from client_core.client.connection_status import ConnectionStatus
    from client_core.client.disconnection import Disconnection
    from client_core.client.host_resolver import NodeResolver
    from client_core.client.in_flight_requests import InFlightRequests
    from client_core.client.network_client_config import NetworkClientConfig
    from client_core.events import EventSink
    from client_core.network.selectable import Selectable
    from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
    from client_core.protocol.request import RequestBuilder


_log = logging.getLogger(__name__)

#: The client waits this long for a look-up before it tries other nodes too; most take less.
USUAL_LOOK_UP_MS: Final = 250

#: More brokers than a cluster has.
MOST_NODES: Final = 1_000


#: Different failures logged per node: each of its addresses may fail differently.
_MOST_WAYS: Final = 8


class _Reported:
    """One node's logged failures, and its failed attempts since it was last ready."""

    __slots__ = ("failures", "is_ready", "ways")

    def __init__(self) -> None:
        self.ways: set[tuple[str, str]] = set()
        self.failures = 0
        self.is_ready = False


class ConnectionLogLimiter:
    """Remembers the logged failures of each node that serves no requests."""

    def __init__(self) -> None:
        #: By node id; empty while every node serves.
        self.reported: Final[dict[int, _Reported]] = {}

    def ended(self, node_id: int, ended: Disconnection, *, was_up: bool) -> int:
        """Returns the log level for a connection's end; `was_up`: it was established."""
        reported = self.reported.setdefault(node_id, _Reported())
        if not was_up:
            reported.failures += 1
            reported.is_ready = False
        # Texts of timeouts contain their milliseconds, which grow.
        way = (ended.reason, "" if ended.timed_out else ended.detail)
        if way in reported.ways or len(reported.ways) >= _MOST_WAYS:
            return logging.DEBUG
        reported.ways.add(way)
        return ended.log_level

    def ready(self, node_id: int) -> tuple[int, int]:
        """Returns the log level for a ready node, and the number of failed attempts before."""
        reported = self.reported.setdefault(node_id, _Reported())
        if reported.is_ready:
            return logging.DEBUG, 0
        failures = reported.failures
        reported.is_ready, reported.failures = True, 0
        reported.ways.clear()
        return logging.INFO, failures

    def forget(self, node_id: int) -> None:
        """Notes that the node served a request, or was removed."""
        self.reported.pop(node_id, None)


def choose_least_loaded(
    nodes: Iterable[Node],
    now_ms: int,
    states: ClusterConnectionStates,
    in_flight: InFlightRequests,
    is_channel_ready: Callable[[int], bool],
    slowly_resolving: Container[int],
) -> LeastLoadedNode:
    """Returns the least loaded node, if any, and whether any connection is ready.

    Prefers, in this order: the first idle ready node, the ready node with the fewest in flight, a connecting
    node, the connectable node tried longest ago (NET-20). Never a node that is throttled, or in its backoff
    (NET-21).

    The nodes in `slowly_resolving` come last: a resolver may hang, and other nodes need not wait for it. In
    Java the look-up blocks the whole client.

    A throttled connection counts as ready: the cluster is available, so there is no need to start again from
    bootstrap.servers (UPD-11). Java does not count it, and drops all known brokers.
    """
    fewest: int | None = None
    ready: Node | None = None
    preparing: Node | None = None
    connectable: Node | None = None
    unresolved: Node | None = None
    tried_ms: int | None = None
    any_ready = False
    for node in nodes:
        if states.is_up(node.id) and is_channel_ready(node.id):
            any_ready = True  # even if throttled, or too busy for more
            if states.is_ready(node.id, now_ms) and in_flight.can_send_more(node.id):
                count = in_flight.count(node.id)
                if count == 0:
                    return LeastLoadedNode(node, True)
                if fewest is None or count < fewest:
                    fewest, ready = count, node
        elif states.is_preparing_connection(node.id):
            if node.id in slowly_resolving:
                unresolved = node
            else:
                preparing = node
        elif states.can_connect(node.id, now_ms):
            last_ms = states.last_connect_attempt_ms(node.id)
            if connectable is None or (tried_ms is not None and (last_ms is None or last_ms < tried_ms)):
                connectable, tried_ms = node, last_ms
    chosen = ready or preparing or connectable or unresolved
    return LeastLoadedNode(chosen, any_ready or chosen is not None)


class NodeConnections:
    """The connections by node id; `states` has the state of each."""

    def __init__(
        self,
        selector: Selectable,
        config: NetworkClientConfig,
        resolver: NodeResolver,
        random: Random,
        events: EventSink,
    ) -> None:
        self._selector = selector
        self._config = config
        self._events = events
        self._resolver = resolver
        self.states = ClusterConnectionStates.from_settings(
            config.reconnect_backoff_ms,
            config.reconnect_backoff_max_ms,
            config.connection_setup_timeout_ms,
            config.connection_setup_timeout_max_ms,
            resolver,
            random,
        )
        #: CONNECTING nodes without an address yet: their names are being resolved.
        self.resolving: dict[int, Node] = {}
        self._api_versions: dict[int, NodeApiVersions] = {}
        #: The ApiVersions requests to send once the nodes' channels are ready.
        self.needing_api_versions: dict[int, ApiVersionsRequestBuilder] = {}
        self._refused_a_version: set[int] = set()
        # Nodes that are ready without SASL and have answered nothing since.
        self._may_want_sasl: set[int] = set()
        # Nodes without errors that are no longer needed; not in the status.
        self._left: set[int] = set()
        self._log_limiter = ConnectionLogLimiter()
        self._published: tuple[ConnectionFacts, ...] = ()
        #: Whether `publish` must be called.
        self.has_changed = False

    # -- connect ---------------------------------------------------------------------------------------------

    def connect(self, node: Node, now_ms: int) -> Disconnection | None:
        """Starts to connect; returns the cause if it failed at once (NET-22).

        If the name must be looked up first, the node is in `resolving`, and `open` continues later.
        """
        self.has_changed = True
        self._left.discard(node.id)
        self._forget_one_of_too_many()
        self.states.connecting(node.id, now_ms, node.host, node.port)
        self._events.emit(NodeConnecting(node.id))
        refusal = self._config.allowed_hosts.refusal_of_host(node.host)
        return disconnection.forbidden(refusal) if refusal else self.open(node, now_ms)

    def open_next_address(self, node_id: int, now_ms: int) -> Disconnection | None:
        """Connects a CONNECTING node to another address, too (CONN-14); returns the cause of a failure."""
        node = self.states.get(node_id)
        if node is None or not self.states.try_next_address(node_id, self._selector.addresses_of(node_id)):
            self.states.race_addresses(node_id, now_ms)  # all are under way
            return None
        _log.debug("%s: trying another address", self._called(node_id))
        return self.open(Node(node_id, node.host, node.port), now_ms)

    def open(self, node: Node, now_ms: int) -> Disconnection | None:
        """Connects a CONNECTING node once its name is resolved; returns the cause of a failure (NET-22).

        An address that the system refuses at once, as one without a route, is left for the next one.
        """
        prevented = self._open(node, now_ms)
        while (
            prevented is not None
            and prevented.reason == "refused"
            and self.states.has_untried_address(node.id)
            and self.states.try_next_address(node.id, ())
        ):
            prevented = self._open(node, now_ms)
        if prevented is not None and self.is_waiting_for_others(node.id, now_ms):
            self.states.race_addresses(node.id, now_ms)
            return None
        return prevented

    def is_waiting_for_others(self, node_id: int, now_ms: int) -> bool:
        """Returns whether an attempt goes on after an address refused: others get more time to accept."""
        return bool(self._selector.addresses_of(node_id)) and self.states.is_patient(node_id, now_ms)

    def _open(self, node: Node, now_ms: int) -> Disconnection | None:
        self.resolving.pop(node.id, None)
        try:
            address = self.states.current_address(node.id)
        except OSError as error:
            return disconnection.unresolved(node.host, error)
        if address is None:
            self.resolving[node.id] = node
            return None
        refusal = self._config.allowed_hosts.refusal_of_address(node.host, address)
        if refusal:
            return disconnection.forbidden(refusal)
        _log.debug("Initiating connection to node %s using address %s", node, address)
        try:
            self._selector.connect(
                node.id,
                self._resolver.name_at(node.host, address),
                (address, node.port),
                self._config.send_buffer_bytes,
                self._config.receive_buffer_bytes,
                also=True,
            )
        except OSError as error:
            return disconnection.unreachable(f"can't connect to {node.host}:{node.port}: {error}")
        self.states.race_addresses(node.id, now_ms)
        return None

    def where(self, node_id: int) -> str:
        """Returns `host:port` of a node, for people; empty for one that is not known."""
        node = self.states.get(node_id)
        return "" if node is None else f"{node.host}:{node.port}"

    def slowly_resolving(self, now_ms: int) -> set[int]:
        """Returns the nodes with look-ups that run longer than USUAL_LOOK_UP_MS."""
        return {
            node_id
            for node_id in self.resolving
            if now_ms - (self.states.last_connect_attempt_ms(node_id) or 0) >= USUAL_LOOK_UP_MS
        }

    def _forget_one_of_too_many(self) -> None:
        """Above MOST_NODES, forgets the unconnected node tried least recently.

        Java keeps them all, but ids may be new each time.
        """
        if len(self.states.nodes) < MOST_NODES:
            return
        idle = (node for node in self.states.nodes if node.is_disconnected)
        oldest = min(idle, key=lambda node: node.last_connect_attempt_ms, default=None)
        if oldest is not None:
            self.forget(oldest.node_id)

    def connected(self, node_id: int) -> None:
        """TCP is connected. Next come TLS and SASL, if any, then ApiVersions (NET-14)."""
        for remote_address in self._selector.addresses_of(node_id):
            self.states.address_accepted(node_id, remote_address)
        if self._config.discover_broker_versions:
            _log.debug("Completed connection to node %d. Fetching API versions.", node_id)
            self.needing_api_versions[node_id] = self._question()
        else:
            self._ready(node_id)

    # -- versions --------------------------------------------------------------------------------------------

    def check_api_versions(self, node_id: int) -> ApiVersionsRequestBuilder:
        """Returns the ApiVersions request to send: set-up is complete, including TLS and SASL (NET-14)."""
        question = self.needing_api_versions.pop(node_id)
        self.has_changed = True
        self.states.checking_api_versions(node_id)
        return question

    def api_versions_answered(
        self, node_id: int, response: ApiVersionsResponse, version: int
    ) -> Disconnection | None:
        """Readies the node, schedules a retry (NET-15), or returns why the connection must end (NET-16)."""
        if response.error_code == Errors.NONE.code:
            self._api_versions[node_id] = NodeApiVersions.of_response(response)
            _log.debug("Node %d supports %s", node_id, self._api_versions[node_id])
            self._ready(node_id)
            return None
        if response.error_code == Errors.UNSUPPORTED_VERSION.code and version > 0:
            # A node that refuses a version it listed gets version 0; Java would retry forever.
            other = 0 if node_id in self._refused_a_version else version_to_ask_next(response)
            self._refused_a_version.add(node_id)
            _log.debug("Node %d does not know ApiVersions v%d, asking with v%d", node_id, version, other)
            self.needing_api_versions[node_id] = self._question(other)
            return None
        error = f"{Errors.of(response.error_code).name} ({response.error_code})"
        return disconnection.protocol_error(f"the node answered error {error} to ApiVersions")

    def version_for(self, node_id: int, builder: RequestBuilder) -> int:
        """Returns the version to send (NET-06): our latest, until the node's versions are known.

        Raises UnsupportedVersionError if both sides share none.
        """
        versions = self._api_versions.get(node_id)
        oldest, latest = builder.oldest_allowed_version, builder.latest_allowed_version
        return latest if versions is None else versions.latest_usable_version(builder.api, oldest, latest)

    def _question(self, latest_version: int | None = None) -> ApiVersionsRequestBuilder:
        config = self._config
        return ApiVersionsRequestBuilder(
            config.client_software_name, config.client_software_version, latest_version
        )

    def _ready(self, node_id: int) -> None:
        self.has_changed = True
        self.states.ready(node_id)
        if not self._config.uses_sasl:
            self._may_want_sasl.add(node_id)
        self._events.emit(NodeReady(node_id))
        level, failures = self._log_limiter.ready(node_id)
        before = f"; earlier attempts failed: {failures}" if failures else ""
        _log.log(level, "%s is ready%s", self._called(node_id), before)

    # -- use and close ---------------------------------------------------------------------------------------

    def throttle(self, node_id: int, throttle_ms: int, now_ms: int) -> None:
        """Sends nothing more to the node for `throttle_ms` (NET-12)."""
        self.has_changed = True
        self.states.throttle(node_id, now_ms + throttle_ms)
        self._events.emit(NodeThrottled(node_id, throttle_ms))
        _log.debug("Node %d asked for a pause of %d ms", node_id, throttle_ms)

    def served(self, node_id: int) -> None:
        """Notes that the node answered a request, so it does not require SASL."""
        self._may_want_sasl.discard(node_id)
        if self._log_limiter.reported:  # rarely: this is called for each answer
            self._log_limiter.forget(node_id)

    def explained(self, node_id: int, ended: Disconnection, in_flight: int) -> Disconnection:
        """Adds a hint if the node's behaviour suggests that it requires SASL."""
        if ended.reason == "closed" and in_flight and node_id in self._may_want_sasl:
            return disconnection.perhaps_for_want_of_sasl(ended)
        return ended

    def end(self, node_id: int, now_ms: int, ended: Disconnection, in_flight: int) -> None:
        """Starts a lost connection's backoff, forgets its versions, keeps its error (NET-13)."""
        self.has_changed = True
        was_up = self.states.is_connected(node_id)
        self._stop_resolving(node_id)
        self._forget_versions(node_id)
        self.states.disconnected(node_id, now_ms)
        if ended.authentication_error is not None:
            self.states.authentication_failed(node_id, now_ms, ended.authentication_error)
        self.states.failed(node_id, now_ms, ended)
        backoff_ms = self.states.connection_delay_ms(node_id, now_ms)
        self._log_end(node_id, ended, in_flight, backoff_ms, was_up=was_up)
        self._events.emit(NodeDisconnected(node_id, ended.reason, ended.detail, backoff_ms))

    def _log_end(
        self, node_id: int, ended: Disconnection, in_flight: int, backoff_ms: int, *, was_up: bool
    ) -> None:
        """Logs each kind of failure once; repeats at DEBUG, like each attempt."""
        level, called = self._log_limiter.ended(node_id, ended, was_up=was_up), self._called(node_id)
        if node_id < 0 and node_id != TRIAL_NODE_ID and level == logging.INFO:
            level = logging.WARNING  # it disconnected before it named any broker (UPD-08)
        if was_up:
            lost = f"; {in_flight} requests in flight fail" if in_flight else ""
            _log.log(level, "%s disconnected (%s): %s%s", called, ended.reason, ended.detail, lost)
        else:
            said = "%s: connecting failed (%s): %s; retrying after %d ms; repeats are logged at DEBUG only"
            _log.log(level, said, called, ended.reason, ended.detail, backoff_ms)

    def _called(self, node_id: int) -> str:
        """Returns the node's name in log lines."""
        node = self.states.get(node_id)
        if node is None or node_id >= 0:
            return f"Node {node_id}"
        if node_id == TRIAL_NODE_ID:
            return f"The trial of other credentials at {node.host}:{node.port}"
        return f"Bootstrap server {node.host}:{node.port}"

    def renew(self, node: Node, now_ms: int) -> Disconnection | None:
        """Reconnects with the current credentials, after an idle connection was closed for this.

        The node has no error, so there is no backoff. Returns the cause if the new connection failed at once.
        """
        self._forget_versions(node.id)
        self.states.disconnected(node.id, now_ms)
        detail = "the client replaces the connection by one with the current credentials"
        _log.info("Node %d disconnected: %s", node.id, detail)
        self._events.emit(NodeDisconnected(node.id, "local", detail, 0))
        return self.connect(node, now_ms)

    def leave(self, node_id: int, now_ms: int) -> None:
        """Notes that an unneeded connection was closed. Its backoff applies if it is needed again."""
        self.has_changed = True
        self._stop_resolving(node_id)
        self._forget_versions(node_id)
        self._left.add(node_id)
        self.states.disconnected(node_id, now_ms)
        self._log_limiter.forget(node_id)
        _log.info("%s is no longer used: the brokers are known", self._called(node_id))

    def forget(self, node_id: int) -> None:
        """Removes all state of the node, including its backoff (CONN-13)."""
        self.has_changed = True
        self._stop_resolving(node_id)
        self.states.remove(node_id)
        self._log_limiter.forget(node_id)
        self._left.discard(node_id)
        self._forget_versions(node_id)

    def _stop_resolving(self, node_id: int) -> None:
        node = self.resolving.pop(node_id, None)
        if node is not None:
            self._resolver.abandon(node.host)

    def _forget_versions(self, node_id: int) -> None:
        self._api_versions.pop(node_id, None)
        self.needing_api_versions.pop(node_id, None)
        self._refused_a_version.discard(node_id)
        self._may_want_sasl.discard(node_id)

    # -- status for other threads ----------------------------------------------------------------------------

    def publish(self) -> None:
        """Swaps in a new snapshot for other threads; needed when `has_changed`."""
        self.has_changed = False
        nodes = (node for node in self.states.nodes if node.node_id not in self._left)
        self._published = tuple(ConnectionFacts.of(node) for node in nodes)

    def statuses(self, now_ms: int, in_flight: InFlightRequests) -> tuple[ConnectionStatus, ...]:
        """Returns every connection at this moment. Any thread."""
        return tuple(facts.at(now_ms, in_flight.load(facts.node_id)) for facts in self._published)
