"""Limits waiting requests and the bytes of their bodies, and sets Retry-After.

Each request acquires a `Permit`, and releases it when it ends. Without a free permit it gets a 429. The bytes
of records count until the client has released them, even if the caller has disconnected.

If tokens are in use, callers share these limits, so that no caller can use them up:

    own limits    those of the caller's token, if it has any
    fair share    a caller may hold at most as much as is left for the others

A caller that holds nothing may send one body of any size while there is space: its limits apply to what
accumulates. The shares of bytes are also limited by buffer.memory, because a caller could fill that too.

The fair share is the rule of shared-memory switches (dynamic queue length thresholds, Choudhury and Hahne
1998, with alpha = 1). One caller alone gets half. Of several busy callers, each gets as much as remains free.
Callers need not be known beforehand, and released capacity is available to all at once. Without tokens there
is one caller, ANYONE, and nothing to share. Streams, watchers and new topic names follow the same rule.

Retry-After of a 503, in whole seconds from 1 to 30 (a 429 has one from the rate at which bytes are released):

    memory was full    until the request's bytes have been delivered, at the higher rate of the last and the
                       present second; 30 s if both are 0. Requests that gave up free no memory: they had none
    shutting down      until all accepted bytes are released, at their rate, at most drain_timeout_ms. Then
                       this process has ended, and another one may be there
    no broker, no      until every broker has been tried once more: reconnect.backoff.max.ms
    metadata

Event loop only.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Final

from client_core import Clock, Phase, ProducerConfig, Result
from service.admission.caller import ANYONE, Caller
from service.admission.drain import Drain
from service.base.settings import Settings
from service.wire.errors import Problem, ProblemError

_LONGEST_S: Final = 30


#: A record of a large request counts as so many bytes at least. The smallest takes 15 bytes of a body, 250
#: while it waits, and as many in the answer if it fails.
RECORD_BYTES: Final = 512
#: Up to so many records of a request count by their bytes alone: max_waiting_requests bounds them.
_FEW_RECORDS: Final = 100


def bytes_of_records(records: int) -> int:
    """Returns the bytes that so many parsed records count as, however small they are."""
    return max(records - _FEW_RECORDS, 0) * RECORD_BYTES


#: The fair-share rule, for error messages.
FAIR_SHARE: Final = "no caller may hold more than is left for the others"


class RetryAfter:
    """Adds Retry-After to problems."""

    def __init__(
        self,
        clock: Clock,
        admission: AdmissionControl,
        drain: Drain,
        config: ProducerConfig,
        settings: Settings,
    ) -> None:
        self._clock = clock
        self._admission = admission
        self._delivered = DrainRate()
        self._drain = drain
        self._reconnect_s = _seconds(config.reconnect_backoff_max_ms)
        self._drain_timeout_s = _seconds(settings.drain_timeout_ms)

    def on(self, problem: Problem, request_bytes: int = 0) -> Problem:
        """Returns the problem; a 503 without the header gets it. `request_bytes` wait for memory."""
        if problem.status != 503 or any(name == b"retry-after" for name, _ in problem.headers):
            return problem
        header = (b"retry-after", b"%d" % self._seconds_of(problem, request_bytes))
        return replace(problem, headers=(*problem.headers, header))

    def settled(self, result: Result, request_bytes: int) -> None:
        """Counts the bytes of a finished request as delivered, if any record was acknowledged."""
        if result.any_acknowledged:
            self._delivered.add(request_bytes, self._clock.now_ms())

    def _seconds_of(self, problem: Problem, request_bytes: int) -> int:
        if self._drain.begun:
            return min(self._admission.seconds_until_gone(self._admission.bytes), self._drain_timeout_s)
        if problem.phase == Phase.BUFFER.value:
            return self._delivered.seconds_for(request_bytes, self._clock.now_ms())
        return self._reconnect_s


def _seconds(ms: int) -> int:
    return min(max(math.ceil(ms / 1000), 1), _LONGEST_S)


def exceeds_share(own: int, more: int, total: int, limit: int) -> bool:
    """Returns whether `own + more` would exceed what is then free of `limit`. `total` is of all callers."""
    return own + more > limit - (total + more)


def is_one_too_many(caller: Caller, own: int, total: int, limit: int) -> bool:
    """Returns whether one more exceeds the caller's share. The first one never does."""
    return caller is not ANYONE and own > 0 and exceeds_share(own, 1, total, limit)


