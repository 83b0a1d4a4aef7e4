"""Names to addresses: bootstrap.servers, look-ups off the I/O thread, and a client whose resolver is slow.

Twins of ClientUtilsTest, and the messages of PROD-14. The system's resolver is asked for literals only.
"""

from __future__ import annotations

import gc
import logging
from collections import deque
from functools import partial
from random import Random
from threading import Event, Thread, current_thread
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.client.bootstrap_addresses import (
    ClientDnsLookup,
    check_host_names,
    parse_and_validate_addresses,
    resolve_bootstrap_addresses,
)
from client_core.client.host_resolver import (
    MOST_LOOK_UPS,
    BackgroundResolver,
    DefaultHostResolver,
    in_alternating_families,
    resolve,
    start_thread,
)
from client_core.client.kafka_client import LeastLoadedNode
from client_core.client.node_connection_state import ConnectionState
from client_core.client.node_connections import USUAL_LOOK_UP_MS
from client_core.errors import ConfigError
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.protocol.api_keys import ApiKey
from tests.client.client_builders import NODE, NODE_1, TEST_CONFIG, Bench, api_versions_response
from tests.support.counted_work import kept_blocks
from tests.support.mock_resolver import MockResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from client_core.cluster import Node

CANONICAL = ClientDnsLookup.RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY
NOTHING_TO_BEGIN_WITH = r"^No resolvable bootstrap urls given in bootstrap\.servers$"


@pytest.mark.java("ClientUtilsTest.ParseAndValidateAddresses", "ClientUtilsTest.ValidBrokerAddress")
def test_addresses_are_hosts_and_ports_in_their_order_and_empty_texts_are_left_out() -> None:
    addresses = {
        "127.0.0.1:8000": ("127.0.0.1", 8000),
        "localhost:8080": ("localhost", 8080),
        "": None,
        "[::1]:8000": ("::1", 8000),
        "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:1234": ("2001:db8:85a3:8d3:1319:8a2e:370:7348", 1234),
        "[fe80::b1da:69ca%eth0]:9092": ("fe80::b1da:69ca%eth0", 9092),
        "PLAINTEXT://broker-1.example:9092": ("broker-1.example", 9092),
        "0.broker.example:9092": ("0.broker.example", 9092),
        "under_score:65535": ("under_score", 65535),
        "localhost:9997": ("localhost", 9997),
    }
    wanted = [address for address in addresses.values() if address is not None]
    assert parse_and_validate_addresses(list(addresses)) == wanted
    assert [parse_and_validate_addresses([url])[0] for url in addresses if url] == wanted
    check_host_names(wanted)


def test_a_host_that_no_resolver_can_know_is_named_with_what_is_wrong() -> None:
    complaints = {
        "1::2::3": "not an IPv6 address",
        "1.2.3.4.5": "not an IPv4 address",
        "broker.1": "not an IPv4 address",
        "a..b": "each part of a host name has 1 to 63 characters",
        "a" * 64: "each part of a host name has 1 to 63 characters",
        ".".join(["a" * 63] * 4) + "b": "a host name has at most 253 characters",
    }
    for host, complaint in complaints.items():
        with pytest.raises(ConfigError, match=complaint):
            check_host_names([("fine.example", 1), (host, 9092)])


@pytest.mark.java(
    "ClientUtilsTest.NoPort", "ClientUtilsTest.InvalidBrokerAddress", "ClientUtilsTest.InvalidPort"
)
def test_a_text_that_is_no_address_and_a_port_out_of_range_are_named() -> None:
    no_addresses = (
        "127.0.0.1",
        "localhost:9997\nlocalhost:9998\nlocalhost:9999",
        " localhost:9999",
        "localhost:9997 localhost:9998",
        "localhost:",
        ":9092",
        "localhost:-1",
        "localhost:9092/",
        "localhost:9092\n",
    )
    out_of_range = ("localhost:70000", "localhost:65536", "localhost:" + "9" * 5000)
    for what, urls in (("url", no_addresses), ("port", out_of_range)):
        for url in urls:
            with pytest.raises(ConfigError) as caught:
                parse_and_validate_addresses(["localhost:9092", url])
            assert caught.value.message == f"Invalid {what} in bootstrap.servers: {url}"
            assert caught.value.name == "bootstrap.servers"


