"""A batch of one partition's records, from its first record to its outcome.

A RecordOwner is a request of one record or of ten thousand. A batch keeps no future per record, but one span
per (owner, call): the owner, its record indices, and their position in the batch. A finished batch reports to
each span's owner once, with an outcome that all spans share (BAT-01, BAT-02). A batch that is too large is
split: its spans move to new batches, and it is then finished itself (ACC-14).

    open -> SUCCEEDED | FAILED | ABORTED | SPLIT    (see batch_outcome.may_end)

Guarded by its partition's lock while queued; owned by the I/O thread once drained. Source: ProducerBatch,
ProduceRequestResult, FutureRecordMetadata, Kafka 4.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import IllegalStateError
from client_core.producer.accumulator.batch_repacking import Packed, in_parts, largest_record_bytes, repacked
from client_core.producer.results.batch_outcome import BatchOutcome, FinalState, may_end
from client_core.producer.results.ticket import Written
from client_core.record.compression import Codec
from client_core.record.compression_ratio import CompressionRatioEstimator
from client_core.record.memory_records_builder import NO_LIMIT, ONLY_RECORD, MemoryRecordsBuilder
from client_core.record.record_batch import increment_sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from client_core.cluster import TopicPartition
    from client_core.error_codes import Errors
    from client_core.errors import KafkaError
    from client_core.producer.results.batch_outcome import RecordOwner, Span
    from client_core.producer.results.producer_record import ProducerRecord

_logger = logging.getLogger(__name__)

#: A copied record takes about 1 us of the I/O thread. A batch.size of 1 MiB may hold 100,000.
_MOST_REPACKED_WHILE_OPEN: Final = 1_000


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch from the broker (IDM-01)."""

    producer_id: int
    epoch: int


class AttemptFailure(NamedTuple):
    """Attempts of a batch that failed in a row with the same error; the last one at `node_id`."""

    error: Errors
    node_id: int
    attempts: int
    since_ms: int  # when the first of them failed
    detail: str
    last_ms: int  # when the last of them failed


