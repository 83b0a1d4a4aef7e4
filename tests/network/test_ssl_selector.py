"""The selector with TLS: buffered bytes, idle connections, renegotiation and new keys.

Twins of SslSelectorTest, Tls12SelectorTest and Tls13SelectorTest (Kafka 4.3), by name.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from client_core.network.selectable import ChannelStateName
from client_core.network.ssl_context import SslContexts
from client_core.network.ssl_transport_layer import SslTransportLayer
from client_core.network.transport_layer import PlaintextTransportLayer
from tests.network.tls_clients import ssl_config
from tests.network.tls_selector import (
    MAX_IDLE_MS,
    PATIENCE_MS,
    WatchedChannels,
    check_connection,
    connect,
    selector_over,
    tls,
    wait_for_end,
    wait_until_ready,
)
from tests.support.certificates import Authority
from tests.support.mock_clock import MockClock
from tests.support.tcp_peers import TcpPeer, echo, frame, receive_frame
from tests.support.tls_peers import TLS12, TLS13, OpensslServer, TlsPeer, server_context

if TYPE_CHECKING:
    import socket

    from client_core.network.selector import Selector

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("localhost")

both_versions = pytest.mark.parametrize("version", [TLS12, TLS13])
needs_openssl = pytest.mark.skipif(
    OpensslServer.command() is None, reason="no command openssl on this machine"
)


def assert_empty(selector: Selector, node_id: int) -> None:
    """Nothing is left of a connection, and its end is not reported."""
    assert not selector.is_channel_ready(node_id)
    selector.poll(0)
    assert not selector.completed_receives
    assert not selector.completed_sends
    assert not selector.disconnected


def send_each(selector: Selector, *payloads: bytes) -> None:
    for payload in payloads:
        selector.send(0, [payload])
        selector.poll(PATIENCE_MS)
        while not selector.completed_sends:
            selector.poll(PATIENCE_MS)


def answer_two_at_once(connection: socket.socket) -> None:
    """Sends frames back two by two, so that a read brings both."""
    while (one := receive_frame(connection)) is not None and (other := receive_frame(connection)) is not None:
        connection.sendall(frame(one) + frame(other))


@pytest.mark.behaviour("SEL-05", "SEL-12")
@pytest.mark.java("SslSelectorTest.DisconnectWithIntermediateBufferedBytes")
@both_versions
def test_a_close_drops_what_is_buffered(version: str) -> None:
    context = server_context(BROKER, protocols=[version])
    builder = tls(ssl_config(AUTHORITY.certificate))
    with TlsPeer(context, answer_two_at_once) as peer, selector_over(builder) as selector:
        connect(selector, 0, peer)
        wait_until_ready(selector, 0)
        send_each(selector, b"one", b"other")
        while not selector.completed_receives:
            selector.poll(PATIENCE_MS)
        assert [receive.payload for receive in selector.completed_receives] == [b"one"]
        assert builder.channel(0).has_bytes_buffered
        selector.close_connection(0)
        assert_empty(selector, 0)


class CountingTransport(SslTransportLayer):
    """TLS that counts how often it is asked to read."""

    reads = 0

    def read(self, max_bytes: int) -> bytes | None:
        self.reads += 1
        return super().read(max_bytes)


class CountingTransports:
    """TLS connections whose reads are counted, in the order in which they were made."""

    def __init__(self) -> None:
        self.made: list[CountingTransport] = []
        self._contexts = SslContexts(ssl_config(AUTHORITY.certificate, protocols=[TLS12]))

    def transport(self, host: str, connection: socket.socket, remote_address: str) -> CountingTransport:
        under = PlaintextTransportLayer(connection, remote_address)
        self.made.append(CountingTransport(under, self._contexts.context(), host))
        return self.made[-1]


class TlsByHand:
    """A server's side of a connection whose encrypted bytes a test sends as it likes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(False)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = server_context(BROKER, protocols=[TLS12])
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def step(self) -> bool:
        """Continues the handshake, if bytes came; returns whether it is done."""
        try:
            self._incoming.write(self._connection.recv(65536))
        except BlockingIOError:
            return False
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._connection.sendall(self._outgoing.read())
        return True

    def encrypt(self, data: bytes) -> bytes:
        self._ssl.write(data)
        return self._outgoing.read()


@pytest.mark.behaviour("SEL-05")
@pytest.mark.java(
    "SslSelectorTest.BytesBufferedChannelWithNoIncomingBytes", "SslSelectorTest.BytesBufferedChannelAfterMute"
)
@pytest.mark.parametrize("is_muted", [False, True])
def test_half_a_record_and_buffered_bytes_of_a_muted_channel_are_not_asked_for(is_muted: bool) -> None:
    """One connection has bytes that can't be used yet; it is not read while another connection works."""
    transports = CountingTransports()
    builder = WatchedChannels(transports)
    peer = TlsPeer(server_context(BROKER, protocols=[TLS12]), echo)
    with peer, TcpPeer() as half_peer, selector_over(builder) as selector:
        connect(selector, 1, half_peer)
        connection = half_peer.accept()
        by_hand = TlsByHand(connection)
        while not by_hand.step():
            selector.poll(1)
        wait_until_ready(selector, 1)
        record = by_hand.encrypt(frame(b"one") + frame(b"other") if is_muted else frame(b"x" * 1000))
        connection.sendall(record if is_muted else record[:500])
        selector.poll(PATIENCE_MS)
        received = [receive.payload for receive in selector.completed_receives]
        assert received == ([b"one"] if is_muted else [])
        assert builder.channel(1).has_bytes_buffered is is_muted
        if is_muted:
            selector.mute(1)
        reads = transports.made[0].reads
        connect(selector, 2, peer)
        check_connection(selector, 2, size=10, count=100)
        assert transports.made[0].reads == reads


