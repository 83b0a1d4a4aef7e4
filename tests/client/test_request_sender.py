"""Numbers of requests (NET-24); the rest of sending is tested through the client."""

from __future__ import annotations

from random import Random

import pytest

from client_core.client.node_connections import NodeConnections
from client_core.client.request_sender import RequestSender
from client_core.events import NO_EVENTS
from tests.client.client_builders import TEST_CONFIG, Bench, PlainBuilder
from tests.support.mock_clock import MockClock
from tests.support.mock_resolver import MockResolver
from tests.support.mock_selector import MockSelector


def make_sender(first_correlation_id: int = 0) -> RequestSender:
    selector = MockSelector(MockClock())
    connections = NodeConnections(selector, TEST_CONFIG, MockResolver("10.0.0.1"), Random(0), NO_EVENTS)
    return RequestSender(selector, connections, TEST_CONFIG, NO_EVENTS, first_correlation_id)


def ids(sender: RequestSender, count: int) -> list[int]:
    builder = PlainBuilder()
    return [
        sender.new_client_request(1, builder, 0, expect_response=True).correlation_id for _ in range(count)
    ]


@pytest.mark.behaviour("NET-24")
@pytest.mark.java("NetworkClientTest.CorrelationId")
def test_correlation_ids_count_from_zero() -> None:
    assert ids(make_sender(), 100) == list(range(100))


@pytest.mark.behaviour("NET-24")
@pytest.mark.parametrize("reserved", [2_147_483_640, 2_147_483_647])
def test_the_ids_of_sasl_are_stepped_over(reserved: int) -> None:
    assert ids(make_sender(reserved), 2) == [-2_147_483_648, -2_147_483_647]


@pytest.mark.behaviour("NET-24")
def test_after_the_last_free_id_comes_the_smallest_and_then_zero_again() -> None:
    assert ids(make_sender(2_147_483_638), 4) == [
        2_147_483_638,
        2_147_483_639,
        -2_147_483_648,
        -2_147_483_647,
    ]
    assert ids(make_sender(-2), 4) == [-2, -1, 0, 1]


def test_a_request_has_the_clients_timeout_unless_told_otherwise() -> None:
    client = Bench().client
    builder = PlainBuilder()
    request = client.new_client_request(1, builder, 7, expect_response=False)
    assert (request.request_timeout_ms, request.created_ms, request.expect_response) == (1_000, 7, False)
    request = client.new_client_request(1, builder, 7, expect_response=True, request_timeout_ms=3)
    assert request.request_timeout_ms == 3


def test_a_request_that_can_not_be_written_is_a_bug_and_no_mismatch() -> None:
    class Broken(PlainBuilder):
        def encode(self, version: int) -> bytes:
            raise ValueError("a bug")

    bench = Bench(discover_broker_versions=False)
    bench.ready()
    request = bench.client.new_client_request(0, Broken(), bench.now_ms, expect_response=True)
    with pytest.raises(ValueError, match="a bug"):
        bench.client.send(request, bench.now_ms)
