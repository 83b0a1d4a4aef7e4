"""Collects the client's events for the event log: finished batches, snapshots and other notices.

    I/O thread    ──emit──▶  finished batches   a deque, appended to without a lock
                             notices            refreshes with their snapshots, connections; one lock
    event log     ──take──▶  both, in its turns

The event log compares, counts and encodes; this module queues. Both queues are bounded. Batches beyond the
bound are left out of their window. Only the newest snapshots wait: if one is dropped, the next reports its
changes, except those undone in between. Everything that is left out is counted.

Refreshes that limit the age of look-ups (reason `age`) come every two seconds. One that changed nothing is
not queued.

A refresh swaps the snapshot, then emits the changes, then MetadataRefreshed. A produce response that names
leaders swaps the snapshot without a refresh. Then LeadersChanged is emitted, and the snapshot keeps the
update_version of the last refresh (KIP-951).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from client_core import (
    Clock,
    Event,
    LeadersChanged,
    MetadataCache,
    MetadataRefreshed,
    MetadataRefreshFailed,
    NodeDisconnected,
    NodeReady,
    PartitionCountChanged,
    ProduceFinished,
)

#: More finished batches wake the event log early: it takes a thousand in about 2 ms.
CROWDED: Final = 2_000
#: The most finished batches that wait: twice what the fastest sidecar finishes in one second.
MOST_FINISHED: Final = 20_000
#: The most snapshots that wait. Snapshots share unchanged tables; what takes memory is each one's dict of
#: topics.
MOST_SNAPSHOTS: Final = 16
MOST_NOTICES: Final = 1_000
#: The most topics remembered as gone. Others are reported as forgotten by the client, which is true as well.
MOST_GONE: Final = 10_000

_NOBODY_GONE: Final[frozenset[str]] = frozenset()

#: The reason of refreshes that limit the age of look-ups.
_AGE: Final = "age"


@dataclass(slots=True)
class SnapshotNotice:
    """A snapshot. `refreshed` is None if a produce response made it. Changed under the inbox's lock."""

    wall_ms: int
    refreshed: MetadataRefreshed | None
    #: None once the snapshot was dropped in favour of a newer one.
    cache: MetadataCache | None
    #: Topics that the brokers no longer have; other missing topics are forgotten ones.
    gone: frozenset[str] = _NOBODY_GONE


class EventNotice(NamedTuple):
    """A refresh that failed, or a connection that was opened or has ended."""

    wall_ms: int
    event: MetadataRefreshFailed | NodeReady | NodeDisconnected


Notice = SnapshotNotice | EventNotice


class LeftOut(NamedTuple):
    """Counts, since the start, of what came faster than the event log could take it."""

    batches: int
    snapshots: int
    notices: int


