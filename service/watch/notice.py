"""How the event loop hears that a snapshot was swapped: once per refresh, however much changed.

An EventSink on the client's I/O thread. The first event of a swap is posted to the loop, those that follow
cost two comparisons until the loop has taken notice. While nobody watches, nothing is posted at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from client_core import (
    BrokersChanged,
    Event,
    LeadersChanged,
    MetadataRefreshed,
    PartitionCountChanged,
)

_log: Final = logging.getLogger(__name__)

#: A refresh ends with MetadataRefreshed, changes or not. Leaders that a produce answer names come without
#: one.
_OF_SNAPSHOTS: Final = frozenset({MetadataRefreshed, LeadersChanged, PartitionCountChanged, BrokersChanged})


#: An event loop's call_soon_threadsafe.
Post = Callable[[Callable[[], None]], object]


class SnapshotNotice:
    """Posts to one event loop at a time. `emit` on the I/O thread, the rest on the loop."""

    def __init__(self) -> None:
        self._post: Post | None = None
        self._notify: Callable[[], None] | None = None
        self._is_posted = False

    def begin(self, post: Post, notify: Callable[[], None]) -> None:
        """Has `notify` called on the loop after each swap from now on."""
        self._is_posted = False
        self._notify = notify
        self._post = post

    def end(self) -> None:
        """Posts no more."""
        self._post = None

    def wants(self, kind: type) -> bool:
        """See `event_fan_out.Subscriber`."""
        return kind in _OF_SNAPSHOTS

    def emit(self, event: Event, /) -> None:
        """Posts, if that is not under way already."""
        post = self._post
        if post is None or self._is_posted or type(event) not in _OF_SNAPSHOTS:
            return
        self._is_posted = True
        try:
            post(self._take_notice)
        except RuntimeError:
            _log.debug("a snapshot was swapped after the event loop had closed")

    def _take_notice(self) -> None:
        # First, so that a swap from here on is posted again: the snapshot is read after this.
        self._is_posted = False
        if self._post is not None and self._notify is not None:
            self._notify()
