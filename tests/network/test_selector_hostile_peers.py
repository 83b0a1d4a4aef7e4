"""Selector against peers that are no brokers, or broken ones: a clear sentence, and no harm."""

from __future__ import annotations

import logging
import random
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from client_core.errors import InvalidReceiveError
from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.selectable import ChannelState, ChannelStateName
from client_core.network.selector import NetworkConfig, Selector
from tests.support.mock_clock import MockClock
from tests.support.tcp_peers import (
    ScriptedPeer,
    close_after_first_frame,
    close_at_once,
    frame,
    in_pieces,
    promise_two_gigabytes,
    say,
    speak_http,
    speak_tls,
    stay_silent,
)
from tests.support.waiting import patient

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

PATIENCE_MS = patient(10_000)
DEFAULTS = NetworkConfig()


def what_becomes_of(
    script: Callable[[socket.socket], None], config: NetworkConfig = DEFAULTS
) -> tuple[list[bytes], ChannelState]:
    """Sends one frame to a peer and polls until the connection ends: what was received, and how it ended."""
    received = []
    with ScriptedPeer(script) as peer:
        selector = Selector(config, PlaintextChannelBuilder(), MockClock())
        try:
            selector.connect(0, "localhost", peer.address, -1, -1)
            while not selector.disconnected:
                selector.poll(PATIENCE_MS)
                if selector.connected:
                    selector.send(0, [b"a request"])
                received += [receive.payload for receive in selector.completed_receives]
            return received, selector.disconnected[0]
        finally:
            selector.close()


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (speak_http, "the peer speaks HTTP, not Kafka; give the address of a broker's Kafka listener"),
        (speak_tls, "set security.protocol to SSL or SASL_SSL or give the address of a plaintext listener"),
        (say(b"220 smtp ready\r\n"), "the peer sent text ('220 '), not Kafka"),
    ],
)
def test_another_protocol_is_named_with_a_remedy(
    script: Callable[[socket.socket], None], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "client_core.network.selector"):
        received, state = what_becomes_of(script)
    assert received == []
    assert isinstance(state.error, InvalidReceiveError)
    assert state.name is ChannelStateName.READY
    assert state.detail is not None
    assert state.detail.startswith("Invalid receive (size = ")
    assert sentence in state.detail
    assert {record.levelname for record in caplog.records} == {"DEBUG"}
    assert sentence in caplog.text


def test_two_gigabytes_promised_are_refused() -> None:
    _, state = what_becomes_of(promise_two_gigabytes)
    assert state.detail == "Invalid receive (size = 2147483647 larger than 1048576)"


def test_two_gigabytes_promised_cost_nothing_where_they_are_allowed() -> None:
    with ScriptedPeer(promise_two_gigabytes) as peer:
        clock = MockClock()
        config = NetworkConfig(max_receive_bytes=None)
        selector = Selector(config, PlaintextChannelBuilder(), clock)
        tracemalloc.start()
        try:
            selector.connect(0, "localhost", peer.address, -1, -1)
            while not selector.connected:
                selector.poll(PATIENCE_MS)
            selector.send(0, [b"a request"])
            while selector._channels[0]._receive.bytes_read < 14:
                selector.poll(PATIENCE_MS)
            selector.poll(0)
            assert not selector.disconnected
            # What one read may take is given back at once; the limit is far from two gigabytes all the same.
            assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
        finally:
            tracemalloc.stop()
            selector.close()


@pytest.mark.behaviour("SEL-08")
def test_a_negative_size_is_refused() -> None:
    _, state = what_becomes_of(say(b"\x80\x00\x00\x00"))
    assert state.detail == "Invalid receive (size = -2147483648)"


def test_frames_before_the_hostile_one_are_delivered() -> None:
    received, state = what_becomes_of(say(frame(b"one") + frame(b"two") + b"\xff\xff\xff\xfe"))
    assert received == [b"one", b"two"]
    assert state.detail == "Invalid receive (size = -2)"


@pytest.mark.parametrize("script", [close_at_once, close_after_first_frame])
def test_a_peer_that_closes_is_a_plain_disconnect(script: Callable[[socket.socket], None]) -> None:
    received, state = what_becomes_of(script)
    assert received == []
    assert state.detail in ("the peer closed the connection", "the peer reset the connection")


def test_literal_bytes_in_pieces_are_put_together() -> None:
    stream = frame(b"one") + frame(b"") + frame(b"three" * 1000)
    received, _ = what_becomes_of(say(*in_pieces(stream, [1, 2, 3, 1, 4, 100])))
    assert received == [b"one", b"", b"three" * 1000]


@pytest.mark.parametrize("seed", range(8))
def test_garbage_ends_the_connection_and_nothing_else(seed: int) -> None:
    garbage = random.Random(seed).randbytes(2000)
    _, state = what_becomes_of(say(garbage), NetworkConfig(max_receive_bytes=100))
    assert state.name is ChannelStateName.READY
    assert state.detail


def test_a_silent_peer_keeps_its_connection() -> None:
    with ScriptedPeer(stay_silent) as peer:
        selector = Selector(NetworkConfig(), PlaintextChannelBuilder(), MockClock())
        try:
            selector.connect(0, "localhost", peer.address, -1, -1)
            while not selector.connected:
                selector.poll(PATIENCE_MS)
            selector.send(0, [b"a request"])
            selector.poll(0)
            selector.poll(0)
            assert selector.is_channel_ready(0)
            assert not selector.disconnected
        finally:
            selector.close()
