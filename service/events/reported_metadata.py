"""What of the client's snapshots was told, and the events that tell how the next one differs.

Told partition by partition: each when it is first seen, and whenever anything of it is other than it was
told. Tables that did not change are the same objects, so a snapshot in which nothing happened costs a
comparison of identities per topic. A snapshot of another cluster is compared with nothing: the topics of the
first one are forgotten. The iterator pauses by yielding None, once per PIECE at least. Event log's thread.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final

from client_core import MetadataCache, TopicTable
from service.events.event_v1 import Event, PartitionEvent, TopicChange, TopicEvent, time_text
from service.events.inbox import SnapshotNotice
from service.lookup.answers import topic_id_text

#: Partitions that are compared or told, or topics that are passed over, between two pauses: about 2 ms.
PIECE: Final = 250

#: The reason of what a produce answer said (KIP-951).
PRODUCE_ANSWER: Final = "produce_answer"


class ReportedMetadata:
    """What was told. One comparison at a time; the next begins when it has ended."""

    def __init__(self) -> None:
        #: The snapshot that was told last.
        self.cache = MetadataCache.empty()

    def report(
        self, notice: SnapshotNotice, cache: MetadataCache, unreported: Container[str] = ()
    ) -> Iterator[Event | None]:
        """The events that lead from what was told to a snapshot, and None wherever there is time for a pause.

        `untold` are topics of which lines were lost: all of their partitions are told again.
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
            compared_to = None  # another topic, or brokers that tell ids now: all of it is news
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
    """What the events of one snapshot have in common."""

    def __init__(self, notice: SnapshotNotice, cache: MetadataCache) -> None:
        refreshed = notice.refreshed
        self._cache = cache
        self._gone = notice.gone
        self._observed_at = time_text(_observed_ms(notice, cache))
        self._work = 0
        self._reason = PRODUCE_ANSWER if refreshed is None else refreshed.reason
        self._broker = None if refreshed is None else refreshed.node_id

    def is_pause_due(self, work: int) -> bool:
        """Notes so much work; whether there was a PIECE of it since the last pause."""
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
        """What brokers deny is gone; what they no longer show is merely followed no longer."""
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
        """None where it differs in nothing that is told, such as its error."""
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
    """When the response came that made the snapshot, by the calendar; the notice was taken right after it."""
    refreshed, time = notice.refreshed, cache.refreshed
    if refreshed is None or refreshed.is_partial or time is None or time.wall_ms is None:
        return notice.wall_ms
    return time.wall_ms
