"""Non-blocking look-ups: topics by name, a newer snapshot, all topics, topic configs, offsets; refreshes.

Any thread calls, and gets a Ticket. The I/O thread keeps the waits (`pending_metadata.py`,
`pending_configs.py`, `pending_offsets.py`). Java's producer has no such calls: its look-ups block; configs
and offsets are AdminClient's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.cluster import TopicPartition
from client_core.producer.requests.pending_configs import ConfigsWait
from client_core.producer.requests.pending_metadata import Kind, PendingLookup
from client_core.producer.requests.pending_offsets import OffsetsWait
from client_core.producer.requests.record_checks import check_topics
from client_core.producer.requests.topic_refreshes import TopicRefresh
from client_core.producer.results.ticket import CancelTicket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from client_core.clock import Clock
    from client_core.producer.requests.least_loaded_call import IoExecutor
    from client_core.producer.requests.pending_configs import PendingConfigs
    from client_core.producer.requests.pending_metadata import PendingLookups
    from client_core.producer.requests.pending_offsets import PendingOffsets
    from client_core.producer.requests.topic_refreshes import TopicRefreshes
    from client_core.producer.results.ticket import Done, Ticket


class LookupRequests:
    """Passes look-ups, and their cancellation, to the I/O thread. Any thread."""

    def __init__(
        self,
        io_thread: IoExecutor,
        lookups: PendingLookups,
        configs: PendingConfigs,
        offsets: PendingOffsets,
        topic_refreshes: TopicRefreshes,
        clock: Clock,
    ) -> None:
        self._io_thread = io_thread
        self._lookups = lookups
        self._configs = configs
        self._offsets = offsets
        self._topic_refreshes = topic_refreshes
        self._clock = clock

    @property
    def count(self) -> int:
        """How many look-ups, calls for configs and calls for offsets wait. A plain read."""
        return self._lookups.count + self._configs.count + self._offsets.count

    def topics(
        self, names: Iterable[str], deadline_ms: int, done: Done, *, may_create: bool, settle: bool
    ) -> Ticket:
        """Looks up topics. Raises what check_topics raises."""
        topics = tuple(names)
        check_topics(topics)
        since_ms = self._clock.now_ms()
        return self._take(
            PendingLookup(Kind.TOPICS, done, since_ms, deadline_ms, topics, may_create, settle=settle)
        )

    def update(
        self, deadline_ms: int, done: Done, *, min_version: int | None, max_age_ms: int | None
    ) -> Ticket:
        since_ms = self._clock.now_ms()
        not_before_ms = None if max_age_ms is None else since_ms - max_age_ms
        return self._take(
            PendingLookup(
                Kind.UPDATE,
                done,
                since_ms,
                deadline_ms,
                min_version=min_version,
                not_before_ms=not_before_ms,
            )
        )

    def listing(self, deadline_ms: int, done: Done) -> Ticket:
        return self._take(PendingLookup(Kind.LISTING, done, self._clock.now_ms(), deadline_ms))

    def topic_configs(self, topic: str, deadline_ms: int, done: Done) -> Ticket:
        """Requests a topic's configs. Raises what check_topics raises."""
        check_topics((topic,))
        wait = ConfigsWait(topic, done, self._clock.now_ms(), deadline_ms)
        self._io_thread.do(lambda _: self._configs.take(wait))
        return CancelTicket(lambda: self._cancel_configs(wait))

    def partition_offsets(self, topic: str, partition: int, deadline_ms: int, done: Done) -> Ticket:
        """Requests a partition's offsets from its leader. Raises what check_topics raises."""
        check_topics((topic,))
        wait = OffsetsWait(TopicPartition(topic, partition), done, self._clock.now_ms(), deadline_ms)
        self._io_thread.do(lambda _: self._offsets.take(wait))
        return CancelTicket(lambda: self._cancel_offsets(wait))

    def refresh(self, names: Iterable[str], deadline_ms: int, done: Done) -> Ticket:
        """Refreshes known topics outside the schedule (`topic_refreshes.py`)."""
        refresh = TopicRefresh(tuple(names), done, self._clock.now_ms(), deadline_ms)
        self._io_thread.do(lambda _: self._topic_refreshes.take(refresh))
        return CancelTicket(lambda: self._cancel_refresh(refresh))

    def _take(self, lookup: PendingLookup) -> Ticket:
        self._io_thread.do(lambda now_ms: self._lookups.take(lookup, now_ms))
        return CancelTicket(lambda: self._cancel(lookup))

    def _cancel(self, lookup: PendingLookup) -> None:
        lookup.is_cancelled = True
        self._io_thread.do(lambda _: self._lookups.cancel(lookup))

    def _cancel_refresh(self, refresh: TopicRefresh) -> None:
        refresh.is_cancelled = True
        self._io_thread.do(lambda _: self._topic_refreshes.cancel(refresh))

    def _cancel_offsets(self, wait: OffsetsWait) -> None:
        wait.is_cancelled = True
        self._io_thread.do(lambda _: self._offsets.cancel(wait))

    def _cancel_configs(self, wait: ConfigsWait) -> None:
        wait.is_cancelled = True
        self._io_thread.do(lambda _: self._configs.cancel(wait))
