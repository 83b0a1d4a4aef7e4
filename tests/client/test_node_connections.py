"""How a connection becomes ready and what others see of it: NET-14 to NET-16, status and events."""

from __future__ import annotations

import logging
import threading

import pytest

from client_core.client.connection_status import ConnectionStatus
from client_core.client.node_connection_state import ConnectionState
from client_core.client.node_connections import MOST_NODES
from client_core.cluster import Node
from client_core.events import NodeConnecting, NodeDisconnected, NodeReady
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.client.client_builders import NODE, NODE_1, Bench, RecordingUpdater, api_versions_response

UNSUPPORTED_VERSION = 35


@pytest.mark.behaviour("NET-14")
@pytest.mark.java("NetworkClientTest.ApiVersionsRequest")
def test_a_new_connection_is_asked_for_its_versions_and_then_ready() -> None:
    bench = Bench()
    bench.connect()
    assert bench.client.has_in_flight_requests(NODE.id)
    [header] = bench.headers()
    assert (header.api, header.version, header.correlation_id) == (ApiKey.API_VERSIONS, 4, 0)
    question = ApiVersionsRequest.decode(bench.selector.sent_to(NODE.id)[0], 4, header.body_offset)
    assert (question.client_software_name, question.client_software_version) == ("pilotfish", "0.1.0")
    bench.answer(NODE.id, api_versions_response())
    bench.poll()
    assert not bench.client.has_in_flight_requests(NODE.id)
    assert bench.client.is_ready(NODE, bench.now_ms)


@pytest.mark.behaviour("NET-14")
def test_it_counts_as_connecting_until_the_question_is_sent() -> None:
    bench = Bench()
    bench.selector.never_ready(NODE.id)
    bench.client.ready(NODE, bench.now_ms)
    bench.poll()
    assert states(bench) == [ConnectionState.CONNECTING]
    bench.selector.become_ready(NODE.id)
    bench.poll()
    assert states(bench) == [ConnectionState.CHECKING_API_VERSIONS]


@pytest.mark.behaviour("NET-15")
@pytest.mark.java(
    "NetworkClientTest.UnsupportedApiVersionsRequestWithVersionProvidedByTheBroker",
    "NetworkClientTest.UnsupportedApiVersionsRequestWithoutVersionProvidedByTheBroker",
)
@pytest.mark.parametrize(
    ("listed", "asked_next"),
    [
        pytest.param([ApiVersion(18, 0, 2)], 2, id="listed"),
        pytest.param([], 0, id="not listed"),
        pytest.param([ApiVersion(3, 0, 9)], 0, id="others listed"),
        pytest.param([ApiVersion(18, 0, 4)], 4, id="the refused one"),
        pytest.param([ApiVersion(18, 0, 32_767)], 4, id="one that we do not know"),
        pytest.param([ApiVersion(18, -5, -3)], 0, id="nonsense"),
    ],
)
def test_a_refused_version_is_followed_by_the_one_that_the_node_lists(
    listed: list[ApiVersion], asked_next: int
) -> None:
    bench = Bench()
    bench.connect()
    refusal = ApiVersionsResponse(UNSUPPORTED_VERSION, tuple(listed))
    bench.answer(NODE.id, refusal, version=0)
    bench.poll()
    assert bench.client.has_in_flight_requests(NODE.id)
    bench.poll()
    assert [header.version for header in bench.headers()] == [4, asked_next]
    bench.answer(NODE.id, api_versions_response())
    bench.poll()
    assert bench.client.is_ready(NODE, bench.now_ms)
    assert not bench.sink.of(NodeDisconnected)


