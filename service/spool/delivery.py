"""From the spool to Kafka, on a thread and through a producer of their own: in order, at least once.

    hear    what became of requests: delivered, set aside with a reason, or back to the front of its lane
    read    the next entries, each into the lane of its topic (lanes.py)
    send    one request for each topic that has none on its way
    tidy    the mark (folder.py), then the files of which nothing is needed any more

A record is done when brokers have acknowledged it or it lies in the folder of what was set aside; only then
the mark goes past it. What brokers refuse is tried again for `topic_wait_ms` before it is set aside
(delivery_outcome.py, lanes.py). A request ends with an answer, when its topic was not there for
`topic_wait_ms`, or after the producer's delivery.timeout.ms; what expired is tried again in its order. So
records whose topic was deleted while they were on their way hold the producer's memory no longer than that,
and are then found to have no topic.

Thread pilotfish-spool-delivery, but for `_answered`'s append, which the producer's I/O thread does, and
`close`. Other threads read `view` and the counters.
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
from service.base.fast_metrics import counters
from service.base.producer_protocol import Producer
from service.spool.dead_letters import REASONS, DeadLetterFolder, Reason
from service.spool.delivery_outcome import DeliveryOutcome, delivery_outcome_of, delivery_outcome_of_refusal
from service.spool.folder import Mark, write_mark
from service.spool.lanes import CHUNK_BYTES, LANE_BYTES, UNREADABLE, Lane, Lanes, View
from service.spool.reader import Stored
from service.spool.requeue import Chosen, PutBack, Requeue, Requeued
from service.spool.segments import Segment, Segments

_log: Final = logging.getLogger(__name__)

#: The pause of a topic after a failure that may pass.
PAUSE_MS: Final = 1_000
#: How often the mark is written at most.
MARK_EVERY_MS: Final = 1_000
#: How many requeues there may be, the one that goes on and those that wait for it.
MOST_REQUEUES: Final = 4
#: Beyond the longest delivery.timeout.ms, by which the producer ends a request.
_NEVER_MS: Final = 2**31


class LastError(NamedTuple):
    """Why records wait, or were set aside: the last failure, by Kafka's name of it, and when."""

    kafka_error: str
    at_ms: int


