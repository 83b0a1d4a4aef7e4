"""The proxy's faults of connections, which `heal` ends; and the steps of a harmed flow, without a socket."""

from __future__ import annotations

import socket
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from client_core.testing.free_ports import free_ports
from tests.support.faulty_proxy import FaultyProxy
from tests.support.harmed_flow import Break, Delay, Finish, HarmedFlow, Harms, Pass, ResetAfter, Step, Wait
from tests.support.tcp_peers import ScriptedPeer, TcpPeer, echo, frame, receive_exactly
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HELLO: Final = frame(b"hello")


@contextmanager
def _echoing() -> Iterator[FaultyProxy]:
    """A proxy in front of a peer that sends frames back."""
    with ScriptedPeer(echo) as peer, FaultyProxy(peer.address) as proxy:
        yield proxy


def _connect(proxy: FaultyProxy) -> closing[socket.socket]:
    return closing(socket.create_connection(proxy.address, timeout=10))


@contextmanager
def _connected() -> Iterator[tuple[FaultyProxy, socket.socket, socket.socket]]:
    """A proxy, and both ends of a connection through it, as this test plays them."""
    with TcpPeer() as peer, FaultyProxy(peer.address) as proxy, _connect(proxy) as client:
        yield proxy, client, peer.accept()


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


def _wait_until_swallowed(proxy: FaultyProxy, count: int) -> None:
    wait_until(lambda: proxy.swallowed_bytes == count, what="it is swallowed", every_s=0.001)


def test_it_passes_plainly_by_default_and_counts() -> None:
    with _echoing() as proxy, _connect(proxy) as client:
        assert _is_echoed(client, frame(b"x" * 300_000))
        wait_until(lambda: proxy.answer_bytes == 300_004, what="all answers are counted", every_s=0.001)
        assert (proxy.accepted, proxy.resets, proxy.request_bytes) == (1, 0, 300_004)


def test_it_listens_at_the_given_address_can_refuse_and_listens_again() -> None:
    (port,) = free_ports(1)
    with ScriptedPeer(echo) as peer, FaultyProxy(peer.address, port=port) as proxy:
        assert proxy.address == ("127.0.0.1", port)
        assert proxy.bootstrap_servers == f"127.0.0.1:{port}"
        for listen in (proxy.listen, proxy.heal):
            proxy.refuse()
            with pytest.raises(ConnectionRefusedError), _connect(proxy):
                raise AssertionError("it listens")
            listen()
            with _connect(proxy) as client:
                assert _is_echoed(client)


def test_the_end_of_one_side_reaches_the_other_and_the_other_may_go_on() -> None:
    with _connected() as (proxy, client, accepted):
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
    with _connected() as (proxy, client, accepted):
        client.sendall(b"x")
        assert accepted.recv(1) == b"x"
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
        accepted.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert proxy.resets == 0


def test_a_target_that_refuses_is_the_end_of_the_clients_connection() -> None:
    with TcpPeer() as peer:
        nobody = peer.address
    with FaultyProxy(nobody) as proxy, _connect(proxy) as client:
        try:
            assert client.recv(1) == b""
        except ConnectionError:
            """That is an end, too."""


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


def test_connections_are_reset_in_the_middle_of_an_answer_again_and_again() -> None:
    with _echoing() as proxy:
        for byte_count, passed in ((3, 3), (9, 8), (12, 12)):
            proxy.reset_after_bytes(byte_count)
            before = proxy.resets
            for number in range(1, 4):
                with _connect(proxy) as client:
                    assert _until_reset(client) == (_HELLO + _HELLO)[:passed], byte_count
                assert proxy.resets == before + number, byte_count
        proxy.heal()
        with _connect(proxy) as client:
            assert _is_echoed(client)


def test_connections_are_reset_in_the_middle_of_a_request() -> None:
    with _connected() as (proxy, client, accepted):
        proxy.reset_after_bytes(3, direction="requests")
        client.sendall(_HELLO)
        assert receive_exactly(accepted, 3) == _HELLO[:3]
        for side in (client, accepted):
            with pytest.raises(ConnectionResetError):
                side.recv(1)


def test_delayed_limited_and_dribbled_bytes_all_arrive_in_order() -> None:
    sent = bytes(range(256))
    with _echoing() as proxy, _connect(proxy) as client:
        proxy.delay(5, jitter_ms=5, seed=1)
        proxy.limit(200_000)
        assert _is_echoed(client, frame(sent * 4))
        proxy.heal()
        assert _is_echoed(client, frame(sent * 4))
        for bytes_per_packet in (1, 7):
            proxy.dribble(bytes_per_packet)
            assert _is_echoed(client, frame(sent))


def test_a_delay_that_lasts_for_ever_ends_with_heal() -> None:
    with _connected() as (proxy, client, accepted):
        proxy.delay(10_000_000)
        client.sendall(b"late")
        wait_until(lambda: proxy.held_bytes == 4, what="the proxy holds it", every_s=0.001)
        assert _is_silent(accepted)
        proxy.heal()
        assert receive_exactly(accepted, 4) == b"late"


