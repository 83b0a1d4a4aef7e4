"""Counts the records and requests that wait, by node and by topic.

The caller's thread counts, on demand, from the accumulator and the parked requests. The I/O thread is neither
waited for nor delayed. Only batches are walked, never records. The count may include batches that end
meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from client_core.cluster import TopicPartition
    from client_core.errors import Cause
    from client_core.metadata.topic_table import TopicTable
    from client_core.producer.accumulator.causes import Causes
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.results.ticket import Phase

#: A node's id; None where no leader is known.
_NodeId = TypeVar("_NodeId", int, int | None)


@dataclass(frozen=True, slots=True)
class BatchCount:
    """Some batches, and the moment (now_ms) at which the oldest was created; None without batches."""

    batches: int = 0
    records: int = 0
    partitions: int = 0
    oldest_created_ms: int | None = None
    #: Why the oldest is not acknowledged, if something has prevented it.
    cause: Cause | None = None


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
    """All that waits. `queued` are batches by the leader that they wait for; their key is None without a
    leader.

    `in_flight` are batches by the node that they were sent to, `by_node` are both. `leaderless` are the
    partitions of `queued[None]`.
    """

    queued: Mapping[int | None, BatchCount] = field(default_factory=dict)
    in_flight: Mapping[int, BatchCount] = field(default_factory=dict)
    by_node: Mapping[int | None, BatchCount] = field(default_factory=dict)
    leaderless: tuple[TopicPartition, ...] = ()
    topic_waits: tuple[TopicWait, ...] = ()


class _Counting:
    """Adds up one BatchCount."""

    __slots__ = ("batches", "oldest", "partitions", "records")

    def __init__(self) -> None:
        self.batches = 0
        self.records = 0
        self.partitions: set[TopicPartition] = set()
        self.oldest: ProducerBatch | None = None

    def add(self, batch: ProducerBatch) -> None:
        self.batches += 1
        self.records += batch.record_count
        self.partitions.add(batch.topic_partition)
        if self.oldest is None or batch.created_ms < self.oldest.created_ms:
            self.oldest = batch


def _totals(
    counted: Mapping[_NodeId, _Counting], causes: Causes | None, now_ms: int
) -> dict[_NodeId, BatchCount]:
    oldest = [counting.oldest for counting in counted.values() if counting.oldest is not None]
    found = [None] * len(oldest) if causes is None else causes.of_batches(oldest, now_ms)
    return {
        node_id: BatchCount(
            counting.batches, counting.records, len(counting.partitions), batch.created_ms, cause
        )
        for (node_id, counting), batch, cause in zip(counted.items(), oldest, found, strict=True)
    }


def count_backlog(
    batches: Iterable[ProducerBatch],
    topics: Mapping[str, TopicTable],
    node_ids: Mapping[int, object],
    topic_waits: tuple[TopicWait, ...],
    causes: Causes | None = None,
    now_ms: int = 0,
) -> Backlog:
    """Returns the batches by node. A leader outside `node_ids` can't be reached, so it counts as none.

    With `causes`, each count has the cause of its oldest batch, as of `now_ms`.
    """
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
        queued=_totals(queued, causes, now_ms),
        in_flight=_totals(in_flight, causes, now_ms),
        by_node=_totals(by_node, causes, now_ms),
        leaderless=tuple(sorted(queued[None].partitions)) if None in queued else (),
        topic_waits=topic_waits,
    )