@pytest.mark.parametrize(
    ("refusal", "asked_next"),
    [
        pytest.param(
            b"\x00\x23"  # int16 error code: 35
            b"\x00\x00\x00\x01"  # int32 APIs: 1
            b"\x00\x12\x00\x00\x00\x02"  # int16 API 18, versions 0 to 2
            b"\x00\x00\x00\x00\x00",  # bytes of no known use
            2,
            id="stray bytes",
        ),
        pytest.param(
            b"\x00\x23"  # int16 error code: 35
            b"\x01"  # compact array of APIs: 0, though one follows
            b"\x00\x12\x00\x00\x00\x02\x00"  # int16 API 18, versions 0 to 2, no tags
            b"\x00\x00\x00\x00",  # int32 throttle time: 0
            0,
            id="librdkafka's mock cluster, 2.x",
        ),
    ],
)
def test_a_refusal_that_follows_no_schema_is_taken_in_stride(refusal: bytes, asked_next: int) -> None:
    bench = Bench()
    bench.connect()
    bench.selector.receive(NODE.id, b"\x00\x00\x00\x00" + refusal)  # int32 correlation id
    bench.poll()
    bench.poll()
    assert bench.headers()[-1].version == asked_next
    bench.answer(NODE.id, api_versions_response())
    bench.poll()
    assert bench.client.is_ready(NODE, bench.now_ms)


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
@pytest.mark.parametrize("error_code", [42, -1, 999])
def test_any_other_error_ends_the_connection(error_code: int, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.connect()
    bench.answer(NODE.id, ApiVersionsResponse(error_code))
    with caplog.at_level(logging.WARNING):
        assert bench.poll() == []
    assert not bench.client.has_in_flight_requests(NODE.id)
    assert not bench.client.is_ready(NODE, bench.now_ms)
    assert bench.client.connection_failed(NODE)
    assert not bench.selector.is_open(NODE.id)
    assert f"({error_code}) to ApiVersions" in caplog.text


def test_an_unreadable_list_of_versions_ends_the_connection() -> None:
    bench = Bench()
    bench.connect()
    bench.selector.receive(NODE.id, b"\0\0\0\0\0\0\xff\xff\xff\xff\x7f")
    assert bench.poll() == []
    assert bench.client.connection_failed(NODE)
    [event] = bench.sink.of(NodeDisconnected)
    assert isinstance(event, NodeDisconnected)
    assert event.reason == "protocol_error"


def test_of_nodes_that_come_and_go_so_many_are_remembered() -> None:
    bench = Bench()
    for node_id in range(1, MOST_NODES + 4):
        bench.client.ready(Node(node_id, "broker", 9092), bench.now_ms)
        bench.poll()
        bench.selector.disconnect(node_id)
        bench.poll()
        bench.clock.advance(1)
    remembered = [status.node_id for status in bench.client.node_statuses(bench.now_ms)]
    assert remembered == list(range(4, MOST_NODES + 4))


def test_a_node_with_a_connection_is_not_among_those_that_are_forgotten() -> None:
    bench = Bench()
    bench.ready()
    for node_id in range(1, MOST_NODES + 4):
        bench.client.ready(Node(node_id, "broker", 9092), bench.now_ms)
        bench.selector.disconnect(node_id)
        bench.poll()
    assert bench.client.is_ready(NODE, bench.now_ms)


# -- what others see -----------------------------------------------------------------------------------------


def states(bench: Bench) -> list[ConnectionState]:
    return [status.state for status in bench.client.node_statuses(bench.now_ms)]


def test_the_life_of_a_connection_in_events() -> None:
    bench = Bench()
    bench.ready()
    bench.selector.disconnect(NODE.id)
    bench.poll()
    assert bench.sink.of(NodeConnecting, NodeReady, NodeDisconnected) == [
        NodeConnecting(NODE.id),
        NodeReady(NODE.id),
        NodeDisconnected(NODE.id, "closed", "the peer closed the connection (10.0.0.1:9092)", 10_000),
    ]


def test_a_status_tells_state_load_and_waits() -> None:
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
    assert status.last_error == "the peer closed the connection (10.0.0.1:9092)"
    assert status.last_error_age_ms == 100


def test_the_last_error_outlives_the_next_connection() -> None:
    bench = Bench()
    bench.ready()
    bench.selector.disconnect(NODE.id)
    bench.poll()
    bench.clock.advance(10_000)
    bench.ready()
    [status] = bench.client.node_statuses(bench.now_ms)
    assert status.state is ConnectionState.READY
    assert status.last_error_age_ms == 10_000


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


def test_statuses_are_read_while_the_io_thread_goes_on() -> None:
    bench = Bench()
    bench.ready()
    stop = threading.Event()
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            while not stop.is_set():
                for status in bench.client.node_statuses(2_000_000):
                    assert (status.in_flight_requests == 0) <= (status.oldest_in_flight_age_ms is None)
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(300):
        bench.send()
        bench.answer(NODE.id, ProduceResponse())
        bench.poll()
    stop.set()
    watcher.join(30)
    assert not watcher.is_alive()
    assert failures == []
