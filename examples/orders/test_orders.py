"""The tests of that service, without Kafka, Java or Docker: brokers that die, refuse and keep silent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from orders import TOPIC, NotPlacedError, Orders

from client_core import Errors, KafkaProducer, ProducerConfig
from client_core.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def kafka() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic(TOPIC, partitions=1, replication_factor=3)
        yield cluster


@pytest.fixture
def orders(kafka: FakeCluster) -> Iterator[Orders]:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "delivery.timeout.ms": 3000}
    settings |= {"request.timeout.ms": 1000, "linger.ms": 0, "max.block.ms": 3000}
    with KafkaProducer(ProducerConfig.from_mapping(settings)) as producer:
        yield Orders(producer)


def values(kafka: FakeCluster) -> list[object]:
    return [json.loads(record.value or b"null") for record in kafka.records(TOPIC)]


def test_an_order_is_one_record_with_its_customer_as_key(kafka: FakeCluster, orders: Orders) -> None:
    assert orders.place("customer-7", {"total": 12.5}) == 0
    (record,) = kafka.records(TOPIC)
    assert (record.key, json.loads(record.value or b"")) == (b"customer-7", {"total": 12.5})


def test_no_order_is_lost_or_doubled_while_a_leader_dies(kafka: FakeCluster, orders: Orders) -> None:
    orders.place("customer-7", {"n": 0})
    kafka.kill(kafka.partition(TOPIC, 0).leader or 1)
    for n in range(1, 10):
        orders.place("customer-7", {"n": n})
    assert values(kafka) == [{"n": n} for n in range(10)]


def test_an_error_that_passes_is_no_reason_to_give_up(kafka: FakeCluster, orders: Orders) -> None:
    kafka.fail_next_produces(Errors.NOT_ENOUGH_REPLICAS, times=3)
    assert orders.place("customer-7", {"n": 1}) == 0


def test_an_order_that_may_not_be_written_is_an_error_of_the_service(
    kafka: FakeCluster, orders: Orders
) -> None:
    kafka.forbid(TOPIC)
    with pytest.raises(NotPlacedError, match=r"customer-7: .*authoriz"):
        orders.place("customer-7", {"n": 1})
    assert values(kafka) == []


def test_brokers_that_are_all_down_are_an_error_within_the_timeout(
    kafka: FakeCluster, orders: Orders
) -> None:
    for broker in (1, 2, 3):
        kafka.kill(broker)
    with pytest.raises(NotPlacedError, match="customer-7"):
        orders.place("customer-7", {"n": 1})
