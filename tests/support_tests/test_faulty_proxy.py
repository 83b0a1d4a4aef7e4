"""The proxy does to connections what it is told, and stops when it is told to heal."""

from __future__ import annotations

import socket
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from client_core.testing.free_ports import free_ports
from tests.support.faulty_proxy import FaultyProxy
from tests.support.tcp_peers import ScriptedPeer, TcpPeer, echo, frame, receive_exactly
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELLO = frame(b"hello")


@contextmanager
def _echoing() -> Iterator[FaultyProxy]:
    """A proxy in front of a peer that sends frames back."""
    with ScriptedPeer(echo) as peer, FaultyProxy(peer.address) as proxy:
        yield proxy


def _connect(proxy: FaultyProxy) -> closing[socket.socket]:
    return closing(socket.create_connection(proxy.address, timeout=10))


def _is_echoed(client: socket.socket, sent: bytes = _HELLO) -> bool:
    client.sendall(sent)
    return receive_exactly(client, len(sent)) == sent


def _is_silent(client: socket.socket) -> bool:
    """Nothing has come: what is to come would have, as `wait_until` saw it pass or held."""
    client.setblocking(False)
    try:
        client.recv(1)
    except BlockingIOError:
        return True
    finally:
        client.settimeout(10)
    return False


def test_it_passes_plainly_until_it_is_told_otherwise_and_counts() -> None:
    with _echoing() as proxy, _connect(proxy) as client:
        assert _is_echoed(client, frame(b"x" * 300_000))
        wait_until(lambda: proxy.answer_bytes == 300_004, what="all answers are counted", every_s=0.001)
        assert (proxy.accepted, proxy.resets, proxy.request_bytes) == (1, 0, 300_004)


def test_it_listens_where_it_is_told_to() -> None:
    (port,) = free_ports(1)
    with ScriptedPeer(echo) as peer, FaultyProxy(peer.address, port=port) as proxy:
        assert proxy.address == ("127.0.0.1", port)
        assert proxy.bootstrap_servers == f"127.0.0.1:{port}"
        with _connect(proxy) as client:
            assert _is_echoed(client)


def test_the_end_of_one_side_reaches_the_other_and_the_other_may_go_on() -> None:
    with TcpPeer() as peer, FaultyProxy(peer.address) as proxy, _connect(proxy) as client:
        accepted = peer.accept()
        client.sendall(b"all")
        client.shutdown(socket.SHUT_WR)
        assert receive_exactly(accepted, 3) == b"all"
        assert accepted.recv(1) == b""
        accepted.sendall(b"answer")
        accepted.shutdown(socket.SHUT_WR)
        assert receive_exactly(client, 6) == b"answer"
        assert client.recv(1) == b""
        wait_until(lambda: proxy.open_connections == 0, what="the connection is over", every_s=0.001)


def test_reset_is_a_reset_for_both_sides_and_new_connections_are_accepted() -> None:
    with TcpPeer() as peer, FaultyProxy(peer.address) as proxy:
        with _connect(proxy) as client:
            accepted = peer.accept()
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"
            proxy.reset()
            for side in (client, accepted):
                with pytest.raises(ConnectionResetError):
                    side.recv(1)
        assert (proxy.resets, proxy.open_connections) == (1, 0)
        with _connect(proxy) as again:
            again.sendall(b"x")
            assert peer.accept().recv(1) == b"x"


def test_a_reset_of_one_side_reaches_the_other() -> None:
    with TcpPeer() as peer, FaultyProxy(peer.address) as proxy, _connect(proxy) as client:
        accepted = peer.accept()
        client.sendall(b"x")
        assert accepted.recv(1) == b"x"
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
        accepted.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert proxy.resets == 0


def _until_reset(client: socket.socket) -> bytes:
    """Sends frames one after the other; all that is answered until the connection is reset."""
    answered = b""
    try:
        while True:
            client.sendall(_HELLO)
            for _ in _HELLO:
                answered += client.recv(1)
    except ConnectionResetError:
        return answered


@pytest.mark.parametrize(("byte_count", "passed"), [(3, 3), (9, 8), (12, 12)])
def test_connections_are_reset_in_the_middle_of_an_answer_again_and_again(
    byte_count: int, passed: int
) -> None:
    with _echoing() as proxy:
        proxy.reset_after_bytes(byte_count)
        for number in range(1, 4):
            with _connect(proxy) as client:
                assert _until_reset(client) == (_HELLO + _HELLO)[:passed]
            assert proxy.resets == number
        proxy.heal()
        with _connect(proxy) as client:
            assert _is_echoed(client)


def test_connections_are_reset_in_the_middle_of_a_request() -> None:
    with TcpPeer() as peer, FaultyProxy(peer.address) as proxy, _connect(proxy) as client:
        accepted = peer.accept()
        proxy.reset_after_bytes(3, direction="requests")
        client.sendall(_HELLO)
        assert receive_exactly(accepted, 3) == _HELLO[:3]
        for side in (client, accepted):
            with pytest.raises(ConnectionResetError):
                side.recv(1)


