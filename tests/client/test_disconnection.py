"""How connections end: the reported reason, who gets it, and how often."""

from __future__ import annotations

import logging

import pytest

from client_core.client import disconnection
from client_core.client.disconnection import Disconnection, from_channel, setup_timeout
from client_core.client.node_connections import ConnectionLogLimiter
from client_core.errors import DisconnectError, InvalidReceiveError, SaslAuthenticationError
from client_core.events import RequestCompleted
from client_core.network.selectable import ChannelState, ChannelStateName
from client_core.protocol.api_keys import ApiKey
from tests.client.client_builders import NODE, NODE_1, Bench, PlainBuilder, RecordingUpdater

ADDRESS = "10.0.0.1:9092"
DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING


def test_each_state_has_its_reason_and_volume() -> None:
    states: dict[ChannelStateName, tuple[str, int, str]] = {
        ChannelStateName.NOT_CONNECTED: ("refused", WARNING, "could not be established"),
        ChannelStateName.AUTHENTICATE: ("closed", WARNING, "during authentication: a firewall may"),
        ChannelStateName.READY: ("closed", INFO, "the connection was closed"),
        ChannelStateName.FAILED_SEND: ("closed", INFO, "the connection was closed"),
        ChannelStateName.EXPIRED: ("idle", INFO, "was idle for too long"),
        ChannelStateName.LOCAL_CLOSE: ("local", INFO, "the client closed the connection"),
        ChannelStateName.AUTHENTICATION_FAILED: ("authentication", logging.ERROR, "failed due to: "),
    }
    for error in (None, DisconnectError("the peer closed the connection")):
        for name, (reason, log_level, detail) in states.items():
            ended = from_channel(ChannelState(name, error, ADDRESS))
            assert (ended.reason, ended.log_level, ended.timed_out) == (reason, log_level, False), name
            assert detail in ended.detail, name


def test_the_networks_own_sentence_is_kept_and_the_address_added_unless_it_names_it() -> None:
    state = ChannelState(ChannelStateName.NOT_CONNECTED, None, ADDRESS, "connection refused")
    assert from_channel(state).detail == "connection refused (10.0.0.1:9092)"
    state = ChannelState(ChannelStateName.READY, None, ADDRESS, "10.0.0.1:9092 speaks HTTP, not Kafka")
    assert from_channel(state).detail == "10.0.0.1:9092 speaks HTTP, not Kafka"


def test_a_peer_that_does_not_speak_kafka_is_a_protocol_error_in_any_state() -> None:
    error = InvalidReceiveError("Invalid receive (size = 1213486160)")
    for name in (ChannelStateName.READY, ChannelStateName.AUTHENTICATE, ChannelStateName.NOT_CONNECTED):
        ended = from_channel(ChannelState(name, error, None))
        assert ended == Disconnection("protocol_error", error.message, logging.WARNING)


def test_a_refusal_carries_its_error_and_is_one_without_a_reason_all_the_same() -> None:
    refusal = SaslAuthenticationError("invalid credentials")
    ended = from_channel(ChannelState(ChannelStateName.AUTHENTICATION_FAILED, refusal, ADDRESS))
    assert ended.authentication_error is refusal
    assert ended.detail == "authentication failed due to: invalid credentials (10.0.0.1:9092)"
    ended = from_channel(ChannelState(ChannelStateName.AUTHENTICATION_FAILED))
    assert ended.authentication_error is not None
    assert ended.detail == "authentication failed due to: refused"


def test_each_end_that_the_client_makes_has_its_reason_and_volume() -> None:
    for ended, expected in (
        (disconnection.protocol_error("why"), ("protocol_error", WARNING, False)),
        (disconnection.unreachable("why"), ("refused", WARNING, False)),
        (disconnection.unresolved("why", OSError()), ("unresolved", WARNING, False)),
        (disconnection.resolve_timeout("why", 5), ("unresolved", WARNING, True)),
        (disconnection.forbidden("why"), ("forbidden", WARNING, False)),
        (disconnection.setup_timeout("b:1", 5), ("setup_timeout", WARNING, True)),
        (disconnection.request_timeout(), ("request_timeout", INFO, True)),
        (disconnection.local("why"), ("local", INFO, False)),
    ):
        assert (ended.reason, ended.log_level, ended.timed_out) == expected
        assert ended.detail, expected
        assert ended.authentication_error is None, expected


