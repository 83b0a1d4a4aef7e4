"""The metrics that Prometheus sees, from events, from status and from requests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from client_core import Errors, NodeStatus, Phase, RecordFailure, Written
from client_core import events as e
from client_core.errors import error_for
from service.base.fast_metrics import Histogram, counters
from service.observe.http_metrics import HttpMetrics, Observed
from service.observe.metrics import (
    KEPT_AFTER_LEAVING_S,
    MOST_DEPARTED,
    MOST_KEPT,
    OTHER_TOPICS,
    REJECTION_COUNTS_S,
    USUAL_CAUSES,
    USUAL_ERRORS,
    ClientMetrics,
)
from service.process.admin import make_registry
from tests.support.coroutine_tests import run
from tests.support.fake_producer import with_status
from tests.support.http_app import HttpApp, NativeApp

if TYPE_CHECKING:
    from pathlib import Path

ONE = b'{"records":[{"value":1}]}'
TIMED_OUT = Errors.REQUEST_TIMED_OUT


def scraped(web: NativeApp) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Every sample: name to labels to value."""
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    text = generate_latest(make_registry(web.app)).decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def value(web: NativeApp, name: str, **labels: str) -> float | None:
    return make_registry(web.app).get_sample_value(f"pilotfish_{name}", labels)


def errors(web: NativeApp, error: str, cause: str) -> float | None:
    return value(web, "record_errors_total", error=error, cause=cause)


@pytest.fixture
def web() -> NativeApp:
    app = NativeApp(topic_metrics=True, topic_metrics_limit=2)
    app.producer.events = e.NO_EVENTS  # what is counted is what a test says
    app.producer.set_topics({"orders": 3})
    return app


def test_what_alerts_count_of_produces_is_there_before_the_first(web: NativeApp) -> None:
    for code in ("429", "503"):
        labels = {"method": "POST", "route": "/v1/topics/{topic}/records", "code": code}
        assert value(web, "http_requests_total", **labels) == 0


def emit(web: NativeApp, *events: e.Event) -> None:
    for event in events:
        web.app.client_metrics.emit(event)


# -- fast metrics --------------------------------------------------------------------------------------------


def test_a_histogram_counts_a_value_on_a_bound_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for seen in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(seen)
    assert histogram.buckets() == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 5.0)]
    assert (histogram.count, histogram.sum) == (5, 14.0)


def test_a_family_gives_the_same_child_for_the_same_labels() -> None:
    family = counters("x", "help", "a", "b")
    family.child("1", "2").add(3)
    assert family.child("1", "2").value == 3
    assert family.child("2", "1").value == 0


def test_a_family_forgets_by_label_and_a_reader_is_not_disturbed() -> None:
    family = counters("x", "help", "a", "b")
    for labels in (("1", "x"), ("1", "y"), ("2", "x")):
        family.child(*labels)
    reading, reading_too = family.items(), family.items()
    next(reading_too)
    family.child("3", "x")
    assert len(list(reading_too)) == 2
    family.forget("a", "1")
    assert len(list(reading)) == 3
    assert [labels for labels, _ in family.items()] == [("2", "x"), ("3", "x")]


# -- events --------------------------------------------------------------------------------------------------


def test_refreshes_are_counted_by_reason_and_outcome(web: NativeApp) -> None:
    emit(
        web,
        e.MetadataRefreshed("expired", 2, 2, False, 40, 1, 3, 1, "c"),
        e.MetadataRefreshFailed("expired", "timeout", "late"),
    )
    assert value(web, "metadata_refreshes_total", reason="expired", outcome="success") == 1
    assert value(web, "metadata_refreshes_total", reason="expired", outcome="timeout") == 1
    assert value(web, "metadata_refresh_duration_seconds_sum") == 0.04
    assert value(web, "metadata_leaderless_partitions") == 1
    assert (value(web, "metadata_last_refresh_success_timestamp_seconds") or 0) > 1.7e9


def test_a_refresh_of_some_topics_is_not_the_last_refresh_as_for_the_age(web: NativeApp) -> None:
    some = e.MetadataRefreshed("age", 2, 2, True, 40, 1, 3, 2, "c")
    emit(web, some)
    assert value(web, "metadata_last_refresh_success_timestamp_seconds") is None
    emit(web, e.MetadataRefreshed("expired", 2, 2, False, 40, 1, 3, 1, "c"))
    refreshed_s = value(web, "metadata_last_refresh_success_timestamp_seconds")
    emit(web, some)
    assert value(web, "metadata_last_refresh_success_timestamp_seconds") == refreshed_s
    assert value(web, "metadata_leaderless_partitions") == 2