def test_swallowed_requests_vanish_and_answers_still_come() -> None:
    with _connected() as (proxy, client, accepted):
        proxy.swallow(requests=True)
        client.sendall(b"lost")
        _wait_until_swallowed(proxy, 4)
        accepted.sendall(b"answer")
        assert receive_exactly(client, 6) == b"answer"
        assert _is_silent(accepted)


def test_swallowed_answers_vanish_and_so_does_the_targets_end() -> None:
    with _connected() as (proxy, client, accepted):
        proxy.swallow(answers=True)
        client.sendall(b"request")
        assert receive_exactly(accepted, 7) == b"request"
        accepted.sendall(b"lost")
        accepted.close()
        _wait_until_swallowed(proxy, 4)
        assert _is_silent(client)
        assert proxy.open_connections == 1


def test_heal_ends_connections_that_lost_bytes_and_keeps_the_others() -> None:
    with _echoing() as proxy, _connect(proxy) as unlucky, _connect(proxy) as lucky:
        assert _is_echoed(unlucky)
        assert _is_echoed(lucky)
        proxy.swallow(requests=True, answers=True)
        unlucky.sendall(_HELLO)
        _wait_until_swallowed(proxy, len(_HELLO))
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


def test_a_black_hole_takes_connections_without_answering_until_it_is_healed() -> None:
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


def test_it_can_be_severed_and_pointed_elsewhere_and_old_connections_keep_their_target() -> None:
    with ScriptedPeer(echo) as old, ScriptedPeer(echo) as new, FaultyProxy(old.address) as proxy:
        with _connect(proxy) as before:
            assert _is_echoed(before)
            proxy.retarget(new.address)
            with _connect(proxy) as after:
                assert _is_echoed(after)
                old.close_connections()
                assert before.recv(1) == b""
                assert _is_echoed(after)
                proxy.sever()
                assert proxy.open_connections == 0
                assert after.recv(1) == b""
        with _connect(proxy) as again:
            assert _is_echoed(again)
        assert proxy.accepted == 3


# -- a harmed way, in steps ----------------------------------------------------------------------------------

_IDLE: Final = Wait(None)


def _flow(*pieces: bytes, harms: Harms | None = None, now_s: float = 0.0) -> HarmedFlow:
    """A way of answers on which this has come."""
    flow = HarmedFlow("answers", 1)
    for piece in pieces:
        flow.receive(piece, harms or Harms(), now_s)
    return flow


def _steps(flow: HarmedFlow, harms: Harms, now_s: float = 0.0) -> list[Step]:
    """All steps up to the first that waits or ends."""
    steps = [flow.next_step(harms, now_s)]
    while isinstance(steps[-1], Pass):
        steps.append(flow.next_step(harms, now_s))
    return steps


def _passed(*pieces: bytes, alone: bool = False) -> list[Step]:
    return [Pass(piece, alone=alone) for piece in pieces]


def _reset(after: int) -> Harms:
    return Harms(reset_after=ResetAfter(after, "answers"))


#: What has come, the harms, and the steps of it.
_STEPS: Final[dict[str, tuple[Sequence[bytes], Harms, list[Step]]]] = {
    "dribbled bytes go on in packets of that size": (
        [b"abcde"],
        Harms(bytes_per_packet=2),
        [*_passed(b"ab", b"cd", b"e", alone=True), _IDLE],
    ),
    "a reset comes in the middle of what came together": (
        [b"abcde"],
        _reset(3),
        [*_passed(b"abc"), Break(by_harm=True)],
    ),
    "one that is due at the end of a frame comes a byte earlier": (
        [b"ab", b"cde"],
        _reset(5),
        [*_passed(b"ab", b"cd"), Break(by_harm=True)],
    ),
    "or behind the frame before": ([b"abcd", b"e"], _reset(5), [*_passed(b"abcd"), Break(by_harm=True)]),
    "bytes of the other direction bring none": (
        [b"abc"],
        Harms(reset_after=ResetAfter(1, "requests")),
        [*_passed(b"abc"), _IDLE],
    ),
}


def test_the_steps_of_a_harmed_way() -> None:
    steps = {name: _steps(_flow(*pieces), harms) for name, (pieces, harms, _) in _STEPS.items()}
    assert steps == {name: expected for name, (*_, expected) in _STEPS.items()}


def test_unharmed_bytes_go_on_as_they_came_and_then_the_end_or_the_sources_reset() -> None:
    for by_reset, end in ((False, Finish()), (True, Break(by_harm=False))):
        flow = _flow(b"one", b"two")
        flow.end(by_reset=by_reset)
        assert _steps(flow, Harms()) == [*_passed(b"one", b"two"), end]