def test_what_the_resolver_says_is_kept() -> None:
    said = [disconnection.unresolved("a", error).detail for error in (OSError(5, "none"), OSError("nothing"))]
    assert said == ["a can't be resolved: none", "a can't be resolved: nothing"]


# -- each request in flight is failed once (NET-13) ----------------------------------------------------------


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
def test_a_lost_connection_is_reported_to_callers_and_to_the_updater(bench: Bench) -> None:
    bench.selector.disconnect(NODE.id)
    [response] = bench.poll()
    assert response.disconnected
    assert [failure.outcome for failure in bench.recorded.failures] == ["error"]
    assert bench.recorded.disconnected == [NODE.id]
    assert ended_requests(bench) == ["Produce", "Metadata"]
    assert bench.client.in_flight_request_count() == 1  # the other node's


@pytest.mark.behaviour("NET-18", "UPD-09")
def test_a_timeout_is_reported_to_the_updater_as_one(bench: Bench) -> None:
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


# -- which ends and beginnings are logged --------------------------------------------------------------------


REFUSED = Disconnection("refused", "connection refused", WARNING)
CLOSED = Disconnection("closed", "the peer closed the connection", INFO)


def test_a_node_that_cannot_be_connected_to_is_logged_once_and_another_failure_again() -> None:
    limiter = ConnectionLogLimiter()
    assert [limiter.ended(1, REFUSED, was_up=False) for _ in range(3)] == [WARNING, DEBUG, DEBUG]
    other = Disconnection("refused", "no route to host", WARNING)
    assert [limiter.ended(1, other, was_up=False) for _ in range(2)] == [WARNING, DEBUG]
    assert limiter.ended(2, REFUSED, was_up=False) == WARNING
    # Timeouts of any length count as one reason, and new words are not logged without a limit.
    timeouts = [setup_timeout("b:1", 10_000), setup_timeout("b:1", 21_345)]
    assert [limiter.ended(3, timeout, was_up=False) for timeout in timeouts] == [WARNING, DEBUG]
    ways = [Disconnection("refused", f"way {n}", WARNING) for n in range(100)]
    assert [limiter.ended(4, way, was_up=False) for way in ways].count(WARNING) == 8


def test_a_ready_node_is_logged_with_its_failures_and_later_failures_are_logged_again() -> None:
    limiter = ConnectionLogLimiter()
    for _ in range(7):
        limiter.ended(1, REFUSED, was_up=False)
    assert limiter.ready(1) == (INFO, 7)
    assert limiter.ended(1, CLOSED, was_up=True) == INFO
    assert limiter.ended(1, REFUSED, was_up=False) == WARNING
    assert limiter.ready(1) == (INFO, 1)


def test_a_node_that_accepts_and_hangs_up_again_and_again_is_logged_once() -> None:
    limiter = ConnectionLogLimiter()
    reported = []
    for _ in range(5):
        reported += [limiter.ready(1)[0], limiter.ended(1, CLOSED, was_up=True)]
    assert reported == [INFO, INFO, *[DEBUG] * 8]


def test_the_end_of_a_node_that_has_served_is_logged() -> None:
    limiter = ConnectionLogLimiter()
    for _ in range(3):
        assert limiter.ready(1)[0] == INFO
        limiter.forget(1)
        assert limiter.reported == {}
        assert limiter.ended(1, CLOSED, was_up=True) == INFO
        assert limiter.ended(1, REFUSED, was_up=False) == WARNING


def test_the_client_logs_a_bootstrap_server_by_its_address_and_its_failure_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(can_connect=lambda _: False)
    with caplog.at_level(INFO):
        for _ in range(5):
            bench.client.ready(NODE, bench.now_ms)
            bench.poll()
            bench.clock.advance(60_000)
    reported = [record for record in caplog.records if "connecting failed" in record.getMessage()]
    assert [record.levelno for record in reported] == [WARNING]
    assert reported[0].getMessage().startswith(f"Node {NODE.id}: connecting failed (refused): ")
