"""NetworkReceive: frames out of a stream however it is cut, and sizes that are not to be trusted."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import InvalidReceiveError
from client_core.network.network_receive import NetworkReceive
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


@pytest.mark.java("NetworkReceiveTest.RequiredMemoryAmountKnownWhenNotSet")
def test_the_required_memory_is_not_known_before_the_size_is_here() -> None:
    assert NetworkReceive(None).frame_bytes is None


@pytest.mark.java("NetworkReceiveTest.RequiredMemoryAmountKnownWhenSet")
def test_the_required_memory_is_known_with_the_size() -> None:
    receive = NetworkReceive(128)
    receive.feed(b"\x00\x00\x00")
    assert receive.frame_bytes is None
    receive.feed(b"\x40")
    assert receive.frame_bytes == 64


@pytest.mark.java("NetworkReceiveTest.SizeAfterRead")
def test_a_frame_is_as_long_as_its_size_and_its_body() -> None:
    receive = NetworkReceive(128)
    receive.feed(b"\x00\x00\x00\x20")
    assert receive.bytes_read + receive.missing_bytes == 4 + 32


def test_a_frame_in_one_piece_is_taken_without_its_size() -> None:
    receive = NetworkReceive(None)
    receive.feed(b"\x00\x00\x00\x03abc")
    assert receive.take() == b"abc"
    assert receive.take() is None
    assert receive.bytes_read == 0


@pytest.mark.behaviour("SEL-07")
def test_the_size_may_come_byte_by_byte() -> None:
    receive = NetworkReceive(None)
    for byte in b"\x00\x00\x00":
        receive.feed(bytes([byte]))
        assert receive.take() is None
    receive.feed(b"\x01")
    assert receive.take() is None
    receive.feed(b"a")
    assert receive.take() == b"a"


@pytest.mark.behaviour("SEL-09")
def test_an_empty_frame_is_complete_with_its_size() -> None:
    receive = NetworkReceive(None)
    receive.feed(b"\x00\x00\x00\x00")
    assert receive.has_frame
    assert receive.take() == b""


def test_what_lies_behind_a_frame_waits_for_its_turn() -> None:
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


def test_payloads_are_bytes_of_their_own_however_they_came() -> None:
    receive = NetworkReceive(None)
    receive.feed(b"\x00\x00\x00\x04ab")
    receive.feed(b"cd" + frame(b"e"))
    assert type(receive.take()) is bytes
    assert type(receive.take()) is bytes


@pytest.mark.behaviour("SEL-08")
def test_a_negative_size_is_refused() -> None:
    receive = NetworkReceive(None)
    receive.feed(b"\xff\xff\xff\xff")
    assert receive.has_frame  # there is something to tell, and no further byte is awaited
    with pytest.raises(InvalidReceiveError) as caught:
        receive.take()
    assert caught.value.message == "Invalid receive (size = -1)"


@pytest.mark.behaviour("SEL-08")
def test_a_size_over_the_limit_is_refused_and_the_limit_itself_is_not() -> None:
    receive = NetworkReceive(3)
    receive.feed(frame(b"abc"))
    assert receive.take() == b"abc"
    receive.feed(b"\x00\x00\x00\x04")
    with pytest.raises(InvalidReceiveError) as caught:
        receive.take()
    assert caught.value.message == "Invalid receive (size = 4 larger than 3)"


def test_a_frame_before_a_hostile_size_is_still_delivered() -> None:
    receive = NetworkReceive(100)
    receive.feed(frame(b"good") + b"\x80\x00\x00\x00")
    assert receive.take() == b"good"
    with pytest.raises(InvalidReceiveError, match="size = -2147483648"):
        receive.take()


@pytest.mark.parametrize(
    ("beginning", "hint"),
    [
        (HTTP_ANSWER, "the peer speaks HTTP, not Kafka; give the address of a broker's Kafka listener"),
        (TLS_ALERT, "the peer answered with a TLS alert, its listener wants TLS; set security.protocol"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "the peer speaks SSH, not Kafka"),
        (b"220 mail.example ESMTP\r\n", "the peer sent text ('220 '), not Kafka"),
    ],
)
def test_a_size_that_is_another_protocols_beginning_says_so(beginning: bytes, hint: str) -> None:
    receive = NetworkReceive(HUNDRED_MIB)
    receive.feed(beginning)
    with pytest.raises(InvalidReceiveError) as caught:
        receive.take()
    size = int.from_bytes(beginning[:4], "big")
    assert caught.value.message.startswith(
        f"Invalid receive (size = {size} larger than {HUNDRED_MIB}): {hint}"
    )


def test_two_gigabytes_promised_and_ten_bytes_sent_cost_ten_bytes() -> None:
    def promise() -> None:
        receive = NetworkReceive(None)
        for byte in HUGE_SIZE:
            receive.feed(bytes([byte]))
            assert receive.take() is None
        assert receive.missing_bytes == 0x7FFFFFFF - 10

    assert least_peak_bytes(promise) < 4096


def test_many_small_pieces_of_a_large_frame_do_not_cost_more_than_the_frame() -> None:
    def feed() -> None:
        receive = NetworkReceive(None)
        receive.feed((1_000_000).to_bytes(4, "big"))
        for _ in range(10_000):
            receive.feed(b"ab")

    assert least_peak_bytes(feed) < 45_000


def test_a_large_frames_memory_is_given_back_when_it_is_taken() -> None:
    receive = NetworkReceive(None)
    receive.feed(b"\x00\x10\x00\x00")
    receive.feed(b"x" * 0x100000)
    receive.take()
    assert receive._data == b""


def test_repr_says_what_is_here() -> None:
    receive = NetworkReceive(None)
    receive.feed(b"\x00\x00\x00\x05ab")
    assert repr(receive) == "<NetworkReceive 6 bytes, size 5>"


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
