"""The peers that speak TLS: what each says of a handshake, and that none leaves anything behind."""

from __future__ import annotations

import gc
import os
import socket
import ssl
import threading

import pytest

from client_core.errors import DisconnectError
from tests.support.certificates import Authority
from tests.support.tcp_peers import echo, frame, receive_frame
from tests.support.tls_peers import TLS12, TLS13, OpensslServer, TlsPeer, TlsPipe, say_goodbye, server_context

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("localhost")
CLIENT = AUTHORITY.issue("client")


def client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=AUTHORITY.certificate)
    return context


def call(peer: TlsPeer | OpensslServer, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(socket.create_connection(peer.address, 10), server_hostname="localhost")


@pytest.mark.parametrize("version", [TLS12, TLS13])
def test_a_peer_plays_its_script_behind_tls_and_tells_of_the_handshake(version: str) -> None:
    with (
        TlsPeer(server_context(BROKER, protocols=[version]), echo) as peer,
        call(peer, client_context()) as client,
    ):
        client.sendall(frame(b"hello"))
        assert receive_frame(client) == b"hello"
        handshake = peer.next_handshake()
        assert (handshake.error, handshake.version) == (None, version)
        assert handshake.cipher == (client.cipher() or ("",))[0]
        assert handshake.client_certificate is None
        assert peer.server_names == ["localhost"]


def test_a_peer_tells_of_a_handshake_that_failed() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with TlsPeer(server_context(BROKER), echo) as peer:
        raw = socket.create_connection(peer.address, 10)
        with raw, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(raw, server_hostname="localhost")
        error = peer.next_handshake().error
        assert isinstance(error, ssl.SSLError)
        assert error.reason == "TLSV1_ALERT_UNKNOWN_CA"


def test_a_peer_asks_for_a_certificate_if_it_is_told_to() -> None:
    context = server_context(BROKER, client_auth="required", trusts=AUTHORITY.certificate, protocols=[TLS12])
    with TlsPeer(context, echo) as peer:
        with pytest.raises(ssl.SSLError):
            call(peer, client_context())
        assert peer.next_handshake().error is not None


def test_a_goodbye_is_the_end_of_the_stream() -> None:
    with TlsPeer(server_context(BROKER), say_goodbye) as peer, call(peer, client_context()) as client:
        assert client.recv(1) == b""


def test_peers_leave_no_socket_and_no_thread_behind() -> None:
    gc.collect()
    descriptors, threads = set(os.listdir("/proc/self/fd")), threading.active_count()
    with TlsPeer(server_context(BROKER), echo) as peer, call(peer, client_context()) as client:
        client.sendall(frame(b"hello"))
        assert receive_frame(client) == b"hello"
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads


class Caller:
    """A client's TLS over a pipe, by hand."""

    def __init__(self, pipe: TlsPipe) -> None:
        self._pipe = pipe
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client_context().wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def shake_hands(self) -> None:
        for _ in range(10):
            try:
                self.tls.do_handshake()
                self.flush()
                return
            except ssl.SSLWantReadError:
                self.flush()
                self.fetch()
        raise AssertionError("the handshake comes to no end")

    def flush(self) -> None:
        data = self._outgoing.read()
        if data:
            self._pipe.write((data,))

    def fetch(self) -> None:
        self._incoming.write(self._pipe.read(65536) or b"")


@pytest.fixture
def pipe() -> TlsPipe:
    return TlsPipe(server_context(BROKER))


@pytest.fixture
def caller(pipe: TlsPipe) -> Caller:
    made = Caller(pipe)
    made.shake_hands()
    return made


def test_a_pipe_carries_bytes_both_ways(pipe: TlsPipe, caller: Caller) -> None:
    caller.tls.write(b"hello")
    caller.flush()
    assert pipe.received == b"hello"
    pipe.send(b"x" * 40_000)
    caller.fetch()
    assert caller.tls.read(40_000) == b"x" * 16_384
    pipe.say_goodbye()
    assert not pipe.has_goodbye


def test_a_pipe_takes_and_gives_as_little_as_it_is_told(pipe: TlsPipe) -> None:
    pipe.say(b"0123456789")
    pipe.gives = [3, 0]
    assert [pipe.read(10), pipe.read(10), pipe.read(5)] == [b"012", None, b"34567"]
    assert pipe.asked == [10, 10, 5]
    pipe.takes = [2]
    assert pipe.write((b"\x16\x03", b"\x01")) == 2
    assert pipe.writes == [3]


def test_a_pipe_holds_what_its_server_says(pipe: TlsPipe, caller: Caller) -> None:
    pipe.to_client.clear()
    pipe.is_holding = True
    pipe.send(b"held")
    assert not pipe.to_client
    pipe.is_holding = False
    pipe.release()
    assert pipe.to_client


def test_a_pipe_breaks_where_it_is_told_and_ends_behind_its_last_byte(pipe: TlsPipe) -> None:
    pipe.say(b"last")
    pipe.breaks_at_read = 2
    assert pipe.read(2) == b"la"
    with pytest.raises(DisconnectError, match="reset"):
        pipe.read(2)
    pipe.end()
    assert pipe.read(2) == b"st"
    with pytest.raises(DisconnectError, match="closed"):
        pipe.read(2)
    with pytest.raises(DisconnectError, match="closed"):
        pipe.write((b"x",))


def test_a_pipe_keeps_its_servers_error(pipe: TlsPipe) -> None:
    pipe.write((b"GET / HTTP/1.1\r\n\r\n",))
    assert pipe.error is not None
    assert pipe.error.reason == "HTTP_REQUEST"


@pytest.mark.skipif(OpensslServer.command() is None, reason="no command openssl on this machine")
def test_openssl_serves_one_connection_and_is_gone_thereafter() -> None:
    with OpensslServer(BROKER) as server, call(server, client_context()) as client:
        client.sendall(b"hello\n")
        server.wait_for(b"hello")
        server.say(frame(b"answer"))
        assert receive_frame(client) == b"answer"
    assert server.is_gone
