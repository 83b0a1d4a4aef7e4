"""Shared by all calls that wait for brokers: a deadline, one result, cancellation.

The calls are look-ups, configs, offsets and refreshes of topics, a module each. I/O thread only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from client_core.errors import TimeoutError
from client_core.producer.requests.deadlines import Deadlines
from client_core.producer.requests.metadata_wait import no_brokers, with_cause_of_silence

if TYPE_CHECKING:
    from client_core.client.kafka_client import KafkaClient
    from client_core.errors import KafkaError
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.results.ticket import Completions, Done, Result


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
    def take(self, call: _Call, now_ms: int) -> None:
        """Answers a new call at once if possible; otherwise it waits."""

    @abstractmethod
    def delay_ms(self, client: KafkaClient, now_ms: int) -> int | None:
        """Sends what can be sent; returns ms until the next try, None if there is nothing to send."""

    def expire(self, now_ms: int) -> None:
        """Ends the calls whose deadline has passed."""

        def late(call: _Call) -> None:
            if not call.is_finished:
                self._end(call, None, now_ms)

        self._deadlines.end_due(now_ms, late)

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
        if not (call.is_cancelled or call.is_finished):
            self._completions.add(call.done, result)
        self._forget(call)

    def _forget(self, call: _Call) -> None:
        self.count -= not call.is_finished
        call.is_finished = True
        self._deadlines.discard(call.deadline_ms, call)

    def _late(self, waited_ms: int, message: str) -> KafkaError:
        """Returns the error of a call whose deadline has passed, with this message if brokers are known."""
        if self._metadata.cache.is_bootstrap:
            late = no_brokers(self._metadata.last_disconnection, waited_ms=waited_ms)
            return with_cause_of_silence(late, self._metadata)
        return TimeoutError(message)
