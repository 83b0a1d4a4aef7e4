"""A KafkaClient without a network: a test sets the state of nodes and prepares the answers.

A request takes the first prepared response for its node, or waits in `requests` until the test responds to
it; either way the answer comes out of the next poll. With a Metadata, due updates are applied from those
prepared, then from the last one again. Connecting takes no time unless `delay_ready` says so. Its clock is
the test's; `poll` does not advance it unless `advance_time_during_poll` is set. Source: MockClient, Kafka
4.3.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from client_core.client.api_versions import NodeApiVersions
from client_core.client.kafka_client import ClientRequest, ClientResponse, LeastLoadedNode
from client_core.clock import FOREVER_MS
from client_core.errors import (
    AuthenticationError,
    IllegalStateError,
    UnsupportedVersionError,
)
from client_core.metadata.metadata_response import read_metadata_response
from client_core.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from client_core.client.connection_status import ConnectionStatus
    from client_core.client.kafka_client import CompletionHandler
    from client_core.cluster import Node
    from client_core.metadata.metadata import Metadata
    from client_core.protocol.request import RequestBuilder
    from tests.support.mock_clock import MockClock

#: The timeout of requests that name none. Source: MockClient.
_REQUEST_TIMEOUT_MS: Final = 5_000

#: The wait after a connection to an unreachable node has failed. Source: MockClient.
_UNREACHABLE_BACKOFF_MS: Final = 100


class _State(Enum):
    CONNECTING = "connecting"
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"


class _Connection:
    """One node as a test has set it up."""

    def __init__(self) -> None:
        self.state = _State.DISCONNECTED
        self.throttled_until_ms = 0
        self.ready_delayed_until_ms = 0
        self.backing_off_until_ms = 0
        self.unreachable_until_ms = 0

    def is_throttled(self, now_ms: int) -> bool:
        return now_ms < self.throttled_until_ms

    def is_ready(self, now_ms: int) -> bool:
        return self.state is _State.CONNECTED and not self.is_throttled(now_ms)

    def is_backing_off(self, now_ms: int) -> bool:
        return now_ms < self.backing_off_until_ms

    def connection_delay_ms(self, now_ms: int) -> int:
        if self.state is not _State.DISCONNECTED:
            return FOREVER_MS
        return max(self.backing_off_until_ms - now_ms, 0)

    def poll_delay_ms(self, now_ms: int) -> int:
        return (
            self.throttled_until_ms - now_ms
            if self.is_throttled(now_ms)
            else self.connection_delay_ms(now_ms)
        )

    def ready(self, now_ms: int) -> bool:
        if self.state is _State.DISCONNECTED:
            if self.is_backing_off(now_ms):
                return False
            if now_ms < self.unreachable_until_ms:
                self.backing_off_until_ms = now_ms + _UNREACHABLE_BACKOFF_MS
                return False
            self.state = _State.CONNECTING
        if self.state is _State.CONNECTING and now_ms >= self.ready_delayed_until_ms:
            self.state = _State.CONNECTED
        return self.is_ready(now_ms)


@dataclass(frozen=True, slots=True)
class _PreparedResponse:
    """What will be answered to the next request that goes to its node."""

    node_id: int | None
    body: object | None
    disconnected: bool
    unsupported_version: bool


class MockClient:
    """KafkaClient for tests. `nodes`, or those of `metadata`, are what least_loaded_node chooses from."""

    def __init__(
        self,
        clock: MockClock,
        metadata: Metadata | None = None,
        *,
        nodes: Sequence[Node] = (),
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._nodes = tuple(nodes)
        self._correlation_id = 0
        self._connections: dict[int, _Connection] = {}
        self._responses: deque[ClientResponse] = deque()
        self._prepared: deque[_PreparedResponse] = deque()
        self._metadata_updates: deque[tuple[bytes, int]] = deque()
        self._last_metadata_update: tuple[bytes, int] | None = None
        self._active = True
        self._lock = threading.Lock()
        self._versions = NodeApiVersions.create()
        #: The requests that nobody has answered yet, oldest first.
        self.requests: deque[ClientRequest] = deque()
        self.advance_time_during_poll = False
        #: False: a request of the metadata's schedule is in flight, and is not answered.
        self.answers_metadata = True
        self.is_a_node_silent = False
        #: What it reports about its connections.
        self.statuses: tuple[ConnectionStatus, ...] = ()
        #: How often wakeup() was called.
        self.wakeups = 0
        #: How long the polls have slept; those that advance the clock add to it.
        self.waited_ms = 0

    # -- nodes as a test sets them ---------------------------------------------------------------------------

    def backoff(self, node: Node, duration_ms: int) -> None:
        """Once it is disconnected, the node can't be connected to for so long."""
        self._connection(node.id).backing_off_until_ms = self._clock.now_ms() + duration_ms

    def set_unreachable(self, node: Node, duration_ms: int) -> None:
        """Disconnects the node; attempts to connect fail for so long."""
        self.disconnect(node.id)
        self._connection(node.id).unreachable_until_ms = self._clock.now_ms() + duration_ms

    def throttle(self, node: Node, duration_ms: int) -> None:
        self._connection(node.id).throttled_until_ms = self._clock.now_ms() + duration_ms

    def delay_ready(self, node: Node, duration_ms: int) -> None:
        """Connecting to the node takes so long."""
        self._connection(node.id).ready_delayed_until_ms = self._clock.now_ms() + duration_ms

    def is_connected(self, node_id: int) -> bool:
        return self._connection(node_id).state is _State.CONNECTED

    # -- answers of a test -----------------------------------------------------------------------------------

    def prepare_response(
        self, body: object | None, *, node: Node | None = None, disconnected: bool = False
    ) -> None:
        """Answers the next request (to that node) so."""
        node_id = None if node is None else node.id
        self._prepared.append(_PreparedResponse(node_id, body, disconnected, False))

    def prepare_unsupported_version_response(self) -> None:
        """Fails the next request as if no version were common to both sides."""
        self._prepared.append(_PreparedResponse(None, None, False, True))

    def respond(self, body: object | None, *, disconnected: bool = False) -> None:
        """Answers the oldest waiting request."""
        if not self.requests:
            raise IllegalStateError(f"No requests pending for inbound response {body!r}")
        self.respond_to_request(self.requests[0], body, disconnected=disconnected)

    def respond_to_request(
        self, request: ClientRequest, body: object | None, *, disconnected: bool = False
    ) -> None:
        """Answers any waiting request, be it out of order."""
        self.requests.remove(request)
        version = request.builder.latest_allowed_version
        self._answer(request, version, body=body, disconnected=disconnected)

    def prepare_metadata_update(self, body: bytes, version: int = ApiKey.METADATA.max_version) -> None:
        """Answers the next metadata update with that response body, as bytes of that version."""
        self._metadata_updates.append((body, version))

    def update_metadata(self, body: bytes, version: int = ApiKey.METADATA.max_version) -> None:
        """Applies a response now, whether or not one is due."""
        self._apply_metadata_update((body, version))

    @property
    def awaiting_responses(self) -> int:
        """How many prepared responses have met no request yet."""
        return len(self._prepared)

    @property
    def has_pending_metadata_updates(self) -> bool:
        return bool(self._metadata_updates)

    # -- KafkaClient -----------------------------------------------------------------------------------------

    def is_ready(self, node: Node, now_ms: int) -> bool:
        return self._connection(node.id).is_ready(now_ms)

    def ready(self, node: Node, now_ms: int) -> bool:
        return self._connection(node.id).ready(now_ms)

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        return self._connection(node.id).connection_delay_ms(now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return self._connection(node.id).poll_delay_ms(now_ms)

    def connection_failed(self, node: Node) -> bool:
        return self._connection(node.id).is_backing_off(self._clock.now_ms())

    def authentication_error(self, node: Node) -> AuthenticationError | None:
        """Nobody refuses us here."""
        return None

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
        correlation_id = self._correlation_id
        self._correlation_id += 1
        timeout_ms = _REQUEST_TIMEOUT_MS if request_timeout_ms is None else request_timeout_ms
        return ClientRequest(
            node_id, builder, correlation_id, created_ms, expect_response, timeout_ms, on_complete
        )

    def send(self, request: ClientRequest, now_ms: int) -> None:
        node_id = request.destination
        if not self._connection(node_id).is_ready(now_ms):
            raise IllegalStateError(f"Cannot send {request!r} since the destination is not ready")
        for prepared in self._prepared:
            if prepared.node_id is None or prepared.node_id == node_id:
                self._answer_as_prepared(request, prepared)
                self._prepared.remove(prepared)
                return
        self.requests.append(request)

    def poll(self, timeout_ms: int, now_ms: int) -> Sequence[ClientResponse]:
        self._check_timeouts(now_ms)
        self._update_metadata_if_due(now_ms)
        completed: list[ClientResponse] = []
        while self._responses:
            response = self._responses.popleft()
            response.complete()
            completed.append(response)
        if self.advance_time_during_poll:
            self._clock.advance(timeout_ms)
            self.waited_ms += timeout_ms
        return completed

    def disconnect(self, node_id: int) -> None:
        """Answers the node's requests as disconnected."""
        for request in tuple(self.requests):
            if request.destination == node_id and request in self.requests:
                self.requests.remove(request)
                self._answer(request, request.builder.latest_allowed_version, disconnected=True)
        self._connection(node_id).state = _State.DISCONNECTED

    def close_node(self, node_id: int) -> None:
        self._connections.pop(node_id, None)

    def least_loaded_node(self, now_ms: int, avoid: int | None = None) -> LeastLoadedNode:
        for node in self._fetch_nodes():
            if not self._connection(node.id).is_backing_off(now_ms):
                return LeastLoadedNode(node, True)
        return LeastLoadedNode(None, False)

    def answering_node(self, now_ms: int, avoid: int | None = None) -> Node | None:
        return self.least_loaded_node(now_ms, avoid).node

    def silent_nodes(self, now_ms: int) -> Sequence[int]:
        return [0] if self.is_a_node_silent else []

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        if node_id is None:
            return len(self.requests)
        return sum(1 for request in self.requests if request.destination == node_id)

    def has_in_flight_requests(self, node_id: int | None = None) -> bool:
        return self.in_flight_request_count(node_id) > 0

    def has_ready_nodes(self, now_ms: int) -> bool:
        return any(connection.is_ready(now_ms) for connection in self._connections.values())

    def node_statuses(self, now_ms: int) -> tuple[ConnectionStatus, ...]:
        """What a test has set: it looks at the client itself else."""
        return self.statuses

    def wakeup(self) -> None:
        with self._lock:
            self.wakeups += 1

    def initiate_close(self) -> None:
        self._active = False

    @property
    def active(self) -> bool:
        return self._active

    def close(self) -> None:
        self._active = False
        if self._metadata is not None:
            self._metadata.close()

    # -- how -------------------------------------------------------------------------------------------------

    def _connection(self, node_id: int) -> _Connection:
        return self._connections.setdefault(node_id, _Connection())

    def _fetch_nodes(self) -> Collection[Node]:
        return self._nodes if self._metadata is None else self._metadata.fetch().nodes

    def _answer(
        self,
        request: ClientRequest,
        version: int,
        *,
        body: object | None = None,
        disconnected: bool = False,
        version_mismatch: UnsupportedVersionError | None = None,
    ) -> None:
        now_ms = self._clock.now_ms()
        self._responses.append(
            ClientResponse(
                request,
                version,
                now_ms,
                now_ms - request.created_ms,
                body,
                disconnected,
                version_mismatch=version_mismatch,
            )
        )

    def _answer_as_prepared(self, request: ClientRequest, prepared: _PreparedResponse) -> None:
        builder = request.builder
        version = self._versions.latest_usable_version(
            builder.api, builder.oldest_allowed_version, builder.latest_allowed_version
        )
        builder.encode(version)  # a request that can't be encoded must not pass a test
        mismatch = UnsupportedVersionError(f"Api {builder.api} with version {version}")
        self._answer(
            request,
            version,
            body=prepared.body,
            disconnected=prepared.disconnected,
            version_mismatch=mismatch if prepared.unsupported_version else None,
        )

    def _check_timeouts(self, now_ms: int) -> None:
        """A request that is too old takes its connection with it, oldest first."""
        while self.requests and now_ms - self.requests[0].created_ms >= self.requests[0].request_timeout_ms:
            self.disconnect(self.requests[0].destination)

    def _update_metadata_if_due(self, now_ms: int) -> None:
        metadata = self._metadata
        if not self.answers_metadata:
            return
        if metadata is None or not metadata.update_requested or self.least_loaded_node(now_ms).node is None:
            return
        if self._metadata_updates:
            self._apply_metadata_update(self._metadata_updates.popleft())
        elif self._last_metadata_update is not None:
            self._apply_metadata_update(self._last_metadata_update)
        else:
            raise IllegalStateError("No previous metadata update to use")

    def _apply_metadata_update(self, update: tuple[bytes, int]) -> None:
        if self._metadata is None:
            raise IllegalStateError("This client was made without metadata")
        body, version = update
        now_ms = self._clock.now_ms()
        asked = self._metadata.new_metadata_request_and_version(now_ms)
        # The whole response, whatever the request that is due would ask for: the test decides.
        response = read_metadata_response(body, version, self._metadata.cache.topics)
        self._metadata.update(asked.request_version, response, False, now_ms)
        self._last_metadata_update = update
