from __future__ import annotations

import pytest

from client_core.errors import IllegalStateError
from client_core.producer.results.batch_outcome import BatchOutcome, FinalState, may_end, spans_between
from client_core.record.record_content import TimestampRuns
from tests.producer.batches import Owner


@pytest.mark.parametrize("state", FinalState)
def test_an_open_batch_may_end_in_any_way(state: FinalState) -> None:
    assert may_end(None, state)


@pytest.mark.parametrize("late", [FinalState.SUCCEEDED, FinalState.FAILED])
@pytest.mark.parametrize("given_up", [FinalState.ABORTED, FinalState.FAILED])
def test_a_late_answer_to_a_batch_that_was_given_up_is_ignored(
    given_up: FinalState, late: FinalState
) -> None:
    assert not may_end(given_up, late)


@pytest.mark.parametrize("ended", [FinalState.SUCCEEDED, FinalState.SPLIT])
@pytest.mark.parametrize("after", FinalState)
def test_nothing_follows_a_success_or_a_split(ended: FinalState, after: FinalState) -> None:
    with pytest.raises(IllegalStateError, match=f"A {ended.name} batch must not .* to {after.name}"):
        may_end(ended, after)


@pytest.mark.parametrize("ended", [FinalState.ABORTED, FinalState.FAILED])
@pytest.mark.parametrize("after", [FinalState.ABORTED, FinalState.SPLIT])
def test_a_batch_that_was_given_up_is_neither_aborted_nor_split(ended: FinalState, after: FinalState) -> None:
    with pytest.raises(IllegalStateError):
        may_end(ended, after)


@pytest.mark.parametrize("base_offset", [None, 0, 70])
@pytest.mark.parametrize("log_append_time_ms", [None, 9])
def test_the_receipts_of_many_are_those_of_each(
    base_offset: int | None, log_append_time_ms: int | None
) -> None:
    timestamps = TimestampRuns()
    for start, timestamp_ms in ((0, 10), (3, 11), (7, 12)):
        timestamps.begin(start, timestamp_ms)
    outcome = BatchOutcome("orders", 2, base_offset, log_append_time_ms, None, None, None, timestamps, 0)
    for first in range(10):
        for count in range(10 - first):
            one_by_one = [outcome.metadata_for(position) for position in range(first, first + count)]
            assert outcome.receipts(first, count) == one_by_one


def test_spans_are_cut_where_the_batch_is_cut() -> None:
    one, two = Owner("one"), Owner("two")
    spans = [(one, range(10, 14), 0), (two, (7, 5), 4), (one, [99], 6)]
    assert spans_between(spans, 0, 3) == [(one, range(10, 13), 0)]
    assert spans_between(spans, 3, 5) == [(one, range(13, 14), 0), (two, (7,), 1)]
    assert spans_between(spans, 5, 7) == [(two, (5,), 0), (one, [99], 1)]
    assert spans_between(spans, 7, 9) == []
