"""`KafkaProducer.metrics()`: Java's names, over events with a clock of the test, and over a fake cluster."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest

from client_core import (
    NO_EVENTS,
    AsyncKafkaProducer,
    BatchRetried,
    BatchSent,
    BatchSplit,
    Errors,
    IllegalArgumentError,
    KafkaProducer,
    NodeDisconnected,
    NodeReady,
    ProduceFinished,
    ProducerConfig,
    ProduceResult,
    ProducerRecord,
    RecordTooLargeError,
    RequestCompleted,
    SerializationError,
    TimeoutError,
    WaitFinished,
)
from client_core.producer.results.producer_metrics import ProducerMetrics
from client_core.producer.results.status import BufferStatus, ClientStatus, MetadataStatus
from client_core.testing import ApiKey, FakeCluster
from tests.support.coroutine_tests import run
from tests.support.live_producer import PATIENCE_MS, PATIENCE_S, QUICK, submit
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents

_STATUS: Final = ClientStatus(
    state="running",
    loop_turns=1,
    loop_age_ms=0,
    waiting_for_metadata=0,
    waiting_for_buffer=3,
    in_flight_batches=0,
    producer_id=None,
    last_answer_age_ms=None,
    metadata=MetadataStatus(1, 1, 2_500, 300_000, False, 1, 1, None, None),
    buffer=BufferStatus(1_000, 400, 1, 2, 3, None),
    nodes=(),
)

pytestmark = pytest.mark.behaviour("MET-01")


def _read(metrics: ProducerMetrics, group: str = "producer-metrics") -> dict[str, float]:
    return metrics.read(_STATUS, io_time_ms=7)[group]


def _sent(records: int, batch_bytes: int = 100, raw_bytes: int = 100, queue_ms: int = 4) -> BatchSent:
    return BatchSent(1, records, batch_bytes, raw_bytes, queue_ms, 1)


def test_totals_count_for_ever_and_rates_averages_and_maxima_over_two_windows() -> None:
    clock = MockClock()
    metrics = ProducerMetrics(clock, NO_EVENTS)
    metrics.emit(_sent(60, batch_bytes=161, raw_bytes=261, queue_ms=4))
    first = _read(metrics)
    assert (first["record-send-total"], first["record-send-rate"]) == (60, 2)  # of one window at least
    assert (first["batch-size-avg"], first["batch-size-max"]) == (161, 161)
    # Of the records, as Java's: a batch's header has 61 bytes, and is never compressed.
    assert (first["record-queue-time-avg"], first["compression-rate-avg"]) == (4, 0.5)

    clock.advance(40_000)
    metrics.emit(_sent(20, batch_bytes=361, raw_bytes=361, queue_ms=8))
    second = _read(metrics)
    assert (second["record-send-total"], second["record-send-rate"]) == (80, 2)  # 80 in 40 s
    assert (second["batch-size-avg"], second["batch-size-max"]) == (261, 361)
    assert (second["record-queue-time-avg"], second["compression-rate-avg"]) == (6, 0.75)

    clock.advance(20_000)  # the first window is a minute old
    assert _read(metrics)["batch-size-avg"] == 361
    clock.advance(40_000)
    third = _read(metrics)
    assert (third["record-send-total"], third["record-send-rate"]) == (80, 0)
    assert math.isnan(third["batch-size-avg"])
    assert math.isnan(third["batch-size-max"])


def test_requests_are_counted_by_node_too_and_only_an_answered_produce_has_a_latency() -> None:
    metrics = ProducerMetrics(MockClock(), NO_EVENTS)
    metrics.emit(RequestCompleted("Metadata", 2, 50, sent_bytes=10, received_bytes=100))
    metrics.emit(RequestCompleted("Produce", 2, 8, sent_bytes=1_000, received_bytes=20))
    metrics.emit(RequestCompleted("Produce", 3, 4, 500, 0, Errors.NETWORK_EXCEPTION))
    every, node = _read(metrics), _read(metrics, "producer-node-metrics.node-2")
    assert (every["request-total"], every["response-total"]) == (3, 2)
    assert (every["outgoing-byte-total"], every["incoming-byte-total"]) == (1_510, 120)
    assert (every["request-latency-avg"], every["request-latency-max"]) == (8, 8)
    assert (node["request-total"], node["response-total"]) == (2, 2)
    assert (node["outgoing-byte-total"], node["incoming-byte-total"]) == (1_010, 120)
    assert (node["request-latency-avg"], node["request-latency-max"]) == (8, 8)


def test_every_response_has_a_throttle_time_as_in_java() -> None:
    metrics = ProducerMetrics(MockClock(), NO_EVENTS)
    metrics.emit(RequestCompleted("Metadata", 1, 5, 10, 10))
    metrics.emit(RequestCompleted("Produce", 1, 5, 10, 10, throttle_ms=90))
    metrics.emit(RequestCompleted("Produce", 1, 5, 10, 0, Errors.NETWORK_EXCEPTION))
    values = _read(metrics)
    assert (values["produce-throttle-time-avg"], values["produce-throttle-time-max"]) == (45, 90)


def test_batches_are_counted_by_topic_when_they_end() -> None:
    metrics = ProducerMetrics(MockClock(), NO_EVENTS)
    metrics.emit(ProduceFinished("a", 0, 1, 5, 50, 9, 0, Errors.NONE))
    metrics.emit(BatchRetried("a", 0, 2, Errors.NOT_LEADER_OR_FOLLOWER, 1))
    metrics.emit(ProduceFinished("a", 0, 1, 2, 20, 9, 1, Errors.MESSAGE_TOO_LARGE))
    metrics.records_failed("a", 2)
    metrics.emit(BatchSplit("a", 0, 2))
    every, topic = _read(metrics), _read(metrics, "producer-topic-metrics.a")
    assert (topic["record-send-total"], topic["byte-total"]) == (5, 50)
    assert (topic["record-error-total"], topic["record-retry-total"]) == (2, 2)
    assert (every["record-error-total"], every["record-retry-total"], every["batch-split-total"]) == (2, 2, 1)


@pytest.mark.java("KafkaProducerMetricsTest.ShouldRecordFlushTime")
@pytest.mark.java("KafkaProducerMetricsTest.ShouldRecordMetadataWaitTime")
def test_waits_are_totals_of_nanoseconds() -> None:
    metrics = ProducerMetrics(MockClock(), NO_EVENTS)
    for phase, outcome in (("metadata", "success"), ("buffer", "timeout"), ("flush", "success")):
        metrics.emit(WaitFinished(phase, outcome, 3))
        metrics.emit(WaitFinished(phase, "error", 4))
    values = _read(metrics)
    for name in ("metadata-wait", "bufferpool-wait", "flush"):
        assert values[f"{name}-time-ns-total"] == 7_000_000
    assert values["buffer-exhausted-total"] == 1


def test_connections_and_what_is_there_now() -> None:
    metrics = ProducerMetrics(MockClock(), NO_EVENTS)
    metrics.emit(NodeReady(1))
    metrics.emit(NodeDisconnected(1, "closed", "it closed", 50))
    values = _read(metrics)
    assert (values["connection-creation-total"], values["connection-close-total"]) == (1, 1)
    assert (values["buffer-total-bytes"], values["buffer-available-bytes"]) == (1_000, 400)
    assert (values["waiting-threads"], values["metadata-age"]) == (1, 2.5)
    assert values["io-time-ns-total"] == 7_000_000


def test_a_thousand_topics_have_counts_of_their_own_the_quietest_goes_first() -> None:
    metrics = ProducerMetrics(MockClock(), NO_EVENTS)
    for n in (*range(1_000), 0, 1_000):
        metrics.emit(ProduceFinished(f"t{n}", 0, 1, 1, 1, 1, 0, Errors.NONE))
    topics = {name for name in metrics.read(_STATUS, 0) if "topic" in name}
    assert topics == {f"producer-topic-metrics.t{n}" for n in range(1_001) if n != 1}


def test_events_go_on_to_the_users_sink() -> None:
    sink, event = RecordedEvents(), NodeReady(1)
    ProducerMetrics(MockClock(), sink).emit(event)
    assert sink.events == [event]


def test_a_producer_has_the_metrics_of_what_it_did_unless_it_keeps_none() -> None:
    with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        cluster.throttle_next(ApiKey.PRODUCE, 30)
        given = {**QUICK, "bootstrap.servers": cluster.bootstrap_servers}
        config = ProducerConfig.from_mapping({name: str(value).lower() for name, value in given.items()})
        with KafkaProducer(config) as producer:
            producer.send(ProducerRecord("orders", b"a")).result(PATIENCE_S)
            producer.flush()
            groups = producer.metrics()
        assert KafkaProducer(config, keeps_metrics=False).metrics() == {}
    assert groups["producer-metrics"]["record-send-total"] == 1
    assert groups["producer-metrics"]["connection-count"] == 1
    # The responses before it have a throttle time of 0.
    assert 0 < groups["producer-metrics"]["produce-throttle-time-avg"] < 30
    assert groups["producer-metrics"]["produce-throttle-time-max"] == 30
    assert groups["producer-topic-metrics.orders"]["record-send-total"] == 1
    assert groups["producer-node-metrics.node-1"]["response-total"] >= 1
    assert groups["producer-metrics"]["flush-time-ns-total"] >= 0


def test_records_that_get_into_no_batch_are_errors_too() -> None:
    with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        given = {**QUICK, "bootstrap.servers": cluster.bootstrap_servers, "max.block.ms": 200}
        config = ProducerConfig.from_mapping({name: str(value).lower() for name, value in given.items()})
        with KafkaProducer(config) as producer:
            missing = [
                producer.send(ProducerRecord("missing", b"a")),
                producer.send(ProducerRecord("orders", b"a", partition=7)),
            ]
            assert all(isinstance(future.exception(), TimeoutError) for future in missing)
            large = bytes(config.max_request_size)
            assert isinstance(producer.send(ProducerRecord("orders", large)).exception(), RecordTooLargeError)
            with pytest.raises(RecordTooLargeError):
                submit(producer, "orders", [large])
            parked = submit(producer, "missing", [b"a", b"b", b"c"], block_in_ms=200)
            assert not parked.result(ProduceResult).any_acknowledged
            cluster.fail_next_produces(Errors.MESSAGE_TOO_LARGE)
            refused = producer.send(ProducerRecord("orders", b"a"))
            assert isinstance(refused.exception(PATIENCE_S), RecordTooLargeError)
            producer.flush()
            groups = producer.metrics()
    assert groups["producer-metrics"]["record-error-total"] == 8
    assert groups["producer-topic-metrics.missing"]["record-error-total"] == 4
    assert groups["producer-topic-metrics.orders"]["record-error-total"] == 4


def test_records_that_are_refused_before_they_are_appended_are_errors_too() -> None:
    """Those of Java's that `send` raises for: KafkaExceptions, but no wrong argument."""
    records: list[Any] = [ProducerRecord("orders", text) for text in ("a", "b", "c")]
    with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        given = {**QUICK, "bootstrap.servers": cluster.bootstrap_servers}
        config = ProducerConfig.from_mapping({name: str(value).lower() for name, value in given.items()})
        for refuse in (None, str):  # neither text nor what this serializer returns is bytes
            serializers: dict[str, Any] = {} if refuse is None else {"value_serializer": refuse}
            with KafkaProducer(config, **serializers) as producer:
                with pytest.raises(SerializationError):
                    producer.send(records[0])
                with pytest.raises(SerializationError):
                    producer.submit(
                        "orders", records, block_deadline_ms=PATIENCE_MS, deadline_ms=PATIENCE_MS, done=print
                    )
                with pytest.raises(IllegalArgumentError):
                    producer.send(ProducerRecord("orders", partition=-1))
                groups = producer.metrics()
            assert groups["producer-metrics"]["record-error-total"] == 4
            assert groups["producer-topic-metrics.orders"]["record-error-total"] == 4
            assert _errors_of_async(AsyncKafkaProducer(config, **serializers), records) == 4


def _errors_of_async(unstarted: AsyncKafkaProducer, records: list[Any]) -> float:
    """Has one record refused by `send`, and all by `submit`; returns how many are counted as errors."""

    async def scenario() -> float:
        async with unstarted as producer:
            with pytest.raises(SerializationError):
                await producer.send(records[0])
            with pytest.raises(SerializationError):
                await producer.submit("orders", records)
            return producer.metrics()["producer-metrics"]["record-error-total"]

    return run(scenario())
