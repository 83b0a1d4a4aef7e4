"""The client's turn, on a network that the test plays. Twins of NetworkClientTest, and NET-01 to NET-26."""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.client.kafka_client import LeastLoadedNode
from client_core.client.metadata_updater import ManualMetadataUpdater
from client_core.clock import FOREVER_MS
from client_core.cluster import Node
from client_core.error_codes import Errors
from client_core.errors import (
    DisconnectError,
    IllegalArgumentError,
    IllegalStateError,
    UnsupportedVersionError,
)
from client_core.events import NodeDisconnected, NodeThrottled, RequestCompleted
from client_core.network.selectable import ChannelState, ChannelStateName
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.client.client_builders import (
    NODE,
    NODE_1,
    NODE_2,
    Bench,
    PlainBuilder,
    RecordingUpdater,
    api_versions_response,
    frame_of,
    make_request,
)
from tests.support.mock_resolver import MockResolver
from tests.support.mock_selector import MockSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from client_core.client.kafka_client import ClientResponse, KafkaClient
    from tests.support.mock_clock import MockClock

THREE = (NODE, NODE_1, NODE_2)
INITIAL = ("10.200.20.100", "10.200.20.101", "10.200.20.102")
CHANGED = ("10.200.20.103", "10.200.20.104", "10.200.20.105")


def test_the_client_is_what_the_sender_asks_for_and_its_repr_is_for_people(bench: Bench) -> None:
    client: KafkaClient = bench.client
    assert client is bench.client
    assert bench.client.active
    bench.send()
    assert repr(bench.client) == "<NetworkClient ACTIVE nodes=1 in_flight=1>"


# -- send and receive ----------------------------------------------------------------------------------------


@pytest.mark.behaviour("NET-01", "NET-05", "NET-20")
@pytest.mark.java("NetworkClientTest.SendToUnreadyNode")
def test_sending_to_a_node_that_is_not_ready_connecting_to_none_and_choosing_of_none_are_bugs() -> None:
    bench = Bench(ManualMetadataUpdater())
    not_ready = r"^Attempt to send a request to node 5 which is not ready\.$"
    with pytest.raises(IllegalStateError, match=not_ready):
        bench.client.send(make_request(5), bench.now_ms)
    with pytest.raises(IllegalArgumentError, match=r"^Cannot connect to empty node"):
        bench.client.ready(Node(3, "", -1), bench.now_ms)
    with pytest.raises(IllegalStateError, match=r"^There are no nodes in the Kafka cluster$"):
        bench.client.least_loaded_node(bench.now_ms)


