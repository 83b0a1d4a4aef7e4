"""Counts the client's events, as counters and histograms for Prometheus.

`ClientMetrics` is the EventSink of KafkaProducer. Each event costs one short lock, one dictionary look-up and
a few additions. Metrics of the client's present state are in status_metrics.py. The series of a broker end
an hour after it left the cluster, and go on if it comes back before. Bootstrap addresses share the label
"bootstrap". docs/metrics.md has the names, meanings and JMX names.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from client_core import Errors
from client_core import events as e
from service.base.fast_metrics import (
    BYTES,
    RATIOS,
    RECORDS,
    SECONDS,
    Counter,
    Family,
    Histogram,
    counter_family,
    counters,
    gauge,
    histogram_family,
    histograms,
)

REASONS: Final = (
    "initial",
    "expired",
    "topic_missing",
    "leader_error",
    "disconnect",
    "bootstrap",
    "manual",
    "age",
)
OUTCOMES: Final = ("success", "error", "timeout", "no_node")

#: The usual errors of records. Their series start at 0, so that a rate shows the first failure. Series of
#: other errors appear with their first failure.
USUAL_ERRORS: Final = (
    Errors.REQUEST_TIMED_OUT,
    Errors.NETWORK_EXCEPTION,
    Errors.UNKNOWN_SERVER_ERROR,
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.NOT_ENOUGH_REPLICAS,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Errors.MESSAGE_TOO_LARGE,
    Errors.RECORD_LIST_TOO_LARGE,
    Errors.INVALID_RECORD,
    Errors.INVALID_TIMESTAMP,
    Errors.CORRUPT_MESSAGE,
    Errors.POLICY_VIOLATION,
    Errors.KAFKA_STORAGE_ERROR,
    Errors.TOPIC_AUTHORIZATION_FAILED,
    Errors.CLUSTER_AUTHORIZATION_FAILED,
    Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Errors.UNKNOWN_PRODUCER_ID,
    Errors.INVALID_PRODUCER_EPOCH,
)

#: The usual causes of timeouts, and the usual errors that are retried. Their series start at 0, too.
USUAL_CAUSES: Final = (
    Errors.REQUEST_TIMED_OUT,
    Errors.NETWORK_EXCEPTION,
    Errors.SASL_AUTHENTICATION_FAILED,
    Errors.LEADER_NOT_AVAILABLE,
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.NOT_ENOUGH_REPLICAS,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Errors.UNKNOWN_TOPIC_OR_PARTITION,
    Errors.KAFKA_STORAGE_ERROR,
    Errors.THROTTLING_QUOTA_EXCEEDED,
)

#: How long the series of a broker stay after it left the cluster. A dead broker leaves it, too.
KEPT_AFTER_LEAVING_S: Final = 3_600

#: The most brokers whose series stay after they left.
MOST_KEPT: Final = 100

#: The most brokers remembered after their series ended, because their last connections end later.
MOST_DEPARTED: Final = 1_000

#: How long a rejection counts while a broker is connected. A trial of new credentials is repeated sooner.
REJECTION_COUNTS_S: Final = 30

#: Reasons of `NodeDisconnected` that say nothing about whether a broker can be reached.
_CLOSED_BY_US: Final = frozenset({"idle", "local"})

#: The label of topics beyond the limit.
OTHER_TOPICS: Final = "_other"


def broker_label(node_id: int) -> str:
    """Returns a broker's id, or "bootstrap" for connections made before ids are known."""
    return "bootstrap" if node_id < 0 else str(node_id)


