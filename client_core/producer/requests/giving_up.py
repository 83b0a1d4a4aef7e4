"""Gives up appended requests: at their deadline, and before it where they can't be in time any more.

A record that waits to be sent while brokers have too much to do may be sent just before its deadline. Then
they store it for nobody: its caller has given up, and sends it again. With more load than brokers can do,
they soon do nothing else, and go on when the load has fallen, because each record comes again and again
(metastable failures, Bronson 2021). So a record is not sent at all if the answers of its leader take longer
than the time that its request has left. Its caller hears at once that it was not written.

I/O thread only. Java's client has no deadline but delivery.timeout.ms, and sends until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS
from client_core.errors import TimeoutError
from client_core.producer.accumulator.causes import CancelledRecords
from client_core.producer.requests.deadlines import AGAIN_MS, Deadlines
from client_core.producer.results.ticket import Phase, RecordFailure, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from client_core.errors import Cause
    from client_core.events import EventSink
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.accumulator.causes import Causes
    from client_core.producer.accumulator.record_accumulator import RecordAccumulator, TakenOut
    from client_core.producer.requests.pending_request import PendingRequest

    _GiveUp = Callable[[PendingRequest, Sequence[int], Cause | None], None]

#: The next answers may take longer than the last one.
_MARGIN: Final = 1.25
#: A request that has waited for a smaller part of its time is new: it is sent, whatever it has left.
_LEAST_WAITED: Final = 1 / 8


class GivingUp:
    """Gives up the requests of `deadlines`."""

    def __init__(
        self,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        deadlines: Deadlines[PendingRequest],
        causes: Causes,
        events: EventSink,
    ) -> None:
        self._metadata = metadata
        self._accumulator = accumulator
        self._deadlines = deadlines
        self._causes = causes
        self._cancelled = CancelledRecords(events)

    @property
    def has_deadlines(self) -> bool:
        """Whether a request is not answered yet."""
        return self._deadlines.next_ms < FOREVER_MS

    def at_deadline(self, requests: Sequence[PendingRequest], now_ms: int) -> None:
        """Removes undrained records. Drained ones continue; their response is too late for these requests."""
        if not requests:
            return

        def give_up(request: PendingRequest, removed: Sequence[int], cause: Cause | None) -> None:
            waited_ms = request.deadline_ms - request.submitted_ms
            error = TimeoutError(
                f"Records for topic {request.topic} were not acknowledged within {waited_ms} ms."
            ).because_of(cause)
            failed = request.give_up(error, removed, now_ms - request.submitted_ms)
            self._report(request, failed, removed, error, now_ms)

        try:
            self._remove(requests, give_up, now_ms)
        except MemoryError:
            for request in requests:
                if not request.is_finished:
                    self._deadlines.add(now_ms + AGAIN_MS, request)
            raise

    def too_late(self, node_id: int, latency_ms: int, now_ms: int) -> None:
        """Fails unsent records of requests that have less time left than an answer of the node takes now, and
        that wait for this node.
        """
        until_ms = now_ms + int(latency_ms * _MARGIN)
        hopeless = [
            request
            for request in self._deadlines.until(until_ms)
            if not (request.is_finished or request.is_parked) and _has_waited(request, now_ms)
        ]
        if hopeless:
            waiting = self._waiting_for(node_id)
            hopeless = [request for request in hopeless if id(request) in waiting]
        if not hopeless:
            return

        def give_up(request: PendingRequest, removed: Sequence[int], cause: Cause | None) -> None:
            if not removed:
                return
            left_ms = request.deadline_ms - now_ms
            error = TimeoutError(
                f"Records for topic {request.topic} were not sent: broker {node_id} takes {latency_ms} ms to "
                f"acknowledge records, and {left_ms} ms are left."
            ).because_of(cause)
            waited_ms = now_ms - request.submitted_ms
            request.fail(removed, RecordFailure(error, Phase.DELIVERY, Written.NO, waited_ms))
            self._report(request, len(removed), removed, error, now_ms)

        self._remove(hopeless, give_up, now_ms)

    def _waiting_for(self, node_id: int) -> set[int]:
        """Returns the id() of each owner with unsent records that the node leads."""
        cache = self._metadata.cache
        return {
            id(owner)
            for batch in self._accumulator.incomplete()
            if not batch.was_drained and (leader := cache.leader_for(batch.topic_partition)) is not None
            if leader.id == node_id
            for owner, _, _ in tuple(batch.spans)
        }

    def _remove(self, requests: Collection[PendingRequest], give_up: _GiveUp, now_ms: int) -> None:
        causes = self._causes.of_requests(requests, self._accumulator.incomplete(), now_ms)

        def removed_from_batches(taken_out: TakenOut) -> None:
            removed: dict[int, list[int]] = {}
            for owner, indices in taken_out:
                removed.setdefault(id(owner), []).extend(indices)
            lack: MemoryError | None = None
            for request in requests:
                try:
                    give_up(request, removed.get(id(request), ()), causes.get(id(request)))
                except MemoryError as error:  # the others are given up all the same
                    lack = error
            if lack is not None:
                raise lack

        self._accumulator.cancel(requests, removed_from_batches)

    def _report(
        self, request: PendingRequest, failed: int, removed: Sequence[int], error: TimeoutError, now_ms: int
    ) -> None:
        self._accumulator.failed.add(request.topic, None, failed)
        if failed and removed:
            self._cancelled.report(request.topic, len(removed), error, now_ms)


def _has_waited(request: PendingRequest, now_ms: int) -> bool:
    time_ms = request.deadline_ms - request.submitted_ms
    return now_ms - request.submitted_ms >= time_ms * _LEAST_WAITED
