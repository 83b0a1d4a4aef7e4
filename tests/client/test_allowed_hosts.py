"""allowed.broker.hosts: which hosts are allowed, which entries are invalid, and no attempt elsewhere."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from client_core import ConfigError, ProducerConfig
from client_core.client.network_client_config import EVERY_HOST, AllowedHosts
from client_core.cluster import Node
from tests.client.client_builders import NODE, Bench
from tests.support.mock_resolver import MockResolver

if TYPE_CHECKING:
    from collections.abc import Sequence

METADATA_SERVICE = "169.254.169.254"


def allowed(*entries: str, bootstrap: Sequence[str] = ()) -> AllowedHosts:
    return AllowedHosts.parse(entries).with_bootstrap(bootstrap)


def is_allowed(hosts: AllowedHosts, host: str, *addresses: str) -> bool:
    """Whether the host may be connected to, at each of these addresses where it is a name."""
    if hosts.refusal_of_host(host) is not None:
        return False
    return all(hosts.refusal_of_address(host, address) is None for address in addresses or (host,))


def test_without_the_setting_every_host_is_allowed() -> None:
    for host in ("broker-1", METADATA_SERVICE, "::1", "localhost"):
        for hosts in (EVERY_HOST, allowed(bootstrap=["kafka"])):
            assert hosts.refusal_of_host(host) is None
            assert hosts.refusal_of_address(host, METADATA_SERVICE) is None


def test_names_and_patterns_hold_names() -> None:
    expected = {
        "broker-1.example": True,
        "BROKER-1.Example.": True,
        "broker-11.example": False,
        "evil.broker-1.example": False,
        "a.kafka.svc": True,
        "a.b.kafka.svc": True,
        "kafka.svc": False,
        "evilkafka.svc": False,
        "a.kafka.svc.evil.example": False,
        METADATA_SERVICE: False,
        "2852039166": False,
        "0xA9FEA9FE": False,
    }
    hosts = allowed("broker-1.example", "*.kafka.svc")
    assert {host: hosts.refusal_of_host(host) is None for host in expected} == expected


def test_ranges_hold_addresses_and_what_names_lead_to() -> None:
    expected = {
        "10.1.2.3": True,
        "192.0.2.7": True,
        "192.0.2.8": False,
        METADATA_SERVICE: False,
        "fd00::1": True,
        "fe80::1%eth0": True,
        "::ffff:10.1.2.3": True,
        f"::ffff:{METADATA_SERVICE}": False,
        "::1": False,
    }
    hosts = allowed("10.0.0.0/8", "192.0.2.7", "fd00::/8", "fe80::/10")
    assert {address: is_allowed(hosts, address) for address in expected} == expected
    assert {address: is_allowed(hosts, "any.name", address) for address in expected} == expected


def test_where_both_are_given_a_name_has_to_pass_both_but_hosts_of_bootstrap_servers() -> None:
    hosts = allowed("*.kafka.svc", "10.0.0.0/8")
    assert is_allowed(hosts, "a.kafka.svc", "10.0.0.1")
    assert is_allowed(hosts, "10.0.0.1")
    assert not is_allowed(hosts, "a.kafka.svc", METADATA_SERVICE)
    assert not is_allowed(hosts, "other.example", "10.0.0.1")
    hosts = allowed("*.kafka.svc", "10.0.0.0/8", bootstrap=["Kafka.Example", "192.0.2.1"])
    assert is_allowed(hosts, "kafka.example", "192.0.2.9")
    assert is_allowed(hosts, "192.0.2.1")
    assert not is_allowed(hosts, "192.0.2.2")


def test_an_entry_that_is_none_is_named_when_the_config_is_made() -> None:
    hosts = ("*", "*.", "a*.b", "a.*", "a:9092", "https://a/", "1.2.3", "a b", "", "a,")
    for entry in (*hosts, "10.1.2.3/8", "10.0.0.0/33"):
        settings = {"bootstrap.servers": "a:1", "allowed.broker.hosts": [entry]}
        with pytest.raises(ConfigError, match=r"allowed\.broker\.hosts") as raised:
            ProducerConfig.from_mapping(settings)
        assert repr(entry) in raised.value.message


def test_a_host_that_is_not_allowed_is_neither_looked_up_nor_connected_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resolver = MockResolver("10.0.0.1")
    bench = Bench(resolver=resolver, allowed_hosts=allowed("*.kafka.svc"))
    forbidden = Node(5, METADATA_SERVICE, 80)
    elsewhere = Node(6, "evil.example", 9092)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            for node in (forbidden, elsewhere):
                assert not bench.client.ready(node, bench.now_ms)
                assert bench.client.connection_failed(node)
            bench.clock.advance(60_000)
            bench.poll()
    assert resolver.asked == []
    assert not bench.selector.attempts
    assert caplog.text.count(f"{METADATA_SERVICE} is not in allowed.broker.hosts") == 1
    assert caplog.text.count("evil.example is not in allowed.broker.hosts") == 1
    errors = {status.node_id: status.last_error for status in bench.client.node_statuses(bench.now_ms)}
    assert errors[5] == f"{METADATA_SERVICE} is not in allowed.broker.hosts"


def test_a_name_that_leads_to_an_address_that_is_not_allowed_is_not_connected_to() -> None:
    bench = Bench(resolver=MockResolver(METADATA_SERVICE), allowed_hosts=allowed("10.0.0.0/8"))
    assert not bench.client.ready(NODE, bench.now_ms)
    assert bench.client.connection_failed(NODE)
    assert not bench.selector.attempts
    bench.poll()
    (status,) = bench.client.node_statuses(bench.now_ms)
    assert status.last_error == (
        f"{NODE.host} resolves to {METADATA_SERVICE}, which is not in allowed.broker.hosts"
    )


def test_of_several_addresses_the_allowed_ones_are_connected_to() -> None:
    bench = Bench(resolver=MockResolver(METADATA_SERVICE, "10.0.0.1"), allowed_hosts=allowed("10.0.0.0/8"))
    assert not bench.client.ready(NODE, bench.now_ms)
    bench.clock.advance(60_000)
    bench.poll()
    bench.ready()
    assert [attempt.address for attempt in bench.selector.attempts] == [("10.0.0.1", NODE.port)]
