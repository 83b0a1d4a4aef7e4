"""Selector when the memory for receives is used up: reading waits, nothing is dropped, all get their turn."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.kafka_channel import TURN_BYTES
from client_core.network.selector import NetworkConfig, Selector
from tests.support.mock_clock import MockClock
from tests.support.tcp_peers import TcpPeer, frame
from tests.support.waiting import patient

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

PATIENCE_MS = patient(10_000)
BUFFER_BYTES = 4 * 1024

#: More than one read brings: it must be reserved.
LARGE_BYTES = 300_000


@pytest.fixture
def peer() -> Iterator[TcpPeer]:
    with TcpPeer() as listening:
        yield listening


@pytest.fixture
def selector_with() -> Iterator[Callable[[int], Selector]]:
    made: list[Selector] = []

    def make(receive_memory_bytes: int) -> Selector:
        config = NetworkConfig(connections_max_idle_ms=None, receive_memory_bytes=receive_memory_bytes)
        made.append(Selector(config, PlaintextChannelBuilder(), MockClock()))
        return made[-1]

    yield make
    for selector in made:
        selector.close()


def connected(selector: Selector, node_id: int, peer: TcpPeer) -> socket.socket:
    """Connects, and returns the peer's side."""
    selector.connect(node_id, "localhost", peer.address, BUFFER_BYTES, BUFFER_BYTES)
    while not selector.is_channel_ready(node_id):
        selector.poll(PATIENCE_MS)
    return peer.accept()


def sending(connection: socket.socket, payload: bytes) -> threading.Thread:
    """Sends a frame, as far as it is read."""
    thread = threading.Thread(target=connection.sendall, args=(frame(payload),))
    thread.start()
    return thread


def next_receives(selector: Selector) -> list[tuple[int, bytes]]:
    """Polls until frames are there."""
    while True:
        selector.poll(PATIENCE_MS)
        assert not selector.disconnected
        if selector.completed_receives:
            return [(receive.node_id, receive.payload) for receive in selector.completed_receives]


@pytest.mark.java("SelectorTest.MuteOnOOM")
def test_of_two_frames_that_do_not_fit_together_the_second_is_read_when_the_first_was_dealt_with(
    peer: TcpPeer, selector_with: Callable[[int], Selector]
) -> None:
    selector = selector_with(LARGE_BYTES)
    threads = [
        sending(connected(selector, node_id, peer), bytes([node_id]) * LARGE_BYTES) for node_id in (1, 2)
    ]
    ((first, payload),) = next_receives(selector)
    assert payload == bytes([first]) * LARGE_BYTES
    ((second, payload),) = next_receives(selector)
    assert payload == bytes([second]) * LARGE_BYTES
    assert {first, second} == {1, 2}
    for thread in threads:
        thread.join()


def test_a_frame_larger_than_the_pool_passes(peer: TcpPeer, selector_with: Callable[[int], Selector]) -> None:
    selector = selector_with(1)
    thread = sending(connected(selector, 1, peer), b"x" * LARGE_BYTES)
    assert next_receives(selector) == [(1, b"x" * LARGE_BYTES)]
    thread.join()


def test_a_frame_under_way_keeps_others_from_being_read_but_not_for_ever(
    peer: TcpPeer, selector_with: Callable[[int], Selector]
) -> None:
    selector = selector_with(LARGE_BYTES)
    stalling, other = connected(selector, 1, peer), connected(selector, 2, peer)
    stalling.sendall(frame(b"x" * LARGE_BYTES)[:100_000])
    selector.poll(PATIENCE_MS)
    thread = sending(other, b"y" * LARGE_BYTES)
    for _ in range(20):
        selector.poll(5)
        assert not selector.completed_receives

    selector.close_connection(1)  # as a request's timeout does
    assert next_receives(selector) == [(2, b"y" * LARGE_BYTES)]
    thread.join()


def test_waiting_for_memory_is_no_busy_loop(peer: TcpPeer, selector_with: Callable[[int], Selector]) -> None:
    selector = selector_with(LARGE_BYTES)
    stalling, other = connected(selector, 1, peer), connected(selector, 2, peer)
    stalling.sendall(frame(b"x" * LARGE_BYTES)[:100_000])
    other.sendall(frame(b"y" * LARGE_BYTES)[:100_000])
    for _ in range(50):  # both have been read as far as they may by then
        selector.poll(5)
    woken = threading.Event()

    def wake() -> None:
        woken.set()
        selector.wakeup()

    timer = threading.Timer(0.2, wake)
    timer.start()
    selector.poll(PATIENCE_MS)
    assert woken.is_set()  # nothing else made it return
    timer.join()


def test_every_connection_gets_its_frames_through_a_pool_for_one(
    peer: TcpPeer, selector_with: Callable[[int], Selector]
) -> None:
    selector = selector_with(LARGE_BYTES)
    payloads = {node_id: bytes([node_id]) * (LARGE_BYTES + node_id) for node_id in range(1, 6)}
    threads = [sending(connected(selector, node_id, peer), payload) for node_id, payload in payloads.items()]
    arrived: dict[int, bytes] = {}
    while len(arrived) < len(payloads):
        arrived.update(next_receives(selector))
    assert arrived == payloads
    for thread in threads:
        thread.join()


def test_a_muted_connection_does_not_stand_in_line(
    peer: TcpPeer, selector_with: Callable[[int], Selector]
) -> None:
    selector = selector_with(LARGE_BYTES)
    stalling, muted, other = (connected(selector, node_id, peer) for node_id in (1, 2, 3))
    stalling.sendall(frame(b"x" * LARGE_BYTES)[:100_000])
    selector.poll(PATIENCE_MS)
    threads = [sending(muted, b"m" * LARGE_BYTES)]
    for _ in range(20):
        selector.poll(5)
    selector.mute(2)
    threads.append(sending(other, b"o" * LARGE_BYTES))
    for _ in range(20):
        selector.poll(5)
    selector.close_connection(1)
    assert next_receives(selector) == [(3, b"o" * LARGE_BYTES)]
    selector.unmute(2)
    assert next_receives(selector) == [(2, b"m" * LARGE_BYTES)]
    for thread in threads:
        thread.join()


def test_large_answers_that_come_at_once_are_spread_over_polls(
    peer: TcpPeer, selector_with: Callable[[int], Selector]
) -> None:
    """Each is decoded in the turn that reads it: fifty brokers must not make one turn of fifty."""
    frames, size_bytes, nodes = 3, 20_000, range(20)
    selector = selector_with(16 * 1024 * 1024)
    connections = [connected(selector, node_id, peer) for node_id in nodes]
    payload = bytes(size_bytes)
    threads = [sending(connection, payload) for connection in connections]
    for thread in threads:
        thread.join()
    threads = [sending(connection, payload) for connection in connections for _ in range(frames - 1)]
    polls: list[list[int]] = []
    while sum(map(len, polls)) < frames * len(nodes):
        polls.append([node_id for node_id, _ in next_receives(selector)])
    assert max(map(len, polls)) <= TURN_BYTES // size_bytes + 1
    assert {node_id for poll in polls[: len(nodes)] for node_id in poll} == {*nodes}
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
