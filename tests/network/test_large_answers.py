"""Large answers: refused by their size, taken whole, or fed to their reader as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import InvalidReceiveError, ProtocolError, SchemaError
from client_core.network.authenticator import PlaintextAuthenticator
from client_core.network.kafka_channel import KafkaChannel
from client_core.network.network_receive import MemoryPool
from client_core.network.network_send import NetworkSend
from tests.network.fake_transport import FakeTransport

if TYPE_CHECKING:
    from collections.abc import Sequence


def ready_channel(transport: FakeTransport, pool: MemoryPool | None = None) -> KafkaChannel:
    channel = KafkaChannel(0, transport, PlaintextAuthenticator(), 1_024, pool or MemoryPool(1_024))
    channel.finish_connect()
    channel.prepare(0)
    return channel


class Pieces:
    """An AnswerReader that keeps the pieces it is fed."""

    def __init__(
        self, most_bytes: int, *, takes_pieces: bool = True, fault: ProtocolError | None = None
    ) -> None:
        self.most_bytes = most_bytes
        self.takes_pieces = takes_pieces
        self.fed: list[bytes] = []
        self._fault = fault

    def feed(self, piece: bytes, frame_bytes: int) -> None:
        if self._fault is not None:
            raise self._fault
        self.fed.append(piece)


def frames_out_of(channel: KafkaChannel, answers: Sequence[Pieces], count: int) -> list[bytes]:
    """The next frames, as answers to sends of which these are the readers."""
    for answer in answers:
        channel.set_send(NetworkSend(0, [b"request"]), answer)
        channel.write()
        channel.maybe_complete_send()
    frames: list[bytes] = []
    while len(frames) < count:
        channel.read()
        payload = channel.maybe_complete_receive()
        if payload is not None:
            frames.append(payload)
            channel.release_memory()
    return frames


@given(st.lists(st.integers(1, 60_000), max_size=40))
def test_a_large_answer_is_fed_to_its_reader_however_it_comes(cuts: list[int]) -> None:
    large = bytes(range(256)) * 1_200
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in (b"before", large, b"behind"))
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(stream[at : at + cut])
        at += cut
    transport = FakeTransport([piece for piece in [*pieces, *_in_reads(stream[at:])] if piece])
    pool = MemoryPool(1_000_000)
    channel = ready_channel(transport, pool)
    answers = [Pieces(100), Pieces(1_000_000), Pieces(100)]
    assert frames_out_of(channel, answers, 3) == [b"before", b"", b"behind"]
    assert b"".join(answers[1].fed) == large
    assert not answers[0].fed
    assert not answers[2].fed
    assert pool.available_bytes == pool.size_bytes


def _in_reads(data: bytes) -> list[bytes]:
    return [data[at : at + 65_536] for at in range(0, len(data), 65_536)]


def test_an_answer_is_refused_by_its_size_before_it_is_read() -> None:
    for size, answer in (
        (5_001, Pieces(5_000)),
        (900_000, Pieces(800_000, takes_pieces=False)),
        (1_000_000, None),  # what no request waits for is limited by itself
    ):
        channel = ready_channel(FakeTransport([size.to_bytes(4, "big") + b"beginning"]))
        most = 1024 if answer is None else answer.most_bytes
        with pytest.raises(InvalidReceiveError, match=f"size = {size} larger than {most}"):
            frames_out_of(channel, [] if answer is None else [answer], 1)
        assert answer is None or not answer.fed


def test_a_reader_that_refuses_ends_the_frame_at_once() -> None:
    size = 1_000_000
    channel = ready_channel(FakeTransport([size.to_bytes(4, "big") + b"beginning"]))
    with pytest.raises(SchemaError, match="too many"):
        frames_out_of(channel, [Pieces(size, fault=SchemaError("too many"))], 1)


def test_an_answer_whose_reader_takes_no_pieces_comes_whole() -> None:
    large = bytes(300_000)
    channel = ready_channel(FakeTransport(_in_reads(len(large).to_bytes(4, "big") + large)))
    answer = Pieces(400_000, takes_pieces=False)
    assert frames_out_of(channel, [answer], 1) == [large]


def test_a_large_answer_reserves_the_memory_of_a_piece() -> None:
    size, pool = 50_000_000, MemoryPool(1_000_000)
    channel = ready_channel(
        FakeTransport([size.to_bytes(4, "big") + bytes(60_000), bytes(60_000), b""]), pool
    )
    answer = Pieces(size)
    channel.set_send(NetworkSend(0, [b"request"]), answer)
    for _ in range(2):
        channel.read()
        assert channel.maybe_complete_receive() is None
    assert 0 < pool.size_bytes - pool.available_bytes < 300_000
