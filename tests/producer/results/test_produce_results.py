"""What a produce request ended with, told record by record and in runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import KafkaError
from client_core.producer.results.batch_outcome import BatchOutcome
from client_core.producer.results.producer_record import RecordMetadata
from client_core.producer.results.results import (
    AcknowledgedRun,
    BatchSpan,
    FailedSpan,
    ListingResult,
    ProduceResult,
    TopicConfigsResult,
)
from client_core.producer.results.ticket import Phase, RecordFailure, Written
from client_core.record.record_content import TimestampRuns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.producer.results.results import Outcome


def outcome(
    partition: int = 0,
    base_offset: int | None = 100,
    *,
    log_append_time_ms: int | None = None,
    timestamps: Sequence[tuple[int, int]] = ((0, 17),),
    error: KafkaError | None = None,
) -> BatchOutcome:
    runs = TimestampRuns()
    for position, timestamp_ms in timestamps:
        runs.begin(position, timestamp_ms)
    return BatchOutcome("t", partition, base_offset, log_append_time_ms, error, None, None, runs, 0)


def unfolded(runs: Sequence[AcknowledgedRun]) -> list[Outcome]:
    """One receipt a record."""
    receipts: list[Outcome] = []
    for records, partition, base, timestamp_ms in runs:
        offsets = [None if base is None else base + n for n in range(records)]
        receipts += [RecordMetadata("t", partition, offset, timestamp_ms) for offset in offsets]
    return receipts


FAILED = RecordFailure(KafkaError("given up"), Phase.DELIVERY, Written.NO, 3)


def test_records_of_one_batch_are_one_run() -> None:
    result = ProduceResult(3, [BatchSpan(range(3), 5, outcome(2))], 1)
    assert result.acknowledged_runs() == [AcknowledgedRun(3, 2, 105, 17)]
    assert result.any_acknowledged


def test_batches_that_were_answered_in_another_order_stand_in_that_of_their_records() -> None:
    spans = [BatchSpan([2, 3], 0, outcome(1, 50)), BatchSpan([0, 1], 7, outcome(0))]
    assert ProduceResult(4, spans, 1).acknowledged_runs() == [
        AcknowledgedRun(2, 0, 107, 17),
        AcknowledgedRun(2, 1, 50, 17),
    ]


def test_the_brokers_time_is_that_of_all() -> None:
    timestamps = ((0, 1), (2, 5))
    own = ProduceResult(3, [BatchSpan(range(3), 0, outcome(timestamps=timestamps))], 1)
    assert own.acknowledged_runs() == [AcknowledgedRun(2, 0, 100, 1), AcknowledgedRun(1, 0, 102, 5)]
    brokers = outcome(timestamps=timestamps, log_append_time_ms=9)
    assert ProduceResult(3, [BatchSpan(range(3), 0, brokers)], 1).acknowledged_runs() == [
        AcknowledgedRun(3, 0, 100, 9)
    ]


def test_records_that_alternate_between_partitions_are_told_one_by_one() -> None:
    spans = [BatchSpan([0, 2], 0, outcome(0)), BatchSpan([1, 3], 0, outcome(1))]
    assert ProduceResult(4, spans, 1).acknowledged_runs() is None


def test_where_anything_failed_there_are_no_runs() -> None:
    one_failed = ProduceResult(3, [BatchSpan(range(2), 0, outcome()), FailedSpan([2], FAILED)], 1)
    assert one_failed.acknowledged_runs() is None
    assert one_failed.any_acknowledged
    refused = ProduceResult(2, [BatchSpan(range(2), 0, outcome(error=KafkaError("no")))], 1)
    assert refused.acknowledged_runs() is None
    assert not refused.any_acknowledged


def test_what_is_not_accounted_for_is_in_no_run() -> None:
    assert ProduceResult(3, [BatchSpan(range(2), 0, outcome())], 1).acknowledged_runs() is None


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    spread=st.booleans(),
    order=st.randoms(use_true_random=False),
    first=st.integers(0, 3),
    base_offset=st.none() | st.integers(0, 2**62),
)
def test_runs_are_what_the_outcomes_are(
    sizes: list[int], spread: bool, order: st.DrawFn, first: int, base_offset: int | None
) -> None:
    count = sum(sizes)
    indices = list(range(count))
    if spread:
        order.shuffle(indices)  # type: ignore[attr-defined]  # a Random
    spans, at = [], 0
    for partition, size in enumerate(sizes):
        timestamps = [(0, partition), (first + 2, 99)]
        mine = sorted(indices[at : at + size])
        spans.append(BatchSpan(mine, first, outcome(partition, base_offset, timestamps=timestamps)))
        at += size
    order.shuffle(spans)  # type: ignore[attr-defined]  # a Random
    result = ProduceResult(count, spans, 1)
    runs = result.acknowledged_runs()
    if runs is not None:
        assert unfolded(runs) == list(result.outcomes)
    else:
        assert spread


def test_a_result_that_holds_nothing_says_why_and_how_long_it_waited() -> None:
    error = KafkaError("no")
    for result in (
        ListingResult(None, error=error, waited_ms=5),
        TopicConfigsResult(None, error=error, waited_ms=5),
    ):
        assert (result.error, result.waited_ms) == (error, 5)
        assert repr(result).endswith("=None error=KafkaError('no') waited_ms=5>"), repr(result)
