"""KafkaChannel over a transport that is a list of bytes."""

from __future__ import annotations

from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING

import pytest

from client_core.errors import (
    DisconnectError,
    IllegalStateError,
    InvalidReceiveError,
    SaslAuthenticationError,
    SslAuthenticationError,
)
from client_core.network.authenticator import Authenticator, PlaintextAuthenticator
from client_core.network.kafka_channel import TURN_BYTES, KafkaChannel
from client_core.network.network_receive import MemoryPool
from client_core.network.network_send import NetworkSend
from client_core.network.selectable import ChannelState, ChannelStateName
from tests.network.fake_transport import FakeTransport, ScriptedAuthenticator
from tests.support.tcp_peers import frame

if TYPE_CHECKING:
    from collections.abc import Sequence


def make(
    transport: FakeTransport,
    authenticator: Authenticator | None = None,
    pool: MemoryPool | None = None,
    max_receive_bytes: int | None = 1024,
) -> KafkaChannel:
    """A channel that is connected, and not ready yet."""
    authenticator, pool = authenticator or PlaintextAuthenticator(), pool or MemoryPool(1024)
    channel = KafkaChannel(0, transport, authenticator, max_receive_bytes, pool)
    channel.finish_connect()
    return channel


def ready(
    transport: FakeTransport, pool: MemoryPool | None = None, max_receive_bytes: int | None = 1024
) -> KafkaChannel:
    channel = make(transport, pool=pool, max_receive_bytes=max_receive_bytes)
    channel.prepare(0)
    assert channel.ready
    return channel


@pytest.mark.java("KafkaChannelTest.Sending")
@pytest.mark.behaviour("SEL-03")
def test_sending() -> None:
    transport = FakeTransport(takes=[4, 64, 64])
    channel = ready(transport)
    send = NetworkSend(0, [b"x" * 128])
    channel.set_send(send)
    assert channel.has_send
    with pytest.raises(IllegalStateError) as caught:
        channel.set_send(send)
    assert str(caught.value) == (
        "Attempt to begin a send operation with prior send operation still in progress, connection id is 0"
    )

    assert channel.write() == 4
    assert send.remaining_bytes == 128
    assert channel.maybe_complete_send() is None
    assert channel.write() == 64
    assert send.remaining_bytes == 64
    assert channel.maybe_complete_send() is None
    assert channel.write() == 64
    assert channel.maybe_complete_send() is send
    assert not channel.has_send


@pytest.mark.java("KafkaChannelTest.Receiving")
@pytest.mark.behaviour("SEL-07")
def test_receiving() -> None:
    channel = ready(FakeTransport([b"\x00\x00\x00\x80", b"a" * 64, b"b" * 64]))
    assert channel.read() == 4
    assert channel.maybe_complete_receive() is None
    assert channel.read() == 64
    assert channel.maybe_complete_receive() is None
    assert channel.read() == 64
    assert channel.maybe_complete_receive() == b"a" * 64 + b"b" * 64
    assert channel.maybe_complete_receive() is None


def test_size_and_body_come_with_one_read_and_half_a_frame_does_not_count_as_buffered() -> None:
    transport = FakeTransport([frame(b"hello"), b"\x00\x00\x00\x09half"])
    channel = ready(transport)
    assert channel.read() == 9
    assert channel.maybe_complete_receive() == b"hello"
    assert len(transport.asked) == 1
    channel.read()
    assert not channel.has_bytes_buffered


def test_the_transport_is_not_read_while_a_whole_frame_is_to_be_taken() -> None:
    transport = FakeTransport([frame(b"one") + frame(b"two"), DisconnectError("gone")])
    channel = ready(transport)
    channel.read()
    assert channel.maybe_complete_receive() == b"one"
    assert channel.read() == 0
    assert channel.maybe_complete_receive() == b"two"
    assert not channel.has_bytes_buffered
    with pytest.raises(DisconnectError, match="gone"):
        channel.read()


def test_a_frame_that_finds_no_memory_is_read_on_when_there_is_some() -> None:
    pool = MemoryPool(10)
    assert pool.try_reserve(7, 10)
    transport = FakeTransport([b"\x00\x00\x00\x09half", b" done"])
    channel = ready(transport, pool)
    assert channel.read() == 8
    assert channel.read() == 0
    assert len(transport.asked) == 1
    assert (channel.awaits_memory, channel.interest) == (True, 0)

    pool.release(7)
    assert channel.read() == 5
    assert not channel.awaits_memory
    assert channel.interest == EVENT_READ
    assert channel.maybe_complete_receive() == b"half done"
    assert pool.available_bytes == 1
    channel.release_memory()
    assert pool.available_bytes == 10


