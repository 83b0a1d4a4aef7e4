"""bootstrap.servers. Twins of ClientUtilsTest, and the messages of PROD-14."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.client.bootstrap_addresses import (
    ClientDnsLookup,
    check_host_names,
    parse_and_validate_addresses,
    resolve_bootstrap_addresses,
)
from client_core.errors import ConfigError
from tests.support.mock_resolver import MockResolver

CANONICAL = ClientDnsLookup.RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY


@pytest.mark.java("ClientUtilsTest.ParseAndValidateAddresses")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("localhost:8080", ("localhost", 8080)),
        ("[::1]:8000", ("::1", 8000)),
        ("[2001:db8:85a3:8d3:1319:8a2e:370:7348]:1234", ("2001:db8:85a3:8d3:1319:8a2e:370:7348", 1234)),
        ("[fe80::b1da:69ca%eth0]:9092", ("fe80::b1da:69ca%eth0", 9092)),
        ("PLAINTEXT://broker-1.example:9092", ("broker-1.example", 9092)),
        ("under_score:65535", ("under_score", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(url: str, address: tuple[str, int]) -> None:
    assert parse_and_validate_addresses([url]) == [address]
    check_host_names([address])


@pytest.mark.parametrize(
    ("host", "complaint"),
    [
        ("1::2::3", "not an IPv6 address"),
        ("1.2.3.4.5", "not an IPv4 address"),
        ("a..b", "each part of a host name has 1 to 63 characters"),
        ("a" * 64, "each part of a host name has 1 to 63 characters"),
        (".".join(["a" * 63] * 4) + "b", "a host name has at most 253 characters"),
    ],
)
def test_a_host_that_no_resolver_can_know_is_named_with_what_is_wrong(host: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_host_names([("fine.example", 1), (host, 9092)])


@pytest.mark.java("ClientUtilsTest.ValidBrokerAddress")
def test_addresses_keep_their_order_and_empty_texts_are_left_out() -> None:
    urls = ["localhost:9997", "", "localhost:9998", "localhost:9999"]
    assert parse_and_validate_addresses(urls) == [
        ("localhost", 9997),
        ("localhost", 9998),
        ("localhost", 9999),
    ]


@pytest.mark.java("ClientUtilsTest.NoPort", "ClientUtilsTest.InvalidBrokerAddress")
@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1",
        "localhost:9997\nlocalhost:9998\nlocalhost:9999",
        " localhost:9999",
        "localhost:9997 localhost:9998",
        "localhost:",
        ":9092",
        "localhost:-1",
        "localhost:9092/",
        "localhost:9092\n",
    ],
)
def test_a_text_that_is_no_address_is_named(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_and_validate_addresses(["localhost:9092", url])
    assert caught.value.message == f"Invalid url in bootstrap.servers: {url}"
    assert caught.value.name == "bootstrap.servers"


@pytest.mark.java("ClientUtilsTest.InvalidPort")
@pytest.mark.parametrize("url", ["localhost:70000", "localhost:65536", "localhost:" + "9" * 5000])
def test_a_port_out_of_range_is_named(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_and_validate_addresses([url])
    assert caught.value.message == f"Invalid port in bootstrap.servers: {url}"


@pytest.mark.parametrize("urls", [[], [""], ["", ""]])
def test_nothing_to_begin_with_is_an_error(urls: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"^No resolvable bootstrap urls given in bootstrap\.servers$"):
        parse_and_validate_addresses(urls)


@given(host=st.from_regex(r"[0-9a-zA-Z\-._]+", fullmatch=True), port=st.integers(0, 65_535))
def test_every_host_name_and_port_round_trips(host: str, port: int) -> None:
    assert parse_and_validate_addresses([f"{host}:{port}"]) == [(host, port)]


@given(text=st.text())
def test_any_text_is_an_address_or_a_config_error(text: str) -> None:
    try:
        [(host, port)] = parse_and_validate_addresses([text])
    except ConfigError:
        return
    assert host
    assert 0 <= port <= 65_535


def test_a_known_host_keeps_its_name() -> None:
    resolver = MockResolver("10.0.0.1", "10.0.0.2")
    assert resolve_bootstrap_addresses([("localhost", 10000)], resolver) == [("localhost", 10000)]


def test_an_unknown_host_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    resolver = MockResolver("10.0.0.1", hosts={"gone.example": ()})
    with caplog.at_level(logging.WARNING):
        found = resolve_bootstrap_addresses([("gone.example", 1), ("here.example", 2)], resolver)
    assert found == [("here.example", 2)]
    assert "Couldn't resolve server gone.example:1 from bootstrap.servers" in caplog.text


@pytest.mark.java("ClientUtilsTest.OnlyBadHostname")
def test_only_unknown_hosts_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^No resolvable bootstrap urls given in bootstrap\.servers$"):
        resolve_bootstrap_addresses([("some.invalid.hostname.foo.bar.local", 9999)], MockResolver())


@pytest.mark.java("ClientUtilsTest.ParseAndValidateAddressesWithReverseLookup")
def test_canonical_names_take_the_place_of_the_name_behind_which_they_stand() -> None:
    resolver = MockResolver(
        "10.0.0.1", "10.0.0.2", names={"10.0.0.1": "canonical_hostname1", "10.0.0.2": "canonical_hostname2"}
    )
    assert resolve_bootstrap_addresses([("example.com", 10000)], resolver, CANONICAL) == [
        ("canonical_hostname1", 10000),
        ("canonical_hostname2", 10000),
    ]


def test_a_canonical_name_that_dns_does_not_know_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    resolver = MockResolver("10.0.0.1", hosts={"dead": ()}, names={"10.0.0.1": "dead"})
    with caplog.at_level(logging.WARNING), pytest.raises(ConfigError, match="No resolvable bootstrap urls"):
        resolve_bootstrap_addresses([("example.com", 10000)], resolver, CANONICAL)
    assert "DNS resolution of the canonical hostname dead failed" in caplog.text


def test_an_address_without_a_canonical_name_stays_an_address() -> None:
    resolver = MockResolver("10.0.0.1")
    assert resolve_bootstrap_addresses([("example.com", 1)], resolver, CANONICAL) == [("10.0.0.1", 1)]


def test_an_unknown_host_whose_canonical_name_is_wanted_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^Unknown host in bootstrap\.servers: gone\.example:7$"):
        resolve_bootstrap_addresses([("gone.example", 7)], MockResolver(), CANONICAL)


@pytest.mark.java("ClientUtilsTest.InvalidConfig")
def test_a_lookup_that_kafka_does_not_know_has_no_value() -> None:
    with pytest.raises(ValueError, match=r"random\.value"):
        ClientDnsLookup("random.value")
