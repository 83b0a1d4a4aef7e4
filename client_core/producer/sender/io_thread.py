"""The client's one I/O thread: its turn, how other threads reach it, its end.

    new requests and commands -> metadata changes -> deadlines -> Sender.run_once (send, poll, settle) ->
    completions

Other threads put requests and commands into deques and wake the poll; none of these calls blocks. A turn that
raises is a bug. It is counted, its stack is logged once (`uncaught.py`), and a growing pause follows, so that
a bug neither kills the thread, nor burns a core, nor fills the log. The thread ends by `initiate_close`
(accepted records are sent first) or `force_close` (they are given up). Every waiter is notified in any case.
Source: Sender.run, KafkaProducer.close, Kafka 4.3 (SND-13).

A histogram counts the working time of turns, without their sleep: Java's io-time. A long turn delays every
connection, so the histogram's tail is where answered requests expire. Times are differences of `now_ms`,
exact to a millisecond, and their sum is right in the long run. Only the I/O thread writes it, once a turn and
without a lock. Any thread reads, off by at most one turn. Source: SelectorMetrics' io-time, Kafka 4.3.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from client_core import forks
from client_core.clock import FOREVER_MS
from client_core.errors import IllegalStateError, KafkaError, ProducerClosedError
from client_core.latch import Latch
from client_core.producer.requests.least_loaded_call import CLOSED_WHILE_WAITING
from client_core.producer.results.status import Unacknowledged
from client_core.uncaught import UncaughtErrors

if TYPE_CHECKING:
    from client_core.backoff import ExponentialBackoff
    from client_core.client.kafka_client import KafkaClient
    from client_core.clock import Clock
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.accumulator.record_accumulator import RecordAccumulator
    from client_core.producer.requests.parked_requests import ParkedRequests
    from client_core.producer.requests.pending_configs import PendingConfigs
    from client_core.producer.requests.pending_metadata import PendingLookups
    from client_core.producer.requests.pending_offsets import PendingOffsets
    from client_core.producer.requests.pending_request import PendingRequest
    from client_core.producer.requests.topic_refreshes import TopicRefreshes
    from client_core.producer.results.ticket import Completions
    from client_core.producer.sender.sender import Sender


_log: Final = logging.getLogger(__name__)

#: Earlier than any deadline: an awake thread need not be woken for one.
_AWAKE: Final = -1

FORCED: Final = "Producer is closed forcefully."


#: Gets the wakeup for a new request, to call it now or a moment later.
WakeSoon = Callable[[Callable[[], None]], object]


#: Up to 30 s: a turn that blocks in a name look-up may take as long.
BOUNDS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)


@dataclass(frozen=True, slots=True)
class LoopWork:
    """The turns of an I/O thread since its start.

    `counts[i]` are those that worked for at most `bounds_ms[i]` and for more than the bound before; the last
    count is of those beyond all bounds. Turns that raised are only in `failed_turns`.
    """

    bounds_ms: tuple[int, ...]
    counts: tuple[int, ...]
    total_ms: int
    failed_turns: int


class TurnTimes:
    """The counters. One writer."""

    __slots__ = ("_counts", "_total_ms")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self._total_ms = 0

    def __repr__(self) -> str:
        return f"<TurnTimes turns={sum(self._counts)} total_ms={self._total_ms}>"

    def add(self, worked_ms: int) -> None:
        """Counts one turn. I/O thread."""
        self._counts[bisect_left(BOUNDS_MS, worked_ms)] += 1
        self._total_ms += worked_ms

    def read(self, *, failed_turns: int) -> LoopWork:
        """Returns the counts so far. Any thread."""
        return LoopWork(BOUNDS_MS, tuple(self._counts), self._total_ms, failed_turns)


def wake_now(wakeup: Callable[[], None]) -> None:
    """Wakes the thread at once, for a caller that will block."""
    wakeup()


class LifeCycle(Enum):
    """The thread's state."""

    STARTING = "starting"
    RUNNING = "running"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


