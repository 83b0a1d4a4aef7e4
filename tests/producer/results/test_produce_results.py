"""The results of records and produce requests: futures, outcomes, runs, and when they are reported.

Twins of RecordSendTest and FutureRecordMetadataTest.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import CorruptRecordError, IllegalStateError, KafkaError, TimeoutError
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.producer.results.batch_outcome import BatchOutcome, FinalState, may_end, spans_between
from client_core.producer.results.future_record_metadata import FutureRecordMetadata
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.producer.results.results import (
    AcknowledgedRun,
    BatchSpan,
    FailedSpan,
    ListingResult,
    ProduceResult,
    TopicConfigsResult,
)
from client_core.producer.results.ticket import CallInline, Completions, Phase, RecordFailure, Written
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from client_core.record.record_content import TimestampRuns
from tests.producer.batches import Owner
from tests.support.sender_rig import ORDERS_0

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.producer.results.results import Outcome
    from client_core.producer.results.ticket import Done, Result


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


_TIMESTAMPS = ((0, 1), (2, 5))
_FAILED_BATCH = BatchSpan(range(2), 0, outcome(error=KafkaError("no")))
#: The number of records of a request, their outcomes, and the runs that are reported.
RUNS: Final[dict[str, tuple[int, list[BatchSpan | FailedSpan], list[AcknowledgedRun] | None]]] = {
    "one batch": (3, [BatchSpan(range(3), 5, outcome(2))], [AcknowledgedRun(3, 2, 105, 17)]),
    "answered in another order": (
        4,
        [BatchSpan([2, 3], 0, outcome(1, 50)), BatchSpan([0, 1], 7, outcome(0))],
        [AcknowledgedRun(2, 0, 107, 17), AcknowledgedRun(2, 1, 50, 17)],
    ),
    "times of their own": (
        3,
        [BatchSpan(range(3), 0, outcome(timestamps=_TIMESTAMPS))],
        [AcknowledgedRun(2, 0, 100, 1), AcknowledgedRun(1, 0, 102, 5)],
    ),
    "the broker's time": (
        3,
        [BatchSpan(range(3), 0, outcome(timestamps=_TIMESTAMPS, log_append_time_ms=9))],
        [AcknowledgedRun(3, 0, 100, 9)],
    ),
    "alternating partitions": (
        4,
        [BatchSpan([0, 2], 0, outcome(0)), BatchSpan([1, 3], 0, outcome(1))],
        None,
    ),
    "one failed": (3, [BatchSpan(range(2), 0, outcome()), FailedSpan([2], FAILED)], None),
    "refused": (2, [_FAILED_BATCH], None),
    "one unaccounted for": (3, [BatchSpan(range(2), 0, outcome())], None),
}


def test_acknowledged_records_are_reported_as_runs_unless_any_failed_or_partitions_alternate() -> None:
    results = {name: ProduceResult(count, spans, 1) for name, (count, spans, _) in RUNS.items()}
    assert {name: result.acknowledged_runs() for name, result in results.items()} == {
        name: runs for name, (_, _, runs) in RUNS.items()
    }
    acknowledged = {name: results[name].any_acknowledged for name in ("one batch", "one failed", "refused")}
    assert acknowledged == {"one batch": True, "one failed": True, "refused": False}


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
    for kind in (ListingResult, TopicConfigsResult):
        result = kind(None, error=error, waited_ms=5)
        assert (result.error, result.waited_ms) == (error, 5)
        assert (result.outcomes, result.any_acknowledged) == ((), False)
        assert repr(result).endswith("=None error=KafkaError('no') waited_ms=5>"), repr(result)


# -- the outcome of a batch ----------------------------------------------------------------------------------


def test_an_open_batch_may_end_in_any_way_and_a_late_answer_to_one_that_was_given_up_is_ignored() -> None:
    assert {state: may_end(None, state) for state in FinalState} == dict.fromkeys(FinalState, True)
    for given_up in (FinalState.ABORTED, FinalState.FAILED):
        late = (FinalState.SUCCEEDED, FinalState.FAILED)
        assert [may_end(given_up, state) for state in late] == [False, False]


def test_nothing_follows_a_success_or_a_split_and_what_was_given_up_is_neither_aborted_nor_split() -> None:
    for ended in FinalState:
        is_given_up = ended in (FinalState.ABORTED, FinalState.FAILED)
        for after in (FinalState.ABORTED, FinalState.SPLIT) if is_given_up else FinalState:
            with pytest.raises(IllegalStateError, match=f"A {ended.name} batch must not .* to {after.name}"):
                may_end(ended, after)


def test_the_receipts_of_many_are_those_of_each() -> None:
    for base_offset, log_append_time_ms in itertools.product([None, 0, 70], [None, 9]):
        ended = outcome(
            2, base_offset, log_append_time_ms=log_append_time_ms, timestamps=((0, 10), (3, 11), (7, 12))
        )
        for first in range(10):
            for count in range(10 - first):
                one_by_one = [ended.metadata_for(position) for position in range(first, first + count)]
                assert ended.receipts(first, count) == one_by_one


def test_spans_are_cut_where_the_batch_is_cut() -> None:
    one, two = Owner("one"), Owner("two")
    spans = [(one, range(10, 14), 0), (two, (7, 5), 4), (one, [99], 6)]
    assert spans_between(spans, 0, 3) == [(one, range(10, 13), 0)]
    assert spans_between(spans, 3, 5) == [(one, range(13, 14), 0), (two, (7,), 1)]
    assert spans_between(spans, 5, 7) == [(two, (5,), 0), (one, [99], 1)]
    assert spans_between(spans, 7, 9) == []


# -- completions ---------------------------------------------------------------------------------------------


class Posts:
    def __init__(self) -> None:
        self.posted: list[list[Result]] = []

    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        self.posted.append([result for _, result in finished])


class BrokenSink:
    def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
        raise RuntimeError("the loop is closed")


def ignore(result: Result) -> None:
    """Nobody listens."""


def test_results_are_posted_together_and_in_order_and_after_the_end_by_the_adding_thread() -> None:
    sink = Posts()
    completions = Completions(sink)
    completions.post()
    assert sink.posted == [], "nothing is finished"
    first, second, waiting, late = (ProduceResult(0, (), 0) for _ in range(4))
    completions.add(ignore, first)
    completions.add(ignore, second)
    assert completions.finished
    assert sink.posted == []
    completions.post()
    assert sink.posted == [[first, second]]
    assert not completions.finished
    completions.add(ignore, waiting)
    completions.post_from_now_on()
    completions.add(ignore, late)
    assert sink.posted == [[first, second], [waiting], [late]]


def test_a_call_that_waits_for_results_comes_after_those_that_were_there_even_at_the_end() -> None:
    order: list[str] = []
    completions: Completions

    class Sink:
        def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
            # As another thread may call it now.
            completions.call_when_posted(lambda: order.append("waited"))
            order.append(f"posted {len(finished)}")

    completions = Completions(Sink())
    completions.call_when_posted(lambda: order.append("nothing to wait for"))
    completions.post()
    completions.add(ignore, ProduceResult(0, (), 0))
    completions.post()
    completions.post()
    completions.add(ignore, ProduceResult(0, (), 0))
    completions.post_from_now_on()
    assert order == ["nothing to wait for", "posted 1", "waited", "posted 1", "waited"]


def test_results_that_are_added_under_a_lock_are_posted_after_it() -> None:
    sink = Posts()
    completions = Completions(sink)
    completions.post_from_now_on()
    completions.post_later()
    completions.add(ignore, ProduceResult(0, (), 0))
    completions.post_at_once()
    assert sink.posted == []
    completions.post()
    assert len(sink.posted) == 1


def test_a_sink_that_fails_is_logged_and_no_more_and_calls_go_on_after_a_callback_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    completions = Completions(BrokenSink())
    completions.add(ignore, ProduceResult(0, (), 0))
    completions.post()
    assert "The completion sink failed on 1 finished tickets" in caplog.text

    heard: list[Result] = []

    def fail(result: Result) -> None:
        raise RuntimeError("a bug of the user's")

    completions = Completions(CallInline())
    completions.add(fail, ProduceResult(0, (), 0))
    completions.add(heard.append, ProduceResult(0, (), 0))
    completions.post()
    assert len(heard) == 1
    assert "A callback failed" in caplog.text


def test_results_that_a_sink_had_no_memory_for_are_posted_next_time_in_their_order() -> None:
    posted: list[list[Result]] = []

    class ShortSink:
        def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
            posted.append([result for _, result in finished])
            if len(posted) == 1:
                raise MemoryError("no room for a handle")

    completions = Completions(ShortSink())
    first, second, third = (ProduceResult(0, (), number) for number in range(3))
    completions.add(ignore, first)
    completions.add(ignore, second)
    waited: list[int] = []
    completions.call_when_posted(lambda: waited.append(len(posted)))
    completions.post()
    assert (waited, completions.is_reported) == ([], False)
    completions.add(ignore, third)
    completions.post()
    assert posted == [[first, second], [first, second, third]]
    assert (waited, completions.is_reported) == ([2], True)


def test_a_sink_without_memory_at_the_end_gets_its_results_with_the_next_ones() -> None:
    posted: list[list[Result]] = []

    class ShortSink:
        is_short = True

        def post(self, finished: Sequence[tuple[Done, Result]], /) -> None:
            if self.is_short:
                raise MemoryError("no room for a handle")
            posted.append([result for _, result in finished])

    sink = ShortSink()
    completions = Completions(sink)
    last, late = ProduceResult(0, (), 0), ProduceResult(0, (), 1)
    completions.add(ignore, last)
    completions.post_from_now_on()
    sink.is_short = False
    completions.add(ignore, late)
    assert posted == [[last, late]]


# -- the future of a sent record -----------------------------------------------------------------------------


def batch_of(*futures: FutureRecordMetadata) -> ProducerBatch:
    """A batch with one record for each."""
    batch = ProducerBatch(ORDERS_0, MemoryRecordsBuilder(10_000), 0)
    for future in futures:
        batch.append_many([ProducerRecord("orders", b"v")], (0,), 0, future, wall_ms=50)
    return batch


@pytest.mark.java("RecordSendTest.Timeout", "RecordMetadataTest.ConstructionWithBatchIndexOffset")
def test_it_times_out_until_it_is_done_and_then_has_its_offset() -> None:
    futures = [FutureRecordMetadata() for _ in range(3)]
    batch = batch_of(*futures)
    assert not futures[2].done()
    with pytest.raises(TimeoutError, match="Timeout after waiting for 0 s"):
        futures[2].result(0)
    batch.complete(45, None)
    assert futures[2].done()
    assert futures[2].result(0) == RecordMetadata("orders", 0, 47, 50)
    assert futures[2].exception(0) is None


@pytest.mark.java("RecordSendTest.Error")
def test_it_raises_what_the_batch_failed_with() -> None:
    future = FutureRecordMetadata()
    batch_of(future).complete_exceptionally(CorruptRecordError("broken"))
    with pytest.raises(CorruptRecordError, match="broken"):
        future.result()
    assert isinstance(future.exception(), CorruptRecordError)


def test_an_error_that_is_raised_often_keeps_a_traceback_of_one_raise() -> None:
    futures = [FutureRecordMetadata() for _ in range(5)]
    batch_of(*futures).complete_exceptionally(CorruptRecordError("broken"))
    depths = []
    for future in futures:
        with pytest.raises(CorruptRecordError) as raised:
            future.result()
        depths.append(len(raised.traceback))
    assert depths == [depths[0]] * 5


def test_a_raised_error_goes_with_its_future_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        future, batch_error = FutureRecordMetadata(), CorruptRecordError("broken")
        batch_of(future).complete_exceptionally(batch_error)
        seen = weakref.ref(batch_error)
        del batch_error
        with suppress(CorruptRecordError):  # pytest.raises would keep it
            future.result()
        assert seen() is not None
        del future
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.java("RecordSendTest.Blocking")
def test_it_blocks_until_another_thread_completes_it() -> None:
    future = FutureRecordMetadata()
    batch = batch_of(future)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(future.result, 30)
        batch.complete(7, 99)
        assert waiting.result(30) == RecordMetadata("orders", 0, 7, 99)


@pytest.mark.java("FutureRecordMetadataTest.FutureGetWithSeconds")
def test_a_wait_in_seconds_is_for_the_batch_and_for_the_parts_that_it_was_split_into() -> None:
    futures = [FutureRecordMetadata() for _ in range(2)]
    parts = batch_of(*futures).split(1)
    assert not futures[0].done()
    with pytest.raises(TimeoutError, match=r"Timeout after waiting for 0\.001 s\."):
        futures[0].result(0.001)
    for offset, part in enumerate(parts):
        part.complete(offset, None)
    assert [future.result(1).offset for future in futures] == [0, 1]


@pytest.mark.java("FutureRecordMetadataTest.FutureGetWithMilliSeconds")
def test_a_wait_may_be_for_a_part_of_a_second() -> None:
    future = FutureRecordMetadata()
    (part,) = batch_of(future).split(1)
    with pytest.raises(TimeoutError, match=r"Timeout after waiting for 0\.005 s\."):
        future.result(0.005)
    part.complete(45, None)
    assert future.result(1.0).offset == 45


def test_callbacks_run_in_order_and_one_that_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called: list[str] = []
    futures = [FutureRecordMetadata() for _ in range(2)]
    batch = batch_of(*futures)
    futures[0].add_done_callback(lambda _: called.append("first"))
    futures[0].add_done_callback(lambda _: [][1])
    futures[0].add_done_callback(lambda _: called.append("second"))
    futures[1].add_done_callback(lambda future: called.append(repr(future.exception(0))))
    batch.complete(0, None)
    assert called == ["first", "second", "None"]
    assert "A callback failed" in caplog.text


def test_a_callback_comes_at_once_when_it_is_done_and_the_first_outcome_stays() -> None:
    called: list[FutureRecordMetadata] = []
    future = FutureRecordMetadata.failed(KafkaError("first"))
    future.add_done_callback(called.append)
    assert called == [future]
    future.fail(KafkaError("second"))
    batch_of(future).complete(0, None)
    with pytest.raises(KafkaError, match="first"):
        future.result(0)


def test_each_record_of_a_batch_has_its_own_error() -> None:
    futures = [FutureRecordMetadata() for _ in range(2)]
    errors = {0: KafkaError("zero"), 1: KafkaError("one")}
    batch_of(*futures).complete_exceptionally(KafkaError("all"), errors.__getitem__)
    assert [str(future.exception(0)) for future in futures] == ["zero", "one"]


def test_the_repr_shows_its_state() -> None:
    future = FutureRecordMetadata()
    assert repr(future) == "<FutureRecordMetadata pending>"
    future.fail(KafkaError("no"))
    assert repr(future) == "<FutureRecordMetadata KafkaError('no')>"
