"""How a connection becomes ready and what others see of it: NET-14 to NET-16, status and events."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from random import Random

import pytest

from client_core.client import node_connections
from client_core.client.api_versions import ApiVersionsRequestBuilder
from client_core.client.connection_status import ConnectionStatus
from client_core.client.disconnection import Disconnection
from client_core.client.in_flight_requests import InFlightRequests
from client_core.client.node_connection_state import TRIAL_NODE_ID, ConnectionState
from client_core.client.node_connections import NodeConnections
from client_core.cluster import Node
from client_core.error_codes import Errors
from client_core.errors import Cause
from client_core.events import NodeConnecting, NodeDisconnected, NodeReady, NodeThrottled
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.client.client_builders import (
    NODE,
    NODE_1,
    TEST_CONFIG,
    Bench,
    PlainBuilder,
    RecordingUpdater,
    api_versions_response,
)
from tests.support.mock_clock import MockClock
from tests.support.mock_resolver import MockResolver
from tests.support.mock_selector import MockSelector
from tests.support.recorded_events import RecordedEvents
from tests.support.waiting import patient

CLOSED = Disconnection("closed", "it is gone", logging.INFO)
UNSUPPORTED_VERSION = 35


@pytest.mark.behaviour("NET-14")
@pytest.mark.java("NetworkClientTest.ApiVersionsRequest")
def test_a_new_connection_is_asked_for_its_versions_and_then_ready() -> None:
    bench = Bench()
    bench.selector.never_ready(NODE.id)
    bench.client.ready(NODE, bench.now_ms)
    bench.poll()
    assert states(bench) == [ConnectionState.CONNECTING], "until the question is sent"
    bench.selector.become_ready(NODE.id)
    bench.poll()
    assert states(bench) == [ConnectionState.CHECKING_API_VERSIONS]
    assert bench.client.has_in_flight_requests(NODE.id)
    bench.poll()
    [header] = bench.headers()
    assert (header.api, header.version, header.correlation_id) == (ApiKey.API_VERSIONS, 4, 0)
    question = ApiVersionsRequest.decode(bench.selector.sent_to(NODE.id)[0], 4, header.body_offset)
    assert (question.client_software_name, question.client_software_version) == ("pilotfish", "0.1.0")
    bench.answer(NODE.id, api_versions_response())
    bench.poll()
    assert not bench.client.has_in_flight_requests(NODE.id)
    assert bench.client.is_ready(NODE, bench.now_ms)


@pytest.mark.behaviour("NET-15")
@pytest.mark.java(
    "NetworkClientTest.UnsupportedApiVersionsRequestWithVersionProvidedByTheBroker",
    "NetworkClientTest.UnsupportedApiVersionsRequestWithoutVersionProvidedByTheBroker",
)
def test_a_refused_version_is_followed_by_the_one_that_the_node_lists() -> None:
    def listing(*listed: ApiVersion) -> bytes:
        return ApiVersionsResponse(UNSUPPORTED_VERSION, listed).encode(0)

    refusals = {
        "listed": (listing(ApiVersion(18, 0, 2)), 2),
        "not listed": (listing(), 0),
        "others listed": (listing(ApiVersion(3, 0, 9)), 0),
        "the refused one": (listing(ApiVersion(18, 0, 4)), 4),
        "one that we do not know": (listing(ApiVersion(18, 0, 32_767)), 4),
        "nonsense": (listing(ApiVersion(18, -5, -3)), 0),
        "stray bytes": (
            b"\x00\x23"  # int16 error code: 35
            b"\x00\x00\x00\x01"  # int32 APIs: 1
            b"\x00\x12\x00\x00\x00\x02"  # int16 API 18, versions 0 to 2
            b"\x00\x00\x00\x00\x00",  # bytes of no known use
            2,
        ),
        "librdkafka's mock cluster, 2.x": (
            b"\x00\x23"  # int16 error code: 35
            b"\x01"  # compact array of APIs: 0, though one follows
            b"\x00\x12\x00\x00\x00\x02\x00"  # int16 API 18, versions 0 to 2, no tags
            b"\x00\x00\x00\x00",  # int32 throttle time: 0
            0,
        ),
    }
    for name, (refusal, asked_next) in refusals.items():
        bench = Bench()
        bench.connect()
        bench.selector.receive(NODE.id, b"\x00\x00\x00\x00" + refusal)  # int32 correlation id
        bench.poll()
        assert bench.client.has_in_flight_requests(NODE.id), name
        bench.poll()
        assert [header.version for header in bench.headers()] == [4, asked_next], name
        bench.answer(NODE.id, api_versions_response())
        bench.poll()
        assert bench.client.is_ready(NODE, bench.now_ms), name
        assert not bench.sink.of(NodeDisconnected), name


def test_a_node_that_refuses_what_it_lists_is_asked_with_version_0_and_then_left() -> None:
    bench = Bench()
    bench.connect()
    for _ in range(3):
        bench.answer(NODE.id, ApiVersionsResponse(UNSUPPORTED_VERSION, (ApiVersion(18, 0, 4),)), version=0)
        bench.poll()
        bench.poll()
    assert [header.version for header in bench.headers()] == [4, 4, 0]
    assert bench.client.connection_failed(NODE)


@pytest.mark.behaviour("NET-16")
@pytest.mark.java("NetworkClientTest.InvalidApiVersionsRequest")
def test_any_other_error_and_an_unreadable_list_of_versions_end_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    for error_code in (42, -1, 999, None):
        bench = Bench()
        bench.connect()
        if error_code is None:
            bench.selector.receive(NODE.id, b"\0\0\0\0\0\0\xff\xff\xff\xff\x7f")
        else:
            bench.answer(NODE.id, ApiVersionsResponse(error_code))
        assert bench.poll() == []
        assert not bench.client.has_in_flight_requests(NODE.id)
        assert not bench.client.is_ready(NODE, bench.now_ms)
        assert bench.client.connection_failed(NODE)
        assert not bench.selector.is_open(NODE.id)
        [event] = bench.sink.of(NodeDisconnected)
        assert isinstance(event, NodeDisconnected)
        assert event.reason == "protocol_error"
        assert error_code is None or f"({error_code}) to ApiVersions" in caplog.text


@pytest.fixture
def few_nodes(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many nodes are remembered: fewer than in production, where a thousand take a while."""
    assert node_connections.MOST_NODES == 1_000
    monkeypatch.setattr(node_connections, "MOST_NODES", 20)
    return 20


