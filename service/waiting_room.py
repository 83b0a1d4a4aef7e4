"""Who waits in this sidecar, in requests and in bytes of their bodies: what does not fit is turned away.

The bytes of records count until the client has none of them any more, whether or not somebody still waits.
Event loop only.
"""

from __future__ import annotations

import math
from typing import Final

from client_core import Clock
from service.access.caller import ANYONE, Caller
from service.errors import Problem, ProblemError


class WaitingRoom:
    """Bounds what waits in this sidecar, and knows how fast it empties."""

    def __init__(self, clock: Clock, max_requests: int, max_bytes: int) -> None:
        self._clock = clock
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._drain = _DrainRate()
        self.requests = 0
        self.bytes = 0

    def enter(self, body_bytes: int, caller: Caller = ANYONE) -> Place:
        """Takes a place, to be left by `with`. Raises a 429 where there is none: nothing was written."""
        if self.requests >= self._max_requests:
            raise self._full(f"{self.requests} requests are waiting already", 0)
        self.count(body_bytes)
        self.requests += 1
        return Place(self, body_bytes)

    def count(self, body_bytes: int) -> None:
        """Counts bytes in. One body always fits, however large, or it could never be sent. Raises a 429."""
        if self.bytes and body_bytes and self.bytes + body_bytes > self._max_bytes:
            raise self._full(f"{self.bytes} bytes are waiting already", body_bytes)
        self.bytes += body_bytes

    def release(self, body_bytes: int) -> None:
        """Bytes are gone; Place calls this."""
        self.bytes -= body_bytes
        self._drain.add(body_bytes, self._clock.now_ms())

    def _full(self, detail: str, body_bytes: int) -> ProblemError:
        too_many = self.bytes + body_bytes - self._max_bytes
        after_s = self._drain.seconds_for(too_many, self._clock.now_ms())
        headers = ((b"retry-after", b"%d" % after_s),)
        return ProblemError(
            Problem(429, f"{detail}; try again", retriable=True, written="no", headers=headers)
        )


class Place:
    """One request's place in the room, and the bytes that it holds there, perhaps for longer."""

    __slots__ = ("_handed_on", "_room", "bytes")

    def __init__(self, room: WaitingRoom, body_bytes: int) -> None:
        self._room = room
        self._handed_on = False
        self.bytes = body_bytes

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def grow_to(self, body_bytes: int) -> None:
        """A body turned out to be longer than its head said, or its head said nothing. Raises a 429."""
        if body_bytes > self.bytes:
            self._room.count(body_bytes - self.bytes)
            self.bytes = body_bytes

    def hand_on(self) -> None:
        """The client has the bytes now: they count until `settled`, though the request may leave before."""
        self._handed_on = True

    def settled(self) -> None:
        """Nothing of the request is in the client any more."""
        self._room.release(self.bytes)
        self.bytes = 0

    def leave(self) -> None:
        """The request has its answer, or nobody waits for one."""
        self._room.requests -= 1
        if not self._handed_on:
            self.settled()


class _DrainRate:
    """Bytes that left in the last whole second and in the present one."""

    _LONGEST_S: Final = 30

    def __init__(self) -> None:
        self._second = 0
        self._now = 0
        self._before = 0

    def add(self, left_bytes: int, now_ms: int) -> None:
        self._turn(now_ms)
        self._now += left_bytes

    def seconds_for(self, too_many_bytes: int, now_ms: int) -> int:
        """When so many bytes will have left, as things go; at least a second, at most half a minute."""
        self._turn(now_ms)
        bytes_per_s = max(self._now, self._before)
        if too_many_bytes <= 0:
            return 1
        if not bytes_per_s:
            return self._LONGEST_S
        return min(max(math.ceil(too_many_bytes / bytes_per_s), 1), self._LONGEST_S)

    def _turn(self, now_ms: int) -> None:
        second = now_ms // 1000
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._now = 0
            self._second = second
