"""Moments inside a turn, as another thread may see them: no flush returns there, and no record is lost.

tests/schedules found each of these. Here the moment is made by hand: an event, or a callback in the turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.errors import ProducerClosedError
from client_core.events import WaitFinished
from client_core.producer.requests.pending_request import PendingRequest
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.sender.produce_request import ProduceRequestBuilder
from client_core.record.record_batch import decode_record_batch
from tests.support.producer_rig import ProducerRig, full_buffer_rig
from tests.support.sender_rig import ORDERS_0, produced

if TYPE_CHECKING:
    from client_core.events import Event
    from client_core.producer.results.status import CloseReport
    from client_core.producer.results.ticket import Result


def would_return(rig: ProducerRig) -> bool:
    """Whether a flush that begins now has nothing to wait for."""
    producer = rig.producer
    is_waiting = producer._parked.gate.topics or producer._accumulator.has_incomplete
    return not is_waiting and producer._blocking_calls._completions.is_reported


def unreachable(rig: ProducerRig) -> None:
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 10_000)


def sent_values(rig: ProducerRig, partition: int) -> list[bytes | None]:
    """The values that were sent to a partition, in order."""
    values: list[bytes | None] = []
    for request in rig.client.requests:
        assert isinstance(request.builder, ProduceRequestBuilder)
        for batch in request.builder.batches:
            if batch.topic_partition.partition == partition:
                values += [record.value for record in decode_record_batch(batch.records).records()]
    return values


# -- flush ---------------------------------------------------------------------------------------------------


def test_a_parked_request_that_fails_is_flushed_when_its_result_is_there() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a", block_ms=100)
    rig.turn()
    moments: list[bool] = []

    def look(event: Event) -> None:
        if isinstance(event, WaitFinished):
            moments.append(would_return(rig))

    rig.events.emit = look  # type: ignore[method-assign]
    rig.turn_after(100)
    assert waiting.reported
    assert moments == [False]
    assert would_return(rig)


def test_a_request_whose_records_are_taken_back_at_its_deadline_is_flushed_when_its_result_is_there() -> None:
    rig = ProducerRig(topics={"orders": 1})
    unreachable(rig)
    waiting = rig.submit("orders", b"a", timeout_ms=100, turns=1)
    moments: list[bool] = []
    rig.producer._accumulator.begin_flush(lambda: moments.append(would_return(rig)))
    rig.turn_after(100)
    assert waiting.reported
    assert moments == [False]
    assert would_return(rig)


# -- order ---------------------------------------------------------------------------------------------------


def test_a_request_whose_partition_has_come_goes_before_one_that_is_granted_memory_in_the_same_turn() -> None:
    rig = ProducerRig(topics={"orders": 1}, buffer_memory=1_000, batch_size=1)
    unreachable(rig)
    rig.submit("orders", b"x" * 800)
    rig.submit("orders", ProducerRecord("orders", b"1", partition=1), turns=1)
    behind = ProducerRecord("orders", b"2", partition=1)
    rig.submit("orders", ProducerRecord("orders", b"y" * 300, partition=0), behind, turns=1)
    status = rig.producer.status()
    assert (status.waiting_for_metadata, status.waiting_for_buffer) == (1, 1)
    rig.turn_after(10_000)
    rig.will_know({"orders": 2})
    rig.answer(produced(ORDERS_0, offset=0), turns=4)
    assert sent_values(rig, 1) == [b"1", b"2"]


# -- the end -------------------------------------------------------------------------------------------------


def test_records_for_a_missing_partition_fail_with_their_request_as_the_producer_closes() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer.io_thread.initiate_close()  # as in a callback that closes
    waiting = rig.submit(
        "orders", ProducerRecord("orders", b"a", partition=7), ProducerRecord("orders", b"b"), turns=1
    )
    assert [type(failure.error) for failure in waiting.failures] == [ProducerClosedError] * 2
    assert sum(left.records for left in rig.producer.close(0).unacknowledged) == 2


def test_a_send_that_fails_as_the_producer_ends_is_refused_and_in_no_report() -> None:
    rig = full_buffer_rig(max_block_ms=0)
    reports: list[CloseReport] = []

    def close(event: Event) -> None:
        if isinstance(event, WaitFinished) and not reports:
            reports.append(rig.producer.close(0))

    rig.events.emit = close  # type: ignore[method-assign]
    with pytest.raises(ProducerClosedError):
        rig.producer.send(ProducerRecord("other", b"a"))
    assert reports == [rig.producer.close()]
    (of_the_full_buffer,) = reports[0].unacknowledged
    assert of_the_full_buffer.records == 1


def test_the_last_results_are_posted_before_the_thread_is_over() -> None:
    """A flush that sees that it is over does not wait."""
    rig = ProducerRig(topics={})
    was_over: list[bool] = []
    rig.producer.submit(
        "orders",
        [ProducerRecord("orders", b"a")],
        block_deadline_ms=rig.clock.now_ms() + 1_000,
        deadline_ms=rig.clock.now_ms() + 1_000,
        done=lambda _: was_over.append(rig.producer.io_thread.is_over),
    )
    rig.producer.close(0)
    assert was_over == [False]


def test_a_callback_that_closes_a_producer_that_was_never_started_ends_it_once() -> None:
    rig = ProducerRig(topics={})
    closed: list[str] = []
    rig.client.close = lambda: closed.append("client")  # type: ignore[method-assign]
    rig.producer.submit(
        "orders",
        [ProducerRecord("orders", b"a")],
        block_deadline_ms=rig.clock.now_ms() + 1_000,
        deadline_ms=rig.clock.now_ms() + 1_000,
        done=lambda _: closed.append(f"flushed={rig.producer.close().flushed}"),
    )
    assert not rig.producer.close().flushed
    assert closed == ["client", "flushed=False"]


def test_a_callback_of_a_request_that_came_after_the_end_may_call_the_producer() -> None:
    """No lock is held over it: it would wait for itself."""
    rig = ProducerRig(topics={"orders": 1})
    rig.producer.close(0)
    done: list[str] = []

    def call_back(result: Result) -> None:
        rig.producer.io_thread.do(lambda _: done.append("command"))
        done.append("called back")

    late = PendingRequest(
        "orders",
        [ProducerRecord("orders", b"a", partition=9)],
        call_back,
        rig.producer._submissions.finished,
        submitted_ms=0,
        block_deadline_ms=0,
        deadline_ms=0,
    )
    rig.producer._parked.gate.block(late)
    rig.producer.io_thread.take(late, wake=False)
    assert done == ["command", "called back"]
