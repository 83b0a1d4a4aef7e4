"""Compares the client's snapshots, and yields the events for what changed since the last report.

A partition is reported when it is first seen, and whenever it differs from what was reported. Unchanged
tables are the same objects, so an unchanged snapshot costs one comparison of identities per topic. A snapshot
of another cluster is compared with nothing: the topics of the first one are forgotten. The iterator yields
None to pause, at least once per PIECE. Topics that ended, or were forgotten with another cluster, are not
counted: they yield one event each, without a pause. Event log's thread.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final

from client_core import MetadataCache, TopicTable
from service.events.event_v1 import Event, PartitionEvent, TopicChange, TopicEvent, time_text
from service.events.inbox import SnapshotNotice
from service.lookup.answers import topic_id_text

#: How many partitions are compared or reported, or unchanged topics skipped, between two pauses. They take
#: about 2 ms.
PIECE: Final = 250

#: The reason of changes that came with a produce response (KIP-951).
PRODUCE_ANSWER: Final = "produce_answer"


class ReportedMetadata:
    """The last reported snapshot. One comparison at a time: the next begins after its end."""

    def __init__(self) -> None:
        #: The snapshot that was reported last.
        self.cache = MetadataCache.empty()

    def report(
        self, notice: SnapshotNotice, cache: MetadataCache, unreported: Container[str] = ()
    ) -> Iterator[Event | None]:
        """Yields the events from the last reported snapshot to this one, and None for a pause.

        `unreported`: topics with lost lines; all of their partitions are reported again.
        """
        before, self.cache = self.cache, cache
        reporting = _Reporting(notice, cache)
        if None not in (before.cluster_id, cache.cluster_id) and before.cluster_id != cache.cluster_id:
            for table in before.topics.values():
                yield reporting.of_topic("forgotten", table, ended=True, cluster_id=before.cluster_id)
            before = MetadataCache.empty()
        for name, table in cache.topics.items():
            earlier = before.topics.get(name)
            if earlier is not table or name in unreported:
                yield from self._topic(reporting, None if name in unreported else earlier, earlier, table)
            elif reporting.is_pause_due(1):
                yield None
        for name, table in before.topics.items():
            if name not in cache.topics:
                yield reporting.of_topic(reporting.how_it_ended(name), table, ended=True)
            elif reporting.is_pause_due(1):
                yield None

    def _topic(
        self,
        reporting: _Reporting,
        compared_to: TopicTable | None,
        earlier: TopicTable | None,
        table: TopicTable,
    ) -> Iterator[Event | None]:
        yield from reporting.of_change(earlier, table)
        if compared_to is not None and compared_to.topic_id != table.topic_id:
            compared_to = None  # another topic, or brokers that send ids only now: report all of it
        numbers, topic_id = table.numbers, topic_id_text(table.topic_id)
        for start in range(0, len(numbers), PIECE):
            piece: Sequence[int] = numbers[start : start + PIECE]
            for number in piece if compared_to is None else table.differing(compared_to, piece):
                event = reporting.of_partition(compared_to, table, number, topic_id)
                if event is not None:
                    yield event
            if reporting.is_pause_due(len(piece)):
                yield None


class _Reporting:
    """The common fields of the events of one snapshot."""

    def __init__(self, notice: SnapshotNotice, cache: MetadataCache) -> None:
        refreshed = notice.refreshed
        self._cache = cache
        self._gone = notice.gone
        self._observed_at = time_text(_observed_ms(notice, cache))
        self._work = 0
        self._reason = PRODUCE_ANSWER if refreshed is None else refreshed.reason
        self._broker = None if refreshed is None else refreshed.node_id

    def is_pause_due(self, work: int) -> bool:
        """Adds to the work since the last pause; returns whether that work has reached PIECE."""
        self._work += work
        if self._work < PIECE:
            return False
        self._work = 0
        return True

    def of_change(self, earlier: TopicTable | None, table: TopicTable) -> Iterator[TopicEvent]:
        if earlier is None:
            yield self.of_topic("appeared", table)
            return
        was, now = earlier.topic_id, table.topic_id
        if was != now and was is not None and now is not None:
            yield self.of_topic("recreated", earlier, ended=True)
            yield self.of_topic("appeared", table)
        elif earlier.numbers != table.numbers:
            grew = set(earlier.numbers) <= set(table.numbers)
            yield self.of_topic("grew" if grew else "shrank", table)

    def how_it_ended(self, name: str) -> TopicChange:
        """Returns gone if brokers say that the topic does not exist, otherwise forgotten."""
        is_hidden = name in self._cache.cluster.unauthorized_topics
        return "gone" if name in self._gone and not is_hidden else "forgotten"

    def of_topic(
        self, change: TopicChange, table: TopicTable, *, ended: bool = False, cluster_id: str | None = None
    ) -> TopicEvent:
        return TopicEvent(
            cluster_id=self._cache.cluster_id if cluster_id is None else cluster_id,
            observed_at=self._observed_at,
            change=change,
            topic=table.name,
            topic_id=topic_id_text(table.topic_id),
            partitions=None if ended else table.partition_count,
            metadata_version=self._cache.update_version,
        )

    def of_partition(
        self, earlier: TopicTable | None, table: TopicTable, number: int, topic_id: str | None
    ) -> PartitionEvent | None:
        """Returns the event, or None if no reported field differs.

        The partition's error, for example, is not a reported field.
        """
        found = table.metadata(number)
        was = None if earlier is None else earlier.metadata(number)
        if found is None or (was is not None and was[1:] == found[1:]):
            return None
        return PartitionEvent(
            cluster_id=self._cache.cluster_id,
            observed_at=self._observed_at,
            topic=table.name,
            topic_id=topic_id,
            partition=number,
            leader=found.leader_id,
            leader_epoch=found.leader_epoch,
            isr=found.in_sync_replica_ids,
            replicas=found.replica_ids,
            offline=found.offline_replica_ids,
            metadata_version=self._cache.update_version,
            broker=self._broker,
            reason=self._reason,
        )


def _observed_ms(notice: SnapshotNotice, cache: MetadataCache) -> int:
    """Returns the calendar time of the response that made the snapshot, or of the notice right after it."""
    refreshed, time = notice.refreshed, cache.refreshed
    if refreshed is None or refreshed.is_partial or time is None or time.wall_ms is None:
        return notice.wall_ms
    return time.wall_ms