def test_nothing_to_begin_with_is_an_error() -> None:
    for urls in ([], [""], ["", ""]):
        with pytest.raises(ConfigError, match=NOTHING_TO_BEGIN_WITH):
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


@pytest.mark.java("ClientUtilsTest.OnlyBadHostname")
def test_a_known_host_keeps_its_name_an_unknown_one_is_left_out_and_only_unknown_ones_are_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resolver = MockResolver("10.0.0.1", "10.0.0.2", hosts={"gone.example": ()})
    with caplog.at_level(logging.WARNING):
        found = resolve_bootstrap_addresses([("gone.example", 1), ("localhost", 10000)], resolver)
    assert found == [("localhost", 10000)]
    assert "Couldn't resolve server gone.example:1 from bootstrap.servers" in caplog.text
    with pytest.raises(ConfigError, match=NOTHING_TO_BEGIN_WITH):
        resolve_bootstrap_addresses([("some.invalid.hostname.foo.bar.local", 9999)], MockResolver())


@pytest.mark.java("ClientUtilsTest.ParseAndValidateAddressesWithReverseLookup")
def test_canonical_names_take_the_place_of_the_name_that_they_follow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def resolved(resolver: MockResolver, host: str = "example.com") -> list[tuple[str, int]]:
        return resolve_bootstrap_addresses([(host, 7)], resolver, CANONICAL)

    names = {"10.0.0.1": "canonical_hostname1", "10.0.0.2": "canonical_hostname2"}
    assert resolved(MockResolver(*names, names=names)) == [(name, 7) for name in names.values()]
    assert resolved(MockResolver("10.0.0.1")) == [("10.0.0.1", 7)], "an address without one stays an address"
    dead = MockResolver("10.0.0.1", hosts={"dead": ()}, names={"10.0.0.1": "dead"})
    with caplog.at_level(logging.WARNING), pytest.raises(ConfigError, match="No resolvable bootstrap urls"):
        resolved(dead)
    assert "DNS resolution of the canonical hostname dead failed" in caplog.text
    with pytest.raises(ConfigError, match=r"^Unknown host in bootstrap\.servers: gone\.example:7$"):
        resolved(MockResolver(), "gone.example")


@pytest.mark.java("ClientUtilsTest.InvalidConfig")
def test_a_lookup_that_kafka_does_not_know_has_no_value() -> None:
    with pytest.raises(ValueError, match=r"random\.value"):
        ClientDnsLookup("random.value")


# -- look-ups ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("CONN-10")
def test_both_families_are_tried_in_turn_the_first_ones_first() -> None:
    for addresses, order in {
        ("192.0.0.1", "192.0.0.2"): ("192.0.0.1", "192.0.0.2"),
        ("192.0.0.1", "::1", "192.0.0.2"): ("192.0.0.1", "::1", "192.0.0.2"),
        ("::1", "::2", "::3", "192.0.0.1"): ("::1", "192.0.0.1", "::2", "::3"),
        ("192.0.0.1", "::1", "::2", "::3"): ("192.0.0.1", "::1", "::2", "::3"),
        ("::1",): ("::1",),
    }.items():
        assert in_alternating_families(addresses) == order
    fifty = [f"192.0.2.{n}" for n in range(25)] + [f"2001:db8::{n}" for n in range(25)]
    assert sorted(in_alternating_families(fifty)) == sorted(fifty)


@pytest.mark.java("ClientUtilsTest.ResolveUnknownHostException", "ClientUtilsTest.ResolveDnsLookup")
def test_resolve_returns_every_address_of_the_name_and_lets_the_resolvers_failure_through() -> None:
    resolver = MockResolver("198.51.100.0", "198.51.100.5")
    assert resolve("kafka.apache.org", resolver) == ("198.51.100.0", "198.51.100.5")
    with pytest.raises(OSError, match=r"some\.invalid\.hostname"):
        resolve("some.invalid.hostname", MockResolver())

    class Empty(MockResolver):
        def resolve(self, host: str) -> tuple[str, ...]:
            return ()

    with pytest.raises(OSError, match="broker-1 has no address"):
        resolve("broker-1", Empty())


def test_the_systems_resolver_answers_a_literal_with_itself_once_and_knows_its_own_machine() -> None:
    system = DefaultHostResolver()
    for literal in ("127.0.0.1", "::1"):
        assert system.resolve(literal) == (literal,)
    for name in ("a" * 64 + ".example", "a..example"):
        with pytest.raises(OSError, match="is not a host name"):
            system.resolve(name)
    assert system.canonical_name("127.0.0.1")


