"""Holds records until they are sent: many threads append, one drains.

Records of one partition gather in batches. `ready` returns the nodes to send to, `drain` takes a request's
worth of batches for each. Failed batches return by `reenqueue` or `split_and_reenqueue`. Sending, and reading
the answers, is Sender's.

Any thread may call `append_many`, `cancel`, `begin_flush`, `close` and the plain reads; the rest, and ending
a batch, is the I/O thread's. Lock order: a topic's lock (queues, partitioner), then the pool's or the
incomplete batches'. No lock is held while owners are notified, memory is freed, or bytes are encoded. Only
partitions with batches are walked. Source: RecordAccumulator, Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS
from client_core.errors import IllegalStateError, KafkaError
from client_core.producer.accumulator.batch_appender import BatchAppender
from client_core.producer.accumulator.batch_drain import BatchDrain, DrainOrder
from client_core.producer.accumulator.incomplete_batches import IncompleteBatches
from client_core.producer.accumulator.partition_sequences import is_later
from client_core.producer.accumulator.partitioner import BuiltInPartitioner, LostLeaders
from client_core.producer.accumulator.topic_queues import WaitingQueues
from client_core.producer.results.status import BufferStatus, FailedRecords, Unacknowledged
from client_core.record.compression import NO_COMPRESSION
from client_core.record.compression_ratio import INITIAL_RATIO, CompressionRatioEstimator

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from random import Random

    from client_core.backoff import ExponentialBackoff
    from client_core.cluster import TopicPartition
    from client_core.producer.accumulator.batch_drain import (
        PartitionLeaders,
        ReadyCheckResult,
        Sequences,
        Unbuildable,
    )
    from client_core.producer.accumulator.buffer_pool import BufferPool
    from client_core.producer.accumulator.incomplete_batches import FlushTicket
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.accumulator.topic_queues import PartitionQueue
    from client_core.producer.results.batch_outcome import RecordOwner
    from client_core.record.compression import Compression

    #: Spans of records by their owners.
    TakenOut = list[tuple[RecordOwner, Sequence[int]]]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AccumulatorConfig:
    """How records are batched, and how long they may wait. Defaults are Kafka's.

    Java checks a partition's batches for expiry up to the first one that is not expired. A batch that was
    re-enqueued behind a younger one then waits too long; `expires_behind_younger` finds it.
    """

    batch_bytes: int = 16384
    submit_batch_bytes: int = 0  # not Kafka's: submit.batch.size
    linger_ms: int = 5
    delivery_timeout_ms: int = 120_000
    compression: Compression = NO_COMPRESSION
    adaptive_partitioning: bool = True
    partition_availability_timeout_ms: int = 0
    lost_leader_probe_interval_ms: int = 0
    expires_behind_younger: bool = True
    whole_requests: bool = False  # not Kafka's: see KafkaProducer


class RecordAccumulator:
    """All waiting records, and the batches that are not finished."""

    def __init__(
        self,
        config: AccumulatorConfig,
        pool: BufferPool,
        retry_backoff: ExponentialBackoff,
        random: Random,
        sequences: Sequences | None = None,
        drain_order: DrainOrder | None = None,
    ) -> None:
        """`sequences`: the TransactionManager of an idempotent producer. `drain_order`: for tests."""
        self._config = config
        self._pool = pool
        self._retry_backoff = retry_backoff
        self._random = random
        self._sequences = sequences
        #: Brokers that keyless records avoid. Sender sets them.
        self.lost_leaders: Final = LostLeaders(config.lost_leader_probe_interval_ms)
        self._queues = WaitingQueues(self._new_partitioner)
        #: The partitions whose queues hold batches, to see whether there are any. Changes under the locks.
        self.undrained: Final[Collection[TopicPartition]] = self._queues.waiting.keys()
        self._incomplete = IncompleteBatches()
        #: Returns every incomplete batch, queued or in flight. Any thread.
        self.incomplete: Final = self._incomplete.snapshot
        #: Removes a batch whose owners were notified. Hold no lock. I/O thread.
        self.complete_batch: Final = self._incomplete.remove
        #: The accepted records that failed, in batches or never appended.
        self.failed: Final = FailedRecords()
        self._ratios = CompressionRatioEstimator()
        #: The any-thread side, used by the fast path.
        self.appender = BatchAppender(
            self._queues,
            self._incomplete,
            pool,
            batch_bytes=config.batch_bytes,
            submit_batch_bytes=config.submit_batch_bytes,
            compression=config.compression,
            ratios=self._ratios,
            spreads=config.adaptive_partitioning,
            whole_requests=config.whole_requests,
        )
        self.append_many: Final = self.appender.append_many
        # Owned by the I/O thread:
        #: When the earliest batch expires, of those seen since this was last set to FOREVER_MS. Sender resets
        #: it before each round: a past expiry would make it spin (ACC-11).
        self.next_batch_expiry_ms = FOREVER_MS
        self._drain = BatchDrain(
            self._queues,
            sequences,
            linger_ms=config.linger_ms,
            adaptive_partitioning=config.adaptive_partitioning,
            partition_availability_timeout_ms=config.partition_availability_timeout_ms,
            drain_order=DrainOrder() if drain_order is None else drain_order,
        )
        self.drain: Final = self._drain.drain
        self.update_node_latency_stats: Final = self._drain.update_node_latency_stats
        #: Stops ready and drain for a partition until it is unmuted (max.in.flight 1).
        self.mute_partition: Final = self._drain.muted.add
        self.unmute_partition: Final = self._drain.muted.discard
        #: The drained batches that could not be encoded, until `take_unbuildable`.
        self.unbuildable: Final[Sequence[Unbuildable]] = self._drain.unbuildable

    def __repr__(self) -> str:
        return f"<RecordAccumulator waiting={len(self._queues.waiting)} incomplete={len(self._incomplete)}>"

    def _new_partitioner(self, topic: str) -> BuiltInPartitioner:
        # batch.size 0 turns batching off; stickiness needs at least one byte (KafkaProducer).
        return BuiltInPartitioner(topic, max(1, self._config.batch_bytes), self._random, self.lost_leaders)

    # -- sending: I/O thread ---------------------------------------------------------------------------------

    def ready(self, leaders: PartitionLeaders, now_ms: int) -> ReadyCheckResult:
        """Returns the nodes to send to now, and when to check again (ACC-05, ACC-06, ACC-07)."""
        send_all = bool(self._queues.waiting) and (
            self.appender.closed or self._pool.waiters > 0 or self._incomplete.flush_in_progress
        )
        return self._drain.ready(leaders, now_ms, send_all=send_all)

    def take_unbuildable(self) -> Sequence[Unbuildable]:
        """Returns the drained batches that could not be encoded; the caller fails them."""
        unbuildable = tuple(self._drain.unbuildable)
        self._drain.unbuildable.clear()
        return unbuildable

    def leave_lost_leaders(self, leaders: PartitionLeaders) -> None:
        """Moves keyless batches that were never sent from lost leaders to other partitions."""
        self._drain.leave(leaders, self.lost_leaders.node_ids)

    def unmute_settled(self) -> None:
        """Unmutes the partitions that have no batch in flight. I/O thread, between turns."""
        in_flight = (batch.topic_partition for batch in self._incomplete.snapshot() if batch.is_in_flight)
        self._drain.muted.intersection_update(in_flight)

    # -- failed batches: I/O thread --------------------------------------------------------------------------

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        """Re-enqueues a failed batch for another attempt, before the waiting ones (ACC-10)."""
        batch.reenqueued(now_ms, self._retry_backoff.backoff_ms(batch.attempts))
        queue = self._queues.of(batch.topic_partition)
        with queue.lock:
            self._insert(queue, batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Re-enqueues a batch that was too large as several; returns how many (ACC-14).

        The batch itself has ended then; the caller deallocates its memory. Parts that are too large again are
        split to half their size at most.
        """
        # The batch was too large because its ratio was estimated too low: assume no compression of this topic
        # until batches compress again.
        codec = self._config.compression.codec
        ratio = max(INITIAL_RATIO, batch.compression_ratio)
        self._ratios.set_estimation(batch.topic_partition.topic, codec, ratio)
        target_bytes = self._config.batch_bytes
        if batch.is_split_batch:
            target_bytes = max(batch.max_record_size_bytes, batch.estimated_size_bytes // 2)
        parts = batch.split(target_bytes)
        self._incomplete.split(batch, parts)
        queue = self._queues.of(batch.topic_partition)
        with queue.lock:
            for part in reversed(parts):  # without sequences each one goes before the last
                if self._sequences is not None:
                    self._sequences.add_in_flight_batch(part)
                self._insert(queue, part)
        return len(parts)

    def _insert(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Inserts it first in its queue, or after earlier sequences, if it has one. Under the lock."""
        place = 0
        if self._sequences is not None:
            sequence = batch.base_sequence
            if sequence is None:
                raise IllegalStateError(
                    f"{batch!r} is put back without a sequence, although it must have one"
                )
            if not self._sequences.has_in_flight_batches(batch.topic_partition):
                raise IllegalStateError(f"{batch!r} is put back, but is not tracked as in flight")
            for other in queue.batches:
                if other.base_sequence is None or not is_later(sequence, than=other.base_sequence):
                    break
                place += 1
        self._queues.insert(queue, place, batch)

    # -- unused topics: I/O thread ---------------------------------------------------------------------------

    def forget_topics(self, is_held: Callable[[str], bool]) -> None:
        """Drops the state of topics that are no longer held and have nothing waiting.

        Queues, partitioner, ratio, and with the next epoch their sequences. Java keeps all of these as long
        as the process lives, so a process that writes to ever new topics runs out of memory.
        """
        left: list[TopicPartition] = []
        for topic in [topic for topic in tuple(self._queues.topics) if not is_held(topic)]:
            partitions = self._queues.forget(topic)
            if partitions is not None:
                left += partitions
                self._ratios.reset_estimation(topic)
        if left and self._sequences is not None:
            self._sequences.leave(left)

    # -- time: I/O thread ------------------------------------------------------------------------------------

    @property
    def delivery_timeout_ms(self) -> int:
        return self._config.delivery_timeout_ms

    def expired_batches(self, now_ms: int) -> list[ProducerBatch]:
        """Removes the queued batches whose delivery timeout has passed; the caller fails them (ACC-11)."""
        expired: list[ProducerBatch] = []
        delivery_timeout_ms = self._config.delivery_timeout_ms
        for queue in tuple(self._queues.waiting.values()):
            with queue.lock:
                place = 0
                while place < len(queue.batches):
                    batch = queue.batches[place]
                    expiry_ms = batch.created_ms + delivery_timeout_ms
                    if expiry_ms <= now_ms:
                        batch.abort_record_appends()
                        self._queues.remove(queue, batch)
                        expired.append(batch)
                        continue
                    self.next_batch_expiry_ms = min(self.next_batch_expiry_ms, expiry_ms)
                    if batch.drained_ms is None or not self._config.expires_behind_younger:
                        break
                    place += 1  # re-enqueued batches are in front, in response order, not by age
        return expired

    # -- the end of batches ----------------------------------------------------------------------------------

    def deallocate(self, batch: ProducerBatch) -> None:
        """Gives the batch's memory back, once. Hold no lock. I/O thread.

        Not while it is in flight: an expired batch keeps its memory until the answer or the disconnect
        (SND-14).
        """
        if batch.is_split_batch:
            return
        if batch.is_buffer_deallocated:
            _logger.warning("Skipping deallocating a batch that has already been deallocated: %r", batch)
            return
        batch.is_buffer_deallocated = True
        self._pool.deallocate(batch.allocated_bytes)
        if batch.is_in_flight:
            raise IllegalStateError(f"Attempting to deallocate a batch that is inflight. Batch is {batch!r}")

    def complete_and_deallocate_batch(self, batch: ProducerBatch) -> None:
        # In this order: a batch that is not complete is found again by `lost`.
        self.deallocate(batch)
        self.complete_batch(batch)

    def lost(self) -> Sequence[ProducerBatch]:
        """Returns the batches that are in no queue and not in flight. I/O thread, between turns.

        Others append meanwhile: they queue a batch before they add it to the incomplete ones.
        """
        return [
            batch
            for batch in self._incomplete.snapshot()
            if not batch.is_in_flight and batch not in self.batches_of(batch.topic_partition)
        ]

    def abort_incomplete_batches(self, error: KafkaError) -> None:
        """Aborts all incomplete batches, in flight or not (ACC-13). I/O thread.

        After close() nothing is appended behind its back. The memory of a batch in flight comes back when the
        client is done with it.
        """
        self.let_appends_finish()
        for batch in self._incomplete.snapshot():
            self._abort(batch, error, only_if_undrained=False)

    def count_failed(self, batch: ProducerBatch) -> None:
        """Counts the records of a batch that has failed. I/O thread."""
        self.failed.add(*batch.topic_partition, batch.failed_records)
        batch.failed_records = 0

    def abort_undrained_batches(self, error: KafkaError) -> None:
        """Aborts the batches that were never drained. I/O thread."""
        for batch in self._incomplete.snapshot():
            self._abort(batch, error, only_if_undrained=True)

    def _abort(self, batch: ProducerBatch, error: KafkaError, *, only_if_undrained: bool) -> None:
        queue = self._queues.of(batch.topic_partition)
        with queue.lock:
            if batch.is_done or (only_if_undrained and batch.was_drained):
                return
            batch.abort_record_appends()
            self._queues.remove(queue, batch)
        batch.abort(error)
        self.count_failed(batch)
        if batch.is_in_flight:
            self.complete_batch(batch)
        else:
            self.complete_and_deallocate_batch(batch)

    def cancel(
        self, owners: Iterable[RecordOwner], notify: Callable[[TakenOut], None] = lambda taken_out: None
    ) -> TakenOut:
        """Removes these owners' records from undrained batches, without notifying the owners. Any thread.

        Returns each span that was taken out. `notify` gets them first: before a flush ends that waited for
        them. The others' records in the same batches stay; the batch is encoded anew when it is drained, or
        when half of it was taken out.
        """
        ids = frozenset(map(id, owners))
        taken_out: TakenOut = []
        emptied: list[ProducerBatch] = []
        for queue in tuple(self._queues.waiting.values()):
            with queue.lock:
                for batch in tuple(queue.batches):
                    if batch.was_drained or batch.is_done:
                        continue
                    removed = batch.remove_owners(ids)
                    taken_out += removed
                    if removed and not batch.record_count:
                        batch.abort(KafkaError("cancelled"))  # no owner is left
                        self._queues.remove(queue, batch)
                        emptied.append(batch)
        notify(taken_out)
        for batch in emptied:
            self.complete_and_deallocate_batch(batch)
        return taken_out

    # -- flush, close, status: any thread --------------------------------------------------------------------

    def begin_flush(self, on_done: Callable[[], None] | None = None) -> FlushTicket:
        """Makes every batch ready, ignoring linger.ms, until those incomplete now are done (ACC-12).

        `on_done` is called once, on the thread that completes the last batch. Wake the sender.
        """
        return self._incomplete.begin_flush(on_done)

    @property
    def flush_in_progress(self) -> bool:
        return self._incomplete.flush_in_progress

    def close(self) -> None:
        """Refuses all but parked requests, and makes every batch ready (ACC-04). Idempotent."""
        self.appender.closed = True
        self._pool.refuse_threads()

    def let_appends_finish(self) -> None:
        """Waits for the appends that began before `close` or `end`, so that their batches are visible.

        I/O thread, after `close` or `end`.
        """
        for queues in tuple(self._queues.topics.values()):
            with queues.lock:
                pass

    def end(self) -> None:
        """Refuses every append: no thread would send it. Idempotent."""
        self.appender.ended = True
        self.close()
        self._pool.close()

    @property
    def has_undrained(self) -> bool:
        """Whether a queue holds a batch."""
        return bool(self.undrained)

    @property
    def has_incomplete(self) -> bool:
        return len(self._incomplete) > 0

    def batches_of(self, topic_partition: TopicPartition) -> Sequence[ProducerBatch]:
        """Returns a partition's queued batches, in order. For tests and status pages."""
        queues = self._queues.topics.get(topic_partition.topic)
        queue = None if queues is None else queues.partitions.get(topic_partition.partition)
        return () if queue is None else tuple(queue.batches)

    def status(self, now_ms: int) -> BufferStatus:
        """Returns the state of buffer.memory. Counts batches, without visiting their records."""
        batches = self._incomplete.snapshot()
        oldest_ms = min((batch.created_ms for batch in batches), default=None)
        return BufferStatus(
            total_bytes=self._pool.total_bytes,
            available_bytes=self._pool.available_bytes,
            waiters=self._pool.waiters,
            batches=len(batches),
            records=sum(batch.record_count for batch in batches),
            oldest_batch_age_ms=None if oldest_ms is None else now_ms - oldest_ms,
        )

    def unacknowledged(self) -> tuple[Unacknowledged, ...]:
        """Returns the number of incomplete records of each partition."""
        records: Counter[TopicPartition] = Counter()
        for batch in self.incomplete():
            # The owners of a finished batch are being notified.
            left = batch.failed_records if batch.is_done else batch.record_count
            records[batch.topic_partition] += left
        return tuple(Unacknowledged(*where, count) for where, count in records.items() if count)
