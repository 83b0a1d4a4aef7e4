"""The selector's parts: memory for receives, polls that write, wakeups, and idle connections."""

from __future__ import annotations

import select
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from client_core import forks
from client_core.clock import SystemClock
from client_core.errors import DisconnectError
from client_core.network.authenticator import PlaintextAuthenticator
from client_core.network.channel_builder import (
    LayeredChannelBuilder,
    PlaintextChannelBuilder,
    PlaintextTransports,
)
from client_core.network.kafka_channel import TURN_BYTES
from client_core.network.selector import IdleExpiry, NetworkConfig, Selector
from client_core.network.wakeup import Wakeup
from tests.network.fake_transport import ScriptedAuthenticator
from tests.network.tls_selector import PATIENCE_MS, connect, selector_over, wait_until_ready
from tests.support.mock_clock import MockClock
from tests.support.tcp_peers import ScriptedPeer, TcpPeer, echo, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from client_core.network.authenticator import Authenticator

    MadeWith = Callable[[int], Selector]


#: More than one read brings: it must be reserved.
LARGE_BYTES = 300_000


@pytest.fixture
def peer() -> Iterator[TcpPeer]:
    with TcpPeer() as listening:
        yield listening


@pytest.fixture
def selector_with() -> Iterator[MadeWith]:
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
    connect(selector, node_id, peer)
    wait_until_ready(selector, node_id)
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
def test_of_frames_that_do_not_fit_together_each_is_read_when_the_one_before_was_dealt_with(
    peer: TcpPeer, selector_with: MadeWith
) -> None:
    selector = selector_with(LARGE_BYTES)
    payloads = {node_id: bytes([node_id]) * (LARGE_BYTES + node_id) for node_id in range(5)}
    threads = [sending(connected(selector, node_id, peer), payload) for node_id, payload in payloads.items()]
    arrived: dict[int, bytes] = {}
    while len(arrived) < len(payloads):
        ((node_id, payload),) = next_receives(selector)
        arrived[node_id] = payload
    assert arrived == payloads
    for thread in threads:
        thread.join()


def test_a_frame_larger_than_the_pool_passes(peer: TcpPeer, selector_with: MadeWith) -> None:
    selector = selector_with(1)
    thread = sending(connected(selector, 1, peer), b"x" * LARGE_BYTES)
    assert next_receives(selector) == [(1, b"x" * LARGE_BYTES)]
    thread.join()


