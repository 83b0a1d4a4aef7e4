"""What Sender asks of the client. Source: KafkaClient, Kafka 4.3.

Two implementations: `NetworkClient` and `tests/support/mock_client.py`. I/O thread only, but `wakeup` (any
thread) and the counters, which are plain reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.client.client_request import ClientRequest, ClientResponse, CompletionHandler
    from client_core.client.connection_status import ConnectionStatus
    from client_core.cluster import Node
    from client_core.errors import AuthenticationError
    from client_core.protocol.request import RequestBuilder


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
