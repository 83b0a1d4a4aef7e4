"""A request that any node can answer, retried with backoff.

Used for the list of all topics (`pending_metadata.py`) and for topic configs (`pending_configs.py`). A
request that lost its connection, or got a retriable error, is sent again after a growing backoff while anyone
waits. If one is unanswered, a second one goes to another node: a broker that hangs would keep the callers
waiting for request.timeout.ms. I/O thread only. Source: KafkaAdminClient.Call, Kafka 4.3, in part.

`IoExecutor` is what requests need of the I/O thread: to run work on it, and to know whether they are on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

#: Returns a request for all that wait now, and what gets its response.
MakeRequest = Callable[[], "tuple[RequestBuilder, Settle]"]

_MOST_IN_FLIGHT: Final = 2
#: The time for the first request: the list of a large cluster takes seconds.
_SECOND_AFTER_MS: Final = 2_000


#: The message of ProducerClosedError for a call that waits when the producer is closed. Source:
#: KafkaProducer.
CLOSED_WHILE_WAITING: Final = "Producer closed while send in progress"


class IoExecutor(Protocol):
    """The I/O thread's interface for requests. Any thread."""

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the I/O thread: in a callback."""
        ...

    @property
    def was_started(self) -> bool: ...

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
    """A request in flight, maybe a second one to another node, and the pause before the next."""

    def __init__(self, retry_backoff: ExponentialBackoff) -> None:
        self._retry_backoff = retry_backoff
        self._attempts = 0
        self._not_before_ms = 0
        #: When those in flight were sent.
        self._sent_ms: list[int] = []

    def delay_ms(self, client: KafkaClient, make_request: MakeRequest, now_ms: int) -> int | None:
        """Sends a request if one is due and a node is ready; returns ms until the next try, or None.

        The request is built only when it is sent. A second one is due while the first is unanswered.
        """
        if len(self._sent_ms) == _MOST_IN_FLIGHT:
            return None
        due_ms = self._not_before_ms
        if self._sent_ms:
            due_ms = max(due_ms, self._sent_ms[0] + _SECOND_AFTER_MS)
        if now_ms < due_ms:
            return due_ms - now_ms
        node = client.answering_node(now_ms)
        if node is None or not client.ready(node, now_ms):
            return max(self._retry_backoff.initial_ms, _SHORTEST_PAUSE_MS)
        builder, settle = make_request()
        request = client.new_client_request(
            node.id, builder, now_ms, expect_response=True, on_complete=partial(self._handle, settle, now_ms)
        )
        self._sent_ms.append(now_ms)
        client.send(request, now_ms)
        return _SECOND_AFTER_MS

    def _handle(self, settle: Settle, sent_ms: int, response: ClientResponse) -> None:
        self._sent_ms.remove(sent_ms)
        error: KafkaError | None = response.version_mismatch or response.authentication_error
        if settle(response.body, error, response.received_ms):
            self._attempts = 0
            return
        self._not_before_ms = response.received_ms + self._retry_backoff.backoff_ms(self._attempts)
        self._attempts += 1
