"""Requests that are submitted while the producer closes, and producers that are never closed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from client_core.error_codes import Errors
from client_core.errors import IllegalStateError, ProducerClosedError
from client_core.producer.results.status import CloseReport, Unacknowledged
from client_core.producer.sender import unclosed_producers
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import ORDERS_0, produced
from tests.support.waiting import patient

PATIENCE_S = patient(30)


def test_a_request_that_comes_as_the_producer_closes_is_refused_whole() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.producer._submissions.close()  # KafkaProducer has looked at its own flag by now
    with pytest.raises(IllegalStateError, match="after producer has been closed"):
        rig.submit("orders", b"a")
    assert not rig.producer._accumulator.has_incomplete


def test_a_close_waits_for_a_request_that_another_thread_is_handing_in() -> None:
    rig = ProducerRig(topics={"orders": 1})
    submissions = rig.producer._submissions
    waits = threading.Event()
    wait_for = submissions._taken.wait_for

    def wait(predicate: object, timeout: float | None = None) -> object:
        waits.set()
        return wait_for(predicate, timeout)  # type: ignore[arg-type]

    submissions._taken.wait_for = wait  # type: ignore[method-assign, assignment]
    take = submissions._take
    entered, go_on = threading.Event(), threading.Event()

    def slow_take(*arguments: object) -> None:
        entered.set()
        assert go_on.wait(PATIENCE_S)
        take(*arguments)  # type: ignore[arg-type]

    submissions._take = slow_take  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(2) as pool:
        submitted = pool.submit(rig.submit, "orders", b"a")
        assert entered.wait(PATIENCE_S)
        closed = pool.submit(submissions.close)
        assert waits.wait(PATIENCE_S)
        assert not closed.done()
        go_on.set()
        closed.result(PATIENCE_S)
        submitted.result(PATIENCE_S)
    assert rig.producer._accumulator.has_incomplete


def test_a_record_that_was_refused_as_it_came_is_in_the_report_of_the_close() -> None:
    rig = ProducerRig(topics={})
    rig.metadata.add("bad topic", rig.clock.now_ms())
    rig.know({}, errors={"bad topic": Errors.INVALID_TOPIC_EXCEPTION.code})
    rig.submit("bad topic", b"a", b"b")
    assert rig.producer.close(0) == CloseReport(failed_earlier=2)


# -- producers that are never closed -------------------------------------------------------------------------


@pytest.mark.parametrize("started", [True, False])
def test_the_end_of_a_dropped_producer_is_reported_when_its_records_are_accounted_for(started: bool) -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", b"a")
    io_thread = rig.producer.io_thread
    rig.client.prepare_response(produced(ORDERS_0, offset=3))
    if started:
        io_thread.start()
    reports: list[tuple[bool, bool]] = []
    for _ in range(2):
        io_thread.end_unclosed(lambda: reports.append((io_thread.is_over, bool(waiting.reported))))
        assert io_thread.join(PATIENCE_S * 1_000)
    assert reports == [(True, True)] * 2
    if started:
        assert waiting.offsets == [3]
    else:
        assert isinstance(waiting.failures[0].error, ProducerClosedError)
        assert io_thread.unacknowledged() == (Unacknowledged("orders", 0, 1),)


def test_a_dropped_producer_wakes_its_thread_from_its_sleep() -> None:
    rig = ProducerRig(topics={"orders": 1})
    io_thread = rig.producer.io_thread
    io_thread._thread._ident = -1  # type: ignore[attr-defined]  # as if it had begun, and slept
    before = rig.client.wakeups
    io_thread.end_unclosed(lambda: None)
    assert rig.client.wakeups == before + 1
    io_thread._end()


def test_records_lost_by_an_unclosed_producer_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = ProducerRig(topics={"orders": 1}, client_id="shop", exit_flush_timeout_ms=70)
    rig.submit("orders", b"a", b"b")
    for _ in range(2):
        unclosed_producers.report_lost(rig.producer.io_thread)
    (logged,) = caplog.messages
    assert logged == (
        "2 records that the producer shop had accepted were not delivered: it was being closed when it was "
        "interrupted. Call close(), or use it as a context manager. exit.flush.timeout.ms is 70."
    )
    of_nothing = ProducerRig(topics={"orders": 1})
    unclosed_producers.report_lost(of_nothing.producer.io_thread)
    assert len(caplog.messages) == 1
