"""Deadlines with cheap add, remove and next; and the queues of parked requests.

`Deadlines` has a heap of distinct milliseconds and a dict of the items due at each. Five thousand requests
with one deadline are one heap entry. Nearly all items are removed early, and leave their millisecond in the
heap. The heap is rebuilt when most entries are stale, so that a distant deadline retains no memory. One owner
thread. Pure: times are passed in.

The parked requests have one queue per topic, and a set of unblocked requests for partitions that do not exist
yet. I/O thread only, except `topic_waits`: any thread may call it, as it copies a dict in one step first.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from client_core.clock import FOREVER_MS
from client_core.producer.accumulator.backlog import TopicWait
from client_core.producer.results.results import Wait
from client_core.producer.results.ticket import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from client_core.producer.requests.pending_request import PendingRequest


_T = TypeVar("_T", bound=Hashable)

#: The pause before something is ended again for which there was no memory.
AGAIN_MS: Final = 100

#: A smaller heap is not worth rebuilding. A guess.
_SMALL = 64


@dataclass(slots=True)
class TopicQueue:
    """A topic's parked requests, in order; `phase` is what the first waits for."""

    phase: Phase = Phase.METADATA
    may_create: bool = False
    #: A dict would look for its first entry among all that were removed before it, each time.
    requests: OrderedDict[PendingRequest, None] = field(default_factory=OrderedDict)
    phase_since_ms: int = 0
    #: Whether the first continues with its next chunk in the next turn, without waiting.
    continues: bool = False
    #: Requests past their `missing_deadline_ms`: they end when brokers report the topic missing.
    impatient: dict[PendingRequest, None] = field(default_factory=dict)

    def waits_of(self, request: PendingRequest, now_ms: int) -> tuple[Wait, ...]:
        """Returns the waits of a request of this queue until now: the present phase, and the one before."""
        parked_ms = request.parked_ms
        since_ms = max(parked_ms, self.phase_since_ms)
        before = Phase.METADATA if self.phase is Phase.BUFFER else Phase.BUFFER
        waits = (Wait(before, since_ms - parked_ms), Wait(self.phase, now_ms - since_ms))
        return tuple(wait for wait in waits if wait.waited_ms > 0)

    @property
    def first(self) -> PendingRequest:
        return next(iter(self.requests))


@dataclass(slots=True)
class UnblockedRequests:
    """Requests for partitions that a topic does not have; tried again when its partition count changes."""

    partition_count: int
    requests: dict[PendingRequest, None] = field(default_factory=dict)
    #: As in TopicQueue: they end when a response confirms the partition count.
    impatient: dict[PendingRequest, None] = field(default_factory=dict)


def topic_waits(
    queues: Mapping[str, TopicQueue], unblocked: Mapping[str, UnblockedRequests]
) -> tuple[TopicWait, ...]:
    """Returns the waiting requests of each topic, and since when. Any thread."""
    return (*_queued(queues), *_unblocked(unblocked))


def _queued(queues: Mapping[str, TopicQueue]) -> Iterator[TopicWait]:
    for topic, queue in tuple(queues.items()):
        requests = tuple(queue.requests)
        if requests:  # emptied meanwhile, and about to be removed
            yield TopicWait(topic, queue.phase, len(requests), requests[0].submitted_ms)


def _unblocked(unblocked: Mapping[str, UnblockedRequests]) -> Iterator[TopicWait]:
    for topic, waiting in tuple(unblocked.items()):
        requests = tuple(waiting.requests)
        if requests:
            oldest_ms = min(request.submitted_ms for request in requests)
            yield TopicWait(topic, Phase.METADATA, len(requests), oldest_ms, lacks_partition=True)


class Deadlines(Generic[_T]):
    """A set of items with deadlines, ordered by deadline, then by insertion."""

    def __init__(self) -> None:
        self._due: dict[int, dict[_T, None]] = {}
        self._moments: list[int] = []

    def __len__(self) -> int:
        return sum(map(len, self._due.values()))

    def add(self, deadline_ms: int, thing: _T) -> None:
        due = self._due.get(deadline_ms)
        if due is None:
            heapq.heappush(self._moments, deadline_ms)
            due = self._due[deadline_ms] = {}
        due[thing] = None

    def has(self, deadline_ms: int, thing: _T) -> bool:
        return thing in self._due.get(deadline_ms, ())

    def discard(self, deadline_ms: int, thing: _T) -> None:
        """Removes an item early, if it is there."""
        due = self._due.get(deadline_ms)
        if due is None:
            return
        due.pop(thing, None)
        if not due:
            del self._due[deadline_ms]
            if len(self._moments) > 2 * len(self._due) + _SMALL:
                self._moments = sorted(self._due)

    @property
    def next_ms(self) -> int:
        """Returns the earliest deadline; FOREVER_MS if there is none."""
        moments = self._moments
        while moments:
            if moments[0] in self._due:
                return moments[0]
            heapq.heappop(moments)
        return FOREVER_MS

    def pop_due(self, now_ms: int) -> list[_T]:
        """Removes and returns everything that is due."""
        due: list[_T] = []
        while (moment := self.next_ms) <= now_ms:
            due.extend(self._due.pop(moment))
        return due

    def end_due(self, now_ms: int, end: Callable[[_T], None]) -> list[_T]:
        """Removes everything that is due, calls `end` for each, and returns all.

        What `end` has no memory for is due again a moment later, and the others are ended before this raises
        MemoryError. Another error ends the loop: a bug would come again in each turn.
        """
        due = self.pop_due(now_ms)
        lack: MemoryError | None = None
        for thing in due:
            try:
                end(thing)
            except MemoryError as error:
                lack = error
                self.add(now_ms + AGAIN_MS, thing)
        if lack is not None:
            raise lack
        return due

    def until(self, ms: int) -> list[_T]:
        """Returns everything that will be due then, without removing it. Walks all deadlines."""
        return [thing for moment in sorted(self._due) if moment <= ms for thing in self._due[moment]]

    def pop_all(self) -> list[_T]:
        """Removes and returns everything."""
        things = [thing for moment in sorted(self._due) for thing in self._due[moment]]
        self._due.clear()
        self._moments.clear()
        return things