class Delivery:
    """Delivers what is committed."""

    def __init__(
        self,
        segments: Segments,
        aside: DeadLetterFolder,
        mark: Mark,
        producer: Producer,
        clock: Clock,
        *,
        committed: Callable[[], int],
        topic_wait_ms: int,
        create: bool,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """Takes the producer over, starts and closes it. `committed`: every entry below it is on the disk.

        `topic_wait_ms`: how long brokers may say that a topic is not there, or refuse its records, until
        these are set aside.
        `create`: asking for the topic may create it. `chunk_bytes`: what one request takes, or one record.
        """
        self._segments = segments
        self._aside = aside
        self._producer = producer
        self._clock = clock
        self._committed = committed
        self._topic_wait_ms = topic_wait_ms
        self._create = create
        self._chunk_bytes = chunk_bytes
        self.lanes: Final = Lanes(segments, mark, self._on_damage)
        self._written = mark
        self._written_ms = clock.now_ms()
        self._damaged: set[Segment] = set()
        self._answered: deque[tuple[Lane, Result]] = deque()
        self._requeues: deque[Requeue] = deque()
        self._condition = threading.Condition()
        self._called = False
        self._closed = False
        self._fault: str | None = None
        self.delivered = 0
        self.lost = 0
        self.failed_turns = 0
        self.set_aside = counters("pilotfish_spool_set_aside", "Dead letters, by reason.", "reason")
        for reason in REASONS:
            self.set_aside.child(reason)
        self.last_error: LastError | None = None
        self._thread = threading.Thread(target=self._run, name="pilotfish-spool-delivery", daemon=True)

    # -- other threads ---------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """The delivery after its last turn."""
        return self.lanes.view

    def start(self) -> None:
        """Starts the producer and the thread. Once."""
        self._producer.start()
        self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        with self._condition:
            self._called = True
            self._condition.notify()

    def requeue(self, put_back: PutBack, chosen: Chosen, ended: Callable[[Requeued], None]) -> bool:
        """Has the thread put records back that were set aside; False where too many wait for that already.

        `ended` is called on the thread. What this version can't read stays where it is.
        """
        with self._condition:
            if self._closed or len(self._requeues) >= MOST_REQUEUES:
                return False
            self._requeues.append(Requeue(self._aside, put_back, chosen, wake=self.wake, ended=ended))
        self.wake()
        return True

    def close(self, timeout_ms: int) -> None:
        """Ends the thread, gives what is in flight so long to be acknowledged, and writes the mark."""
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
            self._requeues.popleft().give_up("the sidecar is shutting down")
        self._hear(self._clock.now_ms())
        self.lanes.look()
        self._write_mark(self._clock.now_ms())
        self._aside.close()

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
                # A bug: told, counted, and tried again, or nothing would ever be delivered any more.
                _log.exception("spool: a turn of the delivery failed")
                self.failed_turns += 1
                until_ms = now_ms + PAUSE_MS
            with self._condition:
                self._clock.wait_for(self._condition, lambda: self._called or self._closed, until_ms)

    def turn(self, now_ms: int) -> int:
        """Does what can be done now; when the next turn is due, unless it is woken before. Raises OSError."""
        self._hear(now_ms)
        due_ms = now_ms if self.lanes.read(self._committed()) else FOREVER_MS
        for lane in self.lanes:
            due_ms = min(due_ms, self._go_on(lane, now_ms))
        if self._put_back_more():
            due_ms = now_ms
        self.lanes.look()
        return min(due_ms, self._tidy(now_ms))

    # -- hear ------------------------------------------------------------------------------------------------

    def _hear(self, now_ms: int) -> None:
        while self._answered:
            lane, result = self._answered.popleft()
            self._judge(lane, result, now_ms)

    def _judge(self, lane: Lane, result: Result, now_ms: int) -> None:
        deliveries: list[tuple[Stored, DeliveryOutcome]] = []
        for stored, outcome in zip(lane.in_flight, result.outcomes, strict=True):
            if not isinstance(outcome, RecordFailure):
                self.delivered += 1
                lane.patience.delivered()
                continue
            attempts = lane.attempts.get(stored.sequence, 0) + 1
            delivery = delivery_outcome_of(outcome, attempts, lacks_partition=self._lacks_partition(stored))
            if self._closed:  # it failed because the producer ends
                delivery = DeliveryOutcome(None, delivery.detail)
            else:
                self.last_error = LastError(outcome.error.error.name, now_ms)
            deliveries.append((stored, delivery))
        if not deliveries and self._fault is not None:
            self._fault = None
            _log.info("spool: records are delivered again")
        self._settle(lane, deliveries, now_ms)

    def _lacks_partition(self, stored: Stored) -> bool:
        record = _record_of(stored)
        count = self._producer.cache.partition_count(record.topic)
        return record.partition is not None and count is not None and record.partition >= count

    def _settle(self, lane: Lane, deliveries: Sequence[tuple[Stored, DeliveryOutcome]], now_ms: int) -> None:
        """Sets aside what is to be, and puts the rest back to the front of its lane."""
        is_alone = len(lane.in_flight) == 1
        back: list[Stored] = []
        aside: list[tuple[Stored, Reason, str]] = []
        attempts = {stored.sequence: lane.attempts.get(stored.sequence, 0) + 1 for stored, _ in deliveries}
        pause = halve = False
        for stored, delivery in deliveries:
            halve = halve or delivery.alone  # and what is alone stays so for as long as it waits
            if delivery.alone and not is_alone:
                back.append(stored)
            elif delivery.reason is not None and self._gives_up(lane, delivery.reason, delivery, now_ms):
                aside.append((stored, delivery.reason, delivery.detail))
            else:
                back.append(stored)
                pause = True
                if delivery.reason is None:
                    lane.patience.interrupted()
                self._report(f"topic {lane.topic}: {delivery.detail}")
        if aside and not self._put_dead_letter(lane, aside):
            back += [stored for stored, *_ in aside]
            pause = True
        back.sort(key=_sequence_of)
        self.lanes.landed(lane, back, halve=halve)
        lane.attempts.update((stored.sequence, attempts[stored.sequence]) for stored in back)
        if pause:
            lane.resumes_ms = now_ms + PAUSE_MS

    def _gives_up(self, lane: Lane, reason: Reason, delivery: DeliveryOutcome, now_ms: int) -> bool:
        """Whether a record that is refused is to be set aside now; else it waits."""
        if delivery.at_once:
            return True
        return lane.patience.is_over(reason, delivery.detail, now_ms, self._topic_wait_ms)

    def _put_dead_letter(self, lane: Lane, records: Sequence[tuple[Stored, Reason, str]]) -> bool:
        """All of them or none, in their order, which is that in which they can be put back."""
        try:
            self._aside.add(records, self._clock.wall_ms())
        except OSError as e:
            self._report(f"can't write dead letters: {e.strerror or e}")
            return False
        for (reason, detail), count in Counter((reason, detail) for _, reason, detail in records).items():
            self.set_aside.child(reason).add(count)
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
        """Sends the next records of a lane if it is time; when it is to be looked at again."""
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
        # Nothing of it is in flight where it was refused, or where all that was read was of other topics.
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
                [_record_of(stored) for stored in chunk],
                block_deadline_ms=now_ms + self._topic_wait_ms,
                deadline_ms=now_ms + _NEVER_MS,
                done=lambda result: self._on_done(lane, result),
                create=self._create,
            )
        except (KafkaError, IllegalArgumentError) as e:
            delivery = delivery_outcome_of_refusal(e)
            self._settle(lane, [(stored, delivery) for stored in chunk], now_ms)
        except IllegalStateError as e:
            self._settle(lane, [(stored, DeliveryOutcome(None, str(e))) for stored in chunk], now_ms)

    def _on_done(self, lane: Lane, result: Result) -> None:
        """Producer's I/O thread."""
        self._answered.append((lane, result))
        self.wake()

    # -- requeue ---------------------------------------------------------------------------------------------

    def _put_back_more(self) -> bool:
        """Takes a step of a requeue that was asked for; whether there is another one at once."""
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
        """Writes the mark if it moved, not too often; when it is to be written."""
        if self.lanes.mark == self._written:
            return FOREVER_MS
        due_ms = self._written_ms + MARK_EVERY_MS
        if now_ms < due_ms:
            return due_ms
        self._write_mark(now_ms)
        return FOREVER_MS if self.lanes.mark == self._written else now_ms + MARK_EVERY_MS

    def _write_mark(self, now_ms: int) -> None:
        """Writes the mark, then takes away what it no longer needs; the other way round on a full disk.

        A file that is gone before the mark says so is not missed: it is the first of those there are.
        """
        mark = self.lanes.mark
        self._written_ms = now_ms
        try:
            try:
                write_mark(self._segments.folder, mark, self._segments.disk)
            except OSError as e:
                if e.errno not in DISK_IS_FULL:
                    raise
                self._take_away(mark)
                write_mark(self._segments.folder, mark, self._segments.disk)
            self._written = mark
            self._take_away(mark)
        except OSError as e:
            self._report(f"can't tidy up: {e.strerror or e}")

    def _take_away(self, mark: Mark) -> None:
        for segment in self._segments.wholly_before(mark.low):
            if segment in self._damaged:
                self._aside.move_damaged(self._segments, segment)
            else:
                self._segments.delete(segment)

    def _on_damage(self, segment: Segment, entries: int) -> None:
        _log.error("spool: %s is damaged: %d records of it are lost", segment, entries)
        self._damaged.add(segment)
        self.lost += entries

    def _report(self, fault: str) -> None:
        """Once, until something was delivered."""
        if self._fault is None:
            _log.warning("spool: %s; records wait", fault)
        self._fault = fault


def _sequence_of(stored: Stored) -> int:
    return stored.sequence


def _record_of(stored: Stored) -> ProducerRecord:
    """The record as it is sent: of the time at which it was accepted, where it brought none."""
    assert stored.entry is not None
    record, accepted_wall_ms = stored.entry
    return record if record.timestamp_ms is not None else record._replace(timestamp_ms=accepted_wall_ms)
