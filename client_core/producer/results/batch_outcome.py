"""The outcome of a batch's records, and the owners to report it to.

A RecordOwner is a request of one record or of ten thousand. A batch keeps spans, not one future per record. A
span is an owner, the indices of its records, and their position in the batch. All spans of a batch share one
outcome. Offsets, timestamps and errors are computed on demand. Immutable; made by the I/O thread, read by any
thread. Source: ProduceRequestResult, FutureRecordMetadata, Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from client_core.errors import IllegalStateError
from client_core.producer.results.producer_record import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.errors import KafkaError
    from client_core.producer.results.ticket import Written
    from client_core.record.record_content import TimestampRuns


class RecordOwner(Protocol):
    """Receives the outcome of records. Compared by identity."""

    @property
    def was_given_up(self) -> bool:
        """Whether records without an outcome were already reported as failed."""
        ...

    def batch_done(self, indices: Sequence[int], first_in_batch: int, outcome: BatchOutcome, /) -> None:
        """Reports the outcome of the records `indices`, which begin at `first_in_batch` in the batch.

        Called once per span, in the order of appending, on the thread that completes the batch, without a
        lock. It must not block and should not raise. An exception is logged, and the other owners are still
        notified.
        """
        ...


#: An owner, indices of records in its request, and the position of the first of them in the batch. The others
#: follow it.
Span = tuple[RecordOwner, Sequence[int], int]


class BatchOutcome(NamedTuple):
    """How a batch ended, for all of its spans. Positions count from the batch's first record."""

    topic: str
    partition: int
    base_offset: int | None  # None: failed, or the broker did not say (acks=0, an old duplicate)
    log_append_time_ms: int | None  # None: records keep their own timestamps
    error: KafkaError | None  # None: acknowledged
    written: Written | None  # whether a failed batch may be in the log; None if acknowledged
    record_errors: Callable[[int], KafkaError] | None
    timestamps: TimestampRuns
    attempts: int

    def error_for(self, position: int) -> KafkaError | None:
        """Returns why the record at a position failed; None if it was acknowledged."""
        if self.error is None or self.record_errors is None:
            return self.error
        return self.record_errors(position)

    def metadata_for(self, position: int) -> RecordMetadata:
        """Returns the receipt for the record at a position of an acknowledged batch."""
        timestamp_ms = self.log_append_time_ms
        return RecordMetadata(
            self.topic,
            self.partition,
            None if self.base_offset is None else self.base_offset + position,
            self.timestamps.at(position) if timestamp_ms is None else timestamp_ms,
        )

    def timestamps_of(self, first: int, count: int) -> list[tuple[int, int, int]]:
        """Returns the timestamps of `count` positions from `first` on, as runs: start, end, timestamp."""
        end, log_append_ms = first + count, self.log_append_time_ms
        return self.timestamps.between(first, end) if log_append_ms is None else [(first, end, log_append_ms)]

    def receipts(self, first: int, count: int) -> list[RecordMetadata]:
        """Returns `metadata_for` of `count` positions from `first` on, for requests of many records."""
        topic, partition, base_offset = self.topic, self.partition, self.base_offset
        receipts: list[RecordMetadata] = []
        for run_start, run_end, timestamp_ms in self.timestamps_of(first, count):
            if base_offset is None:
                receipts += [RecordMetadata(topic, partition, None, timestamp_ms)] * (run_end - run_start)
            else:
                offsets = range(base_offset + run_start, base_offset + run_end)
                receipts += [RecordMetadata(topic, partition, offset, timestamp_ms) for offset in offsets]
        return receipts


class FinalState(Enum):
    """How a batch ended."""

    ABORTED = "aborted"
    FAILED = "failed"
    SUCCEEDED = "succeeded"
    SPLIT = "split"


#: The allowed transitions: True is done, False is ignored, such as a late answer to an aborted batch. Any
#: other pair is a bug.
_MOVES: Final[Mapping[tuple[FinalState | None, FinalState], bool]] = {
    (None, FinalState.ABORTED): True,
    (None, FinalState.FAILED): True,
    (None, FinalState.SUCCEEDED): True,
    (None, FinalState.SPLIT): True,
    (FinalState.ABORTED, FinalState.FAILED): False,
    (FinalState.ABORTED, FinalState.SUCCEEDED): False,
    (FinalState.FAILED, FinalState.FAILED): False,
    (FinalState.FAILED, FinalState.SUCCEEDED): False,
}


def may_end(before: FinalState | None, after: FinalState) -> bool:
    """Returns whether a batch may go from `before` (None: open) to `after`.

    If False, the caller ignores the change (BAT-01).

    Raises IllegalStateError for a transition that must never happen.
    """
    allowed = _MOVES.get((before, after))
    if allowed is None:
        name = "open" if before is None else before.name
        raise IllegalStateError(f"A {name} batch must not attempt another state change to {after.name}")
    return allowed


def spans_between(spans: Sequence[Span], first: int, end: int) -> list[Span]:
    """Returns the parts of the spans at the positions from `first` to before `end`.

    The new positions are counted from `first`.
    """
    parts = []
    for owner, indices, start in spans:
        low, high = max(start, first), min(start + len(indices), end)
        if low < high:
            parts.append((owner, indices[low - start : high - start], low - first))
    return parts