def test_delayed_bytes_wait_for_their_time_or_the_end_of_the_delay() -> None:
    harms = Harms(delay=Delay(latency_ms=200))
    flow = _flow(b"late", harms=harms, now_s=10.0)
    (waiting,) = _steps(flow, harms, now_s=10.0)
    assert isinstance(waiting, Wait)
    assert waiting.seconds is not None
    assert abs(waiting.seconds - 0.2) < 1e-9
    assert _steps(flow, harms, now_s=10.21) == [*_passed(b"late"), _IDLE]
    assert _steps(_flow(b"late", harms=harms), Harms()) == [*_passed(b"late"), _IDLE]


def _went_on(flow: HarmedFlow, harms: Harms) -> list[tuple[float, bytes]]:
    """When each piece goes on, until none is held."""
    now_s, passed = 0.0, []
    while flow.held_bytes:
        step = flow.next_step(harms, now_s)
        if isinstance(step, Pass):
            passed.append((now_s, step.data))
        else:
            assert isinstance(step, Wait)
            now_s += step.seconds or 0.0
    return passed


def test_jitter_keeps_the_order_and_is_the_seeds() -> None:
    def pauses(seed: int) -> list[float]:
        harms = Harms(delay=Delay(latency_ms=10, jitter_ms=100, seed=seed))
        passed = _went_on(_flow(*[bytes([number]) for number in range(10)], harms=harms), harms)
        assert b"".join(data for _, data in passed) == bytes(range(10))
        return [now_s for now_s, _ in passed]

    assert pauses(seed=1) == pauses(seed=1)
    assert pauses(seed=1) != pauses(seed=2)
    assert pauses(seed=1) == sorted(pauses(seed=1))


def test_a_limited_way_passes_a_pieces_worth_and_waits() -> None:
    passed = _went_on(_flow(bytes(100)), Harms(bytes_per_second=1_000))
    assert [data for _, data in passed] == [bytes(20)] * 5
    # The last piece goes when those before it have had their time.
    assert abs(passed[-1][0] - 0.08) < 1e-9
    flow = _flow(b"ab")  # a limit below a piece
    assert flow.next_step(Harms(bytes_per_second=1), 0.0) == Pass(b"a", alone=False)
    assert flow.next_step(Harms(bytes_per_second=1), 0.0) == Wait(1.0)


def test_swallowed_bytes_are_gone_and_so_is_the_end() -> None:
    for harms, steps, left in (
        (Harms(swallowed=frozenset({"answers"})), [_IDLE], (0, 4, True)),
        (Harms(swallowed=frozenset({"requests"})), [*_passed(b"lost"), Finish()], (0, 0, False)),
    ):
        flow = _flow(b"lost")
        flow.end()
        assert _steps(flow, harms) == steps
        assert (flow.held_bytes, flow.swallowed_bytes, flow.is_broken) == left


def test_a_stalled_way_loses_nothing() -> None:
    flow = _flow(b"held")
    assert _steps(flow, Harms(is_stalled=True)) == [_IDLE]
    assert flow.held_bytes == 4
    assert _steps(flow, Harms()) == [*_passed(b"held"), _IDLE]


def test_a_reset_waits_for_its_bytes_and_counts_anew_with_a_new_one() -> None:
    harms = _reset(10)
    flow = _flow(b"abcde")
    assert _steps(flow, harms) == [*_passed(b"abcde"), _IDLE]
    flow.receive(b"fghijk", harms, 0.0)
    assert _steps(flow, harms) == [*_passed(b"fghij"), Break(by_harm=True)]
    flow = _flow(b"abc")
    assert _steps(flow, _reset(5)) == [*_passed(b"abc"), _IDLE]
    again = _reset(5)
    flow.receive(b"defg", again, 0.0)
    assert _steps(flow, again) == [*_passed(b"defg"), _IDLE]


def test_bytes_before_the_count_begins_bring_no_reset() -> None:
    harms = Harms(reset_after=ResetAfter(3, "answers", count_from_s=1))
    flow = _flow(b"abcde")
    assert _steps(flow, harms, now_s=7.0) == [*_passed(b"abcde"), _IDLE]
    flow.receive(b"fghij", harms, 7.9)
    assert _steps(flow, harms, now_s=7.9) == [*_passed(b"fghij"), _IDLE]
    flow.receive(b"klmno", harms, 8.0)
    assert _steps(flow, harms, now_s=8.0) == [*_passed(b"klm"), Break(by_harm=True)]


def test_harms_come_together() -> None:
    harms = Harms(delay=Delay(latency_ms=100), bytes_per_packet=2, reset_after=ResetAfter(3, "answers"))
    flow = _flow(b"abcde", harms=harms)
    assert isinstance(flow.next_step(harms, 0.0), Wait)
    assert _steps(flow, harms, now_s=1.0) == [*_passed(b"ab", b"c", alone=True), Break(by_harm=True)]
