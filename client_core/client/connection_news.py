"""What of a node's connections is news: a broker that stays away is one line in the log, not one a second.

    a connection that ended, or could not be made    news, once for each way in which that happens
    ready                                            news, once; what fails from then on is news again
    ready again and again without a served request   no news: it only seems to work

Nothing is forgotten before a request is served or the node is ready after attempts that failed, so that a
broker that accepts and hangs up each second fills no log either. What is no news is told at DEBUG.
One owner, the I/O thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from client_core.client.disconnection import Disconnection

#: A node may have several addresses, each of which fails in its own words.
_MOST_WAYS: Final = 8


class _Told:
    """Of one node: the ways of failing that were told, and how often it has failed since it was ready."""

    __slots__ = ("failures", "is_ready", "ways")

    def __init__(self) -> None:
        self.ways: set[tuple[str, str]] = set()
        self.failures = 0
        self.is_ready = False


class ConnectionNews:
    """What was told of each node that is not at work."""

    def __init__(self) -> None:
        #: By node id; empty while every node serves.
        self.told: Final[dict[int, _Told]] = {}

    def ended(self, node_id: int, ended: Disconnection, *, was_up: bool) -> int:
        """The level at which the end of a connection is told; `was_up`: not of an attempt to make one."""
        told = self.told.setdefault(node_id, _Told())
        if not was_up:
            told.failures += 1
            told.is_ready = False
        # Timeouts are worded with their milliseconds, which grow.
        way = (ended.reason, "" if ended.timed_out else ended.detail)
        if way in told.ways or len(told.ways) >= _MOST_WAYS:
            return logging.DEBUG
        told.ways.add(way)
        return ended.log_level

    def ready(self, node_id: int) -> tuple[int, int]:
        """The level at which that is told, and how many attempts had failed before."""
        told = self.told.setdefault(node_id, _Told())
        if told.is_ready:
            return logging.DEBUG, 0
        failures = told.failures
        told.is_ready, told.failures = True, 0
        told.ways.clear()
        return logging.INFO, failures

    def forget(self, node_id: int) -> None:
        """It serves, or is no node any more."""
        self.told.pop(node_id, None)
