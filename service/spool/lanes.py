"""Keeps the records under delivery: a lane per topic, in order, within bounds of memory.

    skipped (on the disk only)  ──read──▶  waiting  ──take──▶  in flight  ──▶  done, or back at the front

A lane has one request in flight at a time, so that no record overtakes another. If one record of a refused
request may be the cause, the request is halved until that record is alone. Nothing after that record is sent
before it is delivered or a dead letter. Each delivered request doubles the size again.

Memory is bounded by WINDOW_BYTES for all topics (plus one read), and by LANE_BYTES for each. If a topic
stalls and its lane is full, its next records are skipped, and read from the disk again when there is room. So
the other topics continue. Eight stalled topics with many records fill the window, or thousands with few; they
delay the others then.

`Patience` decides how long refused records of a topic wait: for wait_ms without a delivery. After that, the
same reason is not waited for again, until wait_ms have passed without a new dead letter of the topic.
Otherwise a topic with many such records would progress by one record per wait. A delivery also ends this, if
the reason is one of the whole topic. This state is in memory: after a restart, waits begin again.

Delivery's thread, except `view`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from service.spool.dead_letters import Reason
from service.spool.folder import Mark
from service.spool.reader import SpoolReader, Stored
from service.spool.segments import Segment, Segments

#: The most memory for the waiting records of one topic.
LANE_BYTES: Final = 1024 * 1024
#: The most memory for all topics.
WINDOW_BYTES: Final = 8 * LANE_BYTES

#: The bytes of one read, and the most reads of one turn, so that results are handled in between.
_READ_BYTES: Final = 256 * 1024
_READS: Final = 16

#: The topic of entries that cannot be decoded; no real topic has this name.
UNREADABLE: Final = ""


#: Reasons that apply to a whole topic: a delivered record shows that they no longer apply.
OF_TOPIC: Final = frozenset({"forbidden", "topic_gone"})


#: The memory of a record besides its bytes: the objects here and in the producer, and its part of a lane.
RECORD_BYTES: Final = 1024
#: The most payload bytes and records of one request.
CHUNK_BYTES: Final = 128 * 1024
CHUNK_RECORDS: Final = 500


class Refusal(NamedTuple):
    """Why records wait, since when (milliseconds of the clock), and the broker's last message."""

    reason: Reason
    since_ms: int
    detail: str


class Patience:
    """How long one topic's records have been refused, and when to give up."""

    __slots__ = ("_given_up", "_given_up_ms", "_since_ms", "refusal")

    def __init__(self) -> None:
        #: The last refusal of waiting records; None if none is refused.
        self.refusal: Refusal | None = None
        #: The times when refusals began, by reason.
        self._since_ms: dict[Reason, int] = {}
        #: The reasons that are not waited for again, and when the last dead letter was stored.
        self._given_up: set[Reason] = set()
        self._given_up_ms = 0

    def is_over(self, reason: Reason, detail: str, now_ms: int, wait_ms: int) -> bool:
        """Notes that records are refused now; returns whether they become dead letters."""
        if reason not in self._since_ms:
            self._since_ms[reason] = now_ms
            if now_ms - self._given_up_ms >= wait_ms:
                self._given_up.clear()
        since_ms = self._since_ms[reason]
        if now_ms - since_ms < wait_ms and reason not in self._given_up:
            self.refusal = Refusal(reason, since_ms, detail)
            return False
        self.interrupted()
        self._given_up.add(reason)
        self._given_up_ms = now_ms
        return True

    def interrupted(self) -> None:
        """Notes an event that is no refusal: the next refusal begins a new wait."""
        self.refusal = None
        self._since_ms.clear()

    def delivered(self) -> None:
        """Notes that a record of the topic was delivered."""
        self.interrupted()
        self._given_up -= OF_TOPIC

    def begin_anew(self) -> None:
        """Notes that dead letters come back: every reason is waited for again."""
        self.interrupted()
        self._given_up.clear()


