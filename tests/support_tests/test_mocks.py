"""The mocks of network and client behave as the real ones when a test says so; and Metadata responses."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core.clock import FOREVER_MS
from client_core.cluster import Node
from client_core.errors import (
    IllegalArgumentError,
    IllegalStateError,
    SaslAuthenticationError,
    UnsupportedVersionError,
)
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.network.selectable import ChannelStateName, CompletedReceive, CompletedSend
from client_core.protocol.messages.metadata_response import MetadataResponse
from client_core.protocol.primitives import ZERO_UUID
from tests.client.client_builders import PlainBuilder
from tests.support.metadata_responses import (
    metadata_message,
    metadata_response,
    node,
    partition,
    read,
    topic,
    topic_id_of,
)
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock
from tests.support.mock_selector import Attempt, MockSelector, Sent

if TYPE_CHECKING:
    from client_core.client.kafka_client import ClientRequest, ClientResponse, KafkaClient
    from client_core.network.selectable import Selectable

# -- MockSelector --------------------------------------------------------------------------------------------

ADDRESS: Final = ("10.0.0.1", 9092)


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def selector(clock: MockClock) -> MockSelector:
    return MockSelector(clock)


def connect(selector: MockSelector, node_id: int) -> None:
    selector.connect(node_id, "broker", ADDRESS, -1, -1)


def connected(selector: MockSelector, node_id: int) -> None:
    connect(selector, node_id)
    selector.poll(0)


def test_it_is_a_selectable(selector: MockSelector) -> None:
    selectable: Selectable = selector
    assert selectable.poll(0) == 0


def test_a_connect_is_returned_by_the_next_poll_alone(selector: MockSelector) -> None:
    connect(selector, 1)
    assert not selector.connected
    selector.poll(0)
    assert selector.connected == [1]
    assert selector.is_channel_ready(1)
    assert selector.attempts == [Attempt(1, "broker", ADDRESS)]
    selector.poll(0)
    assert not selector.connected


def test_an_address_that_does_not_answer_is_refused_by_the_next_poll(clock: MockClock) -> None:
    selector = MockSelector(clock, can_connect=lambda address: address != ADDRESS)
    connect(selector, 1)
    selector.poll(0)
    state = selector.disconnected[1]
    assert state.name is ChannelStateName.NOT_CONNECTED
    assert state.detail == "connection refused"
    assert state.remote_address == "10.0.0.1:9092"
    assert not selector.is_open(1)


def test_a_held_connect_hangs_until_it_is_finished_or_refused(selector: MockSelector) -> None:
    for node_id in (1, 2):
        selector.hold_connect(node_id)
        connected(selector, node_id)
        assert not selector.connected
        assert not selector.is_channel_ready(node_id)
    selector.finish_connect(1)
    selector.refuse(2)
    selector.poll(0)
    assert selector.connected == [1]
    assert list(selector.disconnected) == [2]


def test_sends_are_taken_by_the_next_poll_and_recorded(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.send(1, [b"ab", b"c"])
    assert selector.sent == []
    selector.poll(0)
    assert selector.completed_sends == [CompletedSend(1, 7)]
    assert selector.sent == [Sent(1, b"abc")]
    assert selector.sent_to(1) == [b"abc"]
    assert selector.sent_to(2) == []


def test_held_sends_stay_under_way_until_they_are_released(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.hold_sends(1)
    selector.send(1, [b"x"])
    selector.poll(10)
    assert not selector.completed_sends
    selector.release_sends(1)
    selector.poll(0)
    assert selector.completed_sends == [CompletedSend(1, 5)]


def test_a_mistake_of_the_test_itself_fails(selector: MockSelector) -> None:
    with pytest.raises(AssertionError, match="no connection to node 1"):
        selector.disconnect(1)
    with pytest.raises(AssertionError, match="was not asked to connect"):
        selector.finish_connect(1)
    with pytest.raises(AssertionError, match="would never end"):
        selector.poll(FOREVER_MS)


def test_wrong_calls_are_illegal_as_in_the_real_one(selector: MockSelector) -> None:
    with pytest.raises(IllegalStateError, match="no connection"):
        selector.send(1, [b"x"])
    connected(selector, 1)
    with pytest.raises(IllegalStateError, match="already a connection for id 1"):
        connect(selector, 1)
    with pytest.raises(IllegalArgumentError, match="timeout should be >= 0"):
        selector.poll(-1)
    selector.send(1, [b"x"])
    with pytest.raises(IllegalStateError, match="prior send operation still in progress"):
        selector.send(1, [b"y"])
    selector.poll(0)
    assert selector.disconnected[1].name is ChannelStateName.FAILED_SEND


def test_one_frame_of_a_node_a_poll(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.receive(1, b"one")
    selector.receive(1, b"two")
    selector.poll(FOREVER_MS)
    assert selector.completed_receives == [CompletedReceive(1, b"one")]
    selector.poll(FOREVER_MS)
    assert selector.completed_receives == [CompletedReceive(1, b"two")]


def test_an_answer_comes_with_the_send_it_answers(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.answer(1, b"first")
    selector.answer(1, b"second")
    selector.poll(0)
    assert not selector.completed_receives
    for answer in (b"first", b"second"):
        selector.send(1, [b"?"])
        selector.poll(0)
        assert selector.completed_receives == [CompletedReceive(1, answer)]


def test_a_muted_node_is_not_read(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.receive(1, b"x")
    selector.mute(1)
    selector.poll(0)
    assert not selector.completed_receives
    selector.unmute(1)
    selector.poll(0)
    assert selector.completed_receives == [CompletedReceive(1, b"x")]


def test_a_poll_advances_the_clock_by_its_timeout_only_with_nothing_ready(
    selector: MockSelector, clock: MockClock
) -> None:
    connect(selector, 1)
    assert selector.poll(250) == 0
    assert clock.now_ms() == 0
    selector.wakeup()
    assert selector.poll(250) == 0
    assert selector.poll(250) == 250
    assert clock.now_ms() == 250
    assert selector.polls == [250, 250, 250]


def test_a_poll_waits_until_what_is_scheduled_and_no_longer(selector: MockSelector, clock: MockClock) -> None:
    connected(selector, 1)
    selector.after(40, lambda: selector.receive(1, b"x"))
    selector.after(30, lambda: None)
    selector.poll(20)
    assert not selector.completed_receives
    assert selector.poll(1000) == 40
    assert selector.completed_receives == [CompletedReceive(1, b"x")]


def test_events_that_became_due_while_the_test_turned_the_clock_happen_at_once(
    selector: MockSelector, clock: MockClock
) -> None:
    connected(selector, 1)
    selector.after(40, lambda: selector.disconnect(1))
    clock.advance(100)
    selector.poll(0)
    assert list(selector.disconnected) == [1]


def test_a_disconnect_is_returned_by_the_next_poll_and_the_id_is_free(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.send(1, [b"x"])
    selector.disconnect(1)
    assert not selector.is_channel_ready(1)
    selector.poll(0)
    assert selector.disconnected[1].name is ChannelStateName.READY
    assert not selector.completed_sends
    connected(selector, 1)
    assert selector.connected == [1]


def test_a_connection_that_connects_and_ends_before_a_poll_has_only_ended(selector: MockSelector) -> None:
    connect(selector, 1)
    selector.disconnect(1)
    selector.poll(0)
    assert not selector.connected
    assert list(selector.disconnected) == [1]


def test_closing_a_connection_is_not_reported(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.receive(1, b"x")
    selector.close_connection(1)
    selector.close_connection(1)
    selector.poll(0)
    assert not selector.disconnected
    assert not selector.completed_receives


def test_a_connection_that_ends_says_in_which_state(selector: MockSelector) -> None:
    selector.never_ready(1)
    connected(selector, 1)
    assert selector.connected == [1]
    assert not selector.is_channel_ready(1)
    selector.fail_authentication(1)
    selector.poll(0)
    state = selector.disconnected[1]
    assert state.name is ChannelStateName.AUTHENTICATION_FAILED
    assert isinstance(state.error, SaslAuthenticationError)

    connected(selector, 1)
    selector.become_ready(1)
    assert selector.is_channel_ready(1)
    selector.expire(1)
    selector.poll(0)
    names = [selector.disconnected[1].name]
    selector.never_ready(1)
    connected(selector, 1)
    selector.disconnect(1)
    selector.poll(0)
    names.append(selector.disconnected[1].name)
    assert names == [ChannelStateName.EXPIRED, ChannelStateName.AUTHENTICATE]


def test_close_closes_every_connection(selector: MockSelector) -> None:
    connected(selector, 1)
    connect(selector, 2)
    selector.close()
    assert selector.is_closed
    assert not selector.is_open(1)
    assert not selector.is_open(2)


# -- MockClient ----------------------------------------------------------------------------------------------

NODE: Final = Node(0, "localhost", 9092)
OTHER: Final = Node(1, "localhost", 9093)


class Bench:
    def __init__(self, metadata: Metadata | None = None) -> None:
        self.clock = MockClock(now_ms=1_000)
        self.client = MockClient(self.clock, metadata, nodes=[NODE, OTHER])
        self.handled: list[ClientResponse] = []

    def send(self, node: Node = NODE) -> ClientRequest:
        now_ms = self.clock.now_ms()
        assert self.client.ready(node, now_ms)
        request = self.client.new_client_request(
            node.id, PlainBuilder(), now_ms, expect_response=True, on_complete=self.handled.append
        )
        self.client.send(request, now_ms)
        return request

    def poll(self, timeout_ms: int = 0) -> list[ClientResponse]:
        return list(self.client.poll(timeout_ms, self.clock.now_ms()))


def test_it_is_what_the_sender_asks_for() -> None:
    mock = Bench().client
    client: KafkaClient = mock
    assert mock.active
    client.close()
    assert not mock.active


def test_a_prepared_response_is_taken_by_the_next_request_and_returned_by_the_next_poll() -> None:
    bench = Bench()
    bench.client.prepare_response("one")
    assert bench.client.awaiting_responses == 1
    request = bench.send()
    assert bench.handled == []
    assert bench.client.awaiting_responses == 0
    [response] = bench.poll()
    assert (response.request, response.body, response.version) == (request, "one", 13)
    assert bench.handled == [response]
    assert bench.poll() == []


def test_a_response_for_a_node_waits_for_a_request_to_it() -> None:
    bench = Bench()
    bench.client.prepare_response("other", node=OTHER)
    bench.send(NODE)
    bench.send(OTHER)
    assert [response.body for response in bench.poll()] == ["other"]
    assert bench.client.in_flight_request_count() == bench.client.in_flight_request_count(NODE.id) == 1


def test_waiting_requests_are_responded_to_in_order_or_one_by_one() -> None:
    bench = Bench()
    first, second, third = bench.send(), bench.send(OTHER), bench.send()
    bench.client.respond_to_request(third, "third")
    bench.client.respond_to_request(second, "second", disconnected=True)
    bench.client.respond("first")
    assert [(r.request, r.body, r.disconnected) for r in bench.poll()] == [
        (third, "third", False),
        (second, "second", True),
        (first, "first", False),
    ]
    with pytest.raises(IllegalStateError, match="No requests pending"):
        bench.client.respond("nobody")


def test_an_unsupported_version_can_be_prepared() -> None:
    bench = Bench()
    bench.client.prepare_unsupported_version_response()
    bench.send()
    [response] = bench.poll()
    assert isinstance(response.version_mismatch, UnsupportedVersionError)
    assert response.body is None


def test_disconnecting_answers_the_nodes_requests() -> None:
    bench = Bench()
    request, other = bench.send(NODE), bench.send(OTHER)
    bench.client.disconnect(NODE.id)
    [response] = bench.poll()
    assert (response.request, response.disconnected) == (request, True)
    assert list(bench.client.requests) == [other]
    assert not bench.client.is_connected(NODE.id)


def test_sending_to_a_node_that_is_not_ready_is_a_bug() -> None:
    bench = Bench()
    request = bench.client.new_client_request(NODE.id, PlainBuilder(), 0, expect_response=True)
    with pytest.raises(IllegalStateError, match="since the destination is not ready"):
        bench.client.send(request, 0)


def test_backoff_delay_and_throttle_are_what_the_test_says() -> None:
    bench = Bench()
    client, now_ms = bench.client, bench.clock.now_ms()
    client.backoff(NODE, 10)
    assert not client.ready(NODE, now_ms)
    assert client.connection_failed(NODE)
    assert client.connection_delay_ms(NODE, now_ms + 4) == client.poll_delay_ms(NODE, now_ms + 4) == 6
    assert client.least_loaded_node(now_ms).node == OTHER
    client.delay_ready(NODE, 20)
    assert not client.ready(NODE, now_ms + 10)
    assert client.connection_delay_ms(NODE, now_ms + 10) == FOREVER_MS
    assert client.ready(NODE, now_ms + 20)
    assert client.has_ready_nodes(now_ms + 20)
    client.throttle(NODE, 30)
    assert not client.is_ready(NODE, now_ms + 29)
    assert client.poll_delay_ms(NODE, now_ms + 29) == 1
    assert client.is_ready(NODE, now_ms + 30)
    client.close_node(NODE.id)
    assert not client.is_ready(NODE, now_ms + 30)


def test_an_unreachable_node_is_tried_every_100_ms() -> None:
    bench = Bench()
    bench.send()
    bench.client.set_unreachable(NODE, 150)
    assert not bench.client.ready(NODE, 1_000)
    assert bench.client.connection_delay_ms(NODE, 1_000) == 100
    assert not bench.client.ready(NODE, 1_100)
    assert bench.client.ready(NODE, 1_200)


def test_a_request_that_is_too_old_takes_its_connection_with_it() -> None:
    bench = Bench()
    bench.send()
    bench.clock.advance(5_000)
    [response] = bench.poll()
    assert response.disconnected
    assert not bench.client.is_connected(NODE.id)


def test_time_does_not_advance_in_poll_unless_asked_to() -> None:
    bench = Bench()
    bench.poll(100)
    assert bench.clock.now_ms() == 1_000
    bench.client.advance_time_during_poll = True
    bench.poll(100)
    assert bench.clock.now_ms() == 1_100


# -- metadata ------------------------------------------------------------------------------------------------


def make_metadata() -> Metadata:
    metadata = Metadata(MetadataConfig(), Random(0))
    metadata.bootstrap([("localhost", 9092)])
    return metadata


def test_a_due_update_takes_the_prepared_one_then_the_last_one_again() -> None:
    metadata = make_metadata()
    bench = Bench(metadata)
    bench.client.prepare_metadata_update(metadata_response(2, {"orders": 3}))
    bench.poll()
    assert metadata.cache.partition_count("orders") == 3
    assert not metadata.update_requested
    version = metadata.update_version
    bench.poll()
    assert metadata.update_version == version
    metadata.request_update(True)
    bench.poll()
    assert metadata.update_version == version + 1
    assert {node.id for node in metadata.fetch().nodes} == {0, 1}


def test_an_update_that_is_not_prepared_or_not_possible_is_a_mistake_of_the_test() -> None:
    with pytest.raises(IllegalStateError, match="No previous metadata update to use"):
        Bench(make_metadata()).poll()
    with pytest.raises(IllegalStateError, match="made without metadata"):
        Bench().client.update_metadata(metadata_response())


def test_no_update_comes_while_every_node_backs_off() -> None:
    metadata = make_metadata()
    bench = Bench(metadata)
    bench.client.prepare_metadata_update(metadata_response())
    [bootstrap] = metadata.fetch().nodes
    bench.client.backoff(bootstrap, 10)
    bench.poll()
    assert bench.client.has_pending_metadata_updates
    bench.clock.advance(10)
    bench.poll()
    assert not bench.client.has_pending_metadata_updates


def test_an_update_can_be_applied_at_once_in_any_version() -> None:
    metadata = make_metadata()
    bench = Bench(metadata)
    bench.client.update_metadata(metadata_response(1, {"orders": 1}, version=9), version=9)
    assert metadata.cache.partition_count("orders") == 1
    bench.client.close()
    assert metadata.is_closed


# -- Metadata responses --------------------------------------------------------------------------------------


def test_numbers_describe_brokers_and_topics() -> None:
    message = MetadataResponse.decode(metadata_response(2, {"t": 3}), 13)
    brokers = [(b.node_id, b.host, b.port) for b in message.brokers]
    assert brokers == [(0, "localhost", 9092), (1, "localhost", 9093)]
    [described] = message.topics
    assert described.topic_id == topic_id_of("t") != topic_id_of("u")
    leaders = [(p.partition_index, p.leader_id, p.leader_epoch) for p in described.partitions]
    assert leaders == [(0, 0, 0), (1, 1, 0), (2, 0, 0)]


def test_topics_in_full_are_taken_as_they_are() -> None:
    described = topic("t", [partition(7, leader=None, epoch=None, isr=(1,), offline=(2,), error=5)])
    message = metadata_message([node(4, rack="r")], [described], errors={"missing": 3})
    assert message.brokers[0].rack == "r"
    assert message.topics[0] is described
    assert described.topic_id == ZERO_UUID
    assert described.partitions[0][:4] == (5, 7, -1, -1)
    assert (message.topics[1].name, message.topics[1].error_code) == ("missing", 3)


def test_reading_gives_what_metadata_takes() -> None:
    response = read([node(9)], {"t": 1}, version=12, cluster_id="c", controller_id=9)
    assert response.brokers == {9: Node(9, "localhost", 9101)}
    assert response.cluster_id == "c"
    assert response.controller == node(9)
    assert [found.name for found in response.topics] == ["t"]
