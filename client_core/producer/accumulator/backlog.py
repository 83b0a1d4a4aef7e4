"""Counts the records and requests that wait, by node and by topic.

The caller's thread counts, on demand, from the accumulator and the parked requests. The I/O thread is neither
waited for nor delayed. Only batches are walked, never records. The count may include batches that end
meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from client_core.cluster import TopicPartition
    from client_core.metadata.topic_table import TopicTable
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.results.ticket import Phase


@dataclass(frozen=True, slots=True)
class BatchCount:
    """Some batches, and the moment (now_ms) at which the oldest was created; None where there are none."""

    batches: int = 0
    records: int = 0
    partitions: int = 0
    oldest_created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicWait:
    """Requests that can't be appended yet, of one topic.

    `phase` is METADATA or BUFFER. `lacks_partition`: the topic is known, the partition that they name is not.
    """

    topic: str
    phase: Phase
    requests: int
    oldest_submitted_ms: int
    lacks_partition: bool = False


@dataclass(frozen=True, slots=True)
class Backlog:
    """All that waits. `queued` are batches by the leader that they wait for, None where there is none.

    `in_flight` are batches by the node that they were sent to, `by_node` are both. `leaderless` are the
    partitions of `queued[None]`.
    """

    queued: Mapping[int | None, BatchCount] = field(default_factory=dict)
    in_flight: Mapping[int, BatchCount] = field(default_factory=dict)
    by_node: Mapping[int | None, BatchCount] = field(default_factory=dict)
    leaderless: tuple[TopicPartition, ...] = ()
    topic_waits: tuple[TopicWait, ...] = ()


class _Counting:
    """One BatchCount while it is added up."""

    __slots__ = ("batches", "oldest_created_ms", "partitions", "records")

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.partitions: set[TopicPartition] = set()
        self.oldest_created_ms: int | None = None

    def add(self, batch: ProducerBatch) -> None:
        self.batches += 1
        self.records += batch.record_count
        self.partitions.add(batch.topic_partition)
        if self.oldest_created_ms is None or batch.created_ms < self.oldest_created_ms:
            self.oldest_created_ms = batch.created_ms

    def total(self) -> BatchCount:
        return BatchCount(self.batches, self.records, len(self.partitions), self.oldest_created_ms)


def count_backlog(
    batches: Iterable[ProducerBatch],
    topics: Mapping[str, TopicTable],
    node_ids: Mapping[int, object],
    topic_waits: tuple[TopicWait, ...],
) -> Backlog:
    """Returns the batches by node. A leader that is not in `node_ids` can't be reached: it counts as none."""
    queued: defaultdict[int | None, _Counting] = defaultdict(_Counting)
    in_flight: defaultdict[int, _Counting] = defaultdict(_Counting)
    by_node: defaultdict[int | None, _Counting] = defaultdict(_Counting)
    for batch in batches:
        node_id = batch.sent_to
        if node_id is not None:
            in_flight[node_id].add(batch)
        else:
            table = topics.get(batch.topic_partition.topic)
            leader_id = None if table is None else table.leader_id(batch.topic_partition.partition)
            node_id = leader_id if leader_id in node_ids else None
            queued[node_id].add(batch)
        by_node[node_id].add(batch)
    return Backlog(
        queued={node_id: counting.total() for node_id, counting in queued.items()},
        in_flight={node_id: counting.total() for node_id, counting in in_flight.items()},
        by_node={node_id: counting.total() for node_id, counting in by_node.items()},
        leaderless=tuple(sorted(queued[None].partitions)) if None in queued else (),
        topic_waits=topic_waits,
    )
