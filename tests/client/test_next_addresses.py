"""The addresses of one name within one attempt to connect: a dead one costs 250 ms, not the set-up timeout.

The network is played. An address that is dead accepts nothing and refuses nothing, as behind a firewall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client_core.client.node_connection_state import ADDRESS_DELAY_MS
from client_core.events import NodeDisconnected
from tests.client.client_builders import NODE, Bench
from tests.support.mock_resolver import MockResolver
from tests.support.mock_selector import MockSelector

if TYPE_CHECKING:
    from collections.abc import Collection

SETUP_TIMEOUT_MS = 5_000


class SomeAreDead(MockSelector):
    """A network in which some addresses neither accept nor refuse, and others have no route."""

    dead: Collection[str] = ()
    without_route: Collection[str] = ()

    def connect(self, node_id: int, host: str, address: tuple[str, int], *buffers: int) -> None:
        if address[0] in self.without_route:
            raise OSError(101, "Network is unreachable")
        if address[0] in self.dead:
            self.hold_connect(node_id)
        else:
            self._held_connects.discard(node_id)
        super().connect(node_id, host, address, *buffers)


def bench_of(*addresses: str, dead: Collection[str] = (), **settings: Any) -> Bench:
    bench = Bench(resolver=MockResolver(*addresses), selector_class=SomeAreDead, **settings)
    assert isinstance(bench.selector, SomeAreDead)
    bench.selector.dead = dead
    return bench


def tried(bench: Bench) -> list[str]:
    return [attempt.address[0] for attempt in bench.selector.attempts]


def turn_until_connected(bench: Bench, most_ms: int = 60_000) -> int:
    """Polls as the sender does; returns how long it took to connect to the node."""
    began_ms = bench.now_ms
    while not bench.selector.sent_to(NODE.id):
        assert bench.now_ms - began_ms < most_ms, tried(bench)
        bench.client.ready(NODE, bench.now_ms)
        bench.poll(1_000)
    return bench.now_ms - began_ms


@pytest.mark.behaviour("CONN-14", "CONN-10")
def test_ipv6_first_and_unreachable_costs_a_quarter_of_a_second() -> None:
    bench = bench_of("2001:db8::1", "2001:db8::2", "192.0.2.1", dead=("2001:db8::1", "2001:db8::2"))
    assert turn_until_connected(bench) == ADDRESS_DELAY_MS
    assert tried(bench) == ["2001:db8::1", "192.0.2.1"]
    assert bench.sink.of(NodeDisconnected) == [], "it is one attempt"


@pytest.mark.behaviour("CONN-14")
def test_an_address_without_a_route_costs_nothing() -> None:
    bench = bench_of("2001:db8::1", "192.0.2.1")
    assert isinstance(bench.selector, SomeAreDead)
    bench.selector.without_route = ("2001:db8::1",)
    assert turn_until_connected(bench) == 0
    assert bench.sink.of(NodeDisconnected) == []


@pytest.mark.behaviour("CONN-14")
def test_of_fifty_addresses_the_live_one_is_found() -> None:
    fifty = [f"192.0.2.{n}" for n in range(50)]
    bench = bench_of(*fifty, dead=fifty[:20] + fifty[21:], connection_setup_timeout_ms=10_000)
    assert turn_until_connected(bench) == 20 * ADDRESS_DELAY_MS
    assert tried(bench) == fifty[:21]


@pytest.mark.behaviour("CONN-14")
def test_addresses_that_refuse_cost_nothing_and_only_the_last_one_fails_the_attempt() -> None:
    fifty = [f"192.0.2.{n}" for n in range(50)]
    bench = bench_of(*fifty, can_connect=lambda address: address[0] == fifty[-1])
    assert turn_until_connected(bench) == 0
    assert tried(bench) == fifty
    assert bench.sink.of(NodeDisconnected) == []
    refusing = bench_of(*fifty, can_connect=lambda _: False)
    refusing.client.ready(NODE, refusing.now_ms)
    while not refusing.sink.of(NodeDisconnected):
        refusing.poll()
    assert tried(refusing) == fifty
    (ended,) = refusing.sink.of(NodeDisconnected)
    assert isinstance(ended, NodeDisconnected)
    assert ended.reason == "refused"


@pytest.mark.behaviour("CONN-14")
def test_the_last_address_has_the_rest_of_the_setup_timeout() -> None:
    bench = bench_of("192.0.2.1", "192.0.2.2", dead=("192.0.2.1", "192.0.2.2"))
    bench.client.ready(NODE, bench.now_ms)
    began_ms = bench.now_ms
    while not bench.sink.of(NodeDisconnected):
        bench.poll(100)
    assert tried(bench) == ["192.0.2.1", "192.0.2.2"]
    assert bench.now_ms - began_ms > SETUP_TIMEOUT_MS
    (ended,) = bench.sink.of(NodeDisconnected)
    assert isinstance(ended, NodeDisconnected)
    assert ended.reason == "setup_timeout"


@pytest.mark.behaviour("CONN-14")
def test_addresses_that_are_all_slow_get_longer_with_each_failed_attempt() -> None:
    """Otherwise an address whose connections take longer than the delay would never be connected to."""
    both = ("192.0.2.1", "192.0.2.2")
    bench = bench_of(*both, dead=both, reconnect_backoff_ms=50, reconnect_backoff_max_ms=50)
    waits: list[int] = []
    for attempt in range(3):
        while len(tried(bench)) == 2 * attempt:
            bench.client.ready(NODE, bench.now_ms)
            bench.poll(10)
        began_ms = bench.now_ms
        while len(tried(bench)) == 2 * attempt + 1:
            bench.poll(10)
        waits.append(bench.now_ms - began_ms)
    assert tried(bench) == [*both, *both, *both]
    expected = [ADDRESS_DELAY_MS, 2 * ADDRESS_DELAY_MS, 4 * ADDRESS_DELAY_MS]
    assert all(want - 20 <= wait <= want for want, wait in zip(expected, waits, strict=True)), waits


def test_a_single_address_has_the_whole_setup_timeout() -> None:
    bench = bench_of("192.0.2.1", dead=("192.0.2.1",))
    bench.client.ready(NODE, bench.now_ms)
    bench.poll(SETUP_TIMEOUT_MS)
    assert tried(bench) == ["192.0.2.1"]
    assert bench.sink.of(NodeDisconnected) == []


def test_a_handshake_may_take_longer_than_an_address() -> None:
    bench = bench_of("192.0.2.1", "192.0.2.2")
    bench.selector.never_ready(NODE.id)
    bench.client.ready(NODE, bench.now_ms)
    bench.poll()
    for _ in range(10):
        bench.poll(ADDRESS_DELAY_MS)
        bench.clock.advance(ADDRESS_DELAY_MS)
    assert tried(bench) == ["192.0.2.1"]
