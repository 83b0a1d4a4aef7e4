"""Exposes the spool's metrics to Prometheus; without a spool, all families exist and are empty.

A scrape reads the plain counters of the spool's parts, on the admin thread; no count is kept twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:  # a sidecar without a spool does not load it
    from service.spool.spool import Spool


class SpoolMetrics(Collector):
    """A collector for a spool, or for none."""

    def __init__(self, spool: Spool | None) -> None:
        self._spool: Final = spool

    def collect(self) -> Iterator[Metric]:
        """Yields the families, for Prometheus. Admin thread."""
        records = _gauge("records", "Records that are to be delivered.")
        held = _gauge("bytes", "Bytes in the folder, with dead letters.")
        limit = _gauge("max_bytes", "spool_max_bytes.")
        age = _gauge("oldest_record_age_seconds", "Time since the oldest of those records was accepted.")
        dead_now = _gauge("aside_records", "Dead letters now.")
        refused = _gauge("refused_topics", "Topics whose records wait because brokers refuse them.", "reason")
        damaged = _gauge("damaged_files", "Damaged files that were moved away.")
        spooled = _counter("spooled_records", "Records that were spooled.")
        delivered = _counter("delivered_records", "Spooled records that were acknowledged.")
        dead_ever = _counter("set_aside_records", "Records that became dead letters, by reason.", "reason")
        lost = _counter("lost_records", "Records that were lost with damaged files.")
        failing = _gauge("disk_failing_seconds", "For how long the disk has refused records.")
        fsync = HistogramMetricFamily(
            "pilotfish_spool_fsync_duration_seconds", "How long an fsync of the spool took.", labels=()
        )
        spool = self._spool
        if spool is not None:
            writer, delivery = spool.writer, spool.delivery
            records.add_metric((), spool.entries)
            held.add_metric((), spool.bytes)
            limit.add_metric((), spool.max_bytes)
            age.add_metric((), (spool.oldest_age_ms or 0) / 1000)
            dead_now.add_metric((), spool.dead_letters.records)
            topics = Counter(topic.reason for topic in delivery.view.refused)
            damaged.add_metric((), spool.dead_letters.damaged_files)
            spooled.add_metric((), writer.spooled)
            delivered.add_metric((), delivery.delivered)
            for reason, count in delivery.dead_letter_counts.items():
                dead_ever.add_metric((reason,), count)
                refused.add_metric((reason,), topics[reason])
            lost.add_metric((), delivery.lost)
            failing.add_metric((), writer.failing_ms / 1000)
            histogram = writer.fsync_seconds
            fsync.add_metric((), buckets=histogram.buckets(), sum_value=histogram.sum)
        yield from (records, held, limit, age, dead_now, damaged, spooled, delivered, dead_ever, lost)
        yield from (failing, fsync, refused)


def _gauge(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pilotfish_spool_{name}", help_text, labels=labels)


def _counter(name: str, help_text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"pilotfish_spool_{name}", help_text, labels=labels)
