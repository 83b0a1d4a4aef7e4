"""All lanes: which entries are read into which, how much of them is in memory, and how far all is done.

Memory is bounded by WINDOW_BYTES for all topics together, and what one read brings, and by LANE_BYTES for
each: eight topics that stand still with much to send fill it, or thousands with little, and hold up others
then. Delivery's thread, but for `view`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from service.spool.dead_letters import Reason
from service.spool.lane import LANE_BYTES, Lane, memory_bytes_of
from service.spool.mark import Mark
from service.spool.reader import SpoolReader, Stored
from service.spool.segments import Segment, Segments

#: What all topics may have in memory.
WINDOW_BYTES: Final = 8 * LANE_BYTES

#: What is read of the disk at once, and how often in one turn, so that answers are heard in between.
_READ_BYTES: Final = 256 * 1024
_READS: Final = 16

#: The topic of entries that can't be read: no topic can be called so.
UNREADABLE: Final = ""


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
