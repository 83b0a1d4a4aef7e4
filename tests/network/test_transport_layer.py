"""PlaintextTransportLayer and open_socket: a socket's answers in our words, over loopback."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from client_core.errors import DisconnectError
from client_core.network.transport_layer import PlaintextTransportLayer, format_address, open_socket
from tests.support.tcp_peers import TcpPeer

if TYPE_CHECKING:
    from collections.abc import Iterator

OS_DEFAULT = -1


@pytest.fixture
def peer() -> Iterator[TcpPeer]:
    with TcpPeer() as listening:
        yield listening


@pytest.fixture
def transport(peer: TcpPeer) -> Iterator[PlaintextTransportLayer]:
    made = connect(peer)
    yield made
    made.close()


def connect(peer: TcpPeer) -> PlaintextTransportLayer:
    connection, _ = open_socket(peer.address, OS_DEFAULT, OS_DEFAULT)
    made = PlaintextTransportLayer(connection, format_address(peer.address))
    select.select([], [made], [], 10)
    assert made.finish_connect()
    return made


def await_bytes(transport: PlaintextTransportLayer) -> None:
    assert select.select([transport], [], [], 10)[0], "nothing came"


def write_until_refused(transport: PlaintextTransportLayer) -> None:
    hung_up = select.poll()
    hung_up.register(transport, 0)  # errors and hang-ups alone
    hung_up.poll(10_000)
    transport.write([b"x"])
    transport.write([b"x"])  # the first write may have brought the reset itself


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.behaviour("SEL-01")
def test_sockets_are_non_blocking_keep_alive_and_without_delay(peer: TcpPeer) -> None:
    connection, _ = open_socket(peer.address, 131072, 32768)
    with connection:
        assert not connection.getblocking()
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 131072
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (32768, 65536)


@pytest.mark.behaviour("SEL-01")
def test_buffer_sizes_of_minus_one_leave_the_systems_own(peer: TcpPeer) -> None:
    with socket.socket() as untouched:
        system_default = untouched.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    connection, _ = open_socket(peer.address, OS_DEFAULT, OS_DEFAULT)
    with connection:
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= system_default


def test_a_name_is_refused_at_once_instead_of_resolved_and_what_the_system_refuses_is_an_os_error() -> None:
    with pytest.raises(socket.gaierror):
        open_socket(("localhost", 9092), OS_DEFAULT, OS_DEFAULT)
    with pytest.raises(OSError, match="nreachable"):
        open_socket(("224.0.0.1", 9092), OS_DEFAULT, OS_DEFAULT)  # TCP has no multicast


class _Failing(socket.socket):
    """A connection that has failed so."""

    def __init__(self, error: int) -> None:
        super().__init__()
        self._error = error

    def getsockopt(self, *_: object) -> int:  # type: ignore[override]
        return self._error

    def recv(self, *_: int) -> bytes:
        raise OSError(self._error, os.strerror(self._error))


def test_each_end_of_a_connection_and_why_a_connect_failed_have_their_sentences() -> None:
    ends = {
        errno.ECONNREFUSED: "connection refused",
        errno.ECONNRESET: "the peer reset the connection",
        errno.EPIPE: "the peer closed the connection",
        errno.ETIMEDOUT: "connection timed out",
        errno.EHOSTUNREACH: "no route to host",
        errno.ENETUNREACH: "network is unreachable",
        errno.ENOBUFS: "no buffer space available",
        errno.EADDRNOTAVAIL: "cannot assign requested address",
    }
    for code, said in ends.items():
        with contextlib.closing(PlaintextTransportLayer(_Failing(code), "127.0.0.1:1")) as made:
            with pytest.raises(DisconnectError) as caught:
                made.finish_connect()
            assert caught.value.message == said
            with pytest.raises(DisconnectError) as caught:
                made.read(10)
            assert caught.value.message == said


def test_a_refused_connect_is_a_disconnect_error_with_the_system_error_behind_it() -> None:
    connection, _ = open_socket(("127.0.0.1", unused_port()), OS_DEFAULT, OS_DEFAULT)
    made = PlaintextTransportLayer(connection, "127.0.0.1:1")
    try:
        select.select([], [made], [], 10)
        with pytest.raises(DisconnectError) as caught:
            made.finish_connect()
        assert caught.value.message == "connection refused"
        assert not made.ready
    finally:
        made.close()


def test_a_connect_that_is_still_under_way_is_not_finished_and_a_socket_that_met_itself_is_refused() -> None:
    with socket.socket() as unconnected:
        made = PlaintextTransportLayer(unconnected, "nowhere")
        assert not made.finish_connect()
        assert not made.ready
    with socket.socket() as alone:
        alone.bind(("127.0.0.1", 0))
        alone.connect(alone.getsockname())
        with pytest.raises(DisconnectError, match="no process listens on that port"):
            PlaintextTransportLayer(alone, "itself").finish_connect()


def test_reading_brings_some_bytes_or_none_and_the_end_raises(
    peer: TcpPeer, transport: PlaintextTransportLayer
) -> None:
    server = peer.accept()
    assert transport.read(10) is None
    server.sendall(b"abc")
    await_bytes(transport)
    assert transport.read(2) == b"ab"
    assert transport.read(2) == b"c"
    server.close()
    await_bytes(transport)
    with pytest.raises(DisconnectError) as caught:
        transport.read(2)
    assert caught.value.message == "the peer closed the connection"


def test_a_reset_is_distinguished_from_a_close(peer: TcpPeer, transport: PlaintextTransportLayer) -> None:
    server = peer.accept()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    server.close()
    await_bytes(transport)
    with pytest.raises(DisconnectError) as caught:
        transport.read(2)
    assert caught.value.message == "the peer reset the connection"
    assert isinstance(caught.value.__cause__, ConnectionResetError)


def test_writing_gathers_pieces_and_takes_what_the_system_takes(
    peer: TcpPeer, transport: PlaintextTransportLayer
) -> None:
    server = peer.accept()
    assert transport.write([b"ab", memoryview(b"cde")[1:]]) == 4
    assert server.recv(10) == b"abde"
    written = 0
    while taken := transport.write([bytes(1 << 20)]):
        written += taken
    assert written > 0  # then nobody reads, and the system's buffers are full
    assert transport.write([b"x"]) == 0


def test_writing_to_a_closed_peer_is_a_disconnect_error(
    peer: TcpPeer, transport: PlaintextTransportLayer
) -> None:
    peer.accept()
    peer.close_connections()
    await_bytes(transport)
    transport.write([b"x"])  # the system takes it, and the peer answers with a reset
    with pytest.raises(DisconnectError, match="the peer closed the connection"):
        write_until_refused(transport)


def test_close_frees_the_descriptor_and_may_be_repeated(transport: PlaintextTransportLayer) -> None:
    transport.close()
    transport.close()
    assert transport.fileno() == -1
    assert not transport.ready


def test_ipv6_addresses_are_written_in_brackets() -> None:
    assert format_address(("127.0.0.1", 9092)) == "127.0.0.1:9092"
    assert format_address(("::1", 9092)) == "[::1]:9092"
