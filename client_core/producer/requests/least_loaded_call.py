"""One request at a time to the least loaded node, retried with backoff.

Used for the list of all topics (`pending_metadata.py`) and for topic configs (`pending_configs.py`). A
request that lost its connection, or got a retriable error, is sent again after a growing backoff while anyone
waits. I/O thread only. Source: KafkaAdminClient.Call, Kafka 4.3, in part.

`IoExecutor` is what requests need of the I/O thread: to run work on it, and to know whether they are on it.
`PendingCalls` is what all calls have in common that wait for brokers: a deadline, one result, cancellation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from client_core.errors import TimeoutError
from client_core.producer.requests.deadlines import Deadlines
from client_core.producer.requests.metadata_wait import no_brokers

if TYPE_CHECKING:
    from client_core.backoff import ExponentialBackoff
    from client_core.client.kafka_client import ClientResponse, KafkaClient
    from client_core.errors import KafkaError
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.requests.pending_request import PendingRequest
    from client_core.producer.results.ticket import Completions, Done, Result
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


@dataclass(slots=True, eq=False)
class PendingCall:
    """One call. Created by any thread, then owned by the I/O thread."""

    done: Done
    since_ms: int
    deadline_ms: int
    is_finished: bool = field(default=False, kw_only=True)
    #: Set by any thread: `done` is not called from then on.
    is_cancelled: bool = field(default=False, kw_only=True)


_Call = TypeVar("_Call", bound=PendingCall)


class PendingCalls(ABC, Generic[_Call]):
    """Calls of one kind that wait for a broker's answer. I/O thread only."""

    def __init__(self, metadata: ProducerMetadata, completions: Completions) -> None:
        self._metadata = metadata
        self._completions = completions
        self._deadlines = Deadlines[_Call]()
        #: How many wait.
        self.count = 0

    @property
    def next_deadline_ms(self) -> int:
        """The first deadline; FOREVER_MS if there is none."""
        return self._deadlines.next_ms

    @abstractmethod
    def delay_ms(self, client: KafkaClient, now_ms: int) -> int | None:
        """Sends what can be sent; returns ms until the next try, None if there is nothing to send."""

    def expire(self, now_ms: int) -> None:
        """Ends the calls whose deadline has passed."""
        for call in self._deadlines.pop_due(now_ms):
            self._end(call, None, now_ms)

    def fail_all(self, error: KafkaError, now_ms: int) -> None:
        """Ends all calls: no broker will answer, or the producer closes."""
        for call in self._deadlines.pop_all():
            self._end(call, error, now_ms)

    def cancel(self, call: _Call) -> None:
        """Ends a call without calling its `done`."""
        if not call.is_finished:
            self._forget(call)

    @abstractmethod
    def _end(self, call: _Call, error: KafkaError | None, now_ms: int) -> None:
        """Ends a call without an answer. `error` None: its deadline has passed."""

    def _begin(self, call: _Call) -> bool:
        """Counts a new call; returns whether it waits: it may have been cancelled already."""
        if not call.is_finished:
            self.count += 1
            self._deadlines.add(call.deadline_ms, call)
        return not call.is_finished

    def _finish(self, call: _Call, result: Result) -> None:
        self._forget(call)
        if not call.is_cancelled:
            self._completions.add(call.done, result)

    def _forget(self, call: _Call) -> None:
        call.is_finished = True
        self.count -= 1
        self._deadlines.discard(call.deadline_ms, call)

    def _late(self, waited_ms: int, message: str) -> KafkaError:
        """Returns the error of a call whose deadline has passed, with this message if brokers are known."""
        if self._metadata.cache.is_bootstrap:
            return no_brokers(self._metadata.last_disconnection, waited_ms=waited_ms)
        return TimeoutError(message)


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
