"""The client as a whole: the order of one turn, closing, bootstrapping again, and no busy loops.

It has those cases of NetworkClientTest that are longer scenarios; the others are in `test_network_client.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core.client.host_resolver import BackgroundResolver
from client_core.client.metadata_updater import RefreshFailure
from client_core.client.network_client import ClientLife, Life
from client_core.cluster import Node
from client_core.errors import DisconnectError, KafkaError, SaslAuthenticationError
from client_core.events import MetadataRefreshFailed, NodeDisconnected, NodeReady, Rebootstrapped
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.network.selectable import ChannelState, ChannelStateName
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.client.client_builders import (
    NODE,
    NODE_1,
    NODE_2,
    TEST_CONFIG,
    Bench,
    RecordingUpdater,
    api_versions_response,
    counting_metadata,
    make_in_flight,
)
from tests.support.metadata_responses import metadata_message, read
from tests.support.mock_resolver import MockResolver
from tests.support.mock_selector import MockSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client_core.client.kafka_client import ClientResponse
    from client_core.errors import AuthenticationError

NODE_3 = Node(3, "broker-3", 9092)
FOUR = (NODE, NODE_1, NODE_2, NODE_3)

#: With Kafka's own defaults.
KAFKAS_TIMES: Final = replace(
    TEST_CONFIG,
    reconnect_backoff_ms=50,
    reconnect_backoff_max_ms=1_000,
    request_timeout_ms=30_000,
    rebootstrap_trigger_ms=300_000,
)


@pytest.mark.behaviour("NET-08")
def test_a_turn_goes_through_sends_receives_disconnections_and_timeouts_before_any_callback() -> None:
    bench = Bench(RecordingUpdater(FOUR))
    for node in FOUR:
        bench.ready(node)
    reported: list[tuple[int, int]] = []

    def note(response: ClientResponse) -> None:
        reported.append((response.destination, bench.client.in_flight_request_count()))

    bench.send(NODE_3, request_timeout_ms=10, on_complete=note)
    bench.send(NODE_2, request_timeout_ms=60_000, on_complete=note)
    bench.send(NODE_1, request_timeout_ms=60_000, on_complete=note)
    bench.selector.hold_sends(NODE.id)
    bench.send(NODE, request_timeout_ms=60_000, expect_response=False, on_complete=note)
    bench.clock.advance(11)
    bench.selector.release_sends(NODE.id)
    bench.answer(NODE_1.id, ProduceResponse())
    bench.selector.disconnect(NODE_2.id)
    responses = bench.poll()
    assert [response.destination for response in responses] == [0, 1, 2, 3]
    assert reported == [(0, 0), (1, 0), (2, 0), (3, 0)]


@pytest.mark.behaviour("NET-08")
def test_a_turn_asks_for_metadata_before_it_waits_and_for_versions_after() -> None:
    metadata = Metadata(MetadataConfig(50, 50, 5_000), Random(0))
    metadata.bootstrap([("bootstrap", 9999)])
    bench = Bench(metadata=metadata)
    bench.poll()
    assert [attempt.node_id for attempt in bench.selector.attempts] == [-1]
    assert bench.client.in_flight_request_count(-1) == 1  # connected in that poll, and asked at its end
    bench.poll()
    assert [header.api for header in bench.headers(-1)] == [ApiKey.API_VERSIONS]


def test_a_bootstrap_server_is_left_when_brokers_are_known_and_it_has_answered_what_it_was_asked() -> None:
    bootstrap = Node(-1, "bootstrap", 9999)
    bench = Bench(RecordingUpdater((bootstrap,)))
    bench.ready(bootstrap)
    answered: list[ClientResponse] = []
    bench.send(bootstrap, on_complete=answered.append)
    bench.recorded.set_nodes((NODE,))
    bench.poll()
    assert bench.client.in_flight_request_count(bootstrap.id) == 1
    bench.answer(bootstrap.id, ProduceResponse())
    bench.poll()
    assert [response.body for response in answered] == [ProduceResponse()]
    assert not bench.client.can_send_request(bootstrap.id, bench.now_ms)


def test_a_bootstrap_server_that_is_left_while_its_name_is_looked_up_is_not_connected_to() -> None:
    bootstrap = Node(-1, "bootstrap", 9999)
    look_ups: list[Callable[[], None]] = []
    resolver = BackgroundResolver(MockResolver("10.0.0.1"), lambda: None, start=look_ups.append)
    bench = Bench(RecordingUpdater((bootstrap,)), resolver=resolver)
    bench.client.ready(bootstrap, bench.now_ms)
    bench.recorded.set_nodes((NODE,))
    bench.poll()
    [look_up] = look_ups
    look_up()
    bench.poll()
    assert bench.selector.attempts == []


class Faulty(RecordingUpdater):
    """An updater with a bug: it raises at the end of a connection."""

    is_faulty = True

    def handle_server_disconnect(self, now_ms: int, node_id: int, fatal: AuthenticationError | None) -> None:
        if self.is_faulty:
            raise RuntimeError("a bug")


def test_a_turn_that_breaks_off_loses_no_request_that_has_ended() -> None:
    bench = Bench(Faulty((NODE, NODE_1)))
    bench.ready(NODE)
    bench.ready(NODE_1)
    handled: list[ClientResponse] = []
    answered = bench.send(NODE, on_complete=handled.append)
    lost = bench.send(NODE_1, on_complete=handled.append)
    bench.answer(NODE.id, ProduceResponse())
    bench.selector.disconnect(NODE_1.id)
    with pytest.raises(RuntimeError, match="a bug"):
        bench.poll()
    assert handled == []
    responses = bench.poll()
    assert [response.request for response in responses] == [answered, lost]
    assert handled == list(responses)
    assert bench.poll() == []


def test_a_turn_that_breaks_off_loses_none_that_ended_at_a_listeners_request() -> None:
    class Ending(Faulty):
        def handle_server_disconnect(self, *of: Any) -> None:
            bench.client.disconnect(NODE_2.id)
            super().handle_server_disconnect(*of)

    bench = Bench(Ending((NODE, NODE_1, NODE_2)))
    for node in (NODE, NODE_1, NODE_2):
        bench.ready(node)
    ended = [bench.send(node) for node in (NODE, NODE_1, NODE_2, NODE_2, NODE_2)]
    bench.answer(NODE.id, ProduceResponse())
    bench.selector.disconnect(NODE_1.id)
    with pytest.raises(RuntimeError, match="a bug"):
        bench.poll()
    assert [response.request for response in bench.poll()] == ended


@pytest.mark.parametrize("discovers", [True, False])
def test_a_connection_that_comes_and_goes_within_one_turn_is_gone(discovers: bool) -> None:
    """TCP is up, and the handshake fails in the same poll: the selector returns both."""

    class ComesAndGoes(MockSelector):
        @property
        def disconnected(self) -> Mapping[int, ChannelState]:
            return dict.fromkeys(self.connected, ChannelState(ChannelStateName.AUTHENTICATE))

    bench = Bench(selector_class=ComesAndGoes, discover_broker_versions=discovers)
    bench.client.ready(NODE, bench.now_ms)
    bench.poll()
    assert bench.client.connection_failed(NODE)
    assert len(bench.sink.of(NodeDisconnected)) == 1
    assert bench.sink.of(NodeReady) == []
    assert bench.client.in_flight_request_count() == 0


def assert_polls_at_most(limit: int, bench: Bench, for_ms: int) -> None:
    """The number of polls in that time, in a loop that has nothing else to do."""
    before, until_ms = len(bench.selector.polls), bench.now_ms + for_ms
    while bench.now_ms < until_ms:
        bench.poll(until_ms - bench.now_ms)
        assert len(bench.selector.polls) - before <= limit, f"{until_ms - bench.now_ms} ms are left"


def a_metadata() -> Metadata:
    metadata = Metadata(MetadataConfig(100, 1_000, 300_000), Random(0))
    metadata.bootstrap([("one", 9092), ("two", 9092)])
    return metadata


@pytest.mark.parametrize("knows_brokers", [True, False])
def test_while_the_cluster_is_away_the_client_mostly_waits(knows_brokers: bool) -> None:
    metadata = a_metadata()
    bench = Bench(
        metadata=metadata,
        can_connect=lambda _: False,
        config=KAFKAS_TIMES,
    )
    if knows_brokers:
        metadata.update(metadata.request_version, read(FOUR), False, bench.now_ms)
        metadata.request_update(True)
    assert_polls_at_most(1_700, bench, 60_000)
    assert len(bench.selector.attempts) < 250


def test_a_connection_that_hangs_is_waited_for_even_without_a_backoff() -> None:
    no_backoff = replace(KAFKAS_TIMES, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
    bench = Bench(metadata=a_metadata(), config=no_backoff)
    for node_id in (-1, -2):
        bench.selector.hold_connect(node_id)
    assert_polls_at_most(1_010, bench, 1_000)


def test_a_broker_that_always_asks_to_begin_again_is_not_stormed() -> None:
    bench = Bench(metadata=a_metadata(), config=KAFKAS_TIMES)
    until_ms = bench.now_ms + 10_000
    answered: dict[int, int] = {-1: 0, -2: 0}
    while bench.now_ms < until_ms:
        bench.poll(1_000)
        for node_id in answered:
            for header in bench.headers(node_id)[answered[node_id] :]:
                answered[node_id] += 1
                is_metadata = header.api is ApiKey.METADATA
                bench.answer(
                    node_id,
                    metadata_message((), error_code=129) if is_metadata else api_versions_response(),
                    request=answered[node_id] - 1,
                )
    assert 10 < len(bench.selector.attempts) < 2 * 10_000 / 50 + 10


def test_a_broker_that_always_refuses_us_is_not_stormed() -> None:
    bench = Bench(metadata=a_metadata(), config=KAFKAS_TIMES)
    for node_id in (-1, -2):
        bench.selector.never_ready(node_id)
    until_ms = bench.now_ms + 30_000
    while bench.now_ms < until_ms:
        bench.poll(1_000)
        for node_id in (-1, -2):
            if bench.selector.is_open(node_id):
                bench.selector.fail_authentication(node_id, SaslAuthenticationError("no"))
    assert 20 < len(bench.selector.attempts) < 2 * 45


def test_a_throttled_cluster_is_no_reason_to_begin_again() -> None:
    """All brokers are there and throttle: the client keeps their metadata (UPD-11)."""
    metadata = a_metadata()
    bench = Bench(metadata=metadata)
    metadata.update(metadata.request_version, read([NODE]), False, bench.now_ms)
    bench.ready()
    bench.send()
    bench.answer(NODE.id, ProduceResponse(throttle_time_ms=900))
    bench.poll()
    metadata.request_update(True)
    bench.clock.advance(100)
    chosen = bench.client.least_loaded_node(bench.now_ms)
    assert (chosen.node, chosen.has_node_available_or_connection_ready) == (None, True)
    bench.poll()
    assert not metadata.fetch().is_bootstrap_configured
    bench.clock.advance(900)
    bench.poll()
    bench.poll()
    assert bench.headers()[-1].api is ApiKey.METADATA


# -- a client works, is closing, is closed (NET-25) ----------------------------------------------------------


def test_a_life_only_goes_towards_its_end_and_only_an_active_client_may_work() -> None:
    for moves, allowed in (
        ([Life.CLOSING, Life.CLOSED], [True, True]),
        ([Life.CLOSED], [True]),
        ([Life.CLOSING, Life.CLOSING], [True, False]),
        ([Life.CLOSED, Life.CLOSED], [True, False]),
        ([Life.CLOSED, Life.CLOSING], [True, False]),
        ([Life.ACTIVE], [False]),
    ):
        life = ClientLife()
        assert [life.move_to(state) for state in moves] == allowed, moves
    life = ClientLife()
    life.ensure_active()
    was_active = life.is_active
    life.move_to(Life.CLOSING)
    assert (was_active, life.is_active, str(life)) == (True, False, "CLOSING")
    with pytest.raises(DisconnectError, match=r"^NetworkClient is no longer active, state is CLOSING$"):
        life.ensure_active()


def test_of_many_who_close_at_once_one_does() -> None:
    life = ClientLife()
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(life.move_to, [Life.CLOSED] * 100)) == 1


# -- cases of NetworkClientTest ------------------------------------------------------------------------------


@pytest.mark.behaviour("NET-18", "UPD-08")
@pytest.mark.java("NetworkClientTest.RequestTimeout", "NetworkClientTest.DefaultRequestTimeout")
def test_a_request_that_is_answered_asks_for_nothing_and_one_that_times_out_for_metadata() -> None:
    for request_timeout_ms in (1_000, 6_000):
        metadata = Metadata(MetadataConfig(50, 50, 300_000), Random(0))
        bench = Bench(metadata=metadata, discover_broker_versions=False, reconnect_backoff_max_ms=0)
        metadata.update(metadata.request_version, read((NODE, NODE_1)), False, bench.now_ms)
        bench.ready()
        for times_out in (False, True):
            assert not metadata.update_requested
            bench.send(request_timeout_ms=request_timeout_ms)
            if times_out:
                bench.clock.advance(request_timeout_ms + 1)
            else:
                bench.answer(NODE.id, ProduceResponse())
            [response] = bench.poll()
            assert (response.destination, response.disconnected) == (NODE.id, times_out)
            assert response.timed_out is times_out
            assert metadata.update_requested is times_out


@pytest.mark.behaviour("UPD-12", "UPD-13")
@pytest.mark.java("NetworkClientTest.Rebootstrap")
def test_rebootstrap() -> None:
    trigger_ms = 1_000
    metadata = counting_metadata()
    bench = Bench(
        metadata=metadata,
        discover_broker_versions=False,
        reconnect_backoff_max_ms=0,
        rebootstrap_trigger_ms=trigger_ms,
    )

    def rebootstraps_after(wait_ms: int) -> int:
        bench.clock.advance(wait_ms)
        bench.poll()
        return metadata.rebootstraps

    metadata.request_update(True)
    assert rebootstraps_after(0) == 0
    assert rebootstraps_after(trigger_ms + 1) == 1
    assert rebootstraps_after(1) == 1

    metadata.request_update(True)
    assert rebootstraps_after(0) == 1
    bench.updater.handle_failed_request(bench.now_ms, RefreshFailure("error", "failed", KafkaError("failed")))
    assert rebootstraps_after(0) == 1
    assert rebootstraps_after(trigger_ms) == 2

    metadata.request_update(True)
    assert rebootstraps_after(0) == 2
    bench.updater.handle_successful_response(bench.now_ms, make_in_flight(), read((), error_code=129))
    assert metadata.rebootstraps == 2
    assert rebootstraps_after(50) == 3
    assert [rebootstraps_after(1), rebootstraps_after(trigger_ms)] == [3, 4]
    assert len(bench.sink.of(Rebootstrapped)) == 4


# -- brokers that moved altogether (KIP-899) -----------------------------------------------------------------


OLD = (Node(0, "old-0", 9092), Node(1, "old-1", 9092))
NEW = (Node(0, "new-0", 9092), Node(1, "new-1", 9092))
HOSTS = {"bootstrap": ["10.0.0.1"], "old-0": ["10.0.1.0"], "old-1": ["10.0.1.1"], "new-0": ["10.0.2.0"]}


def play(bench: Bench, brokers: tuple[Node, ...], until_ms: int) -> None:
    """Polls, and answers whatever any node is asked, as a cluster of these brokers does."""
    answered = {node_id: len(bench.headers(node_id)) for node_id in (-1, 0, 1)}
    while bench.now_ms < until_ms:
        bench.poll(20)
        bench.clock.advance(1)
        for node_id, count in answered.items():
            for header in bench.headers(node_id)[count:]:
                is_metadata = header.api is ApiKey.METADATA
                message = metadata_message(brokers) if is_metadata else api_versions_response()
                if bench.selector.is_open(node_id):
                    bench.answer(node_id, message, request=answered[node_id])
                answered[node_id] += 1


@pytest.mark.behaviour("UPD-11", "META-23", "CONN-09", "CONN-11")
def test_brokers_that_moved_altogether_are_found_again() -> None:
    alive = {"10.0.0.1", "10.0.1.0", "10.0.1.1"}
    resolver = MockResolver(hosts=dict(HOSTS))
    metadata = Metadata(MetadataConfig(100, 1_000, 300_000), Random(0))
    metadata.bootstrap([("bootstrap", 9092)])
    bench = Bench(
        metadata=metadata,
        resolver=resolver,
        can_connect=lambda address: address[0] in alive,
        config=KAFKAS_TIMES,
    )
    play(bench, OLD, bench.now_ms + 500)
    assert {node.host for node in metadata.fetch().nodes} == {"old-0", "old-1"}
    metadata.request_update(True)
    play(bench, OLD, bench.now_ms + 500)  # by now the bootstrap address is not needed any more

    alive.clear()
    alive.update({"10.0.0.9", "10.0.2.0"})
    resolver.hosts["bootstrap"] = ["10.0.0.9"]
    for node_id in (-1, 0, 1):
        if bench.selector.is_open(node_id):
            bench.selector.disconnect(node_id)
    play(bench, NEW, bench.now_ms + 5_000)
    assert {node.host for node in metadata.fetch().nodes} == {"new-0", "new-1"}
    assert bench.sink.of(Rebootstrapped) == [Rebootstrapped()]
    assert "10.0.0.9" in {attempt.address[0] for attempt in bench.selector.attempts}

    assert not bench.client.ready(NEW[0], bench.now_ms)
    play(bench, NEW, bench.now_ms + 200)
    assert bench.client.can_send_request(0, bench.now_ms)
    assert bench.selector.attempts[-1].host == "new-0"


def test_a_refresh_that_no_node_could_be_asked_for_is_reported_with_its_reason() -> None:
    metadata = Metadata(MetadataConfig(100, 1_000, 300_000), Random(0))
    metadata.bootstrap([("bootstrap", 9092)])
    bench = Bench(metadata=metadata, can_connect=lambda _: False)
    for _ in range(3):
        bench.poll()
        bench.clock.advance(200)
    bench.poll()
    [event] = bench.sink.of(MetadataRefreshFailed)
    assert event == MetadataRefreshFailed("initial", "no_node", "no node is available")
