"""The queue of spans: bounded, counted, never blocking, ended in time; and which SDK log lines are shown."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from service.base.settings_sources import SettingsError
from service.observe.request_trace import TraceMetrics
from service.observe.tracing.otlp import SdkLog
from service.observe.tracing.span_queue import QueueLimits, SpanQueue
from tests.support.log_lines import log_lines
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

LONG_MS = 600_000


class Collector(SpanExporter):
    """Takes batches, once the test lets it; `outcome` is its result for them."""

    def __init__(self, outcome: SpanExportResult | BaseException = SpanExportResult.SUCCESS) -> None:
        self.outcome = outcome
        self.batches: list[int] = []
        self.asked = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        assert self.open.wait(20)
        self.batches.append(len(spans))
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def shutdown(self) -> None:
        self.open.set()


def queue_to(collector: Collector, why: str = "HTTP status 503", **limits: int) -> SpanQueue:
    return SpanQueue(collector, QueueLimits(**{"delay_ms": LONG_MS, **limits}), lambda: why)


def end_spans(queue: SpanQueue, count: int, **provider: Any) -> None:
    made = TracerProvider(shutdown_on_exit=False, **provider)
    made.add_span_processor(queue)
    tracer = made.get_tracer("test")
    for n in range(count):
        tracer.start_span(str(n)).end()


def metrics(queue: SpanQueue | None) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("pilotfish_tracing_spans_"), *sample.labels.values()): sample.value
        for family in TraceMetrics(queue).collect()
        for sample in family.samples
    }


def test_a_full_batch_goes_at_once_and_the_rest_when_it_has_waited() -> None:
    collector = Collector()
    queue = queue_to(collector, batch_spans=3)
    end_spans(queue, 4)
    wait_until(lambda: queue.exported == 3, what="the first batch")
    assert (collector.batches, queue.waiting) == ([3], 1)
    assert queue.force_flush(5_000)
    assert collector.batches == [3, 1]
    queue.close(0)


def test_a_span_waits_no_longer_than_the_delay() -> None:
    collector = Collector()
    queue = queue_to(collector, delay_ms=20)
    end_spans(queue, 1)
    wait_until(lambda: queue.exported == 1, what="the span")
    queue.close(0)


def test_spans_that_do_not_fit_are_dropped_and_counted_while_the_collector_is_slow() -> None:
    collector = Collector()
    collector.open.clear()
    queue = queue_to(collector, max_spans=5, batch_spans=2)
    end_spans(queue, 2)
    assert collector.asked.wait(10)
    end_spans(queue, 9)
    assert metrics(queue) == {
        ("exported_total",): 0,
        ("dropped_total", "queue_full"): 4,
        ("dropped_total", "export_failed"): 0,
        ("dropped_total", "shutdown"): 0,
        ("waiting",): 7,
    }
    collector.open.set()
    assert queue.force_flush(5_000)
    assert queue.exported == 7
    queue.close(0)


def test_spans_that_are_not_sampled_are_nobodys() -> None:
    collector = Collector()
    queue = queue_to(collector)
    end_spans(queue, 3, sampler=ALWAYS_OFF)
    assert (queue.waiting, sum(queue.dropped.values())) == (0, 0)
    queue.close(0)


@pytest.mark.parametrize("outcome", [SpanExportResult.FAILURE, ValueError("Bearer hunter2")])
def test_failures_are_counted_and_logged_when_they_begin_and_end(
    outcome: SpanExportResult | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector = Collector(outcome)
    queue = queue_to(collector, batch_spans=1)
    for _ in range(3):
        end_spans(queue, 1)
        assert queue.force_flush(5_000)
    collector.outcome = SpanExportResult.SUCCESS
    end_spans(queue, 1)
    assert queue.force_flush(5_000)
    queue.close(0)
    why = "HTTP status 503" if outcome is SpanExportResult.FAILURE else "ValueError"
    assert [record.getMessage() for record in caplog.records] == [
        f"spans can't be sent and are dropped: {why}",
        "spans are sent again",
    ]
    assert (queue.dropped["export_failed"], queue.exported) == (3, 1)


def test_at_the_end_what_waits_is_sent() -> None:
    collector = Collector()
    queue = queue_to(collector)
    end_spans(queue, 3)
    queue.close(10_000)
    assert (collector.batches, queue.exported, queue.waiting) == ([3], 3, 0)
    end_spans(queue, 1)
    assert queue.dropped["shutdown"] == 1


def test_a_collector_that_hangs_at_the_end_costs_no_more_than_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Deaf(Collector):
        def shutdown(self) -> None:
            """Hears nothing."""

    threads = threading.active_count()
    collector = Deaf()
    collector.open.clear()
    queue = queue_to(collector, batch_spans=2)
    end_spans(queue, 3)
    assert collector.asked.wait(10)
    queue.close(1)
    queue.close(1)
    assert (queue.dropped["shutdown"], queue.waiting) == (3, 0)
    assert "3 spans could not be sent before the shutdown" in caplog.text
    collector.open.set()
    wait_until(lambda: threading.active_count() <= threads, what="the end of the thread")
    assert (queue.dropped["export_failed"], queue.exported) == (0, 0)


@pytest.mark.parametrize("error", [SystemExit(1), RuntimeError("a bug")], ids=repr)
def test_no_error_of_the_exporter_or_of_who_says_why_ends_the_thread(error: BaseException) -> None:
    collector = Collector(error)
    faults = [error]

    def why() -> str:
        if faults and len(collector.batches) == 2:
            raise faults.pop()
        return "HTTP status 503"

    queue = SpanQueue(collector, QueueLimits(delay_ms=LONG_MS, batch_spans=1), why)
    for exported in (0, 0, 0, 1):
        end_spans(queue, 1)
        assert queue.force_flush(20_000)
        assert queue.exported == exported
        if len(collector.batches) == 2:
            collector.outcome = SpanExportResult.SUCCESS
    assert not faults
    assert queue.dropped["export_failed"] == 3
    queue.close(0)


def test_a_batch_that_an_exporter_gives_up_at_the_end_was_cut_off_and_did_not_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As OTLP's exporter: shut down in a pause between two attempts, it returns a failure."""
    others = frozenset(threading.enumerate())  # queues of other tests may still be open

    class Prompt(Collector):
        def shutdown(self) -> None:
            """Returns when the queue's thread has taken the failure and ended."""
            super().shutdown()
            for thread in threading.enumerate():
                if thread not in others:
                    thread.join(20)

    threads = threading.active_count()
    collector = Prompt(SpanExportResult.FAILURE)
    collector.open.clear()
    queue = queue_to(collector, batch_spans=2)
    end_spans(queue, 7)
    assert collector.asked.wait(10)
    queue.close(1)
    wait_until(lambda: threading.active_count() <= threads, what="the end of the thread")
    assert dict(queue.dropped) == {"queue_full": 0, "export_failed": 0, "shutdown": 7}
    assert [record.getMessage() for record in caplog.records] == [
        "7 spans could not be sent before the shutdown"
    ]


