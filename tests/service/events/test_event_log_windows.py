"""What became of batches, added up per topic, partition and broker."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from client_core import Errors, ProduceFinished
from service.events.event_v1 import bucket_of
from service.events.produce_windows import MOST_ROWS, ProduceWindow
from tests.support.event_log_rig import finished

WALL_MS = 1_795_255_200_000


def window(*batches: ProduceFinished) -> ProduceWindow:
    made = ProduceWindow(1_000)
    made.add(batches)
    return made


def test_acknowledged_batches_are_added_up_with_their_latencies() -> None:
    (row,) = window(
        finished(records=2, batch_bytes=100, produce_ms=5, retries=1),
        finished(records=3, batch_bytes=50, produce_ms=5),
        finished(records=4, batch_bytes=50, produce_ms=40),
    ).close(11_000, WALL_MS)
    assert (row.topic, row.partition, row.broker) == ("orders", 0, 1)
    assert (row.records, row.batches, row.bytes, row.retries) == (9, 3, 200, 1)
    assert row.latency_us == {str(bucket_of(5_000)): 5, str(bucket_of(40_000)): 4}
    assert row.errors == {}


def test_of_failed_batches_only_errors_and_batches_count() -> None:
    (row,) = window(
        finished(records=7, error=Errors.REQUEST_TIMED_OUT, retries=3),
        finished(records=1, error=Errors.REQUEST_TIMED_OUT),
        finished(records=2, error=Errors.MESSAGE_TOO_LARGE),
    ).close(11_000, WALL_MS)
    assert (row.records, row.batches, row.bytes, row.retries) == (0, 3, 0, 3)
    assert row.errors == {"REQUEST_TIMED_OUT": 8, "MESSAGE_TOO_LARGE": 2}
    assert row.latency_us == {}


def test_each_partition_and_each_broker_has_a_row() -> None:
    rows = window(
        finished(partition=0, node_id=1),
        finished(partition=0, node_id=2),
        finished(partition=1, node_id=1),
        finished(partition=0, node_id=None, error=Errors.REQUEST_TIMED_OUT),
        finished("refunds"),
    ).close(11_000, WALL_MS)
    assert {(row.topic, row.partition, row.broker) for row in rows} == {
        ("orders", 0, 1),
        ("orders", 0, 2),
        ("orders", 1, 1),
        ("orders", 0, None),
        ("refunds", 0, 1),
    }


def test_it_is_as_long_by_the_calendar_as_by_the_clock_and_the_next_begins_at_its_end() -> None:
    open_window = window(finished())
    (row,) = open_window.close(11_500, WALL_MS)
    assert (row.started_at, row.observed_at) == ("2026-11-21T09:59:49.500000Z", "2026-11-21T10:00:00.000000Z")
    open_window.add([finished()])
    (row,) = open_window.close(12_500, WALL_MS + 1_000)
    assert row.started_at == "2026-11-21T10:00:00.000000Z"


def test_one_in_which_nothing_finished_tells_nothing() -> None:
    open_window = window(finished())
    open_window.close(11_000, WALL_MS)
    assert open_window.close(21_000, WALL_MS) == []


def test_it_has_so_many_rows_and_counts_what_found_none() -> None:
    open_window = window(*(finished(partition=n) for n in range(MOST_ROWS + 3)), finished(partition=0))
    rows = open_window.close(11_000, WALL_MS)
    assert len(rows) == MOST_ROWS
    assert sum(row.batches for row in rows) == MOST_ROWS + 1
    assert open_window.left_out == 3


batches = st.lists(
    st.builds(
        finished,
        st.sampled_from(["orders", "refunds"]),
        st.integers(0, 2),
        records=st.integers(1, 100),
        batch_bytes=st.integers(1, 1_000),
        produce_ms=st.integers(0, 120_000),
        retries=st.integers(0, 3),
        error=st.sampled_from([Errors.NONE, Errors.NONE, Errors.NETWORK_EXCEPTION]),
    ),
    max_size=30,
)


@given(batches, batches)
def test_windows_add_up_to_the_window_of_all(
    some: list[ProduceFinished], others: list[ProduceFinished]
) -> None:
    def sums(*windows: ProduceWindow) -> Counter[tuple[object, ...]]:
        found: Counter[tuple[object, ...]] = Counter()
        for row in (row for one in windows for row in one.close(11_000, WALL_MS)):
            key = (row.topic, row.partition)
            for name in ("records", "batches", "bytes", "retries"):
                found[(*key, name)] += getattr(row, name)
            for name, counts in (("errors", row.errors), ("latency", row.latency_us)):
                for what, records in counts.items():
                    found[(*key, name, what)] += records
        return found

    assert sums(window(*some), window(*others)) == sums(window(*some, *others))


@given(batches)
def test_every_record_is_in_the_histogram_or_among_the_errors(done: list[ProduceFinished]) -> None:
    rows = window(*done).close(11_000, WALL_MS)
    assert all(sum(row.latency_us.values()) == row.records for row in rows)
    failed = sum(batch.records for batch in done if batch.error is not Errors.NONE)
    assert sum(sum(row.errors.values()) for row in rows) == failed
    assert sum(row.batches for row in rows) == len(done)