class ClientMetrics(Collector):
    """An EventSink that counts, and a collector of its counters. Any thread: one short lock."""

    def __init__(
        self,
        *,
        by_topic: bool = False,
        topic_limit: int = 100,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._monotonic_s = monotonic_s
        self._counters: list[Family[Counter]] = []
        self._histograms: list[Family[Histogram]] = []
        #: Brokers that left and still have series, and when they left. The latest is the last.
        self._left: dict[int, float] = {}
        #: Brokers whose series have ended. The latest is the last.
        self._departed: dict[int, None] = {}
        # Bytes sent to each broker and received from it, until it leaves.
        self._traffic: dict[int, tuple[Counter, Counter]] = {}
        self._by_topic = by_topic
        self._topic_limit = topic_limit
        self._topics: set[str] = set()
        self._last_refresh_s: float | None = None
        self._leaderless: int | None = None
        self._certificate_expires_at_s: int | None = None
        # Brokers with a ready connection. Bootstrap connections are not included: they end without an event.
        self._ready: set[int] = set()
        #: When the present run of failed connection attempts began; None if there is none.
        self._unreachable_since_s: float | None = None
        #: When credentials were first and last rejected since a connection authenticated; None if never.
        self._rejected_s: tuple[float, float] | None = None
        #: Returns when the API listener's certificate expires, if it has one. Called at each scrape.
        self.listener_expires_at_s: Callable[[], int] | None = None

        counter, histogram = self._counter, self._histogram
        self._refreshes = counter(
            "metadata_refreshes", "Metadata refreshes by reason and outcome.", "reason", "outcome"
        )
        self._refresh_seconds = histogram(
            "metadata_refresh_duration_seconds", "From sending a metadata request to applying it.", SECONDS
        )
        self._leader_changes = counter(
            "metadata_leader_changes", "Partitions that got another leader or epoch."
        )
        self._rebootstraps = counter(
            "metadata_rebootstraps", "Times the client restarted from bootstrap.servers."
        )
        self._metadata_wait = histogram(
            "metadata_wait_seconds", "How long callers waited for metadata.", SECONDS, "outcome"
        )
        self._connections = counter("broker_connections", "Connections that became ready.", "broker")
        self._disconnects = counter(
            "broker_disconnects", "Connections that ended or failed.", "broker", "reason"
        )
        self._request_seconds = histogram(
            "request_duration_seconds",
            "From sending a request to its response, or to its end without one.",
            SECONDS,
            "api",
        )
        self._request_errors = counter("request_errors", "Requests that failed as a whole.", "api", "error")
        self._request_timeouts = counter("request_timeouts", "Requests without a response in time.", "api")
        self._sent_bytes = counter("network_sent_bytes", "Bytes of requests sent.", "broker")
        self._received_bytes = counter("network_received_bytes", "Bytes of responses received.", "broker")
        self._throttle = histogram("produce_throttle_seconds", "Pauses that brokers asked for.", SECONDS)
        self._records_sent = counter("records_sent", "Records acknowledged.").child()
        self._record_errors = counter(
            "record_errors", "Records given up, by their error and its cause.", "error", "cause"
        )
        self._record_retries = counter(
            "record_retries", "Records sent again, by the error of the attempt.", "error"
        )
        self._batch_splits = counter("batch_splits", "Batches split because they were too large.")
        self._batch_bytes = histogram("batch_size_bytes", "Bytes of a batch as it was sent.", BYTES).child()
        self._batch_records = histogram(
            "batch_records", "Records of a batch as it was sent.", RECORDS
        ).child()
        self._queue_seconds = histogram(
            "record_queue_duration_seconds", "From a batch's first record to sending it.", SECONDS
        ).child()
        self._compression = histogram(
            "batch_compression_ratio", "Bytes sent per byte of records.", RATIOS
        ).child()
        self._buffer_wait = histogram("buffer_pool_wait_seconds", "Waits for buffer memory.", SECONDS)
        self._buffer_exhausted = counter("buffer_exhausted", "Waits for buffer memory that failed.")
        self._topic_records = counter("topic_records_sent", "Records acknowledged, by topic.", "topic")
        self._topic_errors = counter("topic_record_errors", "Records given up, by topic.", "topic")
        self._credential_reloads = counter(
            "credential_reloads", "Reloads of changed credential files, by outcome.", "outcome"
        )
        self._create_alerted()
        self._takers: dict[type, Callable[[Any], None]] = {
            e.MetadataRefreshed: self._on_refreshed,
            e.MetadataRefreshFailed: self._on_refresh_failed,
            e.Rebootstrapped: lambda _: self._rebootstraps.child().add(),
            e.LeadersChanged: lambda event: self._leader_changes.child().add(len(event)),
            e.BrokersChanged: self._on_brokers,
            e.NodeReady: self._on_node_ready,
            e.NodeDisconnected: self._on_disconnected,
            e.RequestCompleted: self._on_request,
            e.NodeThrottled: lambda event: self._throttle.child().observe(event.throttle_ms / 1000),
            e.BatchSent: self._on_batch_sent,
            e.BatchRetried: lambda event: self._record_retries.child(event.error.name).add(event.records),
            e.BatchSplit: lambda _: self._batch_splits.child().add(),
            e.ProduceFinished: self._on_produce_finished,
            e.RecordsCancelled: self._on_records_failed,
            e.WaitFinished: self._on_wait,
            e.SecretReloaded: self._on_secret_reloaded,
            e.CertificateLoaded: self._on_certificate_loaded,
        }

    def left_brokers(self) -> Collection[int]:
        """Returns the brokers that have left the cluster and still have series. Any thread."""
        with self._lock:
            self._end_series(self._monotonic_s())
            return tuple(self._left)

    def has_left(self, node_id: int) -> bool:
        """Returns whether a broker has left the cluster. Any thread: plain reads."""
        return node_id in self._left or node_id in self._departed

    def wants(self, kind: type) -> bool:
        """See `service.process.app.Subscriber`."""
        return kind in self._takers

    def emit(self, event: e.Event, /) -> None:
        """Counts one event."""
        take = self._takers.get(type(event))
        if take is not None:
            with self._lock:
                take(event)

    def collect(self) -> Iterator[Metric]:
        """Yields the families for Prometheus. Admin thread."""
        with self._lock:
            last_refresh_s, leaderless = self._last_refresh_s, self._leaderless
            expires_at_s = self._certificate_expires_at_s
            unreachable_since_s = self._unreachable_since_s
            rejected_for_s = self._rejected_for_s()
            self._end_series(self._monotonic_s())
        for counter in self._counters:
            yield counter_family(counter)
        for histogram in self._histograms:
            yield histogram_family(histogram)
        if last_refresh_s is not None:
            yield gauge(
                "metadata_last_refresh_success_timestamp_seconds",
                "When metadata was last refreshed.",
                last_refresh_s,
            )
        if leaderless is not None:
            yield gauge("metadata_leaderless_partitions", "Known partitions without a leader.", leaderless)
        yield gauge(
            "brokers_unreachable_seconds",
            "For how long all attempts to connect to a broker have failed; 0 when the last one succeeded.",
            0.0 if unreachable_since_s is None else self._monotonic_s() - unreachable_since_s,
        )
        yield gauge(
            "authentication_rejected_seconds",
            "For how long credentials have been rejected; 0 once a connection authenticates.",
            rejected_for_s,
        )
        expiry = GaugeMetricFamily(
            "pilotfish_tls_certificate_expiry_timestamp_seconds",
            "When our own certificate expires.",
            labels=(),
        )
        if expires_at_s is not None:
            expiry.add_metric((), expires_at_s)
        if self.listener_expires_at_s is not None:
            expiry.add_sample(expiry.name, {"listener": "api"}, self.listener_expires_at_s())
        yield expiry

    # -- events, under the lock ------------------------------------------------------------------------------

    def _on_refreshed(self, event: e.MetadataRefreshed) -> None:
        self._refreshes.child(event.reason, "success").add()
        self._refresh_seconds.child().observe(event.duration_ms / 1000)
        if not event.is_partial:  # as metadata_age_seconds, which does not count refreshes of some topics
            self._last_refresh_s = time.time()
        self._leaderless = event.leaderless_partitions

    def _on_refresh_failed(self, event: e.MetadataRefreshFailed) -> None:
        self._refreshes.child(event.reason, event.outcome).add()

    def _on_brokers(self, event: e.BrokersChanged) -> None:
        now_s = self._monotonic_s()
        for node_id in event.joined:
            self._left.pop(node_id, None)
            self._departed.pop(node_id, None)
        for node_id in event.left:
            self._left[node_id] = now_s
        self._end_series(now_s)

    def _end_series(self, now_s: float) -> None:
        """Ends the series of the brokers that left long ago, and of the first ones if too many left."""
        while self._left:
            node_id, left_s = next(iter(self._left.items()))
            if now_s - left_s < KEPT_AFTER_LEAVING_S and len(self._left) <= MOST_KEPT:
                return
            del self._left[node_id]
            if len(self._departed) >= MOST_DEPARTED:
                del self._departed[next(iter(self._departed))]
            self._departed[node_id] = None
            self._traffic.pop(node_id, None)
            for family in (self._connections, self._disconnects, self._sent_bytes, self._received_bytes):
                family.forget("broker", broker_label(node_id))

    def _on_node_ready(self, event: e.NodeReady) -> None:
        self._unreachable_since_s = self._rejected_s = None
        if event.node_id >= 0:
            self._ready.add(event.node_id)
        if event.node_id not in self._departed:
            self._connections.child(broker_label(event.node_id)).add()

    def _on_disconnected(self, event: e.NodeDisconnected) -> None:
        self._ready.discard(event.node_id)
        if not self._ready and self._unreachable_since_s is None and event.reason not in _CLOSED_BY_US:
            self._unreachable_since_s = self._monotonic_s()
        if event.reason == "authentication":
            now_s = self._monotonic_s()
            self._rejected_s = (now_s if self._rejected_s is None else self._rejected_s[0], now_s)
        if event.node_id not in self._departed:
            self._disconnects.child(broker_label(event.node_id), event.reason).add()

    def _rejected_for_s(self) -> float:
        """Returns for how long credentials have been rejected.

        If a broker is connected and nobody needs the one that rejected them, no connection may follow: then
        the rejection counts for REJECTION_COUNTS_S. Under the lock.
        """
        if self._rejected_s is None:
            return 0.0
        first_s, last_s = self._rejected_s
        now_s = self._monotonic_s()
        if self._ready and now_s - last_s >= REJECTION_COUNTS_S:
            self._rejected_s = None
            return 0.0
        return now_s - first_s

    def _on_request(self, event: e.RequestCompleted) -> None:
        # Also without an answer: if a broker hangs, a request takes request.timeout.ms.
        self._request_seconds.child(event.api).observe(event.latency_ms / 1000)
        if event.error is not Errors.NONE:
            self._request_errors.child(event.api, event.error.name).add()
        if event.error is Errors.REQUEST_TIMED_OUT:
            self._request_timeouts.child(event.api).add()
        traffic = self._traffic.get(event.node_id)
        if traffic is None:
            if event.node_id in self._departed:
                return
            broker = broker_label(event.node_id)
            traffic = self._sent_bytes.child(broker), self._received_bytes.child(broker)
            self._traffic[event.node_id] = traffic
        sent, received = traffic
        sent.value += event.sent_bytes
        received.value += event.received_bytes

    def _on_batch_sent(self, event: e.BatchSent) -> None:
        self._batch_bytes.observe(event.batch_bytes)
        self._batch_records.observe(event.records)
        self._queue_seconds.observe(event.queue_ms / 1000)
        if event.raw_bytes:
            self._compression.observe(event.batch_bytes / event.raw_bytes)

    def _on_produce_finished(self, event: e.ProduceFinished) -> None:
        if event.error is not Errors.NONE:
            self._on_records_failed(event)
            return
        self._records_sent.value += event.records
        if self._by_topic:
            self._topic_records.child(self._topic_label(event.topic)).add(event.records)

    def _on_records_failed(self, event: e.ProduceFinished | e.RecordsCancelled) -> None:
        cause = event.error if event.cause is Errors.NONE else event.cause
        self._record_errors.child(event.error.name, cause.name).add(event.records)
        if self._by_topic:
            self._topic_errors.child(self._topic_label(event.topic)).add(event.records)

    def _on_wait(self, event: e.WaitFinished) -> None:
        if event.phase == "metadata":
            self._metadata_wait.child(event.outcome).observe(event.waited_ms / 1000)
            return
        if event.phase != "buffer":
            return
        self._buffer_wait.child().observe(event.waited_ms / 1000)
        if event.outcome == "timeout":
            self._buffer_exhausted.child().add()

    def _on_secret_reloaded(self, event: e.SecretReloaded) -> None:
        self._credential_reloads.child("success" if event.failure is None else "failure").add()

    def _on_certificate_loaded(self, event: e.CertificateLoaded) -> None:
        self._certificate_expires_at_s = event.expires_at_s

    # -- making ----------------------------------------------------------------------------------------------

    def _topic_label(self, topic: str) -> str:
        if topic not in self._topics:
            if len(self._topics) >= self._topic_limit:
                return OTHER_TOPICS
            self._topics.add(topic)
        return topic

    def _counter(self, name: str, help_text: str, *labels: str) -> Family[Counter]:
        family = counters(f"pilotfish_{name}", help_text, *labels)
        self._counters.append(family)
        return family

    def _histogram(
        self, name: str, help_text: str, bounds: tuple[float, ...], *labels: str
    ) -> Family[Histogram]:
        family = histograms(f"pilotfish_{name}", help_text, bounds, *labels)
        self._histograms.append(family)
        return family

    def _create_alerted(self) -> None:
        """Creates the series that alerts use, at 0. Otherwise a rate would miss their first increase."""
        for reason in REASONS:
            for outcome in OUTCOMES:
                self._refreshes.child(reason, outcome)
        for outcome in ("success", "timeout", "error"):
            self._metadata_wait.child(outcome)
        for error in USUAL_ERRORS:
            self._record_errors.child(error.name, error.name)
        for cause in USUAL_CAUSES:
            self._record_errors.child(Errors.REQUEST_TIMED_OUT.name, cause.name)
            self._record_retries.child(cause.name)
        for outcome in ("success", "failure"):
            self._credential_reloads.child(outcome)
        for family in (
            self._leader_changes,
            self._rebootstraps,
            self._batch_splits,
            self._buffer_exhausted,
            self._buffer_wait,
            self._throttle,
            self._refresh_seconds,
        ):
            family.child()