def test_of_nodes_that_come_and_go_so_many_are_remembered(few_nodes: int) -> None:
    bench = Bench()
    for node_id in range(1, few_nodes + 4):
        bench.client.ready(Node(node_id, "broker", 9092), bench.now_ms)
        bench.poll()
        bench.selector.disconnect(node_id)
        bench.poll()
        bench.clock.advance(1)
    remembered = [status.node_id for status in bench.client.node_statuses(bench.now_ms)]
    assert remembered == list(range(4, few_nodes + 4))


def test_a_node_with_a_connection_is_not_among_those_that_are_forgotten(bench: Bench, few_nodes: int) -> None:
    for node_id in range(1, few_nodes + 4):
        bench.client.ready(Node(node_id, "broker", 9092), bench.now_ms)
        bench.selector.disconnect(node_id)
        bench.poll()
    assert bench.client.is_ready(NODE, bench.now_ms)


class Alone:
    """NodeConnections without a client, and what other threads see of it after each change."""

    def __init__(self, *, uses_sasl: bool = False, discover_broker_versions: bool = True) -> None:
        self.events = RecordedEvents()
        clock = MockClock()
        config = replace(TEST_CONFIG, uses_sasl=uses_sasl, discover_broker_versions=discover_broker_versions)
        self.selector = MockSelector(clock)
        self.connections = NodeConnections(self.selector, config, MockResolver(), Random(0), self.events)

    def ready(self, node: Node = NODE, versions: ApiVersionsResponse | None = None) -> None:
        self.connections.connect(node, 0)
        self.connections.connected(node.id)
        self.connections.check_api_versions(node.id)
        self.connections.api_versions_answered(node.id, versions or api_versions_response(), 4)

    def end(self, ended: Disconnection = CLOSED, in_flight: int = 0, node: Node = NODE) -> None:
        self.connections.end(node.id, 0, ended, in_flight)

    def shown(self) -> list[ConnectionState]:
        """What others see, if the connections say that there is something new to see."""
        if self.connections.has_changed:
            self.connections.publish()
        return [status.state for status in self.connections.statuses(0, InFlightRequests(5))]


