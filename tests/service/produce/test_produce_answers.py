"""The bytes of an answer: told in runs they are those that the receipts make one by one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import AcknowledgedRun, RecordMetadata
from service.produce.produce_answers import answer_of, answer_of_runs

RUNS = st.lists(
    st.builds(
        AcknowledgedRun,
        st.integers(1, 4),
        st.integers(0, 2**31 - 1),
        st.none() | st.integers(0, 2**62),
        st.integers(-1, 2**62),
    ),
    min_size=1,
    max_size=4,
)


@given(runs=RUNS)
def test_runs_are_told_as_their_records_would_be(runs: list[AcknowledgedRun]) -> None:
    receipts = [
        RecordMetadata("orders", partition, None if base is None else base + n, timestamp_ms)
        for records, partition, base, timestamp_ms in runs
        for n in range(records)
    ]
    assert answer_of_runs("orders", runs, 200) == answer_of("orders", receipts, 200)


@pytest.mark.parametrize("count", [5_000, 5_001, 10_001])
def test_a_long_answer_has_a_result_for_each_record(count: int) -> None:
    receipts = [RecordMetadata("orders", 0, 7 + n, 5) for n in range(count)]
    answer = answer_of("orders", receipts, 200)
    assert [result["offset"] for result in json.loads(answer.body)["results"]] == list(range(7, 7 + count))
    assert answer_of_runs("orders", [AcknowledgedRun(count, 0, 7, 5)], 200) == answer
