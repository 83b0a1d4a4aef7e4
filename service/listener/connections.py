"""The API's connections as a whole: how many there may be, how long each may take, what answers may pile up.

    too many        who has been without a request for longest makes room; if everybody has one, new ones wait
                    in the kernel's backlog, where they cost nothing, until somebody leaves
    too slow        each connection looks at itself now and then (`http_protocol.py`) by the times here
    too much        answers that their callers do not take add up; beyond the limit the caller who has been
                    behind longest is cut off. One answer always fits, however large

Costs nothing while a request is served: an opening, a close, and an answer larger than the transport's buffer
are what is noted. Event loop only, but for `collect`, which reads numbers on the admin thread.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service.base.fast_metrics import counter_family, counters
from service.base.settings import Settings

_log: Final = logging.getLogger(__name__)

#: Longer than the pools of HTTP clients keep a connection, so that they close first and nobody meets a reset.
KEEP_ALIVE_S: Final = 75.0

#: Connections look at themselves so often within the shortest of their times.
LOOKS: Final = 4

#: However short the times are, 10,000 connections must not look all the time.
_SHORTEST_LOOK_S: Final = 0.005

#: Who had an answer so recently is likely to ask again at once, and is not made to go.
_IDLE_S: Final = 1.0

#: The part of all connections that goes at once: finding them means looking at everyone.
_MAKE_ROOM_FOR: Final = 0.01

#: A crowd is told of so often.
_REPORT_S: Final = 60.0

#: Why connections are ended by us.
REASONS: Final = ("slow_head", "slow_body", "stalled", "unsent_bytes", "made_room", "handshake")


class Limits(NamedTuple):
    """What a connection may take, in seconds and bytes."""

    max_connections: int
    head_s: float
    keep_alive_s: float
    stall_s: float
    max_unsent_bytes: int

    @property
    def look_s(self) -> float:
        """How often a connection looks at itself: nothing is noticed later than that."""
        return max(min(self.head_s, self.keep_alive_s, self.stall_s) / LOOKS, _SHORTEST_LOOK_S)

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Those that the settings say."""
        return cls(
            settings.max_connections,
            settings.request_timeout_ms / 1000,
            KEEP_ALIVE_S,
            settings.stall_timeout_ms / 1000,
            settings.internal.max_unsent_bytes,
        )


class Connection(Protocol):
    """What is asked of one connection."""

    @property
    def waits_since_s(self) -> float | None:
        """Since when it has been waiting for a request to come whole; None while it has one."""

    def close(self) -> None:
        """Ends it; it has no request."""

    def end_with_answer(self) -> None:
        """Has its answer, if one is due, say that it is the last."""

    def abort(self) -> None:
        """Ends it at once, whatever is unsent."""


class Connections(Collector):
    """Counts them, and makes room. A collector of what it counted."""

    def __init__(self, limits: Limits) -> None:
        self.limits: Final = limits
        #: Accepted and not over, those in their TLS handshake among them.
        self.open = 0
        self._served: set[Connection] = set()
        #: The sidecar is on its way out: each answer is the last of its connection.
        self.are_ending = False
        self._room_wanted: set[Callable[[], None]] = set()
        self._behind: dict[Connection, int] = {}
        self.unsent_bytes = 0
        self._reported_s: float | None = None
        self._ended = counters("pilotfish_http_connections_ended", "Connections ended by us.", "reason")
        for reason in REASONS:
            self._ended.child(reason)

    # -- how many --------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether one more may be accepted."""
        return self.open < self.limits.max_connections

    def make_room(self, now_s: float) -> None:
        """Somebody waits to be accepted: ends some of those who have had no request for longest.

        `now_s` is the loop's time, as it is in `Connection.waits_since_s`.
        """
        if self._reported_s is None or now_s - self._reported_s >= _REPORT_S:
            self._reported_s = now_s
            _log.warning(
                "%d connections are open, and no more are taken (max_connections) until some end", self.open
            )
        waiting = [
            (since_s, id(connection), connection)
            for connection in self._served
            if (since_s := connection.waits_since_s) is not None and now_s - since_s > _IDLE_S
        ]
        count = math.ceil(self.limits.max_connections * _MAKE_ROOM_FOR)
        for _, _, connection in heapq.nsmallest(count, waiting):
            self.ended("made_room")
            connection.close()

    def when_room(self, accept: Callable[[], None]) -> None:
        """Has `accept` called, once, when a connection has ended."""
        self._room_wanted.add(accept)

    def accepted(self) -> None:
        """One more is open."""
        self.open += 1

    def over(self) -> None:
        """One that was accepted has ended, or did not come to be served."""
        self.open -= 1
        wanted, self._room_wanted = self._room_wanted, set()
        for accept in wanted:
            accept()

    def served(self, connection: Connection) -> None:
        """It speaks HTTP from here on."""
        self._served.add(connection)

    def left(self, connection: Connection) -> None:
        """It was served, and has ended."""
        self._served.discard(connection)
        self.caught_up(connection)
        self.over()

    def end_with_answers(self) -> None:
        """From here on every answer says `Connection: close`.

        Whoever keeps connections for later learns that this one won't do, before it is closed under a
        request that is on its way. Those without a request are left to say one more thing until then.
        """
        self.are_ending = True
        for connection in self._served:
            connection.end_with_answer()

    # -- what piles up ---------------------------------------------------------------------------------------

    def fell_behind(self, connection: Connection, unsent_bytes: int) -> None:
        """Its caller takes less than it is sent: so much waits now."""
        self.caught_up(connection)
        self._behind[connection] = unsent_bytes
        self.unsent_bytes += unsent_bytes
        while self.unsent_bytes > self.limits.max_unsent_bytes and len(self._behind) > 1:
            longest = next(iter(self._behind))
            self.caught_up(longest)
            self.ended("unsent_bytes")
            longest.abort()

    def caught_up(self, connection: Connection) -> None:
        """Nothing worth mentioning waits for its caller any more."""
        self.unsent_bytes -= self._behind.pop(connection, 0)

    # -- what is told ----------------------------------------------------------------------------------------

    def ended(self, reason: str) -> None:
        """Counts one that is ended by us; `reason` is one of REASONS."""
        self._ended.child(reason).add()

    def collect(self) -> Iterator[Metric]:
        """The families, for Prometheus. Admin thread."""
        yield GaugeMetricFamily(
            "pilotfish_http_connections", "Connections to the API that are open.", value=self.open
        )
        yield GaugeMetricFamily(
            "pilotfish_http_unsent_bytes",
            "Bytes of answers beyond the sockets' buffers whose callers do not take them.",
            value=self.unsent_bytes,
        )
        yield counter_family(self._ended)