def test_a_closed_channel_holds_no_memory_and_no_place_in_line() -> None:
    pool = MemoryPool(10)
    holding = ready(FakeTransport([b"\x00\x00\x00\x09half", b"rest"]), pool)
    for _ in range(2):
        holding.read()
    assert pool.available_bytes == 1
    holding.close()
    assert pool.available_bytes == 10
    assert pool.try_reserve(1, 10)
    waiting = ready(FakeTransport([b"\x00\x00\x00\x09half", b"rest"]), pool)
    for _ in range(2):
        waiting.read()
    assert len(pool.waiting) == 1
    waiting.close()
    assert not pool.waiting


def test_a_large_frame_is_read_on_in_one_turn_but_not_without_end() -> None:
    size = 300 * 1024
    transport = FakeTransport([size.to_bytes(4, "big"), *[bytes(20_000)] * 16])
    channel = ready(transport, MemoryPool(1), max_receive_bytes=None)
    turns = 0
    while not channel.has_bytes_buffered:
        assert channel.read() < 150_000
        turns += 1
    assert turns == 5
    assert max(transport.asked) <= 128 * 1024


def test_a_hostile_size_raises_when_the_frame_is_asked_for() -> None:
    channel = ready(FakeTransport([b"\x00\x00\x04\x01"]))
    channel.read()
    with pytest.raises(InvalidReceiveError, match=r"Invalid receive \(size = 1025 larger than 1024\)"):
        channel.maybe_complete_receive()


def test_a_channel_waits_for_its_connect_and_then_for_bytes() -> None:
    channel = KafkaChannel(0, FakeTransport(), PlaintextAuthenticator(), 1024, MemoryPool(1024))
    assert channel.interest == EVENT_WRITE
    assert channel.state.name is ChannelStateName.NOT_CONNECTED
    assert repr(channel) == "<KafkaChannel node=0 NOT_CONNECTED 10.0.0.1:9092>"
    assert not channel.is_at_rest
    channel.finish_connect()
    assert channel.is_connected
    assert not channel.ready
    channel.prepare(0)
    assert channel.interest == EVENT_READ
    assert channel.state == ChannelState(ChannelStateName.READY, None, "10.0.0.1:9092", None)


def test_the_channel_asks_for_writes_only_until_the_system_has_taken_all_of_a_send() -> None:
    channel = ready(FakeTransport(takes=[3]))
    channel.set_send(NetworkSend(0, [b"abc"]))
    assert channel.interest == EVENT_READ
    channel.write()
    assert channel.maybe_complete_send() is None
    assert not channel.has_new_send
    assert channel.interest == EVENT_READ | EVENT_WRITE
    channel.write()
    assert channel.maybe_complete_send() is not None
    assert channel.interest == EVENT_READ


def test_a_channel_is_at_rest_while_it_only_waits_for_bytes_and_a_muted_one_waits_for_nothing() -> None:
    channel = ready(FakeTransport())
    at_rest = [channel.is_at_rest]
    channel.mute()
    at_rest.append(channel.is_at_rest)
    assert (channel.is_muted, channel.interest) == (True, 0)
    channel.unmute()
    assert channel.interest == EVENT_READ
    channel.set_send(NetworkSend(0, [b"x"]))
    channel.write()
    at_rest.append(channel.is_at_rest)
    channel.maybe_complete_send()
    at_rest.append(channel.is_at_rest)
    assert at_rest == [True, False, False, True]


def test_bytes_that_the_transport_holds_are_waited_for_and_flushed_without_a_send() -> None:
    transport = FakeTransport()
    channel = ready(transport)
    transport.pending_writes = 5
    assert channel.interest == EVENT_READ | EVENT_WRITE
    assert channel.write() == 0
    assert channel.interest == EVENT_READ


def test_a_channel_is_ready_only_after_the_handshake() -> None:
    transport = FakeTransport(handshake_steps=2)
    channel = make(transport)
    channel.prepare(0)
    assert channel.state.name is ChannelStateName.AUTHENTICATE
    channel.prepare(0)
    assert channel.ready
    assert transport.handshakes == 2


def test_authentication_goes_frame_by_frame_before_the_channel_is_ready() -> None:
    transport = FakeTransport([None, frame(b"go on"), frame(b"welcome")])
    authenticator = ScriptedAuthenticator([b"first", b"second"])
    channel = make(transport, authenticator)
    written = []
    for _ in range(3):  # nothing comes at the second
        channel.prepare(0)
        written.append(bytes(transport.written))
    assert written == [frame(b"first"), frame(b"first"), frame(b"first") + frame(b"second")]
    assert not channel.ready
    channel.prepare(0)
    assert channel.state.name is ChannelStateName.READY
    assert authenticator.received == [None, b"go on", b"welcome"]


