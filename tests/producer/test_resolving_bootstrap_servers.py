"""When a producer resolves bootstrap.servers: when it is made, as Java's does, or later, repeatedly."""

from __future__ import annotations

from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core import NO_EVENTS, ConfigError, KafkaProducer, MetadataResult, ProducerConfig, SystemClock
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.producer.requests.refreshes import RefreshFailures
from client_core.producer.sender.wiring import metadata_config, network_client
from client_core.testing import FakeCluster
from tests.support.live_producer import QUICK, look_up
from tests.support.mock_resolver import MockResolver
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client_core.client.kafka_client import KafkaClient

CANONICAL = {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}


def client_of(
    bootstrap_servers: str, resolver: MockResolver, *, resolves_later: bool, **settings: str
) -> tuple[ProducerConfig, ProducerMetadata, KafkaClient]:
    """The client that a producer would make, with another resolver."""
    names = {name.replace("_", "."): value for name, value in settings.items()}
    config = ProducerConfig.from_mapping({"bootstrap.servers": bootstrap_servers, **QUICK, **names})
    clock, random = SystemClock(), Random(0)
    metadata = ProducerMetadata(metadata_config(config), random, clock, NO_EVENTS)
    refreshes = RefreshFailures(NO_EVENTS, clock, metadata)
    client = network_client(
        config,
        metadata,
        clock,
        random,
        refreshes,
        NO_EVENTS,
        resolves_later=resolves_later,
        resolver=resolver,
    )
    return config, metadata, client


@contextmanager
def producer_of(bootstrap_servers: str, resolver: MockResolver, **settings: str) -> Iterator[KafkaProducer]:
    """A producer that works, and resolves later."""
    config, metadata, client = client_of(bootstrap_servers, resolver, resolves_later=True, **settings)
    with KafkaProducer(config, random=Random(0), metadata=metadata, client=client) as producer:
        yield producer


def errors(producer: KafkaProducer) -> dict[str, str | None]:
    return {node.host: node.last_error for node in producer.status().nodes}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as running:
        running.create_topic("orders", partitions=1)
        yield running


@pytest.mark.parametrize("settings", [{}, {"client_dns_lookup": CANONICAL["client.dns.lookup"]}])
def test_a_producer_whose_names_are_all_unknown_is_refused_as_by_java(settings: dict[str, str]) -> None:
    resolver = MockResolver()
    with pytest.raises(ConfigError, match=r"in bootstrap\.servers"):
        client_of("kafka.test:9092", resolver, resolves_later=False, **settings)
    assert resolver.asked == ["kafka.test"]


@pytest.mark.parametrize("settings", [{}, {"client_dns_lookup": CANONICAL["client.dns.lookup"]}])
def test_who_resolves_later_asks_nobody_when_the_producer_is_made(settings: dict[str, str]) -> None:
    resolver = MockResolver()
    _, _, client = client_of("kafka.test:9092", resolver, resolves_later=True, **settings)
    client.close()
    assert resolver.asked == []


def test_a_name_that_appears_later_is_used(cluster: FakeCluster) -> None:
    resolver = MockResolver()
    with producer_of(f"kafka.test:{cluster.address(1)[1]}", resolver) as producer:
        wait_until(lambda: errors(producer).get("kafka.test"), what="the resolver's error")
        assert errors(producer)["kafka.test"] == (
            "kafka.test can't be resolved: kafka.test: Name or service not known"
        )
        resolver.addresses = ("127.0.0.1",)
        assert look_up(producer, "orders").result(MetadataResult).error is None


def test_of_several_names_those_that_are_known_are_used(cluster: FakeCluster) -> None:
    resolver = MockResolver(hosts={"gone.test": (), "kafka.test": ("127.0.0.1",)})
    servers = f"gone.test:1,kafka.test:{cluster.address(1)[1]}"
    with producer_of(servers, resolver) as producer:
        assert look_up(producer, "orders").result(MetadataResult).error is None


def test_a_canonical_name_that_appears_later_is_used(cluster: FakeCluster) -> None:
    resolver = MockResolver(names={"127.0.0.1": "broker.test"})
    port = cluster.address(1)[1]
    lookup = CANONICAL["client.dns.lookup"]
    with producer_of(f"kafka.test:{port}", resolver, client_dns_lookup=lookup) as producer:
        wait_until(lambda: errors(producer).get("kafka.test"), what="the resolver's error")
        resolver.addresses = ("127.0.0.1",)
        assert look_up(producer, "orders").result(MetadataResult).error is None
    assert "broker.test" in resolver.asked
