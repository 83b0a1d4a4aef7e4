"""The proxy passes bytes to where it was last pointed, and keeps its own address."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from tests.support.tcp_peers import ScriptedPeer, TcpPeer, echo, frame, receive_exactly, say
from tests.support.tcp_proxy import TcpProxy


def _connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(proxy.address, timeout=10)


def _is_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_bytes_pass_both_ways() -> None:
    with ScriptedPeer(echo) as peer, TcpProxy(peer.address) as proxy, closing(_connect(proxy)) as client:
        sent = frame(b"x" * 300_000)
        client.sendall(sent)
        assert receive_exactly(client, len(sent)) == sent


def test_the_end_of_one_side_reaches_the_other() -> None:
    with TcpPeer() as peer, TcpProxy(peer.address) as proxy, closing(_connect(proxy)) as client:
        accepted = peer.accept()
        accepted.sendall(b"last words")
        accepted.shutdown(socket.SHUT_WR)
        assert receive_exactly(client, 10) == b"last words"
        assert _is_ended(client)


def test_new_connections_go_where_it_points_now_and_old_ones_keep_their_target() -> None:
    with ScriptedPeer(echo) as old, ScriptedPeer(say(b"new")) as new, TcpProxy(old.address) as proxy:
        with closing(_connect(proxy)) as before:
            before.sendall(frame(b"a"))
            assert receive_exactly(before, 5) == frame(b"a")
            proxy.retarget(new.address)
            with closing(_connect(proxy)) as after:
                after.sendall(b"?")
                assert receive_exactly(after, 3) == b"new"
            before.sendall(frame(b"b"))
            assert receive_exactly(before, 5) == frame(b"b")
        assert proxy.accepted == 2


def test_sever_ends_connections_and_goes_on_listening() -> None:
    with ScriptedPeer(echo) as peer, TcpProxy(peer.address) as proxy:
        with closing(_connect(proxy)) as client:
            client.sendall(frame(b"a"))
            assert receive_exactly(client, 5) == frame(b"a")
            proxy.sever()
            assert proxy.open_connections == 0
            assert _is_ended(client)
        with closing(_connect(proxy)) as again:
            again.sendall(frame(b"b"))
            assert receive_exactly(again, 5) == frame(b"b")


def test_a_target_that_refuses_is_the_end_of_the_clients_connection() -> None:
    with TcpPeer() as peer:
        nobody = peer.address
    with TcpProxy(nobody) as proxy, closing(_connect(proxy)) as client:
        assert _is_ended(client)


def test_it_can_refuse_and_listen_again_at_the_same_address() -> None:
    with ScriptedPeer(echo) as peer, TcpProxy(peer.address) as proxy:
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            _connect(proxy)
        proxy.listen()
        with closing(_connect(proxy)) as client:
            client.sendall(frame(b"a"))
            assert receive_exactly(client, 5) == frame(b"a")