def test_an_authentication_frame_may_be_written_in_parts_and_what_the_transport_holds_is_flushed() -> None:
    transport = FakeTransport([None, frame(b"welcome")], takes=[2])
    channel = make(transport, ScriptedAuthenticator([b"first"]))
    channel.prepare(0)
    assert channel.interest == EVENT_READ | EVENT_WRITE
    channel.prepare(0)
    assert bytes(transport.written) == frame(b"first")
    assert channel.interest == EVENT_READ
    transport.pending_writes = 5
    assert channel.interest == EVENT_READ | EVENT_WRITE
    channel.prepare(0)
    assert channel.interest == EVENT_READ
    channel.prepare(0)
    assert bytes(transport.written) == frame(b"first")
    assert channel.ready


def test_a_refused_log_in_is_a_state_of_its_own() -> None:
    refusal = SaslAuthenticationError("who are you?")
    channel = make(FakeTransport([frame(b"no")]), ScriptedAuthenticator([b"first"], refuse=refusal))
    channel.prepare(0)
    with pytest.raises(SaslAuthenticationError):
        channel.prepare(0)
    channel.fail(refusal)
    assert channel.state == ChannelState(
        ChannelStateName.AUTHENTICATION_FAILED, refusal, "10.0.0.1:9092", "who are you?"
    )


def in_session(transport: FakeTransport) -> KafkaChannel:
    """A channel whose session is to be renewed from 100 ms on."""
    authenticator = ScriptedAuthenticator([b"who I am"], reauthenticates_at_ms=100)
    channel = make(transport, authenticator)
    channel.prepare(0)
    channel.prepare(0)
    assert channel.ready
    transport.written.clear()
    return channel


@pytest.mark.behaviour("SASL-06")
def test_a_send_waits_until_the_session_is_renewed() -> None:
    transport = FakeTransport([frame(b"welcome"), None, frame(b"welcome back")])
    channel = in_session(transport)
    channel.set_send(NetworkSend(0, [b"request"]))
    assert not channel.maybe_begin_reauthentication(99)
    assert channel.maybe_begin_reauthentication(100)
    assert bytes(transport.written) == frame(b"who I am")
    assert repr(channel) == "<KafkaChannel node=0 AUTHENTICATE 10.0.0.1:9092>"
    assert channel.is_connected
    assert channel.interest == EVENT_READ
    channel.prepare(100)
    assert repr(channel) == "<KafkaChannel node=0 AUTHENTICATE 10.0.0.1:9092>"
    channel.prepare(101)
    assert channel.ready
    assert not channel.maybe_begin_reauthentication(200)
    assert channel.write() == len(frame(b"request"))
    assert bytes(transport.written) == frame(b"who I am") + frame(b"request")


@pytest.mark.behaviour("SASL-06")
def test_a_session_is_not_renewed_without_a_send_nor_amid_one_nor_on_a_muted_channel() -> None:
    transport = FakeTransport([frame(b"welcome")], takes=[64, 3])
    channel = in_session(transport)
    assert not channel.maybe_begin_reauthentication(100)
    channel.set_send(NetworkSend(0, [b"request"]))
    channel.mute()
    assert not channel.maybe_begin_reauthentication(100)
    channel.unmute()
    assert channel.write() == 3
    assert not channel.maybe_begin_reauthentication(100)
    channel.write()
    assert channel.maybe_complete_send() is not None
    channel.set_send(NetworkSend(0, [b"another"]))
    assert channel.maybe_begin_reauthentication(100)


@pytest.mark.behaviour("SASL-06")
def test_answers_to_earlier_requests_are_kept_one_at_a_time_and_the_beginning_of_one_is_not_lost() -> None:
    begun = frame(b"answer 0")
    rest = begun[6:] + frame(b"answer 1") + frame(b"answer 2") + frame(b"welcome back")
    channel = in_session(FakeTransport([frame(b"welcome"), begun[:6], rest]))
    channel.read()
    channel.set_send(NetworkSend(0, [b"request"]))
    channel.maybe_begin_reauthentication(100)
    assert channel.take_earlier_response() is None
    for answer in (b"answer 0", b"answer 1", b"answer 2"):
        channel.prepare(100)
        assert channel.take_earlier_response() == answer
        assert channel.take_earlier_response() is None
        assert channel.has_bytes_buffered
    channel.prepare(100)
    assert channel.ready


class SlowToRenew(ScriptedAuthenticator):
    """Waits for a token before it authenticates again."""

    awaits_credentials = False
    has_token = True

    def authenticate(self, received: bytes | None, now_ms: int) -> Sequence[bytes] | None:
        self.awaits_credentials = not self.has_token
        return super().authenticate(received, now_ms) if self.has_token else None


