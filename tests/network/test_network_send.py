"""NetworkSend: the size before the pieces, and partial writes that go on where they stopped (SEL-17)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.network.network_send import NetworkSend
from tests.network.fake_transport import FakeTransport


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


def test_a_send_that_the_system_does_not_take_is_not_completed() -> None:
    transport = FakeTransport(takes=[0])
    send = NetworkSend(2, [b"abc"])
    assert send.write_to(transport) == 0
    assert not send.completed
    assert send.remaining_bytes == 7


def test_a_send_is_not_completed_while_the_transport_holds_bytes_of_it() -> None:
    transport = FakeTransport()
    transport.pending_writes = 7
    send = NetworkSend(2, [b"abc"])
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


def test_pieces_are_let_go_of_once_they_are_written() -> None:
    send = NetworkSend(2, [b"batch"])
    send.write_to(FakeTransport())
    assert send._pieces == []


def test_repr_says_how_far_it_is() -> None:
    send = NetworkSend(2, [b"abc"])
    send.write_to(FakeTransport(takes=[4]))
    assert repr(send) == "<NetworkSend node=2 3 of 7 bytes to write>"


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
            return 1 << 31

    with pytest.raises(ValueError, match="2147483648 bytes has no int32 size"):
        NetworkSend(2, [TwoGigabytes()])
