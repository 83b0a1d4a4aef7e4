"""The fake client keeps Java's manners."""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.client.api_versions import NodeApiVersions, VersionRange
from client_core.clock import FOREVER_MS
from client_core.cluster import Node
from client_core.errors import (
    IllegalArgumentError,
    IllegalStateError,
    SaslAuthenticationError,
    UnsupportedVersionError,
)
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.protocol.api_keys import ApiKey
from tests.client.client_builders import PlainBuilder
from tests.support.metadata_responses import metadata_response
from tests.support.mock_client import MockClient
from tests.support.mock_clock import MockClock
from tests.support.waiting import patient

if TYPE_CHECKING:
    from client_core.client.kafka_client import ClientRequest, ClientResponse, KafkaClient

NODE = Node(0, "localhost", 9092)
OTHER = Node(1, "localhost", 9093)


class Bench:
    def __init__(self, metadata: Metadata | None = None, api_versions: NodeApiVersions | None = None) -> None:
        self.clock = MockClock(now_ms=1_000)
        self.client = MockClient(self.clock, metadata, nodes=[NODE, OTHER], api_versions=api_versions)
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
    client: KafkaClient = Bench().client
    assert client.active
    client.close()
    assert not client.active


def test_a_prepared_response_is_taken_by_the_next_request_and_told_by_the_next_poll() -> None:
    bench = Bench()
    bench.client.prepare_response("one", matcher=lambda builder: builder.api is ApiKey.PRODUCE)
    assert bench.client.awaiting_responses == 1
    request = bench.send()
    assert bench.handled == []
    assert bench.client.has_pending_responses
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


def test_a_request_that_the_matcher_denies_fails_the_test() -> None:
    bench = Bench()
    bench.client.prepare_response("one", matcher=lambda _: False)
    with pytest.raises(IllegalStateError, match="Request matcher did not match next-in-line request"):
        bench.send()


def test_waiting_requests_are_responded_to_in_order_by_node_or_one_by_one() -> None:
    bench = Bench()
    first, second, third = bench.send(), bench.send(OTHER), bench.send()
    bench.client.respond_to_request(third, "third")
    bench.client.respond_from("second", OTHER, disconnected=True)
    bench.client.respond("first")
    assert [(r.request, r.body, r.disconnected) for r in bench.poll()] == [
        (third, "third", False),
        (second, "second", True),
        (first, "first", False),
    ]
    with pytest.raises(IllegalStateError, match="No requests pending"):
        bench.client.respond("nobody")
    with pytest.raises(IllegalArgumentError, match="No requests available to node"):
        bench.client.respond_from("nobody", OTHER)


def test_an_unsupported_version_can_be_prepared_or_follows_from_the_nodes_versions() -> None:
    bench = Bench()
    bench.client.prepare_unsupported_version_response()
    bench.send()
    [response] = bench.poll()
    assert isinstance(response.version_mismatch, UnsupportedVersionError)
    bench = Bench(api_versions=NodeApiVersions.create({ApiKey.PRODUCE: VersionRange(0, 2)}))
    bench.client.prepare_response("never seen")
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


def test_a_late_response_may_follow_a_disconnection() -> None:
    bench = Bench()
    request = bench.send()
    bench.client.disconnect(NODE.id, allow_late_responses=True)
    bench.client.respond_to_request(request, "late")
    assert [(r.disconnected, r.body) for r in bench.poll()] == [(True, None), (False, "late")]


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


def test_a_pending_refusal_meets_the_next_request() -> None:
    bench = Bench()
    bench.client.create_pending_authentication_error(NODE, 10)
    bench.send()
    [response] = bench.poll()
    assert response.disconnected
    assert isinstance(response.authentication_error, SaslAuthenticationError)
    assert isinstance(bench.client.authentication_error(NODE), SaslAuthenticationError)
    assert not bench.client.ready(NODE, 1_009)
    assert bench.client.ready(NODE, 1_010)


def test_a_refused_node_is_disconnected() -> None:
    bench = Bench()
    bench.send()
    bench.client.authentication_failed(NODE, 10)
    assert [response.disconnected for response in bench.poll()] == [True]
    assert bench.client.authentication_error(OTHER) is None


def test_a_request_that_is_too_old_takes_its_connection_with_it() -> None:
    bench = Bench()
    bench.send()
    bench.clock.advance(5_000)
    [response] = bench.poll()
    assert response.disconnected
    assert not bench.client.is_connected(NODE.id)


def test_time_stands_still_in_poll_unless_asked_to_advance() -> None:
    bench = Bench()
    bench.poll(100)
    assert bench.clock.now_ms() == 1_000
    bench.client.advance_time_during_poll = True
    bench.poll(100)
    assert bench.clock.now_ms() == 1_100


def test_a_poll_can_block_until_it_is_woken() -> None:
    bench = Bench()
    bench.client.enable_blocking_until_wakeup(1)
    polled = threading.Event()

    def poll() -> None:
        bench.poll()
        polled.set()

    thread = threading.Thread(target=poll)
    thread.start()
    bench.client.wakeup()
    thread.join(patient(30))
    assert polled.is_set()
    assert bench.client.wakeups == 1


def test_reset_forgets_everything() -> None:
    bench = Bench()
    bench.send()
    bench.client.prepare_response("one")
    bench.client.prepare_metadata_update(metadata_response())
    bench.client.reset()
    assert not bench.client.has_in_flight_requests()
    assert not bench.client.has_pending_responses
    assert not bench.client.has_pending_metadata_updates
    assert not bench.client.has_ready_nodes(1_000)


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


def test_without_a_prepared_update_a_due_one_is_a_mistake_of_the_test() -> None:
    with pytest.raises(IllegalStateError, match="No previous metadata update to use"):
        Bench(make_metadata()).poll()


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


def test_metadata_can_not_be_updated_without_metadata() -> None:
    with pytest.raises(IllegalStateError, match="made without metadata"):
        Bench().client.update_metadata(metadata_response())
