"""Selector over loopback: connections, sends, receives, their ends, and what a poll returns of them.

Twins of SelectorTest (Kafka 4.3). Java's look into private fields is replaced by `assert_empty`.
Receiving while memory is short has a file of its own.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import select
import socket
import struct
import threading
import weakref
from collections import Counter, deque
from contextlib import closing, contextmanager, suppress
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Final

import pytest

from client_core.clock import FOREVER_MS
from client_core.errors import (
    ConfigError,
    DisconnectError,
    IllegalArgumentError,
    IllegalStateError,
    SaslAuthenticationError,
)
from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.kafka_channel import KafkaChannel
from client_core.network.selectable import ChannelStateName
from client_core.network.selector import NetworkConfig, Selector
from client_core.network.transport_layer import PlaintextTransportLayer, open_socket
from tests.network.fake_transport import FakeTransport, ScriptedAuthenticator
from tests.network.tls_selector import (
    BUFFER_BYTES,
    MAX_IDLE_MS,
    PATIENCE_MS,
    connect,
    exchange,
    wait_until_ready,
)
from tests.support.mock_clock import MockClock
from tests.support.tcp_peers import ScriptedPeer, TcpPeer, echo, frame, receive_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from client_core.network.authenticator import Authenticator
    from client_core.network.channel_builder import ChannelBuilder
    from client_core.network.network_receive import MemoryPool
    from client_core.network.selectable import Selectable
    from client_core.network.selector import OpenSocket
    from client_core.network.transport_layer import TransportLayer

LEFT_OUT: Final = {
    "SelectorTest.PartialSendAndReceiveReflectedInMetrics": "bytes are reported by request",
    "SelectorTest.OutboundConnectionsCountInConnectionCreationMetric": "NodeConnecting reports it",
}

CONFIG = NetworkConfig(connections_max_idle_ms=MAX_IDLE_MS)


class BuilderOf:
    """Channels over whatever transport and authenticator a test wants."""

    def __init__(
        self,
        transport: Callable[[socket.socket, str], TransportLayer] = PlaintextTransportLayer,
        authenticator: Callable[[], Authenticator] = lambda: ScriptedAuthenticator([]),
    ) -> None:
        self.channels: list[weakref.ref[KafkaChannel]] = []
        self.is_closed = False
        self._transport = transport
        self._authenticator = authenticator

    def build_channel(
        self,
        node_id: int,
        host: str,
        connection: socket.socket,
        remote_address: str,
        max_receive_bytes: int | None,
        memory_pool: MemoryPool,
    ) -> KafkaChannel:
        channel = KafkaChannel(
            node_id,
            self._transport(connection, remote_address),
            self._authenticator(),
            max_receive_bytes,
            memory_pool,
        )
        self.channels.append(weakref.ref(channel))
        return channel

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@contextmanager
def selector_over(
    builder: ChannelBuilder,
    clock: MockClock,
    connect: OpenSocket = open_socket,
    config: NetworkConfig = CONFIG,
) -> Iterator[Selector]:
    with closing(Selector(config, builder, clock, connect)) as made:
        yield made


@pytest.fixture
def selector(clock: MockClock) -> Iterator[Selector]:
    with selector_over(PlaintextChannelBuilder(), clock) as made:
        yield made


@pytest.fixture
def echo_peer() -> Iterator[ScriptedPeer]:
    with ScriptedPeer(echo) as peer:
        yield peer


@pytest.fixture
def peer() -> Iterator[TcpPeer]:
    with TcpPeer() as listening:
        yield listening


def blocking_connect(selector: Selector, node_id: int, peer: TcpPeer) -> None:
    connect(selector, node_id, peer)
    wait_until_ready(selector, node_id)


def accepted(selector: Selector, node_id: int, peer: TcpPeer) -> socket.socket:
    """Connects, and returns the peer's side."""
    blocking_connect(selector, node_id, peer)
    return peer.accept()


def poll_until_received(selector: Selector) -> list[bytes]:
    """The payloads of the first poll that brings any."""
    while not selector.completed_receives:
        selector.poll(PATIENCE_MS)
        assert not selector.disconnected
    return [receive.payload for receive in selector.completed_receives]


