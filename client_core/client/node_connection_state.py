"""One node's connection: its state, allowed moves, addresses and waits.

    state                    may become
    (none)                   CONNECTING
    DISCONNECTED             CONNECTING, AUTHENTICATION_FAILED (at once, if that was the cause)
    CONNECTING               CHECKING_API_VERSIONS, READY (when versions are not requested), DISCONNECTED,
                             AUTHENTICATION_FAILED
    CHECKING_API_VERSIONS    itself (requested again at a lower version), READY, DISCONNECTED
    READY                    DISCONNECTED
    AUTHENTICATION_FAILED    CONNECTING, itself

Each attempt begins with the name's next address. The name is resolved again after all addresses were tried,
or after an established connection dropped (CONN-08, CONN-09). Within an attempt the addresses are raced
(CONN-14): while none has accepted, another one is connected to every ADDRESS_DELAY_MS, and the first that
accepts is used. Java waits for one address until the set-up timeout. No I/O but the resolver's. Owned by
ClusterConnectionStates, on the I/O thread. Source: ClusterConnectionStates, NodeConnectionState,
ConnectionState, Kafka 4.3 (KIP-602).
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.client.host_resolver import resolve
from client_core.errors import IllegalStateError
from client_core.network.transport_layer import format_address

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from client_core.client.host_resolver import NodeResolver
    from client_core.error_codes import Errors
    from client_core.errors import AuthenticationError

_log = logging.getLogger(__name__)


#: How long an address may take to accept a connection before the next one is tried, too. Source: RFC 8305's
#: Connection Attempt Delay.
ADDRESS_DELAY_MS: Final = 250

#: How long a first attempt waits for slow addresses if others refuse. It doubles with each failed attempt.
_FIRST_PATIENCE_MS: Final = 2 * ADDRESS_DELAY_MS
_MOST_DOUBLINGS: Final = 6

#: Id of a second connection to a broker, which tries new credentials. Negative like the ids of
#: bootstrap.servers, and below all of them.
TRIAL_NODE_ID: Final = -1_000_000


class ConnectionState(Enum):
    """The state of a connection; status responses contain the value."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking_api_versions"
    READY = "ready"
    AUTHENTICATION_FAILED = "authentication_failed"


_DISCONNECTED: Final = frozenset({ConnectionState.DISCONNECTED, ConnectionState.AUTHENTICATION_FAILED})
_CONNECTED: Final = frozenset({ConnectionState.CHECKING_API_VERSIONS, ConnectionState.READY})
_PREPARING: Final = frozenset({ConnectionState.CONNECTING, ConnectionState.CHECKING_API_VERSIONS})

_ALLOWED_MOVES: Final = {
    ConnectionState.DISCONNECTED: frozenset(
        {ConnectionState.CONNECTING, ConnectionState.AUTHENTICATION_FAILED},
    ),
    ConnectionState.CONNECTING: frozenset(
        {
            ConnectionState.CHECKING_API_VERSIONS,
            ConnectionState.READY,
            ConnectionState.DISCONNECTED,
            ConnectionState.AUTHENTICATION_FAILED,
        },
    ),
    ConnectionState.CHECKING_API_VERSIONS: frozenset(
        {ConnectionState.CHECKING_API_VERSIONS, ConnectionState.READY, ConnectionState.DISCONNECTED},
    ),
    ConnectionState.READY: frozenset({ConnectionState.DISCONNECTED}),
    ConnectionState.AUTHENTICATION_FAILED: frozenset(
        {ConnectionState.CONNECTING, ConnectionState.AUTHENTICATION_FAILED},
    ),
}


class ConnectionFailures(NamedTuple):
    """The failures of a node's connection in one outage. `reason`, `error` and `detail` are the last one's.

    The run ends when the node is READY, or when it is tried again after other nodes were READY and it was not
    needed (ClusterConnectionStates.connecting). `reason` is a value of events.NodeDisconnected.
    """

    reason: str
    error: Errors
    attempts: int
    since_ms: int
    detail: str