def test_delayed_and_limited_bytes_all_arrive_in_order() -> None:
    sent = frame(bytes(range(256)) * 4)
    with _echoing() as proxy, _connect(proxy) as client:
        proxy.delay(5, jitter_ms=5, seed=1)
        proxy.limit(200_000)
        assert _is_echoed(client, sent)
        proxy.heal()
        assert _is_echoed(client, sent)


def test_a_delay_that_lasts_for_ever_ends_with_heal() -> None:
    with TcpPeer() as peer, FaultyProxy(peer.address) as proxy, _connect(proxy) as client:
        accepted = peer.accept()
        proxy.delay(10_000_000)
        client.sendall(b"late")
        wait_until(lambda: proxy.held_bytes == 4, what="the proxy holds it", every_s=0.001)
        assert _is_silent(accepted)
        proxy.heal()
        assert receive_exactly(accepted, 4) == b"late"


def test_swallowed_requests_vanish_and_answers_still_come() -> None:
    with TcpPeer() as peer, FaultyProxy(peer.address) as proxy, _connect(proxy) as client:
        accepted = peer.accept()
        proxy.swallow(requests=True)
        client.sendall(b"lost")
        wait_until(lambda: proxy.swallowed_bytes == 4, what="it is swallowed", every_s=0.001)
        accepted.sendall(b"answer")
        assert receive_exactly(client, 6) == b"answer"
        assert _is_silent(accepted)


def test_swallowed_answers_vanish_and_so_does_the_targets_end() -> None:
    with TcpPeer() as peer, FaultyProxy(peer.address) as proxy, _connect(proxy) as client:
        accepted = peer.accept()
        proxy.swallow(answers=True)
        client.sendall(b"request")
        assert receive_exactly(accepted, 7) == b"request"
        accepted.sendall(b"lost")
        accepted.close()
        wait_until(lambda: proxy.swallowed_bytes == 4, what="it is swallowed", every_s=0.001)
        assert _is_silent(client)
        assert proxy.open_connections == 1


def test_heal_ends_connections_that_lost_bytes_and_keeps_the_others() -> None:
    with _echoing() as proxy, _connect(proxy) as unlucky, _connect(proxy) as lucky:
        assert _is_echoed(unlucky)
        assert _is_echoed(lucky)
        proxy.swallow(requests=True, answers=True)
        unlucky.sendall(_HELLO)
        wait_until(lambda: proxy.swallowed_bytes == len(_HELLO), what="it is swallowed", every_s=0.001)
        proxy.heal()
        assert unlucky.recv(1) == b""
        assert _is_echoed(lucky)


def test_a_stalled_connection_is_accepted_and_passes_all_of_it_on_when_healed() -> None:
    # More than the proxy holds: the rest waits in the kernel's buffers and in ours.
    sent = frame(b"x" * 3_000_000)
    with _echoing() as proxy:
        proxy.stall()
        with _connect(proxy) as client:
            client.setblocking(False)
            at = 0
            while proxy.held_bytes < 1_048_576 and at < len(sent):
                try:
                    at += client.send(sent[at:])
                except BlockingIOError:
                    continue
            assert (proxy.request_bytes, proxy.accepted) == (0, 1)
            client.settimeout(10)
            proxy.heal()
            client.sendall(sent[at:])
            assert receive_exactly(client, len(sent)) == sent


def test_dribbled_bytes_arrive_in_order() -> None:
    sent = frame(bytes(range(256)))
    with _echoing() as proxy, _connect(proxy) as client:
        proxy.dribble()
        assert _is_echoed(client, sent)
        proxy.dribble(7)
        assert _is_echoed(client, sent)


def test_a_black_hole_takes_connections_that_nobody_answers_until_it_is_healed() -> None:
    with _echoing() as proxy, _connect(proxy) as before:
        assert _is_echoed(before)
        proxy.blackhole()
        with _connect(proxy) as client:
            client.sendall(_HELLO)
            assert _is_echoed(before)
            assert _is_silent(client)
            assert proxy.accepted == 1
            proxy.heal()
            assert receive_exactly(client, len(_HELLO)) == _HELLO


def test_heal_listens_again_after_refuse() -> None:
    with _echoing() as proxy:
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError), _connect(proxy):
            raise AssertionError("it listens")
        proxy.heal()
        with _connect(proxy) as client:
            assert _is_echoed(client)


def test_it_can_be_severed_and_pointed_elsewhere() -> None:
    with ScriptedPeer(echo) as old, ScriptedPeer(echo) as new, FaultyProxy(old.address) as proxy:
        with _connect(proxy) as client:
            assert _is_echoed(client)
            proxy.retarget(new.address)
            old.close_connections()
            assert client.recv(1) == b""
        with _connect(proxy) as client:
            assert _is_echoed(client)
            proxy.sever()
            assert client.recv(1) == b""
        with _connect(proxy) as client:
            assert _is_echoed(client)