def test_a_queue_without_spans_has_no_thread() -> None:
    before = threading.active_count()
    queue = queue_to(Collector())
    assert threading.active_count() <= before
    queue.close(0)


def test_without_spans_the_families_are_there_and_empty() -> None:
    assert metrics(None) == {}
    assert [family.name for family in TraceMetrics(None).collect()] == [
        "pilotfish_tracing_spans_exported",
        "pilotfish_tracing_spans_dropped",
        "pilotfish_tracing_spans_waiting",
    ]


def test_the_sdks_variables_set_the_limits() -> None:
    environ = {
        "OTEL_BSP_MAX_QUEUE_SIZE": "10",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "20",
        "OTEL_BSP_SCHEDULE_DELAY": " 7 ",
    }
    assert QueueLimits.of({}) == QueueLimits(2_048, 512, 5_000)
    assert QueueLimits.of(environ) == QueueLimits(10, 10, 7)


def test_a_limit_that_is_none_is_refused_by_name() -> None:
    for value in ("0", "-1", "many", "9" * 5_000, "1.5"):
        with pytest.raises(
            SettingsError, match=r"^OTEL_BSP_MAX_QUEUE_SIZE: must be a whole number of at least 1"
        ):
            QueueLimits.of({"OTEL_BSP_MAX_QUEUE_SIZE": value})


# -- log lines of the SDK ------------------------------------------------------------------------------------


@pytest.fixture
def reported() -> Iterator[list[str]]:
    """The lines that reach the root logger, where the sidecar's own handler is."""
    with log_lines() as lines:
        yield lines


@pytest.fixture
def sdk_log() -> Iterator[SdkLog]:
    """In its place, and everything as it was afterwards."""
    logger = logging.getLogger("opentelemetry")
    before = (logger.handlers[:], logger.propagate)
    log = SdkLog()
    log.install()
    yield log
    logger.handlers[:], logger.propagate = before


def test_at_the_start_it_says_what_the_sdk_found_wrong_but_no_header(
    sdk_log: SdkLog, reported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer hunter2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "often")
    OTLPSpanExporter().shutdown()  # type: ignore[no-untyped-call]  # the SDK's
    sdk_log.report_start()
    assert len(reported) == 2
    assert "hunter2" not in str(reported)
    assert any("write OTEL_EXPORTER_OTLP_HEADERS as name=value" in line for line in reported)
    assert any("'often'" in line for line in reported)


def test_a_failed_export_is_logged_with_status_and_kind_without_the_texts_of_others(sdk_log: SdkLog) -> None:
    logger = logging.getLogger("opentelemetry.exporter.x")
    refused = requests.ConnectionError("Bearer hunter2")
    refused.__cause__ = ConnectionRefusedError(111, "Connection refused")
    logger.error("Failed to export %s batch code: %s, reason: %s", "spans", 503, "hunter2")
    logger.warning("Transient error %s encountered, retrying in %.2fs.", refused, 1.5)
    logger.warning("Transient error %s encountered, retrying in %.2fs.", refused, 2.5)
    try:
        raise requests.exceptions.InvalidHeader("hunter2")
    except requests.exceptions.InvalidHeader:
        logger.exception("it failed")
    assert sdk_log.why() == "HTTP status 503, ConnectionError (connection refused), InvalidHeader"
    assert sdk_log.why() == "OpenTelemetry gives no reason"


def test_nothing_of_it_reaches_our_own_log(sdk_log: SdkLog, reported: list[str]) -> None:
    for _ in range(100):
        logging.getLogger("opentelemetry.sdk.trace").warning("Queue full, dropping Span.")
    assert reported == []
