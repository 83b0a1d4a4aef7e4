"""Settles a batch by its outcome: complete, retry (after NOT_LEADER, for example), split or fail.

Exactly one of these happens, so that each record's owner is notified once and the batch's memory is freed
once (BAT-01). The outcome is a broker's answer, or the client's own: timed out, disconnected, expired. I/O
thread only. Source: Sender.completeBatch, Sender.failBatch, Sender.inFlightBatches, Kafka 4.3.

After NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH a batch is retried and a refresh is requested
(`error.refreshes_metadata`). Before that `sender.py` applies the leader that the broker names (KIP-951); then
the retry skips its backoff (`producer_batch.py`).

Failures of a partition are logged once per error until it works again, repeats at DEBUG. A dead broker fails
each batch of each of its partitions, at each retry: a thousand lines for one event.

In-flight batches are kept by partition, with the earliest expiry. They are checked only when it has come, and
then all of them: a batch that is sent again is behind younger ones. Their number is a plain read.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.clock import FOREVER_MS
from client_core.error_codes import Errors
from client_core.errors import (
    ClusterAuthorizationError,
    InvalidRecordError,
    KafkaError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    error_for,
)
from client_core.events import BatchRetried, BatchSplit, ProduceFinished
from client_core.producer.accumulator.causes import cause_of_attempts
from client_core.producer.results.batch_outcome import FinalState
from client_core.producer.results.ticket import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.cluster import TopicPartition
    from client_core.events import EventSink
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.accumulator.causes import Causes
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.accumulator.record_accumulator import RecordAccumulator
    from client_core.producer.sender.produce_request import PartitionResponse
    from client_core.producer.sender.transaction_manager import TransactionManager


_log: Final = logging.getLogger(__name__)

#: Log lines about failures per minute. Metrics and status have the other partitions.
MOST_LINES: Final = 20
WINDOW_MS: Final = 60_000
#: The limit of remembered partitions, and topics with large batches; a deleted one never works again.
_MOST_REMEMBERED: Final = 1_000


class FailureLogLimiter:
    """The partitions whose failures were logged."""

    def __init__(self) -> None:
        #: The errors logged of each partition; empty while everything works.
        self.reported: Final[dict[TopicPartition, set[tuple[Errors, bool]]]] = {}
        self._reported_too_large: Final[dict[str, None]] = {}
        self._window_ms = 0
        self._lines = 0

    def failed(self, partition: TopicPartition, error: Errors, now_ms: int, *, for_good: bool = False) -> int:
        """Returns the log level for a failed batch, retried or not."""
        reported = self.reported.get(partition)
        if reported is not None and (error, for_good) in reported:
            return logging.DEBUG
        if not self._has_room(now_ms):
            return logging.DEBUG
        if reported is None:
            if len(self.reported) >= _MOST_REMEMBERED:
                del self.reported[next(iter(self.reported))]
            reported = self.reported[partition] = set()
        reported.add((error, for_good))
        return logging.WARNING

    def succeeded(self, partition: TopicPartition) -> None:
        """Notes that a batch was acknowledged."""
        if self.reported.pop(partition, None) is not None:
            _log.info("Produce to %s works again", partition)

    def too_large(self, topic: str) -> int:
        """Returns the log level for a batch split: splits recur until a setting changes."""
        if topic in self._reported_too_large or len(self._reported_too_large) >= _MOST_REMEMBERED:
            return logging.DEBUG
        self._reported_too_large[topic] = None
        return logging.WARNING

    def _has_room(self, now_ms: int) -> bool:
        if now_ms - self._window_ms >= WINDOW_MS:
            self._window_ms, self._lines = now_ms, 0
        self._lines += 1
        if self._lines == MOST_LINES + 1:
            _log.warning(
                "Produce fails for more partitions than are logged: at most %d per minute", MOST_LINES
            )
        return self._lines <= MOST_LINES


class InFlightBatches:
    """The batches that were sent and are not settled."""

    def __init__(self, delivery_timeout_ms: int) -> None:
        self._delivery_timeout_ms = delivery_timeout_ms
        self._batches: dict[TopicPartition, list[ProducerBatch]] = {}
        self._count = 0
        #: No batch expires before this. It may be too early: `expired` corrects it then.
        self.next_expiry_ms = FOREVER_MS

    def __len__(self) -> int:
        return self._count

    def of(self, topic_partition: TopicPartition) -> Sequence[ProducerBatch]:
        return tuple(self._batches.get(topic_partition, ()))

    def add(self, batch: ProducerBatch) -> None:
        self._batches.setdefault(batch.topic_partition, []).append(batch)
        self._count += 1
        self.next_expiry_ms = min(self.next_expiry_ms, batch.created_ms + self._delivery_timeout_ms)

    def remove(self, batch: ProducerBatch) -> None:
        """Removes a batch, if it is there."""
        batches = self._batches.get(batch.topic_partition)
        if batches is None or batch not in batches:
            return
        batches.remove(batch)
        self._count -= 1
        if not batches:
            del self._batches[batch.topic_partition]

    def clear(self) -> None:
        self._batches.clear()
        self._count = 0
        self.next_expiry_ms = FOREVER_MS

    def expired(self, now_ms: int) -> list[ProducerBatch]:
        """Returns the batches that have expired; they stay here until they are removed."""
        if now_ms < self.next_expiry_ms:
            return []
        expired: list[ProducerBatch] = []
        self.next_expiry_ms = FOREVER_MS
        for batches in self._batches.values():
            for batch in batches:
                if batch.has_reached_delivery_timeout(self._delivery_timeout_ms, now_ms):
                    expired.append(batch)
                else:
                    expiry_ms = batch.created_ms + self._delivery_timeout_ms
                    self.next_expiry_ms = min(self.next_expiry_ms, expiry_ms)
        return expired


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """Times in ms, sizes in bytes. Immutable."""

    acks: str
    retries: int
    max_request_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int
    guarantee_message_order: bool  # max.in.flight.requests.per.connection=1
    whole_requests: bool  # not Kafka's: see KafkaProducer


class BatchSettlement:
    """Settles batches, or re-enqueues them. Owned by Sender."""

    def __init__(
        self,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        in_flight: InFlightBatches,
        config: SenderConfig,
        events: EventSink,
        causes: Causes,
        transaction_manager: TransactionManager | None,
    ) -> None:
        self._metadata = metadata
        self._accumulator = accumulator
        self._in_flight = in_flight
        self._config = config
        self._events = events
        self._causes = causes
        self._transaction_manager = transaction_manager
        self._log_limiter = FailureLogLimiter()
        #: Whether an error may have left batches in no queue and in no request since the last look.
        self.may_have_lost = False

    def settle(self, batch: ProducerBatch, said: PartitionResponse, node_id: int, now_ms: int) -> None:
        """Completes, retries, splits or fails a batch: exactly one of them (BAT-01).

        Raises nothing: the other batches of the same answer must be settled too.
        """
        try:
            self._settle(batch, said, node_id, now_ms)
        except Exception as error:  # noqa: BLE001 -- a bug, or a batch to split that can't be decoded
            self.may_have_lost = True
            _log.exception("The answer %s could not be applied to %r", said, batch)
            self._fail_in_need(batch, error, written=None, now_ms=now_ms)
        if self._config.guarantee_message_order:
            self._accumulator.unmute_partition(batch.topic_partition)

    def _settle(self, batch: ProducerBatch, said: PartitionResponse, node_id: int, now_ms: int) -> None:
        error = said.error
        can_split = batch.record_count > 1 and not batch.is_done and not self._config.whole_requests
        if error is Errors.MESSAGE_TOO_LARGE and can_split:
            self._split(batch)
        elif error is Errors.NONE or (error is Errors.DUPLICATE_SEQUENCE_NUMBER and not batch.is_done):
            # The broker may no longer know a duplicate's offset: success, without one (SND-11).
            self._succeed(batch, said, node_id, now_ms)
        elif self._can_retry(batch, said, now_ms):
            self._retry(batch, said, node_id, now_ms)
        else:
            # The batch may be in the log, by an attempt whose answer was lost: then its sequences are not
            # reused.
            adjust = batch.attempts < self._config.retries
            self._fail_by_answer(batch, said, adjust_sequences=adjust, node_id=node_id, now_ms=now_ms)
        if error.refreshes_metadata:
            _log.debug("Produce to %s failed, asking for metadata: %s", batch.topic_partition, said)
            missing = error is Errors.UNKNOWN_TOPIC_OR_PARTITION
            self._metadata.request_update(False, "topic_missing" if missing else "leader_error")

    def _split(self, batch: ProducerBatch) -> None:
        """Re-enqueues a batch that is too large in parts, without counting an attempt (SND-09, ACC-14)."""
        records = batch.record_count
        level = self._log_limiter.too_large(batch.topic_partition.topic)
        _log.log(
            level, "A batch of %d records is too large for %s: splitting", records, batch.topic_partition
        )
        if self._transaction_manager is not None:
            self._transaction_manager.remove_in_flight_batch(batch)
        self._accumulator.split_and_reenqueue(batch)
        self._in_flight.remove(batch)
        self._accumulator.complete_and_deallocate_batch(batch)
        self._events.emit(BatchSplit(*batch.topic_partition, records))

    def _can_retry(self, batch: ProducerBatch, said: PartitionResponse, now_ms: int) -> bool:
        """Returns whether time and attempts are left, and a retry may help (SND-05)."""
        if (
            batch.is_done
            or batch.attempts >= self._config.retries
            or batch.has_reached_delivery_timeout(self._config.delivery_timeout_ms, now_ms)
        ):
            return False
        if self._transaction_manager is None:
            return said.error.retriable
        return self._transaction_manager.can_retry(batch, said.error, said.log_start_offset)

    def _retry(self, batch: ProducerBatch, said: PartitionResponse, node_id: int, now_ms: int) -> None:
        _log.log(
            self._log_limiter.failed(batch.topic_partition, said.error, now_ms),
            "Produce to %s by node %d failed and is retried: %s",
            batch.topic_partition,
            node_id,
            said,
        )
        self._note_failed_attempt(batch, said, node_id, now_ms)
        self._accumulator.reenqueue(batch, now_ms)
        self._in_flight.remove(batch)
        self._events.emit(BatchRetried(*batch.topic_partition, batch.record_count, said.error, node_id))

    def _note_failed_attempt(
        self, batch: ProducerBatch, said: PartitionResponse, node_id: int, now_ms: int
    ) -> None:
        batch.attempt_failed(said.error, node_id, said.error_message or said.error.message, now_ms)
        self._causes.attempt_failed(batch)

    def _succeed(self, batch: ProducerBatch, said: PartitionResponse, node_id: int, now_ms: int) -> None:
        if self._transaction_manager is not None:
            self._transaction_manager.handle_completed_batch(batch, said.base_offset)
        self._in_flight.remove(batch)
        if self._causes.failing:  # rarely, as the next: this is called for each batch
            self._causes.succeeded(batch.topic_partition)
        if self._log_limiter.reported:
            self._log_limiter.succeeded(batch.topic_partition)
        if batch.complete(said.base_offset, said.log_append_time_ms):
            self._accumulator.complete_and_deallocate_batch(batch)
            self._report_finished(batch, Errors.NONE, node_id, now_ms)
        else:
            self._accumulator.deallocate(batch)

    def _fail_by_answer(
        self,
        batch: ProducerBatch,
        said: PartitionResponse,
        *,
        adjust_sequences: bool,
        node_id: int,
        now_ms: int,
    ) -> None:
        error = _error_of(batch, said)
        if error.retriable:
            # There is no time or no attempt left; a batch that expires in the queue fails with TimeoutError.
            self._note_failed_attempt(batch, said, node_id, now_ms)
            error.cause = cause_of_attempts(batch, now_ms)
        record_errors = _record_errors(said) if said.record_errors else None
        # The broker rejected the only attempt: nothing of it is in the log.
        is_clear = not error.retriable and said.error is not Errors.UNKNOWN_SERVER_ERROR
        refused = is_clear and not batch.may_be_stored
        self.fail(
            batch,
            error,
            record_errors,
            adjust_sequences=adjust_sequences,
            deallocate=True,
            now_ms=now_ms,
            node_id=node_id,
            written=Written.NO if refused else None,
        )

    def fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        record_errors: Callable[[int], KafkaError] | None = None,
        *,
        adjust_sequences: bool,
        deallocate: bool,
        now_ms: int,
        node_id: int | None = None,
        written: Written | None = None,
    ) -> None:
        self._in_flight.remove(batch)
        if not batch.complete_exceptionally(error, record_errors, written=written):
            # It was failed before, and its owners know; only its memory is still to be freed (SND-14).
            if deallocate:
                self._free_ended(batch, error)
            return
        self._accumulator.count_failed(batch)
        _log.log(
            self._log_limiter.failed(batch.topic_partition, error.error, now_ms, for_good=True),
            "%d records of %s are given up: %s%s",
            batch.record_count,
            batch.topic_partition,
            error.message,
            "" if error.cause is None else f" The cause: {error.cause}",
        )
        if self._transaction_manager is not None:
            self._transaction_manager.handle_failed_batch(batch, error, adjust_sequences=adjust_sequences)
        if deallocate:
            self._accumulator.complete_and_deallocate_batch(batch)
        else:
            self._accumulator.complete_batch(batch)
        cause = error.error if error.cause is None else error.cause.error
        self._report_finished(batch, error.error, node_id, now_ms, cause)

    def fail_unsendable(self, batch: ProducerBatch, error: Exception, now_ms: int) -> None:
        """Fails a single drained batch that could not be encoded, or not be passed to the client."""
        _log.error("%r can't be sent: %r", batch, error, exc_info=error)
        batch.is_in_flight = False
        batch.sent_to = None
        was_sent_before = batch.in_retry or batch.is_split_batch
        self._fail_in_need(batch, error, written=None if was_sent_before else Written.NO, now_ms=now_ms)
        if self._config.guarantee_message_order:
            self._accumulator.unmute_partition(batch.topic_partition)

    def fail_lost(self, batch: ProducerBatch, now_ms: int) -> None:
        """Fails a batch that is in no queue and in no request, or frees it if its owners know its outcome."""
        error = KafkaError(
            "An unexpected exception interrupted the sending of a batch: the log has its stack."
        )
        self._fail_in_need(batch, error, written=None, now_ms=now_ms)
        if self._config.guarantee_message_order:
            self._accumulator.unmute_partition(batch.topic_partition)

    def _fail_in_need(
        self, batch: ProducerBatch, error: Exception, *, written: Written | None, now_ms: int
    ) -> None:
        """Fails a batch after an error of this client: notifies its owners and frees its memory."""
        reported = error if isinstance(error, KafkaError) else KafkaError(f"{type(error).__name__}: {error}")
        if batch.is_done:
            self._in_flight.remove(batch)
            self._free_ended(batch, reported)
            return
        self.fail(
            batch,
            reported,
            adjust_sequences=written is Written.NO,
            deallocate=True,
            now_ms=now_ms,
            written=written,
        )

    def _free_ended(self, batch: ProducerBatch, error: KafkaError) -> None:
        """Frees a batch whose owners know its outcome, also if an error interrupted its end."""
        manager = self._transaction_manager
        was_aborted = batch.final_state is FinalState.ABORTED  # then its sequences do not matter any more
        if manager is not None and not was_aborted and manager.is_in_flight(batch):
            manager.handle_failed_batch(batch, error, adjust_sequences=False)
        self._accumulator.complete_batch(batch)
        if not batch.is_buffer_deallocated:
            self._accumulator.deallocate(batch)

    def _report_finished(
        self,
        batch: ProducerBatch,
        error: Errors,
        node_id: int | None,
        now_ms: int,
        cause: Errors = Errors.NONE,
    ) -> None:
        self._events.emit(
            ProduceFinished(
                topic=batch.topic_partition.topic,
                partition=batch.topic_partition.partition,
                node_id=node_id,
                records=batch.record_count,
                batch_bytes=batch.estimated_size_bytes,
                produce_ms=now_ms - batch.created_ms,
                retries=batch.attempts,
                error=error,
                cause=cause,
            )
        )


def _error_of(batch: ProducerBatch, said: PartitionResponse) -> KafkaError:
    """Returns the exception of a batch as a whole (SND-11)."""
    if said.error is Errors.TOPIC_AUTHORIZATION_FAILED:
        return TopicAuthorizationError(f"Not authorized to access topics: [{batch.topic_partition.topic}]")
    if said.error is Errors.CLUSTER_AUTHORIZATION_FAILED:
        return ClusterAuthorizationError("The producer is not authorized to do idempotent sends")
    if said.error is Errors.UNSUPPORTED_VERSION:
        return UnsupportedVersionError(said.error_message)
    return error_for(said.code, said.error_message)


def _record_errors(said: PartitionResponse) -> Callable[[int], KafkaError]:
    """Returns each record's exception, for a batch whose faulty records the broker names (SND-10).

    A single faulty record has the exception of the code. Several may have different faults, which one code
    can't express, so they are invalid, and their messages have the reason. The others failed because of them.
    """
    several = len(said.record_errors) > 1
    named: dict[int, KafkaError] = {}
    for index, message in said.record_errors:
        text = message or said.error_message or said.error.message
        named[index] = InvalidRecordError(text) if several else error_for(said.code, text)
    innocent = KafkaError(
        "Failed to append record because it was part of a batch which had one more more invalid records"
    )
    return lambda index: named.get(index, innocent)
