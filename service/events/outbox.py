"""Queues the lines of one sink, bounded by bytes, and drops the oldest; defines the sinks' protocol.

Each sink has its own outbox, so that one that hangs does not affect the others. They share the lines. If a
dropped line reports a partition, its topic is remembered, and reported again once the sink accepts lines.
Otherwise readers would not know the topic's state before its leaders move the next time.

A sink takes lines that it can send, and puts back those that it could not. So there is one rule for what is
lost, and one place that counts it. A sink logs a fault once, and once that it is over. The sinks are
`event_files.py` and `event_topic.py`.

Event log's thread; any thread may read the numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple, Protocol


class Sink(Protocol):
    """A destination of lines."""

    @property
    def name(self) -> str:
        """The name for metric labels."""
        ...

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of lines that were taken, and may not have arrived yet."""
        ...

    @property
    def written(self) -> int:
        """Lines that arrived."""
        ...

    def begin(self) -> None:
        """Prepares the sink. Called once, before the first turn."""
        ...

    def turn(self, outbox: Outbox, now_ms: int) -> None:
        """Sends what can be sent now. Never waits for a system that may not answer."""
        ...

    def close(self, outbox: Outbox, deadline_ms: int) -> None:
        """Sends what is left, until the deadline, and closes the sink."""
        ...


class Line(NamedTuple):
    """One encoded event without a line end. `topic`: the topic whose partition it reports, if any."""

    data: bytes
    topic: str | None = None


#: The most topics with lost lines that are remembered; beyond it, all topics are reported again.
MOST_UNREPORTED: Final = 10_000


class EveryTopic:
    """A container of all names."""

    def __contains__(self, _: object) -> bool:
        return True


def all_unreported(of_sinks: Iterable[set[str] | EveryTopic]) -> Container[str]:
    """Returns the topics with lost lines, of all sinks together."""
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
        #: The bytes of the waiting lines.
        self.waiting_bytes = 0
        #: Lines that were lost: for lack of room, or by the sink.
        self.dropped = 0
        self._unreported: set[str] | EveryTopic = set()

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def has_room(self) -> bool:
        """Whether lines that can wait may be added: half of the room is kept for those that cannot."""
        return self.waiting_bytes < self._max_bytes // 2

    def put(self, line: Line) -> None:
        """Queues a line as the newest."""
        self._lines.append(line)
        self.waiting_bytes += len(line.data)
        self._give_up_oldest()

    def put_back(self, lines: Sequence[Line]) -> None:
        """Queues lines as the oldest, in their order: they could not be sent."""
        self._lines.extendleft(reversed(lines))
        self.waiting_bytes += sum(len(line.data) for line in lines)
        self._give_up_oldest()

    def take(self, max_bytes: int) -> list[Line]:
        """Returns the oldest lines, of at most `max_bytes` or one larger line; [] if none wait."""
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
        """Returns the topics with lines lost since the last call; none while there is no room."""
        if not self.has_room:
            return set()
        unreported, self._unreported = self._unreported, set()
        return unreported

    def _give_up_oldest(self) -> None:
        while self.waiting_bytes > self._max_bytes:
            line = self._lines.popleft()
            self.waiting_bytes -= len(line.data)
            self._lost(line)

    def _lost(self, line: Line) -> None:
        self.dropped += 1
        if line.topic is None or isinstance(self._unreported, EveryTopic):
            return
        self._unreported.add(line.topic)
        if len(self._unreported) > MOST_UNREPORTED:
            self._unreported = EveryTopic()


class Channel(NamedTuple):
    """A sink, and the outbox of lines that wait for it."""

    sink: Sink
    outbox: Outbox