class NodeConnectionState:
    """One node's connection. Mutable, owned by ClusterConnectionStates on the I/O thread."""

    __slots__ = (
        "_address_index",
        "_addresses",
        "_last_attempted_address",
        "_resolver",
        "_tried",
        "address_due_ms",
        "authentication_error",
        "connection_setup_timeout_ms",
        "failed_attempts",
        "failed_connect_attempts",
        "failures",
        "host",
        "is_held",
        "last_connect_attempt_ms",
        "last_error",
        "last_error_ms",
        "node_id",
        "port",
        "reconnect_backoff_ms",
        "state",
        "throttle_until_ms",
    )

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        now_ms: int,
        reconnect_backoff_ms: int,
        connection_setup_timeout_ms: int,
        resolver: NodeResolver,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.state = ConnectionState.CONNECTING
        self.authentication_error: AuthenticationError | None = None
        self.last_error: str | None = None
        self.last_error_ms: int | None = None
        #: The present run of failures, for status.
        self.failures: ConnectionFailures | None = None
        self.last_connect_attempt_ms = now_ms
        self.failed_attempts = 0
        self.failed_connect_attempts = 0
        self.reconnect_backoff_ms = reconnect_backoff_ms
        self.connection_setup_timeout_ms = connection_setup_timeout_ms
        self.throttle_until_ms: int | None = None
        #: Nothing more may be sent: the connection will be replaced.
        self.is_held = False
        self._resolver = resolver
        self._addresses: Sequence[str] = ()
        #: Of the address with which the present attempt began, and how many it has tried since.
        self._address_index = 0
        self._tried = 0
        self._last_attempted_address: str | None = None
        #: When another address is tried, too, unless one has accepted; None if never.
        self.address_due_ms: int | None = None

    def __repr__(self) -> str:
        return (
            f"<NodeConnectionState node={self.node_id} {self.host}:{self.port} {self.state.name}"
            f" failed_attempts={self.failed_attempts} last_error={self.last_error!r}>"
        )

    @property
    def is_disconnected(self) -> bool:
        return self.state in _DISCONNECTED

    @property
    def is_connected(self) -> bool:
        return self.state in _CONNECTED

    @property
    def is_preparing(self) -> bool:
        return self.state in _PREPARING

    def move_to(self, state: ConnectionState) -> None:
        """Changes the state. Raises IllegalStateError for a move that is not in the table."""
        if state not in _ALLOWED_MOVES[self.state]:
            raise IllegalStateError(
                f"Connection to node {self.node_id} can't go from {self.state.name} to {state.name}"
            )
        self.state = state

    def is_ready(self, now_ms: int) -> bool:
        """Returns whether requests may be sent: READY, not held, and not throttled by the broker."""
        until_ms = self.throttle_until_ms
        return (
            self.state is ConnectionState.READY
            and (until_ms is None or until_ms <= now_ms)
            and not self.is_held
        )

    def throttle_delay_ms(self, now_ms: int) -> int:
        until_ms = self.throttle_until_ms
        return 0 if until_ms is None or until_ms <= now_ms else until_ms - now_ms

    def backoff_left_ms(self, now_ms: int) -> int:
        """Milliseconds until the next attempt is allowed, counted from the end of the last one (CONN-01)."""
        return max(self.reconnect_backoff_ms - (now_ms - self.last_connect_attempt_ms), 0)

    def current_address(self) -> str | None:
        """The address to connect to. With none left, resolves the name again; None until it is resolved.

        Raises OSError when DNS has no address.
        """
        if not self._addresses:
            self._resolve_addresses()
        if not self._addresses:
            return None
        address = self._address(self._tried)
        self._last_attempted_address = address
        return address

    def _address(self, number: int) -> str:
        """Returns an address of the present attempt: 0 is the first one that it tried."""
        return self._addresses[(self._address_index + number) % len(self._addresses)]

    @property
    def has_untried_address(self) -> bool:
        """Whether this attempt has not tried all addresses of the name."""
        return self._tried + 1 < len(self._addresses)

    def try_next_address(self, under_way: Collection[str]) -> bool:
        """Makes the next address the current one; returns False if all are `under_way` (host:port).

        After the last one it continues with the first: an address may accept that has refused.
        """
        count = len(self._addresses)
        for number in range(self._tried + 1, self._tried + 1 + count):
            if format_address((self._address(number), self.port)) not in under_way:
                self._tried = number
                return True
        return False

    def race(self, now_ms: int) -> None:
        """Sets when this attempt tries another address (CONN-14): never, if the name has only one.

        One that has refused is tried again after the reconnect backoff, or when the patience ends.
        """
        delay_ms = ADDRESS_DELAY_MS
        if not self.has_untried_address:
            delay_ms = max(delay_ms, min(self.reconnect_backoff_ms, self._patience_left_ms(now_ms)))
        self.address_due_ms = now_ms + delay_ms if len(self._addresses) > 1 else None

    def is_patient(self, now_ms: int) -> bool:
        """Returns whether addresses that have not answered get more time, although others have refused.

        Without a limit, a dead address would hide that the broker is down. With a fixed one, a slow address
        would never be connected to.
        """
        return self._patience_left_ms(now_ms) > 0

    def _patience_left_ms(self, now_ms: int) -> int:
        patience_ms = _FIRST_PATIENCE_MS << min(self.failed_connect_attempts, _MOST_DOUBLINGS)
        return self.last_connect_attempt_ms + patience_ms - now_ms

    def accepted_by(self, remote_address: str) -> None:
        """Ends the race. If this connection fails, the next attempt begins with the address after it."""
        self.address_due_ms = None
        for index, address in enumerate(self._addresses):
            if format_address((address, self.port)) == remote_address:
                self._address_index, self._tried = index, 0
                self._last_attempted_address = address

    def move_to_next_address(self) -> None:
        """Makes the next attempt use the next address; after the last one, it resolves again (CONN-08)."""
        if not self._addresses:
            return
        self._address_index += 1 + self._tried
        self._tried = 0
        if self._address_index >= len(self._addresses):
            self.clear_addresses()

    def clear_addresses(self) -> None:
        self._addresses = ()

    def _resolve_addresses(self) -> None:
        addresses = resolve(self.host, self._resolver)
        if addresses is None:
            return
        self._addresses = addresses
        self._tried = 0
        _log.debug("Resolved host %s to addresses %s", self.host, self._addresses)
        # Not the same address twice in a row: of several load balancers, this one may be dead (CONN-09).
        repeats = len(self._addresses) > 1 and self._addresses[0] == self._last_attempted_address
        self._address_index = 1 if repeats else 0
