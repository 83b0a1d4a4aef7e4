"""One direction of a connection with faults: bytes and the time go in, steps come out.

The faults are `Harms`, a value that may change between two calls: delayed, limited, swallowed, held, cut
small, or ended by a reset in the middle of a frame, one or several of these together. A `HarmedFlow` keeps
the bytes that were not yet passed on, so a change loses only what was swallowed. No socket, no clock;
`faulty_proxy.py` carries out the steps.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, NamedTuple

Direction = Literal["requests", "answers"]

#: How finely a limited rate is cut: as many pieces in a second.
_PIECES_PER_SECOND: Final = 50


@dataclass(frozen=True, slots=True, eq=False)
class Delay:
    """Every byte goes on so much later; the jitter, drawn evenly, comes on top. The order is kept."""

    latency_ms: float
    jitter_ms: float = 0
    seed: int = 0

    def due_s(self, now_s: float, random: Random) -> float:
        """When what has come now is to go on."""
        return now_s + (self.latency_ms + random.uniform(0, self.jitter_ms)) / 1_000


@dataclass(frozen=True, slots=True, eq=False)
class ResetAfter:
    """A connection ends by a reset after so many bytes of one direction.

    They are counted from `count_from_s` seconds after this was made, or after the connection began. So those
    who send much are not cut off much more often than those who send little.
    """

    byte_count: int
    direction: Direction
    count_from_s: float = 0


@dataclass(frozen=True, slots=True)
class Harms:
    """All that is wrong with the way, for both directions; as it is made, nothing is."""

    delay: Delay | None = None
    bytes_per_second: int | None = None
    swallowed: frozenset[Direction] = field(default_factory=frozenset)
    is_stalled: bool = False
    bytes_per_packet: int | None = None
    reset_after: ResetAfter | None = None


class Pass(NamedTuple):
    """Write these bytes, in a packet of their own where `alone`."""

    data: bytes
    alone: bool


class Wait(NamedTuple):
    """Ask again after so many seconds, or when bytes have come or the harms have changed; None: only then."""

    seconds: float | None


class Finish(NamedTuple):
    """The source has ended its side: end the sink's."""


class Break(NamedTuple):
    """End both sides, by a reset if the harms ask for one; otherwise one of them was reset by its peer."""

    by_harm: bool


Step = Pass | Wait | Finish | Break

_NEVER: Final = Wait(None)


class HarmedFlow:
    """Bytes on their way in one direction of one connection. One owner."""

    def __init__(self, direction: Direction, connection: int) -> None:
        """The connection's number is part of the seed of its jitter."""
        self.direction: Final = direction
        self.held_bytes = 0
        self.swallowed_bytes = 0
        self._connection = connection
        self._delay: Delay | None = None
        self._random = Random()
        self._held: deque[tuple[float, bytes]] = deque()
        self._last_due_s = 0.0
        self._next_piece_s = 0.0
        self._end: Finish | Break | None = None
        self._counted: ResetAfter | None = None
        self._bytes_until_reset = 0
        self._counts_since_s = 0.0

    @property
    def is_broken(self) -> bool:
        """Whether bytes are missing from it: what follows them would make no sense to the sink."""
        return self.swallowed_bytes > 0

    def receive(self, data: bytes, harms: Harms, now_s: float) -> None:
        """Takes what has come."""
        delay = harms.delay
        if self._delay is not delay and delay is not None:
            self._delay = delay
            self._random = Random(f"{delay.seed} {self._connection} {self.direction}")
        due_s = now_s if delay is None else delay.due_s(now_s, self._random)
        self._last_due_s = max(self._last_due_s, due_s)
        self._held.append((self._last_due_s, data))
        self.held_bytes += len(data)

    def end(self, *, by_reset: bool = False) -> None:
        """Nothing more will come: the source has ended, or was reset."""
        self._end = Break(by_harm=False) if by_reset else Finish()

    def next_step(self, harms: Harms, now_s: float) -> Step:
        """What is to be done now; the bytes of a Pass are no longer held."""
        if harms.is_stalled:
            return _NEVER
        if self.direction in harms.swallowed:
            # The end is not passed on either: that makes a connection half-open.
            self._swallow()
            return _NEVER
        reset_after = self._reset_after(harms, now_s)
        if reset_after is not None and self._bytes_until_reset <= 0:
            return Break(by_harm=True)
        if not self._held:
            return _NEVER if self._end is None else self._end
        pause_s = self._pause_s(harms, now_s)
        if pause_s > 0:
            return Wait(pause_s)
        return self._pass(harms, reset_after, now_s)

    def _swallow(self) -> None:
        self.swallowed_bytes += self.held_bytes
        self._held.clear()
        self.held_bytes = 0

    def _reset_after(self, harms: Harms, now_s: float) -> ResetAfter | None:
        """The reset that threatens this direction; its count begins anew with a new one."""
        wanted = harms.reset_after
        if wanted is None or wanted.direction != self.direction:
            return None
        if self._counted is not wanted:
            self._counted = wanted
            self._bytes_until_reset = wanted.byte_count
            self._counts_since_s = now_s + wanted.count_from_s
        return wanted if now_s >= self._counts_since_s else None

    def _pause_s(self, harms: Harms, now_s: float) -> float:
        due_s = 0.0
        if harms.delay is not None:
            due_s = self._held[0][0]
        if harms.bytes_per_second is not None:
            due_s = max(due_s, self._next_piece_s)
        return due_s - now_s

    def _pass(self, harms: Harms, reset_after: ResetAfter | None, now_s: float) -> Step:
        due_s, data = self._held.popleft()
        size = len(data)
        if harms.bytes_per_packet is not None:
            size = min(size, harms.bytes_per_packet)
        if harms.bytes_per_second is not None:
            size = min(size, max(1, harms.bytes_per_second // _PIECES_PER_SECOND))
            self._next_piece_s = max(self._next_piece_s, now_s) + size / harms.bytes_per_second
        if reset_after is not None:
            size = self._before_reset(size, len(data))
        if size < len(data):
            self._held.appendleft((due_s, data[size:]))
        self.held_bytes -= size
        return Pass(data[:size], alone=harms.bytes_per_packet is not None) if size else Break(by_harm=True)

    def _before_reset(self, size: int, there: int) -> int:
        """How much of it goes before the reset: what came together ends with a frame, so not all of that."""
        left = self._bytes_until_reset
        self._bytes_until_reset -= size
        if size < left:
            return size
        return min(left, there - 1)
