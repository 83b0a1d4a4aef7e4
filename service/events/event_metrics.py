"""Exposes the event log's metrics to Prometheus; without a log, all families exist and are empty.

A scrape reads the plain counters of the log's parts, on the admin thread; no count is kept twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:  # a sidecar without an event log does not load it
    from service.events.event_log import EventLog


class EventMetrics(Collector):
    """A collector for an event log, or for none."""

    def __init__(self, log: EventLog | None) -> None:
        self._log: Final = log

    def collect(self) -> Iterator[Metric]:
        """Yields the families, for Prometheus. Admin thread."""
        events = _counter("events", "Events emitted, before any is lost.", "type")
        dropped = _counter("events_dropped", "Events that were lost before a sink got them.", "sink")
        written = _counter("events_written", "Events that a sink accepted.", "sink")
        left_out = _counter(
            "events_left_out", "Changes and requests that were too frequent to become events.", "what"
        )
        waiting = GaugeMetricFamily(
            "pilotfish_events_waiting_bytes", "Bytes of events that wait for a sink.", labels=("sink",)
        )
        if self._log is not None:
            for kind, count in self._log.queued.items():
                events.add_metric((kind,), count)
            for sink, outbox in self._log.channels:
                dropped.add_metric((sink.name,), outbox.dropped)
                written.add_metric((sink.name,), sink.written)
                waiting.add_metric((sink.name,), outbox.waiting_bytes + sink.in_flight_bytes)
            for what, count in self._log.left_out._asdict().items():
                left_out.add_metric((what,), count)
        yield from (events, dropped, written, left_out, waiting)


def _counter(name: str, help_text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"pilotfish_{name}", help_text, labels=labels)
