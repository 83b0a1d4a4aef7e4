"""Takes submitted requests: appends them at once, or parks them.

`take` runs on the caller's thread and never blocks. It appends what metadata and memory allow and at most
wakes the I/O thread. The rest is parked (`parked_requests.py`) and appended on the I/O thread, which reports
granted memory and finished requests back to here. Java has no such call: its send blocks.

A request is accepted once `take` returns. `close` waits for requests inside `take`, so the report of
`KafkaProducer.close` covers every accepted record.
"""

from __future__ import annotations

import threading
from threading import get_ident
from typing import TYPE_CHECKING, Final

from client_core.errors import IllegalStateError
from client_core.producer.requests.appending import Appended, append
from client_core.producer.requests.metadata_wait import mark_used
from client_core.producer.requests.parked_requests import ParkedRequests
from client_core.producer.results.ticket import Phase, RecordFailure, Written

if TYPE_CHECKING:
    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.accumulator.buffer_pool import BufferPool
    from client_core.producer.accumulator.causes import Causes
    from client_core.producer.accumulator.record_accumulator import RecordAccumulator
    from client_core.producer.requests.least_loaded_call import IoExecutor
    from client_core.producer.requests.pending_metadata import PendingLookups
    from client_core.producer.requests.pending_request import PendingRequest
    from client_core.producer.results.ticket import Completions, Done


#: Java's text (PROD-08).
CLOSED: Final = "Cannot perform operation after producer has been closed"


class Submissions:
    """Accepts, cancels and finishes requests. Any thread."""

    #: Set once, by `connect`, before the first request: the three refer to each other.
    _io_thread: IoExecutor
    _lookups: PendingLookups

    def __init__(
        self,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        pool: BufferPool,
        completions: Completions,
        clock: Clock,
        events: EventSink,
        causes: Causes,
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
            completions,
            causes,
            ignore_keys=ignore_keys,
        )
        self._held_topics = self.parked.gate.topics
        #: Requests inside `take`, and their threads.
        self._under_way: dict[PendingRequest, int] = {}
        self._closed = False
        self._taken_lock = threading.RLock()
        self._taken = threading.Condition(self._taken_lock)

    def connect(self, io_thread: IoExecutor, lookups: PendingLookups) -> None:
        self._io_thread = io_thread
        self._lookups = lookups

    def take(self, request: PendingRequest, now_ms: int) -> None:
        """Appends what can be appended now, unless others wait for the same topic; parks the rest.

        A request `in_chunks` is parked whole: the I/O thread appends it. Raises IllegalStateError after
        close.
        """
        self._under_way[request] = get_ident()
        try:
            if self._closed:  # read after the line above is stored: `close` does the reverse
                raise IllegalStateError(CLOSED)
            self._take_or_cancel(request, now_ms)
        finally:
            del self._under_way[request]
            if self._closed:
                with self._taken_lock:
                    self._taken.notify_all()

    def _take_or_cancel(self, request: PendingRequest, now_ms: int) -> None:
        try:
            self._take(request, now_ms)
        except BaseException:  # the caller has no ticket, so nothing may wait for the request
            self.cancel(request)
            self._io_thread.take(request, wake=True)
            raise

    def close(self) -> None:
        """Refuses new requests, and returns when those inside `take` are accepted. They never block.

        Does not wait for this thread's own: it may be a signal handler that interrupted one.
        """
        self._closed = True
        this_thread = get_ident()
        with self._taken_lock:
            self._taken.wait_for(lambda: all(ident == this_thread for ident in self._threads_under_way()))

    def _threads_under_way(self) -> tuple[int, ...]:
        return tuple(self._under_way.values())

    def _take(self, request: PendingRequest, now_ms: int) -> None:
        cache = self._metadata.cache
        mark_used(cache, request.topic)
        if request.in_chunks or (self._held_topics and self.parked.gate.is_blocked(request.topic)):
            self._park(request)
            return
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
            indices = request.drop_not_appended()
            self._accumulator.failed.add(request.topic, None, len(indices))
            request.fail(indices, failure)
        if went.so_far is Appended.ALL or went.error is not None:
            self._io_thread.take(request, wake=went.wakes)
        else:
            self._park(request)

    def cancel(self, request: PendingRequest) -> None:
        """Drops the caller's wait, and removes the records that were not sent."""
        if request.forget():
            self._io_thread.do(lambda now_ms: self.parked.cancel(request, now_ms, self._clock.wall_ms()))

    def finished(self, request: PendingRequest, done: Done, then: Done | None) -> None:
        """Posts `done` and `then` at the end of this turn, or of the next one if not on the I/O thread."""
        try:
            result = request.result(self._clock.now_ms())
            self._completions.add(done, result)
        except BaseException:
            request.not_posted(done)
            raise
        if then is not None:
            self._completions.add(then, result)
        if self._io_thread.is_current:
            self.parked.finished(request)
        else:
            self._io_thread.wakeup()

    def _park(self, request: PendingRequest) -> None:
        self.parked.gate.block(request, in_callback=self._io_thread.is_current)
        self._io_thread.take(request, wake=True)

    def _granted(self, request: PendingRequest) -> None:
        self._io_thread.do(lambda now_ms: self.parked.granted(request, now_ms, self._clock.wall_ms()))

    def _go_on(self, topic: str) -> None:
        self._io_thread.do(lambda now_ms: self.parked.go_on(topic, now_ms, self._clock.wall_ms()))

    def _left(self, topic: str) -> None:
        """Stops requesting a missing topic, when no record and no look-up waits for it."""
        if not self._lookups.waits_for(topic):
            self._metadata.discard(topic)
