"""The whole producer over real sockets, against the mock cluster inside librdkafka: three brokers.

It speaks the real protocol (ApiVersions, Metadata, InitProducerId, Produce), creates topics when asked for,
and its brokers can be taken down. No timing is measured and nothing sleeps: each wait is for an event.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import pytest
from confluent_kafka.admin import AdminClient

from client_core import (
    CloseReport,
    KafkaProducer,
    ListingResult,
    MetadataResult,
    ProducerConfig,
    ProduceResult,
    ProducerRecord,
    RecordMetadata,
    Result,
    UnknownTopicOrPartitionError,
    partition_for_key,
)
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_S = patient(30)
PATIENCE_MS = PATIENCE_S * 1_000

_R = TypeVar("_R")


class Waiter:
    """A done-callback that can be waited for."""

    def __init__(self) -> None:
        self._reported = threading.Event()
        self._results: list[Result] = []

    def __call__(self, result: Result) -> None:
        self._results.append(result)
        self._reported.set()

    def result(self, kind: type[_R]) -> _R:
        assert self._reported.wait(PATIENCE_S), "nothing was reported"
        (result,) = self._results
        assert isinstance(result, kind)
        return result


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    """The addresses of a mock cluster that lives as long as its admin client."""
    admin = AdminClient({"test.mock.num.brokers": 3, "bootstrap.servers": "ignored", "log_level": 3})
    brokers = admin.list_topics(timeout=PATIENCE_S).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del admin


@pytest.fixture(params=[True, False], ids=["idempotent", "not idempotent"])
def producer(bootstrap_servers: str, request: pytest.FixtureRequest) -> Iterator[KafkaProducer]:
    made = KafkaProducer(
        ProducerConfig.from_mapping(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": bool(request.param),
                "linger.ms": 0,
            }
        )
    )
    made.start()
    yield made
    assert made.close(PATIENCE_MS) == CloseReport()


def test_a_record_is_acknowledged(producer: KafkaProducer) -> None:
    receipt = producer.send(ProducerRecord("orders", b"value", key=b"customer-7")).result(PATIENCE_S)
    count = producer.cache.partition_count("orders")
    assert count is not None
    assert receipt.topic == "orders"
    assert receipt.partition == partition_for_key(b"customer-7", count)
    assert receipt.offset is not None


def test_offsets_of_a_partition_are_in_the_order_of_sending(producer: KafkaProducer) -> None:
    futures = [producer.send(ProducerRecord("ordered", b"%d" % n, partition=0)) for n in range(2_000)]
    producer.flush()
    offsets = [future.result(0).offset for future in futures]
    assert None not in offsets
    assert offsets == sorted(offsets, key=lambda offset: offset or 0)
    assert len(set(offsets)) == 2_000


def test_a_request_has_one_outcome_per_record_in_order(producer: KafkaProducer) -> None:
    done = Waiter()
    now_ms = producer.clock.now_ms()
    records = [ProducerRecord("requests", b"%d" % n, key=b"%d" % (n % 7)) for n in range(300)]
    producer.submit(
        "requests",
        records,
        block_deadline_ms=now_ms + PATIENCE_MS,
        deadline_ms=now_ms + PATIENCE_MS,
        done=done,
    )
    outcomes = done.result(ProduceResult).outcomes
    count = producer.cache.partition_count("requests")
    assert count is not None
    assert len(outcomes) == 300
    for record, outcome in zip(records, outcomes, strict=True):
        assert isinstance(outcome, RecordMetadata)
        assert outcome.partition == partition_for_key(record.key or b"", count)


def test_a_look_up_returns_leaders_and_a_missing_topic(producer: KafkaProducer) -> None:
    producer.send(ProducerRecord("orders", b"exists now")).result(PATIENCE_S)
    done = Waiter()
    deadline_ms = producer.clock.now_ms() + PATIENCE_MS
    producer.request_topics(["orders", "missing"], deadline_ms=deadline_ms, done=done)
    result = done.result(MetadataResult)
    assert isinstance(result.topic_errors["missing"], UnknownTopicOrPartitionError)
    assert set(result.topic_errors) == {"missing"}
    leaders = [info.leader for info in result.cache.cluster.partitions_for_topic("orders")]
    assert all(leader is not None and leader.port for leader in leaders)


def test_all_topics_are_listed(producer: KafkaProducer) -> None:
    producer.send(ProducerRecord("listed", b"exists now")).result(PATIENCE_S)
    done = Waiter()
    producer.list_topics(deadline_ms=producer.clock.now_ms() + PATIENCE_MS, done=done)
    listing = done.result(ListingResult).listing
    assert listing is not None
    assert listing.topics["listed"].partition_count == producer.cache.partition_count("listed")


def test_a_refresh_makes_a_new_snapshot(producer: KafkaProducer) -> None:
    producer.send(ProducerRecord("orders", b"connected")).result(PATIENCE_S)
    before = producer.cache.update_version
    done = Waiter()
    producer.request_update(deadline_ms=producer.clock.now_ms() + PATIENCE_MS, done=done)
    assert done.result(MetadataResult).cache.update_version > before


def test_many_threads_share_one_producer(producer: KafkaProducer) -> None:
    counts: list[int] = []

    def send(name: int) -> None:
        futures = [producer.send(ProducerRecord("shared", b"%d" % name)) for _ in range(200)]
        counts.append(len([future.result(PATIENCE_S) for future in futures]))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert counts == [200] * 4


def test_the_status_has_the_ready_nodes(producer: KafkaProducer) -> None:
    producer.send(ProducerRecord("orders", b"connected")).result(PATIENCE_S)
    status = producer.status()
    assert status.state == "running"
    assert "ready" in {node.state for node in status.nodes}
    assert status.metadata.age_ms is not None
