"""Queues ended spans and sends them to the collector, in batches, on its own thread.

    ended      by the threads that serve requests: queued, or counted as dropped. Never blocks
    exported   in batches by the queue's thread: when a batch is full, or after a delay
    closed     remaining spans are sent within a time limit; the rest is dropped and counted

It replaces the SDK's BatchSpanProcessor, which logs each drop, does not count drops, and has no time limit
for its end. Its environment variables apply: OTEL_BSP_MAX_QUEUE_SIZE, OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
OTEL_BSP_SCHEDULE_DELAY.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from opentelemetry.context import Context
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_BSP_SCHEDULE_DELAY,
)
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from service.base.settings_sources import SettingsError

_log: Final = logging.getLogger(__name__)

#: Why spans were dropped: the queue was full, the export failed, or the time at the end was over.
DROP_REASONS: Final = ("queue_full", "export_failed", "shutdown")

#: An export that is interrupted by the shutdown may need a moment to notice.
_LAST_MOMENT_S: Final = 0.1


class QueueLimits(NamedTuple):
    """Spans in the queue, spans per batch, and the longest wait. Defaults: the specification's."""

    max_spans: int = 2_048
    batch_spans: int = 512
    delay_ms: int = 5_000

    @staticmethod
    def of(environ: Mapping[str, str]) -> QueueLimits:
        """Returns the limits from the SDK's environment variables. Raises SettingsError."""
        defaults = QueueLimits()
        limits = QueueLimits(
            _number(environ, OTEL_BSP_MAX_QUEUE_SIZE, defaults.max_spans),
            _number(environ, OTEL_BSP_MAX_EXPORT_BATCH_SIZE, defaults.batch_spans),
            _number(environ, OTEL_BSP_SCHEDULE_DELAY, defaults.delay_ms),
        )
        return limits._replace(batch_spans=min(limits.batch_spans, limits.max_spans))


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    value = environ.get(name, "").strip()
    if not value:
        return default
    if not (value.isascii() and value.isdigit() and 0 < int(value[:10]) < 2**31):
        raise SettingsError(f"{name}: must be a whole number of at least 1, got {value[:40]!r}")
    return int(value)


class SpanQueue(SpanProcessor):
    """A bounded queue of spans. Any thread may call `on_end`; only the queue's thread exports."""

    def __init__(self, exporter: SpanExporter, limits: QueueLimits, why: Callable[[], str]) -> None:
        """`why` returns what the exporter logged since its last call."""
        self._exporter = exporter
        self._limits = limits
        self._why = why
        self._waiting: deque[ReadableSpan] = deque()
        self._changed = threading.Condition()
        self._under_way = 0
        self._is_closing = False
        self._is_failing = False
        #: Counters, read by the admin thread.
        self.exported = 0
        self.dropped: Final = dict.fromkeys(DROP_REASONS, 0)
        #: Started with the first span, so that an app that never served leaves no thread behind.
        self._thread = threading.Thread(target=self._run, name="pilotfish-spans", daemon=True)

    @property
    def waiting(self) -> int:
        """Returns the number of spans that wait or are being sent."""
        return len(self._waiting) + self._under_way

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Does nothing: spans are queued when they end."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queues a sampled span, or drops it."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        with self._changed:
            if self._is_closing:
                self.dropped["shutdown"] += 1
            elif len(self._waiting) >= self._limits.max_spans:
                self.dropped["queue_full"] += 1
            else:
                self._waiting.append(span)
                if self._thread.ident is None:
                    self._thread.start()
                if len(self._waiting) >= self._limits.batch_spans:
                    self._changed.notify()

    def close(self, timeout_ms: int) -> None:
        """Sends waiting spans for at most `timeout_ms`; drops the rest. Idempotent."""
        with self._changed:
            if self._is_closing:
                return
            self._is_closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout_ms / 1000)
        with self._changed:  # before the exporter's shutdown: exports that it interrupts did not fail
            left = self.waiting
            self._waiting.clear()
            self.dropped["shutdown"] += left
            self._under_way = 0
        self._exporter.shutdown()  # interrupts the pauses between its attempts
        if self._thread.ident is not None:
            self._thread.join(_LAST_MOMENT_S)
        if left:
            _log.warning("%d spans could not be sent before the shutdown", left)

    def shutdown(self) -> None:
        """Closes at once. Called by the SDK."""
        self.close(0)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Waits until no spans wait. Returns False if the time is over before. For tests."""
        with self._changed:
            delay_ms, self._limits = self._limits.delay_ms, self._limits._replace(delay_ms=0)
            self._changed.notify()
            done = self._changed.wait_for(lambda: not self.waiting, timeout_millis / 1000)
            self._limits = self._limits._replace(delay_ms=delay_ms)
        return done

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._next_batch():
            self._count(len(batch), is_exported=self._export(batch))

    def _next_batch(self) -> list[ReadableSpan]:
        """Waits for a full batch or the end of the delay. Returns nothing if closed and empty."""
        with self._changed:
            while True:
                self._changed.wait_for(self._is_due, self._limits.delay_ms / 1000)
                count = min(len(self._waiting), self._limits.batch_spans)
                if count or self._is_closing:
                    self._under_way = count
                    return [self._waiting.popleft() for _ in range(count)]

    def _is_due(self) -> bool:
        due = self._limits.batch_spans if self._limits.delay_ms else 1
        return self._is_closing or len(self._waiting) >= due

    def _export(self, batch: list[ReadableSpan]) -> bool:
        """Returns whether the collector accepted the batch. Logs only changes of that."""
        try:
            self._why()
            is_exported = self._exporter.export(batch) is SpanExportResult.SUCCESS
            why = "" if is_exported else self._why()
        except BaseException as error:  # noqa: BLE001 - foreign code; the thread must survive
            is_exported, why = False, type(error).__name__  # its message may contain what was sent
        if not self._under_way:
            return is_exported  # `close` came first, and logs it
        if not is_exported and not self._is_failing:
            _log.warning("spans can't be sent and are dropped: %s", why)
        elif is_exported and self._is_failing:
            _log.info("spans are sent again")
        self._is_failing = not is_exported
        return is_exported

    def _count(self, spans: int, *, is_exported: bool) -> None:
        with self._changed:
            if not self._under_way:
                return  # `close` came first, and counted them
            self._under_way = 0
            if is_exported:
                self.exported += spans
            else:
                self.dropped["export_failed"] += spans
            self._changed.notify_all()
