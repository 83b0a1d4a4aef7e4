"""Requests that await a response: one queue per node, newest at the left.

A broker answers one connection's requests in order, so a response belongs to the rightmost request.
`network_client.py` handles responses. Only the I/O thread changes this; any thread may read `count()`
and `load()`, for gauges. Source: InFlightRequests, NetworkClient.InFlightRequest, Kafka 4.3.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from client_core.client.response_parsing import ResponsePieces, most_response_bytes
from client_core.clock import FOREVER_MS
from client_core.errors import IllegalStateError
from client_core.protocol.request import StreamedRequestBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.client.kafka_client import ClientRequest


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """One request in flight; implements `selectable.AnswerReader`. Mutable, owned by the I/O thread."""

    request: ClientRequest
    version: int
    is_internal: bool  # ApiVersions, or Metadata for the updater; never returned to a caller
    sent_ms: int
    sent_bytes: int
    send_completed: bool = False  # whether its last byte was passed to the operating system
    throttle_ms: int = 0
    pieces: ResponsePieces | None = None  # the response, if it is decoded in pieces

    @property
    def most_bytes(self) -> int:
        """The size limit of the response's frame."""
        return most_response_bytes(self.request.builder.api, self.sent_bytes)

    @property
    def takes_pieces(self) -> bool:
        """Whether a large response is decoded while it arrives."""
        return isinstance(self.request.builder, StreamedRequestBuilder)

    def feed(self, piece: bytes, frame_bytes: int) -> None:
        """Takes the next piece of the response. Raises ProtocolError."""
        if self.pieces is None:
            self.pieces = ResponsePieces(self.request, self.version)
        self.pieces.feed(piece, frame_bytes)

    def has_timed_out(self, now_ms: int) -> bool:
        """Returns whether it waited longer than its timeout, not counting throttle time (INF-06)."""
        return now_ms - self.sent_ms - self.throttle_ms > self.request.request_timeout_ms


class InFlightLoad(NamedTuple):
    """How busy a connection is."""

    requests: int
    oldest_sent_ms: int | None


class InFlightRequests:
    """Queues of requests by node id."""

    def __init__(self, max_per_connection: int) -> None:
        self._max_per_connection = max_per_connection
        self._queues: dict[int, deque[InFlightRequest]] = {}
        self._count = 0
        #: A time before which no request in flight times out: until then, polls check no queue.
        self.nothing_expires_before_ms = FOREVER_MS

    def add(self, request: InFlightRequest) -> None:
        """Queues a request as the newest of its node (INF-01)."""
        node_id = request.request.destination
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = deque()
        queue.appendleft(request)
        self._count += 1
        expires_ms = request.sent_ms + request.request.request_timeout_ms
        self.nothing_expires_before_ms = min(self.nothing_expires_before_ms, expires_ms)

    def oldest(self, node_id: int) -> InFlightRequest | None:
        """Returns the request that the node's next response belongs to; None without one in flight."""
        queue = self._queues.get(node_id)
        return queue[-1] if queue else None

    def nodes_unanswered_since(self, ms: int) -> Sequence[int]:
        """Returns the nodes whose oldest request was sent at that time or before."""
        return [node_id for node_id, queue in self._queues.items() if queue and queue[-1].sent_ms <= ms]

    def complete_next(self, node_id: int) -> InFlightRequest:
        """Removes and returns the oldest request (INF-02). Raises IllegalStateError without one (INF-08)."""
        request = self._queue(node_id).pop()
        self._count -= 1
        return request

    def last_sent(self, node_id: int) -> InFlightRequest:
        """Returns the newest request, maybe still being sent (INF-03). Raises IllegalStateError (INF-08)."""
        return self._queue(node_id)[0]

    def complete_last_sent(self, node_id: int) -> InFlightRequest:
        """Removes and returns the newest request (INF-03). Raises IllegalStateError without one (INF-08)."""
        request = self._queue(node_id).popleft()
        self._count -= 1
        return request

    def can_send_more(self, node_id: int) -> bool:
        """Returns whether the last send is complete and the queue below its limit (INF-04, NET-26)."""
        queue = self._queues.get(node_id)
        return not queue or (queue[0].send_completed and len(queue) < self._max_per_connection)

    def count(self, node_id: int | None = None) -> int:
        """Requests in flight to one node, or to all of them. Any thread (INF-09)."""
        if node_id is None:
            return self._count
        queue = self._queues.get(node_id)
        return len(queue) if queue is not None else 0

    def load(self, node_id: int) -> InFlightLoad:
        """Returns how busy a connection is. Any thread: each step is atomic in the interpreter."""
        queue = self._queues.get(node_id)
        if queue is None:
            return InFlightLoad(0, None)
        try:
            oldest_sent_ms = queue[-1].sent_ms
        except IndexError:  # empty, or just emptied
            return InFlightLoad(0, None)
        return InFlightLoad(len(queue), oldest_sent_ms)

    def is_empty(self, node_id: int | None = None) -> bool:
        return self.count(node_id) == 0

    def clear_all(self, node_id: int) -> Sequence[InFlightRequest]:
        """Removes the node's queue and returns its requests, oldest first (INF-05)."""
        queue = self._queues.pop(node_id, None)
        if queue is None:
            return ()
        self._count -= len(queue)
        return tuple(reversed(queue))

    def nodes_with_timed_out_requests(self, now_ms: int) -> Sequence[int]:
        """Returns the nodes with timed-out requests (INF-06), and updates `nothing_expires_before_ms`."""
        nodes: list[int] = []
        earliest_ms = FOREVER_MS
        for node_id, queue in self._queues.items():
            if any(request.has_timed_out(now_ms) for request in queue):
                nodes.append(node_id)
            for request in queue:
                expires_ms = request.sent_ms + request.throttle_ms + request.request.request_timeout_ms
                earliest_ms = min(earliest_ms, expires_ms)
        self.nothing_expires_before_ms = earliest_ms
        return nodes

    def increment_throttle_ms(self, node_id: int, throttle_ms: int) -> None:
        """Extends the timeout of every request of that node (INF-07)."""
        for request in self._queues.get(node_id, ()):
            request.throttle_ms += throttle_ms

    def _queue(self, node_id: int) -> deque[InFlightRequest]:
        queue = self._queues.get(node_id)
        if not queue:
            raise IllegalStateError(f"There are no in-flight requests for node {node_id}")
        return queue