@pytest.mark.behaviour("SASL-06")
def test_answers_to_earlier_requests_do_not_wait_for_the_token_of_a_renewal() -> None:
    authenticator = SlowToRenew([b"who I am"], reauthenticates_at_ms=100)
    answers = frame(b"answer 0") + frame(b"answer 1")
    transport = FakeTransport([frame(b"welcome"), answers, None, None, frame(b"welcome back")])
    channel = make(transport, authenticator)
    channel.prepare(0)
    channel.prepare(0)
    authenticator.has_token = False
    channel.set_send(NetworkSend(0, [b"request"]))
    assert channel.maybe_begin_reauthentication(100)
    for answer in (b"answer 0", b"answer 1", None):
        channel.prepare(100)
        assert channel.take_earlier_response() == answer
    authenticator.has_token = True
    channel.prepare(100)
    assert not channel.ready
    channel.prepare(100)
    assert channel.ready


class Large:
    """The reader of an answer that may be larger than the limit for unexpected frames."""

    most_bytes = 3_000
    takes_pieces = False

    def feed(self, piece: bytes, frame_bytes: int) -> None:
        """Not in pieces."""


LARGE_ANSWER = frame(b"answer" + bytes(2_000))


@pytest.mark.behaviour("SASL-06", "SEL-08")
@pytest.mark.parametrize("amid_renewal", [False, True])
def test_an_answer_that_came_makes_no_room_for_another_as_large(amid_renewal: bool) -> None:
    came = [frame(b"welcome back")] if amid_renewal else []
    channel = in_session(FakeTransport([frame(b"welcome"), b"".join((LARGE_ANSWER, *came, LARGE_ANSWER))]))
    channel.set_send(NetworkSend(0, [b"request"]), Large())
    channel.write()
    assert channel.maybe_complete_send() is not None
    if amid_renewal:
        channel.set_send(NetworkSend(0, [b"another"]))
        assert channel.maybe_begin_reauthentication(100)
        channel.prepare(100)
        assert channel.take_earlier_response() == LARGE_ANSWER[4:]
        channel.prepare(100)
    else:
        channel.read()
        assert channel.maybe_complete_receive() == LARGE_ANSWER[4:]
    assert channel.ready
    with pytest.raises(InvalidReceiveError):
        channel.maybe_complete_receive()


@pytest.mark.behaviour("SASL-06")
def test_a_failed_renewal_is_a_failed_authentication() -> None:
    channel = in_session(FakeTransport([frame(b"welcome")]))
    channel.set_send(NetworkSend(0, [b"request"]))
    channel.maybe_begin_reauthentication(100)
    channel.fail(SaslAuthenticationError("not you again"))
    assert channel.state.name is ChannelStateName.AUTHENTICATION_FAILED


def test_a_failed_channel_keeps_its_state_and_remembers_why_but_tls_may_refuse_us_when_it_is_ready() -> None:
    channel = ready(FakeTransport())
    error = DisconnectError("the peer closed the connection")
    channel.fail(error)
    assert channel.state == ChannelState(ChannelStateName.READY, error, "10.0.0.1:9092", error.message)
    channel = ready(FakeTransport())
    channel.fail(SslAuthenticationError("certificate required"))
    assert channel.state.name is ChannelStateName.AUTHENTICATION_FAILED


def test_an_ended_channel_can_not_end_again_and_close_closes_the_transport_and_leaves_the_state() -> None:
    transport = FakeTransport()
    channel = ready(transport)
    channel.end(ChannelStateName.EXPIRED, "idle")
    with pytest.raises(IllegalStateError, match="can't go from EXPIRED to LOCAL_CLOSE"):
        channel.end(ChannelStateName.LOCAL_CLOSE, "closed")
    channel.close()
    assert transport.is_closed
    assert channel.state.name is ChannelStateName.EXPIRED


def test_a_kept_error_holds_no_frames() -> None:
    channel = ready(FakeTransport())
    try:
        try:
            raise ConnectionResetError("by peer")
        except ConnectionResetError as reset:
            raise DisconnectError("reset") from reset
    except DisconnectError as error:
        channel.fail(error)
    kept = channel.state.error
    assert kept is not None
    assert kept.__traceback__ is None
    assert kept.__cause__ is not None
    assert kept.__cause__.__traceback__ is None


def test_a_large_frame_is_read_so_many_bytes_a_turn() -> None:
    size_bytes = 4 * TURN_BYTES
    transport = FakeTransport([size_bytes.to_bytes(4, "big"), bytes(size_bytes)])
    channel = ready(transport, MemoryPool(size_bytes), max_receive_bytes=size_bytes)
    turns = [channel.read() for _ in range(6)]
    assert turns == [4 + TURN_BYTES, TURN_BYTES, TURN_BYTES, TURN_BYTES, 0, 0]
