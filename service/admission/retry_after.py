"""When a caller who was told 503 should come again: the Retry-After of each reason.

    memory was full    when as many bytes as the request brings will have been delivered, as fast as they were
                       in the last second or the present one; 30 s if none were. Requests that gave up leave
                       too, but free no memory, for they had none
    shutting down      when all that was accepted will have left the waiting room, at its rate, at most
                       drain_timeout_ms: then this process is gone, and another one may be there
    no broker, no      when every broker has been tried once more: reconnect.backoff.max.ms
    metadata

In whole seconds, from 1 to 30. That of a 429 is the waiting room's own. Event loop only.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from client_core import Clock, Phase, ProducerConfig, Result
from service.admission.admission_control import DrainRate, WaitingRoom
from service.admission.drain import Drain
from service.base.settings import Settings
from service.wire.errors import Problem

_LONGEST_S: Final = 30


class RetryAfter:
    """Puts Retry-After on problems."""

    def __init__(
        self, clock: Clock, room: WaitingRoom, drain: Drain, config: ProducerConfig, settings: Settings
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
