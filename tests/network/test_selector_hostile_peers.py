"""Selector against peers that are no brokers, or broken ones: a clear error, and no damage."""

from __future__ import annotations

import logging
import random
import tracemalloc
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from client_core.errors import InvalidReceiveError
from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.selectable import ChannelState, ChannelStateName
from client_core.network.selector import NetworkConfig, Selector
from tests.network.tls_selector import PATIENCE_MS
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

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

DEFAULTS = NetworkConfig()


@contextmanager
def asking(peer: ScriptedPeer, config: NetworkConfig = DEFAULTS) -> Iterator[Selector]:
    """A selector that has sent a request to the peer."""
    with closing(Selector(config, PlaintextChannelBuilder(), MockClock())) as selector:
        selector.connect(0, "localhost", peer.address, -1, -1)
        while not selector.connected:
            selector.poll(PATIENCE_MS)
        selector.send(0, [b"a request"])
        yield selector


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


def test_another_protocol_is_named_with_a_remedy(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "client_core.network.selector")
    scripts: dict[str, Callable[[socket.socket], None]] = {
        "the peer speaks HTTP, not Kafka; give the address of a broker's Kafka listener": speak_http,
        "set security.protocol to SSL or SASL_SSL or give the address of a plaintext listener": speak_tls,
        "the peer sent text ('220 '), not Kafka": say(b"220 smtp ready\r\n"),
    }
    for sentence, script in scripts.items():
        received, state = what_becomes_of(script)
        assert received == []
        assert isinstance(state.error, InvalidReceiveError)
        assert state.name is ChannelStateName.READY
        assert state.detail is not None
        assert state.detail.startswith("Invalid receive (size = ")
        assert sentence in state.detail
        assert {record.levelname for record in caplog.records} == {"DEBUG"}
        assert sentence in caplog.text


@pytest.mark.behaviour("SEL-08")
def test_sizes_that_can_not_be_are_refused_and_frames_before_them_delivered() -> None:
    _, state = what_becomes_of(promise_two_gigabytes)
    assert state.detail == "Invalid receive (size = 2147483647 larger than 1048576)"
    _, state = what_becomes_of(say(b"\x80\x00\x00\x00"))
    assert state.detail == "Invalid receive (size = -2147483648)"
    received, state = what_becomes_of(say(frame(b"one") + frame(b"two") + b"\xff\xff\xff\xfe"))
    assert received == [b"one", b"two"]
    assert state.detail == "Invalid receive (size = -2)"


def test_a_peer_that_closes_is_a_plain_disconnect() -> None:
    for script in (close_at_once, close_after_first_frame):
        received, state = what_becomes_of(script)
        assert received == []
        assert state.detail in ("the peer closed the connection", "the peer reset the connection")


def test_two_gigabytes_promised_cost_nothing_where_they_are_allowed() -> None:
    unlimited = NetworkConfig(max_receive_bytes=None)
    tracemalloc.start()
    try:
        with ScriptedPeer(promise_two_gigabytes) as peer, asking(peer, unlimited) as selector:
            while selector._channels[0]._receive.bytes_read < 14:
                selector.poll(PATIENCE_MS)
            selector.poll(0)
            assert not selector.disconnected
        # The memory of one read is freed at once; the limit is still far below two gigabytes.
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_silent_peer_keeps_its_connection() -> None:
    with ScriptedPeer(stay_silent) as peer, asking(peer) as selector:
        selector.poll(0)
        selector.poll(0)
        assert selector.is_channel_ready(0)
        assert not selector.disconnected


def test_literal_bytes_in_pieces_are_put_together() -> None:
    stream = frame(b"one") + frame(b"") + frame(b"three" * 1000)
    received, _ = what_becomes_of(say(*in_pieces(stream, [1, 2, 3, 1, 4, 100])))
    assert received == [b"one", b"", b"three" * 1000]


def test_garbage_ends_the_connection_and_nothing_else() -> None:
    for seed in range(8):
        garbage = random.Random(seed).randbytes(2000)
        _, state = what_becomes_of(say(garbage), NetworkConfig(max_receive_bytes=100))
        assert state.name is ChannelStateName.READY, seed
        assert state.detail, seed