def test_a_frame_under_way_keeps_others_from_being_read_but_not_for_ever(
    peer: TcpPeer, selector_with: MadeWith
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


def test_waiting_for_memory_is_no_busy_loop(peer: TcpPeer, selector_with: MadeWith) -> None:
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


def test_a_muted_connection_does_not_wait_in_line(peer: TcpPeer, selector_with: MadeWith) -> None:
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
    peer: TcpPeer, selector_with: MadeWith
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


# -- polls that write ----------------------------------------------------------------------------------------


@pytest.fixture
def echoing() -> Iterator[ScriptedPeer]:
    with ScriptedPeer(echo) as echoing:
        yield echoing


@pytest.fixture
def selector(echoing: ScriptedPeer) -> Iterator[Selector]:
    """Connected to two peers that echo."""
    selector = Selector(NetworkConfig(max_receive_bytes=None), PlaintextChannelBuilder(), SystemClock())
    for node_id in (1, 2):
        connect(selector, node_id, echoing)
        wait_until_ready(selector, node_id)
    yield selector
    selector.close()


def test_the_answer_comes_with_the_poll_that_wrote(selector: Selector) -> None:
    selector.send(1, [b"question"])
    selector.poll(PATIENCE_MS, writes_end_it=False)
    assert [send.node_id for send in selector.completed_sends] == [1]
    assert [receive.payload for receive in selector.completed_receives] == [b"question"]


def test_a_poll_ends_when_it_has_written_unless_the_caller_wants_it_to_wait(
    selector: Selector,
) -> None:
    selector.send(1, [b"question"])
    selector.poll(PATIENCE_MS)
    assert [send.node_id for send in selector.completed_sends] == [1]
    assert not selector.completed_receives
    while not selector.completed_receives:
        selector.poll(PATIENCE_MS)
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


def test_a_connection_that_ends_meanwhile_ends_it(selector: Selector, echoing: ScriptedPeer) -> None:
    selector.send(1, [b"are you there"])  # or the echoing may not have accepted yet what it is to close
    while not selector.completed_receives:
        selector.poll(PATIENCE_MS)
    echoing.close_connections()
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


# -- wakeups (SEL-15) ----------------------------------------------------------------------------------------


# -- waiting for credentials ---------------------------------------------------------------------------------


class Tokenless(ScriptedAuthenticator):
    """Waits until `token` is there, then sends it."""

    token: bytes | None = None

    @property
    def awaits_credentials(self) -> bool:
        return self.token is None

    def authenticate(self, received: bytes | None, now_ms: int) -> Sequence[bytes] | None:
        return None if self.token is None else (self.token,)


class TokenForOne:
    """The node at one host needs none, the others wait."""

    def __init__(self) -> None:
        self.waiting = Tokenless([b"token"])

    def authenticator(self, host: str) -> Authenticator:
        return PlaintextAuthenticator() if host == "open" else self.waiting

    def close(self) -> None:
        """It holds nothing."""


def test_a_connection_that_is_closed_while_it_waits_for_a_token_gets_no_more_turns(peer: TcpPeer) -> None:
    tokens = TokenForOne()
    with selector_over(LayeredChannelBuilder(PlaintextTransports(), tokens)) as selector:
        connect(selector, 1, peer, "closed")
        peer.accept()
        while 1 not in selector.connected:
            selector.poll(PATIENCE_MS)
        selector.close_connection(1)
        connect(selector, 2, peer, "open")
        wait_until_ready(selector, 2)
        tokens.waiting.token = b"token"
        peer.accept().sendall(frame(b"answer"))
        assert next_receives(selector) == [(2, b"answer")]


@pytest.mark.behaviour("SEL-10")
def test_a_peer_that_leaves_while_a_token_is_awaited_is_noticed() -> None:
    with TcpPeer() as peer, selector_over(LayeredChannelBuilder(PlaintextTransports(), TokenForOne())) as it:
        connect(it, 1, peer, "closed")
        connection = peer.accept()
        while 1 not in it.connected:
            it.poll(PATIENCE_MS)
        connection.close()
        while 1 not in it.disconnected:
            it.poll(PATIENCE_MS)
        assert isinstance(it.disconnected[1].error, DisconnectError)


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    made = Wakeup.open()
    yield made
    made.close()


def is_readable(wakeup: Wakeup) -> bool:
    return bool(select.select([wakeup], [], [], 0)[0])


def test_a_wakeup_makes_the_reader_readable_until_it_is_cleared(wakeup: Wakeup) -> None:
    assert not is_readable(wakeup)
    wakeup.wakeup()
    assert is_readable(wakeup)
    wakeup.clear()
    assert not is_readable(wakeup)


@pytest.mark.behaviour("SEL-15")
def test_a_wakeup_that_is_pending_costs_no_second_byte_and_one_after_a_clear_wakes_again(
    wakeup: Wakeup,
) -> None:
    assert wakeup.clear() == 0, "without a wakeup it does not block"
    for count in (1000, 1, 1, 1):
        for _ in range(count):
            wakeup.wakeup()
        assert wakeup.clear() == 1


def test_a_wakeup_that_comes_while_the_byte_is_read_takes_no_later_one_with_it() -> None:
    # Someone wakes just before the byte is read. Were the flag cleared first, that someone would write a
    # second byte, the read would take both, and the flag would stay set with nothing to read: every later
    # wakeup would be lost.
    class Racing(socket.socket):
        def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
            made.wakeup()
            return super().recv(bufsize, flags)

    reader, writer = socket.socketpair()
    made = Wakeup(Racing(fileno=reader.detach()), writer)
    try:
        made.wakeup()
        made.clear()
        made.wakeup()
        assert is_readable(made)
    finally:
        made.close()


def test_threads_that_wake_at_once_leave_one_byte(wakeup: Wakeup) -> None:
    together = threading.Barrier(8)

    def wake() -> None:
        together.wait()
        wakeup.wakeup()

    threads = [threading.Thread(target=wake) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wakeup.clear() == 1


def test_a_forked_child_closes_its_copies_of_both_ends() -> None:
    reader, writer = socket.socketpair()
    made = Wakeup(reader, writer)
    assert {reader, writer} <= set(forks._descriptors)
    made.close()


def test_a_wakeup_after_close_does_nothing() -> None:
    made = Wakeup.open()
    made.close()
    made.wakeup()
    made.close()


# -- idle connections (SEL-14) -------------------------------------------------------------------------------


def test_a_connection_expires_after_more_than_the_limit_and_activity_begins_the_time_anew() -> None:
    idle = IdleExpiry(100, now_ms=0)
    idle.forget(7)  # is no error
    idle.touch(1, 0)
    assert [idle.expired(100), idle.expired(101)] == [None, 1]
    idle = IdleExpiry(100, now_ms=0)
    idle.touch(1, 0)
    idle.touch(1, 60)
    assert [idle.expired(101), idle.expired(160), idle.expired(161)] == [None, None, 1]
    idle = IdleExpiry(100, now_ms=0)
    idle.touch(1, 60)
    assert idle.expired(160) is None, "also where it has not looked before"


def test_the_least_recently_used_one_expires_first_and_one_at_a_time() -> None:
    idle = IdleExpiry(100, now_ms=0)
    idle.touch(1, 0)
    idle.touch(2, 0)
    idle.touch(1, 5)
    assert idle.expired(500) == 2
    idle.forget(2)
    assert idle.expired(500) == 1
    idle.forget(1)
    assert idle.expired(500) is None


def test_the_oldest_is_looked_at_no_earlier_than_it_can_have_expired() -> None:
    idle = IdleExpiry(100, now_ms=0)
    assert idle.next_check_ms == 100
    assert idle.expired(150) is None  # nobody is here
    assert idle.next_check_ms == 250
    idle.touch(1, 150)
    assert idle.expired(250) is None
    assert idle.expired(251) == 1