def _attempt(what: str, step: Callable[[], None]) -> None:
    """Runs one step. An error must not skip the next one, which notifies other waiters."""
    try:
        step()
    except BaseException:  # noqa: BLE001 -- no caller above
        _log.exception("Failed to %s", what)


class IoThread:
    """The thread, its mailboxes and its end. Any thread, unless a method says otherwise."""

    def __init__(
        self,
        sender: Sender,
        client: KafkaClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        parked: ParkedRequests,
        lookups: PendingLookups,
        configs: PendingConfigs,
        offsets: PendingOffsets,
        topic_refreshes: TopicRefreshes,
        completions: Completions,
        clock: Clock,
        pause_after_failure: ExponentialBackoff,
        name: str,
        wake_soon: WakeSoon = wake_now,
    ) -> None:
        """`wake_soon` gets the wakeup for an accepted request: see `KafkaProducer`."""
        self._sender = sender
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._parked = parked
        self._lookups = lookups
        self._configs = configs
        self._offsets = offsets
        self._topic_refreshes = topic_refreshes
        self._calls: Final[tuple[PendingLookups | PendingConfigs | PendingOffsets | TopicRefreshes, ...]] = (
            lookups,
            configs,
            offsets,
            topic_refreshes,
        )
        self._completions = completions
        self._clock = clock
        self._pause_after_failure = pause_after_failure
        self._requests: deque[PendingRequest] = deque()
        self._commands: deque[Callable[[int], None]] = deque()
        self._wake_soon = wake_soon
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ended = Latch()
        self._running = True
        self._forced = False
        self._is_ending = False
        #: Whether nothing that is added now is ever sent.
        self.is_over = False
        self._end_lock = threading.Lock()
        self._made_at = forks.count
        self._at_end: list[Callable[[], None]] = []
        #: Takes a function to call once, when nothing is open any more, where the end runs.
        self.call_at_end: Final = self._at_end.append
        self._pause_lock = threading.RLock()
        self._pause = threading.Condition(self._pause_lock)
        self._failures_in_a_row = 0
        self._metadata_changed = True
        self._wakes_by_ms = _AWAKE
        #: The next deadline, as the last poll found it; and when to retry a call.
        self._deadline_ms = FOREVER_MS
        self._next_call_ms = FOREVER_MS
        self._has_died = False
        #: Turns since the start, and the start of the last one: written by the I/O thread only.
        self.turns = 0
        self.last_turn_ms = clock.now_ms()
        self._uncaught = UncaughtErrors(_log, "the I/O thread")
        #: Their durations, without their sleep.
        self.turn_times: Final = TurnTimes()
        metadata.on_change(self._note_metadata_change)
        sender.poll_limit_ms = self.poll_limit_ms

    def __repr__(self) -> str:
        return f"<IoThread {self.life_cycle.name} turns={self.turns} failed_turns={self.failed_turns}>"

    @property
    def life_cycle(self) -> LifeCycle:
        """The thread's state. Made of flags that are set once: threads that close at once can't undo it."""
        if self._has_died:
            return LifeCycle.FAILED
        if self.is_over:
            return LifeCycle.CLOSED
        if not self._running:
            return LifeCycle.CLOSING
        return LifeCycle.RUNNING if self.was_started else LifeCycle.STARTING

    @property
    def failed_turns(self) -> int:
        """Turns that raised."""
        return self._uncaught.count

    # -- other threads ---------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.was_started:
            raise IllegalStateError("The producer was started already.")
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the I/O thread: in a callback. A later thread may get its identifier."""
        return threading.get_ident() == self._thread.ident and not self._ended.is_set

    @property
    def was_started(self) -> bool:
        return self._thread.ident is not None

    @property
    def is_inherited(self) -> bool:
        """Whether this is a copy in the child of a fork: the thread runs in the parent only."""
        return self._made_at != forks.count

    def take(self, request: PendingRequest, *, wake: bool) -> None:
        """Passes a request to the I/O thread, which watches its deadline and parks it if necessary."""
        self._requests.append(request)
        if wake or request.deadline_ms < self._wakes_by_ms:
            self._wake_soon(self.wakeup)
        self._sweep_if_over()

    def do(self, command: Callable[[int], None]) -> None:
        """Calls `command(now_ms)` in the next turn."""
        self._commands.append(command)
        self.wakeup()
        self._sweep_if_over()

    def wakeup(self) -> None:
        """Ends the present or the next poll. Unnecessary on the I/O thread."""
        if not self.is_current:
            self._client.wakeup()

    def initiate_close(self) -> None:
        """Stops appends; appended and parked records are sent, then the thread ends."""
        self._accumulator.failed.begin_close()
        # First the accumulator, so that nothing is appended after the last turn's check.
        self._accumulator.close()
        self._parked.gate.close()
        self._running = False
        self._client.wakeup()

    def force_close(self) -> None:
        """Fails all unacknowledged records, and ends."""
        self._forced = True
        with self._pause_lock:
            self._pause.notify_all()
        self.initiate_close()

    def still_open(self) -> list[Unacknowledged]:
        """Returns accepted records without an outcome. While the thread runs, they may still get one."""
        came = [
            Unacknowledged(request.topic, None, len(request.not_appended()))
            for request in tuple(self._requests)
        ]
        return [*self._accumulator.unacknowledged(), *self._parked.not_appended(), *came]

    def end_unclosed(self, report: Callable[[], None]) -> None:
        """Makes the thread send accepted records, end, and call `report`: its producer is garbage.

        Called by a finalizer, at any moment, even on this thread: takes no lock of the client.
        """
        self._at_end.append(report)
        if not (self.was_started or self.is_over):
            self._accumulator.failed.begin_close()
            self._end()
        elif self.is_over:
            report()
        else:
            self._commands.append(lambda _: self.initiate_close())
            self._client.wakeup()

    def unacknowledged(self) -> tuple[Unacknowledged, ...]:
        """Returns the failures since the close began, and, until the thread has ended, the open records."""
        return self._accumulator.failed.report(() if self.is_over else self.still_open()).unacknowledged

    def join(self, timeout_ms: int) -> bool:
        """Waits for the thread's end; returns whether it ended. Ends a thread that never started here."""
        if not self.was_started:
            if not self._is_ending:  # a callback of the end may close
                self._end()
            return True
        # A Thread.join that KeyboardInterrupt ends marks the thread as dead (bpo-45274). So this waits for
        # the latch, and joins the thread when it has nothing left to do.
        if not self._ended.wait(timeout_ms / 1000):
            return False
        self._thread.join()
        return True

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        _log.info("The I/O thread has started")
        try:
            while self._running and not self.is_inherited:
                self._guarded_turn()
            if self.is_inherited:
                return  # a callback has forked, and this is the child: the parent notifies the waiters
            self._accumulator.let_appends_finish()
            self._fail_look_ups()
            self._completions.post()
            while not (self._forced or self.is_inherited) and self._has_work():
                self._guarded_turn()
        except BaseException:  # noqa: BLE001 -- the outermost: only status and this line report it
            self._has_died = True
            _log.critical("The I/O thread has died", exc_info=True)
        finally:
            if not self.is_inherited:
                self._run_end()

    def _run_end(self) -> None:
        self._uncaught.end(self._clock.now_ms())
        try:
            self._end()
        finally:
            _log.info("The I/O thread has ended")
            self._ended.set()

    def _guarded_turn(self) -> None:
        try:
            self.turn()
        except BaseException as error:  # noqa: BLE001 -- the outermost turn: a bug must not end the thread
            # Also those that are no Exception: asyncio's CancelledError, or a sys.exit() in a sink.
            if self.is_inherited:
                return
            self._recover(error)
            pause_ms = self._pause_after_failure.backoff_ms(self._failures_in_a_row)
            self._failures_in_a_row += 1
            with self._pause_lock:
                deadline_ms = self._clock.now_ms() + pause_ms
                self._clock.wait_for(self._pause, lambda: self._forced, deadline_ms)
        else:
            if self._failures_in_a_row:
                self._failures_in_a_row = 0
                self._fail_lost_batches(self._clock.now_ms())  # memory may have been short for that, too
            if self._uncaught.unreported:
                self._uncaught.sum_up_when_due(self._clock.now_ms())

    def _recover(self, error: BaseException) -> None:
        """Reports the error of a turn, and ends what the turn lost."""
        now_ms = self._clock.now_ms()
        _attempt("report an error", lambda: self._uncaught.report(error, now_ms))
        self._fail_lost_batches(now_ms)
        _attempt("post results", self._completions.post)

    def _fail_lost_batches(self, now_ms: int) -> None:
        _attempt("fail lost batches", lambda: self._sender.fail_lost_batches(now_ms))

    def turn(self) -> None:
        """Runs one turn. I/O thread, or a test in its place."""
        now_ms, waited_ms = self._clock.now_ms(), self._client.waited_ms
        self.turns += 1
        self.last_turn_ms = now_ms
        came = bool(self._commands or self._requests)
        if came:
            self._take_what_came(now_ms)
            if not self._running:  # added before the close, and taken after it
                self._fail_look_ups()
        if self._metadata_changed:
            self._metadata_changed = False
            try:
                self._go_on_with_metadata(now_ms)
            except BaseException:
                self._metadata_changed = True  # requests after the one that raised have not continued yet
                raise
        if came:
            self._deadline_ms = self._next_deadline_ms()
        if self._deadline_ms <= now_ms:
            self._parked.expire(now_ms, self._clock.wall_ms())
            for calls in self._calls:
                calls.expire(now_ms)
        if self._sender.overloaded is not None:
            self._relieve(*self._sender.overloaded, now_ms)
            self._sender.overloaded = None
        delay_ms = self._topic_refreshes.ask_elsewhere(self._client, now_ms)
        self._next_call_ms = FOREVER_MS if delay_ms is None else now_ms + delay_ms
        for calls in self._calls:
            if calls.count:
                delay_ms = calls.delay_ms(self._client, now_ms)
                if delay_ms is not None:
                    self._next_call_ms = min(self._next_call_ms, now_ms + delay_ms)
        self._sender.run_once(now_ms)
        self._wakes_by_ms = _AWAKE
        if self._completions.finished or self._completions.waiting:
            self._completions.post()
        self.turn_times.add(self._clock.now_ms() - now_ms - (self._client.waited_ms - waited_ms))

    def _relieve(self, node_id: int, latency_ms: int, now_ms: int) -> None:
        """Asks less of an overloaded node, if requests have deadlines: those of `send` have none."""
        if self._parked.giving_up.has_deadlines:
            self._sender.send_one_at_a_time(node_id)
            self._parked.giving_up.too_late(node_id, latency_ms, now_ms)

    def _next_deadline_ms(self) -> int:
        next_ms = self._parked.next_deadline_ms
        for calls in self._calls:
            if calls.count:
                next_ms = min(next_ms, calls.next_deadline_ms)
        return next_ms

    def poll_limit_ms(self, now_ms: int) -> int:
        """Returns the longest sleep of a poll, by the waiting requests. Sender calls it before it polls."""
        self._deadline_ms = self._next_deadline_ms()
        next_ms = min(self._deadline_ms, self._next_call_ms)
        # Before the mailboxes are read: other threads add first, and read this afterwards.
        self._wakes_by_ms = next_ms
        completions = self._completions
        if (
            completions.finished
            or completions.waiting
            or self._metadata_changed
            or self._requests
            or self._commands
        ):
            self._wakes_by_ms = _AWAKE
            return 0
        return max(next_ms - now_ms, 0)

    def _take_what_came(self, now_ms: int) -> None:
        wall_ms = self._clock.wall_ms()
        for _ in range(len(self._commands)):  # commands that these add are for the next turn
            self._commands.popleft()(now_ms)
        while self._requests:
            request = self._requests.popleft()
            try:
                self._parked.take(request, now_ms, wall_ms)
            except MemoryError:
                if not self._parked.is_watched(request):  # else its deadline ends it
                    self._requests.appendleft(request)
                raise

    def _note_metadata_change(self) -> None:
        self._metadata_changed = True

    def _go_on_with_metadata(self, now_ms: int) -> None:
        try:
            # A refresh of topics alone must not take the error from a thread that blocks.
            asked = self._lookups.count or self._configs.count or self._offsets.count
            if self._parked.waiting_for_metadata or asked:
                self._metadata.maybe_throw_fatal_exception()
        except KafkaError as error:
            for calls in self._calls:
                calls.fail_all(error, now_ms)
            self._parked.fail_waiting_for_metadata(error, now_ms)
        self._lookups.metadata_changed(now_ms)
        self._topic_refreshes.metadata_changed(now_ms)
        self._parked.metadata_changed(now_ms, self._clock.wall_ms())

    # -- the end ---------------------------------------------------------------------------------------------

    def _has_work(self) -> bool:
        """Returns whether records are in flight. Java waits for any request, even for unneeded metadata."""
        return (
            self._accumulator.has_undrained
            or self._sender.in_flight_batches > 0
            or self._parked.waiting_for_buffer > 0
            or self._parked.waiting_for_metadata > 0
            or bool(self._requests or self._commands)
        )

    def _fail_waiting(self) -> None:
        """Fails the waits for metadata and memory: they can't succeed any more (PROD-08)."""
        now_ms = self._clock.now_ms()
        while self._commands or self._requests:
            _attempt("take what came", lambda: self._take_what_came(now_ms))
        closed = ProducerClosedError(CLOSED_WHILE_WAITING)
        _attempt("fail requests that wait", lambda: self._parked.fail_all_parked(closed, now_ms))
        self._fail_look_ups()

    def _fail_look_ups(self) -> None:
        now_ms = self._clock.now_ms()
        metadata = ProducerClosedError("Producer closed while waiting for metadata")
        _attempt("fail look-ups", lambda: self._lookups.fail_all(metadata, now_ms))
        _attempt("fail refreshes of topics", lambda: self._topic_refreshes.fail_all(metadata, now_ms))
        configs = ProducerClosedError("Producer closed while waiting for configs")
        _attempt("fail look-ups of configs", lambda: self._configs.fail_all(configs, now_ms))
        offsets = ProducerClosedError("Producer closed while waiting for offsets")
        _attempt("fail look-ups of offsets", lambda: self._offsets.fail_all(offsets, now_ms))

    def _end(self) -> None:
        """Notifies every waiter, and closes the client. Runs once, for any end of the thread."""
        self._is_ending = True
        _attempt("end the accumulator", self._accumulator.end)
        _attempt("free blocked threads", self._parked.gate.close)
        self._fail_waiting()
        forced = ProducerClosedError(FORCED)
        _attempt("give up batches", lambda: self._accumulator.abort_incomplete_batches(forced))
        _attempt("close the network client", self._client.close)
        _attempt("close the metadata", self._metadata.close)
        # First, so that no other thread posts results that a flush may wait for.
        self._completions.post_from_now_on()
        self._accumulator.failed.end()
        # A thread that adds something later reads `is_over` afterwards, and sweeps itself.
        self.is_over = True
        self._sweep_if_over()
        for call in self._at_end:
            _attempt("report the end", call)

    def _sweep_if_over(self) -> None:
        """Fails late requests on the adding thread: the I/O thread has ended."""
        if not self.is_over:
            return
        with self._end_lock:
            self._completions.post_later()  # a callback may come here again
            self._fail_waiting()
            self._completions.post_at_once()
        self._completions.post()
