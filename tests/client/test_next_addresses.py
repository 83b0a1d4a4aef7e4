"""The addresses of one name within one attempt to connect: they are raced, and a dead one costs 250 ms.

The network is played. An address that is dead accepts nothing and refuses nothing, as behind a firewall; one
that is slow accepts after some time. Both are connected to beside the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core.client.node_connection_state import ADDRESS_DELAY_MS
from client_core.events import NodeDisconnected
from client_core.network.transport_layer import format_address
from tests.client.client_builders import NODE, Bench, api_versions_response
from tests.support.mock_resolver import MockResolver
from tests.support.mock_selector import MockSelector

if TYPE_CHECKING:
    from collections.abc import Collection

SETUP_TIMEOUT_MS = 5_000
V6: Final = "2001:db8::1"
V4: Final = "192.0.2.1"
OTHER: Final = "192.0.2.2"
#: What one dead address may cost.
MOST_MS: Final = 500


class PlayedNetwork(MockSelector):
    """Addresses that never answer, answer late, refuse, or have no route. The others accept at once."""

    dead: Collection[str] = ()
    refusing: Collection[str] = ()
    without_route: Collection[str] = ()

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.slow_ms: dict[str, int] = {}
        #: The most connections that were under way at once.
        self.most_at_once = 0

    def connect(
        self, node_id: int, host: str, address: tuple[str, int], *buffers: int, also: bool = False
    ) -> None:
        ip, remote_address = address[0], format_address(address)
        if ip in self.without_route:
            raise OSError(101, "Network is unreachable")
        self.hold_connect(node_id)
        super().connect(node_id, host, address, *buffers, also=also)
        self.most_at_once = max(self.most_at_once, len(self.addresses_of(node_id)))
        if ip in self.refusing:
            self.after(0, lambda: self.refuse(node_id, remote_address))
        elif ip not in self.dead:
            self.after(self.slow_ms.get(ip, 0), lambda: self._accept(node_id, remote_address))

    def _accept(self, node_id: int, remote_address: str) -> None:
        if remote_address in self.addresses_of(node_id):
            self.finish_connect(node_id, remote_address)


class Played:
    """A bench over such a network."""

    def __init__(self, *addresses: str, **settings: Any) -> None:
        settings = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1_000} | settings
        self.bench = Bench(resolver=MockResolver(*addresses), selector_class=PlayedNetwork, **settings)
        assert isinstance(self.bench.selector, PlayedNetwork)
        self.network = self.bench.selector

    @property
    def tried(self) -> list[str]:
        return [attempt.address[0] for attempt in self.network.attempts]

    @property
    def ends(self) -> list[str]:
        """The reasons of the attempts that failed."""
        return [event.reason for event in self.bench.sink.events if isinstance(event, NodeDisconnected)]

    @property
    def connected_to(self) -> list[str]:
        return list(self.network.addresses_of(NODE.id))

    def turn(self) -> None:
        """Polls as the sender does."""
        self.bench.client.ready(NODE, self.bench.now_ms)
        self.bench.poll(min(self.bench.client.poll_delay_ms(NODE, self.bench.now_ms), 1_000))

    def turn_until_connected(self, most_ms: int = 60_000) -> int:
        """Returns how long it took to connect to the node."""
        began_ms, sent = self.bench.now_ms, len(self.network.sent_to(NODE.id))
        while len(self.network.sent_to(NODE.id)) == sent:
            assert self.bench.now_ms - began_ms < most_ms, self.tried
            self.turn()
        return self.bench.now_ms - began_ms

    def turn_until_failed(self, times: int) -> None:
        while len(self.ends) < times:
            self.turn()


@pytest.mark.behaviour("CONN-14", "CONN-10")
def test_ipv6_first_and_unreachable_costs_a_quarter_of_a_second() -> None:
    played = Played(V6, "2001:db8::2", V4)
    played.network.dead = (V6, "2001:db8::2")
    assert played.turn_until_connected() == ADDRESS_DELAY_MS
    assert played.tried == [V6, V4]
    assert played.connected_to == [f"{V4}:{NODE.port}"], "the connection that lost is closed"
    assert played.ends == [], "it is one attempt"


@pytest.mark.behaviour("CONN-14")
def test_an_address_without_a_route_costs_nothing() -> None:
    played = Played(V6, V4)
    played.network.without_route = (V6,)
    assert played.turn_until_connected() == 0
    assert played.ends == []


@pytest.mark.behaviour("CONN-14")
@pytest.mark.parametrize("failed_rounds", [0, 1, 2, 4, 6])
@pytest.mark.parametrize("outage", ["refusing", "dead"])
@pytest.mark.parametrize("addresses", [(V6, V4), (V4, V6)])
def test_a_dead_address_costs_as_little_after_an_outage(
    addresses: tuple[str, ...], outage: str, failed_rounds: int
) -> None:
    """It does not matter how often connecting failed before, or in which order the resolver names them."""
    played = Played(*addresses)
    played.network.dead = (V6, V4) if outage == "dead" else (V6,)
    played.network.refusing = (V4,) if outage == "refusing" else ()
    played.turn_until_failed(failed_rounds)
    played.network.dead, played.network.refusing = (V6,), ()
    backoff_ms = played.bench.client.connection_delay_ms(NODE, played.bench.now_ms)
    assert played.turn_until_connected() - backoff_ms <= MOST_MS


@pytest.mark.behaviour("CONN-14")
@pytest.mark.parametrize("failed_rounds", [0, 1, 2, 4, 6])
def test_a_broker_that_returns_amid_an_attempt_is_found_after_the_backoff(failed_rounds: int) -> None:
    """An attempt waits longer for a dead address each time. Meanwhile the other one is tried again."""
    played = Played(V6, V4)
    played.network.dead, played.network.refusing = (V6,), (V4,)
    played.turn_until_failed(failed_rounds)
    while V4 not in played.tried[-1:] or not played.connected_to:
        played.turn()
    played.network.refusing = ()
    assert played.turn_until_connected() <= MOST_MS + 1_200, "the longest backoff, with its jitter"


@pytest.mark.behaviour("CONN-14")
def test_a_dead_address_hides_for_half_a_second_that_the_other_one_refuses() -> None:
    """Other bootstrap servers wait for it."""
    for addresses in ((V6, V4), (V4, V6)):
        played = Played(*addresses)
        played.network.dead, played.network.refusing = (V6,), (V4,)
        began_ms = played.bench.now_ms
        played.turn_until_failed(1)
        assert played.ends == ["refused"]
        assert played.bench.now_ms - began_ms <= MOST_MS
        assert played.connected_to == [], "nothing is left open"


@pytest.mark.behaviour("CONN-14")
@pytest.mark.parametrize("slow_ms", [300, 800, 3_000])
def test_addresses_that_are_all_slow_are_connected_to_in_the_first_attempt(slow_ms: int) -> None:
    played = Played(V6, V4)
    played.network.slow_ms = {V6: slow_ms, V4: slow_ms}
    assert played.turn_until_connected() == slow_ms
    assert played.connected_to == [f"[{V6}]:{NODE.port}"]
    assert played.ends == []


@pytest.mark.behaviour("CONN-14")
@pytest.mark.parametrize("others", ["refusing", "without_route"])
@pytest.mark.parametrize("addresses", [(V6, V4), (V4, V6)])
def test_a_slow_address_is_connected_to_although_the_other_one_refuses(
    addresses: tuple[str, ...], others: str
) -> None:
    played = Played(*addresses)
    played.network.slow_ms = {V6: 800}
    setattr(played.network, others, (V4,))
    assert played.turn_until_connected() < 2_000
    assert played.ends in (["refused"], [])


@pytest.mark.behaviour("CONN-14")
def test_of_fifty_addresses_the_live_one_is_found() -> None:
    """The next attempt continues where the set-up timeout ended this one."""
    fifty = [f"192.0.2.{n}" for n in range(50)]
    for live in (fifty[20], fifty[49]):
        played = Played(*fifty, connection_setup_timeout_ms=10_000)
        played.network.dead = [address for address in fifty if address != live]
        took_ms = played.turn_until_connected()
        assert took_ms <= 49 * ADDRESS_DELAY_MS + 1_000
        assert played.tried == fifty[: fifty.index(live) + 1]
        assert played.network.most_at_once <= 50
        assert played.connected_to == [f"{live}:{NODE.port}"]


@pytest.mark.behaviour("CONN-14")
def test_addresses_that_refuse_cost_nothing_and_only_the_last_one_fails_the_attempt() -> None:
    fifty = [f"192.0.2.{n}" for n in range(50)]
    played = Played(*fifty)
    played.network.refusing = fifty[:-1]
    assert played.turn_until_connected() == 0
    assert played.tried == fifty
    assert played.ends == []
    refusing = Played(*fifty)
    refusing.network.refusing = fifty
    refusing.turn_until_failed(1)
    assert refusing.tried == fifty
    assert refusing.ends == ["refused"]


@pytest.mark.behaviour("CONN-14")
def test_addresses_that_are_all_dead_have_the_whole_setup_timeout() -> None:
    played = Played(V4, OTHER)
    played.network.dead = (V4, OTHER)
    began_ms = played.bench.now_ms
    played.turn_until_failed(1)
    assert played.tried == [V4, OTHER]
    assert played.bench.now_ms - began_ms > SETUP_TIMEOUT_MS
    assert played.ends == ["setup_timeout"]
    assert played.connected_to == []


def test_a_single_address_has_the_whole_setup_timeout() -> None:
    played = Played(V4)
    played.network.dead = (V4,)
    played.turn()
    played.bench.poll(SETUP_TIMEOUT_MS)
    assert played.tried == [V4]
    assert played.ends == []


def test_a_handshake_may_take_longer_than_an_address() -> None:
    played = Played(V4, OTHER)
    played.network.never_ready(NODE.id)
    for _ in range(10):
        played.bench.client.ready(NODE, played.bench.now_ms)
        played.bench.poll(ADDRESS_DELAY_MS)
    assert played.tried == [V4]


@pytest.mark.parametrize("addresses", [(V6, V4), (V4, V6)])
def test_after_an_address_that_accepts_and_is_silent_the_next_attempt_tries_the_other_one(
    addresses: tuple[str, ...],
) -> None:
    """ApiVersions is not answered, or the handshake does not end, or something else answers."""
    ends = {"api_versions": "request_timeout", "handshake": "setup_timeout", "protocol": "protocol_error"}
    for fault, end in ends.items():
        played = Played(*addresses)
        if fault == "handshake":
            played.network.never_ready(NODE.id)
        elif fault == "protocol":
            played.network.answer(NODE.id, b"HTTP/1.1 400 Bad Request")
        played.turn_until_failed(1)
        assert played.ends == [end]
        while len(played.tried) == 1:
            played.turn()
        assert played.tried == list(addresses)
        played.network.become_ready(NODE.id)
        while not played.network.sent_to(NODE.id)[1 - (fault == "handshake") :]:
            played.turn()
        played.bench.answer(NODE.id, api_versions_response())
        played.turn()
        assert played.bench.client.can_send_request(NODE.id, played.bench.now_ms)


@pytest.mark.behaviour("CONN-14")
def test_after_a_slow_address_that_fails_later_the_next_attempt_begins_behind_it() -> None:
    """Not behind the last one that was tried beside it."""
    played = Played(V4, OTHER, "192.0.2.3")
    played.network.never_ready(NODE.id)
    played.network.slow_ms = dict.fromkeys((V4, OTHER), 300)
    played.turn_until_failed(1)
    assert played.tried == [V4, OTHER]
    while len(played.tried) == 2:
        played.turn()
    assert played.tried[2] == OTHER
