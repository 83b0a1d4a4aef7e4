"""What parked requests stand in: a queue per topic, and a place aside for partitions that do not exist yet.

The I/O thread's, but for `topic_waits`, which any thread may ask: it copies a dict in one step before it
looks at what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_core.producer.accumulator.backlog import TopicWait
from client_core.producer.results.results import Wait
from client_core.producer.results.ticket import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from client_core.producer.requests.pending_request import PendingRequest


@dataclass(slots=True)
class TopicQueue:
    """The requests for a topic that can't go on, in order; `phase` is what the first of them waits for."""

    phase: Phase = Phase.METADATA
    may_create: bool = False
    requests: dict[PendingRequest, None] = field(default_factory=dict)
    phase_since_ms: int = 0
    #: Whether the first of them goes on in the next turn, with its next portion: it waits for nothing else.
    goes_on: bool = False

    def waits_of(self, request: PendingRequest, now_ms: int) -> tuple[Wait, ...]:
        """What a request of this queue has waited for until now: the present phase, and the other before."""
        parked_ms = request.parked_ms
        since_ms = max(parked_ms, self.phase_since_ms)
        before = Phase.METADATA if self.phase is Phase.BUFFER else Phase.BUFFER
        waits = (Wait(before, since_ms - parked_ms), Wait(self.phase, now_ms - since_ms))
        return tuple(wait for wait in waits if wait.waited_ms > 0)

    @property
    def first(self) -> PendingRequest:
        return next(iter(self.requests))


@dataclass(slots=True)
class StandingAside:
    """Requests for partitions that a topic does not have; tried again when it has another number of them."""

    partition_count: int
    requests: dict[PendingRequest, None] = field(default_factory=dict)


def topic_waits(
    queues: Mapping[str, TopicQueue], aside: Mapping[str, StandingAside]
) -> tuple[TopicWait, ...]:
    """Who waits for which topic, and since when. Any thread."""
    return (*_queued(queues), *_standing_aside(aside))


def _queued(queues: Mapping[str, TopicQueue]) -> Iterator[TopicWait]:
    for topic, queue in tuple(queues.items()):
        requests = tuple(queue.requests)
        if requests:  # emptied since, and about to be dropped
            yield TopicWait(topic, queue.phase, len(requests), requests[0].submitted_ms)


def _standing_aside(aside: Mapping[str, StandingAside]) -> Iterator[TopicWait]:
    for topic, standing in tuple(aside.items()):
        requests = tuple(standing.requests)
        if requests:
            oldest_ms = min(request.submitted_ms for request in requests)
            yield TopicWait(topic, Phase.METADATA, len(requests), oldest_ms, lacks_partition=True)