def test_each_change_of_a_state_is_shown() -> None:
    alone = Alone()
    connections = alone.connections
    connections.connect(NODE, 0)
    seen = [alone.shown()]
    connections.connected(NODE.id)
    connections.check_api_versions(NODE.id)
    seen.append(alone.shown())
    connections.api_versions_answered(NODE.id, api_versions_response(), 4)
    seen.append(alone.shown())
    alone.end()
    seen.append(alone.shown())
    connections.forget(NODE.id)
    seen.append(alone.shown())
    assert seen == [
        [ConnectionState.CONNECTING],
        [ConnectionState.CHECKING_API_VERSIONS],
        [ConnectionState.READY],
        [ConnectionState.DISCONNECTED],
        [],
    ]
    assert not connections.has_changed, "until the next change nothing is published"


def test_where_all_nodes_have_a_connection_none_is_forgotten(few_nodes: int) -> None:
    alone = Alone()
    for node_id in range(few_nodes + 1):
        alone.connections.connect(Node(node_id, "broker", 9092), 0)
    assert len(alone.connections.states.nodes) == few_nodes + 1


def test_where_versions_are_not_asked_for_a_connection_is_ready_at_once() -> None:
    alone = Alone(discover_broker_versions=False)
    alone.connections.connect(NODE, 0)
    alone.connections.connected(NODE.id)
    assert alone.shown() == [ConnectionState.READY]
    assert not alone.connections.needing_api_versions


def test_only_version_0_can_not_be_refused() -> None:
    refusal = ApiVersionsResponse(UNSUPPORTED_VERSION, ())
    for version, is_asked_again in ((1, True), (0, False)):
        alone = Alone()
        alone.connections.connect(NODE, 0)
        ended = alone.connections.api_versions_answered(NODE.id, refusal, version)
        assert (ended is None) is is_asked_again


def test_a_node_that_was_left_is_not_shown_until_it_is_connected_to_again() -> None:
    alone = Alone()
    alone.ready()
    alone.connections.leave(NODE.id, 0)
    assert alone.shown() == []
    alone.connections.connect(NODE, 0)
    assert alone.shown() == [ConnectionState.CONNECTING]
    alone.connections.leave(NODE.id, 0)
    alone.connections.forget(NODE.id)
    alone.connections.states.connecting(NODE.id, 0, NODE.host, NODE.port)
    alone.connections.publish()
    assert alone.shown() == [ConnectionState.CONNECTING], "of what was left nothing is kept"


def test_a_pause_that_a_node_asked_for_is_kept_shown_and_emitted() -> None:
    alone = Alone()
    alone.ready()
    alone.shown()
    alone.connections.throttle(NODE.id, 70, 1_000)
    assert alone.connections.has_changed
    assert alone.events.of(NodeThrottled) == [NodeThrottled(NODE.id, 70)]
    assert alone.connections.states.throttle_delay_ms(NODE.id, 1_030) == 40


def test_the_versions_of_a_node_are_forgotten_with_its_connection() -> None:
    for end in ("end", "leave", "forget", "renew"):
        alone = Alone()
        alone.ready(versions=api_versions_response({ApiKey.PRODUCE: (3, 7)}))
        connections = alone.connections
        assert connections.version_for(NODE.id, PlainBuilder()) == 7
        connections.needing_api_versions[NODE.id] = ApiVersionsRequestBuilder("pilotfish", "0.1.0")
        match end:
            case "end":
                alone.end()
            case "leave":
                connections.leave(NODE.id, 0)
            case "forget":
                connections.forget(NODE.id)
            case "renew":
                connections.renew(NODE, 0)
        assert connections.version_for(NODE.id, PlainBuilder()) == 13, end
        assert NODE.id not in connections.needing_api_versions, end