def poll_until_disconnected(selector: Selector, node_id: int) -> ChannelStateName:
    while node_id not in selector.disconnected:
        selector.poll(PATIENCE_MS)
    return selector.disconnected[node_id].name


def await_bytes(selector: Selector, node_id: int) -> None:
    """Waits until the system holds something for a node, without a poll."""
    assert select.select([selector._channels[node_id]], [], [], PATIENCE_MS / 1000)[0]


def assert_empty(selector: Selector) -> None:
    """Nothing is left of any connection."""
    selector.poll(0)
    assert repr(selector) == "<Selector []>"
    assert not selector._due
    assert not selector._unreported
    assert len(selector._selector.get_map()) == 1  # the wakeup's


def open_files() -> Counter[str]:
    """The process's open files by inode: those that earlier tests left to the collector may go meanwhile."""
    opened = Counter[str]()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            opened[os.readlink(f"/proc/self/fd/{descriptor}")] += 1
    return opened


@contextmanager
def no_descriptor_left_behind() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() <= before


def immediately(
    address: tuple[str, int], send_buffer_bytes: int, receive_buffer_bytes: int
) -> tuple[socket.socket, bool]:
    """A connect that is done when it returns, as some systems do on loopback."""
    connection = socket.create_connection(address)
    connection.setblocking(False)
    return connection, True


# -- connecting ----------------------------------------------------------------------------------------------


@pytest.mark.java("SelectorTest.ExistingConnectionId")
@pytest.mark.behaviour("SEL-01")
def test_a_connect_is_returned_once_when_it_is_done_and_an_existing_connection_id_is_a_bug(
    selector: Selector, peer: TcpPeer
) -> None:
    connect(selector, 7, peer)
    assert not selector.is_channel_ready(7)
    selector.poll(PATIENCE_MS)
    assert selector.connected == [7]
    assert selector.is_channel_ready(7)
    selector.poll(0)
    assert not selector.connected
    with pytest.raises(IllegalStateError, match="There is already a connection for id 7"):
        connect(selector, 7, peer)


@pytest.mark.java("SelectorTest.NoRouteToHost")
def test_no_route_to_host(selector: Selector) -> None:
    with no_descriptor_left_behind():
        for unusable in ("some.invalid.hostname.foo.bar.local", "224.0.0.1"):
            with pytest.raises(OSError, match=r"."):
                selector.connect(0, "localhost", (unusable, 9092), BUFFER_BYTES, BUFFER_BYTES)
        assert_empty(selector)


@pytest.mark.java("SelectorTest.ConnectionRefused")
@pytest.mark.behaviour("SEL-18")
def test_connection_refused(selector: Selector, caplog: pytest.LogCaptureFixture) -> None:
    peer = TcpPeer()
    peer.close()
    with caplog.at_level(logging.DEBUG, "client_core.network.selector"):
        connect(selector, 3, peer)
        assert poll_until_disconnected(selector, 3) is ChannelStateName.NOT_CONNECTED
    address = f"127.0.0.1:{peer.address[1]}"
    state = selector.disconnected[3]
    assert state.remote_address == address
    assert state.detail == "connection refused"
    assert isinstance(state.error, DisconnectError)
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert record.getMessage().startswith(f"Connection to node 3 at {address} disconnected: DisconnectError")
    assert_empty(selector)


def test_ipv6(selector: Selector) -> None:
    if not socket.has_ipv6:
        pytest.skip("this system has no IPv6")
    try:
        peer = ScriptedPeer(echo, "::1")
    except OSError:
        pytest.skip("this system has no ::1")
    with peer:
        blocking_connect(selector, 0, peer)
        assert exchange(selector, 0, b"hello") == b"hello"
        peer.close_connections()
        poll_until_disconnected(selector, 0)
        assert selector.disconnected[0].remote_address == f"[::1]:{peer.address[1]}"


