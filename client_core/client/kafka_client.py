"""The client interface that Sender uses, with its requests and responses.

Two implementations: `NetworkClient` and `tests/support/mock_client.py`. I/O thread only, except `wakeup` (any
thread) and the counters, which are plain reads. Source: KafkaClient, ClientRequest, ClientResponse, Kafka
4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.client.connection_status import ConnectionStatus
    from client_core.cluster import Node
    from client_core.errors import AuthenticationError, UnsupportedVersionError
    from client_core.protocol.request import RequestBuilder


_log = logging.getLogger(__name__)

#: Called with the response on the I/O thread, by the poll that completed it.
CompletionHandler = Callable[["ClientResponse"], None]


class ClientRequest(NamedTuple):
    """A request that a caller wants sent to a node. The version is negotiated when it is sent."""

    destination: int
    builder: RequestBuilder
    correlation_id: int
    created_ms: int
    expect_response: bool
    request_timeout_ms: int
    on_complete: CompletionHandler | None = None


class ClientResponse(NamedTuple):
    """What became of a request.

    Exactly one holds: a body came, none was expected, or one of the failures is set.
    """

    request: ClientRequest
    version: int
    received_ms: int
    latency_ms: int
    body: object | None = None
    disconnected: bool = False
    timed_out: bool = False
    version_mismatch: UnsupportedVersionError | None = None
    authentication_error: AuthenticationError | None = None

    @property
    def destination(self) -> int:
        return self.request.destination

    def on_complete(self) -> None:
        """Tells the caller, if it wants to be told."""
        if self.request.on_complete is not None:
            self.request.on_complete(self)

    def complete(self) -> None:
        """The same; what the caller's handler raises is logged, and costs no other its call (NET-23)."""
        try:
            self.on_complete()
        except KeyboardInterrupt:  # which only the main thread gets, and never the I/O thread
            raise
        except BaseException:  # noqa: BLE001 -- a caller's code, its sys.exit() and CancelledError too
            _log.exception("Uncaught error in request completion")


@dataclass(frozen=True, slots=True)
class LeastLoadedNode:
    """The node to ask, if any, and whether any connection is ready, be it busy (NET-20, NET-21, UPD-11)."""

    node: Node | None
    has_node_available_or_connection_ready: bool


class KafkaClient(Protocol):
    """Requests to nodes, answers by callback from `poll`."""

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may be sent now; False for every node while a metadata update is due (NET-02)."""
        ...

    def ready(self, node: Node, now_ms: int) -> bool:
        """is_ready, and if not, begins to connect where the backoff allows it (NET-03)."""
        ...

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        """How long before it makes sense to ask ready() again, by connection state alone (CONN-04)."""
        ...

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        """Like connection_delay_ms, with throttling (CONN-05)."""
        ...

    def connection_failed(self, node: Node) -> bool: ...

    def authentication_error(self, node: Node) -> AuthenticationError | None: ...

    def new_client_request(
        self,
        node_id: int,
        builder: RequestBuilder,
        created_ms: int,
        *,
        expect_response: bool,
        request_timeout_ms: int | None = None,
        on_complete: CompletionHandler | None = None,
    ) -> ClientRequest:
        """A request with the next correlation id; the client's request.timeout.ms unless told otherwise."""
        ...

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Queues a request. Raises IllegalStateError if the node is not ready (NET-05)."""
        ...

    def poll(self, timeout_ms: int, now_ms: int) -> Sequence[ClientResponse]:
        """One turn: metadata, I/O, timeouts; calls each response's handler and returns them (NET-08)."""
        ...

    def disconnect(self, node_id: int) -> None:
        """Closes a connection; its requests are answered as disconnected by the next poll (NET-19)."""
        ...

    def close_node(self, node_id: int) -> None:
        """Closes a connection and forgets it and its requests."""
        ...

    def least_loaded_node(self, now_ms: int, avoid: int | None = None) -> LeastLoadedNode: ...

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        """Requests in flight to one node, or to all of them."""
        ...

    def has_in_flight_requests(self, node_id: int | None = None) -> bool: ...

    def has_ready_nodes(self, now_ms: int) -> bool: ...

    def node_statuses(self, now_ms: int) -> tuple[ConnectionStatus, ...]:
        """Every connection that was ever attempted, at this moment. Any thread."""
        ...

    def wakeup(self) -> None: ...

    @property
    def waited_ms(self) -> int:
        """For how long all polls together have slept until something came or their time was up."""
        ...

    def initiate_close(self) -> None:
        """Makes the next send or poll raise DisconnectError (NET-25). Any thread."""
        ...

    @property
    def active(self) -> bool: ...

    def close(self) -> None: ...