@pytest.mark.behaviour("SEL-05")
def test_buffered_bytes_are_delivered_without_another_byte_from_the_network() -> None:
    builder = tls(ssl_config(AUTHORITY.certificate))
    with TlsPeer(server_context(BROKER), answer_two_at_once) as peer, selector_over(builder) as selector:
        connect(selector, 0, peer)
        wait_until_ready(selector, 0)
        received: list[bytes] = []
        send_each(selector, b"one", b"other")
        while len(received) < 2:
            selector.poll(PATIENCE_MS)
            assert len(selector.completed_receives) <= 1  # at most one per poll
            received += [receive.payload for receive in selector.completed_receives]
        assert received == [b"one", b"other"]


@pytest.mark.behaviour("SEL-11")
@both_versions
def test_answers_that_came_before_the_end_are_delivered_before_it(version: str) -> None:
    def answer_and_leave(connection: socket.socket) -> None:
        receive_frame(connection)
        connection.sendall(frame(b"one") + frame(b"two") + frame(b"three"))
        assert isinstance(connection, ssl.SSLSocket)
        connection.unwrap()

    context = server_context(BROKER, protocols=[version])
    builder = tls(ssl_config(AUTHORITY.certificate))
    with TlsPeer(context, answer_and_leave) as peer, selector_over(builder) as selector:
        connect(selector, 0, peer)
        wait_until_ready(selector, 0)
        selector.send(0, [b"request"])
        received: list[bytes] = []
        while not selector.disconnected:
            selector.poll(PATIENCE_MS)
            received += [receive.payload for receive in selector.completed_receives]
        assert received == [b"one", b"two", b"three"]
        assert selector.disconnected[0].name is ChannelStateName.READY


@pytest.mark.behaviour("SSL-04")
@pytest.mark.java("Tls12SelectorTest.RenegotiationFails")
@needs_openssl
def test_a_renegotiation_ends_the_connection() -> None:
    config = ssl_config(AUTHORITY.certificate, protocols=[TLS12])
    with OpensslServer(BROKER, "-tls1_2") as server, selector_over(tls(config)) as selector:
        connect(selector, 0, server)
        wait_until_ready(selector, 0)
        selector.send(0, [b"request"])
        selector.poll(0)
        server.wait_for(b"request")
        server.say(b"r\n")
        state = wait_for_end(selector, 0, ChannelStateName.READY)
        server.wait_for(b"no renegotiation")
    assert state.detail is not None
    assert state.detail.startswith("TLS failed: ")


@pytest.mark.java("Tls13SelectorTest.KeyUpdate")
@needs_openssl
def test_new_keys_pass_unseen() -> None:
    config = ssl_config(AUTHORITY.certificate, protocols=[TLS13])
    # Without tickets the new keys are the first that comes: nothing else ends the poll that waits for them,
    # and what is said after it is no part of the order that openssl reads.
    server = OpensslServer(BROKER, "-tls1_3", "-num_tickets", "0")
    with server, selector_over(tls(config)) as selector:
        connect(selector, 0, server)
        wait_until_ready(selector, 0)
        selector.send(0, [b"with the old keys"])
        selector.poll(0)
        server.wait_for(b"with the old keys")
        server.say(b"K\n")  # new keys, and the client shall renew its own
        selector.poll(PATIENCE_MS)  # they have come, so openssl has sent them
        assert not selector.completed_receives
        server.say(frame(b"answer"))
        received: list[bytes] = []
        while not received:
            selector.poll(PATIENCE_MS)
            assert not selector.disconnected
            received = [receive.payload for receive in selector.completed_receives]
        assert received == [b"answer"]
        selector.send(0, [b"with the new keys"])
        selector.poll(0)
        server.wait_for(b"with the new keys")


@pytest.mark.behaviour("SEL-14")
@pytest.mark.java("Tls13SelectorTest.CloseOldestConnection")
@both_versions
def test_an_idle_connection_is_closed(version: str) -> None:
    clock = MockClock()
    context = server_context(BROKER, protocols=[version])
    builder = tls(ssl_config(AUTHORITY.certificate))
    with TlsPeer(context, echo) as peer, selector_over(builder, clock) as selector:
        connect(selector, 0, peer)
        while 0 not in selector.connected:
            selector.poll(PATIENCE_MS)
        check_connection(selector, 0)
        clock.advance(MAX_IDLE_MS + 1_000)
        selector.poll(0)
        assert selector.disconnected[0].name is ChannelStateName.EXPIRED
