"""A poll that could do nothing but write: whoever asks may have it go on waiting for what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core.clock import SystemClock
from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.selector import NetworkConfig, Selector
from tests.support.tcp_peers import ScriptedPeer, echo
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_MS: Final = patient(20_000)
BUFFER_BYTES: Final = 4_096


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    with ScriptedPeer(echo) as peer:
        yield peer


@pytest.fixture
def selector(peer: ScriptedPeer) -> Iterator[Selector]:
    """Connected to two peers that say again what they are told."""
    selector = Selector(NetworkConfig(max_receive_bytes=None), PlaintextChannelBuilder(), SystemClock())
    for node_id in (1, 2):
        selector.connect(node_id, "localhost", peer.address, BUFFER_BYTES, BUFFER_BYTES)
    while not all(map(selector.is_channel_ready, (1, 2))):
        selector.poll(PATIENCE_MS)
    yield selector
    selector.close()


def test_the_answer_comes_with_the_poll_that_wrote(selector: Selector) -> None:
    selector.send(1, [b"question"])
    selector.poll(PATIENCE_MS, writes_end_it=False)
    assert [send.node_id for send in selector.completed_sends] == [1]
    assert [receive.payload for receive in selector.completed_receives] == [b"question"]


def test_unless_told_so_a_poll_ends_when_it_has_written(selector: Selector) -> None:
    selector.send(1, [b"question"])
    selector.poll(PATIENCE_MS)
    assert [send.node_id for send in selector.completed_sends] == [1]
    assert not selector.completed_receives


def test_it_waits_for_nothing_where_nobody_asked_it_to_wait(selector: Selector) -> None:
    selector.send(1, [b"question"])
    selector.poll(0, writes_end_it=False)
    assert [send.node_id for send in selector.completed_sends] == [1]


def test_a_wakeup_ends_it(selector: Selector) -> None:
    selector.send(1, [b"question"])
    selector.wakeup()
    selector.poll(PATIENCE_MS, writes_end_it=False)
    assert [send.node_id for send in selector.completed_sends] == [1]
    selector.send(2, [b"another"])
    while not [r for r in selector.completed_receives if r.node_id == 2]:
        selector.poll(PATIENCE_MS, writes_end_it=False)


def test_a_connection_that_ends_meanwhile_ends_it(selector: Selector, peer: ScriptedPeer) -> None:
    selector.send(1, [b"are you there"])  # or the peer may not have accepted yet what it is to close
    while not selector.completed_receives:
        selector.poll(PATIENCE_MS)
    peer.close_connections()
    selector.send(1, [b"question"])
    while 1 not in selector.disconnected:
        selector.poll(PATIENCE_MS, writes_end_it=False)
    assert not selector.is_channel_ready(1)


def test_a_frame_larger_than_the_buffers_is_written_and_answered_in_it(selector: Selector) -> None:
    large = bytes(range(256)) * 8_192
    selector.send(1, [large])
    while not selector.completed_receives:
        selector.poll(PATIENCE_MS, writes_end_it=False)
    (receive,) = selector.completed_receives
    assert receive.payload == large
