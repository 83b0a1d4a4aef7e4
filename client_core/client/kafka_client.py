"""The client interface that Sender uses, with its requests and responses.

Two implementations: `NetworkClient` and `tests/support/mock_client.py`. I/O thread only, except `wakeup` (any
thread) and the counters, which are plain reads. Source: KafkaClient, ClientRequest, ClientResponse, Kafka
4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from client_core.uncaught import is_interrupt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.client.connection_status import ConnectionStatus
    from client_core.cluster import Node
    from client_core.errors import AuthenticationError, UnsupportedVersionError
    from client_core.protocol.request import RequestBuilder


_log = logging.getLogger(__name__)

#: A node that leaves a request or a connection unanswered for so long is silent: `answering_node` avoids it.
SILENT_MS: Final = 500

#: The time after which another node is asked. By then the silent one is avoided.
ASK_ANOTHER_MS: Final = 1_000

#: Called with the response on the I/O thread, by the poll that completed it.
CompletionHandler = Callable[["ClientResponse"], None]


class ClientRequest(NamedTuple):
    """A caller's request to a node. The version is negotiated when it is sent."""

    destination: int
    builder: RequestBuilder
    correlation_id: int
    created_ms: int
    expect_response: bool
    request_timeout_ms: int
    on_complete: CompletionHandler | None = None


class ClientResponse(NamedTuple):
    """The outcome of a request.

    Exactly one holds: a body arrived, none was expected, or one failure is set.
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

    def complete(self) -> None:
        """Calls the request's handler, if any; logs what it raises, so that others are called (NET-23)."""
        try:
            if self.request.on_complete is not None:
                self.request.on_complete(self)
        except BaseException as error:  # a caller's code, its sys.exit() and CancelledError too
            if is_interrupt(error):
                raise
            _log.exception("Uncaught error in request completion")


@dataclass(frozen=True, slots=True)
class LeastLoadedNode:
    """The chosen node, if any, and whether a node is available or any connection is ready, even if it is busy
    (NET-20, NET-21, UPD-11).
    """

    node: Node | None
    has_node_available_or_connection_ready: bool


class KafkaClient(Protocol):
    """Sends requests to nodes; `poll` calls back with the responses."""

    def ready(self, node: Node, now_ms: int) -> bool:
        """Returns whether a request may be sent now; False while a metadata update is due (NET-02).

        If the node is not ready, this starts to connect to it, if the backoff allows that (NET-03).
        """
        ...

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        """Milliseconds until the next call of ready() makes sense, by state and throttling (CONN-05)."""
        ...

    def connection_failed(self, node: Node) -> bool: ...

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
        """Returns a request with the next correlation id; the default timeout is request.timeout.ms."""
        ...

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Queues a request. Raises IllegalStateError if the node is not ready (NET-05)."""
        ...

    def poll(self, timeout_ms: int, now_ms: int) -> Sequence[ClientResponse]:
        """Runs one turn: metadata, I/O, timeouts; calls each response's handler, returns them (NET-08)."""
        ...

    def answering_node(self, now_ms: int, avoid: int | None = None) -> Node | None:
        """Returns the least loaded node that is not silent, if there is one. Java has no such method."""
        ...

    def silent_nodes(self, now_ms: int) -> Sequence[int]:
        """Returns the nodes that have left a request or a connection unanswered for SILENT_MS."""
        ...

    def has_in_flight_requests(self, node_id: int | None = None) -> bool: ...

    def node_statuses(self, now_ms: int) -> tuple[ConnectionStatus, ...]:
        """Returns every connection that was attempted, as of `now_ms`. Any thread."""
        ...

    def wakeup(self) -> None: ...

    @property
    def waited_ms(self) -> int:
        """Total milliseconds that all polls have slept, waiting for I/O or their timeout."""
        ...

    def close(self) -> None: ...
