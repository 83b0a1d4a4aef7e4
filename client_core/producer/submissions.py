"""Submitted requests on their way into the accumulator: appended at once, or parked, or given up.

`take` runs on the caller's thread and never blocks: what metadata and memory allow is appended there, without
a word to the I/O thread but a wakeup; the rest is parked (`parked_requests.py`) and goes on there. What comes
back from the I/O thread, that memory was granted, that a request is finished, comes back to here. Java has no
such call: its send blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.producer.appending import Appended, append
from client_core.producer.blocking_metadata_wait import mark_used
from client_core.producer.parked_requests import ParkedRequests
from client_core.producer.ticket import Phase, RecordFailure, Written

if TYPE_CHECKING:
    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.buffer_pool import BufferPool
    from client_core.producer.completions import Completions
    from client_core.producer.io_thread import IoThread
    from client_core.producer.pending_metadata import PendingLookups
    from client_core.producer.pending_request import PendingRequest
    from client_core.producer.record_accumulator import RecordAccumulator
    from client_core.producer.ticket import Done


class Submissions:
    """Takes requests in, and lets go of them. Any thread."""

    #: Set once, by `connect`, before the first request: the three know each other.
    _io_thread: IoThread
    _lookups: PendingLookups

    def __init__(
        self,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        pool: BufferPool,
        completions: Completions,
        clock: Clock,
        events: EventSink,
        *,
        ignore_keys: bool,
    ) -> None:
        self._metadata = metadata
        self._accumulator = accumulator
        self._completions = completions
        self._clock = clock
        self._ignore_keys = ignore_keys
        self.parked = ParkedRequests(
            metadata,
            accumulator,
            pool,
            events,
            self._granted,
            self._left,
            self._go_on,
            ignore_keys=ignore_keys,
        )

    def connect(self, io_thread: IoThread, lookups: PendingLookups) -> None:
        self._io_thread = io_thread
        self._lookups = lookups

    def take(self, request: PendingRequest, now_ms: int) -> None:
        """Appends what can be appended now, unless others wait for the same topic; parks the rest.

        All of a request `in_portions` is parked: the I/O thread takes them.
        """
        if request.in_portions or self.parked.holds_back(request.topic):
            self._park(request)
            return
        cache = self._metadata.cache
        mark_used(cache, request.topic)
        went = append(
            request,
            self._accumulator,
            cache,
            now_ms,
            self._clock.wall_ms(),
            ignore_keys=self._ignore_keys,
            answered=False,
        )
        if went.error is not None:
            failure = RecordFailure(went.error, Phase.METADATA, Written.NO, 0)
            request.fail(request.drop_not_appended(), failure)
        if went.so_far is Appended.ALL or went.error is not None:
            self._io_thread.take(request, wake=went.wakes)
        elif went.so_far is Appended.UP_TO_A_MISSING_PARTITION:
            self._io_thread.take(request, wake=True)
        else:
            self._park(request)

    def cancel(self, request: PendingRequest) -> None:
        """Forgets who waits for it, and takes back what was not sent."""
        if request.forget():
            self._io_thread.do(lambda now_ms: self.parked.cancel(request, now_ms, self._clock.wall_ms()))

    def finished(self, request: PendingRequest, done: Done) -> None:
        """Has `done` told at the end of this turn, or of the next if this is not the I/O thread."""
        self._completions.add(done, request.result(self._clock.now_ms()))
        if self._io_thread.is_current:
            self.parked.finished(request)
        else:
            self._io_thread.wakeup()

    def _park(self, request: PendingRequest) -> None:
        self.parked.hold_back(request)
        self._io_thread.take(request, wake=True)

    def _granted(self, request: PendingRequest) -> None:
        self._io_thread.do(lambda now_ms: self.parked.granted(request, now_ms, self._clock.wall_ms()))

    def _go_on(self, topic: str) -> None:
        self._io_thread.do(lambda now_ms: self.parked.go_on(topic, now_ms, self._clock.wall_ms()))

    def _left(self, topic: str) -> None:
        """No record waits for the topic: if it is not there, and nobody else looks for it, stop asking."""
        if not self._lookups.waits_for(topic):
            self._metadata.discard(topic)