class _Share:
    """The requests and bytes that one caller holds."""

    __slots__ = ("bytes", "caller", "requests")

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.requests = 0
        self.bytes = 0


class AdmissionControl:
    """Limits waiting requests and bytes, and measures how fast bytes are released."""

    def __init__(
        self,
        clock: Clock,
        max_requests: int,
        max_bytes: int,
        shared_bytes: int | None = None,
        drain: Drain | None = None,
    ) -> None:
        """`shared_bytes` is what callers with tokens share; None means `max_bytes`."""
        self._clock = clock
        self.drain: Final = Drain() if drain is None else drain
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._most_shared_bytes = sys.maxsize if shared_bytes is None else shared_bytes
        self._shared_bytes = min(self._most_shared_bytes, max_bytes)
        self._released = DrainRate()
        self._shares: dict[str, _Share] = {}
        self.requests = 0
        self.bytes = 0

    def limit(self, max_requests: int, max_bytes: int) -> None:
        """Changes the limits for later requests. Event loop."""
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._shared_bytes = min(self._most_shared_bytes, max_bytes)

    @property
    def limits(self) -> tuple[int, int]:
        """Requests and bytes that may wait. Any thread."""
        return self._max_requests, self._max_bytes

    def acquire(self, body_bytes: int, caller: Caller = ANYONE) -> Permit:
        """Acquires a permit for `with`. Raises ProblemError (429) if none is free: nothing was written."""
        if self.requests >= self._max_requests:
            detail = f"no more than {self._max_requests} requests may wait (max_waiting_requests)"
            raise self._full(detail, self.bytes - self._max_bytes)
        share = None if caller is ANYONE else self._share_of(caller)
        if share is not None:
            self._check_requests(share)
        if share is not None or self.bytes + body_bytes > self._max_bytes:
            self._check_bytes(body_bytes, share, 0)
        permit = Permit(self, share)
        if share is not None:
            self._shares[caller.name] = share
            share.requests += 1
        self.requests += 1
        self.add(permit, body_bytes)
        return permit

    def grow(self, permit: Permit, more_bytes: int) -> None:
        """Adds bytes to a permit. Called by Permit. Raises ProblemError (429)."""
        self._check_bytes(more_bytes, permit.share, permit.bytes)
        self.add(permit, more_bytes)

    def add(self, permit: Permit, more_bytes: int) -> None:
        """Adds bytes to the counters; subtracts them if negative."""
        self.bytes += more_bytes
        permit.bytes += more_bytes
        if permit.share is not None:
            permit.share.bytes += more_bytes

    def release_bytes(self, permit: Permit) -> None:
        """Releases the bytes of a permit. Called by Permit."""
        self._released.add(permit.bytes, self._clock.now_ms())
        self.add(permit, -permit.bytes)
        if permit.share is not None:
            self._forget_if_empty(permit.share)

    def release_request(self, permit: Permit) -> None:
        """Releases the request of a permit. Called by Permit."""
        self.requests -= 1
        if permit.share is not None:
            permit.share.requests -= 1
            self._forget_if_empty(permit.share)

    def seconds_until_gone(self, waiting_bytes: int) -> int:
        """Returns in how many seconds so many bytes will be released at the present rate: 1 to 30."""
        return self._released.seconds_for(waiting_bytes, self._clock.now_ms())

    # -- shares ----------------------------------------------------------------------------------------------

    def _share_of(self, caller: Caller) -> _Share:
        share = self._shares.get(caller.name)
        if share is None:
            return _Share(caller)
        share.caller = caller  # the file may have new limits since it was reloaded
        return share

    def _forget_if_empty(self, share: _Share) -> None:
        if share.requests or share.bytes:
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
        """Raises ProblemError (429) if a permit with `held_bytes` can't grow. A single body always fits."""
        too_many = self.bytes + more_bytes - self._max_bytes
        if self.bytes > held_bytes and more_bytes and too_many > 0:
            raise self._full(f"{self.bytes} bytes are waiting already (max_waiting_bytes)", too_many)
        if share is None or not more_bytes or share.bytes == held_bytes:
            return
        own, name = share.bytes, share.caller.name
        limit = share.caller.max_waiting_bytes
        if limit is not None and own + more_bytes > limit:
            # Only this part of the released bytes is the caller's.
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


