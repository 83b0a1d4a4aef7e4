"""Appends records to batches: the any-thread side of the accumulator.

Records go to the last batch of their partition while it has room, else to a new batch, which needs memory.
Keyless records go to the topic's sticky partition. It changes only when a batch is full, or when the
partition has received twice its share (ACC-15). A call's records are appended batch by batch, never one by
one.

Any thread. The call holds the topic's lock; inside it, it briefly takes the locks of the pool and of the
incomplete batches. RecordAccumulator has its `append_many`. Source: RecordAccumulator.append, appendNewBatch,
tryAppend, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from client_core.errors import ProducerClosedError
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.record.compression import Codec
from client_core.record.memory_records_builder import (
    NO_LIMIT,
    MemoryRecordsBuilder,
    estimate_size_in_bytes_upper_bound,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.cluster import Cluster
    from client_core.producer.accumulator.buffer_pool import BufferPool
    from client_core.producer.accumulator.incomplete_batches import IncompleteBatches
    from client_core.producer.accumulator.partitioner import BuiltInPartitioner
    from client_core.producer.accumulator.topic_queues import PartitionQueue, TopicQueues, WaitingQueues
    from client_core.producer.results.batch_outcome import RecordOwner
    from client_core.producer.results.producer_record import ProducerRecord
    from client_core.record.compression import Compression
    from client_core.record.compression_ratio import CompressionRatioEstimator


class AppendResult(NamedTuple):
    """What append_many did. Sender is woken if a batch is full or new (ACC-03)."""

    appended: int
    needed_bytes: int | None = None  # memory that the next record lacks; None if all were appended
    batch_is_full: bool = False
    new_batch_created: bool = False
    reserved_left: int = 0  # the unused part of the caller's reserved bytes, to use or to deallocate
    interrupt: BaseException | None = None  # for the caller to raise, once it has noted what was appended


@dataclass(slots=True)
class _Append:
    """The state of one append_many call."""

    records: Sequence[ProducerRecord]
    indices: Sequence[int]
    owner: RecordOwner
    cluster: Cluster
    now_ms: int
    wall_ms: int
    reserved_bytes: int
    was_parked: bool
    appended: int = 0
    batch_is_full: bool = False
    new_batch_created: bool = False

    def result(self, needed_bytes: int | None, interrupt: BaseException | None = None) -> AppendResult:
        return AppendResult(
            self.appended,
            needed_bytes,
            self.batch_is_full,
            self.new_batch_created,
            self.reserved_bytes,
            interrupt,
        )


class BatchAppender:
    """Appends records to the queues' last batches, and begins new ones."""

    def __init__(
        self,
        queues: WaitingQueues,
        incomplete: IncompleteBatches,
        pool: BufferPool,
        *,
        batch_bytes: int,
        submit_batch_bytes: int = 0,
        compression: Compression,
        ratios: CompressionRatioEstimator,
        spreads: bool = True,
        whole_requests: bool = False,
    ) -> None:
        """`spreads`: each batch of one call's keyless records goes to a partition without a queue, if it can.

        `submit_batch_bytes`: a call's batch may be so large if its records are, and the memory is free.
        `whole_requests`: no batch is ever too full for the next record of a call.
        """
        self._spreads = spreads
        self._whole_requests = whole_requests
        #: `closed`: only parked requests are appended; `ended`: nothing is.
        self.closed = False
        self.ended = False
        self._queues = queues
        self._incomplete = incomplete
        self._pool = pool
        self._batch_bytes = batch_bytes
        self._submit_batch_bytes = min(submit_batch_bytes, pool.total_bytes)
        self._compression = compression
        self._ratios = ratios

    def queues_of(self, topic: str) -> TopicQueues:
        """Returns a topic's queues: the same ones as long as the topic is held."""
        return self._queues.topic(topic)

    def append_many(
        self,
        topic: str,
        partition: int | None,
        records: Sequence[ProducerRecord],
        indices: Sequence[int],
        owner: RecordOwner,
        cluster: Cluster,
        now_ms: int,
        wall_ms: int,
        reserved_bytes: int = 0,
        *,
        was_parked: bool = False,
    ) -> AppendResult:
        """Appends the records at `indices`, in that order, as far as there is memory (ACC-01, ACC-02).

        Never waits. A partition of None is the sticky one, which may change between batches (ACC-15). If
        memory is lacking, the result has the bytes that the next record needs: get them from the pool and
        call again with the remaining indices and the bytes as `reserved_bytes`. `owner` gets the outcome of
        every appended record, once.

        Raises ProducerClosedError after close (ACC-04), with `was_parked` only after end;
        IllegalArgumentError for a record larger than the pool. It raises only if nothing was appended; then
        `reserved_bytes` still belong to the caller. Otherwise it returns early, without `needed_bytes`: the
        next call raises.
        """
        append = _Append(records, indices, owner, cluster, now_ms, wall_ms, reserved_bytes, was_parked)
        try:
            while True:
                queues = self._queues.topic(topic)
                with queues.lock:
                    if not queues.is_forgotten:  # forgotten since the look-up: take the new ones
                        return append.result(self._append(queues, partition, append))
        except BaseException as error:
            if append.reserved_bytes > reserved_bytes:
                self._pool.deallocate(append.reserved_bytes - reserved_bytes)
                append.reserved_bytes = reserved_bytes
            if not append.appended:
                raise
            if isinstance(error, Exception):
                return append.result(None)  # the next call begins with the failing record, and raises
            return append.result(None, error)

    def _append(self, queues: TopicQueues, partition: int | None, append: _Append) -> int | None:
        """Appends until done, or returns the bytes that the next record lacks. Under the lock."""
        sticky = queues.partitioner if partition is None else None
        while append.appended < len(append.indices):
            if self.closed and (self.ended or not append.was_parked):
                raise ProducerClosedError("Producer closed while send in progress")
            queue = self._sticky(queues, append) if partition is None else queues.partition(partition)
            if queue.batches and not queue.batches[-1].is_full:
                self._fill(append, queue, queue.batches[-1], sticky)
                continue
            needed_bytes = self._begin_batch(append, queue, sticky)
            if needed_bytes is not None:
                return needed_bytes
        return None

    def _sticky(self, queues: TopicQueues, append: _Append) -> PartitionQueue:
        partitioner = queues.partitioner
        partition = partitioner.existing_partition(append.cluster)
        queue = queues.partition(partition)
        if queue.all_full:
            # A due switch is made now, between batches.
            partitioner.update(0, append.cluster, enable_switch=True)
            if partitioner.partition != partition:
                queue = queues.partition(partitioner.existing_partition(append.cluster))
            if self._spreads and append.new_batch_created and queue.batches:
                # A request takes one batch per partition. Behind another batch, the call's next batch would
                # wait for that one's answer; on a partition without a queue it is in the same request.
                partitioner.move_on(append.cluster, lambda partition: not queues.partition(partition).batches)
                queue = queues.partition(partitioner.existing_partition(append.cluster))
        return queue

    def _fill(
        self,
        append: _Append,
        queue: PartitionQueue,
        batch: ProducerBatch,
        sticky: BuiltInPartitioner | None,
        counted_from: int | None = None,
        made_for_bytes: int = 0,
    ) -> None:
        """Appends what fits into the batch. `counted_from`: size that the partitioner has counted.

        `made_for_bytes`: the size of a batch that was made for several records of this call. They stay on its
        partition, though it then has more than twice its share.
        """
        if sticky is None:
            batch.keyless_only = False
        before = batch.estimated_size_bytes if counted_from is None else counted_from
        stop_at = (
            NO_LIMIT if sticky is None else max(before + sticky.bytes_before_forced_switch, made_for_bytes)
        )
        append.appended += batch.append_many(
            append.records,
            append.indices,
            append.appended,
            append.owner,
            wall_ms=append.wall_ms,
            stop_at_bytes=stop_at,
        )
        after = batch.estimated_size_bytes
        if append.appended < len(append.indices) and after < stop_at:
            batch.close_for_record_appends()  # it rejected the next record
        is_full = batch.is_full
        if sticky is not None:
            sticky.update(after - before, append.cluster, enable_switch=is_full)
        append.batch_is_full = append.batch_is_full or is_full or len(queue.batches) > 1

    def _begin_batch(
        self, append: _Append, queue: PartitionQueue, sticky: BuiltInPartitioner | None
    ) -> int | None:
        """Appends to a new batch, or returns the bytes that it lacks."""
        record = append.records[append.indices[append.appended]]
        upper_bound = estimate_size_in_bytes_upper_bound(record.key, record.value, record.headers)
        size_bytes = max(self._batch_bytes, upper_bound)
        # An estimate: as if the others were as large as the first. To add up all would cost each record.
        made_for_bytes = min(self._submit_batch_bytes, upper_bound * (len(append.indices) - append.appended))
        if made_for_bytes > size_bytes and self._pool.try_allocate(made_for_bytes):
            size_bytes = made_for_bytes
        else:
            made_for_bytes = 0
            if append.reserved_bytes >= size_bytes:
                append.reserved_bytes -= size_bytes
            elif not self._pool.try_allocate(size_bytes):
                return size_bytes
        batch: ProducerBatch | None = None
        try:
            builder = MemoryRecordsBuilder(
                NO_LIMIT if self._whole_requests else size_bytes,
                compression=self._compression,
                estimated_compression_ratio=1.0
                if self._compression.codec is Codec.NONE
                else self._ratios.estimation(queue.topic_partition.topic, self._compression.codec),
            )
            batch = ProducerBatch(
                queue.topic_partition,
                builder,
                append.now_ms,
                allocated_bytes=size_bytes,
                ratios=self._ratios,
            )
            batch.keyless_only = sticky is not None
            self._queues.insert(queue, len(queue.batches), batch)
            self._fill(append, queue, batch, sticky, counted_from=0, made_for_bytes=made_for_bytes)
            self._incomplete.add(batch)
            append.new_batch_created = True
        except BaseException:
            if batch is not None and batch.record_count:  # these were appended before a later one failed
                self._incomplete.add(batch)
                append.new_batch_created = True
            else:
                if batch is not None:
                    self._queues.remove(queue, batch)
                append.reserved_bytes += size_bytes  # append_many gives it back
            raise
        return None
