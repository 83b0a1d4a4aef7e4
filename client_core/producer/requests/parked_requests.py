"""Produce requests that wait for metadata or memory, and every request's deadline.

A request that can't be appended at once is parked here, so that no thread waits for it. Each topic has one
FIFO queue, so a caller's records keep their order. Other requests may overtake only a request for a partition
that does not exist (yet). Otherwise one wrong partition number would block the topic until the request's
deadline. Parked requests continue while the producer closes (ORD-03).

A request may have a second, earlier deadline, `missing_deadline_ms`. It ends the wait for a topic that may
not be created and that brokers have twice reported missing, or for a partition beyond the count of a
response that came after the request. Until brokers have reported that, the request waits on. The library
sets none: Java waits for max.block.ms.

A metadata change checks each waiting topic once, however many requests wait for it. Freed memory goes to the
first waiting queue. A deadline touches only the request that is due. Rare cases walk all requests of a topic:
a partition count that changed, a topic that is refused, the readers `topic_waits` and `not_appended`.

Other waits of a produce: an HTTP caller (`service/wire/waiting.py`), a blocking `send` (`metadata_wait.py`,
`buffer_pool.py`), after the append (`record_accumulator.py`, `batch_settlement.py`). I/O thread only, except
`waits_for`, `topic_waits`, `not_appended` and the two counts. Source: KafkaProducer.doSend, Kafka 4.3.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from client_core.errors import KafkaError, ProducerClosedError
from client_core.events import WaitFinished
from client_core.producer.requests.appending import Appended, append
from client_core.producer.requests.deadlines import Deadlines, TopicQueue, UnblockedRequests, topic_waits
from client_core.producer.requests.giving_up import GivingUp
from client_core.producer.requests.metadata_wait import (
    Fail,
    Known,
    judge_metadata_wait,
    metadata_timeout,
    with_cause_of_silence,
)
from client_core.producer.requests.ordering_gate import OrderingGate
from client_core.producer.requests.pending_request import PendingRequest
from client_core.producer.results.results import Wait
from client_core.producer.results.status import Unacknowledged
from client_core.producer.results.ticket import Phase, RecordFailure, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.events import EventSink
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.accumulator.backlog import TopicWait
    from client_core.producer.accumulator.buffer_pool import BufferPool
    from client_core.producer.accumulator.causes import Causes
    from client_core.producer.accumulator.record_accumulator import RecordAccumulator
    from client_core.producer.results.ticket import Completions


class ParkedRequests:
    """The waiting requests by topic, and their deadlines."""

    def __init__(
        self,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        pool: BufferPool,
        events: EventSink,
        on_granted: Callable[[PendingRequest], None],
        on_left: Callable[[str], None],
        on_chunk: Callable[[str], None],
        completions: Completions,
        causes: Causes,
        *,
        ignore_keys: bool,
    ) -> None:
        """`on_granted(request)`: its memory is granted; `on_left(topic)`: no record waits for it any more;
        `on_chunk(topic)`: more can be appended for it, by `go_on` in another turn.
        """
        self._metadata = metadata
        self._accumulator = accumulator
        self._pool = pool
        self._events = events
        self._on_granted = on_granted
        self._on_left = on_left
        self._on_chunk = on_chunk
        self._completions = completions
        self._causes = causes
        self._ignore_keys = ignore_keys
        self._queues: dict[str, TopicQueue] = {}
        self._unblocked: dict[str, UnblockedRequests] = {}
        self._block_deadlines = Deadlines[PendingRequest]()
        self._missing_deadlines = Deadlines[PendingRequest]()
        self._deadlines = Deadlines[PendingRequest]()
        #: The requests that may not be overtaken. Any thread.
        self.gate: Final = OrderingGate(lambda topic: metadata.cache.partition_count(topic))
        self._waiting = dict.fromkeys(Phase, 0)
        self.giving_up: Final = GivingUp(metadata, accumulator, self._deadlines, causes, events)

    def __repr__(self) -> str:
        metadata, buffer = self.waiting_for_metadata, self.waiting_for_buffer
        return f"<ParkedRequests waiting_for_metadata={metadata} waiting_for_buffer={buffer}>"

    # -- any thread ------------------------------------------------------------------------------------------

    @property
    def waiting_for_metadata(self) -> int:
        return self._waiting[Phase.METADATA]

    @property
    def waiting_for_buffer(self) -> int:
        return self._waiting[Phase.BUFFER]

    def waits_for(self, topic: str) -> bool:
        """Returns whether any request waits for the topic, or for a partition of it. A plain read."""
        return topic in self._queues or topic in self._unblocked

    def topic_waits(self) -> tuple[TopicWait, ...]:
        return topic_waits(self._queues, self._unblocked)

    def not_appended(self) -> tuple[Unacknowledged, ...]:
        """Returns how many records of each topic are parked."""
        parked = [tuple(queue.requests) for queue in tuple(self._queues.values())]
        parked += [tuple(unblocked.requests) for unblocked in tuple(self._unblocked.values())]
        return tuple(
            Unacknowledged(request.topic, None, len(request.not_appended()))
            for requests in parked
            for request in requests
        )

    # -- new -------------------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int:
        """Returns the next deadline, or FOREVER_MS if there is none. Its request may have ended already."""
        next_ms = self._deadlines.next_ms
        if self._queues or self._unblocked:  # only a parked request has the other two
            next_ms = min(next_ms, self._block_deadlines.next_ms, self._missing_deadlines.next_ms)
        return next_ms

    def is_watched(self, request: PendingRequest) -> bool:
        """Returns whether the request's deadline is known."""
        return self._deadlines.has(request.deadline_ms, request)

    def take(self, request: PendingRequest, now_ms: int, wall_ms: int) -> None:
        """Watches a request's deadline, and parks the request unless all of it is appended."""
        if request.is_finished:
            if request.blocks_others:
                self.gate.remove(request)
            return
        self._deadlines.add(request.deadline_ms, request)
        if not request.is_parked:
            return
        self._block_deadlines.add(request.block_deadline_ms, request)
        if request.missing_deadline_ms is not None:
            self._missing_deadlines.add(request.missing_deadline_ms, request)
        request.parked_ms = now_ms
        unblocked = self._unblocked.get(request.topic)
        if unblocked is not None:
            # The new request may also be for a partition that does not exist yet, like those in `unblocked`.
            self._try_partitions(request.topic, unblocked, now_ms, wall_ms)
        self._join_queue(request, now_ms, wall_ms)

    def _join_queue(self, request: PendingRequest, now_ms: int, wall_ms: int) -> None:
        """Queues behind the topic's other requests, and continues at once if there are none."""
        queue = self._queues.get(request.topic)
        if queue is None:
            queue = self._queues[request.topic] = TopicQueue()
        queue.requests[request] = None
        self._waiting[queue.phase] += 1
        may_create_now = request.may_create and not queue.may_create
        queue.may_create |= request.may_create
        if len(queue.requests) == 1:
            self._go_on(request.topic, queue, now_ms, wall_ms, answered=False)
            return
        request.has_waited = True
        if may_create_now and queue.phase is Phase.METADATA:
            self._ask_for(request.topic, True, now_ms)

    # -- progress --------------------------------------------------------------------------------------------

    def metadata_changed(self, now_ms: int, wall_ms: int) -> None:
        """Checks each topic that waits for metadata; requests missing topics again."""
        for topic, unblocked in tuple(self._unblocked.items()):  # first: they came before the queued ones
            self._try_partitions(topic, unblocked, now_ms, wall_ms)
            if unblocked.impatient:
                self._fail_missing(tuple(unblocked.impatient), now_ms)
            if topic in self._unblocked:
                self._ask_for(topic, False, now_ms)
        for topic, queue in tuple(self._queues.items()):
            if queue.phase is Phase.METADATA and not queue.continues:
                self._go_on(topic, queue, now_ms, wall_ms, answered=True)
                if queue.impatient:
                    self._fail_missing(tuple(queue.impatient), now_ms)

    def granted(self, request: PendingRequest, now_ms: int, wall_ms: int) -> None:
        """Continues a request whose memory was granted."""
        waiter, request.waiter = request.waiter, None
        if waiter is None:
            return  # it left the queue before this grant, and returned the memory
        request.reserved_bytes += waiter.size_bytes
        queue = self._queues.get(request.topic)
        if queue is None or request not in queue.requests:
            self._release(request)
        else:
            self._go_on(request.topic, queue, now_ms, wall_ms, answered=True)

    def go_on(self, topic: str, now_ms: int, wall_ms: int) -> None:
        """Appends the next chunk of a topic's first request."""
        queue = self._queues.get(topic)
        if queue is not None and queue.continues:
            queue.continues = False
            self._go_on(topic, queue, now_ms, wall_ms, answered=False)

    def _go_on(self, topic: str, queue: TopicQueue, now_ms: int, wall_ms: int, *, answered: bool) -> None:
        """Appends from the queue's front as far as metadata and memory allow.

        After the unblocked requests, if their partitions exist now: the turn has yet to look at new metadata.
        """
        unblocked = self._unblocked.get(topic)
        count = self._metadata.cache.partition_count(topic)
        if unblocked is not None and count not in (None, unblocked.partition_count):
            self._resume(topic, unblocked, now_ms, wall_ms)
            return
        while queue.requests:
            request = queue.first
            if request.is_finished:  # cancelled; the cancel command follows
                self._unpark(request, "error", now_ms)
                request.drop_not_appended()
                self.gate.remove(request)
                continue
            try:
                went = append(
                    request,
                    self._accumulator,
                    self._metadata.cache,
                    now_ms,
                    wall_ms,
                    ignore_keys=self._ignore_keys,
                    answered=answered,
                    was_parked=True,
                )
            except BaseException as bug:
                self._end_for_bug(request, bug, now_ms)
                raise
            if went.error is not None:
                self._fail(request, went.error, Phase.METADATA, now_ms)
            elif went.so_far is Appended.ALL:
                self._unpark(request, "success", now_ms)
                self.gate.remove(request)
            elif went.so_far is Appended.CHUNK:
                if request.block_deadline_ms <= now_ms < request.deadline_ms:
                    continue  # it waits for nothing, so its deadline must not end it
                # The next one waits for memory: the topic is known.
                self._set_phase(queue, Phase.BUFFER, now_ms)
                queue.continues = True
                self._on_chunk(topic)
                return
            elif went.so_far is Appended.UP_TO_A_MISSING_PARTITION:
                self._leave_queue(request)
                self._release(request)
                self._block(request, now_ms)
            elif went.needed_bytes is not None:
                request.has_waited = True
                self._set_phase(queue, Phase.BUFFER, now_ms)
                # The memory granted is too little. If the request kept it, its own new wait for memory could
                # block.
                self._release(request)

                try:
                    request.waiter = self._pool.wait_for(
                        went.needed_bytes, partial(self._on_granted, request)
                    )
                except ProducerClosedError as error:  # closed since the append a moment ago
                    self._fail(request, error, Phase.BUFFER, now_ms)
                    continue
                return
            else:
                request.has_waited = True
                self._set_phase(queue, Phase.METADATA, now_ms)
                self._release(request)  # others can use it, while this request waits for something else
                self._ask_for(topic, queue.may_create, now_ms)
                return

    def _block(self, request: PendingRequest, now_ms: int) -> None:
        """Waits for the topic to get the partition, without blocking other requests."""
        request.has_waited = True
        count = self._metadata.cache.partition_count(request.topic) or 0
        unblocked = self._unblocked.get(request.topic)
        if unblocked is None:
            unblocked = self._unblocked[request.topic] = UnblockedRequests(count)
        self.gate.unblock(request, count)
        unblocked.requests[request] = None
        if request.missing_deadline_ms is not None and request.missing_deadline_ms <= now_ms:
            unblocked.impatient[request] = None
        self._waiting[Phase.METADATA] += 1
        self._ask_for(request.topic, request.may_create, now_ms)

    def _try_partitions(self, topic: str, unblocked: UnblockedRequests, now_ms: int, wall_ms: int) -> None:
        judged = judge_metadata_wait(self._metadata.cache, topic, None, answered=True)
        if isinstance(judged, Fail):
            for request in tuple(unblocked.requests):
                self._fail(request, judged.error, Phase.METADATA, now_ms)
        elif isinstance(judged, Known) and judged.partition_count != unblocked.partition_count:
            self._resume(topic, unblocked, now_ms, wall_ms)
        else:
            self.gate.look_again(topic)

    def _resume(self, topic: str, unblocked: UnblockedRequests, now_ms: int, wall_ms: int) -> None:
        """Queues all again, before later requests, because the partition count changed."""
        self.gate.block_again(topic)
        del self._unblocked[topic]
        queue = self._queues.get(topic)
        if queue is None:
            queue = self._queues[topic] = TopicQueue()
        else:
            self._release(queue.first)  # it is not the first any more, and must not keep the memory
        self._set_phase(queue, Phase.METADATA, now_ms)
        queue.requests = OrderedDict({**unblocked.requests, **queue.requests})
        queue.impatient.update(unblocked.impatient)
        queue.may_create |= any(request.may_create for request in unblocked.requests)
        self._go_on(topic, queue, now_ms, wall_ms, answered=True)

    def _ask_for(self, topic: str, may_create: bool, now_ms: int) -> None:
        """Requests metadata again; Metadata applies the backoff (PROD-01)."""
        self._metadata.add(topic, now_ms, may_create=may_create)
        self._metadata.request_update_for_topic(topic)

    # -- failures --------------------------------------------------------------------------------------------

    def expire(self, now_ms: int, wall_ms: int) -> None:
        """Fails the requests whose wait is over."""
        blocked_for_too_long = self._block_deadlines.end_due(
            now_ms, lambda request: self._fail_if_parked(request, request.block_deadline_ms, now_ms)
        )
        self._missing_deadlines.end_due(now_ms, lambda request: self._became_impatient(request, now_ms))
        out_of_time = self._deadlines.end_due(
            now_ms, lambda request: self._fail_if_parked(request, request.deadline_ms, now_ms)
        )
        self.giving_up.at_deadline([request for request in out_of_time if not request.is_finished], now_ms)
        topics = {request.topic for request in (*blocked_for_too_long, *out_of_time)}
        self._let_next_go_on(topics, now_ms, wall_ms)

    def _fail_if_parked(self, request: PendingRequest, deadline_ms: int, now_ms: int) -> None:
        if not request.is_finished and request.is_parked:
            self._fail_for_time(request, deadline_ms - request.submitted_ms, now_ms)

    def _became_impatient(self, request: PendingRequest, now_ms: int) -> None:
        """Ends a request at its `missing_deadline_ms`; or else when what it waits for is reported missing."""
        if request.is_finished or not request.is_parked:
            return
        queue, unblocked = self._queues.get(request.topic), self._unblocked.get(request.topic)
        if queue is not None and request in queue.requests:
            queue.impatient[request] = None
        elif unblocked is not None and request in unblocked.requests:
            unblocked.impatient[request] = None
        self._fail_missing((request,), now_ms)

    def _fail_missing(self, requests: Sequence[PendingRequest], now_ms: int) -> None:
        """Fails those of the requests, all of one topic, whose topic or partition brokers report missing."""
        topic = requests[0].topic
        queue, unblocked = self._queues.get(topic), self._unblocked.get(topic)
        for request in requests:
            if queue is not None and request in queue.requests:
                may_create = queue.may_create
                is_missing = (
                    queue.phase is Phase.METADATA and not may_create and self._metadata.is_missing(topic)
                )
            else:
                refreshed_ms = self._metadata.cache.refreshed_ms(topic)
                is_missing = (
                    unblocked is not None
                    and request in unblocked.requests
                    and refreshed_ms is not None
                    and refreshed_ms >= request.submitted_ms
                )
            if is_missing:
                self._fail_for_time(request, now_ms - request.submitted_ms, now_ms)

    def cancel(self, request: PendingRequest, now_ms: int, wall_ms: int) -> None:
        """Removes a cancelled request. Appended records are delivered."""
        if request.is_parked:
            self._unpark(request, "error", now_ms)
            request.drop_not_appended()
            self.gate.remove(request)
            self._let_next_go_on({request.topic}, now_ms, wall_ms)
        self._deadlines.discard(request.deadline_ms, request)

    def _let_next_go_on(self, topics: set[str], now_ms: int, wall_ms: int) -> None:
        """Queues each topic's next request for memory, if the first request left the pool's queue."""
        for topic in topics:
            queue = self._queues.get(topic)
            if queue is None or queue.continues:
                continue
            if queue.phase is Phase.BUFFER and queue.first.waiter is None:
                self._go_on(topic, queue, now_ms, wall_ms, answered=True)

    def finished(self, request: PendingRequest) -> None:
        """Forgets the deadline of a request that has ended."""
        self._deadlines.discard(request.deadline_ms, request)

    def fail_waiting_for_metadata(self, error: KafkaError, now_ms: int) -> None:
        """Fails the waits for metadata, because no metadata will arrive.

        Authentication failed, or the brokers' version is unsupported.
        """
        for queue in tuple(self._queues.values()):
            if queue.phase is Phase.METADATA:
                for request in tuple(queue.requests):
                    self._fail(request, error, Phase.METADATA, now_ms)
        for unblocked in tuple(self._unblocked.values()):
            for request in tuple(unblocked.requests):
                self._fail(request, error, Phase.METADATA, now_ms)

    def fail_all_parked(self, error: KafkaError, now_ms: int) -> None:
        """Fails all parked requests: the producer closes."""
        self.fail_waiting_for_metadata(error, now_ms)
        for queue in tuple(self._queues.values()):
            for request in tuple(queue.requests):
                self._fail(request, error, Phase.BUFFER, now_ms)

    def _fail_for_time(self, request: PendingRequest, limit_ms: int, now_ms: int) -> None:
        queue = self._queues.get(request.topic)
        if queue is not None and request in queue.requests and queue.phase is Phase.BUFFER:
            # Only the first of a queue knows how much memory it needs.
            waiter, batch_bytes = request.waiter, self._pool.poolable_bytes
            size_bytes = batch_bytes if waiter is None else waiter.size_bytes
            exhausted = self._pool.exhausted(size_bytes, limit_ms)
            exhausted.because_of(self._causes.of_oldest(self._accumulator.incomplete(), now_ms))
            self._fail(request, exhausted, Phase.BUFFER, now_ms, outcome="timeout")
            return
        error = metadata_timeout(
            self._metadata.cache,
            request.topic,
            request.waits_for_partition,
            limit_ms,
            self._metadata.proven_error_code(request.topic),
            self._metadata.last_disconnection,
            self._metadata.cause_of_silence,
        )
        with_cause_of_silence(error, self._metadata)
        self._fail(request, error, Phase.METADATA, now_ms, outcome="timeout")

    def _fail(
        self, request: PendingRequest, error: KafkaError, phase: Phase, now_ms: int, outcome: str = "error"
    ) -> None:
        self._unpark(request, outcome, now_ms)
        failure = RecordFailure(error, phase, Written.NO, now_ms - request.submitted_ms)
        indices = request.drop_not_appended()
        self._accumulator.failed.add(request.topic, None, len(indices))
        request.fail(indices, failure)
        self.gate.remove(request)

    def _end_for_bug(self, request: PendingRequest, bug: BaseException, now_ms: int) -> None:
        """Fails the one request that raised; else it would raise each time and block its queue.

        Its progress is unknown. Records that were appended are delivered, and their outcomes complete the
        request. The other records are never delivered.
        """
        self._unpark(request, "error", now_ms)
        error = KafkaError(
            f"The request ended with an unexpected exception, {type(bug).__name__}: the log has its stack."
        )
        failed = request.give_up(error, (), now_ms - request.submitted_ms)
        self._accumulator.failed.add(request.topic, None, failed)
        request.drop_not_appended()
        self.gate.remove(request)

    # -- leaving ---------------------------------------------------------------------------------------------

    def _unpark(self, request: PendingRequest, outcome: str, now_ms: int) -> None:
        """Removes a waiting request, and reports how long it waited.

        The caller then ends it if it failed, and removes it from the gate last: a flush that finds it gone
        waits for the results that are not posted.
        """
        self._block_deadlines.discard(request.block_deadline_ms, request)
        if request.missing_deadline_ms is not None:
            self._missing_deadlines.discard(request.missing_deadline_ms, request)
        queue = self._queues.get(request.topic)
        if not request.has_waited:
            pass  # only for its own next chunk
        elif queue is not None and request in queue.requests:
            request.waits = queue.waits_of(request, now_ms)
        elif now_ms > request.parked_ms:  # it was unblocked
            request.waits = (Wait(Phase.METADATA, now_ms - request.parked_ms),)
        phase = self._leave_queue(request) or self._leave_unblocked(request)
        if not request.has_waited:
            phase = None
        had_place_in_pool = request.waiter is not None
        self._release(request)
        if request.appended is not None:
            self._completions.add(request.appended, request.result(now_ms))
        # The pool itself reports the grants.
        if phase is Phase.METADATA or (phase is Phase.BUFFER and (had_place_in_pool or outcome != "success")):
            self._events.emit(WaitFinished(phase.value, outcome, now_ms - request.parked_ms))

    def _leave_queue(self, request: PendingRequest) -> Phase | None:
        queue = self._queues.get(request.topic)
        if queue is None or request not in queue.requests:
            return None
        is_last = len(queue.requests) == 1
        if is_last:  # first: no turn can go on with an empty queue, whatever may raise below
            del self._queues[request.topic]
        del queue.requests[request]
        queue.impatient.pop(request, None)
        self._waiting[queue.phase] -= 1
        if is_last:
            self._on_left(request.topic)
        return queue.phase

    def _leave_unblocked(self, request: PendingRequest) -> Phase | None:
        unblocked = self._unblocked.get(request.topic)
        if unblocked is None or request not in unblocked.requests:
            return None
        if len(unblocked.requests) == 1:
            del self._unblocked[request.topic]
        del unblocked.requests[request]
        unblocked.impatient.pop(request, None)
        self._waiting[Phase.METADATA] -= 1
        return Phase.METADATA

    def _release(self, request: PendingRequest) -> None:
        """Removes the request from the pool's queue, and returns unused memory."""
        waiter, request.waiter = request.waiter, None
        if waiter is not None and not waiter.cancel():
            request.reserved_bytes += waiter.size_bytes
        reserved, request.reserved_bytes = request.reserved_bytes, 0
        if reserved:
            self._pool.deallocate(reserved)

    def _set_phase(self, queue: TopicQueue, phase: Phase, now_ms: int) -> None:
        if queue.phase is not phase:
            queue.phase_since_ms = now_ms
            self._waiting[queue.phase] -= len(queue.requests)
            self._waiting[phase] += len(queue.requests)
            queue.phase = phase
