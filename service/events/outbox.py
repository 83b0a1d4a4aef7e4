"""Lines that wait for one sink: a queue bounded by bytes, which gives up the oldest.

Each sink has its own, so that one which hangs costs the others nothing; the lines themselves are shared. Of a
line that was given up it is remembered which topic it told of: that topic is told anew once the sink takes
lines again, or the fleet would not hear of it before its leaders move the next time. Event log's thread; the
numbers may be read by any.

What the event log asks of a place that lines go to. `event_files.py` and `event_topic.py` are two.

A sink takes from its outbox what it can hand on, and puts back what it could not: so there is one rule for
what is lost, and one place that counts it. It tells a fault once, and once that it is over. Event log's
thread, but for the numbers, which any thread may read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple, Protocol


class Sink(Protocol):
    """Where lines go."""

    @property
    def name(self) -> str:
        """A word for labels."""
        ...

    @property
    def in_flight_bytes(self) -> int:
        """Lines that were taken, and of which it is not known yet whether they arrived."""
        ...

    @property
    def written(self) -> int:
        """Lines that arrived."""
        ...

    @property
    def deleted(self) -> int:
        """Finished files that gave way to newer ones; 0 where there are no files."""
        ...

    def begin(self) -> None:
        """Called once, before the first turn."""
        ...

    def turn(self, outbox: Outbox, now_ms: int) -> None:
        """Hands on what can be handed on now. Never waits for anybody who may not answer."""
        ...

    def close(self, outbox: Outbox, deadline_ms: int) -> None:
        """Hands on what is left, until the deadline, and ends."""
        ...


class Line(NamedTuple):
    """One event, encoded, without a line's end. `topic`: whose partition it tells, if any."""

    data: bytes
    topic: str | None = None


#: Topics with lost lines that are remembered by name; beyond so many all topics are told anew.
MOST_UNREPORTED: Final = 10_000


class EveryTopic:
    """Holds every name."""

    def __contains__(self, _: object) -> bool:
        return True


def all_unreported(of_sinks: Iterable[set[str] | EveryTopic]) -> Container[str]:
    """What any of the sinks has not been told."""
    names: set[str] = set()
    for unreported in of_sinks:
        if isinstance(unreported, EveryTopic):
            return unreported
        names |= unreported
    return names


class Outbox:
    """The lines of one sink."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes: Final = max_bytes
        self._lines: deque[Line] = deque()
        #: What the waiting lines weigh.
        self.waiting_bytes = 0
        #: Lines that were given up because there was no room.
        self.dropped = 0
        self._unreported: set[str] = set()
        self._is_all_unreported = False

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def has_room(self) -> bool:
        """Whether more than is urgent should be put in: half of it is kept for what can't wait."""
        return self.waiting_bytes < self._max_bytes // 2

    def put(self, line: Line) -> None:
        """Queues a line as the youngest."""
        self._lines.append(line)
        self.waiting_bytes += len(line.data)
        self._give_up_oldest()

    def put_back(self, lines: Sequence[Line]) -> None:
        """Queues lines as the oldest, in their order: they could not be handed on."""
        self._lines.extendleft(reversed(lines))
        self.waiting_bytes += sum(len(line.data) for line in lines)
        self._give_up_oldest()

    def take(self, max_bytes: int) -> list[Line]:
        """The oldest lines, of so many bytes together, or one; none where none wait."""
        taken: list[Line] = []
        left = max_bytes
        while self._lines and (not taken or len(self._lines[0].data) <= left):
            line = self._lines.popleft()
            left -= len(line.data)
            self.waiting_bytes -= len(line.data)
            taken.append(line)
        return taken

    def lose(self, lines: Iterable[Line]) -> None:
        """Notes that lines which were taken are lost."""
        for line in lines:
            self._lost(line)

    def take_unreported(self) -> set[str] | EveryTopic:
        """The topics whose lines were lost since this was asked last; none while there is no room."""
        if not self.has_room:
            return set()
        unreported, self._unreported = self._unreported, set()
        is_all, self._is_all_unreported = self._is_all_unreported, False
        return EveryTopic() if is_all else unreported

    def _give_up_oldest(self) -> None:
        while self.waiting_bytes > self._max_bytes:
            line = self._lines.popleft()
            self.waiting_bytes -= len(line.data)
            self._lost(line)

    def _lost(self, line: Line) -> None:
        self.dropped += 1
        if line.topic is None or self._is_all_unreported:
            return
        self._unreported.add(line.topic)
        if len(self._unreported) > MOST_UNREPORTED:
            self._unreported, self._is_all_unreported = set(), True