# -- off the I/O thread --------------------------------------------------------------------------------------


class Threads:
    """What BackgroundResolver starts, run when the test says so."""

    def __init__(self, resolver: MockResolver, canonical: Collection[str] = ()) -> None:
        self.begun: deque[Callable[[], None]] = deque()  # and has not ended
        self.wakeups = 0
        self.dns = resolver
        self.resolver = BackgroundResolver(resolver, self._woken, canonical, self.begun.append)

    def _woken(self) -> None:
        self.wakeups += 1

    def run_one(self) -> None:
        self.begun.popleft()()


def test_a_name_is_known_when_its_look_up_has_ended_and_woken_the_io_thread() -> None:
    threads = Threads(MockResolver("10.0.0.1", "10.0.0.2"))
    assert threads.resolver.resolve("broker-1") is None
    assert threads.resolver.resolve("broker-1") is None
    assert len(threads.begun) == 1
    assert threads.wakeups == 0
    threads.run_one()
    assert threads.wakeups == 1
    assert threads.resolver.resolve("broker-1") == ("10.0.0.1", "10.0.0.2")
    assert threads.resolver.name_at("broker-1", "10.0.0.1") == "broker-1"
    # The next time it is looked up anew: addresses change.
    assert threads.resolver.resolve("broker-1") is None
    assert len(threads.begun) == 1


def test_an_address_is_its_own_answer_without_a_thread() -> None:
    threads = Threads(MockResolver())
    for literal in ("10.0.0.1", "::1", "fe80::1%eth0"):
        assert threads.resolver.resolve(literal) == (literal,)
        assert not threads.begun


def test_a_name_that_is_not_known_and_a_resolver_with_a_bug_are_errors_each_time() -> None:
    class Broken(MockResolver):
        def resolve(self, host: str) -> Sequence[str]:
            raise RuntimeError("a bug")

    for resolver, said in ((MockResolver(), "Name or service not known"), (Broken(), "a bug")):
        threads = Threads(resolver)
        for asked in (1, 2):
            assert threads.resolver.resolve("broker-1") is None
            threads.run_one()
            assert threads.wakeups == asked
            with pytest.raises(OSError, match=said):
                threads.resolver.resolve("broker-1")


def test_a_resolver_that_hangs_holds_one_thread_for_each_name_and_few_altogether() -> None:
    threads = Threads(MockResolver("10.0.0.1"))
    for _ in range(50):
        for number in range(20):
            assert threads.resolver.resolve(f"broker-{number}") is None
            threads.resolver.abandon(f"broker-{number}")
    assert len(threads.begun) == MOST_LOOK_UPS == 16
    # When it answers at last, the others have their turn.
    threads.run_one()
    assert threads.resolver.resolve("broker-19") is None
    assert len(threads.begun) == MOST_LOOK_UPS


def test_a_call_during_an_abandoned_look_up_gets_its_answer_and_no_later_one_does() -> None:
    resolver = MockResolver("10.0.0.1")
    threads = Threads(resolver)
    threads.resolver.resolve("broker-1")
    threads.resolver.abandon("broker-1")
    assert threads.resolver.resolve("broker-1") is None
    threads.run_one()
    assert threads.resolver.resolve("broker-1") == ("10.0.0.1",)
    for host in ("broker-1", "broker-2"):
        threads.resolver.resolve(host)
        threads.resolver.abandon(host)
        threads.run_one()
    resolver.addresses = ("10.0.0.9",)
    assert threads.resolver.resolve("broker-2") is None, "that came when nobody waited is not used"
    assert repr(threads.resolver) == "<BackgroundResolver looks_up=['broker-2']>"
    threads.run_one()
    assert threads.resolver.resolve("broker-2") == ("10.0.0.9",)


def test_a_canonical_host_leads_to_the_addresses_of_its_canonical_names_or_is_an_error() -> None:
    hosts = {"alias": ("10.0.0.1", "10.0.0.2"), "one.example": ("10.0.0.1",), "gone.example": ()}
    one = {"10.0.0.1": "one.example", "10.0.0.2": "gone.example"}
    threads = Threads(MockResolver(hosts=hosts, names=one), canonical=["alias"])
    assert threads.resolver.resolve("alias") is None
    threads.run_one()
    assert threads.resolver.resolve("alias") == ("10.0.0.1",)
    assert threads.resolver.name_at("alias", "10.0.0.1") == "one.example"
    none = dict.fromkeys(one, "gone.example")
    threads = Threads(MockResolver(hosts=hosts, names=none), canonical=["alias"])
    threads.resolver.resolve("alias")
    threads.run_one()
    with pytest.raises(OSError, match="no canonical name of alias can be resolved"):
        threads.resolver.resolve("alias")


