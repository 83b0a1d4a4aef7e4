"""Why a connection ended: the word for a label, the sentence for people, the volume."""

from __future__ import annotations

import logging

import pytest

from client_core.client import disconnection
from client_core.client.disconnection import Disconnection, from_channel
from client_core.errors import DisconnectError, InvalidReceiveError, SaslAuthenticationError
from client_core.network.selectable import ChannelState, ChannelStateName

ADDRESS = "10.0.0.1:9092"


@pytest.mark.parametrize(
    ("name", "reason", "log_level", "detail"),
    [
        (ChannelStateName.NOT_CONNECTED, "refused", logging.WARNING, "could not be established"),
        (ChannelStateName.AUTHENTICATE, "closed", logging.WARNING, "during authentication: a firewall may"),
        (ChannelStateName.READY, "closed", logging.INFO, "the connection was closed"),
        (ChannelStateName.FAILED_SEND, "closed", logging.INFO, "the connection was closed"),
        (ChannelStateName.EXPIRED, "idle", logging.INFO, "was idle for too long"),
        (ChannelStateName.LOCAL_CLOSE, "local", logging.INFO, "the client closed the connection"),
        (
            ChannelStateName.AUTHENTICATION_FAILED,
            "authentication",
            logging.ERROR,
            "failed due to: ",
        ),
    ],
)
@pytest.mark.parametrize("error", [None, DisconnectError("the peer closed the connection")])
def test_each_state_has_its_reason_and_volume(
    name: ChannelStateName, reason: str, log_level: int, detail: str, error: DisconnectError | None
) -> None:
    ended = from_channel(ChannelState(name, error, ADDRESS))
    assert (ended.reason, ended.log_level, ended.timed_out) == (reason, log_level, False)
    assert detail in ended.detail


def test_the_networks_own_sentence_is_kept_and_the_address_added() -> None:
    state = ChannelState(ChannelStateName.NOT_CONNECTED, None, ADDRESS, "connection refused")
    assert from_channel(state).detail == "connection refused (10.0.0.1:9092)"


def test_an_address_that_the_sentence_names_is_not_added_again() -> None:
    state = ChannelState(ChannelStateName.READY, None, ADDRESS, "10.0.0.1:9092 speaks HTTP, not Kafka")
    assert from_channel(state).detail == "10.0.0.1:9092 speaks HTTP, not Kafka"


def test_a_peer_that_does_not_speak_kafka_is_a_protocol_error_in_any_state() -> None:
    error = InvalidReceiveError("Invalid receive (size = 1213486160)")
    for name in (ChannelStateName.READY, ChannelStateName.AUTHENTICATE, ChannelStateName.NOT_CONNECTED):
        ended = from_channel(ChannelState(name, error, None))
        assert ended == Disconnection("protocol_error", error.message, logging.WARNING)


def test_a_refusal_carries_its_error() -> None:
    refusal = SaslAuthenticationError("invalid credentials")
    ended = from_channel(ChannelState(ChannelStateName.AUTHENTICATION_FAILED, refusal, ADDRESS))
    assert ended.authentication_error is refusal
    assert ended.detail == "authentication failed due to: invalid credentials (10.0.0.1:9092)"


def test_a_refusal_without_a_reason_is_a_refusal_all_the_same() -> None:
    ended = from_channel(ChannelState(ChannelStateName.AUTHENTICATION_FAILED))
    assert ended.authentication_error is not None
    assert ended.detail == "authentication failed due to: refused"


@pytest.mark.parametrize(
    ("ended", "reason", "log_level", "timed_out"),
    [
        (disconnection.protocol_error("why"), "protocol_error", logging.WARNING, False),
        (disconnection.unreachable("why"), "refused", logging.WARNING, False),
        (disconnection.unresolved("why", OSError()), "unresolved", logging.WARNING, False),
        (disconnection.resolve_timeout("why", 5), "unresolved", logging.WARNING, True),
        (disconnection.forbidden("why"), "forbidden", logging.WARNING, False),
        (disconnection.setup_timeout(5), "setup_timeout", logging.INFO, True),
        (disconnection.request_timeout(), "request_timeout", logging.INFO, True),
        (disconnection.local("why"), "local", logging.INFO, False),
        (disconnection.local("why", logging.DEBUG), "local", logging.DEBUG, False),
    ],
)
def test_each_end_that_the_client_makes_has_its_reason_and_volume(
    ended: Disconnection, reason: str, log_level: int, timed_out: bool
) -> None:
    assert (ended.reason, ended.log_level, ended.timed_out) == (reason, log_level, timed_out)
    assert ended.detail
    assert ended.authentication_error is None


def test_what_the_resolver_says_is_kept() -> None:
    assert (
        disconnection.unresolved("a", OSError(5, "no such name")).detail
        == "a can't be resolved: no such name"
    )
    assert (
        disconnection.unresolved("a", OSError("found nothing")).detail == "a can't be resolved: found nothing"
    )
