"""What Prometheus is told of spans. All families are there without tracing too, and empty.

A scrape reads plain numbers of the queue, on the admin thread; nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class CountedSpans(Protocol):
    """What is read of a queue of spans."""

    @property
    def waiting(self) -> int: ...

    @property
    def exported(self) -> int: ...

    @property
    def dropped(self) -> Mapping[str, int]: ...


class TraceMetrics(Collector):
    """A collector over a queue of spans, or over none."""

    def __init__(self, spans: CountedSpans | None) -> None:
        self._spans: Final = spans

    def collect(self) -> Iterator[Metric]:
        """The families, for Prometheus. Admin thread."""
        exported = CounterMetricFamily("pilotfish_tracing_spans_exported", "Spans that the collector has.")
        dropped = CounterMetricFamily(
            "pilotfish_tracing_spans_dropped", "Spans that nobody will see.", labels=("reason",)
        )
        waiting = GaugeMetricFamily("pilotfish_tracing_spans_waiting", "Spans that wait to be sent.")
        if self._spans is not None:
            exported.add_metric((), self._spans.exported)
            for reason, count in self._spans.dropped.items():
                dropped.add_metric((reason,), count)
            waiting.add_metric((), self._spans.waiting)
        yield from (exported, dropped, waiting)