@pytest.mark.java("SelectorTest.ImmediatelyConnectedCleaned")
@pytest.mark.parametrize("close_after_first_poll", [True, False])
def test_immediately_connected_cleaned(clock: MockClock, peer: TcpPeer, close_after_first_poll: bool) -> None:
    with selector_over(PlaintextChannelBuilder(), clock, immediately) as selector:
        connect(selector, 0, peer)
        if close_after_first_poll:
            selector.poll(FOREVER_MS)  # does not wait
            assert selector.connected == [0]
            assert selector.is_channel_ready(0)
        selector.close_connection(0)
        assert_empty(selector)


def test_register_failure(clock: MockClock, peer: TcpPeer) -> None:
    def failing(raised: Exception) -> BuilderOf:
        def fail(connection: socket.socket, remote_address: str) -> TransportLayer:
            raise raised

        return BuilderOf(fail)

    for raised, expected in (
        (ConfigError("no such key store"), OSError),
        (RuntimeError("a bug"), RuntimeError),
    ):
        with selector_over(failing(raised), clock) as selector, no_descriptor_left_behind():
            with pytest.raises(expected, match=str(raised)):
                connect(selector, 1, peer)
            assert_empty(selector)


@pytest.mark.java("SelectorTest.ConnectException")
def test_a_connect_that_fails_half_way_leaves_nothing_behind(clock: MockClock, peer: TcpPeer) -> None:
    class Unwatchable(PlaintextTransportLayer):
        def fileno(self) -> int:
            raise OSError("Test exception")

    builder = BuilderOf(Unwatchable)
    with selector_over(builder, clock, immediately) as selector:
        with no_descriptor_left_behind():
            with pytest.raises(OSError, match="Test exception"):
                connect(selector, 0, peer)
            assert_empty(selector)
        selector.poll(0)
        assert not selector.connected
        assert not selector.disconnected


@pytest.mark.java("SelectorTest.ConnectDisconnectDuringInSinglePoll")
@pytest.mark.behaviour("SEL-16")
def test_connect_disconnect_during_in_single_poll(clock: MockClock, peer: TcpPeer) -> None:
    class NoHandshake(PlaintextTransportLayer):
        def finish_connect(self) -> bool:
            is_connected = super().finish_connect()
            self.ready = False
            return is_connected

        def handshake(self) -> None:
            raise DisconnectError("the peer closed the connection")

    with selector_over(BuilderOf(NoHandshake), clock) as selector:
        connect(selector, 1, peer)
        assert poll_until_disconnected(selector, 1) is ChannelStateName.AUTHENTICATE
        assert not selector.connected
        assert_empty(selector)


def test_a_channel_is_ready_after_authentication_and_connected_before(
    clock: MockClock, peer: TcpPeer
) -> None:
    builder = BuilderOf(authenticator=lambda: ScriptedAuthenticator([b"who I am"]))
    with selector_over(builder, clock) as selector:
        connect(selector, 1, peer)
        selector.poll(PATIENCE_MS)
        assert selector.connected == [1]
        assert not selector.is_channel_ready(1)
        server = peer.accept()
        assert receive_frame(server) == b"who I am"
        server.sendall(frame(b"welcome") + frame(b"and more"))  # a broker would not; nothing may be lost
        while not selector.is_channel_ready(1):
            selector.poll(PATIENCE_MS)
        assert poll_until_received(selector) == [b"and more"]


