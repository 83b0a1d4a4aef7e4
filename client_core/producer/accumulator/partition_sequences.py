"""Sequence numbers of one partition: next to assign, last acknowledged, in flight.

Brokers detect duplicates and gaps by producer id, epoch and sequence. A partition's sequence counts records,
wraps from 2147483647 to 0 (REC-04) and begins at 0 with each new producer id or epoch. TransactionManager
makes the decisions. I/O thread only. Source: TxnPartitionEntry, DefaultRecordBatch, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from client_core.record.record_batch import increment_sequence

if TYPE_CHECKING:
    from uuid import UUID

    from client_core.producer.accumulator.producer_batch import ProducerBatch, ProducerIdAndEpoch

#: Per producer and partition, to detect duplicates. Source: ProducerStateEntry.NUM_BATCHES_TO_RETAIN.
_BATCHES_THAT_BROKERS_REMEMBER: Final = 5

#: The number of sequence numbers: the non-negative int32.
_SEQUENCES: Final = 2**31


def is_later(sequence: int, than: int) -> bool:
    """Returns whether a sequence was assigned after another one, also over the wrap.

    At most five batches are in flight, so two compared sequences are never half the range apart. Java
    compares plain integers, which fails at the wrap.
    """
    return 0 < (sequence - than) % _SEQUENCES < _SEQUENCES // 2


@dataclass(slots=True, eq=False)
class PartitionSequences:
    """One partition's sequences. `in_flight`: drained and not finished, in the order of their sequences."""

    producer: ProducerIdAndEpoch | None = None
    next_sequence: int = 0
    last_acked_sequence: int | None = None
    last_acked_offset: int | None = None
    topic_id: UUID | None = None
    #: `next_sequence` at the time when the topic was recreated; None once that sequence or a later one is
    #: acknowledged.
    _first_of_new_log: int | None = None
    in_flight: list[ProducerBatch] = field(default_factory=list)
    #: Per batch in flight: how many batches were ever added after it, finished ones included.
    _followers: dict[ProducerBatch, int] = field(default_factory=dict)

    @property
    def batches_since_oldest(self) -> int:
        """Returns how many batches a broker may have got, from the oldest one in flight on; 0 without any."""
        return self._followers[self.in_flight[0]] + 1 if self.in_flight else 0

    @property
    def is_window_full(self) -> bool:
        """Returns whether sending one more batch is unsafe: see TransactionManager.must_wait."""
        is_known = self.last_acked_sequence is not None and self._first_of_new_log is None
        safe = _BATCHES_THAT_BROKERS_REMEMBER if is_known else 1
        return self.batches_since_oldest >= safe

    def add_in_flight(self, batch: ProducerBatch) -> None:
        """Adds a batch in order: mostly at the end; parts of a split batch go to its position."""
        place = len(self.in_flight)
        while place and _precedes(batch, self.in_flight[place - 1]):
            place -= 1
        for before in self.in_flight[:place]:
            self._followers[before] += 1
        behind = self.in_flight[place] if place < len(self.in_flight) else None
        self._followers[batch] = 0 if behind is None else self._followers[behind] + 1
        self.in_flight.insert(place, batch)

    def remove_in_flight(self, batch: ProducerBatch) -> None:
        """Removes a batch, by identity: two may have the same sequence under different epochs."""
        self.in_flight = [other for other in self.in_flight if other is not batch]
        self._followers.pop(batch, None)

    def acked(self, sequence: int) -> None:
        """Notes an acknowledged sequence; answers may come out of order."""
        if self.last_acked_sequence is None or is_later(sequence, self.last_acked_sequence):
            self.last_acked_sequence = sequence
        if self._first_of_new_log is not None and not is_later(self._first_of_new_log, sequence):
            self._first_of_new_log = None

    def follow(self, topic_id: UUID | None) -> None:
        """Notes the topic's id, if it is known. Brokers know no producer of a recreated topic."""
        if topic_id is None or topic_id == self.topic_id:
            return
        if self.topic_id is not None:
            self._first_of_new_log = self.next_sequence
        self.topic_id = topic_id

    def acked_offset(self, offset: int) -> None:
        if self.last_acked_offset is None or offset > self.last_acked_offset:
            self.last_acked_offset = offset

    def is_next(self, sequence: int) -> bool:
        """Returns whether the sequence follows the last acknowledged one without a gap."""
        if self.last_acked_sequence is None:
            return sequence == 0
        return sequence == increment_sequence(self.last_acked_sequence, 1)

    def start_at_beginning(self, producer: ProducerIdAndEpoch) -> None:
        """Renumbers batches in flight from 0 under another producer id or epoch, in their order (IDM-04)."""
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer_state(producer.producer_id, producer.epoch, sequence)
            sequence = increment_sequence(sequence, batch.record_count)
        self.producer = producer
        self.next_sequence = sequence
        self.last_acked_sequence = self._first_of_new_log = None
        # Under the new epoch a broker has none of them yet.
        self._followers = {batch: n for n, batch in enumerate(reversed(self.in_flight))}


def _precedes(batch: ProducerBatch, other: ProducerBatch) -> bool:
    """Returns whether a batch must be in the log before another one of its partition."""
    mine = (batch.producer_id or 0, batch.producer_epoch or 0)
    theirs = (other.producer_id or 0, other.producer_epoch or 0)
    if mine != theirs:
        return mine < theirs
    if batch.base_sequence is None or other.base_sequence is None:
        return False
    return is_later(other.base_sequence, than=batch.base_sequence)
