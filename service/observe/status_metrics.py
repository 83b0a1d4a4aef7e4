"""Exports the client's present state to Prometheus, as gauges and the client's own counters.

`StatusCollector` stores nothing: at each scrape it reads `status()`, `loop_work()` and the clock, on the
admin thread. None of them blocks. Brokers that left the cluster have state 0 for an hour. Connections to
bootstrap addresses share the label "bootstrap". Metrics of events are in metrics.py.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from client_core import LoopWork, NodeStatus
from service.base.fast_metrics import gauge
from service.base.producer_protocol import Producer
from service.observe.metrics import broker_label
from service.observe.slowness.recent_times import Recent

STATES: Final = ("disconnected", "connecting", "checking_api_versions", "ready", "authentication_failed")


class StatusCollector(Collector):
    """A collector of a producer's status.

    `longest_sleep_ms` is the longest sleep of its poll loop. `has_left` returns whether a broker has left the
    cluster and must not be shown.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        version: str,
        longest_sleep_ms: int,
        has_left: Callable[[int], bool],
        left_brokers: Callable[[], Collection[int]],
        latencies: Callable[[], Mapping[int, tuple[Recent, Recent]]],
    ) -> None:
        self._producer = producer
        self._version = version
        self._longest_sleep_ms = longest_sleep_ms
        self._has_left = has_left
        self._left_brokers = left_brokers
        self._latencies = latencies

    def collect(self) -> Iterator[Metric]:
        """Yields the gauges for Prometheus. Admin thread."""
        status = self._producer.status()
        metadata, buffer = status.metadata, status.buffer
        build = GaugeMetricFamily("pilotfish_build_info", "This build.", labels=("version", "python"))
        build.add_metric((self._version, platform.python_version()), 1)
        yield build
        yield gauge(
            "metadata_update_version",
            "The number of the last update that was applied.",
            metadata.update_version,
        )
        yield gauge(
            "metadata_request_version", "How often new topics were requested.", metadata.request_version
        )
        if metadata.age_ms is not None:
            yield gauge("metadata_age_seconds", "Since the last successful refresh.", metadata.age_ms / 1000)
        yield gauge(
            "metadata_max_age_seconds", "The age at which metadata is refreshed.", metadata.max_age_ms / 1000
        )
        yield gauge("metadata_topics", "Topics known.", metadata.topics)
        yield gauge("metadata_partitions", "Partitions known.", metadata.partitions)
        cluster_id = self._producer.cache.cluster_id
        if cluster_id is not None:
            cluster = GaugeMetricFamily("pilotfish_cluster_info", "The cluster.", labels=("cluster_id",))
            cluster.add_metric((cluster_id,), 1)
            yield cluster
        yield gauge("buffer_pool_size_bytes", "buffer.memory.", buffer.total_bytes)
        yield gauge("buffer_pool_available_bytes", "Free bytes of buffer.memory.", buffer.available_bytes)
        yield gauge("buffer_pool_waiters", "Callers that wait for buffer.memory.", buffer.waiters)
        yield from _loop_metrics(self._producer.loop_work())
        yield gauge(
            "poll_loop_max_sleep_seconds",
            "The longest sleep of an idle poll loop.",
            self._longest_sleep_ms / 1000,
        )
        yield gauge(
            "poll_loop_age_seconds",
            "Seconds since the poll loop last turned. "
            "An idle loop sleeps for up to poll_loop_max_sleep_seconds.",
            status.loop_age_ms / 1000,
        )
        left = self._left_brokers()
        nodes = [node for node in status.nodes if not self._has_left(node.id)]
        yield from _broker_gauges(nodes, left)
        shown = {node.id for node in nodes}.union(left)
        yield from _latency_gauges(
            {node_id: times for node_id, times in self._latencies().items() if node_id in shown}
        )


def _loop_metrics(work: LoopWork) -> Iterator[Metric]:
    """Yields the histogram of loop turns.

    The client itself keeps it, so that a turn need not emit an event.
    """
    bounds = [*(str(bound_ms / 1000) for bound_ms in work.bounds_ms), "+Inf"]
    yield HistogramMetricFamily(
        "pilotfish_poll_loop_iteration_duration_seconds",
        "The duration of turns of the poll loop, without their sleep.",
        buckets=[(bound, float(count)) for bound, count in zip(bounds, accumulate(work.counts), strict=True)],
        sum_value=work.total_ms / 1000,
    )


def _broker_gauges(nodes: Sequence[NodeStatus], left: Collection[int]) -> Iterator[Metric]:
    """Yields gauges of the connections. Those to bootstrap addresses are combined under one label.

    All values of the brokers that have `left` are 0.
    """
    in_flight: dict[str, int] = {}
    backoff_ms: dict[str, int] = {}
    states: dict[str, set[str]] = {}
    for node in nodes:
        broker = broker_label(node.id)
        in_flight[broker] = in_flight.get(broker, 0) + node.in_flight_requests
        backoff_ms[broker] = max(backoff_ms.get(broker, 0), node.backoff_left_ms)
        states.setdefault(broker, set()).add(node.state)
    for node_id in left:
        broker = broker_label(node_id)
        in_flight[broker] = backoff_ms[broker] = 0
        states[broker] = set()
    requests = _by_broker("broker_in_flight_requests", "Requests that wait for a response.")
    backoffs = _by_broker("broker_reconnect_backoff_seconds", "Until the next attempt to connect.")
    connections = _by_broker("broker_connection_state", "1 for the present state of a connection.", "state")
    for broker, count in in_flight.items():
        requests.add_metric((broker,), count)
        backoffs.add_metric((broker,), backoff_ms[broker] / 1000)
        for state in STATES:
            connections.add_metric((broker, state), float(state in states[broker]))
    yield from (requests, backoffs, connections)


def _latency_gauges(latencies: Mapping[int, tuple[Recent, Recent]]) -> Iterator[Metric]:
    produce = _by_broker(
        "broker_produce_latency_seconds", "Produce requests of the last minute, until answered.", "percentile"
    )
    others = _by_broker(
        "broker_other_latency_seconds", "Other requests of the last minute, until answered.", "percentile"
    )
    for node_id, of_node in latencies.items():
        if node_id < 0:
            continue
        for family, times in zip((produce, others), of_node, strict=True):
            for percentile, value_ms in (("50", times.p50_ms), ("99", times.p99_ms)):
                if value_ms is not None:
                    family.add_metric((broker_label(node_id), percentile), value_ms / 1000)
    yield from (produce, others)


def _by_broker(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pilotfish_{name}", help_text, labels=("broker", *labels))
