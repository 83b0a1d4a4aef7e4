"""Several connects of one node at once: the first that is established is kept.

A connect that hangs is played: a real connection whose send buffer is full, so that the system does not
report it as writable before the test says so.
"""

from __future__ import annotations

import select
import socket
import struct
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import IllegalStateError
from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.selectable import ChannelStateName
from client_core.network.selector import NetworkConfig, Selector
from tests.network.tls_selector import BUFFER_BYTES, PATIENCE_MS
from tests.support.mock_clock import MockClock
from tests.support.tcp_peers import receive_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE: Final = 5
#: Discards what it holds, and resets the connection.
_RESET: Final = struct.pack("ii", 1, 0)


class Hanging:
    """Connects by address, whose ends the test decides."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        #: By port: the peer's side, and the bytes in the way.
        self._peers: dict[int, tuple[socket.socket, int]] = {}

    def open(
        self, address: tuple[str, int], send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> tuple[socket.socket, bool]:
        connection = socket.create_connection(self._listener.getsockname())
        peer, _ = self._listener.accept()
        connection.setblocking(False)
        filled = 0
        with suppress(BlockingIOError):
            while True:
                filled += connection.send(bytes(65_536))
        self._peers[address[1]] = peer, filled
        return connection, False

    def accept(self, port: int) -> socket.socket:
        """Lets the connect succeed; returns the peer's side."""
        peer, filled = self._peers[port]
        while filled:
            filled -= len(peer.recv(filled))
        return peer

    def fail(self, port: int) -> None:
        """Lets the connect fail."""
        peer, _ = self._peers[port]
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        peer.close()

    def is_closed(self, port: int) -> bool:
        """Whether the client has closed this connection."""
        peer, _ = self._peers[port]
        peer.settimeout(PATIENCE_MS / 1000)
        try:
            while peer.recv(65_536):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        self._listener.close()
        for peer, _ in self._peers.values():
            peer.close()


@pytest.fixture
def network() -> Iterator[Hanging]:
    with closing(Hanging()) as hanging:
        yield hanging


@pytest.fixture
def selector(network: Hanging) -> Iterator[Selector]:
    config = NetworkConfig(connections_max_idle_ms=60_000)
    with closing(Selector(config, PlaintextChannelBuilder(), MockClock(), network.open)) as made:
        yield made


def connect(selector: Selector, *ports: int) -> None:
    for port in ports:
        selector.connect(NODE, "localhost", ("127.0.0.1", port), BUFFER_BYTES, BUFFER_BYTES, also=True)


def poll_until_reported(selector: Selector) -> None:
    while not (selector.connected or selector.disconnected):
        selector.poll(PATIENCE_MS)


def wait_until_both_are_known(selector: Selector) -> None:
    """Waits until the next poll gets the end of each connect."""
    for channel in selector._attempts(NODE):
        assert select.select([], [channel], [], PATIENCE_MS / 1000)[1]


def assert_nothing_is_left(selector: Selector) -> None:
    assert selector.addresses_of(NODE) == []
    assert selector._rivals == {}
    assert len(selector._selector.get_map()) == 1  # the wakeup's


@pytest.mark.behaviour("CONN-14")
@pytest.mark.parametrize("fastest", [1, 2, 3])
def test_the_first_that_is_established_is_the_nodes_and_the_others_are_closed(
    selector: Selector, network: Hanging, fastest: int
) -> None:
    connect(selector, 1, 2, 3)
    assert selector.addresses_of(NODE) == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
    selector.poll(0)
    assert not selector.connected
    assert not selector.is_channel_ready(NODE)
    peer = network.accept(fastest)
    poll_until_reported(selector)
    assert selector.connected == [NODE]
    assert selector.addresses_of(NODE) == [f"127.0.0.1:{fastest}"]
    assert all(network.is_closed(port) for port in {1, 2, 3} - {fastest})
    selector.send(NODE, [b"hello"])
    selector.poll(PATIENCE_MS)
    assert receive_frame(peer) == b"hello"
    selector.close_connection(NODE)
    assert_nothing_is_left(selector)


@pytest.mark.behaviour("CONN-14")
@pytest.mark.parametrize("ports", [(1, 2, 3), (3, 2, 1), (2, 1, 3)])
def test_each_one_that_fails_is_reported_and_the_others_go_on(
    selector: Selector, network: Hanging, ports: tuple[int, ...]
) -> None:
    connect(selector, 1, 2, 3)
    for failed, port in enumerate(ports, 1):
        network.fail(port)
        poll_until_reported(selector)
        ended = selector.disconnected[NODE]
        assert (ended.name, ended.remote_address) == (ChannelStateName.NOT_CONNECTED, f"127.0.0.1:{port}")
        assert len(selector.addresses_of(NODE)) == 3 - failed
        selector.poll(0)
    assert_nothing_is_left(selector)


def test_after_a_failure_another_one_is_established(selector: Selector, network: Hanging) -> None:
    connect(selector, 1, 2)
    network.fail(1)
    poll_until_reported(selector)
    connect(selector, 3)
    network.accept(3)
    while not selector.connected:
        selector.poll(PATIENCE_MS)
    assert selector.addresses_of(NODE) == ["127.0.0.1:3"]
    assert network.is_closed(2)


def test_of_two_in_the_same_poll_one_is_kept(selector: Selector, network: Hanging) -> None:
    connect(selector, 1, 2)
    network.accept(1)
    network.accept(2)
    wait_until_both_are_known(selector)
    selector.poll(0)
    assert selector.connected == [NODE]
    assert not selector.disconnected
    (kept,) = selector.addresses_of(NODE)
    assert network.is_closed(3 - int(kept[-1]))
    selector.poll(0)
    assert not selector.connected
    assert not selector.disconnected


@pytest.mark.parametrize("ports", [(1, 2), (2, 1)])
def test_one_that_fails_in_the_poll_of_the_first_success_is_not_reported(
    selector: Selector, network: Hanging, ports: tuple[int, ...]
) -> None:
    """The node is connected: its owner must not take it for lost."""
    connect(selector, *ports)
    network.fail(1)
    network.accept(2)
    wait_until_both_are_known(selector)
    selector.poll(0)
    assert selector.connected == [NODE]
    assert not selector.disconnected
    assert selector.addresses_of(NODE) == ["127.0.0.1:2"]


def test_to_close_a_node_that_is_connecting_closes_all(selector: Selector, network: Hanging) -> None:
    connect(selector, 1, 2, 3)
    selector.close_connection(NODE)
    assert all(network.is_closed(port) for port in (1, 2, 3))
    assert_nothing_is_left(selector)
    selector.poll(0)
    assert not selector.disconnected


def test_a_node_that_is_connected_gets_no_second_connection(selector: Selector, network: Hanging) -> None:
    connect(selector, 1)
    with pytest.raises(IllegalStateError, match="There is already a connection for id 5"):
        selector.connect(NODE, "localhost", ("127.0.0.1", 2), BUFFER_BYTES, BUFFER_BYTES)
    network.accept(1)
    poll_until_reported(selector)
    with pytest.raises(IllegalStateError, match="There is already a connection for id 5"):
        connect(selector, 2)
