"""Look-ups that do not block: topics by name, a newer snapshot, all topics, configs, offsets; refreshes.

Any thread calls, and gets a Ticket. The I/O thread keeps the waits (`pending_metadata.py`,
`pending_configs.py`, `pending_offsets.py`). Java's producer has no such calls: its look-ups block; configs
and offsets are AdminClient's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from client_core.cluster import TopicPartition
from client_core.producer.requests.pending_calls import PendingCall
from client_core.producer.requests.pending_configs import ConfigsWait
from client_core.producer.requests.pending_metadata import Kind, PendingLookup
from client_core.producer.requests.pending_offsets import OffsetsWait
from client_core.producer.requests.record_checks import check_topics, checked_topics
from client_core.producer.requests.topic_refreshes import TopicRefresh
from client_core.producer.results.ticket import CancelTicket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from client_core.clock import Clock
    from client_core.producer.requests.least_loaded_call import IoExecutor
    from client_core.producer.requests.pending_calls import PendingCalls
    from client_core.producer.requests.pending_configs import PendingConfigs
    from client_core.producer.requests.pending_metadata import PendingLookups
    from client_core.producer.requests.pending_offsets import PendingOffsets
    from client_core.producer.requests.topic_refreshes import TopicRefreshes
    from client_core.producer.results.ticket import Done, Ticket


_Call = TypeVar("_Call", bound=PendingCall)


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
        """Looks up topics. Raises what checked_topics raises."""
        topics = checked_topics(names)
        since_ms = self._clock.now_ms()
        return self._take(
            self._lookups,
            PendingLookup(done, since_ms, deadline_ms, Kind.TOPICS, topics, may_create, settle=settle),
        )

    def update(
        self, deadline_ms: int, done: Done, *, min_version: int | None, max_age_ms: int | None
    ) -> Ticket:
        since_ms = self._clock.now_ms()
        not_before_ms = None if max_age_ms is None else since_ms - max_age_ms
        return self._take(
            self._lookups,
            PendingLookup(
                done,
                since_ms,
                deadline_ms,
                Kind.UPDATE,
                min_version=min_version,
                not_before_ms=not_before_ms,
            ),
        )

    def listing(self, deadline_ms: int, done: Done) -> Ticket:
        now_ms = self._clock.now_ms()
        return self._take(self._lookups, PendingLookup(done, now_ms, deadline_ms, Kind.LISTING))

    def topic_configs(self, topic: str, deadline_ms: int, done: Done) -> Ticket:
        """Requests a topic's configs. Raises what check_topics raises."""
        check_topics((topic,))
        return self._take(self._configs, ConfigsWait(done, self._clock.now_ms(), deadline_ms, topic))

    def partition_offsets(self, topic: str, partition: int, deadline_ms: int, done: Done) -> Ticket:
        """Requests a partition's offsets from its leader. Raises what check_topics raises."""
        check_topics((topic,))
        wait = OffsetsWait(done, self._clock.now_ms(), deadline_ms, TopicPartition(topic, partition))
        return self._take(self._offsets, wait)

    def refresh(self, names: Iterable[str], deadline_ms: int, done: Done) -> Ticket:
        """Refreshes known topics outside the schedule (`topic_refreshes.py`).

        Raises what checked_topics raises.
        """
        refresh = TopicRefresh(done, self._clock.now_ms(), deadline_ms, checked_topics(names))
        return self._take(self._topic_refreshes, refresh)

    def _take(self, calls: PendingCalls[_Call], call: _Call) -> Ticket:
        self._io_thread.do(lambda now_ms: calls.take(call, now_ms))

        def cancel() -> None:
            call.is_cancelled = True
            self._io_thread.do(lambda _: calls.cancel(call))

        return CancelTicket(cancel)