def test_series_that_alerts_look_at_begin_at_zero(web: NativeApp) -> None:
    assert value(web, "metadata_refreshes_total", reason="manual", outcome="success") == 0
    assert value(web, "metadata_refreshes_total", reason="disconnect", outcome="no_node") == 0
    assert requests(web, "POST", "/v1/topics/{topic}/records", "503") == 0
    for cause in ("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "LEADER_NOT_AVAILABLE"):
        assert value(web, "record_errors_total", error="REQUEST_TIMED_OUT", cause=cause) == 0
    for error in USUAL_ERRORS:
        assert value(web, "record_errors_total", error=error.name, cause=error.name) == 0, error
    for error in USUAL_CAUSES:
        assert value(web, "record_retries_total", error=error.name) == 0, error
    assert value(web, "buffer_exhausted_total") == 0
    assert value(web, "produce_duration_seconds_count", outcome="error") == 0


def test_credentials_that_are_read_again_are_counted_by_how_that_went(web: NativeApp) -> None:
    assert value(web, "credential_reloads_total", outcome="success") == 0
    assert value(web, "credential_reloads_total", outcome="failure") == 0
    emit(
        web,
        e.SecretReloaded("sasl.password.file", None),
        e.SecretReloaded("ssl.keystore.key.file", None),
        e.SecretReloaded("ssl.keystore.key.file", "can't read /tls/tls.key: no such file or directory"),
    )
    assert value(web, "credential_reloads_total", outcome="success") == 2
    assert value(web, "credential_reloads_total", outcome="failure") == 1


def test_the_expiry_of_our_certificate_is_a_metric_and_absent_without_one(web: NativeApp) -> None:
    assert value(web, "tls_certificate_expiry_timestamp_seconds") is None
    emit(web, e.CertificateLoaded(2_000_000_000))
    assert value(web, "tls_certificate_expiry_timestamp_seconds") == 2_000_000_000
    emit(web, e.CertificateLoaded(2_100_000_000))
    assert value(web, "tls_certificate_expiry_timestamp_seconds") == 2_100_000_000


def test_a_flush_is_no_wait_for_memory(web: NativeApp) -> None:
    emit(web, e.WaitFinished("flush", "success", 40), e.WaitFinished("buffer", "success", 40))
    assert value(web, "buffer_pool_wait_seconds_count") == 1
    assert value(web, "metadata_wait_seconds_count", outcome="success") == 0


def test_batches_and_records_are_counted(web: NativeApp) -> None:
    emit(
        web,
        e.BatchSent(node_id=1, records=10, batch_bytes=500, raw_bytes=1000, queue_ms=5, attempt=1),
        e.BatchRetried("orders", 0, 10, Errors.NOT_LEADER_OR_FOLLOWER, 1),
        e.BatchSplit("orders", 0, 10),
        e.ProduceFinished("orders", 0, 1, 10, 500, 20, 1, Errors.NONE),
        e.ProduceFinished("orders", 0, 1, 4, 500, 20, 1, Errors.MESSAGE_TOO_LARGE, Errors.MESSAGE_TOO_LARGE),
        e.ProduceFinished("orders", 0, None, 2, 500, 20, 9, TIMED_OUT, Errors.NOT_ENOUGH_REPLICAS),
        e.RecordsCancelled("orders", 3, TIMED_OUT, Errors.LEADER_NOT_AVAILABLE),
    )
    assert value(web, "batch_records_sum") == 10
    assert value(web, "batch_compression_ratio_sum") == 0.5
    assert value(web, "record_retries_total", error="NOT_LEADER_OR_FOLLOWER") == 10
    assert value(web, "batch_splits_total") == 1
    assert value(web, "records_sent_total") == 10
    assert errors(web, "MESSAGE_TOO_LARGE", "MESSAGE_TOO_LARGE") == 4
    assert errors(web, "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS") == 2
    assert errors(web, "REQUEST_TIMED_OUT", "LEADER_NOT_AVAILABLE") == 3
    assert not errors(web, "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER"), "it was sent again"


def test_requests_are_counted_by_api_and_bytes_by_broker(web: NativeApp) -> None:
    emit(
        web,
        e.RequestCompleted("Produce", 1, 30, 100, 20),
        e.RequestCompleted("Produce", -2, 30, 7, 0, Errors.REQUEST_TIMED_OUT),
        e.RequestCompleted("Produce", -1, 30, 8, 0, Errors.NETWORK_EXCEPTION),
    )
    assert value(web, "request_duration_seconds_count", api="Produce") == 3, "two had no answer"
    assert value(web, "request_timeouts_total", api="Produce") == 1
    assert value(web, "request_errors_total", api="Produce", error="NETWORK_EXCEPTION") == 1
    assert value(web, "network_sent_bytes_total", broker="1") == 100
    assert value(web, "network_received_bytes_total", broker="1") == 20
    assert value(web, "network_sent_bytes_total", broker="bootstrap") == 15


def test_waits_are_counted_by_phase(web: NativeApp) -> None:
    emit(
        web,
        e.WaitFinished("metadata", "timeout", 500),
        e.WaitFinished("buffer", "timeout", 250),
        e.WaitFinished("buffer", "success", 250),
        e.NodeThrottled(1, 100),
    )
    assert value(web, "metadata_wait_seconds_sum", outcome="timeout") == 0.5
    assert value(web, "buffer_pool_wait_seconds_sum") == 0.5
    assert value(web, "buffer_exhausted_total") == 1
    assert value(web, "produce_throttle_seconds_sum") == 0.1


def of_broker(metrics: ClientMetrics, name: str, broker: str, **labels: str) -> float | None:
    """A value of a broker, by what the collector itself yields."""
    wanted = {"broker": broker, **labels}
    found = [
        sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == f"pilotfish_{name}" and sample.labels == wanted
    ]
    return found[0] if found else None


def test_a_broker_that_left_keeps_its_series_for_an_hour() -> None:
    clock = Ticking()
    metrics = ClientMetrics(monotonic_s=clock)
    asked = e.RequestCompleted("Metadata", 2, 1, 10, 10)
    for event in (e.NodeReady(1), e.NodeReady(2), asked, e.BrokersChanged((), (2,), ())):
        metrics.emit(event)
    metrics.emit(e.NodeDisconnected(2, "closed", "gone", 0))
    clock.now_s += KEPT_AFTER_LEAVING_S - 1
    assert of_broker(metrics, "broker_connections_total", "2") == 1
    assert of_broker(metrics, "broker_disconnects_total", "2", reason="closed") == 1
    assert list(metrics.left_brokers()) == [2]
    clock.now_s += 1
    metrics.emit(e.NodeDisconnected(2, "closed", "gone", 0))
    metrics.emit(asked)
    assert of_broker(metrics, "broker_connections_total", "1") == 1
    for name in ("broker_connections_total", "network_sent_bytes_total"):
        assert of_broker(metrics, name, "2") is None
    assert of_broker(metrics, "broker_disconnects_total", "2", reason="closed") is None
    assert list(metrics.left_brokers()) == []
    assert metrics.has_left(2)


def test_the_counters_of_a_broker_that_comes_back_go_on() -> None:
    metrics = ClientMetrics(monotonic_s=Ticking())
    for event in (
        e.NodeReady(2),
        e.RequestCompleted("Metadata", 2, 1, 10, 10),
        e.BrokersChanged((), (2,), ()),
        e.BrokersChanged((2,), (), ()),
        e.NodeReady(2),
        e.RequestCompleted("Metadata", 2, 1, 10, 10),
    ):
        metrics.emit(event)
    assert of_broker(metrics, "broker_connections_total", "2") == 2
    assert of_broker(metrics, "network_sent_bytes_total", "2") == 20
    assert not metrics.has_left(2)


def test_the_counters_of_a_broker_whose_series_ended_begin_anew_when_it_comes_back() -> None:
    clock = Ticking()
    metrics = ClientMetrics(monotonic_s=clock)
    asked = e.RequestCompleted("Metadata", 2, 1, 10, 30)
    for event in (e.NodeReady(2), asked, e.BrokersChanged((), (2,), ())):
        metrics.emit(event)
    clock.now_s += KEPT_AFTER_LEAVING_S
    assert of_broker(metrics, "network_sent_bytes_total", "2") is None
    for event in (e.BrokersChanged((2,), (), ()), e.NodeReady(2), asked):
        metrics.emit(event)
    assert of_broker(metrics, "broker_connections_total", "2") == 1
    assert of_broker(metrics, "network_sent_bytes_total", "2") == 10
    assert of_broker(metrics, "network_received_bytes_total", "2") == 30


def test_of_brokers_that_left_the_last_are_remembered() -> None:
    metrics = ClientMetrics()
    last = MOST_DEPARTED + MOST_KEPT + 2
    for node_id in range(last + 1):
        metrics.emit(e.NodeReady(node_id))
        metrics.emit(e.BrokersChanged(joined=(), left=(node_id,), moved=()))
    assert len(metrics.left_brokers()) == MOST_KEPT
    assert of_broker(metrics, "broker_connections_total", str(last - MOST_KEPT)) is None
    assert of_broker(metrics, "broker_connections_total", str(last)) == 1
    assert not metrics.has_left(2)
    assert metrics.has_left(3)
    assert metrics.has_left(last)


def test_topics_beyond_the_limit_share_a_label(web: NativeApp) -> None:
    for topic in ("a", "b", "c", "d", "a"):
        emit(web, e.ProduceFinished(topic, 0, 1, 1, 10, 1, 0, Errors.NONE))
    assert value(web, "topic_records_sent_total", topic="a") == 2
    assert value(web, "topic_records_sent_total", topic="b") == 1
    assert value(web, "topic_records_sent_total", topic=OTHER_TOPICS) == 2
    emit(web, e.ProduceFinished("d", 0, 1, 1, 10, 1, 0, Errors.MESSAGE_TOO_LARGE))
    assert value(web, "topic_record_errors_total", topic=OTHER_TOPICS) == 1


def test_without_being_asked_no_topic_is_a_label() -> None:
    metrics = ClientMetrics()
    metrics.emit(e.ProduceFinished("a", 0, 1, 1, 10, 1, 0, Errors.NONE))
    topics = [f for f in metrics.collect() if f.name == "pilotfish_topic_records_sent"]
    assert [family.samples for family in topics] == [[]]


def test_an_event_that_is_not_counted_is_accepted_all_the_same(web: NativeApp) -> None:
    emit(web, e.NodeConnecting(1), e.PartitionCountChanged("a", None, 3))


# -- status --------------------------------------------------------------------------------------------------


def a_node(node_id: int, state: str, in_flight: int = 0, backoff_ms: int = 0) -> NodeStatus:
    return NodeStatus(node_id, "host", 9092, state, in_flight, None, backoff_ms, 0, None, None)


def test_connections_are_gauges_of_this_moment(web: NativeApp) -> None:
    nodes = (a_node(1, "ready", 3), a_node(2, "disconnected", 0, 500))
    with_status(web.producer, nodes=nodes)
    assert value(web, "broker_in_flight_requests", broker="1") == 3
    assert value(web, "broker_connection_state", broker="1", state="ready") == 1
    assert value(web, "broker_connection_state", broker="1", state="connecting") == 0
    assert value(web, "broker_reconnect_backoff_seconds", broker="2") == 0.5


def test_bootstrap_addresses_share_one_label(web: NativeApp) -> None:
    lost = (a_node(-3, "disconnected", 0, 500), a_node(-4, "disconnected", 0, 100))
    with_status(web.producer, nodes=(a_node(-1, "ready", 1), a_node(-2, "connecting", 2), *lost))
    assert value(web, "broker_in_flight_requests", broker="bootstrap") == 3
    assert value(web, "broker_reconnect_backoff_seconds", broker="bootstrap") == 0.5
    assert value(web, "broker_connection_state", broker="bootstrap", state="ready") == 1
    assert value(web, "broker_connection_state", broker="bootstrap", state="connecting") == 1
    assert value(web, "broker_in_flight_requests", broker="-1") is None
    for node_id in (-1, -2):  # two series of one label would spoil the whole page
        web.app.events.emit(e.RequestCompleted("Metadata", node_id, 4, 10, 10))
    assert value(web, "broker_other_latency_seconds", broker="bootstrap", percentile="50") is None


def test_a_broker_that_left_has_state_0(web: NativeApp) -> None:
    with_status(web.producer, nodes=(a_node(1, "ready"), a_node(2, "disconnected", 3, 500)))
    emit(web, e.BrokersChanged(joined=(1, 2), left=(), moved=()))
    assert value(web, "broker_connection_state", broker="2", state="disconnected") == 1
    emit(web, e.BrokersChanged(joined=(), left=(2,), moved=()))
    for name in ("broker_in_flight_requests", "broker_connection_state", "broker_reconnect_backoff_seconds"):
        of_2 = [v for labels, v in scraped(web)[f"pilotfish_{name}"].items() if ("broker", "2") in labels]
        assert of_2
        assert not any(of_2)


def test_the_latency_of_a_broker_outlives_its_connection(web: NativeApp) -> None:
    node = a_node(2, "ready")
    with_status(web.producer, nodes=(node,))
    events: list[e.Event] = [
        *[e.RequestCompleted("Produce", 2, 20, 10, 10)] * 9,
        e.RequestCompleted("Produce", 2, 300, 10, 10),
        e.RequestCompleted("Produce", 5, 300, 10, 10),  # late: of a broker that left long ago
        e.RequestCompleted("Metadata", 2, 4, 10, 10),
        e.NodeDisconnected(2, "closed", "gone", 0),
        e.BrokersChanged(joined=(), left=(2,), moved=()),
    ]
    for event in events:
        web.app.events.emit(event)
    with_status(web.producer, nodes=(replace(node, state="disconnected"),))
    assert value(web, "broker_produce_latency_seconds", broker="2", percentile="99") == 0.3
    assert (value(web, "broker_produce_latency_seconds", broker="2", percentile="50") or 1) < 0.03
    assert value(web, "broker_produce_latency_seconds", broker="5", percentile="50") is None
    assert value(web, "broker_other_latency_seconds", broker="2", percentile="50") == 0.004
    web.producer.clock.advance(120_000)
    assert value(web, "broker_produce_latency_seconds", broker="2", percentile="99") is None


class Ticking:
    """A monotonic clock that a test turns, in seconds."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def seconds(metrics: ClientMetrics, name: str) -> float:
    (gauge,) = (one for one in metrics.collect() if one.name == f"pilotfish_{name}_seconds")
    return float(gauge.samples[0].value)


def unreachable_s(metrics: ClientMetrics) -> float:
    return seconds(metrics, "brokers_unreachable")


def rejected_s(metrics: ClientMetrics) -> float:
    return seconds(metrics, "authentication_rejected")


def failed(node_id: int, reason: str = "refused") -> e.NodeDisconnected:
    return e.NodeDisconnected(node_id, reason, "it is not there", 50)


def test_brokers_are_unreachable_from_the_first_of_attempts_that_all_fail() -> None:
    cases: dict[str, tuple[list[e.Event], float]] = {
        "nothing was tried": ([], 0),
        "the only attempt failed": ([failed(1)], 10),
        "no bootstrap server is reached": ([failed(-1)], 10),
        "a bootstrap server is reached": ([failed(1), e.NodeReady(-1)], 0),
        "one is reached while another one is not": ([e.NodeReady(1), failed(2)], 0),
        "the last one is gone": ([e.NodeReady(1), failed(1, "closed"), failed(2)], 10),
        "an idle connection was closed": ([e.NodeReady(1), failed(1, "idle")], 0),
        "we closed it for new credentials": ([e.NodeReady(1), failed(1, "local")], 0),
        "a bootstrap server that was left is no broker": ([e.NodeReady(-1), failed(1)], 10),
        "what failed beside a reached one is past": ([e.NodeReady(1), failed(2), failed(1, "idle")], 0),
    }
    for name, (events, expected_s) in cases.items():
        clock = Ticking()
        metrics = ClientMetrics(monotonic_s=clock)
        for event in events:
            metrics.emit(event)
        clock.now_s += 10
        assert unreachable_s(metrics) == expected_s, name


def test_attempts_that_go_on_failing_do_not_begin_anew() -> None:
    clock = Ticking()
    metrics = ClientMetrics(monotonic_s=clock)
    for _ in range(3):
        metrics.emit(failed(1))
        clock.now_s += 10
    assert unreachable_s(metrics) == 30


def rejected(node_id: int) -> e.NodeDisconnected:
    return failed(node_id, "authentication")


def test_credentials_are_rejected_from_the_first_rejection_until_a_connection_authenticates() -> None:
    cases: dict[str, tuple[list[e.Event], float]] = {
        "nothing was tried": ([], 0),
        "there is no broker": ([failed(1)], 0),
        "a broker rejects them": ([rejected(1)], 10),
        "a bootstrap server rejects them": ([rejected(-1)], 10),
        "then it can't be reached": ([rejected(1), failed(1)], 10),
        "another broker is connected": ([e.NodeReady(2), rejected(1)], 10),
        "it accepts them": ([rejected(1), e.NodeReady(1)], 0),
        "another one accepts them": ([rejected(1), e.NodeReady(-1)], 0),
    }
    for name, (events, expected_s) in cases.items():
        metrics = ClientMetrics(monotonic_s=(clock := Ticking()))
        for event in events:
            metrics.emit(event)
        clock.now_s += 10
        assert rejected_s(metrics) == expected_s, name


def test_a_rejection_by_a_broker_that_nobody_needs_ends_while_another_one_is_connected() -> None:
    metrics = ClientMetrics(monotonic_s=(clock := Ticking()))
    metrics.emit(rejected(1))
    clock.now_s += 100
    assert rejected_s(metrics) == 100, "no broker is connected"
    metrics.emit(e.NodeReady(2))
    for _ in range(4):
        metrics.emit(rejected(1))
        clock.now_s += REJECTION_COUNTS_S - 1
    assert rejected_s(metrics) == 4 * (REJECTION_COUNTS_S - 1)
    clock.now_s += 1
    assert rejected_s(metrics) == 0
    metrics.emit(rejected(1))
    clock.now_s += 2
    assert rejected_s(metrics) == 2


def test_turns_of_the_poll_loop_are_counted_by_how_long_they_worked(web: NativeApp) -> None:
    for worked_ms in (0, 1, 40, 90_000):
        web.producer.turn_times.add(worked_ms)
    web.producer.failed_turns = 3
    turns = "poll_loop_iteration_duration_seconds"
    assert value(web, f"{turns}_count") == 4
    assert value(web, f"{turns}_sum") == 90.041
    assert value(web, f"{turns}_bucket", le="0.001") == 2
    assert value(web, f"{turns}_bucket", le="0.05") == 3
    assert value(web, "loop_failed_turns_total", loop="poll") == 3
    assert value(web, "poll_loop_max_sleep_seconds") == 30


def test_failed_turns_are_counted_for_each_loop(web: NativeApp, tmp_path: Path) -> None:
    assert [value(web, "loop_failed_turns_total", loop=loop) for loop in ("spool", "event_log")] == [None] * 2
    (tmp_path / "spool").mkdir()
    both = NativeApp(spool_folder=str(tmp_path / "spool"), events_folder=str(tmp_path / "events"))
    assert both.app.spool is not None
    both.app.spool.delivery.failed_turns = 7
    assert value(both, "loop_failed_turns_total", loop="spool") == 7
    assert value(both, "loop_failed_turns_total", loop="event_log") == 0


def test_metadata_and_buffer_are_gauges(web: NativeApp) -> None:
    web.producer.clock.advance(2_500)
    assert value(web, "metadata_age_seconds") == 2.5
    assert value(web, "metadata_max_age_seconds") == 300
    assert value(web, "metadata_partitions") == 3
    assert value(web, "cluster_info", cluster_id="cluster") == 1
    assert value(web, "buffer_pool_size_bytes") == 33_554_432
    reported = web.producer.status()
    metadata = replace(
        reported.metadata, update_version=11, request_version=12, max_age_ms=13_000, topics=14, partitions=15
    )
    buffer = replace(reported.buffer, total_bytes=16, available_bytes=17, waiters=18)
    with_status(web.producer, metadata=metadata, buffer=buffer, loop_age_ms=19_500)
    expected = {
        "metadata_update_version": 11,
        "metadata_request_version": 12,
        "metadata_max_age_seconds": 13,
        "metadata_topics": 14,
        "metadata_partitions": 15,
        "buffer_pool_size_bytes": 16,
        "buffer_pool_available_bytes": 17,
        "buffer_pool_waiters": 18,
        "poll_loop_age_seconds": 19.5,
    }
    assert {name: value(web, name) for name in expected} == expected


def test_before_the_first_answer_there_is_no_age_and_no_cluster() -> None:
    web = NativeApp()
    assert value(web, "metadata_age_seconds") is None
    assert "pilotfish_cluster_info" not in scraped(web)


# -- HTTP ----------------------------------------------------------------------------------------------------


def requests(web: NativeApp, method: str, route: str, code: str) -> float | None:
    return value(web, "http_requests_total", method=method, route=route, code=code)


def test_requests_are_counted_by_route_never_by_path(web: NativeApp) -> None:
    etag = web.get("/v1/topics/orders").headers["etag"]
    web.get("/v1/topics/orders", headers={"if-none-match": etag})
    web.get("/v1/topics/%6Frders")
    web.get("/v1/topics/orders/partitions/99")
    web.get("/v1/brokers/1")
    web.get("/no/such/path")
    web.get("/v1/cluster", headers={"host": "evil.example"})
    web.produce(ONE)
    assert requests(web, "GET", "/v1/topics/{topic}", "200") == 2
    assert requests(web, "GET", "/v1/topics/{topic}", "304") == 1
    assert requests(web, "GET", "/v1/topics/{topic}/partitions/{partition}", "404") == 1
    assert requests(web, "GET", "/v1/brokers/{broker_id}", "200") == 1
    assert requests(web, "GET", "other", "404") == 1
    assert requests(web, "GET", "other", "421") == 1
    assert requests(web, "POST", "/v1/topics/{topic}/records", "200") == 1
    assert value(web, "http_requests_in_progress") == 0


def test_a_head_is_counted_as_one_whatever_answers_it(web: NativeApp) -> None:
    ready, other = "/v1/topics/{topic}", "/v1/status"
    for path in ("/v1/topics/orders", "/v1/status"):
        web.ask("HEAD", path)
    web.ask("HEAD", "/v1/topics/nope", ends=web.producer.say_unknown)  # it waits first
    assert [
        requests(web, "HEAD", *answered) for answered in ((ready, "200"), (other, "200"), (ready, "404"))
    ] == [
        1.0,
        1.0,
        1.0,
    ]
    assert [requests(web, "GET", route, "200") for route in (ready, other)] == [None, None]
    assert web.get("/v1/status").json()["failed_requests"][0]["method"] == "HEAD"


def counted(metrics: HttpMetrics) -> dict[str, float]:
    """What it shows: each sample's value by its name and labels."""
    families = text_string_to_metric_families(generate_latest(metrics).decode())
    samples = [sample for family in families for sample in family.samples]
    return {" ".join((sample.name, *sorted(sample.labels.values()))): sample.value for sample in samples}


def test_a_request_that_ended_with_an_exception_is_a_500_and_not_in_progress() -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("a bug")

    metrics = HttpMetrics()
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(RuntimeError):
        run(Observed(broken, metrics)(scope, broken, broken))
    found = counted(metrics)
    assert found["pilotfish_http_requests_total 500 GET other"] == 1
    assert found["pilotfish_http_requests_in_progress"] == 0


def test_methods_that_callers_make_up_are_one_label_and_take_no_memory() -> None:
    metrics = HttpMetrics()
    for n in range(100):
        metrics.route_counters(f"M{n}", "/v1/topics", 405).add(0.0)
    assert counted(metrics)["pilotfish_http_requests_total /v1/topics 405 other"] == 100
    assert len(metrics._by_route) == 0


def test_look_ups_that_waited_are_counted_by_how_they_ended(web: NativeApp) -> None:
    for path in ("/v1/topics/a", "/v1/topics/a/partitions/0", "/v1/topics/a/leader?partition=0"):
        web.producer.clock.advance(1_000)  # beyond what is remembered as missing
        assert web.get(path, ends=web.producer.say_unknown).status_code == 404
        web.producer.clock.advance(1_000)
        assert (
            web.get(
                f"{path}{'&' if '?' in path else '?'}max_block_ms=5", ends=web.producer.time_out
            ).status_code
            == 503
        )
    for route in ("{topic}", "{topic}/partitions/{partition}", "{topic}/leader"):
        counts = {code: requests(web, "GET", f"/v1/topics/{route}", code) for code in ("404", "503")}
        assert counts == {"404": 1, "503": 1}, route


def test_a_made_up_method_makes_no_series_up(web: NativeApp) -> None:
    web.ask("BREW", "/v1/cluster")
    assert requests(web, "other", "/v1/cluster", "405") == 1


def test_fast_and_slow_way_share_their_series(web: NativeApp) -> None:
    web.get("/v1/cluster")
    web.get("/v1/cluster?max_age_ms=1000")
    assert requests(web, "GET", "/v1/cluster", "200") == 2
    seconds = value(web, "http_request_duration_seconds_count", method="GET", route="/v1/cluster")
    assert seconds == 2


def test_produces_are_timed_by_how_they_ended(web: NativeApp) -> None:
    web.produce(ONE)
    web.produce(b"{")
    fails = RecordFailure(error_for(10), Phase.DELIVERY, Written.UNKNOWN, 1)
    web.producer.outcome_of = lambda i, r: fails if i else web.producer.receipt(i, r)
    web.produce(b'{"records":[{"value":1},{"value":2}]}')
    counts = {
        o: value(web, "produce_duration_seconds_count", outcome=o) for o in ("success", "error", "partial")
    }
    assert counts == {"success": 1, "error": 1, "partial": 1}
    lines = b'{"value":1}\n{"value":2}\n'
    web.post("/v1/topics/orders/records", content=lines, headers={"content-type": "application/x-ndjson"})
    assert value(web, "produce_duration_seconds_count", outcome="partial") == 2, "of a stream, too"


def test_produces_are_timed_however_their_path_is_spelled(web: NativeApp) -> None:
    headers = {"content-type": "application/json"}
    for path, body in [("or%64ers", ONE), ("orders", ONE), ("or%64ers", b"{")]:
        web.post(f"/v1/topics/{path}/records", content=body, headers=headers)
    counts = {
        o: value(web, "produce_duration_seconds_count", outcome=o) for o in ("success", "error", "partial")
    }
    assert counts == {"success": 2, "error": 1, "partial": 0}


def test_a_refused_produce_of_rest_v3_is_timed_once_and_so_is_one_that_is_served() -> None:
    web = HttpApp(dialects="rest-v3")
    web.producer.set_topics({"orders": 3})
    path = "/v3/clusters/{}/topics/orders/records"
    for cluster, media_type, status in [
        ("cluster", "text/plain", 415),
        ("another", "application/json", 404),
        ("cluster", "application/json", 200),
    ]:
        headers = {"content-type": media_type}
        assert web.post(path.format(cluster), content=b"{}", headers=headers).status_code == status
    counts = {o: web.app.sidecar.http.produced(o).count for o in ("success", "error", "partial")}
    assert counts == {"success": 1, "error": 2, "partial": 0}


def test_a_caller_who_left_while_its_topic_was_looked_up_is_499(web: NativeApp) -> None:
    headers = [(b"host", b"localhost")]

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        raise AssertionError

    scope = {"type": "http", "method": "GET", "path": "/v1/topics/new", "raw_path": b"/v1/topics/new"}
    run(web.app({**scope, "query_string": b"", "headers": headers}, receive, send))
    assert requests(web, "GET", "/v1/topics/{topic}", "499") == 1


def test_a_caller_who_left_is_499(web: NativeApp) -> None:
    messages: list[dict[str, Any]] = [{"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return messages[0]

    async def send(_: object) -> None:
        raise AssertionError

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path = "/v1/topics/orders/records"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    run(web.app({**scope, "query_string": b"", "headers": headers}, receive, send))
    assert requests(web, "POST", "/v1/topics/{topic}/records", "499") == 1


def test_a_scrape_of_a_busy_sidecar_stays_small(web: NativeApp) -> None:
    """Below 2,000 lines, though every api, error, reason, status and route was seen on twenty brokers."""
    for api in ("Produce", "Metadata", "ApiVersions", "InitProducerId"):
        for error in list(Errors)[:10]:
            for node_id in range(20):
                emit(web, e.RequestCompleted(api, node_id, 5, 10, 10, error))
    for node_id in range(20):
        emit(web, e.NodeReady(node_id), e.NodeDisconnected(node_id, "closed", "x", 0))
    with_status(web.producer, nodes=tuple(a_node(n, "ready") for n in range(20)))
    for path in ("cluster", "brokers/1", "topics/orders", "topics/orders/leader?key=a", "status", "x"):
        web.get(f"/v1/{path}")
    web.produce(ONE)
    assert len(generate_latest(make_registry(web.app)).splitlines()) < 2_000
