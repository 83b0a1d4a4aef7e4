"""All lanes: which entries are read into which, how much of them is in memory, and how far all is done.

Memory is bounded by WINDOW_BYTES for all topics together, and what one read brings, and by LANE_BYTES for
each: eight topics that stand still with much to send fill it, or thousands with little, and hold up others
then. Delivery's thread, but for `view`.

How long brokers have refused one topic's records, and when to give up: after wait_ms without a delivery.

A reason that was waited for in vain is not waited for again, until for as long nothing of the topic was set
aside: a topic with many such records would go on at one record a wait otherwise. A delivery ends that, too,
where the reason is one of the whole topic.

The state is the process's: after a restart a wait begins anew. Delivery's thread.

The records of one topic on their way: one request at a time, so that none overtakes another.

    skipped (on the disk only)  ──read──▶  waiting  ──take──▶  in flight  ──▶  done, or back at the front

A topic that stands still keeps no more than LANE_BYTES of its records in memory: what comes behind is passed
over, and read again from the disk once there is room. So the other topics go on.

A request that brokers refuse may have one record that is at fault. It is halved until that record is alone,
and doubled again with each request that is delivered. Nothing behind the record is sent before it is
delivered or set aside. Delivery's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from service.spool.dead_letters import Reason
from service.spool.folder import Mark
from service.spool.reader import SpoolReader, Stored
from service.spool.segments import Segment, Segments

#: What one topic may have in memory.
LANE_BYTES: Final = 1024 * 1024
#: What all topics may have in memory.
WINDOW_BYTES: Final = 8 * LANE_BYTES

#: What is read of the disk at once, and how often in one turn, so that answers are heard in between.
_READ_BYTES: Final = 256 * 1024
_READS: Final = 16

#: The topic of entries that can't be read: no topic can be called so.
UNREADABLE: Final = ""


#: Reasons that hold for all records of a topic: one that is delivered shows that they hold no more.
OF_TOPIC: Final = frozenset({"forbidden", "topic_gone"})


#: What a record takes besides its bytes: as an object here and in the producer, and its part of a lane.
RECORD_BYTES: Final = 1024
#: What one request takes.
CHUNK_BYTES: Final = 128 * 1024
CHUNK_RECORDS: Final = 500


class Refusal(NamedTuple):
    """Why records wait, since when (milliseconds of the clock), and the broker's last words."""

    reason: Reason
    since_ms: int
    detail: str


class Patience:
    """One topic's."""

    __slots__ = ("_given_up", "_given_up_ms", "_since_ms", "refusal")

    def __init__(self) -> None:
        #: The last refusal of records that wait; None where none do.
        self.refusal: Refusal | None = None
        #: Since when records are refused, by the reason.
        self._since_ms: dict[Reason, int] = {}
        #: The reasons that were waited for in vain, and when something was last set aside.
        self._given_up: set[Reason] = set()
        self._given_up_ms = 0

    def is_over(self, reason: Reason, detail: str, now_ms: int, wait_ms: int) -> bool:
        """Notes that records are refused now; whether they are to be set aside."""
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
        """Something else than a refusal came in between: the next one is the first again."""
        self.refusal = None
        self._since_ms.clear()

    def delivered(self) -> None:
        """A record of the topic was delivered."""
        self.interrupted()
        self._given_up -= OF_TOPIC

    def begin_anew(self) -> None:
        """Records come back that were set aside: they are waited for again."""
        self.interrupted()
        self._given_up.clear()


