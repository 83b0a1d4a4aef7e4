"""Limits of all connections of a server together: their number, times, large heads and unsent bytes.

    too many        closes the connections that have been idle longest; if none is idle, new ones wait in the
                    kernel's backlog, at no cost, until one ends
    too slow        each connection checks itself now and then (`http_protocol.py`) against the times here
    large heads     the bytes of heads beyond USUAL_HEAD_BYTES add up, until the requests are answered; beyond
                    the limit the request that brings more is refused
    too much        unsent bytes of answers add up; beyond the limit the connection that has been behind
                    longest is cut off. One answer always fits, however large

Costs nothing per request: only an opening, a close, and an answer above the transport's buffer are recorded.
Event loop only, but for `collect`, which reads numbers on the admin thread.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from service.base.fast_metrics import counter_family, counters, gauge
from service.base.settings import Settings

_log: Final = logging.getLogger(__name__)

#: Longer than HTTP clients' pools keep a connection: they close first, so nobody gets a reset.
KEEP_ALIVE_S: Final = 75.0

#: Checks per connection within the shortest of its times.
LOOKS: Final = 4

#: What the head of a request may hold without being counted: those of browsers and HTTP libraries do.
USUAL_HEAD_BYTES: Final = 4 * 1024

#: What a header takes besides its bytes: a tuple and two objects of bytes.
HEADER_BYTES: Final = 128

#: Lower bound, so that 10,000 connections do not check all the time.
_SHORTEST_LOOK_S: Final = 0.005

#: A caller answered this recently probably asks again at once: its connection stays.
_IDLE_S: Final = 1.0

#: Part of all connections closed at once, since finding them means checking all.
_MAKE_ROOM_FOR: Final = 0.01

#: Minimum time between log lines about reaching the limit.
_REPORT_S: Final = 60.0

#: Why we end connections.
REASONS: Final = ("slow_head", "slow_body", "stalled", "unsent_bytes", "made_room", "handshake")


class Limits(NamedTuple):
    """Limits of a connection, in seconds and bytes."""

    max_connections: int
    head_s: float
    keep_alive_s: float
    stall_s: float
    max_unsent_bytes: int
    large_heads_bytes: int

    @property
    def look_s(self) -> float:
        """How often a connection checks itself: the longest delay of any detection."""
        return max(min(self.head_s, self.keep_alive_s, self.stall_s) / LOOKS, _SHORTEST_LOOK_S)

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Returns the limits from the settings."""
        return cls(
            settings.internal.max_connections,
            settings.internal.request_timeout_ms / 1000,
            KEEP_ALIVE_S,
            settings.internal.stall_timeout_ms / 1000,
            settings.internal.max_unsent_bytes,
            settings.internal.large_heads_bytes,
        )


class Connection(Protocol):
    """The part of a connection that `Connections` uses."""

    @property
    def waits_since_s(self) -> float | None:
        """Since when it has had no complete request; None while it serves one, or if it is closing."""

    def close(self) -> None:
        """Closes the connection, which serves no request."""

    def end_with_answer(self) -> None:
        """Makes its pending answer, if any, announce that it is the last."""

    def abort(self) -> None:
        """Closes it at once and drops unsent bytes."""


class Connections(Collector):
    """Counts connections, makes room, and collects the metrics."""

    def __init__(self, limits: Limits, listener: str = "") -> None:
        """`listener` is named in logs if it is not the API's."""
        self.limits: Final = limits
        self._where = listener and f" to {listener}"
        #: Accepted and not ended, including those in their TLS handshake.
        self.open = 0
        self._served: set[Connection] = set()
        #: The sidecar is shutting down: each answer is the last of its connection.
        self.are_ending = False
        self._room_wanted: set[Callable[[], None]] = set()
        self._behind: dict[Connection, int] = {}
        self.unsent_bytes = 0
        #: Bytes of heads beyond the usual ones, of all connections.
        self.large_heads_bytes = 0
        self._reported_s: float | None = None
        self._ended = counters(
            "pilotfish_http_connections_ended", "Connections that the sidecar closed.", "reason"
        )
        for reason in REASONS:
            self._ended.child(reason)

    # -- how many --------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Returns whether one more may be accepted."""
        return self.open < self.limits.max_connections

    def make_room(self, now_s: float) -> None:
        """Closes some of the longest idle connections, because a new one waits.

        `now_s` is the loop's time, as in `Connection.waits_since_s`.
        """
        if self._reported_s is None or now_s - self._reported_s >= _REPORT_S:
            self._reported_s = now_s
            _log.warning(
                "%d connections%s are open; no more are accepted until some end", self.open, self._where
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
        """Calls `accept`, once, when a connection has ended."""
        self._room_wanted.add(accept)

    def accepted(self) -> None:
        """Counts one more open connection."""
        self.open += 1

    def over(self) -> None:
        """Notes that an accepted connection ended, or was never served."""
        self.open -= 1
        wanted, self._room_wanted = self._room_wanted, set()
        for accept in wanted:
            accept()

    def served(self, connection: Connection) -> None:
        """Adds a connection that now uses HTTP."""
        self._served.add(connection)

    def left(self, connection: Connection) -> None:
        """Notes that a served connection ended."""
        self._served.discard(connection)
        self.caught_up(connection)
        self.over()

    def end_with_answers(self) -> None:
        """Makes every answer from now on have `Connection: close`.

        So pools learn that the connection is ending, before it closes under their next request. Idle
        connections may send one more request until then.
        """
        self.are_ending = True
        for connection in self._served:
            connection.end_with_answer()

    def cut_off(self) -> None:
        """Cuts off the callers that have not read their last answer. The requests end as if they had left."""
        if self._served:
            said = "Connections%s cut off because their last answers were not read: %d"
            _log.warning(said, self._where, len(self._served))
        for connection in list(self._served):
            connection.abort()

    # -- large heads -----------------------------------------------------------------------------------------

    def holds_heads(self, before_bytes: int, now_bytes: int) -> bool:
        """Counts what the heads of one connection take, in place of what they took before.

        Returns False, and counts nothing, if that is more, and more than all connections may hold.
        """
        more_bytes = max(now_bytes - USUAL_HEAD_BYTES, 0) - max(before_bytes - USUAL_HEAD_BYTES, 0)
        if more_bytes > 0 and self.large_heads_bytes + more_bytes > self.limits.large_heads_bytes:
            return False
        self.large_heads_bytes += more_bytes
        return True

    # -- unsent bytes ----------------------------------------------------------------------------------------

    def fell_behind(self, connection: Connection, unsent_bytes: int) -> None:
        """Records how many bytes wait because the caller reads too slowly."""
        self.caught_up(connection)
        self._behind[connection] = unsent_bytes
        self.unsent_bytes += unsent_bytes
        while self.unsent_bytes > self.limits.max_unsent_bytes and len(self._behind) > 1:
            longest = next(iter(self._behind))
            self.caught_up(longest)
            self.ended("unsent_bytes")
            longest.abort()

    def caught_up(self, connection: Connection) -> None:
        """Notes that the caller has read nearly everything."""
        self.unsent_bytes -= self._behind.pop(connection, 0)

    # -- metrics ---------------------------------------------------------------------------------------------

    def ended(self, reason: str) -> None:
        """Counts a connection that we ended; `reason` is one of REASONS."""
        self._ended.child(reason).add()

    def collect(self) -> Iterator[Metric]:
        """Yields the Prometheus metric families. Admin thread."""
        yield gauge("http_connections", "Connections to the API that are open.", self.open)
        yield counter_family(self._ended)