class ProducerBatch:
    """Records on their way to one partition."""

    __slots__ = (
        "_builder",
        "_ratios",
        "_removed_records",
        "_retry_backoff_ms",
        "allocated_bytes",
        "attempts",
        "attempts_when_leader_last_changed",
        "base_sequence",
        "created_ms",
        "current_leader_epoch",
        "drained_ms",
        "failed_records",
        "final_state",
        "is_buffer_deallocated",
        "is_in_flight",
        "is_split_batch",
        "keyless_only",
        "last_attempt_ms",
        "last_failure",
        "producer_epoch",
        "producer_id",
        "record_count",
        "sent_to",
        "sequence_has_been_reset",
        "spans",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        builder: MemoryRecordsBuilder,
        created_ms: int,
        *,
        allocated_bytes: int = 0,
        is_split_batch: bool = False,
        ratios: CompressionRatioEstimator | None = None,
    ) -> None:
        """`allocated_bytes` are the batch's bytes of buffer.memory; split batches have none.

        `ratios` learns the batch's compression ratio.
        """
        self.topic_partition = topic_partition
        self.created_ms: Final = created_ms
        self.allocated_bytes: Final = allocated_bytes
        self.is_split_batch: Final = is_split_batch
        self.last_attempt_ms = created_ms
        self.drained_ms: int | None = None
        self.attempts = 0
        self.final_state: FinalState | None = None
        #: Records that failed, were not reported as failed before, and are not counted yet.
        self.failed_records = 0
        #: The last attempt that failed, and the attempts before it with the same error.
        self.last_failure: AttemptFailure | None = None
        self.is_in_flight = False  # set by Sender: passed to the client and not answered yet
        self.sent_to: int | None = None  # the node of that request, for status
        #: Whether the sticky partitioner chose the partition of all its records. Under the lock.
        self.keyless_only = False
        self.is_buffer_deallocated = False
        self.sequence_has_been_reset = False
        #: Without the removed ones.
        self.record_count = builder.record_count
        #: Set once, at the first drain (IDM-02); None before, and without idempotence.
        self.producer_id = builder.producer_id
        self.producer_epoch = builder.producer_epoch
        self.base_sequence = builder.base_sequence
        self._builder = builder
        self._ratios = CompressionRatioEstimator() if ratios is None else ratios
        #: Of the owners, in the order of appending.
        self.spans: list[Span] = []
        self._removed_records = 0
        self._retry_backoff_ms = 0
        self.current_leader_epoch: int | None = None
        self.attempts_when_leader_last_changed = 0

    def __repr__(self) -> str:
        state = "open" if self.final_state is None else self.final_state.value
        records = self.record_count
        return f"<ProducerBatch {self.topic_partition} {state} records={records} attempts={self.attempts}>"

    # -- appending: under the partition's lock --------------------------------------------------------------

    def append_many(
        self,
        records: Sequence[ProducerRecord],
        indices: Sequence[int],
        first: int,
        owner: RecordOwner,
        *,
        wall_ms: int,
        stop_at_bytes: int = NO_LIMIT,
    ) -> int:
        """Appends the owner's records at indices[first:] as long as there is room; returns how many."""
        position = self._builder.record_count
        taken = self._builder.append_many(records, indices, first, wall_ms, stop_at_bytes)
        if taken:
            self.record_count += taken
            self.spans.append((owner, indices[first : first + taken], position))
        return taken

    def append_one(
        self, record: ProducerRecord, key_and_value_bytes: int, owner: RecordOwner, wall_ms: int
    ) -> int | None:
        """Appends the owner's only record if more would fit after it; returns its bytes, or None."""
        builder = self._builder
        taken_bytes = builder.append_where_more_fits(record, key_and_value_bytes, wall_ms)
        if taken_bytes is not None:
            self.record_count += 1
            self.spans.append((owner, ONLY_RECORD, builder.record_count - 1))
        return taken_bytes

    @property
    def may_move(self) -> bool:
        """Whether it may move to another partition: keyless records only, and never sent."""
        return self.keyless_only and self.drained_ms is None and self.final_state is None

    def move_to(self, topic_partition: TopicPartition) -> None:
        """Moves it to another partition of its topic. I/O thread, when it is in no queue."""
        self.topic_partition = topic_partition
        self.current_leader_epoch = None

    def close_for_record_appends(self) -> None:
        self._builder.close_for_record_appends()

    def abort_record_appends(self) -> None:
        """Ends appends and sending; the spans still wait for the outcome."""
        self._builder.abort()

    def remove_owners(self, owners: Collection[int]) -> list[tuple[RecordOwner, Sequence[int]]]:
        """Removes the records of the owners with these id()s without notifying them; returns their spans.

        Only for a batch that was never drained. The bytes stay until the drain calls `drop_removed`, or until
        they are half of an open batch. So removals cost no more than the appends did, however many follow
        each other. A large batch is not rebuilt here: that would take too long for a turn.
        """
        removed = [(owner, indices) for owner, indices, _ in self.spans if id(owner) in owners]
        if not removed:
            return removed
        self.spans = [span for span in self.spans if id(span[0]) not in owners]
        removed_records = sum(len(indices) for _, indices in removed)
        self.record_count -= removed_records
        self._removed_records += removed_records
        has_room_to_gain = self.spans and not self._builder.is_closed_for_appends
        is_quick = self._builder.record_count <= _MOST_REPACKED_WHILE_OPEN
        if has_room_to_gain and is_quick and 2 * self._removed_records >= self._builder.record_count:
            self.drop_removed()
        return removed

    def drop_removed(self) -> None:
        """Encodes the batch again without the removed records, if any. Before its sequence."""
        if self._removed_records:
            packed = Packed(self._builder, self.spans)
            self._builder, self.spans = repacked(packed, self._new_builder)
            self._removed_records = 0

    # -- state ---------------------------------------------------------------------------------------------

    @property
    def estimated_size_bytes(self) -> int:
        return self._builder.estimated_size_bytes

    @property
    def is_full(self) -> bool:
        return self._builder.is_full

    @property
    def is_closed(self) -> bool:
        """Returns whether its bytes are built."""
        return self._builder.is_built

    @property
    def is_done(self) -> bool:
        return self.final_state is not None

    @property
    def in_retry(self) -> bool:
        return self.attempts > 0

    @property
    def may_be_stored(self) -> bool:
        """Returns whether an earlier attempt, of it or of the batch it was split from, may have stored it."""
        return self.last_failure is not None

    @property
    def was_drained(self) -> bool:
        """Returns whether it, or the batch it was split from, was drained: it may be in the log."""
        return self.drained_ms is not None

    @property
    def uncompressed_size_bytes(self) -> int:
        return self._builder.uncompressed_size_bytes

    @property
    def compression_ratio(self) -> float:
        return self._builder.compression_ratio

    # -- sequence (idempotence) ------------------------------------------------------------------------------

    @property
    def last_sequence(self) -> int | None:
        """Returns the last record's sequence; it wraps, where Java's lastSequence overflows (REC-04)."""
        base = self.base_sequence
        return None if base is None else increment_sequence(base, self.record_count - 1)

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Sets them once, at the first drain (IDM-02)."""
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence

    def reset_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Sets another id, epoch and sequence after an epoch bump; its bytes are built again (IDM-04)."""
        _logger.info(
            "Resetting sequence number of batch with current sequence %s for partition %s to %s",
            self.base_sequence,
            self.topic_partition,
            base_sequence,
        )
        self.sequence_has_been_reset = True
        self._builder.reopen_and_rewrite_producer_state(producer_id, producer_epoch, base_sequence)
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence

    # -- time and leaders ----------------------------------------------------------------------------------

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now_ms: int) -> bool:
        """Compares the time since the batch's creation, retries and splits included (ACC-11)."""
        return delivery_timeout_ms <= now_ms - self.created_ms

    def waited_ms(self, now_ms: int) -> int:
        """Returns the time since its creation, or since it was re-enqueued."""
        return max(0, now_ms - self.last_attempt_ms)

    @property
    def queue_time_ms(self) -> int:
        """Returns the time from creation to the last drain; 0 before it."""
        return 0 if self.drained_ms is None else self.drained_ms - self.created_ms

    def drained(self, now_ms: int) -> None:
        self.drained_ms = now_ms if self.drained_ms is None else max(self.drained_ms, now_ms)

    def reenqueued(self, now_ms: int, retry_backoff_ms: int) -> None:
        """Counts one more attempt, which waits for the backoff (ACC-10)."""
        self.attempts += 1
        self.last_attempt_ms = max(self.last_attempt_ms, now_ms)
        self._retry_backoff_ms = retry_backoff_ms

    def attempt_failed(self, error: Errors, node_id: int, detail: str, now_ms: int) -> None:
        """Notes why an attempt failed that is retried."""
        before = self.last_failure
        attempts, since_ms = 1, now_ms
        if before is not None and before.error is error:
            attempts, since_ms = before.attempts + 1, before.since_ms
        self.last_failure = AttemptFailure(error, node_id, attempts, since_ms, detail, now_ms)

    def retry_backoff_left_ms(self, now_ms: int) -> int:
        """Returns the rest of the retry's backoff; 0 if there is none or its leader changed (ACC-08)."""
        if not self.attempts or self.has_leader_changed_for_the_ongoing_retry:
            return 0
        return max(0, self._retry_backoff_ms - max(0, now_ms - self.last_attempt_ms))

    def maybe_update_leader_epoch(self, latest_leader_epoch: int | None) -> None:
        """Notes at which attempt the leader's epoch grew (KIP-951)."""
        if latest_leader_epoch is not None and (
            self.current_leader_epoch is None or self.current_leader_epoch < latest_leader_epoch
        ):
            self.attempts_when_leader_last_changed = self.attempts
            self.current_leader_epoch = latest_leader_epoch

    @property
    def has_leader_changed_for_the_ongoing_retry(self) -> bool:
        return self.attempts > 0 and self.attempts == self.attempts_when_leader_last_changed

    # -- the end: I/O thread, no lock held -------------------------------------------------------------------

    def close(self) -> None:
        """Builds the bytes; called by the drain that takes the batch for a request."""
        self._builder.build()
        codec = self._builder.compression.codec
        if codec is not Codec.NONE:
            self._ratios.update_estimation(self.topic_partition.topic, codec, self.compression_ratio)
        self.sequence_has_been_reset = False

    def records(self) -> bytes:
        """Returns the batch's wire bytes, built once, and again after reset_producer_state."""
        return self._builder.build()

    def complete(self, base_offset: int | None, log_append_time_ms: int | None) -> bool:
        """Completes an acknowledged batch. Returns False if it was aborted before (BAT-01)."""
        return self._done(FinalState.SUCCEEDED, base_offset, log_append_time_ms, None, None, None)

    def complete_exceptionally(
        self,
        error: KafkaError,
        record_errors: Callable[[int], KafkaError] | None = None,
        *,
        written: Written | None = None,
    ) -> bool:
        """Fails the batch, with `error` or per record (SND-10). Returns False if it had ended before.

        `written` is for a caller that knows it, such as when the broker refused the only attempt. Without it,
        a drained batch counts as possibly in the log.
        """
        return self._done(FinalState.FAILED, None, None, error, record_errors, written)

    def abort(self, error: KafkaError) -> None:
        """Aborts the batch. Raises IllegalStateError if it had ended."""
        if self.final_state is not None:
            raise IllegalStateError(
                f"Batch has already been completed in final state {self.final_state.name}"
            )
        self._done(FinalState.ABORTED, None, None, error, None, None)

    def _done(
        self,
        final_state: FinalState,
        base_offset: int | None,
        log_append_time_ms: int | None,
        error: KafkaError | None,
        record_errors: Callable[[int], KafkaError] | None,
        written: Written | None,
    ) -> bool:
        if error is not None and written is None:
            written = Written.UNKNOWN if self.was_drained else Written.NO
        outcome = BatchOutcome(
            topic=self.topic_partition.topic,
            partition=self.topic_partition.partition,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
            error=error,
            written=written,
            record_errors=record_errors,
            timestamps=self._builder.timestamps,
            attempts=self.attempts,
        )
        spans, failed = self.spans, 0
        no_spans: list[Span] = []
        if error is not None:
            failed = sum(len(indices) for owner, indices, _ in spans if not owner.was_given_up)
        if not self._move_to(final_state):
            return False
        self.spans, self.failed_records = no_spans, failed
        for owner, indices, first_in_batch in spans:
            try:
                owner.batch_done(indices, first_in_batch, outcome)
            except Exception:  # one owner's error must not affect the others (BAT-02)
                _logger.exception("Error in the owner of records of %s", self.topic_partition)
        return True

    def _move_to(self, final_state: FinalState) -> bool:
        if not may_end(self.final_state, final_state):
            _logger.debug("Ignored %s for %r: the batch has already ended", final_state.name, self)
            return False
        self.final_state = final_state
        return True

    # -- splitting -----------------------------------------------------------------------------------------

    @property
    def max_record_size_bytes(self) -> int:
        """Returns the upper bound of its largest record, as a single batch. Decodes the batch."""
        return largest_record_bytes(self._builder)

    def split(self, split_batch_bytes: int) -> list[ProducerBatch]:
        """Splits it into batches of at most that size with the same records, spans, sequences (ACC-14).

        Ends this batch. A larger record gets its own batch, and no part has more than half of the records.
        The parts have no buffer memory, are closed for appends and begin at attempt 0, but are as old as this
        one and count as drained. If this raises, the caller fails the batch, with all its owners.
        """
        packed = in_parts(Packed(self._builder, self.spans), split_batch_bytes, self._new_builder)
        parts = [self._part(builder, spans) for builder, spans in packed]
        self._move_to(FinalState.SPLIT)
        self.spans = []
        return parts

    def _part(self, builder: MemoryRecordsBuilder, spans: list[Span]) -> ProducerBatch:
        part = ProducerBatch(
            self.topic_partition, builder, self.created_ms, is_split_batch=True, ratios=self._ratios
        )
        part.drained_ms = self.drained_ms
        part.last_failure = self.last_failure
        part.spans = spans
        return part

    def _new_builder(self, write_limit_bytes: int) -> MemoryRecordsBuilder:
        """Returns a builder for these records, with the topic's present compression estimate."""
        compression = self._builder.compression
        ratio = self._ratios.estimation(self.topic_partition.topic, compression.codec)
        return MemoryRecordsBuilder(
            write_limit_bytes, compression=compression, estimated_compression_ratio=ratio
        )
