"""The peers on loopback: what each says, and that none leaves a socket or a thread behind."""

from __future__ import annotations

import gc
import os
import socket
import threading

import pytest

from tests.support.tcp_peers import (
    HTTP_ANSWER,
    HUGE_SIZE,
    TLS_ALERT,
    ScriptedPeer,
    TcpPeer,
    close_after_first_frame,
    close_at_once,
    echo,
    frame,
    in_pieces,
    promise_two_gigabytes,
    receive_exactly,
    receive_frame,
    say,
    speak_http,
    speak_tls,
    stay_silent,
)


def call(peer: TcpPeer) -> socket.socket:
    return socket.create_connection(peer.address, 10)


def everything_from(connection: socket.socket) -> bytes:
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def test_a_tcp_peer_is_played_by_the_test() -> None:
    with TcpPeer() as peer, call(peer) as client:
        server = peer.accept()
        client.sendall(frame(b"ping"))
        assert receive_frame(server) == b"ping"
        server.sendall(b"pong")
        assert receive_exactly(client, 4) == b"pong"
        peer.close_connections()
        assert client.recv(1) == b""


def test_echo_answers_frame_by_frame() -> None:
    with ScriptedPeer(echo) as peer, call(peer) as one, call(peer) as other:
        for client in (one, other, one):
            client.sendall(frame(b"hello"))
            assert receive_frame(client) == b"hello"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (close_at_once, b""),
        (close_after_first_frame, b""),
        (say(b"a", b"bc"), b"abc"),
        (speak_http, HTTP_ANSWER),
        (speak_tls, TLS_ALERT),
    ],
)
def test_scripts_that_end(script: object, said: bytes) -> None:
    assert callable(script)
    with ScriptedPeer(script) as peer, call(peer) as client:
        if script is not close_at_once:
            client.sendall(frame(b"hello"))
        assert everything_from(client) == said


def test_the_huge_size_is_followed_by_ten_bytes_and_silence() -> None:
    with ScriptedPeer(promise_two_gigabytes) as peer, call(peer) as client:
        client.sendall(b"x")
        assert receive_exactly(client, 14) == HUGE_SIZE
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)


def test_a_silent_peer_takes_everything_and_says_nothing() -> None:
    with ScriptedPeer(stay_silent) as peer, call(peer) as client:
        client.sendall(b"x" * 100_000)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_receiving_tells_the_end_of_the_stream_from_a_frame() -> None:
    with TcpPeer() as peer, call(peer) as client:
        server = peer.accept()
        server.sendall(frame(b"whole") + b"\x00\x00\x00\x05half")
        peer.close_connections()
        assert receive_frame(client) == b"whole"
        assert receive_frame(client) is None
        assert receive_frame(client) is None


def test_peers_leave_no_socket_and_no_thread_behind() -> None:
    gc.collect()
    descriptors, threads = set(os.listdir("/proc/self/fd")), threading.active_count()
    with ScriptedPeer(stay_silent) as peer, TcpPeer() as manual, call(peer), call(manual):
        manual.accept()
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads


def test_in_pieces_cuts_and_keeps_every_byte() -> None:
    assert in_pieces(b"abcdef", [1, 2]) == [b"a", b"bc", b"def"]
    assert in_pieces(b"ab", [1, 0, 1]) == [b"a", b"b"]
