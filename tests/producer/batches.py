"""Shared by the tests of batches and of the accumulator: owners that keep outcomes, records, leaders."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from client_core.backoff import ExponentialBackoff
from client_core.cluster import Node, TopicPartition
from client_core.producer.accumulator.buffer_pool import BufferPool
from client_core.producer.accumulator.producer_batch import ProducerIdAndEpoch
from client_core.producer.accumulator.record_accumulator import AccumulatorConfig, RecordAccumulator
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.record.compression import NO_COMPRESSION, Codec
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_batch import HEADER_SIZE, decode_record_batch, increment_sequence
from tests.golden.adapters_producer import cluster_of
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from client_core.errors import KafkaError
    from client_core.producer.accumulator.batch_appender import AppendResult
    from client_core.producer.accumulator.batch_drain import ReadyCheckResult, Sequences
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.results.batch_outcome import BatchOutcome
    from client_core.record.compression import Compression

TOPIC: Final = "orders"
WALL_MS: Final = 1_700_000_000_000


def tp(partition: int, topic: str = TOPIC) -> TopicPartition:
    return TopicPartition(topic, partition)


def node(node_id: int) -> Node:
    return Node(node_id, "localhost", 9092 + node_id)


def record(
    value: bytes | None = b"value", key: bytes | None = None, *, timestamp_ms: int | None = None
) -> ProducerRecord:
    return ProducerRecord(TOPIC, value, key, timestamp_ms=timestamp_ms)


def size_of(*records: ProducerRecord) -> int:
    """How large a batch of just these is."""
    builder = MemoryRecordsBuilder(2**31)
    builder.append_many(records, range(len(records)), 0, WALL_MS)
    return builder.estimated_size_bytes


def body_size_of(a_record: ProducerRecord) -> int:
    """What a record adds to a batch, as long as its offset has one byte."""
    return size_of(a_record) - HEADER_SIZE


def values_in(batch: ProducerBatch) -> list[bytes | None]:
    return [r.value for r in decode_record_batch(batch.records()).records()]


class BrokenCodec:
    """A codec that can't pack: a batch with it can't be made into bytes."""

    codec: Final = Codec.GZIP

    def compress(self, records: bytes, /) -> bytes:
        raise MemoryError("no room to pack in")

    def decompress(self, packed: bytes, /, limit_bytes: int = 0) -> bytes:
        return packed


@dataclass(eq=False)
class Owner:
    """Keeps the outcome of each of its records, by index, and how often it was reported."""

    name: str = "owner"
    receipts: dict[int, RecordMetadata] = field(default_factory=dict)
    errors: dict[int, KafkaError] = field(default_factory=dict)
    outcomes: list[BatchOutcome] = field(default_factory=list)
    times_reported: dict[int, int] = field(default_factory=dict)
    was_given_up: bool = False

    def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
        self.outcomes.append(outcome)
        for position, index in enumerate(indices, start=first_in_batch):
            self.times_reported[index] = self.times_reported.get(index, 0) + 1
            error = outcome.error_for(position)
            if error is None:
                self.receipts[index] = outcome.metadata_for(position)
            else:
                self.errors[index] = error


@dataclass
class Leaders:
    """A snapshot of metadata with one topic: who leads which partition, since which epoch."""

    by_partition: Sequence[int | None]
    epochs: Mapping[int, int] = field(default_factory=dict)
    topic: str = TOPIC

    def __post_init__(self) -> None:
        self.cluster = cluster_of(self.by_partition, self.topic)

    def leader_for(self, topic_partition: TopicPartition, /) -> Node | None:
        return self.cluster.leader_for(topic_partition)

    def leader_and_epoch_for(self, topic_partition: TopicPartition, /) -> tuple[Node | None, int | None]:
        return self.cluster.leader_for(topic_partition), self.epochs.get(topic_partition.partition)


class CountingSequences:
    """The part of TransactionManager that drain uses: sequences that are assigned and completed."""

    def __init__(self) -> None:
        self.producer_id_and_epoch: ProducerIdAndEpoch | None = ProducerIdAndEpoch(7, 0)
        self.next: Counter[TopicPartition] = Counter()
        self.in_flight: dict[TopicPartition, list[ProducerBatch]] = {}
        self.stale: set[TopicPartition] = set()
        self.unresolved: set[TopicPartition] = set()
        self.left: list[TopicPartition] = []

    def has_in_flight_batches(self, topic_partition: TopicPartition, /) -> bool:
        return bool(self.in_flight.get(topic_partition))

    def must_wait(self, batch: ProducerBatch, /) -> bool:
        topic_partition = batch.topic_partition
        in_flight = self.in_flight.get(topic_partition, [])
        if self.producer_id_and_epoch is None:
            return True
        if batch.base_sequence is None:
            return (bool(in_flight) and topic_partition in self.stale) or topic_partition in self.unresolved
        return bool(in_flight) and batch.base_sequence != self.first_in_flight(topic_partition)

    def first_in_flight(self, topic_partition: TopicPartition) -> int | None:
        """The lowest sequence of the batches in flight."""
        batches = self.in_flight.get(topic_partition, [])
        return min((b.base_sequence for b in batches if b.base_sequence is not None), default=None)

    def assign_sequence(self, batch: ProducerBatch, /) -> None:
        assert self.producer_id_and_epoch is not None
        self.stale.discard(batch.topic_partition)
        sequence = self.next[batch.topic_partition]
        batch.set_producer_state(*self.producer_id_and_epoch, sequence)
        self.next[batch.topic_partition] = increment_sequence(sequence, batch.record_count)
        self.add_in_flight_batch(batch)

    def add_in_flight_batch(self, batch: ProducerBatch, /) -> None:
        self.in_flight.setdefault(batch.topic_partition, []).append(batch)

    def leave(self, partitions: Iterable[TopicPartition], /) -> None:
        self.left += partitions

    def follow(self, topic_ids: Mapping[str, UUID], /) -> None:
        """All topics stay as they are."""

    def finished(self, batch: ProducerBatch) -> None:
        batches = self.in_flight.get(batch.topic_partition, [])
        if batch in batches:
            batches.remove(batch)


class Bench:
    """An accumulator with its pool, clock and random numbers."""

    def __init__(
        self,
        *,
        batch_bytes: int = 1024,
        submit_batch_bytes: int = 0,
        linger_ms: int = 0,
        total_bytes: int = 2**20,
        delivery_timeout_ms: int = 120_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1000,
        adaptive: bool = False,
        availability_timeout_ms: int = 0,
        leaders: Sequence[int | None] = (0, 0, 1),
        sequences: Sequences | None = None,
        random: Random | None = None,
        compression: Compression = NO_COMPRESSION,
        expires_behind_younger: bool = True,
        lost_leader_probe_interval_ms: int = 0,
    ) -> None:
        self.clock = MockClock(now_ms=5_000)
        self.leaders = Leaders(leaders)
        self.pool = BufferPool(total_bytes, batch_bytes, self.clock)
        self.random = random or Random(11)
        self.accumulator = RecordAccumulator(
            AccumulatorConfig(
                batch_bytes=batch_bytes,
                submit_batch_bytes=submit_batch_bytes,
                linger_ms=linger_ms,
                delivery_timeout_ms=delivery_timeout_ms,
                compression=compression,
                adaptive_partitioning=adaptive,
                partition_availability_timeout_ms=availability_timeout_ms,
                expires_behind_younger=expires_behind_younger,
                lost_leader_probe_interval_ms=lost_leader_probe_interval_ms,
            ),
            self.pool,
            ExponentialBackoff(retry_backoff_ms, retry_backoff_max_ms, self.random),
            self.random,
            sequences,
        )

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def append(
        self,
        records: Sequence[ProducerRecord],
        partition: int | None = 0,
        owner: Owner | None = None,
        indices: Sequence[int] | None = None,
        reserved_bytes: int = 0,
        topic: str = TOPIC,
    ) -> AppendResult:
        return self.accumulator.append_many(
            topic,
            partition,
            records,
            range(len(records)) if indices is None else indices,
            owner or Owner(),
            self.leaders.cluster,
            self.now_ms,
            self.clock.wall_ms(),
            reserved_bytes,
        )

    def ready(self) -> ReadyCheckResult:
        return self.accumulator.ready(self.leaders, self.now_ms)

    @property
    def ready_ids(self) -> set[int]:
        return {ready_node.id for ready_node in self.ready().ready_nodes}

    def drain(self, *node_ids: int, max_bytes: int = 2**31) -> list[ProducerBatch]:
        """One drain of these nodes, of all of them if none is named."""
        nodes = [node(node_id) for node_id in node_ids] or list(self.leaders.cluster.nodes)
        drained = self.accumulator.drain(self.leaders, nodes, max_bytes, self.now_ms)
        return [batch for batches in drained.values() for batch in batches]

    def finish(self, batch: ProducerBatch, base_offset: int | None = 0) -> None:
        batch.complete(base_offset, None)
        self.accumulator.complete_and_deallocate_batch(batch)

    def drain_and_finish_all(self) -> None:
        while self.accumulator.has_undrained:
            for batch in self.drain():
                self.finish(batch)


RECORD: Final = record(b"value", b"key")
#: Two of these never fit into the memory of one: that has some room for what the estimate of a size allows
#: for.
LARGER: Final = record(bytes(100))


def numbered(count: int, start: int = 0) -> list[ProducerRecord]:
    """Records with different values, all of one size."""
    return [record(b"%05d" % n) for n in range(start, start + count)]


def queued(bench: Bench, partition: int) -> list[int]:
    """The number of records in each of a partition's batches."""
    return [batch.record_count for batch in bench.accumulator.batches_of(tp(partition))]


def has_incomplete(bench: Bench) -> bool:
    return bench.accumulator.has_incomplete


def has_undrained(bench: Bench) -> bool:
    return bench.accumulator.has_undrained
