"""Delivers spooled records to Kafka, in order and at least once, with its own producer.

    hear    results of requests: delivered, moved to the dead letters, or back to the front of the lane
    read    the next entries, each into the lane of its topic (lanes.py)
    send    one request for each topic that has none in flight
    requeue one step of moving dead letters back into the spool (requeue.py)
    tidy    write the mark (folder.py), then delete the files that are not needed any more

A record is done when brokers have acknowledged it, or it is in the dead letters; only then the mark passes
it. A refused record is retried for `topic_wait_ms` before it becomes a dead letter (delivery_outcome.py,
lanes.py). A request ends with an answer, after `topic_wait_ms` without its topic, or after the producer's
delivery.timeout.ms. Expired records are sent again in order. So records of a topic that was deleted while
they were in flight leave the producer's memory by then. The next attempt finds that the topic is missing.

Thread pilotfish-spool-delivery, except `close` and the append to `_answered`, which the producer's I/O
thread does. Other threads read `view` and the counters.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from client_core import (
    FOREVER_MS,
    Clock,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    ProducerRecord,
    RecordFailure,
    Result,
)
from service.base.disk import DISK_IS_FULL
from service.base.producer_protocol import Producer
from service.spool.dead_letters import REASONS, DeadLetterFolder, Reason
from service.spool.delivery_outcome import DeliveryOutcome, delivery_outcome_of, delivery_outcome_of_refusal
from service.spool.folder import FolderTakenError, Mark, write_mark
from service.spool.lanes import CHUNK_BYTES, LANE_BYTES, UNREADABLE, Lane, Lanes, View
from service.spool.reader import Stored
from service.spool.requeue import Chosen, PutBack, Requeue, Requeued
from service.spool.segments import Segment, Segments

_log: Final = logging.getLogger(__name__)

#: The pause of a topic after a failure that may be temporary.
PAUSE_MS: Final = 1_000
#: The shortest time between two writes of the mark.
MARK_EVERY_MS: Final = 1_000
#: The most requeues, running and waiting.
MOST_REQUEUES: Final = 4
#: Longer than any delivery.timeout.ms, after which the producer ends a request.
_NEVER_MS: Final = 2**31
_SHUTTING_DOWN: Final = "the sidecar is shutting down"


class LastError(NamedTuple):
    """The last failure that made records wait or become dead letters: Kafka's error name, and when."""

    kafka_error: str
    at_ms: int