@dataclass(slots=True, eq=False)
class Lane:
    """One topic's records. The lane "" has the entries that cannot be decoded."""

    topic: str
    waiting: deque[Stored] = field(default_factory=deque)
    #: memory_bytes_of(waiting).
    waiting_bytes: int = 0
    in_flight: Sequence[Stored] = ()
    #: The first number that is on the disk only, the number of such records, and their reader.
    skipped_from: int | None = None
    skipped: int = 0
    reader: SpoolReader | None = None
    #: The now_ms before which nothing is sent.
    resumes_ms: int = 0
    #: The failed attempts of undelivered records, by number.
    attempts: dict[int, int] = field(default_factory=dict)
    #: The most records of the next request.
    most_records: int = CHUNK_RECORDS
    patience: Patience = field(default_factory=Patience)

    @property
    def first_undone(self) -> int | None:
        """The number from which on it has undelivered records; None if it has none."""
        first = self.oldest
        return self.skipped_from if first is None else first.sequence

    @property
    def oldest(self) -> Stored | None:
        """The first record in memory."""
        if self.in_flight:
            return self.in_flight[0]
        return self.waiting[0] if self.waiting else None

    @property
    def undone(self) -> int:
        """The number of undelivered records, including those on the disk."""
        return len(self.waiting) + len(self.in_flight) + self.skipped

    def bring(self, stored: Stored) -> bool:
        """Adds the next record to memory, or skips it; returns whether it was added."""
        if self.skipped_from is None and self.waiting_bytes < LANE_BYTES:
            self.add(stored)
            return True
        if self.skipped_from is None:
            self.skipped_from = stored.sequence
        self.skipped += 1
        return False

    def add(self, stored: Stored) -> None:
        """Adds a record behind the others."""
        self.waiting.append(stored)
        self.waiting_bytes += memory_bytes_of((stored,))

    def take(self, most_bytes: int) -> Sequence[Stored]:
        """Returns the next request's records, now in flight. Some must wait, and none be in flight."""
        chunk: list[Stored] = []
        chunk_bytes = 0
        while self.waiting and len(chunk) < self.most_records:
            chunk_bytes += len(self.waiting[0].payload)
            if chunk and chunk_bytes > most_bytes:
                break  # a large record is sent alone, so that its size affects no other
            chunk.append(self.waiting.popleft())
        self.waiting_bytes -= memory_bytes_of(chunk)
        self.in_flight = chunk
        return chunk

    def landed(self, back: Sequence[Stored], *, halve: bool) -> None:
        """Ends the request; `back` are its records to send again. `halve`: in smaller requests."""
        if halve:
            self.most_records = max(len(self.in_flight) // 2, 1)
        elif not back:
            self.most_records = min(2 * self.most_records, CHUNK_RECORDS)
        tried = {stored.sequence: self.attempts.pop(stored.sequence, 0) + 1 for stored in self.in_flight}
        self.attempts.update((stored.sequence, tried[stored.sequence]) for stored in back)
        self.in_flight = ()
        self.waiting.extendleft(reversed(back))
        self.waiting_bytes += memory_bytes_of(back)


def memory_bytes_of(stored: Sequence[Stored]) -> int:
    """Returns the approximate memory that records need, in bytes."""
    return sum(len(one.payload) + RECORD_BYTES for one in stored)


class RefusedTopic(NamedTuple):
    """A topic whose records brokers refuse: how many wait, why, since when, and the last error."""

    topic: str
    records: int
    reason: Reason
    since_ms: int
    detail: str


class View(NamedTuple):
    """The lanes after the last turn, for other threads.

    `done` and `undone` are those of the mark. `oldest_wall_ms`: when the oldest in memory was accepted.
    `refused`: the topics whose records brokers refuse, longest first.
    """

    done: int
    undone: int
    oldest_wall_ms: int | None
    refused: Sequence[RefusedTopic] = ()


class Lanes:
    """The lanes of one delivery, by topic."""

    def __init__(self, segments: Segments, mark: Mark, damaged: Callable[[Segment, int], None]) -> None:
        """Starts at `mark`. `damaged` is called with a damaged file and the number of its lost entries."""
        self._segments = segments
        self._begun_with = mark
        self._damaged = damaged
        #: How many of the mark's undelivered entries were not read yet.
        self._owed = mark.undone
        self._missing: list[tuple[Segment, int, int]] = []
        self._reader = SpoolReader(segments, mark.low, lambda *missing: self._missing.append(missing))
        self._lanes: dict[str, Lane] = {}
        self._memory_bytes = 0
        self.view = View(mark.done, mark.undone, None)

    def __iter__(self) -> Iterator[Lane]:
        return iter(list(self._lanes.values()))

    @property
    def mark(self) -> Mark:
        """The present mark: how far delivery is. It is never behind the mark of the start."""
        begun, read_until = self._begun_with, self._reader.sequence
        behind: dict[str, int] = {}
        if read_until < begun.done:
            behind = {topic: max(first, read_until) for topic, first in begun.behind.items()}
        for topic, lane in self._lanes.items():
            first_undone = lane.first_undone
            if first_undone is not None:
                behind[topic] = first_undone
        return Mark(max(read_until, begun.done), behind, self._undone)

    @property
    def _undone(self) -> int:
        """The number of entries below the mark that are not done."""
        unread = max(self._owed, 0) if self._reader.sequence < self._begun_with.done else 0
        return unread + sum(lane.undone for lane in self._lanes.values())

    def read(self, committed: int) -> bool:
        """Reads the next entries below `committed`; returns whether there may be more. Raises OSError."""
        for _ in range(_READS):
            if self._memory_bytes >= WINDOW_BYTES:
                return False
            read = self._reader.read(committed, _READ_BYTES)
            for stored in read:
                self._route(stored)
            self._judge_missing()
            if self._reader.sequence >= committed:
                return False
        return True

    def catch_up(self, lane: Lane) -> None:
        """Reads some skipped records of a lane that has room again. Raises OSError."""
        assert lane.skipped_from is not None
        if lane.reader is None:
            # Damage was reported by the first read.
            lane.reader = SpoolReader(self._segments, lane.skipped_from, lambda *_: None)
        for stored in lane.reader.read(self._reader.sequence, _READ_BYTES):
            if _topic_of(stored) == lane.topic:
                lane.add(stored)
                lane.skipped -= 1
                self._memory_bytes += memory_bytes_of((stored,))
        lane.skipped_from = lane.reader.sequence
        if lane.reader.sequence >= self._reader.sequence:
            lane.skipped_from, lane.skipped, lane.reader = None, 0, None

    def landed(self, lane: Lane, back: Sequence[Stored], *, halve: bool) -> None:
        """Ends a lane's request; `back` are its records to send again."""
        self._memory_bytes += memory_bytes_of(back) - memory_bytes_of(lane.in_flight)
        lane.landed(back, halve=halve)

    def drop_if_done(self, lane: Lane) -> bool:
        """Removes a lane that has no undelivered records; returns whether it did."""
        if lane.first_undone is not None:
            return False
        del self._lanes[lane.topic]
        return True

    def look(self) -> None:
        """Updates `view`."""
        oldest = [stored for lane in self if (stored := lane.oldest) is not None]
        accepted = [stored.entry.accepted_wall_ms for stored in oldest if stored.entry is not None]
        refused = [
            RefusedTopic(lane.topic, lane.undone, *refusal)
            for lane in self
            if (refusal := lane.patience.refusal) is not None
        ]
        refused.sort(key=lambda topic: topic.since_ms)
        done = max(self._reader.sequence, self._begun_with.done)
        self.view = View(done, self._undone, min(accepted, default=None), refused)

    def _judge_missing(self) -> None:
        """Reports lost entries. Below the mark only as many are lost as it counts as undone."""
        for segment, first, until in self._missing:
            below_mark = max(min(until, self._begun_with.done) - first, 0)
            owed = min(below_mark, max(self._owed, 0))
            self._owed -= owed
            lost = until - first - below_mark + owed
            if lost:
                self._damaged(segment, lost)
        self._missing.clear()

    def _route(self, stored: Stored) -> None:
        topic = _topic_of(stored)
        if self._begun_with.is_done(stored.sequence, topic):
            return
        if stored.sequence < self._begun_with.done:
            self._owed -= 1
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._lanes[topic] = Lane(topic)
        if lane.bring(stored):
            self._memory_bytes += memory_bytes_of((stored,))


def _topic_of(stored: Stored) -> str:
    return UNREADABLE if stored.entry is None else stored.entry.record.topic
