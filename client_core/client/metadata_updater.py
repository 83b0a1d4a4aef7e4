"""When to ask for metadata, whom to ask, and what to do with the answer or without one.

`NetworkClient` calls `maybe_update` in each turn and hands itself in as `MetadataClient`, so that neither
holds the other. `DefaultMetadataUpdater` keeps at most one request in flight. It waits, in this order: until
an update is due and the backoff is over; for the answer, at most request.timeout.ms; for a connection that is
being set up, or until a node may be tried again, reconnect.backoff.ms at a time. What is due and what an
answer means is `metadata/`'s business. I/O thread only. Source: MetadataUpdater, ManualMetadataUpdater,
NetworkClient.DefaultMetadataUpdater, Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from client_core.clock import FOREVER_MS

if TYPE_CHECKING:
    from client_core.client.in_flight_requests import InFlightRequest
    from client_core.client.kafka_client import LeastLoadedNode
    from client_core.cluster import Node
    from client_core.errors import AuthenticationError, KafkaError
    from client_core.protocol.request import RequestBuilder

_log = logging.getLogger(__name__)


class RefreshFailure(NamedTuple):
    """Why a metadata request came to nothing. `outcome` is one of events.MetadataRefreshFailed's words."""

    outcome: str
    detail: str
    fatal: KafkaError | None = None  # waiters are woken with it


class MetadataClient(Protocol):
    """What an updater asks of NetworkClient."""

    def least_loaded_node(self, now_ms: int) -> LeastLoadedNode: ...

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