class Lane:
    """One topic's records. "" is the lane of those that nobody can read."""

    __slots__ = (
        "attempts",
        "in_flight",
        "most_records",
        "patience",
        "reader",
        "resumes_ms",
        "skipped",
        "skipped_from",
        "topic",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, topic: str) -> None:
        self.topic: Final = topic
        self.waiting: deque[Stored] = deque()
        self.waiting_bytes = 0
        self.in_flight: Sequence[Stored] = ()
        #: From which number on its records are on the disk only, how many there are, and who reads them.
        self.skipped_from: int | None = None
        self.skipped = 0
        self.reader: SpoolReader | None = None
        #: When it is to be tried again.
        self.resumes_ms = 0
        #: How often records failed that are still to be delivered, by number.
        self.attempts: dict[int, int] = {}
        #: How many records its next request may have.
        self.most_records = CHUNK_RECORDS
        self.patience: Final = Patience()

    @property
    def first_undone(self) -> int | None:
        """The number from which on it has something left to do; None where it has nothing."""
        first = self.oldest
        return self.skipped_from if first is None else first.sequence

    @property
    def oldest(self) -> Stored | None:
        """The first record that it has in memory."""
        if self.in_flight:
            return self.in_flight[0]
        return self.waiting[0] if self.waiting else None

    @property
    def undone(self) -> int:
        """How many records it has, on the disk too."""
        return len(self.waiting) + len(self.in_flight) + self.skipped

    def bring(self, stored: Stored) -> bool:
        """Takes the next record into memory, or passes it over; whether it took it."""
        if self.skipped_from is None and self.waiting_bytes < LANE_BYTES:
            self.add(stored)
            return True
        if self.skipped_from is None:
            self.skipped_from = stored.sequence
        self.skipped += 1
        return False

    def add(self, stored: Stored) -> None:
        """Takes a record in behind the others."""
        self.waiting.append(stored)
        self.waiting_bytes += memory_bytes_of((stored,))

    def take(self, most_bytes: int) -> Sequence[Stored]:
        """The records of the next request, which are in flight now. Some must wait, and none be in flight."""
        chunk: list[Stored] = []
        chunk_bytes = 0
        while self.waiting and len(chunk) < self.most_records:
            chunk_bytes += len(self.waiting[0].payload)
            if chunk and chunk_bytes > most_bytes:
                break  # a large record goes by itself, so that its size is nobody else's
            chunk.append(self.waiting.popleft())
        self.waiting_bytes -= memory_bytes_of(chunk)
        self.in_flight = chunk
        return chunk

    def landed(self, back: Sequence[Stored], *, halve: bool) -> None:
        """The request is over, and these records are to be tried again; `halve`: in smaller requests."""
        if halve:
            self.most_records = max(len(self.in_flight) // 2, 1)
        elif not back:
            self.most_records = min(2 * self.most_records, CHUNK_RECORDS)
        for stored in self.in_flight:
            self.attempts.pop(stored.sequence, None)
        self.in_flight = ()
        self.waiting.extendleft(reversed(back))
        self.waiting_bytes += memory_bytes_of(back)


def memory_bytes_of(stored: Sequence[Stored]) -> int:
    """What records take of memory, about."""
    return sum(len(one.payload) + RECORD_BYTES for one in stored)


class RefusedTopic(NamedTuple):
    """A topic whose records wait because brokers refuse them, since when, and the last error."""

    topic: str
    records: int
    reason: Reason
    since_ms: int
    detail: str


class View(NamedTuple):
    """The lanes as they were after the last turn, for other threads.

    `undone`: how many records were read, or passed over, and are not done. `oldest_wall_ms`: when the oldest
    of them was accepted. `refused`: the topics whose records brokers refuse, the longest first.
    """

    read_sequence: int
    undone: int
    oldest_wall_ms: int | None
    refused: Sequence[RefusedTopic] = ()


class Lanes:
    """The lanes of one delivery, by topic."""

    def __init__(self, segments: Segments, mark: Mark, damaged: Callable[[Segment, int], None]) -> None:
        """Begins where `mark` says. `damaged` is told of files, and of how many entries are lost there."""
        self._segments = segments
        self._begun_with = mark
        self._damaged = damaged
        #: Of those that the mark says are to be delivered yet, how many were not come upon.
        self._owed = mark.undone
        self._missing: list[tuple[Segment, int, int]] = []
        self._reader = SpoolReader(segments, mark.low, lambda *missing: self._missing.append(missing))
        self._lanes: dict[str, Lane] = {}
        self._memory_bytes = 0
        self.view = View(mark.low, 0, None)

    def __iter__(self) -> Iterator[Lane]:
        return iter(list(self._lanes.values()))

    @property
    def mark(self) -> Mark:
        """How far all is done now."""
        lanes = self._lanes.items()
        behind = {topic: first for topic, lane in lanes if (first := lane.first_undone) is not None}
        return Mark(self._reader.sequence, behind, sum(lane.undone for _, lane in lanes))

    def read(self, committed: int) -> bool:
        """Reads the next entries below `committed`; whether there may be more at once. Raises OSError."""
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
        """Reads some of what was passed over of a topic that has room again. Raises OSError."""
        assert lane.skipped_from is not None
        if lane.reader is None:
            # What is damaged was told when it was passed over.
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
        """A lane's request is over, and these records of it are to be tried again."""
        self._memory_bytes += memory_bytes_of(back) - memory_bytes_of(lane.in_flight)
        lane.landed(back, halve=halve)

    def drop_if_done(self, lane: Lane) -> bool:
        """Forgets a lane that has nothing left to do; whether it did."""
        if lane.first_undone is not None:
            return False
        del self._lanes[lane.topic]
        return True

    def look(self) -> None:
        """Renews `view`."""
        oldest = [stored for lane in self if (stored := lane.oldest) is not None]
        accepted = [stored.entry.accepted_wall_ms for stored in oldest if stored.entry is not None]
        undone = sum(lane.undone for lane in self)
        refused = [
            RefusedTopic(lane.topic, lane.undone, *refusal)
            for lane in self
            if (refusal := lane.patience.refusal) is not None
        ]
        refused.sort(key=_since)
        self.view = View(self._reader.sequence, undone, min(accepted, default=None), refused)

    def _judge_missing(self) -> None:
        """What is missing below the mark was delivered, but for as many as the mark says were not."""
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


def _since(refused: RefusedTopic) -> int:
    return refused.since_ms


def _topic_of(stored: Stored) -> str:
    return UNREADABLE if stored.entry is None else stored.entry.record.topic
