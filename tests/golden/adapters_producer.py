"""Between the golden files of the producer and `client_core`: names and notations only.

Java's clock counts from `start_now`; null is -1 in the traces; TracedAccumulator does what one step of the
accumulator's trace says and answers what Java's step answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Any, Final

from client_core.backoff import ExponentialBackoff
from client_core.clock import FOREVER_MS
from client_core.cluster import Cluster, Node, PartitionInfo, TopicPartition
from client_core.errors import BufferExhaustedError
from client_core.producer.accumulator.batch_drain import DrainOrder
from client_core.producer.accumulator.buffer_pool import BufferPool
from client_core.producer.accumulator.record_accumulator import AccumulatorConfig, RecordAccumulator
from client_core.producer.results.producer_record import ProducerRecord
from client_core.record.codecs import compression_of
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.results.batch_outcome import BatchOutcome
    from client_core.record.record_batch import RecordHeaders

_TOPIC: Final = "t"


# -- record batches ------------------------------------------------------------------------------------------


def bytes_or_none(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def value_of(record: dict[str, Any]) -> bytes | None:
    if "value_repeat" in record:
        repeated, times = record["value_repeat"]
        return bytes.fromhex(repeated) * int(times)
    return bytes_or_none(record["value"])


def headers_of(record: dict[str, Any]) -> RecordHeaders:
    return tuple((name, bytes_or_none(value)) for name, value in record["headers"])


def records_of(case: dict[str, Any]) -> list[ProducerRecord]:
    return [
        ProducerRecord(
            _TOPIC,
            value_of(record),
            bytes_or_none(record["key"]),
            timestamp_ms=record["timestamp"],
            headers=headers_of(record),
        )
        for record in case["records"]
    ]


def builder_for(case: dict[str, Any]) -> MemoryRecordsBuilder:
    """A builder that writes the batch's header as the case has it."""
    epoch = case["partition_leader_epoch"]
    builder = MemoryRecordsBuilder(
        FOREVER_MS,
        compression=compression_of(case["compression"]),
        base_offset=case["base_offset"],
        partition_leader_epoch=None if epoch < 0 else epoch,
        is_transactional=case["is_transactional"],
    )
    if case["producer_id"] >= 0:
        builder.set_producer_state(case["producer_id"], case["producer_epoch"], case["base_sequence"])
    return builder


# -- partitioners --------------------------------------------------------------------------------------------


class GivenRandom(Random):
    """Returns the number that it was given."""

    number = 0

    def getrandbits(self, bits: int, /) -> int:
        return self.number


@dataclass(frozen=True)
class Leaders:
    """A topic's partitions by who leads them; None for no leader."""

    by_partition: tuple[int | None, ...]

    @property
    def partition_count(self) -> int:
        return len(self.by_partition)

    @property
    def numbers(self) -> Sequence[int]:
        return range(len(self.by_partition))

    def leader_id(self, partition: int) -> int | None:
        return self.by_partition[partition]

    def partition(self, partition: int, nodes: Mapping[int, Node]) -> PartitionInfo | None:
        raise NotImplementedError("a partitioner does not ask for it")


def cluster_of(leaders: Sequence[int | None], topic: str = _TOPIC) -> Cluster:
    """A cluster with one topic, and a broker for each leader that is named."""
    ids = {leader for leader in leaders if leader is not None}
    nodes = {node_id: Node(node_id, "localhost", 9092 + node_id) for node_id in ids}
    return Cluster("cluster", nodes, {topic: Leaders(tuple(leaders))})


# -- the accumulator's trace ---------------------------------------------------------------------------------


class _Nobody:
    was_given_up = False

    def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
        """The trace has no results for callers."""


@dataclass
class _Snapshot:
    """The trace's metadata: who leads which partition of `t`, and since which epoch."""

    leaders: dict[int, int | None]
    epochs: dict[int, int]

    def __post_init__(self) -> None:
        self.cluster = cluster_of([self.leaders[p] for p in sorted(self.leaders)])

    def leader_for(self, topic_partition: TopicPartition, /) -> Node | None:
        return self.cluster.leader_for(topic_partition)

    def leader_and_epoch_for(self, topic_partition: TopicPartition, /) -> tuple[Node | None, int | None]:
        return self.cluster.leader_for(topic_partition), self.epochs[topic_partition.partition]

    def with_leader(self, partition: int, leader: int | None, epoch: int) -> _Snapshot:
        return _Snapshot({**self.leaders, partition: leader}, {**self.epochs, partition: epoch})


def _or_minus_one(time_ms: int) -> int:
    return -1 if time_ms == FOREVER_MS else time_ms


