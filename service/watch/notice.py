"""Notifies the event loop of a new snapshot: once per refresh, regardless of the number of changes.

An EventSink on the client's I/O thread. It posts the first event of a swap to the loop. Until the loop has
handled it, further events cost two comparisons each. Before `begin` and after `end` it posts nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from typing import Final

from client_core import BrokersChanged, Event, LeadersChanged, MetadataRefreshed, PartitionCountChanged

_log: Final = logging.getLogger(__name__)

#: Each refresh ends with MetadataRefreshed. Leaders from a produce response come without it.
_OF_SNAPSHOTS: Final = frozenset({MetadataRefreshed, LeadersChanged, PartitionCountChanged, BrokersChanged})


#: An event loop's call_soon_threadsafe.
Post = Callable[[Callable[[], None]], object]


class SnapshotNotice:
    """Posts to one event loop at a time. `emit` on the I/O thread, the rest on the loop."""

    def __init__(self, kinds: Container[type] = _OF_SNAPSHOTS) -> None:
        """`kinds`: the classes of events that are posted."""
        self._kinds = kinds
        self._post: Post | None = None
        self._notify: Callable[[], None] | None = None
        self._is_posted = False

    def begin(self, post: Post, notify: Callable[[], None]) -> None:
        """Calls `notify` on the loop after each swap from now on."""
        self._is_posted = False
        self._notify = notify
        self._post = post

    def end(self) -> None:
        """Stops posting."""
        self._post = None

    def wants(self, kind: type) -> bool:
        """See `service.process.app.Subscriber`."""
        return kind in self._kinds

    def emit(self, event: Event, /) -> None:
        """Posts a notification, unless one is pending."""
        post = self._post
        if post is None or self._is_posted or type(event) not in self._kinds:
            return
        self._is_posted = True
        try:
            post(self._take_notice)
        except RuntimeError:
            _log.debug("a snapshot was swapped after the event loop had closed")
        except MemoryError:
            self._is_posted = False  # else the next swap would not be posted either
            raise

    def _take_notice(self) -> None:
        # Before `notify` reads the snapshot, so that a swap after this point is posted again.
        self._is_posted = False
        if self._post is not None and self._notify is not None:
            self._notify()