def test_a_node_that_refused_a_version_is_asked_anew_in_its_next_connection() -> None:
    alone = Alone()
    refusal = ApiVersionsResponse(UNSUPPORTED_VERSION, (ApiVersion(18, 0, 2),))
    asked = []
    for _ in range(2):
        alone.connections.connect(NODE, 0)
        for _ in range(2):
            alone.connections.api_versions_answered(NODE.id, refusal, 4)
            asked.append(alone.connections.needing_api_versions[NODE.id].latest_allowed_version)
        alone.end()
    assert asked == [2, 0, 2, 0], "what it lists, and version 0 if it refuses that"


def test_a_node_that_closes_before_the_first_answer_may_require_sasl() -> None:
    for case, (uses_sasl, served, reason, in_flight, is_explained) in {
        "it answered nothing but ApiVersions": (False, False, "closed", 1, True),
        "it has answered a request": (False, True, "closed", 1, False),
        "it was asked nothing": (False, False, "closed", 0, False),
        "it did not close": (False, False, "request_timeout", 1, False),
        "SASL is spoken": (True, False, "closed", 1, False),
    }.items():
        alone = Alone(uses_sasl=uses_sasl)
        alone.ready()
        if served:
            alone.connections.served(NODE.id)
        ended = replace(CLOSED, reason=reason)
        said = alone.connections.explained(NODE.id, ended, in_flight).detail
        assert ("may want SASL" in said) is is_explained, case
        alone.end()
        assert alone.connections.explained(NODE.id, ended, in_flight) == ended, "that was the last connection"


def test_the_end_of_a_connection_is_logged_with_its_level_and_its_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    for node_id, level, called in (
        (0, logging.INFO, "Node 0"),
        (-1, logging.WARNING, "Bootstrap server broker-0:9092"),  # before it has named any broker
        (TRIAL_NODE_ID, logging.INFO, "The trial of other credentials at broker-0:9092"),
    ):
        alone, node = Alone(), Node(node_id, "broker-0", 9092)
        alone.ready(node)
        caplog.clear()
        alone.end(CLOSED, 2, node)
        [record] = caplog.records
        assert record.levelno == level
        assert record.message == f"{called} disconnected (closed): it is gone; 2 requests in flight fail"
        alone = Alone()
        alone.ready(node)
        alone.end(CLOSED, 0, node)
        assert caplog.messages[-1] == f"{called} disconnected (closed): it is gone"
        alone = Alone()
        alone.connections.connect(node, 0)
        alone.end(CLOSED, 0, node)
        assert caplog.messages[-1].startswith(f"{called}: connecting failed (closed): it is gone; ")