class TracedAccumulator:
    """One trace's accumulator, in Java's words."""

    def __init__(self, case: dict[str, Any]) -> None:
        self._now_ms: int = case["start_now"]
        self._pool = BufferPool(case["total_memory"], case["batch_size"], MockClock())
        random = Random(0)
        self._accumulator = RecordAccumulator(
            AccumulatorConfig(
                batch_bytes=case["batch_size"],
                linger_ms=case["linger_ms"],
                delivery_timeout_ms=case["delivery_timeout_ms"],
                adaptive_partitioning=False,
                expires_behind_younger=False,
            ),
            self._pool,
            ExponentialBackoff(case["retry_backoff_ms"], case["retry_backoff_max_ms"], random),
            random,
            drain_order=DrainOrder(self._rank),
        )
        self._take_drain_order(case)
        rows = case["topic_t_partition_leader_epoch"]
        self._metadata = _Snapshot({p: leader for p, leader, _ in rows}, {p: epoch for p, _, epoch in rows})
        self._batches: dict[str, ProducerBatch] = {}
        # Java counts every partition of the cluster when it rotates, ours are those of topics seen before.
        self._append(0, [])

    def do(self, step: dict[str, Any]) -> dict[str, Any]:
        """Does the step's operation; what it answered and what can be seen afterwards."""
        answer = getattr(self, f"_do_{step['op']}")(step)
        return {
            **answer,
            "now": self._now_ms,
            "buffer_available_bytes": self._pool.available_bytes,
            "has_undrained": self._accumulator.has_undrained,
            "has_incomplete": self._accumulator.has_incomplete,
        }

    def _append(self, partition: int, records: list[ProducerRecord]) -> tuple[bool, bool, int | None]:
        result = self._accumulator.append_many(
            _TOPIC,
            partition,
            records,
            range(len(records)),
            _Nobody(),
            self._metadata.cluster,
            self._now_ms,
            self._now_ms,
        )
        return result.batch_is_full, result.new_batch_created, result.needed_bytes

    def _do_append(self, step: dict[str, Any]) -> dict[str, Any]:
        key, value = (None if step[n] < 0 else bytes(step[n]) for n in ("key_len", "value_len"))
        record = ProducerRecord(_TOPIC, value, key, timestamp_ms=step["timestamp"])
        place = TopicPartition(_TOPIC, step["partition"])
        sizes_before = [batch.estimated_size_bytes for batch in self._accumulator.batches_of(place)]
        full, created, needed_bytes = self._append(step["partition"], [record])
        if needed_bytes is not None:
            return {"buffer_exhausted_message": self._exhausted(needed_bytes, step["max_time_to_block_ms"])}
        sizes = [batch.estimated_size_bytes for batch in self._accumulator.batches_of(place)]
        return {
            "batch_is_full": full,
            "new_batch_created": created,
            "appended_bytes": sizes[-1] - (0 if created else sizes_before[-1]),
        }

    def _exhausted(self, needed_bytes: int, max_block_ms: int) -> str:
        try:
            self._pool.allocate(needed_bytes, max_block_ms)
        except BufferExhaustedError as error:
            return error.message
        raise AssertionError("there is memory after all")

    def _do_advance_time(self, step: dict[str, Any]) -> dict[str, Any]:
        self._now_ms += step["ms"]
        return {}

    def _do_ready(self, step: dict[str, Any]) -> dict[str, Any]:
        ready = self._accumulator.ready(self._metadata, self._now_ms)
        return {
            "next_ready_check_delay_ms": _or_minus_one(ready.next_ready_check_delay_ms),
            "ready_nodes": sorted(node.id for node in ready.ready_nodes),
            "unknown_leader_topics": sorted(ready.unknown_leader_topics),
        }

    def _do_drain_nodes_0_and_1(self, step: dict[str, Any]) -> dict[str, Any]:
        nodes = [Node(node_id, "localhost", 9092 + node_id) for node_id in (0, 1)]
        drained = self._accumulator.drain(self._metadata, nodes, step["max_size"], self._now_ms)
        rows = []
        for node in nodes:
            for batch in drained[node.id]:
                name = self._name_of(batch)
                size = len(batch.records())
                partition = batch.topic_partition.partition
                rows.append([node.id, name, partition, batch.record_count, size, batch.attempts])
        return {"drained_node_batch_partition_records_bytes_attempts": rows}

    def _name_of(self, batch: ProducerBatch) -> str:
        for name, known in self._batches.items():
            if known is batch:
                return name
        name = f"b{len(self._batches)}"
        self._batches[name] = batch
        return name

    def _do_mute(self, step: dict[str, Any]) -> dict[str, Any]:
        self._accumulator.mute_partition(TopicPartition(_TOPIC, step["partition"]))
        return {}

    def _do_unmute(self, step: dict[str, Any]) -> dict[str, Any]:
        self._accumulator.unmute_partition(TopicPartition(_TOPIC, step["partition"]))
        return {}

    def _do_complete(self, step: dict[str, Any]) -> dict[str, Any]:
        batch = self._batches[step["batch"]]
        batch.complete(0, None)
        self._accumulator.complete_and_deallocate_batch(batch)
        return {}

    def _do_reenqueue(self, step: dict[str, Any]) -> dict[str, Any]:
        batch = self._batches[step["batch"]]
        self._accumulator.reenqueue(batch, self._now_ms)
        return {"attempts_after": batch.attempts}

    def _take_drain_order(self, said: dict[str, Any]) -> None:
        """Java's partitions of a node are in the order of its hash map, which only the recording knows."""
        orders = said["partitions_for_node_order"].values()
        self._ranks = {partition: rank for rank, partition in enumerate(chain.from_iterable(orders))}

    def _rank(self, partition: int) -> int:
        return self._ranks.get(partition, len(self._ranks))

    def _do_leader_change(self, step: dict[str, Any]) -> dict[str, Any]:
        self._take_drain_order(step)
        self._metadata = self._metadata.with_leader(step["partition"], step["leader"], step["epoch"])
        return {}

    def _do_expired_batches(self, step: dict[str, Any]) -> dict[str, Any]:
        self._accumulator.next_batch_expiry_ms = FOREVER_MS
        expired = self._accumulator.expired_batches(self._now_ms)
        # Java walks the partitions by number, ours are walked as they began to wait. The sort is stable.
        expired.sort(key=lambda batch: batch.topic_partition.partition)
        for batch in expired:
            batch.complete_exceptionally(BufferExhaustedError("expired"))
            self._accumulator.complete_and_deallocate_batch(batch)
        return {
            "next_expiry_time_ms": _or_minus_one(self._accumulator.next_batch_expiry_ms),
            "expired_partition_records": [[b.topic_partition.partition, b.record_count] for b in expired],
        }