@pytest.mark.behaviour("SEL-18")
def test_a_refused_log_in_is_reported_and_logged_as_such(
    clock: MockClock, peer: TcpPeer, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = SaslAuthenticationError("invalid credentials")
    builder = BuilderOf(authenticator=lambda: ScriptedAuthenticator([b"who I am"], refuse=refusal))
    with selector_over(builder, clock) as selector:
        connect(selector, 1, peer)
        server = peer.accept()
        selector.poll(PATIENCE_MS)
        server.sendall(frame(b"no"))
        with caplog.at_level(logging.DEBUG, "client_core.network.selector"):
            assert poll_until_disconnected(selector, 1) is ChannelStateName.AUTHENTICATION_FAILED
        assert selector.disconnected[1].error is refusal
        # The owner of the connection logs it for people, and not at each attempt.
        assert {record.levelname for record in caplog.records} == {"DEBUG"}
        assert "(invalid credentials)" in caplog.text


# -- sending and receiving -----------------------------------------------------------------------------------


@pytest.mark.java("SelectorTest.ServerDisconnect")
@pytest.mark.behaviour("SEL-10")
def test_server_disconnect(selector: Selector, echo_peer: ScriptedPeer) -> None:
    blocking_connect(selector, 0, echo_peer)
    assert exchange(selector, 0, b"hello") == b"hello"

    echo_peer.close_connections()
    assert poll_until_disconnected(selector, 0) is ChannelStateName.READY
    assert selector.disconnected[0].detail in (
        "the peer closed the connection",
        "the peer reset the connection",
    )
    assert_empty(selector)

    blocking_connect(selector, 0, echo_peer)
    assert exchange(selector, 0, b"hello") == b"hello"


@pytest.mark.java("SelectorTest.SendWithoutConnecting")
@pytest.mark.behaviour("SEL-02")
def test_send_without_connecting(selector: Selector) -> None:
    with pytest.raises(IllegalStateError, match="Connection id 0 existing connections"):
        selector.send(0, [b"test"])
    for act in (selector.mute, selector.unmute):
        with pytest.raises(IllegalStateError):
            act(0)
    selector.close_connection(9)  # does nothing
    assert_empty(selector)


@pytest.mark.java("SelectorTest.CantSendWithInProgress")
@pytest.mark.behaviour("SEL-03", "SEL-18")
def test_cant_send_with_in_progress(selector: Selector, echo_peer: ScriptedPeer) -> None:
    blocking_connect(selector, 0, echo_peer)
    selector.send(0, [b"test1"])
    with pytest.raises(IllegalStateError, match="prior send operation still in progress, connection id is 0"):
        selector.send(0, [b"test2"])
    selector.poll(FOREVER_MS)  # there is something to return, so it does not wait
    assert selector.disconnected[0].name is ChannelStateName.FAILED_SEND
    assert_empty(selector)


@pytest.mark.java("SelectorTest.NormalOperation")
def test_normal_operation(selector: Selector, echo_peer: ScriptedPeer) -> None:
    nodes, requests = range(5), 100
    for node_id in nodes:
        blocking_connect(selector, node_id, echo_peer)
    asked = dict.fromkeys(nodes, 0)
    answered = dict.fromkeys(nodes, 0)
    for node_id in nodes:
        selector.send(node_id, [f"{node_id}-0".encode()])
    while sum(answered.values()) < len(nodes) * requests:
        selector.poll(PATIENCE_MS)
        assert not selector.disconnected
        for receive in selector.completed_receives:
            assert receive.payload == f"{receive.node_id}-{answered[receive.node_id]}".encode()
            answered[receive.node_id] += 1
        for sent in selector.completed_sends:
            asked[sent.node_id] += 1
            if asked[sent.node_id] < requests:
                selector.send(sent.node_id, [f"{sent.node_id}-{asked[sent.node_id]}".encode()])
    assert answered == dict.fromkeys(nodes, requests)


@pytest.mark.java("SelectorTest.ClearCompletedSendsAndReceives")
@pytest.mark.behaviour("SEL-04")
def test_results_of_a_poll_are_gone_with_the_next(selector: Selector, peer: TcpPeer) -> None:
    server = accepted(selector, 0, peer)
    selector.send(0, [b"ab", b"c"])
    selector.poll(FOREVER_MS)  # a new send is written at once
    assert [(sent.node_id, sent.size_bytes) for sent in selector.completed_sends] == [(0, 7)]
    assert receive_frame(server) == b"abc"
    selector.poll(0)
    assert not selector.completed_sends
    server.sendall(frame(b"answer"))
    assert poll_until_received(selector) == [b"answer"]
    selector.poll(0)
    assert not selector.completed_receives


@pytest.mark.behaviour("SEL-09")
@pytest.mark.java(
    "SelectorTest.SendLargeRequest", "SelectorTest.LargeMessageSequence", "SelectorTest.EmptyRequest"
)
def test_requests_may_be_large_and_empty(selector: Selector, echo_peer: ScriptedPeer) -> None:
    blocking_connect(selector, 0, echo_peer)
    big = random.Random(1).randbytes(10 * BUFFER_BYTES)
    assert exchange(selector, 0, big) == big
    prefix = random.Random(2).randbytes(128 * 1024)
    for number in range(5):
        assert exchange(selector, 0, prefix + bytes([number])) == prefix + bytes([number])
    assert exchange(selector, 0, b"") == b""


@pytest.mark.behaviour("SEL-06", "SEL-17")
def test_a_send_of_many_pieces_to_a_slow_reader_arrives_whole(selector: Selector, peer: TcpPeer) -> None:
    server = accepted(selector, 0, peer)
    pieces = [bytes([number % 256]) * 1_000 for number in range(600)]
    received: list[bytes | None] = []
    reading = threading.Thread(target=lambda: received.append(receive_frame(server)))
    selector.send(0, pieces)
    selector.poll(0)
    assert not selector.completed_sends  # more than the system's buffers hold
    assert selector._channels[0].registered_interest == EVENT_READ | EVENT_WRITE
    reading.start()
    while not selector.completed_sends:
        selector.poll(PATIENCE_MS)
    reading.join()
    assert received == [b"".join(pieces)]
    assert selector._channels[0].registered_interest == EVENT_READ  # (SEL-06)


@pytest.mark.behaviour("SEL-04", "SEL-05")
def test_one_frame_of_a_channel_a_poll_and_the_next_without_waiting_unless_it_is_muted(
    selector: Selector, peer: TcpPeer
) -> None:
    server = accepted(selector, 0, peer)
    server.sendall(frame(b"one") + frame(b"two") + frame(b"three"))
    assert poll_until_received(selector) == [b"one"]
    selector.mute(0)
    selector.poll(0)
    assert not selector.completed_receives
    selector.unmute(0)
    for payload in (b"two", b"three"):
        selector.poll(FOREVER_MS)  # what is buffered doesn't wait for the network (SEL-05)
        assert [receive.payload for receive in selector.completed_receives] == [payload]
    selector.poll(0)
    assert not selector.completed_receives


@pytest.mark.behaviour("SEL-07")
def test_a_frame_in_pieces(selector: Selector, peer: TcpPeer) -> None:
    server = accepted(selector, 0, peer)
    whole = frame(b"in pieces")
    for byte in whole[:-1]:
        server.sendall(bytes([byte]))
        selector.poll(PATIENCE_MS)
        assert not selector.completed_receives
    server.sendall(whole[-1:])
    assert poll_until_received(selector) == [b"in pieces"]


@pytest.mark.java("SelectorTest.Mute")
def test_mute(selector: Selector, echo_peer: ScriptedPeer) -> None:
    blocking_connect(selector, 0, echo_peer)
    blocking_connect(selector, 1, echo_peer)
    selector.send(0, [b"hello"])
    selector.send(1, [b"hi"])
    selector.mute(1)
    while not selector.completed_receives:
        selector.poll(PATIENCE_MS)
    assert [receive.node_id for receive in selector.completed_receives] == [0]

    selector.unmute(1)
    selector.poll(PATIENCE_MS)
    while not selector.completed_receives:
        selector.poll(PATIENCE_MS)
    assert [(receive.node_id, receive.payload) for receive in selector.completed_receives] == [(1, b"hi")]


@pytest.mark.java("SelectorTest.WriteCompletesSendWithNoBytesWritten")
@pytest.mark.behaviour("SEL-17")
def test_write_completes_send_with_no_bytes_written(clock: MockClock, peer: TcpPeer) -> None:
    class Holding(PlaintextTransportLayer):
        """Takes every byte, and holds what it took until it is flushed."""

        def write(self, pieces: object) -> int:
            self.has_pending_writes = not self.has_pending_writes
            return sum(map(len, pieces)) if isinstance(pieces, list) else 0

    with selector_over(BuilderOf(Holding), clock) as selector:
        blocking_connect(selector, 1, peer)
        selector.send(1, [b"abc"])
        selector.poll(0)
        assert not selector.completed_sends
        selector.poll(PATIENCE_MS)
        assert [sent.size_bytes for sent in selector.completed_sends] == [7]


# -- the end of a connection ---------------------------------------------------------------------------------


@pytest.mark.java("SelectorTest.GracefulClose", "SelectorTest.PartialReceiveGracefulClose")
@pytest.mark.behaviour("SEL-10", "SEL-11")
def test_graceful_close(selector: Selector, peer: TcpPeer) -> None:
    whole = [b"0", b"1", b"2", b"3", b"4", b"5"]
    for sent, expected in (
        (b"".join(map(frame, whole)), whole),
        (struct.pack(">i", 100_000) + b"some of it", []),
    ):
        server = accepted(selector, 0, peer)
        server.sendall(sent)
        peer.close_connections()
        received = []
        while not selector.disconnected:
            selector.poll(PATIENCE_MS)
            assert len(selector.completed_receives) <= 1
            received += [receive.payload for receive in selector.completed_receives]
        assert received == expected
        assert selector.disconnected[0].name is ChannelStateName.READY
        assert_empty(selector)


@pytest.mark.behaviour("SEL-12")
def test_close_of_a_connection_is_not_reported_and_drops_what_is_pending(
    selector: Selector, peer: TcpPeer
) -> None:
    server = accepted(selector, 0, peer)
    server.sendall(frame(b"one") + frame(b"two"))
    assert poll_until_received(selector) == [b"one"]
    selector.send(0, [b"never sent"])
    selector.close_connection(0)
    selector.poll(0)
    assert not selector.disconnected
    assert not selector.completed_receives
    assert receive_frame(server) is None
    assert not selector.is_channel_ready(0)
    assert_empty(selector)
    connect(selector, 0, peer)
    selector.close_connection(0)  # while it is connecting
    selector.poll(0)
    assert not selector.connected
    assert not selector.disconnected
    assert_empty(selector)


@pytest.mark.behaviour("SEL-13")
def test_a_failure_while_sending_is_reported_and_drops_unread_frames(clock: MockClock, peer: TcpPeer) -> None:
    class Unwritable(PlaintextTransportLayer):
        def write(self, pieces: object) -> int:
            raise DisconnectError("the peer closed the connection")

    with selector_over(BuilderOf(Unwritable), clock) as selector:
        server = accepted(selector, 0, peer)
        server.sendall(frame(b"one") + frame(b"two"))
        await_bytes(selector, 0)
        selector.send(0, [b"x"])
        selector.poll(0)
        assert [receive.payload for receive in selector.completed_receives] == [b"one"]
        assert selector.disconnected[0].name is ChannelStateName.READY
        assert_empty(selector)
        assert not selector.completed_receives


@pytest.mark.java("SelectorTest.ChannelCloseWhileProcessingReceives")
def test_channel_close_while_processing_receives(selector: Selector, peer: TcpPeer) -> None:
    servers = [accepted(selector, node_id, peer) for node_id in range(4)]
    for server in servers:
        server.sendall(frame(b"x") + frame(b"y"))
    for node_id in range(4):
        await_bytes(selector, node_id)
    selector.poll(0)
    assert len(selector.completed_receives) == 4
    for receive in list(selector.completed_receives)[:2]:
        selector.close_connection(receive.node_id)
    selector.poll(0)
    assert len(selector.completed_receives) == 2
    assert not selector.disconnected


def test_an_exception_in_a_channel_is_raised_and_the_next_poll_returns_the_disconnect(
    clock: MockClock, peer: TcpPeer
) -> None:
    class Buggy(PlaintextTransportLayer):
        def read(self, max_bytes: int) -> bytes | None:
            raise RuntimeError("a bug")

    with selector_over(BuilderOf(Buggy), clock) as selector, no_descriptor_left_behind():
        server = accepted(selector, 0, peer)
        accepted(selector, 1, peer)
        server.sendall(b"x")
        await_bytes(selector, 0)
        selector.send(1, [b"not lost"])
        with pytest.raises(RuntimeError, match="a bug"):
            selector.poll(0)
        selector.poll(FOREVER_MS)
        assert list(selector.disconnected) == [0]
        assert [sent.node_id for sent in selector.completed_sends] == [1]
        selector.close_connection(1)
        peer.close_connections()
        assert_empty(selector)


# -- idle connections ----------------------------------------------------------------------------------------


@pytest.mark.java("SelectorTest.CloseOldestConnection", "SelectorTest.IdleExpiryWithoutReadyKeys")
@pytest.mark.behaviour("SEL-14", "SEL-18")
@pytest.mark.parametrize("is_muted", [False, True])
def test_close_oldest_connection(selector: Selector, peer: TcpPeer, clock: MockClock, is_muted: bool) -> None:
    blocking_connect(selector, 0, peer)
    if is_muted:
        selector.mute(0)
    clock.advance(MAX_IDLE_MS)
    selector.poll(0)
    assert not selector.disconnected
    clock.advance(1)
    selector.poll(0)
    assert selector.disconnected[0].name is ChannelStateName.EXPIRED
    assert selector.disconnected[0].detail == "idle for more than 5000 ms"
    assert_empty(selector)


@pytest.mark.behaviour("SEL-14")
def test_one_idle_connection_a_poll_the_oldest_first(
    selector: Selector, echo_peer: ScriptedPeer, clock: MockClock
) -> None:
    for node_id in (1, 2):
        blocking_connect(selector, node_id, echo_peer)
    clock.advance(1)
    exchange(selector, 1, b"still here")
    clock.advance(MAX_IDLE_MS + 1)
    selector.poll(0)
    assert list(selector.disconnected) == [2]
    selector.poll(0)
    assert list(selector.disconnected) == [1]


@pytest.mark.java(
    "SelectorTest.ExpireConnectionWithPendingReceives",
    "SelectorTest.ExpireClosedConnectionWithPendingReceives",
    "SelectorTest.CloseOldestConnectionWithMultiplePendingReceives",
)
@pytest.mark.parametrize(("is_muted", "peer_closes"), [(True, False), (True, True), (False, False)])
def test_expire_connection_with_pending_receives(
    selector: Selector, peer: TcpPeer, clock: MockClock, is_muted: bool, peer_closes: bool
) -> None:
    server = accepted(selector, 0, peer)
    if is_muted:  # else the connection is read, which is activity
        selector.mute(0)
    server.sendall(b"".join(frame(b"%d" % number) for number in range(5)))
    if peer_closes:
        peer.close_connections()
    await_bytes(selector, 0)
    received = polls = 0
    while not selector.disconnected:
        clock.advance(MAX_IDLE_MS + 1)
        selector.poll(0 if is_muted or received == 5 else PATIENCE_MS)
        received += len(selector.completed_receives)
        polls += 1
    assert (received, polls == 1) == (0 if is_muted else 5, is_muted)
    assert selector.disconnected[0].name is ChannelStateName.EXPIRED
    assert_empty(selector)


def test_without_a_limit_no_connection_is_ever_idle_and_without_settings_the_limits_are_these(
    peer: TcpPeer, clock: MockClock
) -> None:
    assert NetworkConfig() == NetworkConfig(
        connections_max_idle_ms=540_000,  # Kafka's default
        max_receive_bytes=1_048_576,
        receive_memory_bytes=16_777_216,
    )
    never = NetworkConfig(connections_max_idle_ms=None)
    with selector_over(PlaintextChannelBuilder(), clock, config=never) as selector:
        blocking_connect(selector, 0, peer)
        clock.advance(10**9)
        selector.poll(0)
        assert not selector.disconnected


# -- polling -------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SEL-04")
def test_a_poll_returns_the_time_after_it_and_refuses_a_negative_timeout(
    selector: Selector, clock: MockClock
) -> None:
    clock.advance(42)
    assert selector.poll(0) == 42
    with pytest.raises(IllegalArgumentError, match="timeout should be >= 0"):
        selector.poll(-1)


def test_waits_of_polls_are_added_up_and_a_poll_that_may_not_wait_adds_nothing() -> None:
    with selector_over(PlaintextChannelBuilder(), MockClock(auto_tick_ms=5)) as selector:
        selector.poll(0)
        assert selector.waited_ms == 0
        for polls in (1, 2):
            selector.poll(1)
            assert selector.waited_ms == 5 * polls


def test_selector_and_fakes_are_what_the_seams_ask_for(selector: Selector) -> None:
    selectable: Selectable = selector
    transport: TransportLayer = FakeTransport()
    assert selectable.poll(0) == 0
    assert not transport.ready


@pytest.mark.behaviour("SEL-15")
def test_a_wakeup_ends_the_poll_under_way_or_the_next_one(selector: Selector) -> None:
    woken = threading.Thread(target=selector.poll, args=(FOREVER_MS,))
    woken.start()
    selector.wakeup()
    woken.join(PATIENCE_MS / 1000)
    assert not woken.is_alive()
    selector.wakeup()
    selector.wakeup()
    selector.poll(FOREVER_MS)
    ready = selector._selector.select(0)
    assert not ready  # and it alone


def test_no_command_is_lost_between_threads_that_wake_and_a_loop_that_drains(selector: Selector) -> None:
    commands: deque[int] = deque()
    threads, each = 4, 500

    def post(first: int) -> None:
        for number in range(first, first + each):
            commands.append(number)
            selector.wakeup()

    posting = [threading.Thread(target=post, args=(n * each,)) for n in range(threads)]
    for thread in posting:
        thread.start()
    drained: set[int] = set()
    while len(drained) < threads * each:
        selector.poll(FOREVER_MS)
        while commands:
            drained.add(commands.popleft())
    for thread in posting:
        thread.join()


def test_an_idle_channel_is_not_touched_by_a_poll(clock: MockClock, peer: TcpPeer) -> None:
    builder = BuilderOf()
    with selector_over(builder, clock) as selector:
        idle = accepted(selector, 0, peer)
        busy = accepted(selector, 1, peer)
        clock.advance(10)
        busy.sendall(frame(b"x"))
        poll_until_received(selector)
        assert selector._idle_expiry is not None
        assert selector._idle_expiry._last_active_ms == {0: 0, 1: 10}
        idle.close()


# -- nothing left behind -------------------------------------------------------------------------------------


def test_close_frees_every_descriptor_and_may_be_repeated(clock: MockClock, peer: TcpPeer) -> None:
    with no_descriptor_left_behind():
        builder = BuilderOf()
        selector = Selector(CONFIG, builder, clock)
        for node_id in range(3):
            connect(selector, node_id, peer)
        selector.poll(PATIENCE_MS)
        selector.close()
        selector.close()
        assert builder.is_closed
    selector.wakeup()  # comes late, and hurts nobody


@pytest.mark.java("SelectorTest.CloseAllChannels")
def test_close_all_channels(clock: MockClock, peer: TcpPeer) -> None:
    class Objecting(PlaintextTransportLayer):
        def close(self) -> None:
            super().close()
            if self.remote_address == "first":
                raise RuntimeError("you should fail")

    names = iter(["first", "second"])
    builder = BuilderOf(lambda connection, _: Objecting(connection, next(names)))
    with no_descriptor_left_behind():
        selector = Selector(CONFIG, builder, clock)
        connect(selector, 0, peer)
        connect(selector, 1, peer)
        with pytest.raises(RuntimeError, match="you should fail"):
            selector.close()
        assert builder.is_closed


def test_connections_that_come_and_go_leave_no_descriptor(selector: Selector, peer: TcpPeer) -> None:
    with no_descriptor_left_behind():
        for _ in range(20):
            server = accepted(selector, 0, peer)
            server.close()
            poll_until_disconnected(selector, 0)
            peer.close_connections()
        assert_empty(selector)


def test_an_ended_channel_is_freed_without_the_garbage_collector(clock: MockClock, peer: TcpPeer) -> None:
    builder = BuilderOf()
    selector = Selector(CONFIG, builder, clock)
    gc.disable()
    try:
        accepted(selector, 0, peer).close()
        poll_until_disconnected(selector, 0)
        kept = selector.disconnected[0]
        assert kept.error is not None
        assert builder.channels[0]() is None
        blocking_connect(selector, 1, peer)
        selector.close_connection(1)
        assert builder.channels[1]() is None
    finally:
        gc.enable()
        selector.close()
