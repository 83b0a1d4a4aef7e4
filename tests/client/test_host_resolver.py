"""Names to addresses. Twins of ClientUtilsTest; the system's resolver is asked for literals only."""

from __future__ import annotations

import pytest

from client_core.client.host_resolver import DefaultHostResolver, filter_preferred_addresses, resolve
from tests.support.mock_resolver import MockResolver


@pytest.mark.behaviour("CONN-10")
@pytest.mark.java("ClientUtilsTest.FilterPreferredAddresses")
def test_filter_preferred_addresses_keeps_the_family_of_the_first_one() -> None:
    assert filter_preferred_addresses(["192.0.0.1", "::1", "192.0.0.2"]) == ("192.0.0.1", "192.0.0.2")
    assert filter_preferred_addresses(["::1", "192.0.0.1", "192.0.0.1"]) == ("::1",)


@pytest.mark.java("ClientUtilsTest.ResolveUnknownHostException")
def test_resolve_lets_the_resolvers_failure_through() -> None:
    with pytest.raises(OSError, match=r"some\.invalid\.hostname"):
        resolve("some.invalid.hostname", MockResolver())


@pytest.mark.java("ClientUtilsTest.ResolveDnsLookup")
def test_resolve_returns_every_address_of_the_name() -> None:
    resolver = MockResolver("198.51.100.0", "198.51.100.5")
    assert resolve("kafka.apache.org", resolver) == ("198.51.100.0", "198.51.100.5")


def test_a_resolver_that_finds_nothing_is_a_failure() -> None:
    class Empty(MockResolver):
        def resolve(self, host: str) -> tuple[str, ...]:
            return ()

    with pytest.raises(OSError, match="broker-1 has no address"):
        resolve("broker-1", Empty())


@pytest.mark.parametrize("literal", ["127.0.0.1", "::1"])
def test_the_systems_resolver_answers_a_literal_with_itself_once(literal: str) -> None:
    assert DefaultHostResolver().resolve(literal) == (literal,)


@pytest.mark.parametrize("name", ["a" * 64 + ".example", "a..example"])
def test_a_name_that_can_not_be_asked_for_is_an_oserror_too(name: str) -> None:
    with pytest.raises(OSError, match="is no host name"):
        DefaultHostResolver().resolve(name)


def test_the_own_machine_has_a_canonical_name() -> None:
    assert DefaultHostResolver().canonical_name("127.0.0.1")