class Inbox:
    """A Subscriber of the client's events. `emit` on any of the client's threads, `take…` on the log's."""

    def __init__(self, clock: Clock, call: Callable[[], None]) -> None:
        """`call` wakes the event log when many batches wait."""
        self._clock = clock
        self._call = call
        self._snapshot: Callable[[], MetadataCache] = MetadataCache.empty
        self._finished: deque[ProduceFinished] = deque()
        self._lock = threading.Lock()
        self._notices: deque[Notice] = deque()
        self._snapshots: deque[SnapshotNotice] = deque()
        self._gone: set[str] = set()
        self._refreshed_version = -1
        self._noted: MetadataCache | None = None
        self._called = False
        #: Read by any thread.
        self.left_out = LeftOut(0, 0, 0)
        self._takers: dict[type, Callable[[Event], None]] = {
            MetadataRefreshed: self._on_refreshed,
            MetadataRefreshFailed: self._on_other,
            LeadersChanged: self._on_leaders,
            PartitionCountChanged: self._on_count,
            NodeReady: self._on_other,
            NodeDisconnected: self._on_other,
        }

    def follow(self, snapshot: Callable[[], MetadataCache]) -> None:
        """Sets the source of the present snapshot. Called before the client starts."""
        self._snapshot = snapshot

    # -- the client's threads --------------------------------------------------------------------------------

    def wants(self, kind: type) -> bool:
        """Returns whether this kind of event is used; see `event_fan_out.Subscriber`."""
        return kind is ProduceFinished or kind in self._takers

    def emit(self, event: Event, /) -> None:
        """Queues one event, if its kind is used."""
        if type(event) is ProduceFinished:
            finished = self._finished
            finished.append(event)
            if len(finished) > CROWDED:
                self._relieve()
            return
        take = self._takers.get(type(event))
        if take is not None:
            with self._lock:
                take(event)

    def _relieve(self) -> None:
        with self._lock:
            if len(self._finished) > MOST_FINISHED:
                self._finished.popleft()
                self.left_out = self.left_out._replace(batches=self.left_out.batches + 1)
            was_called, self._called = self._called, True
        if not was_called:
            self._call()

    def _on_refreshed(self, event: Event) -> None:
        assert isinstance(event, MetadataRefreshed)
        self._refreshed_version = event.update_version
        snapshot = self._snapshot()
        if event.reason == _AGE and self._noted is not None and _is_unchanged(self._noted, snapshot):
            return
        gone, self._gone = frozenset(self._gone), set()
        self._add_snapshot(SnapshotNotice(self._clock.wall_ms(), event, snapshot, gone))

    def _on_leaders(self, _: Event) -> None:
        snapshot = self._snapshot()
        # A refresh's snapshot has a new update_version, and MetadataRefreshed follows. A produce response
        # emits an event per topic, but its snapshot is noted once.
        if snapshot.update_version == self._refreshed_version and snapshot is not self._noted:
            self._add_snapshot(SnapshotNotice(self._clock.wall_ms(), None, snapshot))

    def _on_count(self, event: Event) -> None:
        assert isinstance(event, PartitionCountChanged)
        if event.new_count is None and len(self._gone) < MOST_GONE:
            self._gone.add(event.topic)

    def _on_other(self, event: Event) -> None:
        assert isinstance(event, MetadataRefreshFailed | NodeReady | NodeDisconnected)
        self._add(EventNotice(self._clock.wall_ms(), event))

    def _add_snapshot(self, notice: SnapshotNotice) -> None:
        self._noted = notice.cache
        self._snapshots.append(notice)
        if len(self._snapshots) > MOST_SNAPSHOTS:
            self._pass_over()
        self._add(notice)

    def _pass_over(self) -> None:
        """Drops the oldest snapshot; the next one reports its changes."""
        oldest = self._snapshots.popleft()
        oldest.cache = None
        heir = self._snapshots[0]
        if len(heir.gone) < MOST_GONE:
            heir.gone |= oldest.gone
        self.left_out = self.left_out._replace(snapshots=self.left_out.snapshots + 1)

    def _add(self, notice: Notice) -> None:
        self._notices.append(notice)
        if len(self._notices) > MOST_NOTICES:
            # A waiting snapshot is among the newest, and is never dropped here.
            at = next(i for i, old in enumerate(self._notices) if not _holds_snapshot(old))
            del self._notices[at]
            self.left_out = self.left_out._replace(notices=self.left_out.notices + 1)

    # -- the event log's thread ------------------------------------------------------------------------------

    def take_finished(self, most: int) -> list[ProduceFinished]:
        """Returns the oldest finished batches, at most `most`, which is at most CROWDED."""
        self._called = False
        finished = self._finished
        # `emit` may drop the oldest meanwhile, but only beyond MOST_FINISHED, so enough are left.
        return [finished.popleft() for _ in range(min(len(finished), most))]

    def take_notice(self) -> Notice | None:
        """Returns the oldest notice; if it has a snapshot, the caller now owns it."""
        with self._lock:
            if not self._notices:
                return None
            notice = self._notices.popleft()
            if self._snapshots and notice is self._snapshots[0]:
                self._snapshots.popleft()
        return notice


def _is_unchanged(before: MetadataCache, after: MetadataCache) -> bool:
    """Returns whether both have the same tables and brokers: unchanged tables are the same objects."""
    if len(before.topics) != len(after.topics) or before.nodes_by_id != after.nodes_by_id:
        return False
    return before.topics is after.topics or all(
        before.topics.get(name) is table for name, table in after.topics.items()
    )


def _holds_snapshot(notice: Notice) -> bool:
    return isinstance(notice, SnapshotNotice) and notice.cache is not None