def test_the_same_end_is_logged_again_once_the_node_was_at_work(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for how in ("", "served", "leave", "forget"):
        alone = Alone()
        alone.connections.connect(NODE, 0)
        alone.end()
        match how:
            case "served":
                alone.connections.served(NODE.id)
            case "leave":
                alone.connections.connect(NODE, 0)
                alone.connections.leave(NODE.id, 0)
            case "forget":
                alone.connections.forget(NODE.id)
        alone.connections.connect(NODE, 0)
        caplog.clear()
        alone.end()
        assert len(caplog.records) == (how != ""), how


def states(bench: Bench) -> list[ConnectionState]:
    return [status.state for status in bench.client.node_statuses(bench.now_ms)]


def test_a_status_has_state_load_and_waits_and_events_the_life_of_a_connection() -> None:
    bench = Bench()
    assert bench.client.node_statuses(bench.now_ms) == ()
    bench.ready()
    bench.send()
    bench.clock.advance(3)
    bench.send()
    bench.clock.advance(4)
    assert bench.client.node_statuses(bench.now_ms) == (
        ConnectionStatus(0, "broker-0", 9092, ConnectionState.READY, 2, 7, 0, 0, None, None),
    )
    bench.answer(NODE.id, ProduceResponse(throttle_time_ms=40), request=-2)
    bench.poll()
    bench.clock.advance(10)
    [status] = bench.client.node_statuses(bench.now_ms)
    assert (status.in_flight_requests, status.oldest_in_flight_age_ms, status.throttle_left_ms) == (1, 14, 30)
    bench.selector.disconnect(NODE.id)
    bench.poll()
    bench.clock.advance(100)
    [status] = bench.client.node_statuses(bench.now_ms)
    assert status.state is ConnectionState.DISCONNECTED
    assert (status.in_flight_requests, status.oldest_in_flight_age_ms) == (0, None)
    assert status.backoff_left_ms == 9_900
    gone = "the peer closed the connection (10.0.0.1:9092)"
    assert (status.last_error, status.last_error_age_ms) == (gone, 100)
    assert status.cause == Cause(Errors.NETWORK_EXCEPTION, NODE.id, 1, 100, gone, "closed")
    assert bench.sink.of(NodeConnecting, NodeReady, NodeDisconnected) == [
        NodeConnecting(NODE.id),
        NodeReady(NODE.id),
        NodeDisconnected(NODE.id, "closed", gone, 10_000),
    ]
    bench.clock.advance(9_900)
    bench.ready(replace(NODE, port=9093))
    [status] = bench.client.node_statuses(bench.now_ms)
    assert (status.state, status.port) == (ConnectionState.READY, 9093)
    assert status.last_error_age_ms == 10_000, "it outlives the next connection"


def test_a_cause_is_the_last_failure_and_names_no_node_at_a_bootstrap_server() -> None:
    bootstrap, resolver = Node(-1, "bootstrap", 9999), MockResolver()
    bench = Bench(RecordingUpdater((bootstrap,)), resolver=resolver)
    bench.client.ready(bootstrap, bench.now_ms)
    resolver.addresses = ["10.0.0.1"]
    bench.clock.advance(10_000)
    bench.client.ready(bootstrap, bench.now_ms)
    bench.client.disconnect(bootstrap.id)  # the client's own act is no failure
    bench.poll()
    [status] = bench.client.node_statuses(bench.now_ms)
    unresolved = "bootstrap can't be resolved: bootstrap: Name or service not known"
    assert status.last_error != unresolved
    assert status.cause == Cause(Errors.NETWORK_EXCEPTION, None, 1, 10_000, unresolved, "unresolved")


def test_a_state_that_changes_between_polls_is_seen_before_the_next_wait() -> None:
    bench = Bench(RecordingUpdater((NODE, NODE_1)))
    bench.selector.hold_connect(NODE.id)
    bench.client.ready(NODE, bench.now_ms)
    seen: list[list[ConnectionState]] = []
    bench.selector.after(500, lambda: seen.append(states(bench)))
    bench.poll(1_000)
    assert seen == [[ConnectionState.CONNECTING]]
    bench.client.close_node(NODE.id)
    bench.poll()
    assert states(bench) == []


def test_statuses_are_read_while_the_io_thread_goes_on(bench: Bench) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            while not stop.is_set():
                for status in bench.client.node_statuses(2_000_000):
                    assert (status.in_flight_requests == 0) <= (status.oldest_in_flight_age_ms is None)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(300):
        bench.send()
        bench.answer(NODE.id, ProduceResponse())
        bench.poll()
    stop.set()
    watcher.join(patient(30))
    assert not watcher.is_alive()
    assert failures == []


def test_a_bug_while_connecting_is_no_disconnection() -> None:
    class Broken(MockSelector):
        def connect(self, *to: object, also: bool = False) -> None:
            raise ValueError("a bug")

    resolver, selector = MockResolver("10.0.0.1"), Broken(MockClock())
    with pytest.raises(ValueError, match="a bug"):
        NodeConnections(selector, TEST_CONFIG, resolver, Random(0), RecordedEvents()).connect(NODE, 0)


def test_a_node_that_is_left_or_forgotten_is_not_shown_any_more() -> None:
    for end in ("leave", "forget"):
        alone = Alone()
        alone.connections.connect(NODE, 0)
        assert alone.shown() == [ConnectionState.CONNECTING]
        if end == "leave":
            alone.connections.leave(NODE.id, 0)
        else:
            alone.connections.forget(NODE.id)
        assert alone.connections.has_changed
        assert alone.shown() == [], end