def test_where_no_thread_can_be_had_that_is_the_error() -> None:
    class TooMany(Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    start = partial(start_thread, new_thread=TooMany)
    resolver = BackgroundResolver(MockResolver("10.0.0.1"), lambda: None, start=start)
    with pytest.raises(OSError, match="no thread could be started for the look-up: can't start"):
        resolver.resolve("broker-1")


def test_a_thread_of_its_own_resolves_and_keeps_no_process_from_ending() -> None:
    woken, asked_for = Event(), Event()
    threads: list[Thread] = []

    class Seen(MockResolver):
        def resolve(self, host: str) -> Sequence[str]:
            threads.append(current_thread())
            assert asked_for.wait(30)
            return super().resolve(host)

    resolver = BackgroundResolver(Seen("10.0.0.1"), woken.set)
    assert resolver.resolve("broker-1") is None
    asked_for.set()
    assert woken.wait(30)
    assert resolver.resolve("broker-1") == ("10.0.0.1",)
    assert [thread.daemon for thread in threads] == [True]


def test_of_hosts_without_canonical_names_nothing_is_kept() -> None:
    class Forgetful(MockResolver):
        def resolve(self, host: str) -> Sequence[str]:
            return ("10.0.0.1",)

    threads = Threads(Forgetful("10.0.0.1"))

    def look_up_many() -> None:
        for number in range(300):
            threads.resolver.resolve(f"broker-{number}")
            threads.run_one()
            threads.resolver.resolve(f"broker-{number}")
        gc.collect()

    assert kept_blocks(look_up_many) < 300


# -- a client whose resolver is slow, hangs or knows nothing -------------------------------------------------


def looking_up(*addresses: str) -> tuple[Threads, Bench]:
    """A client that wants a connection to NODE, whose name is being looked up."""
    names = Threads(MockResolver(*addresses))
    bench = Bench(resolver=names.resolver)
    assert not bench.client.ready(NODE, bench.now_ms)
    return names, bench


def state(bench: Bench, node: Node = NODE) -> tuple[ConnectionState, str | None]:
    status = next(one for one in bench.client.node_statuses(bench.now_ms) if one.node_id == node.id)
    return status.state, status.last_error


def test_a_node_connects_when_its_name_has_been_looked_up() -> None:
    names, bench = looking_up("10.0.0.1")
    bench.poll()
    assert state(bench) == (ConnectionState.CONNECTING, None)
    assert not bench.selector.attempts
    names.run_one()
    bench.poll()
    (attempt,) = bench.selector.attempts
    assert (attempt.host, attempt.address) == (NODE.host, ("10.0.0.1", NODE.port))
    bench.ready()


def test_others_are_served_while_a_look_up_hangs() -> None:
    names = Threads(MockResolver("10.0.0.1"))
    bench = Bench(resolver=names.resolver)
    assert not bench.client.ready(NODE_1, bench.now_ms)
    names.run_one()
    bench.poll()
    bench.ready(NODE_1)
    assert not bench.client.ready(NODE, bench.now_ms)  # whose look-up does not end
    bench.send(NODE_1)
    assert bench.client.in_flight_request_count(NODE_1.id) == 1
    assert state(bench)[0] is ConnectionState.CONNECTING


@pytest.mark.parametrize("hung", range(3))
def test_a_client_begins_with_the_bootstrap_servers_whose_names_are_known(hung: int) -> None:
    """It waits for none of those whose look-ups hang: the setup timeout of each is five seconds here."""
    names = Threads(MockResolver("10.0.0.1"))
    metadata = Metadata(MetadataConfig(100, 1_000, 300_000), Random(0))
    metadata.bootstrap([(f"host-{number}", 9092) for number in range(3)])
    bench = Bench(
        metadata=metadata, resolver=names.resolver, reconnect_backoff_ms=50, request_timeout_ms=30_000
    )
    began_ms = bench.now_ms
    while len(names.begun) <= hung:
        bench.poll()
        bench.clock.advance(50)
    assert bench.now_ms - began_ms <= hung * USUAL_LOOK_UP_MS + 50
    names.begun.pop()()
    bench.poll()
    (attempt,) = bench.selector.attempts
    bench.poll()
    bench.poll()
    bench.answer(attempt.node_id, api_versions_response())
    bench.poll()
    bench.poll()
    assert bench.headers(attempt.node_id)[-1].api is ApiKey.METADATA
    assert len(names.begun) == hung
    assert len(bench.selector.attempts) == 1


def test_a_name_that_is_the_only_one_is_waited_for() -> None:
    _, bench = looking_up("10.0.0.1")
    bench.clock.advance(USUAL_LOOK_UP_MS)
    assert bench.client.least_loaded_node(bench.now_ms) == LeastLoadedNode(NODE, True)


def test_a_look_up_that_hangs_ends_the_attempt_in_time_and_takes_no_second_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = Threads(MockResolver("10.0.0.1"))
    bench = Bench(resolver=names.resolver)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert not bench.client.ready(NODE, bench.now_ms)
            bench.clock.advance(20_000)
            bench.poll()
            now, error = state(bench)
            assert now is ConnectionState.DISCONNECTED
            assert error is not None
            assert error.startswith(f"{NODE.host} was not resolved within ")
            bench.clock.advance(20_000)
    assert len(names.begun) == 1
    assert caplog.text.count("was not resolved within") == 1
    # A call while it still hangs gets its answer.
    assert not bench.client.ready(NODE, bench.now_ms)
    names.run_one()
    bench.poll()
    assert len(bench.selector.attempts) == 1


def test_a_name_that_is_not_known_is_tried_again_after_the_backoff_and_used_within_two_seconds() -> None:
    """With Kafka's own backoffs, whenever it appears."""
    names = Threads(MockResolver())
    bench = Bench(resolver=names.resolver, reconnect_backoff_ms=50, reconnect_backoff_max_ms=1_000)

    def attempt() -> None:
        bench.client.ready(NODE, bench.now_ms)
        if len(names.begun):
            names.run_one()
        bench.poll()

    for _ in range(600):
        attempt()
        bench.clock.advance(100)
    asked = len(names.dns.asked)
    assert 50 <= asked <= 80  # a minute, about one a second
    assert state(bench)[1] == f"{NODE.host} can't be resolved: {NODE.host}: Name or service not known"
    names.dns.addresses = ("10.0.0.1",)
    appeared_ms = bench.now_ms
    while not bench.selector.attempts:
        attempt()
        bench.clock.advance(10)
    assert bench.now_ms - appeared_ms <= 1_500


def test_a_name_that_hangs_at_a_reconnect_does_not_hold_the_turn() -> None:
    names, bench = looking_up("10.0.0.1")
    names.run_one()
    bench.poll()
    bench.ready()
    bench.selector.disconnect(NODE.id)
    bench.poll()
    bench.clock.advance(TEST_CONFIG.reconnect_backoff_max_ms * 2)
    assert not bench.client.ready(NODE, bench.now_ms)
    bench.poll()
    assert len(names.begun) == 1
    assert state(bench)[0] is ConnectionState.CONNECTING


@pytest.mark.parametrize("end", ["close_node", "disconnect", "close"])
def test_a_node_that_is_dropped_during_its_look_up_is_not_connected_to(end: str) -> None:
    names, bench = looking_up("10.0.0.1")
    if end == "close":
        bench.client.close()
        names.run_one()
    else:
        getattr(bench.client, end)(NODE.id)
        names.run_one()
        bench.poll()
    assert not bench.selector.attempts
    if end == "disconnect":
        assert state(bench)[0] is ConnectionState.DISCONNECTED


@pytest.mark.parametrize("end", ["close_node", "disconnect"])
def test_addresses_found_for_a_dropped_node_are_not_used_later(end: str) -> None:
    names, bench = looking_up("10.0.0.1")
    getattr(bench.client, end)(NODE.id)
    names.run_one()
    names.dns.addresses = ("10.0.0.9",)
    bench.clock.advance(TEST_CONFIG.reconnect_backoff_max_ms * 2)
    assert not bench.client.ready(NODE, bench.now_ms)
    names.run_one()
    bench.poll()
    (attempt,) = bench.selector.attempts
    assert attempt.address == ("10.0.0.9", NODE.port)
