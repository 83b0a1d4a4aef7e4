"""Frames: read from a stream in any pieces, written to one in any pieces, and the memory of all receives."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import InvalidReceiveError
from client_core.network.network_receive import MemoryPool, NetworkReceive
from client_core.network.network_send import NetworkSend
from tests.network.fake_transport import FakeTransport
from tests.support.tcp_peers import HTTP_ANSWER, HUGE_SIZE, TLS_ALERT, frame
from tests.support.traced_memory import least_peak_bytes

LEFT_OUT: Final = {
    "NetworkReceiveTest.SizeWithPredefineBuffer": "there is no buffer that was made before",
}

HUNDRED_MIB = 100 * 1024 * 1024


@pytest.mark.java("NetworkReceiveTest.BytesRead")
@pytest.mark.behaviour("SEL-07")
def test_bytes_read() -> None:
    receive = NetworkReceive(128)
    assert receive.bytes_read == 0
    receive.feed(b"\x00\x00\x00\x80")
    assert receive.bytes_read == 4
    assert not receive.has_frame
    receive.feed(b"x" * 64)
    assert receive.bytes_read == 68
    assert not receive.has_frame
    receive.feed(b"x" * 64)
    assert receive.bytes_read == 132
    assert receive.has_frame


@pytest.mark.java(
    "NetworkReceiveTest.RequiredMemoryAmountKnownWhenNotSet",
    "NetworkReceiveTest.RequiredMemoryAmountKnownWhenSet",
    "NetworkReceiveTest.SizeAfterRead",
)
def test_the_required_memory_is_known_with_the_size() -> None:
    receive = NetworkReceive(128)
    known = [receive.frame_bytes]
    for piece in (b"\x00\x00\x00", b"\x40"):
        receive.feed(piece)
        known.append(receive.frame_bytes)
    assert known == [None, None, 64]
    assert receive.bytes_read + receive.missing_bytes == 4 + 64


@pytest.mark.behaviour("SEL-07", "SEL-09")
def test_a_frame_is_taken_without_its_size_which_may_come_byte_by_byte() -> None:
    receive = NetworkReceive(None)
    receive.feed(b"\x00\x00\x00\x03abc")
    assert (receive.take(), receive.take(), receive.bytes_read) == (b"abc", None, 0)
    for byte in b"\x00\x00\x00\x01":
        receive.feed(bytes([byte]))
        assert receive.take() is None
    receive.feed(b"a")
    assert receive.take() == b"a"
    receive.feed(b"\x00\x00\x00\x00")
    assert receive.has_frame
    assert receive.take() == b""


def test_bytes_after_a_frame_wait_for_their_turn() -> None:
    receive = NetworkReceive(None)
    receive.feed(frame(b"one") + frame(b"two") + b"\x00\x00")
    assert receive.take() == b"one"
    assert receive.missing_bytes == 0
    assert receive.take() == b"two"
    assert not receive.has_frame
    assert receive.bytes_read == 2
    receive.feed(b"\x00\x05three")
    assert receive.take() == b"three"


def test_missing_bytes_are_of_the_size_and_then_of_the_body() -> None:
    receive = NetworkReceive(None)
    assert receive.missing_bytes == 4
    receive.feed(b"\x00")
    assert receive.missing_bytes == 3
    receive.feed(b"\x00\x01\x00a")
    assert receive.missing_bytes == 255
    receive.feed(b"b" * 255)
    assert receive.missing_bytes == 0


def test_payloads_are_bytes_of_their_own_and_a_large_frames_memory_is_given_back_with_it() -> None:
    receive = NetworkReceive(None)
    receive.feed(b"\x00\x00\x00\x04ab")
    assert repr(receive) == "<NetworkReceive 6 bytes, size 4>"
    receive.feed(b"cd" + frame(b"e"))
    assert [type(receive.take()), type(receive.take())] == [bytes, bytes]
    receive.feed(b"\x00\x10\x00\x00")
    receive.feed(b"x" * 0x100000)
    receive.take()
    assert receive._data == b""


def refusal_of(stream: bytes, max_bytes: int | None, taken: bytes | None = None) -> str:
    """The error for the end of a stream, after one frame."""
    receive = NetworkReceive(max_bytes)
    receive.feed(stream)
    assert receive.has_frame  # there is an error to report, and no further byte is awaited
    if taken is not None:
        assert receive.take() == taken
    with pytest.raises(InvalidReceiveError) as caught:
        receive.take()
    return caught.value.message


@pytest.mark.behaviour("SEL-08")
def test_a_size_that_is_negative_or_over_the_limit_is_refused_and_the_limit_itself_is_not() -> None:
    assert refusal_of(b"\xff\xff\xff\xff", None) == "Invalid receive (size = -1)"
    over = "Invalid receive (size = 4 larger than 3)"
    assert refusal_of(frame(b"abc") + b"\x00\x00\x00\x04", 3, b"abc") == over
    behind = refusal_of(frame(b"good") + b"\x80\x00\x00\x00", 100, b"good")
    assert behind == "Invalid receive (size = -2147483648)"


def test_a_size_that_is_another_protocols_beginning_says_so() -> None:
    hints = {
        HTTP_ANSWER: "the peer speaks HTTP, not Kafka; give the address of a broker's Kafka listener",
        TLS_ALERT: "the peer answered with a TLS alert: its listener wants TLS; set security.protocol",
        b"SSH-2.0-OpenSSH_9.6\r\n": "the peer speaks SSH, not Kafka",
        b"220 mail.example ESMTP\r\n": "the peer sent text ('220 '), not Kafka",
    }
    for beginning, hint in hints.items():
        size = int.from_bytes(beginning[:4], "big")
        said = refusal_of(beginning, HUNDRED_MIB)
        assert said.startswith(f"Invalid receive (size = {size} larger than {HUNDRED_MIB}): {hint}")


def test_two_gigabytes_promised_and_ten_bytes_sent_cost_ten_bytes() -> None:
    def promise() -> None:
        receive = NetworkReceive(None)
        for byte in HUGE_SIZE:
            receive.feed(bytes([byte]))
            assert receive.take() is None
        assert receive.missing_bytes == 0x7FFFFFFF - 10

    assert least_peak_bytes(promise, 4096) < 4096


def test_a_frame_that_comes_whole_is_not_copied() -> None:
    whole = frame(bytes(1_000_000))

    def feed() -> None:
        NetworkReceive(None).feed(whole)

    assert least_peak_bytes(feed, 10_000) < 10_000


def test_many_small_pieces_of_a_large_frame_do_not_cost_more_than_the_frame() -> None:
    def feed() -> None:
        receive = NetworkReceive(None)
        receive.feed((1_000_000).to_bytes(4, "big"))
        for _ in range(10_000):
            receive.feed(b"ab")

    assert least_peak_bytes(feed, 45_000) < 45_000


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    payloads: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(map(frame, payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    receive = NetworkReceive(300)
    taken = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        receive.feed(stream[begin:end])
        while receive.has_frame:
            taken.append(receive.take())
    assert taken == payloads
    assert receive.bytes_read == 0


# -- NetworkSend (SEL-17) ------------------------------------------------------------------------------------


@pytest.mark.behaviour("SEL-17")
def test_a_frame_is_its_size_and_its_pieces() -> None:
    transport = FakeTransport()
    send = NetworkSend(2, [b"ab", b"", b"cde"])

    assert send.write_to(transport) == 9
    assert bytes(transport.written) == (
        b"\x00\x00\x00\x05"  # int32 size, big-endian
        b"abcde"
    )
    assert send.completed
    assert send.size_bytes == 9


def test_an_empty_frame_is_a_size_of_zero() -> None:
    transport = FakeTransport()
    send = NetworkSend(2, [])
    send.write_to(transport)
    assert bytes(transport.written) == b"\x00\x00\x00\x00"
    assert send.completed


def test_a_send_is_not_completed_while_the_system_does_not_take_it_or_the_transport_holds_bytes_of_it() -> (
    None
):
    send = NetworkSend(2, [b"abc"])
    assert send.write_to(FakeTransport(takes=[0])) == 0
    assert (send.completed, send.remaining_bytes) == (False, 7)
    transport = FakeTransport()
    transport.pending_writes = 7
    send.write_to(transport)
    assert not send.completed
    assert send.write_to(transport) == 0  # flushes
    assert send.completed


def test_pieces_beyond_what_one_system_call_takes_follow_in_the_next_one() -> None:
    transport = FakeTransport()
    send = NetworkSend(2, [b"x"] * 1500)
    while not send.completed:
        send.write_to(transport)
    assert bytes(transport.written[4:]) == b"x" * 1500
    assert transport.writes == 3
    send = NetworkSend(2, [b"x"] * 1500)
    assert send.write_to(transport) == 4 + 511


def test_pieces_are_let_go_of_once_they_are_written_and_repr_says_how_far_it_is() -> None:
    send = NetworkSend(2, [b"abc"])
    transport = FakeTransport(takes=[4])
    send.write_to(transport)
    assert repr(send) == "<NetworkSend node=2 3 of 7 bytes to write>"
    send.write_to(transport)
    assert send._pieces == []


@given(
    st.lists(st.binary(max_size=9), max_size=20),
    st.lists(st.integers(min_value=0, max_value=12), max_size=60),
)
def test_every_way_to_take_the_bytes_in_parts_writes_the_same_frame(
    pieces: list[bytes], takes: list[int]
) -> None:
    whole = FakeTransport()
    NetworkSend(2, pieces).write_to(whole)

    transport = FakeTransport(takes=takes)
    send = NetworkSend(2, pieces)
    while not send.completed:
        before = len(transport.written)
        assert send.write_to(transport) == len(transport.written) - before
        assert send.remaining_bytes == send.size_bytes - len(transport.written)
    assert transport.written == whole.written


def test_a_frame_beyond_int32_is_refused_before_a_byte_is_written() -> None:
    class TwoGigabytes(bytes):
        def __len__(self) -> int:
            return (1 << 31) - 1

    assert NetworkSend(2, [TwoGigabytes()]).size_bytes == (1 << 31) + 3
    with pytest.raises(ValueError, match="2147483648 bytes has no int32 size"):
        NetworkSend(2, [TwoGigabytes(), b"x"])


# -- MemoryPool ----------------------------------------------------------------------------------------------


def test_reserved_memory_is_missing_until_it_is_released() -> None:
    pool = MemoryPool(1000)
    pool.release(7)  # which it does not hold
    assert pool.available_bytes == 1000
    assert pool.try_reserve(1, 400)
    assert pool.available_bytes == 600
    pool.release(1)
    assert pool.available_bytes == 1000


def test_one_frame_may_take_more_than_there_is_and_then_no_other_gets_any() -> None:
    pool = MemoryPool(1000)
    assert pool.try_reserve(1, 5000)
    assert pool.available_bytes == -4000
    assert not pool.try_reserve(2, 1)
    pool.release(1)
    assert pool.try_reserve(2, 1)


def test_those_refused_get_their_turn_in_the_order_in_which_they_asked() -> None:
    pool = MemoryPool(10)
    assert pool.try_reserve(0, 1)
    assert pool.try_reserve(1, 9)
    assert not pool.try_reserve(2, 1)
    assert not pool.try_reserve(3, 1)
    assert pool.next_in_line() is None
    pool.release(0)  # one byte is enough
    assert pool.next_in_line() == 2
    assert not pool.try_reserve(4, 1)
    assert not pool.try_reserve(3, 1)
    assert pool.try_reserve(2, 1)
    pool.release(1)
    assert pool.try_reserve(3, 1)
    assert pool.next_in_line() == 4


def test_a_receive_that_leaves_the_line_blocks_no_other() -> None:
    pool = MemoryPool(10)
    assert pool.try_reserve(1, 10)
    assert not pool.try_reserve(2, 1)
    assert not pool.try_reserve(3, 1)
    pool.leave_line(2)
    pool.release(1)
    assert pool.next_in_line() == 3


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3000), st.booleans())))
def test_all_but_the_last_frame_fit_and_in_the_end_everything_is_back(
    steps: list[tuple[int, int, bool]],
) -> None:
    pool = MemoryPool(1000)
    held: dict[int, int] = {}
    for node_id, size_bytes, gives_back in steps:
        if gives_back:
            pool.release(node_id)
            held.pop(node_id, None)
        elif node_id not in held and pool.try_reserve(node_id, size_bytes):
            assert sum(held.values()) < 1000
            held[node_id] = size_bytes
    assert pool.available_bytes == 1000 - sum(held.values())
    for node_id in range(5):
        pool.release(node_id)
    assert pool.available_bytes == 1000