@pytest.mark.java(
    "NetworkClientTest.SimpleRequestResponse",
    "NetworkClientTest.SimpleRequestResponseWithNoBrokerDiscovery",
    "NetworkClientTest.SimpleRequestResponseWithStaticNodes",
)
def test_a_request_is_answered_to_its_handler_if_it_has_one_and_by_poll(
    caplog: pytest.LogCaptureFixture,
) -> None:
    static = Bench(client_id="mock-static", reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
    for bench in (Bench(), Bench(discover_broker_versions=False), static):
        bench.ready()
        handled: list[ClientResponse] = []
        for on_complete in (handled.append, None):
            request = bench.send(on_complete=on_complete)
            assert bench.client.in_flight_request_count() == 1
            bench.clock.advance(7)
            bench.answer(NODE.id, ProduceResponse())
            [response] = bench.poll()
            assert response.body == ProduceResponse()
            assert response.request is request
            assert (response.version, response.latency_ms, response.disconnected) == (13, 7, False)
            assert bench.client.in_flight_request_count() == 0
            assert handled == [response] or on_complete is None
        assert len(handled) == 1
    assert "Uncaught error" not in caplog.text


def test_a_frame_is_header_and_body_with_the_client_id(bench: Bench) -> None:
    bench.send()
    payload = bench.selector.sent_to(NODE.id)[-1]
    assert payload == (
        b"\x00\x00"  # int16 api key: Produce
        b"\x00\x0d"  # int16 api version: 13
        b"\x00\x00\x00\x01"  # int32 correlation id: 1, after ApiVersions
        b"\x00\x04mock"  # nullable string client id
        b"\x00"  # no tags
        b"body"
    )


class WaitsSeen(MockSelector):
    """Keeps, of each wait, whether a write ends it."""

    def __init__(self, clock: MockClock, *, can_connect: Callable[[tuple[str, int]], bool]) -> None:
        super().__init__(clock, can_connect=can_connect)
        self.writes_end: list[bool] = []

    def poll(self, timeout_ms: int, *, writes_end_it: bool = True) -> int:
        self.writes_end.append(writes_end_it)
        return super().poll(timeout_ms, writes_end_it=writes_end_it)


@pytest.mark.behaviour("NET-10")
def test_a_write_ends_the_wait_where_a_request_without_answer_is_among_those_sent() -> None:
    bench = Bench(RecordingUpdater((NODE, NODE_1)), selector_class=WaitsSeen)
    assert isinstance(bench.selector, WaitsSeen)
    bench.ready(NODE)
    bench.ready(NODE_1)
    bench.send(NODE, expect_response=False, is_sent=False)
    bench.send(NODE_1, is_sent=False)
    bench.poll()
    assert bench.selector.writes_end[-1]
    bench.poll()
    assert not bench.selector.writes_end[-1]


@pytest.mark.behaviour("NET-02")
def test_a_write_ends_the_wait_of_a_caller_who_was_refused_for_a_due_update() -> None:
    updater = RecordingUpdater((NODE,))
    bench = Bench(updater, selector_class=WaitsSeen)
    assert isinstance(bench.selector, WaitsSeen)
    bench.ready(NODE)
    assert not any(bench.selector.writes_end)
    updater.is_due = True
    assert not bench.client.is_ready(NODE, bench.now_ms)
    bench.poll()
    assert bench.selector.writes_end[-1]
    updater.is_due = False
    assert bench.client.is_ready(NODE, bench.now_ms)
    bench.poll()
    assert not bench.selector.writes_end[-1]


def test_nodes_that_tell_their_versions_in_one_turn_are_all_ready_after_it() -> None:
    bench = Bench(RecordingUpdater((NODE, NODE_1)))
    for node in (NODE, NODE_1):
        bench.connect(node)
    for node in (NODE, NODE_1):
        bench.answer(node.id, api_versions_response())
    bench.poll()
    assert all(bench.client.can_send_request(node.id, bench.now_ms) for node in (NODE, NODE_1))


@pytest.mark.behaviour("NET-10")
def test_a_request_that_expects_no_answer_is_complete_when_it_is_sent(bench: Bench) -> None:
    bench.selector.hold_sends(NODE.id)
    bench.send(expect_response=False)
    assert bench.client.in_flight_request_count() == 1
    bench.selector.release_sends(NODE.id)
    [response] = bench.poll()
    assert (response.body, response.disconnected) == (None, False)
    assert bench.client.in_flight_request_count() == 0


@pytest.mark.behaviour("NET-11")
def test_answers_belong_to_the_requests_in_their_order(bench: Bench) -> None:
    requests = [bench.send(), bench.send()]
    for request in (-2, -1):
        bench.answer(NODE.id, ProduceResponse(), request=request)
    assert [[response.request for response in bench.poll()] for _ in requests] == [[it] for it in requests]


@pytest.mark.behaviour("NET-26", "NET-04", "INF-04")
def test_a_node_with_an_unfinished_send_or_a_full_queue_of_requests_is_not_ready() -> None:
    bench = Bench(max_in_flight_requests_per_connection=2)
    bench.ready()
    bench.selector.hold_sends(NODE.id)
    bench.send()
    assert not bench.client.is_ready(NODE, bench.now_ms)
    bench.selector.release_sends(NODE.id)
    bench.poll()
    assert bench.client.is_ready(NODE, bench.now_ms)
    assert bench.client.ready(NODE, bench.now_ms)
    bench.send()
    assert not bench.client.ready(NODE, bench.now_ms)


@pytest.mark.behaviour("NET-02")
def test_no_node_is_ready_while_metadata_is_due(bench: Bench) -> None:
    bench.recorded.is_due = True
    assert not bench.client.is_ready(NODE, bench.now_ms)
    assert bench.client.can_send_request(NODE.id, bench.now_ms)


@pytest.mark.behaviour("NET-06", "NET-07")
def test_a_version_that_the_node_does_not_speak_is_answered_before_and_instead_of_io() -> None:
    bench = Bench()
    bench.ready(versions=api_versions_response({ApiKey.PRODUCE: (0, 2)}))
    polls = len(bench.selector.polls)
    handled: list[ClientResponse] = []
    request = bench.send(on_complete=handled.append, is_sent=False)
    assert bench.client.in_flight_request_count() == 0
    [response] = bench.poll(1_000)
    assert handled == [response]
    assert response.request is request
    assert isinstance(response.version_mismatch, UnsupportedVersionError)
    assert response.version_mismatch.message == (
        "The node does not support PRODUCE with version in range [3,13]. The supported range is [0,2]."
    )
    assert response.latency_ms == 0
    assert len(bench.selector.polls) == polls


@pytest.mark.behaviour("NET-06", "NET-13")
def test_the_highest_common_version_is_spoken_and_a_lost_connection_is_asked_for_its_versions_anew() -> None:
    bench = Bench()
    for highest in (9, 8):
        bench.ready(versions=api_versions_response({ApiKey.PRODUCE: (3, highest)}))
        bench.send()
        assert bench.headers()[-1].version == highest
        bench.selector.disconnect(NODE.id)
        bench.poll()
        bench.clock.advance(10_000)


@pytest.mark.behaviour("NET-07")
@pytest.mark.java("NetworkClientTest.UnsupportedVersionDuringInternalMetadataRequest")
def test_a_version_that_a_metadata_request_can_not_take_is_fatal_for_the_updater() -> None:
    bench = Bench()
    bench.ready(versions=api_versions_response({ApiKey.METADATA: (0, 3)}))
    builder = PlainBuilder(ApiKey.METADATA, oldest_allowed_version=4)
    bench.client.send_internal_metadata_request(builder, NODE.id, bench.now_ms)
    [failure] = bench.recorded.failures
    assert isinstance(failure.fatal, UnsupportedVersionError)
    assert bench.poll() == []


@pytest.mark.behaviour("NET-23")
def test_a_callback_that_raises_does_not_cost_the_others_theirs(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[ClientResponse] = []

    def fail(_: ClientResponse) -> None:
        raise RuntimeError("the caller's bug")

    bench.send(on_complete=fail)
    bench.send(on_complete=handled.append)
    bench.client.disconnect(NODE.id)
    with caplog.at_level(logging.ERROR):
        assert len(bench.poll()) == 2
    assert len(handled) == 1
    assert "Uncaught error in request completion" in caplog.text
    assert "the caller's bug" in caplog.text


@pytest.mark.behaviour("NET-09")
def test_poll_waits_no_longer_than_its_caller_metadata_and_the_request_timeout_allow() -> None:
    class Due(RecordingUpdater):
        wait_ms = 300

        def maybe_update(self, now_ms: int, client: object) -> int:
            return self.wait_ms

    due = Due()
    bench = Bench(due)
    bench.poll(200)
    bench.poll(400)
    due.wait_ms = FOREVER_MS
    bench.poll(FOREVER_MS)
    assert bench.selector.polls == [200, 300, 1_000]


# -- connect -------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("NET-03")
def test_ready_connects_once_and_is_false_until_the_node_is_ready() -> None:
    bench = Bench()
    assert not bench.client.ready(NODE, bench.now_ms)
    assert not bench.client.ready(NODE, bench.now_ms)
    assert [attempt.address for attempt in bench.selector.attempts] == [("10.0.0.1", 9092)]
    assert bench.selector.attempts[0].host == "broker-0"


@pytest.mark.behaviour("NET-22")
@pytest.mark.java("NetworkClientTest.DnsLookupFailure")
def test_a_name_that_dns_does_not_know_is_a_disconnection(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(resolver=MockResolver())
    bad = Node(1234, "badhost", 1234)
    with caplog.at_level(logging.WARNING):
        assert not bench.client.ready(bad, bench.now_ms)
    assert bench.client.connection_failed(bad)
    assert bench.recorded.disconnected == [1234]
    assert "Node 1234: connecting failed (unresolved): badhost can't be resolved: badhost" in caplog.text
    assert not bench.selector.attempts
    assert not bench.client.can_connect(bad, bench.now_ms)


def test_a_refused_connection_waits_for_its_backoff() -> None:
    bench = Bench(can_connect=lambda _: False)
    assert not bench.client.ready(NODE, bench.now_ms)
    bench.poll()
    assert bench.client.connection_failed(NODE)
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == 10_000
    [event] = bench.sink.of(NodeDisconnected)
    assert event == NodeDisconnected(0, "refused", "connection refused (10.0.0.1:9092)", 10_000)


@pytest.mark.behaviour("NET-17")
@pytest.mark.java("NetworkClientTest.ConnectionSetupTimeout")
def test_connections_that_are_not_set_up_in_time_fail_as_timed_out() -> None:
    bench = Bench()
    for node in (NODE, NODE_1):
        bench.selector.hold_connect(node.id)
        bench.client.ready(node, bench.now_ms)
    bench.poll()
    bench.clock.advance(5_000)
    bench.poll()
    assert not bench.client.connection_failed(NODE)
    bench.clock.advance(1)
    bench.poll()
    assert bench.client.connection_failed(NODE)
    assert bench.client.connection_failed(NODE_1)
    assert not bench.selector.is_open(NODE.id)
    assert {
        event.reason for event in bench.sink.of(NodeDisconnected) if isinstance(event, NodeDisconnected)
    } == {"setup_timeout"}


@pytest.mark.behaviour("NET-14")
@pytest.mark.java(
    "NetworkClientTest.ConnectionDoesNotRemainStuckInCheckingApiVersionsStateIfChannelNeverBecomesReady"
)
def test_a_channel_that_never_becomes_ready_is_caught_by_the_set_up_timeout() -> None:
    bench = Bench()
    bench.selector.never_ready(NODE.id)
    bench.client.ready(NODE, bench.now_ms)
    bench.poll()
    assert not bench.client.is_ready(NODE, bench.now_ms)
    assert bench.client.in_flight_request_count() == 0
    bench.clock.advance(5_001)
    bench.poll()
    assert bench.client.connection_failed(NODE)


@pytest.mark.java("NetworkClientTest.CloseConnectingNode")
def test_a_node_closed_while_connecting_leaves_nothing_behind() -> None:
    bench = Bench(RecordingUpdater((NODE, NODE_1)))
    bench.client.ready(NODE, bench.now_ms)
    bench.client.close_node(NODE.id)
    assert bench.poll() == []
    assert not bench.client.is_ready(NODE, bench.now_ms)
    assert not bench.client.is_ready(NODE_1, bench.now_ms)
    bench.ready(NODE_1)
    bench.ready(NODE)


@pytest.mark.behaviour("CONN-04")
@pytest.mark.java(
    "NetworkClientTest.ConnectionDelayWithNoExponentialBackoff",
    "NetworkClientTest.ConnectionDelayConnectedWithNoExponentialBackoff",
    "NetworkClientTest.ConnectionDelayDisconnectedWithNoExponentialBackoff",
)
def test_connection_delays_of_a_node() -> None:
    bench = Bench()
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == 0
    bench.ready()
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == FOREVER_MS
    bench.selector.disconnect(NODE.id)
    bench.poll()
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == 10_000
    bench.clock.advance(10_000)
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == 0
    bench.selector.hold_connect(NODE.id)
    bench.client.ready(NODE, bench.now_ms)
    bench.selector.disconnect(NODE.id)
    bench.poll()
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == 10_000


@pytest.mark.behaviour("CONN-02")
@pytest.mark.java(
    "NetworkClientTest.ConnectionDelay",
    "NetworkClientTest.ConnectionDelayConnected",
    "NetworkClientTest.ConnectionDelayDisconnected",
)
def test_the_delay_after_a_second_failure_is_twice_as_long() -> None:
    bench = Bench(reconnect_backoff_max_ms=100_000)
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == 0
    bench.ready()
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == FOREVER_MS
    bench.selector.disconnect(NODE.id)
    bench.poll()
    delay_ms = bench.client.connection_delay_ms(NODE, bench.now_ms)
    assert delay_ms == pytest.approx(10_000, rel=0.2)
    bench.clock.advance(delay_ms)
    bench.selector.hold_connect(NODE.id)
    bench.client.ready(NODE, bench.now_ms)
    bench.selector.disconnect(NODE.id)
    bench.poll()
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == pytest.approx(20_000, rel=0.2)


# -- addresses -----------------------------------------------------------------------------------------------


def addresses_tried(refused: str | None, *, change: bool) -> tuple[list[str], int]:
    """Until the node is ready, once or, after its addresses changed, again; and how often DNS was asked."""
    resolver = MockResolver(*INITIAL)
    bench = Bench(
        resolver=resolver,
        discover_broker_versions=False,
        can_connect=lambda address: address[0] != refused,
    )
    for addresses in (INITIAL, CHANGED) if change else (INITIAL,):
        resolver.addresses = addresses
        if bench.selector.attempts:
            bench.selector.disconnect(NODE.id)
            bench.poll()
            assert not bench.client.is_ready(NODE, bench.now_ms)
        for _ in range(3):
            if not bench.client.is_ready(NODE, bench.now_ms):
                bench.clock.advance(10_000)
                bench.client.ready(NODE, bench.now_ms)
                bench.poll()
        assert bench.client.is_ready(NODE, bench.now_ms)
    return [attempt.address[0] for attempt in bench.selector.attempts], len(resolver.asked)


@pytest.mark.behaviour("CONN-08", "CONN-09")
@pytest.mark.java(
    "NetworkClientTest.ReconnectAfterAddressChange",
    "NetworkClientTest.FailedConnectionToFirstAddress",
    "NetworkClientTest.FailedConnectionToFirstAddressAfterReconnect",
)
def test_a_failed_address_is_followed_by_the_next_and_a_lost_node_found_at_its_new_addresses() -> None:
    assert addresses_tried(None, change=True) == ([INITIAL[0], CHANGED[0]], 2)
    assert addresses_tried(INITIAL[0], change=False) == ([*INITIAL[:2]], 1), "without asking DNS again"
    assert addresses_tried(CHANGED[0], change=True) == ([INITIAL[0], *CHANGED[:2]], 2)


# -- timeouts and throttling ---------------------------------------------------------------------------------


@pytest.mark.behaviour("NET-18")
def test_a_request_that_is_too_old_takes_its_connection_with_it() -> None:
    for request_timeout_ms in (None, 6_000):
        bench = Bench()
        bench.ready()
        first = bench.send(request_timeout_ms=request_timeout_ms)
        bench.clock.advance(1)
        second = bench.send(request_timeout_ms=60_000)
        bench.clock.advance((request_timeout_ms or 1_000) - 1)
        assert bench.poll() == []  # strict: not at its timeout, but after it
        bench.clock.advance(1)
        responses = bench.poll()
        assert [response.request for response in responses] == [first, second]
        assert all(response.disconnected and response.timed_out for response in responses)
        assert bench.recorded.disconnected == [NODE.id]
        assert bench.client.connection_failed(NODE)
        assert not bench.selector.is_open(NODE.id)


@pytest.mark.behaviour("NET-12", "NET-21")
@pytest.mark.java(
    "NetworkClientTest.ConnectionThrottling", "NetworkClientTest.LeastLoadedNodeConsidersThrottledConnections"
)
def test_a_throttled_node_is_neither_ready_nor_a_choice_until_the_pause_is_over(bench: Bench) -> None:
    assert bench.client.has_ready_nodes(bench.now_ms)
    bench.send()
    bench.answer(NODE.id, ProduceResponse(throttle_time_ms=100))
    [response] = bench.poll()
    assert response.body == ProduceResponse(throttle_time_ms=100)
    assert not bench.client.ready(NODE, bench.now_ms)
    assert not bench.client.has_ready_nodes(bench.now_ms)
    assert bench.client.least_loaded_node(bench.now_ms).node is None
    assert bench.client.throttle_delay_ms(NODE, bench.now_ms) == 100
    bench.clock.advance(50)
    assert not bench.client.ready(NODE, bench.now_ms)
    assert bench.client.poll_delay_ms(NODE, bench.now_ms) == 50
    bench.clock.advance(50)
    assert bench.client.ready(NODE, bench.now_ms)
    assert bench.client.throttle_delay_ms(NODE, bench.now_ms) == 0
    assert bench.sink.of(NodeThrottled) == [NodeThrottled(NODE.id, 100)]
    assert not Bench().client.has_ready_nodes(0)


@pytest.mark.behaviour("NET-12")
def test_a_broker_that_delays_answers_itself_is_not_throttled_again() -> None:  # NET-12, KIP-219
    bench = Bench()
    bench.ready(versions=api_versions_response({ApiKey.PRODUCE: (3, 5)}))
    bench.send()
    bench.answer(NODE.id, ProduceResponse(throttle_time_ms=100))
    bench.poll()
    assert bench.client.ready(NODE, bench.now_ms)
    assert not bench.sink.of(NodeThrottled)


@pytest.mark.behaviour("NET-12", "INF-06")
@pytest.mark.java("NetworkClientTest.ConnectionTimeoutAfterThrottling")
def test_requests_in_flight_get_the_time_of_the_pause(bench: Bench) -> None:
    bench.send()
    bench.send()
    bench.answer(NODE.id, ProduceResponse(throttle_time_ms=1_000), request=-2)
    bench.clock.advance(1_000)
    bench.poll()
    bench.clock.advance(1_000)
    bench.poll()
    assert bench.client.in_flight_request_count(NODE.id) == 1
    assert not bench.client.connection_failed(NODE)
    bench.clock.advance(1)
    [response] = bench.poll()
    assert response.timed_out


# -- disconnect and close ------------------------------------------------------------------------------------


@pytest.mark.behaviour("NET-13")
@pytest.mark.java("NetworkClientTest.DisconnectDuringUserMetadataRequest")
def test_a_lost_connection_fails_its_requests_oldest_first_also_a_callers_own_for_metadata(
    bench: Bench,
) -> None:
    requests = [bench.send(), bench.send(), bench.send(api=ApiKey.METADATA)]
    bench.selector.disconnect(NODE.id)
    responses = bench.poll()
    assert [response.request for response in responses] == requests
    assert all(response.disconnected and not response.timed_out for response in responses)
    ends = [event for event in bench.sink.events if isinstance(event, RequestCompleted)][-len(requests) :]
    assert {ended.error for ended in ends} == {Errors.NETWORK_EXCEPTION}
    assert bench.recorded.disconnected == [NODE.id]
    assert not bench.recorded.failures
    assert bench.client.in_flight_request_count() == 0


@pytest.mark.behaviour("NET-19")
@pytest.mark.java("NetworkClientTest.DisconnectWithMultipleInFlights")
def test_disconnect_answers_requests_by_the_next_poll_in_their_order() -> None:
    bench = Bench(discover_broker_versions=False)
    bench.ready()
    handled: list[ClientResponse] = []
    requests = [bench.send(on_complete=handled.append), bench.send(on_complete=handled.append)]
    assert bench.client.in_flight_request_count() == bench.client.in_flight_request_count(NODE.id) == 2
    bench.client.disconnect(NODE.id)
    polls = len(bench.selector.polls)
    responses = bench.poll()
    assert [response.request for response in responses] == requests
    assert handled == list(responses)
    assert all(response.disconnected for response in responses)
    assert bench.client.in_flight_request_count() == 0
    assert len(bench.selector.polls) == polls


@pytest.mark.behaviour("NET-19")
@pytest.mark.java("NetworkClientTest.CallDisconnect")
def test_disconnect_begins_a_backoff_once_and_none_for_a_node_that_was_never_tried() -> None:
    bench = Bench()
    bench.client.disconnect(NODE.id)
    assert bench.client.can_connect(NODE, bench.now_ms)
    assert not bench.client.connection_failed(NODE)
    bench.ready()
    assert not bench.client.connection_failed(NODE)
    bench.client.disconnect(NODE.id)
    assert not bench.client.is_ready(NODE, bench.now_ms)
    assert bench.client.connection_failed(NODE)
    assert not bench.client.can_connect(NODE, bench.now_ms)
    bench.clock.advance(10_000)
    assert bench.client.can_connect(NODE, bench.now_ms)
    bench.client.disconnect(NODE.id)
    assert bench.client.can_connect(NODE, bench.now_ms)
    assert not bench.client.ready(NODE, bench.now_ms)
    bench.client.disconnect(NODE.id)
    assert not bench.client.can_connect(NODE, bench.now_ms + 9_999)


@pytest.mark.java("NetworkClientTest.ClientDisconnectAfterInternalApiVersionRequest")
def test_a_disconnection_while_versions_are_asked_for_is_not_reported_to_callers() -> None:
    bench = Bench()
    bench.connect()
    assert bench.client.has_in_flight_requests(NODE.id)
    bench.client.disconnect(NODE.id)
    assert not bench.client.has_in_flight_requests(NODE.id)
    assert bench.poll() == []


@pytest.mark.behaviour("CONN-02")
@pytest.mark.java("NetworkClientTest.ServerDisconnectAfterInternalApiVersionRequest")
def test_a_disconnection_by_the_node_while_versions_are_asked_for_backs_off_longer_each_time() -> None:
    bench = Bench(reconnect_backoff_max_ms=100_000)
    for failures in range(5):
        bench.connect()
        bench.selector.disconnect(NODE.id)
        assert bench.poll() == []
        delay_ms = bench.client.connection_delay_ms(NODE, bench.now_ms)
        assert delay_ms == pytest.approx(min(10_000 * 2**failures, 100_000), rel=0.2)
        bench.clock.advance(delay_ms)


@pytest.mark.behaviour("NET-19")
@pytest.mark.java("NetworkClientTest.Close")
def test_close_node_drops_its_requests_and_its_backoff(bench: Bench) -> None:
    bench.send()
    assert bench.client.has_in_flight_requests(NODE.id)
    assert bench.client.has_in_flight_requests()
    bench.client.close_node(NODE.id)
    assert not bench.client.has_in_flight_requests(NODE.id)
    assert not bench.client.has_in_flight_requests()
    assert not bench.client.is_ready(NODE, bench.now_ms)
    assert bench.client.can_connect(NODE, bench.now_ms)
    assert bench.poll() == []
    bench.ready()


@pytest.mark.behaviour("NET-25")
def test_a_closing_client_refuses_to_send_and_to_poll_and_wakes_a_poll_that_waits(bench: Bench) -> None:
    bench.client.initiate_close()
    assert not bench.client.active
    message = r"^NetworkClient is no longer active, state is CLOSING$"
    with pytest.raises(DisconnectError, match=message):
        bench.poll()
    with pytest.raises(DisconnectError, match=message):
        bench.client.send(make_request(NODE.id), bench.now_ms)
    with pytest.raises(DisconnectError, match=message):
        bench.client.send_internal_metadata_request(PlainBuilder(), NODE.id, bench.now_ms)
    before_ms = bench.now_ms
    bench.selector.poll(500)
    assert bench.now_ms == before_ms


@pytest.mark.behaviour("NET-25")
def test_closing_twice_only_warns(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.client.close()
    assert bench.selector.is_closed
    assert bench.recorded.is_closed
    with caplog.at_level(logging.WARNING):
        bench.client.close()
    assert "already been closed" in caplog.text
    bench.client.initiate_close()
    with pytest.raises(DisconnectError, match="state is CLOSED"):
        bench.poll()


# -- faults of the peer --------------------------------------------------------------------------------------


@pytest.mark.behaviour("NET-11")
def test_an_answer_to_another_question_ends_the_connection(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    requests = [bench.send(), bench.send()]
    bench.selector.receive(NODE.id, frame_of(ApiKey.PRODUCE, 13, 77, ProduceResponse()))
    with caplog.at_level(logging.WARNING):
        responses = bench.poll()
    assert [response.request for response in responses] == requests
    assert all(response.disconnected for response in responses)
    assert not bench.selector.is_open(NODE.id)
    assert bench.client.connection_failed(NODE)
    assert not bench.client.can_connect(NODE, bench.now_ms)
    assert "Correlation id for response (77) does not match request (1), Produce v13" in caplog.text
    [event] = bench.sink.of(NodeDisconnected)
    assert isinstance(event, NodeDisconnected)
    assert (event.reason, event.backoff_ms) == ("protocol_error", 10_000)
    assert bench.poll() == []


def test_an_unreadable_answer_and_an_unexpected_one_end_the_connection() -> None:
    for payload, detail in (
        (b"", "unreadable response to Produce v13 request 1"),
        (b"\0\0\0\1\0\xff\xff\xff\xff\x0f", "unreadable response to Produce v13"),  # a huge count
        (b"\0\0\0\1", "unreadable response to Produce v13 request 1"),
        (b"surprise", "8 bytes arrived without a request"),
    ):
        bench = Bench()
        bench.ready()
        is_asked_for = payload != b"surprise"
        if is_asked_for:
            bench.send()
        bench.selector.receive(NODE.id, payload)
        assert [response.disconnected for response in bench.poll()] == [True] * is_asked_for
        assert bench.client.connection_failed(NODE)
        [status] = bench.client.node_statuses(bench.now_ms)
        assert status.last_error is not None
        assert status.last_error.startswith(detail)
        assert is_asked_for or status.last_error == detail
        assert bench.recorded.disconnected == [NODE.id]


def test_frames_behind_one_that_ends_the_connection_are_not_read_and_other_nodes_are_left_alone() -> None:
    bench = Bench(RecordingUpdater((NODE, NODE_1)))
    bench.ready(NODE)
    bench.ready(NODE_1)
    for node in (NODE, NODE, NODE_1):
        bench.send(node)
    for _ in range(2):
        bench.selector.receive(NODE.id, b"nonsense")
    bench.answer(NODE_1.id, ProduceResponse())
    ended = sorted((response.destination, response.disconnected) for response in bench.poll())
    assert ended == [(NODE.id, True), (NODE.id, True), (NODE_1.id, False)]
    assert len(bench.sink.of(NodeDisconnected)) == 1
    assert bench.client.is_ready(NODE_1, bench.now_ms)


def test_only_nodes_that_metadata_knows_count_as_connecting() -> None:
    for known, expected in (((NODE,), True), ((NODE_1, NODE), True), ((NODE_1,), False)):
        bench = Bench(RecordingUpdater(known))
        bench.selector.hold_connect(NODE.id)
        bench.client.ready(NODE, bench.now_ms)
        assert bench.client.is_any_node_connecting() is expected


def choices(bench: Bench, times: int = 50) -> list[Node | None]:
    return [bench.client.least_loaded_node(bench.now_ms).node for _ in range(times)]


@pytest.mark.behaviour("NET-20")
def test_least_loaded_node_prefers_an_idle_one_then_the_fewest_in_flight() -> None:
    bench = Bench(RecordingUpdater(THREE))
    for node in THREE:
        bench.ready(node)
    for node, busy in ((NODE, 3), (NODE_1, 1), (NODE_2, 0)):
        for _ in range(busy):
            bench.send(node)
    assert set(choices(bench)) == {NODE_2}
    for _ in range(2):
        bench.send(NODE_2)
    assert set(choices(bench)) == {NODE_1}


@pytest.mark.behaviour("NET-20")
def test_least_loaded_node_prefers_ready_over_connecting_over_the_first_in_a_random_order() -> None:
    bench, twin = Bench(RecordingUpdater(THREE)), Random(1)
    never_tried = choices(bench)
    assert set(never_tried) == set(THREE)
    assert never_tried == [THREE[twin.randrange(3)] for _ in never_tried]
    bench.client.ready(NODE_1, bench.now_ms)
    assert set(choices(bench)) == {NODE_1}
    bench.ready(NODE_2)
    bench.send(NODE_2)
    assert set(choices(bench)) == {NODE_2}


def test_a_node_that_answers_is_preferred_to_one_that_is_silent_for_half_a_second() -> None:
    bench = Bench(RecordingUpdater((NODE, NODE_1)))
    bench.ready(NODE)
    bench.send(NODE)

    def chosen() -> set[Node | None]:
        return {bench.client.answering_node(bench.now_ms) for _ in range(20)}

    for after_ms, expected in ((499, NODE), (1, NODE_1)):
        bench.clock.advance(after_ms)
        assert chosen() == {expected}
    assert bench.client.least_loaded_node(bench.now_ms).node == NODE, "Java's rule"
    bench.ready(NODE_1)
    bench.send(NODE_1)
    bench.clock.advance(500)
    assert chosen() == {NODE_1, NODE}, "no other is left"


def test_a_node_that_leaves_a_connection_unanswered_is_silent_after_half_a_second() -> None:
    bench = Bench(RecordingUpdater((NODE, NODE_1)))
    bench.selector.hold_connect(NODE.id)
    bench.client.ready(NODE, bench.now_ms)
    for after_ms, silent, expected in ((499, [], NODE), (1, [NODE.id], NODE_1)):
        bench.clock.advance(after_ms)
        assert list(bench.client.silent_nodes(bench.now_ms)) == silent
        assert bench.client.answering_node(bench.now_ms) == expected


def test_one_end_of_a_connection_counts_as_one_failure() -> None:
    """The node sends nonsense and hangs up: the client closes, and the selector reports the end as well."""

    class HangsUp(MockSelector):
        @property
        def disconnected(self) -> Mapping[int, ChannelState]:
            last = [receive.node_id for receive in self.completed_receives if not receive.payload]
            return dict.fromkeys(last, ChannelState(ChannelStateName.READY))

    bench = Bench(reconnect_backoff_max_ms=100_000, selector_class=HangsUp)
    bench.ready()
    bench.send()
    bench.selector.receive(NODE.id, b"")
    bench.poll()
    assert len(bench.sink.of(NodeDisconnected)) == 1
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == pytest.approx(10_000, rel=0.2)


# -- node choice ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("NET-20", "NET-21")
@pytest.mark.java("NetworkClientTest.LeastLoadedNode")
def test_the_only_node_is_chosen_while_it_connects_and_when_ready_and_not_in_its_backoff() -> None:
    bench = Bench()
    bench.client.ready(NODE, bench.now_ms)
    assert bench.client.least_loaded_node(bench.now_ms) == LeastLoadedNode(NODE, True)
    bench.poll()
    bench.poll()
    bench.answer(NODE.id, api_versions_response())
    bench.poll()
    assert bench.client.least_loaded_node(bench.now_ms) == LeastLoadedNode(NODE, True)
    bench.selector.disconnect(NODE.id)
    bench.poll()
    assert not bench.client.ready(NODE, bench.now_ms)
    assert bench.client.least_loaded_node(bench.now_ms) == LeastLoadedNode(None, False)


@pytest.mark.behaviour("NET-21", "UPD-11")
@pytest.mark.java("NetworkClientTest.HasNodeAvailableOrConnectionReady")
def test_a_busy_connection_is_no_choice_but_counts_as_ready() -> None:
    bench = Bench(max_in_flight_requests_per_connection=1)
    bench.ready()
    assert bench.client.least_loaded_node(bench.now_ms).node == NODE
    bench.send()
    assert bench.client.least_loaded_node(bench.now_ms) == LeastLoadedNode(None, True)


@pytest.mark.behaviour("NET-20")
@pytest.mark.java(
    "NetworkClientTest.LeastLoadedNodeProvideDisconnectedNodesPrioritizedByLastConnectionTimestamp"
)
def test_of_unconnected_nodes_the_one_tried_longest_ago_is_chosen() -> None:
    bench = Bench(RecordingUpdater(THREE), reconnect_backoff_max_ms=0)
    for _ in range(10):
        chosen = set()
        for _ in THREE:
            node = bench.client.least_loaded_node(bench.now_ms).node
            assert node is not None
            chosen.add(node)
            bench.client.ready(node, bench.now_ms)
            bench.poll()
            bench.client.disconnect(node.id)
            bench.clock.advance(1)
        assert chosen == set(THREE)


# -- events --------------------------------------------------------------------------------------------------


def test_every_request_ends_in_one_event(bench: Bench) -> None:
    bench.sink.events.clear()
    bench.send()
    bench.send()
    bench.clock.advance(4)
    bench.answer(NODE.id, ProduceResponse(), request=-2)
    bench.poll()
    bench.clock.advance(1_000)
    bench.poll()
    sent_bytes = 4 + len(bench.selector.sent_to(NODE.id)[-1])
    received_bytes = 4 + len(frame_of(ApiKey.PRODUCE, 13, 1, ProduceResponse()))
    assert bench.sink.of(RequestCompleted) == [
        RequestCompleted("Produce", NODE.id, 4, sent_bytes, received_bytes),
        RequestCompleted("Produce", NODE.id, 1_004, sent_bytes, 0, Errors.REQUEST_TIMED_OUT),
    ]
