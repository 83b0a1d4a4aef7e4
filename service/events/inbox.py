"""What the client's threads leave for the event log: batches that finished, snapshots, and other notices.

    I/O thread    ──emit──▶  finished batches   a deque, appended to and nothing else
                             notices            refreshes with the snapshot they made, connections; one lock
    event log     ──take──▶  both, whenever it comes round

Nothing is compared, counted or encoded here. Both are bounded. Batches beyond the bound are left out of their
window. Of snapshots the newest wait: one that is passed over is told by the next, which holds all that it
changed and that still is so. What is left out is counted.

A refresh swaps the snapshot, then tells what changed, then emits MetadataRefreshed. A produce answer that
names leaders swaps it without a refresh: LeadersChanged comes, and the snapshot's update_version is that of
the last refresh (KIP-951).
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

#: Finished batches that call the event log before its time: it takes a thousand in some 2 ms.
CROWDED: Final = 2_000
#: Finished batches that may wait: a second's worth of what one sidecar sends at its fastest, twice.
MOST_FINISHED: Final = 20_000
#: Snapshots that may wait. They share what did not change; it is their dicts of topics that weigh.
MOST_SNAPSHOTS: Final = 16
MOST_NOTICES: Final = 1_000
#: Topics that are remembered as gone; those beyond are told as forgotten, which is what is known for sure.
MOST_GONE: Final = 10_000

_NOBODY_GONE: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class SnapshotNotice:
    """A snapshot, and the refresh that made it; None: a produce answer. Changed under the inbox's lock."""

    wall_ms: int
    refreshed: MetadataRefreshed | None
    #: None once it was passed over, or taken.
    cache: MetadataCache | None
    #: Topics that the brokers no longer have, others that are missing are forgotten ones.
    gone: frozenset[str] = _NOBODY_GONE


class FailedNotice(NamedTuple):
    """A refresh that failed."""

    wall_ms: int
    failed: MetadataRefreshFailed


class ConnectionNotice(NamedTuple):
    """A connection that was made or has ended."""

    wall_ms: int
    event: NodeReady | NodeDisconnected


Notice = SnapshotNotice | FailedNotice | ConnectionNotice


class LeftOut(NamedTuple):
    """What came faster than it could be taken, since the start."""

    batches: int
    snapshots: int
    notices: int


class Inbox:
    """A Subscriber of the client's events. `emit` on any of the client's threads, `take…` on the log's."""

    def __init__(self, clock: Clock, call: Callable[[], None]) -> None:
        """`call` wakes the event log: it is crowded here."""
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
        self._left_out = LeftOut(0, 0, 0)
        self._takers: dict[type, Callable[[Event], None]] = {
            MetadataRefreshed: self._on_refreshed,
            MetadataRefreshFailed: self._on_failed,
            LeadersChanged: self._on_leaders,
            PartitionCountChanged: self._on_count,
            NodeReady: self._on_connection,
            NodeDisconnected: self._on_connection,
        }

    def follow(self, snapshot: Callable[[], MetadataCache]) -> None:
        """Says where the present snapshot is to be had. Before the client starts."""
        self._snapshot = snapshot

    # -- the client's threads --------------------------------------------------------------------------------

    def wants(self, kind: type) -> bool:
        """See `event_fan_out.Subscriber`."""
        return kind is ProduceFinished or kind in self._takers

    def emit(self, event: Event, /) -> None:
        """Puts one event down."""
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
                self._left_out = self._left_out._replace(batches=self._left_out.batches + 1)
            was_called, self._called = self._called, True
        if not was_called:
            self._call()

    def _on_refreshed(self, event: Event) -> None:
        assert isinstance(event, MetadataRefreshed)
        self._refreshed_version = event.update_version
        gone, self._gone = frozenset(self._gone), set()
        self._add_snapshot(SnapshotNotice(self._clock.wall_ms(), event, self._snapshot(), gone))

    def _on_leaders(self, _: Event) -> None:
        snapshot = self._snapshot()
        # Of a refresh: its own event follows. Of an answer that named several topics: once is enough.
        if snapshot.update_version == self._refreshed_version and snapshot is not self._noted:
            self._add_snapshot(SnapshotNotice(self._clock.wall_ms(), None, snapshot))

    def _on_count(self, event: Event) -> None:
        assert isinstance(event, PartitionCountChanged)
        if event.new_count is None and len(self._gone) < MOST_GONE:
            self._gone.add(event.topic)

    def _on_failed(self, event: Event) -> None:
        assert isinstance(event, MetadataRefreshFailed)
        self._add(FailedNotice(self._clock.wall_ms(), event))

    def _on_connection(self, event: Event) -> None:
        assert isinstance(event, NodeReady | NodeDisconnected)
        self._add(ConnectionNotice(self._clock.wall_ms(), event))

    def _add_snapshot(self, notice: SnapshotNotice) -> None:
        self._noted = notice.cache
        self._snapshots.append(notice)
        if len(self._snapshots) > MOST_SNAPSHOTS:
            self._pass_over()
        self._add(notice)

    def _pass_over(self) -> None:
        """The oldest snapshot is told by the one after it."""
        oldest = self._snapshots.popleft()
        oldest.cache = None
        heir = self._snapshots[0]
        if len(heir.gone) < MOST_GONE:
            heir.gone |= oldest.gone
        self._left_out = self._left_out._replace(snapshots=self._left_out.snapshots + 1)

    def _add(self, notice: Notice) -> None:
        self._notices.append(notice)
        if len(self._notices) > MOST_NOTICES:
            # A snapshot that still waits is among the youngest of its kind and is never given up.
            at = next(i for i, old in enumerate(self._notices) if not _holds_snapshot(old))
            del self._notices[at]
            self._left_out = self._left_out._replace(notices=self._left_out.notices + 1)

    # -- the event log's thread ------------------------------------------------------------------------------

    def take_finished(self, most: int) -> list[ProduceFinished]:
        """The oldest batches that finished, so many at most: CROWDED, or fewer."""
        self._called = False
        finished = self._finished
        # The client gives up the oldest meanwhile, but only where many more are left than are taken here.
        return [finished.popleft() for _ in range(min(len(finished), most))]

    def take_notice(self) -> Notice | None:
        """The oldest notice; its snapshot, if it holds one, is the taker's from here on."""
        with self._lock:
            if not self._notices:
                return None
            notice = self._notices.popleft()
            if self._snapshots and notice is self._snapshots[0]:
                self._snapshots.popleft()
        return notice

    @property
    def has_notices(self) -> bool:
        return bool(self._notices)

    @property
    def left_out(self) -> LeftOut:
        """Any thread."""
        return self._left_out


def _holds_snapshot(notice: Notice) -> bool:
    return isinstance(notice, SnapshotNotice) and notice.cache is not None
