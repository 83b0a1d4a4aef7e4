"""One request at a time to the least loaded node, retried with backoff.

Used for the list of all topics (`pending_metadata.py`) and for topic configs (`pending_configs.py`). A
request that lost its connection, or got a retriable error, is sent again after a growing backoff while anyone
waits. I/O thread only. Source: KafkaAdminClient.Call, Kafka 4.3, in part.

`IoExecutor` is what requests need of the I/O thread: to run work on it, and to know whether they are on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from client_core.backoff import ExponentialBackoff
    from client_core.client.kafka_client import ClientResponse, KafkaClient
    from client_core.errors import KafkaError
    from client_core.producer.requests.pending_request import PendingRequest
    from client_core.protocol.request import RequestBuilder


#: The pause before the next search for a node; retry.backoff.ms may be 0.
_SHORTEST_PAUSE_MS: Final = 10

#: Gets the response (None: there is none), the reason for its absence if known, and the time. Returns
#: whether the request is settled; otherwise it is sent again.
Settle = Callable[[object | None, "KafkaError | None", int], bool]


#: The message of ProducerClosedError for a call that waits when the producer is closed. Source:
#: KafkaProducer.
CLOSED_WHILE_WAITING: Final = "Producer closed while send in progress"


class IoExecutor(Protocol):
    """The I/O thread's interface for requests. Any thread."""

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the I/O thread: in a callback."""
        ...

    def take(self, request: PendingRequest, *, wake: bool) -> None:
        """Passes a request to the I/O thread, which watches its deadline and parks it if necessary."""
        ...

    def do(self, command: Callable[[int], None]) -> None:
        """Calls `command(now_ms)` in the next turn."""
        ...

    def wakeup(self) -> None:
        """Ends the present or the next poll."""
        ...


class LeastLoadedCall:
    """At most one request in flight, and the pause before the next."""

    def __init__(self, retry_backoff: ExponentialBackoff, settle: Settle) -> None:
        self._retry_backoff = retry_backoff
        self._settle = settle
        self._attempts = 0
        self._not_before_ms = 0
        self.is_under_way = False

    def send(self, client: KafkaClient, make_builder: Callable[[], RequestBuilder], now_ms: int) -> int:
        """Sends a request if a node is ready: 0; else milliseconds until the next try.

        None may be in flight. The request is built only when it is sent.
        """
        if now_ms < self._not_before_ms:
            return self._not_before_ms - now_ms
        node = client.least_loaded_node(now_ms).node
        if node is None or not client.ready(node, now_ms):
            return max(self._retry_backoff.initial_ms, _SHORTEST_PAUSE_MS)
        request = client.new_client_request(
            node.id, make_builder(), now_ms, expect_response=True, on_complete=self._handle
        )
        client.send(request, now_ms)
        self.is_under_way = True
        return 0

    def _handle(self, response: ClientResponse) -> None:
        self.is_under_way = False
        error: KafkaError | None = response.version_mismatch or response.authentication_error
        if self._settle(response.body, error, response.received_ms):
            self._attempts = 0
            return
        self._not_before_ms = response.received_ms + self._retry_backoff.backoff_ms(self._attempts)
        self._attempts += 1
