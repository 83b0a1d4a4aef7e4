"""Who waits in this sidecar, in requests and in bytes of their bodies: what does not fit is turned away.

The bytes of records count until the client has none of them any more, whether or not somebody still waits.

Where tokens are in use the callers share the room, so that none can take it from the others:

    own limits    those of the caller's token, if it has any
    fair share    a caller may hold at most as much as is still free

A caller who holds nothing may bring one body, however large, while the room has space: its limits are on what
piles up. Shares of bytes are measured against what the client can buffer as well (buffer.memory), since that
is what a caller could fill. Event loop only.

When a caller who was told 503 should come again: the Retry-After of each reason.

    memory was full    when as many bytes as the request brings will have been delivered, as fast as they were
                       in the last second or the present one; 30 s if none were. Requests that gave up leave
                       too, but free no memory, for they had none
    shutting down      when all that was accepted will have left the waiting room, at its rate, at most
                       drain_timeout_ms: then this process is gone, and another one may be there
    no broker, no      when every broker has been tried once more: reconnect.backoff.max.ms
    metadata

In whole seconds, from 1 to 30. That of a 429 is the waiting room's own. Event loop only.

How callers share what there is only so much of: waiting requests and bytes, streams, watchers, new names.

The rule is that of shared-memory switches (dynamic queue length thresholds, Choudhury and Hahne 1998, with
alpha = 1): no caller may hold more than is still free. One alone gets half; of several that always want more,
each comes to hold as much as is left free for the next. Nobody has to be known beforehand, and what is given
back is at once everybody's. Without tokens there is one caller, ANYONE, and nothing to share. Pure.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from client_core import Clock, Phase, ProducerConfig, Result
from service.admission.caller import ANYONE, Caller
from service.admission.drain import Drain
from service.base.settings import Settings
from service.wire.errors import Problem, ProblemError

_LONGEST_S: Final = 30


#: The rule, for messages.
FAIR_SHARE: Final = "no caller may hold more than is still free"


class RetryAfter:
    """Puts Retry-After on problems."""

    def __init__(
        self, clock: Clock, room: AdmissionControl, drain: Drain, config: ProducerConfig, settings: Settings
    ) -> None:
        self._clock = clock
        self._room = room
        self._delivered = DrainRate()
        self._drain = drain
        self._reconnect_s = _seconds(config.reconnect_backoff_max_ms)
        self._drain_timeout_s = _seconds(settings.drain_timeout_ms)

    def on(self, problem: Problem, request_bytes: int = 0) -> Problem:
        """The problem, with the header if it is a 503 that has none. `request_bytes` wait for memory."""
        if problem.status != 503 or any(name == b"retry-after" for name, _ in problem.headers):
            return problem
        header = (b"retry-after", b"%d" % self._seconds_of(problem, request_bytes))
        return replace(problem, headers=(*problem.headers, header))

    def settled(self, result: Result, request_bytes: int) -> None:
        """A request has ended for good: learns from it how fast bytes are delivered."""
        if result.any_acknowledged:
            self._delivered.add(request_bytes, self._clock.now_ms())

    def _seconds_of(self, problem: Problem, request_bytes: int) -> int:
        if self._drain.begun:
            return min(self._room.seconds_until_gone(self._room.bytes), self._drain_timeout_s)
        if problem.phase == Phase.BUFFER.value:
            return self._delivered.seconds_for(request_bytes, self._clock.now_ms())
        return self._reconnect_s


def _seconds(ms: int) -> int:
    return min(max(math.ceil(ms / 1000), 1), _LONGEST_S)


def exceeds_share(own: int, more: int, total: int, limit: int) -> bool:
    """Whether `more` would leave a caller with more than is still free of what `limit` bounds in `total`."""
    return own + more > limit - (total + more)


def is_one_too_many(caller: Caller, own: int, total: int, limit: int) -> bool:
    """Whether one more is beyond the caller's share. The first is not, while there is room at all."""
    return caller is not ANYONE and own > 0 and exceeds_share(own, 1, total, limit)


class _Share:
    """What one caller holds of the room."""

    __slots__ = ("bytes", "caller", "requests")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.requests = 0
        self.bytes = 0


