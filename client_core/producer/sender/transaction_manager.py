"""Idempotence: producer id, epoch, and the sequence of each batch (IDM-01..05).

The name is Kafka's; transactions are not offered. One InitProducerId returns the id; Sender sends the request
built here (IDM-01). A batch gets its sequence at its first drain and keeps it over retries, so that a broker
drops duplicates (IDM-02). Only the lowest sequence of a partition is retried (IDM-03). A sequence can't be
repaired after a gap in the log, or when a sent batch is given up. Then the epoch is raised by one, locally,
and the partition begins at 0 again (IDM-04). Nothing new is drained to it until everything in flight under
the old epoch is finished (IDM-05).

Some errors end Java's idempotent producer for good (CLUSTER_AUTHORIZATION_FAILED, or a broker that does not
know Produce), and end this one too. With `restarts` only the waiting batches fail, and a new id is requested,
as a Java user would do with a new producer.

Decides only: Sender sends. I/O thread only, except `producer_id`, a plain read. Source: TransactionManager,
TxnPartitionMap, InitProducerIdRequest.Builder, Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.errors import (
    Cause,
    ClusterAuthorizationError,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
)
from client_core.producer.accumulator.partition_sequences import PartitionSequences, is_later
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.init_producer_id_request import InitProducerIdRequest
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.record.record_batch import increment_sequence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from client_core.backoff import ExponentialBackoff
    from client_core.cluster import TopicPartition
    from client_core.producer.accumulator.producer_batch import ProducerBatch, ProducerIdAndEpoch


_log: Final = logging.getLogger(__name__)

#: An epoch is an int16: after this one comes a new producer id.
_LAST_EPOCH: Final = 2**15 - 1

#: Unused partitions whose sequences are kept for the present epoch: beyond this number, a new epoch
#: drops them all. Half a kilobyte each.
MOST_LEFT: Final = 500

#: Errors that mean that the broker expects another sequence than ours.
_GAPS: Final = frozenset({Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, Errors.UNKNOWN_PRODUCER_ID})

#: Errors of a batch that end the producer's id. Source: TransactionManager.maybeTransitionToErrorState.
_FATAL: Final = frozenset(
    {
        Errors.CLUSTER_AUTHORIZATION_FAILED,
        Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Errors.PRODUCER_FENCED,
        Errors.UNSUPPORTED_VERSION,
        Errors.INVALID_PRODUCER_ID_MAPPING,
    }
)


#: Without a transactional id the broker ignores the timeout; Java sends the largest one.
_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1


class InitProducerIdRequestBuilder:
    """Requests a new producer id, without a transactional id."""

    api: Final = ApiKey.INIT_PRODUCER_ID
    oldest_allowed_version: Final = ApiKey.INIT_PRODUCER_ID.min_version
    latest_allowed_version: Final = ApiKey.INIT_PRODUCER_ID.max_version

    def encode(self, version: int) -> bytes:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        return request.encode(version)

    def decode_response(self, body: bytes, version: int) -> InitProducerIdResponse:
        return InitProducerIdResponse.decode(body, version)


class State(Enum):
    """The state of the producer id."""

    UNINITIALIZED = "uninitialized"  # there is none, and none was requested
    INITIALIZING = "initializing"  # InitProducerId is on its way, or waits to be tried again
    READY = "ready"
    UNAUTHORIZED = "unauthorized"  # refused; waiting batches must fail, then we may request again
    FATAL_ERROR = "fatal error"  # every batch fails, now and, without restarts, later


_MOVES: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.UNAUTHORIZED, State.FATAL_ERROR}),
    State.READY: frozenset({State.UNINITIALIZED, State.FATAL_ERROR}),
    State.UNAUTHORIZED: frozenset({State.UNINITIALIZED, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset({State.UNINITIALIZED}),
}


class TransactionManager:
    """The state of idempotence. Owned by the I/O thread."""

    def __init__(self, retry_backoff: ExponentialBackoff, *, restarts: bool = False) -> None:
        """`restarts`: whether a broker's fatal error can be left again. One of our own never is."""
        self._retry_backoff = retry_backoff
        self._restarts = restarts
        self.state = State.UNINITIALIZED
        self._producer: ProducerIdAndEpoch | None = None
        self._partitions: defaultdict[TopicPartition, PartitionSequences] = defaultdict(PartitionSequences)
        self._unresolved: dict[TopicPartition, int] = {}
        self._to_rewrite: set[TopicPartition] = set()
        self._left: dict[TopicPartition, None] = {}
        self._topic_ids: Mapping[str, UUID] = {}
        self._bump_required = False
        self._attempts = 0
        self._next_attempt_ms: int | None = None
        #: Whether InitProducerId was sent and not answered.
        self.init_in_flight = False
        #: Whether the last InitProducerId was rejected: it is retried only when there are records.
        self.init_was_refused = False
        #: InitProducerId's last error, and when the first one in a row came.
        self._init_failure: tuple[KafkaError, int] | None = None
        self.last_error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"<TransactionManager {self.state.name} {self._producer}>"

    # -- the producer id -------------------------------------------------------------------------------------

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch | None:
        return self._producer

    @property
    def producer_id(self) -> int | None:
        producer = self._producer
        return None if producer is None else producer.producer_id

    @property
    def has_producer_id(self) -> bool:
        return self._producer is not None

    @property
    def is_at_rest(self) -> bool:
        """Returns whether there is an id, and no work for a turn: true at nearly every turn."""
        return self.state is State.READY and not (self._bump_required or self._unresolved)

    @property
    def has_fatal_error(self) -> bool:
        return self.state is State.FATAL_ERROR

    @property
    def can_restart(self) -> bool:
        """Returns whether `restart` ends this fatal error, when all batches were failed."""
        return self._restarts and self.has_fatal_error

    def init_delay_ms(self, now_ms: int) -> int:
        """Returns the time until InitProducerId may be sent (again): the backoff of the last failure."""
        return 0 if self._next_attempt_ms is None else max(self._next_attempt_ms - now_ms, 0)

    def init_cause(self, now_ms: int) -> Cause | None:
        """Returns why there is no producer id: InitProducerId's last error. Any thread; a plain read."""
        failure = self._init_failure
        if failure is None or self.has_producer_id:
            return None
        error, since_ms = failure
        detail = f"no producer id was given: {error.message}"
        return Cause(error.error, None, self._attempts, max(now_ms - since_ms, 0), detail)

    def init_sent(self) -> None:
        """Notes that InitProducerId was sent."""
        if self.state is State.UNINITIALIZED:
            self._move_to(State.INITIALIZING)
        if self.init_in_flight or self.state is not State.INITIALIZING:
            raise IllegalStateError(
                f"InitProducerId can't be sent: {self!r}, in flight {self.init_in_flight}"
            )
        self.init_in_flight = True

    def init_succeeded(self, producer: ProducerIdAndEpoch) -> None:
        self.init_in_flight = False
        self.init_was_refused = False
        self._attempts = 0
        self._next_attempt_ms = None
        self._init_failure = None
        self.last_error = None
        self._begin_anew(producer)
        self._move_to(State.READY)  # last: without an id it would be ready for good

    def init_failed(self, error: KafkaError, now_ms: int) -> None:
        """Retries a retriable error after its backoff; an authorization may be granted later (IDM-01).

        Java retries at once after a refusal, and after the same pause after each failure; here the pauses
        grow.
        """
        self.init_in_flight = False
        self._next_attempt_ms = now_ms + self._retry_backoff.backoff_ms(self._attempts)
        self._attempts += 1
        since_ms = now_ms if self._init_failure is None else self._init_failure[1]
        self._init_failure = error, since_ms
        if error.retriable:
            _log.debug("InitProducerId failed, it will be tried again: %s", error)
            return
        self.last_error = error
        if isinstance(error, ClusterAuthorizationError):
            _log.info("InitProducerId was refused: %s", error)
            self.init_was_refused = True
            self._move_to(State.UNAUTHORIZED)
        elif isinstance(error, UnsupportedVersionError):
            self._to_fatal_error(error)
        else:
            self._to_fatal_error(KafkaError(f"Unexpected error in InitProducerIdResponse; {error.message}"))

    def waiting_batches_failed(self) -> None:
        """Makes the producer usable again, when all batches were failed for lack of an id (IDM-01).

        Batches with sequences of an earlier id are forgotten, or their partitions would wait for them
        forever.
        """
        self._move_to(State.UNINITIALIZED)
        self.last_error = None
        self._partitions.clear()
        self._unresolved.clear()
        self._to_rewrite.clear()
        self._left.clear()
        self._bump_required = False

    def restart(self, now_ms: int) -> None:
        """Restarts with another id, when there are records; all batches were failed by a fatal error.

        Waits for the failure's backoff: otherwise a broker that rejects each batch would get an id request
        for each. Batches sent under the old id may still be stored; their owners got an unknown outcome.
        """
        if not self.can_restart:
            raise IllegalStateError(f"nothing to restart: {self!r}")
        if self._next_attempt_ms is None:
            self._next_attempt_ms = now_ms + self._retry_backoff.backoff_ms(0)
        self._producer = None
        self.init_was_refused = True
        self.waiting_batches_failed()

    def bump_epoch_if_required(self) -> None:
        """Raises the epoch if a partition needs it; after the last epoch a new id is requested."""
        if not self._bump_required:
            return
        producer = self._producer
        if producer is None:
            return
        if producer.epoch == _LAST_EPOCH:
            _log.info("Producer id %s has used up its epochs, asking for a new one", producer.producer_id)
            # A partition that needs a new epoch is renumbered when the new id is there: see init_succeeded.
            self._producer = None
            self._move_to(State.UNINITIALIZED)
        else:
            self._begin_anew(producer._replace(epoch=producer.epoch + 1))

    def _begin_anew(self, producer: ProducerIdAndEpoch) -> None:
        """Sets id and epoch; partitions that need it restart at 0, healthy ones continue."""
        _log.info("Producer id is %s with epoch %s", producer.producer_id, producer.epoch)
        self._producer = producer
        for topic_partition in self._to_rewrite:
            self._partitions[topic_partition].start_at_beginning(producer)
            self._unresolved.pop(topic_partition, None)
        self._to_rewrite.clear()
        self._bump_required = False
        self._forget_left()

    # -- unused partitions -----------------------------------------------------------------------------------

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """Forgets these partitions later: nothing waits for them, and their topic is no longer held.

        Under the same producer id and epoch, a partition that restarted at 0 would look like a duplicate, and
        its records would be lost. So the sequences are kept until the epoch changes. Many such partitions
        together request a new epoch, which costs no request. Java keeps them forever.
        """
        self._left.update(
            dict.fromkeys(partition for partition in partitions if partition in self._partitions)
        )
        self._forget_left()
        if len(self._left) > MOST_LEFT and self.state is State.READY:
            self._bump_required = True

    def _forget_left(self) -> None:
        """Drops the sequences that no longer matter: the partition would begin at 0 anyway."""
        for topic_partition in tuple(self._left):
            entry = self._partitions.get(topic_partition)
            if entry is None:
                del self._left[topic_partition]
            elif entry.producer != self._producer and self._is_settled(topic_partition, entry):
                del self._left[topic_partition], self._partitions[topic_partition]

    def _is_settled(self, topic_partition: TopicPartition, entry: PartitionSequences) -> bool:
        is_open = topic_partition in self._unresolved or topic_partition in self._to_rewrite
        return not (entry.in_flight or is_open)

    # -- for the drain (RecordAccumulator) -------------------------------------------------------------------

    def follow(self, topic_ids: Mapping[str, UUID]) -> None:
        """Notes which topics were made again, by the ids in the present snapshot."""
        if topic_ids is self._topic_ids:
            return
        self._topic_ids = topic_ids
        for topic_partition, entry in self._partitions.items():
            entry.follow(topic_ids.get(topic_partition.topic))

    def must_wait(self, batch: ProducerBatch) -> bool:
        """Returns whether sending the batch now could break the sequence (IDM-03, IDM-05).

        A retry waits for all earlier sequences. A new batch waits while an earlier one may or may not be in
        the log, and while batches under another producer id or epoch are in flight. It also waits while a
        broker could mistake it, and reject an earlier batch forever. A broker knows the last five batches by
        their sequences. max.in.flight ensures that on one connection, but a moved leader has another
        connection. And while a batch that may be stored is retried, those behind it are acknowledged and make
        room for more. So all batches since the oldest in flight count, not only those in flight. From an
        unknown producer a broker accepts any sequence: a second batch, while the first must be sent again. So
        the first is sent alone, also after the topic was made again. Java sends in all these cases; the
        retried batch is then out of order until delivery.timeout.ms, or written again under the next epoch.
        """
        if self._producer is None:
            return True
        entry = self._partitions[batch.topic_partition]
        in_flight = entry.in_flight
        if batch.base_sequence is not None:
            return bool(in_flight) and batch.base_sequence != in_flight[0].base_sequence
        if in_flight and (entry.producer != self._producer or entry.is_window_full):
            return True
        return batch.topic_partition in self._unresolved

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assigns producer id, epoch and sequence at the batch's first drain, and tracks it (IDM-02).

        A batch keeps its sequence: a retry under another one could be written twice. The partition begins at
        0 under a new id or epoch once nothing is in flight under the older one. Raises IllegalStateError
        without a producer id.
        """
        producer = self._producer
        if producer is None:
            raise IllegalStateError(f"drained {batch!r} without a producer id")
        entry = self._partitions[batch.topic_partition]
        if entry.producer != producer and not entry.in_flight:
            entry.start_at_beginning(producer)
        if entry.topic_id is None:
            entry.topic_id = self._topic_ids.get(batch.topic_partition.topic)
        sequence = entry.next_sequence
        batch.set_producer_state(producer.producer_id, producer.epoch, sequence)
        entry.next_sequence = increment_sequence(sequence, batch.record_count)
        entry.add_in_flight(batch)
        self._left.pop(batch.topic_partition, None)
        _log.debug(
            "Assigned %s to batch with base sequence %s being sent to partition %s",
            producer,
            sequence,
            batch.topic_partition,
        )

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Tracks a part of a split batch, which has its sequence. Raises IllegalStateError without one."""
        if batch.base_sequence is None:
            raise IllegalStateError(
                f"Can't track batch for partition {batch.topic_partition} when sequence is not set."
            )
        self._partitions[batch.topic_partition].add_in_flight(batch)
        self._left.pop(batch.topic_partition, None)

    def has_in_flight_batches(self, topic_partition: TopicPartition) -> bool:
        return bool(self._partitions[topic_partition].in_flight)

    # -- outcomes of batches (Sender) ------------------------------------------------------------------------

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        self._partitions[batch.topic_partition].remove_in_flight(batch)

    def is_in_flight(self, batch: ProducerBatch) -> bool:
        """Returns whether the batch's sequences wait for an outcome."""
        return batch in self._partitions[batch.topic_partition].in_flight

    def handle_completed_batch(self, batch: ProducerBatch, base_offset: int | None) -> None:
        """Notes that the broker has the batch."""
        entry = self._partitions[batch.topic_partition]
        last = batch.last_sequence
        # A response under an older epoch has no meaning for the sequences of this one.
        if last is not None and entry.producer == (batch.producer_id, batch.producer_epoch):
            entry.acked(last)
        if base_offset is not None:
            entry.acked_offset(base_offset + batch.record_count - 1)
        entry.remove_in_flight(batch)

    def handle_failed_batch(self, batch: ProducerBatch, error: KafkaError, *, adjust_sequences: bool) -> None:
        """Notes that a batch was given up.

        `adjust_sequences`: its sequences are known not to be in the log, so there is a gap.
        """
        if error.error in _FATAL:
            self._to_fatal_error(error)
        self.remove_in_flight_batch(batch)
        if self.has_fatal_error or batch.base_sequence is None:
            return
        # For UNKNOWN_PRODUCER_ID Java forgets the partition, with its batches in flight.
        is_gap = adjust_sequences or error.error in _GAPS
        if is_gap and not self.has_in_flight_batches(batch.topic_partition):
            self.request_epoch_bump(batch.topic_partition)
        else:
            # Later batches may be in the log: their first attempt may be stored, and a broker that does not
            # know the producer accepts any sequence. Java renumbers them at once, so they are written twice
            # if their answer was lost. Their own answers show whether there is a gap.
            self.mark_sequence_unresolved(batch)

    def can_retry(self, batch: ProducerBatch, error: Errors, log_start_offset: int | None) -> bool:
        """Returns whether the batch may be sent again under its sequence, or under a new epoch that this
        requests (IDM-04).
        """
        topic_partition = batch.topic_partition
        if error is Errors.UNKNOWN_PRODUCER_ID:
            if log_start_offset is not None and not batch.sequence_has_been_reset:
                # The broker forgot us, by retention or by data loss: sequences must begin again.
                self.request_epoch_bump(topic_partition)
            return True
        if error is Errors.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._is_real_gap(batch):
                self.request_epoch_bump(topic_partition)
            return True
        return error.retriable

    def _is_real_gap(self, batch: ProducerBatch) -> bool:
        """Returns whether "out of order" means that something before this batch is missing for good."""
        first = batch.base_sequence
        if first is None or batch.sequence_has_been_reset:
            return False  # about earlier sequences
        entry = self._partitions[batch.topic_partition]
        if batch.topic_partition in self._unresolved:
            # Waits, unless nothing before this batch is pending. Java waits for the batch after the last one
            # that was given up: there may be none.
            return entry.in_flight[:1] == [batch]
        return entry.is_next(first)

    def request_epoch_bump(self, topic_partition: TopicPartition) -> None:
        """Requests a new epoch for the next turn, under which this partition begins at 0."""
        self._bump_required = True
        self._to_rewrite.add(topic_partition)

    def mark_sequence_unresolved(self, batch: ProducerBatch) -> None:
        """Notes that a batch was given up while it may be in the log:

        nothing new for its partition until that is known.
        """
        last = batch.last_sequence
        if last is None:
            return
        following = increment_sequence(last, 1)
        known = self._unresolved.get(batch.topic_partition)
        if known is None or is_later(following, than=known):
            self._unresolved[batch.topic_partition] = following

    def maybe_resolve_sequences(self) -> None:
        """Settles partitions that have nothing in flight any more:

        all acknowledged, or a new epoch is needed, unless the partition has yet to begin one.
        """
        for topic_partition in tuple(self._unresolved):
            entry = self._partitions[topic_partition]
            if entry.in_flight:
                continue
            del self._unresolved[topic_partition]
            if entry.producer == self._producer and not entry.is_next(entry.next_sequence):
                _log.info(
                    "No in-flight batches remain for %s, the last acknowledged sequence is %s, the next %s: "
                    "raising the epoch",
                    topic_partition,
                    entry.last_acked_sequence,
                    entry.next_sequence,
                )
                self.request_epoch_bump(topic_partition)

    # -- private ---------------------------------------------------------------------------------------------

    def _to_fatal_error(self, error: KafkaError) -> None:
        if self.state is State.FATAL_ERROR:
            return
        _log.error("The idempotent producer can't continue: %s", error)
        self.state, self.last_error = State.FATAL_ERROR, error

    def _move_to(self, state: State) -> None:
        if state not in _MOVES[self.state]:
            # A bug: the true sequences are unknown, so nothing may be sent under them.
            said = f"Invalid transition attempted from {self.state.name} to {state.name}"
            self._restarts = False
            self._to_fatal_error(KafkaError(said))
            raise IllegalStateError(said)
        self.state = state