class Permit:
    """A permit of one request, and its bytes, which it may hold longer than the request."""

    __slots__ = ("_admission", "_handed_on", "bytes", "share")

    def __init__(self, admission: AdmissionControl, share: _Share | None) -> None:
        self._admission = admission
        self._handed_on = False
        self.share = share
        self.bytes = 0

    @property
    def drain(self) -> Drain:
        """Returns the state of the shutdown, which ends a request that is still being read."""
        return self._admission.drain

    @property
    def caller(self) -> Caller:
        """Returns the caller that holds the permit."""
        return ANYONE if self.share is None else self.share.caller

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def grow_to(self, body_bytes: int) -> None:
        """Counts a body that is longer than announced, or of unknown length. Raises ProblemError (429)."""
        if body_bytes > self.bytes:
            self._admission.grow(self, body_bytes - self.bytes)

    def grow_for(self, records: int) -> None:
        """Counts parsed records that take more memory than their body. Raises ProblemError (429)."""
        self.grow_to(bytes_of_records(records))

    def part(self, body_bytes: int) -> Permit:
        """Returns a permit of the same caller for more bytes, without a request. Raises ProblemError (429).

        It ends with `release_bytes`, perhaps after `hand_on`, and not with `release`.
        """
        part = Permit(self._admission, self.share)
        self._admission.grow(part, body_bytes)
        return part

    def beside(self) -> Permit:
        """Returns a permit of the same caller, for `count`. It ends with `release_bytes`."""
        return Permit(self._admission, self.share)

    def count(self, held_bytes: int) -> None:
        """Makes it hold so many bytes, without a check: they are there already, and others wait for them."""
        self._admission.add(self, held_bytes - self.bytes)

    def hand_on(self) -> None:
        """Marks the bytes as held by the client. They count until `release_bytes`, even after the request."""
        self._handed_on = True

    def release_bytes(self) -> None:
        """Releases the bytes, when the client has none of them any more."""
        self._admission.release_bytes(self)

    def release(self) -> None:
        """Ends the request: it is answered, or its caller has disconnected."""
        self._admission.release_request(self)
        if not self._handed_on:
            self.release_bytes()


class DrainRate:
    """The bytes that were released in the last whole second and in the present one."""

    def __init__(self) -> None:
        self._second = 0
        self._now = 0
        self._before = 0

    def add(self, released_bytes: int, now_ms: int) -> None:
        self._turn(now_ms)
        self._now += released_bytes

    def seconds_for(self, too_many_bytes: int, now_ms: int) -> int:
        """Returns in how many seconds so many bytes will be released at the present rate: 1 to 30."""
        self._turn(now_ms)
        bytes_per_s = max(self._now, self._before)
        if too_many_bytes <= 0:
            return 1
        if not bytes_per_s:
            return _LONGEST_S
        return min(math.ceil(too_many_bytes / bytes_per_s), _LONGEST_S)

    def _turn(self, now_ms: int) -> None:
        second = now_ms // 1000
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._now = 0
            self._second = second