class AdmissionControl:
    """Bounds what waits in this sidecar, and knows how fast it empties."""

    def __init__(
        self, clock: Clock, max_requests: int, max_bytes: int, shared_bytes: int | None = None
    ) -> None:
        """`shared_bytes` is what callers with tokens share; None: `max_bytes`."""
        self._clock = clock
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._shared_bytes = max_bytes if shared_bytes is None else min(shared_bytes, max_bytes)
        self._drain = DrainRate()
        self._shares: dict[str, _Share] = {}
        self.requests = 0
        self.bytes = 0

    def enter(self, body_bytes: int, caller: Caller = ANYONE) -> Place:
        """Takes a place, to be left by `with`. Raises a 429 where there is none: nothing was written."""
        if self.requests >= self._max_requests:
            raise self._full(f"{self.requests} requests are waiting already", self.bytes - self._max_bytes)
        share = None if caller is ANYONE else self._share_of(caller)
        if share is not None:
            self._check_requests(share)
        self._check_bytes(body_bytes, share, 0)
        place = Place(self, share)
        if share is not None:
            self._shares[caller.name] = share
            share.requests += 1
        self.requests += 1
        self.add(place, body_bytes)
        return place

    def grow(self, place: Place, more_bytes: int) -> None:
        """A place holds more; Place calls this. Raises a 429."""
        self._check_bytes(more_bytes, place.share, place.bytes)
        self.add(place, more_bytes)

    def add(self, place: Place, more_bytes: int) -> None:
        """Counts bytes in, or out."""
        self.bytes += more_bytes
        place.bytes += more_bytes
        if place.share is not None:
            place.share.bytes += more_bytes

    def release(self, place: Place) -> None:
        """The bytes of a place are gone; Place calls this."""
        self._drain.add(place.bytes, self._clock.now_ms())
        self.add(place, -place.bytes)
        self._forget_if_empty(place.share)

    def leave(self, place: Place) -> None:
        """The request of a place is over; Place calls this."""
        self.requests -= 1
        if place.share is not None:
            place.share.requests -= 1
            self._forget_if_empty(place.share)

    def seconds_until_gone(self, waiting_bytes: int) -> int:
        """When so many bytes will have left, as things go: for Retry-After. From 1 to 30."""
        return self._drain.seconds_for(waiting_bytes, self._clock.now_ms())

    # -- shares ----------------------------------------------------------------------------------------------

    def _share_of(self, caller: Caller) -> _Share:
        share = self._shares.get(caller.name)
        if share is None:
            return _Share(caller)
        share.caller = caller  # its limits may be others since the file was read again
        return share

    def _forget_if_empty(self, share: _Share | None) -> None:
        if share is None or share.requests or share.bytes:
            return
        if self._shares.get(share.caller.name) is share:
            del self._shares[share.caller.name]

    def _check_requests(self, share: _Share) -> None:
        own, name = share.requests, share.caller.name
        limit = share.caller.max_waiting_requests
        if limit is not None and own >= limit:
            detail = f"{own} requests of {name} are waiting already (max_waiting_requests of its token)"
            raise self._full(detail, 0)
        if is_one_too_many(share.caller, own, self.requests, self._max_requests):
            raise self._full(f"{own} requests of {name} are waiting already: {FAIR_SHARE}", 0)

    def _check_bytes(self, more_bytes: int, share: _Share | None, held_bytes: int) -> None:
        """Of a place that holds `held_bytes`. One body always fits, or it could never be sent."""
        too_many = self.bytes + more_bytes - self._max_bytes
        if self.bytes > held_bytes and more_bytes and too_many > 0:
            raise self._full(f"{self.bytes} bytes are waiting already", too_many)
        if share is None or not more_bytes or share.bytes == held_bytes:
            return
        own, name = share.bytes, share.caller.name
        limit = share.caller.max_waiting_bytes
        if limit is not None and own + more_bytes > limit:
            # Of the bytes that leave only this part is the caller's.
            too_many = math.ceil((own + more_bytes - limit) * self.bytes / own)
            detail = f"{own} bytes of {name} are waiting already (max_waiting_bytes of its token)"
            raise self._full(detail, too_many)
        if exceeds_share(own, more_bytes, self.bytes, self._shared_bytes):
            too_many = own + more_bytes - (self._shared_bytes - self.bytes - more_bytes)
            raise self._full(f"{own} bytes of {name} are waiting already: {FAIR_SHARE}", too_many)

    def _full(self, detail: str, too_many_bytes: int) -> ProblemError:
        headers = ((b"retry-after", b"%d" % self.seconds_until_gone(too_many_bytes)),)
        return ProblemError(
            Problem(429, f"{detail}; try again", retriable=True, written="no", headers=headers)
        )


class Place:
    """One request's place in the room, and the bytes that it holds there, perhaps for longer."""

    __slots__ = ("_handed_on", "_room", "bytes", "share")

    def __init__(self, room: AdmissionControl, share: _Share | None) -> None:
        self._room = room
        self._handed_on = False
        self.share = share
        self.bytes = 0

    @property
    def caller(self) -> Caller:
        """Whose place it is."""
        return ANYONE if self.share is None else self.share.caller

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def grow_to(self, body_bytes: int) -> None:
        """A body turned out to be longer than its head said, or its head said nothing. Raises a 429."""
        if body_bytes > self.bytes:
            self._room.grow(self, body_bytes - self.bytes)

    def part(self, body_bytes: int) -> Place:
        """A place of the same caller for some bytes more, which is no request of its own. Raises a 429.

        It is handed on to the client, or settled; it is not left.
        """
        part = Place(self._room, self.share)
        self._room.grow(part, body_bytes)
        return part

    def hand_on(self) -> None:
        """The client has the bytes now: they count until `settled`, though the request may leave before."""
        self._handed_on = True

    def settled(self) -> None:
        """Nothing of the request is in the client any more."""
        self._room.release(self)

    def leave(self) -> None:
        """The request has its answer, or nobody waits for one."""
        self._room.leave(self)
        if not self._handed_on:
            self.settled()


class DrainRate:
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
