"""Whose request was in flight when its connection ended is told, once: callers, and the updater (NET-13)."""

from __future__ import annotations

import pytest

from client_core.events import RequestCompleted
from client_core.protocol.api_keys import ApiKey
from tests.client.client_builders import NODE, NODE_1, Bench, PlainBuilder, RecordingUpdater

METADATA = PlainBuilder(ApiKey.METADATA, 1, 13)


@pytest.fixture
def bench() -> Bench:
    """Two nodes that are ready; the first has a caller's request and one for metadata in flight."""
    bench = Bench(RecordingUpdater((NODE, NODE_1)))
    bench.ready(NODE)
    bench.ready(NODE_1)
    bench.send(NODE)
    bench.client.send_internal_metadata_request(METADATA, NODE.id, bench.now_ms)
    bench.poll()
    bench.send(NODE_1)
    bench.sink.events.clear()
    return bench


def ended_requests(bench: Bench) -> list[str]:
    return [event.api for event in bench.sink.events if isinstance(event, RequestCompleted)]


@pytest.mark.behaviour("NET-13", "UPD-09")
def test_a_lost_connection_is_told_to_callers_and_to_the_updater(bench: Bench) -> None:
    bench.selector.disconnect(NODE.id)
    [response] = bench.poll()
    assert response.disconnected
    assert [failure.outcome for failure in bench.recorded.failures] == ["error"]
    assert bench.recorded.disconnected == [NODE.id]
    assert ended_requests(bench) == ["Produce", "Metadata"]
    assert bench.client.in_flight_request_count() == 1  # the other node's


@pytest.mark.behaviour("NET-18", "UPD-09")
def test_a_timeout_is_told_to_the_updater_as_one(bench: Bench) -> None:
    bench.clock.advance(1_001)
    responses = bench.poll()
    assert [response.timed_out for response in responses] == [True, True]
    assert [failure.outcome for failure in bench.recorded.failures] == ["timeout"]


@pytest.mark.behaviour("NET-19")
def test_a_caller_that_disconnects_puts_no_doubt_on_metadata(bench: Bench) -> None:
    bench.client.disconnect(NODE.id)
    assert len(bench.recorded.failures) == 1
    [response] = bench.poll()
    assert response.disconnected
    assert bench.recorded.disconnected == []


@pytest.mark.behaviour("NET-19")
def test_a_node_that_is_closed_answers_nobody_but_the_updater(bench: Bench) -> None:
    bench.client.close_node(NODE.id)
    assert len(bench.recorded.failures) == 1
    assert bench.poll() == []
    assert ended_requests(bench) == ["Produce", "Metadata"]