class Delivery:
    """Delivers the committed records."""

    def __init__(
        self,
        segments: Segments,
        dead_letters: DeadLetterFolder,
        mark: Mark,
        producer: Producer,
        clock: Clock,
        *,
        committed: Callable[[], int],
        keep_folder: Callable[[], None],
        topic_wait_ms: int,
        create: bool,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """Owns the producer: starts and closes it. Every entry below `committed()` is on the disk.

        `keep_folder` raises FolderTakenError if another process has the folder. `topic_wait_ms`: how long
        brokers may refuse a topic's records, or not know it, before dead letters.
        `create`: looking up the topic may create it. `chunk_bytes`: the most of one request, or one record.
        """
        self._segments = segments
        self._dead_letters = dead_letters
        self._producer = producer
        self._clock = clock
        self._committed = committed
        self._keep_folder = keep_folder
        self._topic_wait_ms = topic_wait_ms
        self._create = create
        self._chunk_bytes = chunk_bytes
        self.lanes: Final = Lanes(segments, mark, self._on_damage)
        self._written = mark
        self._written_ms = clock.now_ms()
        self._damaged: set[Segment] = set()
        #: Results of requests, with their lanes and records.
        self._answered: deque[tuple[Lane, Sequence[Stored], Result]] = deque()
        self._requeues: deque[Requeue] = deque()
        self._condition = threading.Condition()
        self._called = False
        self._closed = False
        self._fault: str | None = None
        self.delivered = 0
        self.lost = 0
        self.failed_turns = 0
        self.dead_letter_counts = dict.fromkeys(REASONS, 0)
        self.last_error: LastError | None = None
        self._thread = threading.Thread(target=self._run, name="pilotfish-spool-delivery", daemon=True)

    # -- other threads ---------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """The state after the last turn."""
        return self.lanes.view

    def start(self) -> None:
        """Starts the producer and the thread. Called once."""
        self._producer.start()
        self._thread.start()

    def wake(self) -> None:
        """Wakes the thread, because there is work."""
        with self._condition:
            self._called = True
            self._condition.notify()

    def requeue(self, put_back: PutBack, chosen: Chosen, ended: Callable[[Requeued], None]) -> bool:
        """Queues a requeue of dead letters; returns False if too many are waiting.

        `ended` is called on the thread, in `close`, or, after it, at once. Records that this version cannot
        decode stay.
        """
        with self._condition:
            if self._closed:
                ended(Requeued(0, _SHUTTING_DOWN))
                return True
            if len(self._requeues) >= MOST_REQUEUES:
                return False
            self._requeues.append(Requeue(self._dead_letters, put_back, chosen, wake=self.wake, ended=ended))
        self.wake()
        return True

    def close(self, timeout_ms: int) -> None:
        """Stops the thread, then the producer, with at most `timeout_ms` for each, and writes the mark."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_ms / 1000)
        self._producer.close(timeout_ms)
        if self._thread.is_alive():
            _log.error(
                "spool: the disk did not answer in %d ms; delivered records may be sent again", timeout_ms
            )
            return
        while self._requeues:
            self._requeues.popleft().stop(_SHUTTING_DOWN)
        self._hear(self._clock.now_ms())
        self.lanes.look()
        self._write_mark(self._clock.now_ms())
        self._dead_letters.close()

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            self._called = False
            now_ms = self._clock.now_ms()
            try:
                until_ms = self.turn(now_ms)
            except OSError as e:
                self._report(e.strerror or str(e))
                until_ms = now_ms + PAUSE_MS
            except Exception:  # noqa: BLE001
                # Logged, counted and retried: otherwise nothing would be delivered any more.
                self._note_failure()
                until_ms = now_ms + PAUSE_MS
            with self._condition:
                self._clock.wait_for(self._condition, lambda: self._called or self._closed, until_ms)

    def turn(self, now_ms: int) -> int:
        """Does what can be done now; returns the now_ms of the next turn, unless woken. Raises OSError."""
        self._check_folder()
        self._hear(now_ms)
        due_ms = now_ms if self.lanes.read(self._committed()) else FOREVER_MS
        for lane in self.lanes:
            due_ms = min(due_ms, self._go_on(lane, now_ms))
        if self._put_back_more():
            due_ms = now_ms
        self.lanes.look()
        return min(due_ms, self._tidy(now_ms))

    def _check_folder(self) -> None:
        """Raises FolderTakenError: the other process delivers the records, and has its own mark."""
        try:
            self._keep_folder()
        except FolderTakenError:
            raise
        except OSError:
            return  # nobody else uses a folder that is missing, and records in memory can be delivered

    # -- hear ------------------------------------------------------------------------------------------------

    def _hear(self, now_ms: int) -> None:
        while self._answered:
            lane, chunk, result = self._answered.popleft()
            if lane.in_flight is not chunk:
                continue  # the client raised as it took them: they are sent again
            try:
                self._judge(lane, result, now_ms)
            except Exception:  # noqa: BLE001 -- a bug, or a lack of memory
                self._send_again(lane, now_ms)

    def _send_again(self, lane: Lane, now_ms: int) -> None:
        """Handles an unexpected exception: otherwise the topic's records would wait for a result for good."""
        self._note_failure()
        delivery = DeliveryOutcome(None, "an unexpected exception; the log has the stack")
        self._settle(lane, [(stored, delivery) for stored in lane.in_flight], now_ms)

    def _note_failure(self) -> None:
        _log.exception("spool: a delivery failed with an unexpected exception")
        self.failed_turns += 1

    def _judge(self, lane: Lane, result: Result, now_ms: int) -> None:
        deliveries: list[tuple[Stored, DeliveryOutcome]] = []
        for stored, outcome in zip(lane.in_flight, result.outcomes, strict=True):
            if not isinstance(outcome, RecordFailure):
                self.delivered += 1
                lane.patience.delivered()
                continue
            attempts = lane.attempts.get(stored.sequence, 0) + 1
            # Only brokers that answered since the request can have reported the partition missing.
            asked_ms = now_ms - outcome.waited_ms - PAUSE_MS
            partition = _to_send(stored).partition
            lacks = self._producer.cache.lacks_partition(lane.topic, partition, asked_ms)
            delivery = delivery_outcome_of(outcome, attempts, lacks_partition=lacks)
            if self._closed:  # the closing producer failed it
                delivery = DeliveryOutcome(None, delivery.detail)
            else:
                self.last_error = LastError(outcome.error.error.name, now_ms)
            deliveries.append((stored, delivery))
        if not deliveries and self._fault is not None:
            self._fault = None
            _log.info("spool: records are delivered again")
        self._settle(lane, deliveries, now_ms)

    def _settle(self, lane: Lane, deliveries: Sequence[tuple[Stored, DeliveryOutcome]], now_ms: int) -> None:
        """Stores dead letters, and puts the other records back to the front of their lane."""
        is_alone = len(lane.in_flight) == 1
        back: list[Stored] = []
        dead: list[tuple[Stored, Reason, str]] = []
        pause = halve = False
        for stored, delivery in deliveries:
            halve = halve or delivery.alone  # a single record stays single while it waits
            if delivery.alone and not is_alone:
                back.append(stored)
            elif delivery.reason is not None and (
                delivery.at_once
                or lane.patience.is_over(delivery.reason, delivery.detail, now_ms, self._topic_wait_ms)
            ):
                dead.append((stored, delivery.reason, delivery.detail))
            else:
                back.append(stored)
                pause = True
                if delivery.reason is None:
                    lane.patience.interrupted()
                self._report(f"topic {lane.topic}: {delivery.detail}")
        if dead and not self._put_dead_letters(lane, dead):
            back += [stored for stored, *_ in dead]
            pause = True
        back.sort(key=lambda stored: stored.sequence)
        self.lanes.landed(lane, back, halve=halve)
        if pause:
            lane.resumes_ms = now_ms + PAUSE_MS

    def _put_dead_letters(self, lane: Lane, records: Sequence[tuple[Stored, Reason, str]]) -> bool:
        """Stores records as dead letters in order, which a requeue keeps; returns False if that fails."""
        try:
            self._dead_letters.add(records, self._clock.wall_ms())
        except OSError as e:
            self._report(f"can't write dead letters: {e.strerror or e}")
            return False
        for (reason, detail), count in Counter((reason, detail) for _, reason, detail in records).items():
            self.dead_letter_counts[reason] += count
            _log.error(
                "spool: %d records of topic %s are dead letters (%s): %s; `pilotfish spool show` lists them",
                count,
                lane.topic,
                reason,
                detail,
            )
        return True

    # -- send ------------------------------------------------------------------------------------------------

    def _go_on(self, lane: Lane, now_ms: int) -> int:
        """Sends a lane's next records if it is time; returns the now_ms at which to look at it again."""
        if lane.in_flight:
            return FOREVER_MS
        if now_ms < lane.resumes_ms:
            return lane.resumes_ms
        if lane.skipped_from is not None and lane.waiting_bytes < LANE_BYTES // 2:
            self.lanes.catch_up(lane)
        if lane.waiting:
            self._send(lane, now_ms)
        if self.lanes.drop_if_done(lane):
            return FOREVER_MS
        # Nothing is in flight if the client refused the request, or only other topics' entries were read.
        return FOREVER_MS if lane.in_flight else max(lane.resumes_ms, now_ms)

    def _send(self, lane: Lane, now_ms: int) -> None:
        chunk = lane.take(self._chunk_bytes)
        if lane.topic == UNREADABLE:
            self._settle(
                lane,
                [(stored, DeliveryOutcome("unreadable", stored.fault, at_once=True)) for stored in chunk],
                now_ms,
            )
            return
        try:
            self._producer.submit(
                lane.topic,
                [_to_send(stored) for stored in chunk],
                block_deadline_ms=now_ms + self._topic_wait_ms,
                deadline_ms=now_ms + _NEVER_MS,
                done=lambda result: self._on_done(lane, chunk, result),
                create=self._create,
            )
            return
        except (KafkaError, IllegalArgumentError) as e:
            delivery = delivery_outcome_of_refusal(e)
        except IllegalStateError as e:
            delivery = DeliveryOutcome(None, str(e))
        except Exception:  # noqa: BLE001 -- a bug, or a lack of memory
            self._send_again(lane, now_ms)
            return
        self._settle(lane, [(stored, delivery) for stored in chunk], now_ms)

    def _on_done(self, lane: Lane, chunk: Sequence[Stored], result: Result) -> None:
        """Queues a result. Producer's I/O thread."""
        self._answered.append((lane, chunk, result))
        self.wake()

    # -- requeue ---------------------------------------------------------------------------------------------

    def _put_back_more(self) -> bool:
        """Takes a step of the first requeue; returns whether another step can follow at once."""
        if not self._requeues:
            return False
        first = self._requeues[0]
        if not first.has_begun:
            for lane in self.lanes:
                lane.patience.begin_anew()
        try:
            first.go_on()
        finally:
            if first.is_over:
                self._requeues.popleft()
        return bool(self._requeues) and not self._requeues[0].waits

    # -- tidy ------------------------------------------------------------------------------------------------

    def _tidy(self, now_ms: int) -> int:
        """Writes the mark if it moved, at most every MARK_EVERY_MS; returns the now_ms when it is due."""
        if self.lanes.mark == self._written:
            return FOREVER_MS
        due_ms = self._written_ms + MARK_EVERY_MS
        if now_ms < due_ms:
            return due_ms
        self._write_mark(now_ms)
        return FOREVER_MS if self.lanes.mark == self._written else now_ms + MARK_EVERY_MS

    def _write_mark(self, now_ms: int) -> None:
        """Writes the mark, then deletes what it no longer needs; in the other order if the disk is full.

        Deleting first is safe: only the oldest files are deleted, and a reader starts at the first one left.
        """
        mark = self.lanes.mark
        self._written_ms = now_ms
        try:
            self._check_folder()
            try:
                write_mark(self._segments.folder, mark, self._segments.disk)
            except OSError as e:
                if e.errno not in DISK_IS_FULL:
                    raise
                self._take_away(mark)
                write_mark(self._segments.folder, mark, self._segments.disk)
            self._written = mark
            self._take_away(mark)
            self._keep_last_damaged(mark)
        except OSError as e:
            self._report(f"can't write the mark or delete files: {e.strerror or e}")

    def _take_away(self, mark: Mark) -> None:
        for segment in self._segments.wholly_before(mark.low):
            if segment in self._damaged:
                self._move_damaged(segment)
            else:
                self._segments.delete(segment)

    def _keep_last_damaged(self, mark: Mark) -> None:
        """Moves the last file if it is damaged and done: the next process would not know of the damage.

        Only when the mark is on the disk, which then has the numbers that are used.
        """
        last = self._segments.last_earlier
        if last is not None and last in self._damaged and mark.low >= self._segments.next_sequence:
            self._move_damaged(last)

    def _move_damaged(self, segment: Segment) -> None:
        self._dead_letters.move_damaged(self._segments, segment)
        self._damaged.discard(segment)

    def _on_damage(self, segment: Segment, entries: int) -> None:
        _log.error("spool: %s is damaged: %d records of it are lost", segment, entries)
        self._damaged.add(segment)
        self.lost += entries

    def _report(self, fault: str) -> None:
        """Logs a fault once, until records are delivered again."""
        if self._fault is None:
            _log.warning("spool: %s; records wait", fault)
        self._fault = fault


def _to_send(stored: Stored) -> ProducerRecord:
    assert stored.entry is not None  # a record left out would give the others its outcome
    return stored.entry.to_send
