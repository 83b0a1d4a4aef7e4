from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from client_core.record.record_content import TimestampRuns


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_every_record_has_the_timestamp_that_it_was_appended_with(timestamps: list[int]) -> None:
    runs = TimestampRuns()
    for position, timestamp in enumerate(timestamps):
        if position == 0 or timestamp != timestamps[position - 1]:
            runs.begin(position, timestamp)
    assert [runs.at(position) for position in range(len(timestamps))] == timestamps
    for first in range(len(timestamps)):
        for end in range(first, len(timestamps) + 1):
            between = runs.between(first, end)
            assert [ms for start, stop, ms in between for _ in range(start, stop)] == timestamps[first:end]
            assert [start for start, _, _ in between[1:]] == [stop for _, stop, _ in between[:-1]]


def test_the_runs_before_a_position_are_those_that_begin_before_it() -> None:
    runs = TimestampRuns()
    for start, timestamp in ((0, 10), (3, 11), (7, 12)):
        runs.begin(start, timestamp)
    assert runs.before(0) == []
    assert runs.before(7) == [(0, 10), (3, 11)]
    assert runs.before(8) == [(0, 10), (3, 11), (7, 12)]
