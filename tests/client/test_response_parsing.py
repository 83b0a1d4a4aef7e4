"""From a frame to its message, and every way in which a frame can be wrong (NET-11)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.client.response_parsing import parse_response
from client_core.errors import CorrelationIdMismatchError, ProtocolError, SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import encode_response_header
from client_core.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.client_builders import PlainBuilder, frame_of, make_in_flight

ANSWER = ProduceResponse(
    responses=(TopicProduceResponse("orders", partition_responses=(PartitionProduceResponse(0, 0, 42),)),),
    throttle_time_ms=3,
)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_frame_is_read_by_the_version_of_its_request(version: int) -> None:
    payload = frame_of(ApiKey.PRODUCE, version, 5, ANSWER)
    assert parse_response(payload, make_in_flight(1, 5, version=version)) == ANSWER


@pytest.mark.parametrize(
    ("api", "most_bytes"),
    [(ApiKey.METADATA, 100 * 1_048_576), (ApiKey.DESCRIBE_CONFIGS, 4 * 1_048_576), (ApiKey.PRODUCE, 65_536)],
)
def test_an_answer_may_be_as_large_as_its_api_has_it_and_more_by_what_was_sent(
    api: ApiKey, most_bytes: int
) -> None:
    waiting = make_in_flight(builder=PlainBuilder(api))
    assert waiting.sent_bytes == 10
    assert waiting.most_bytes == most_bytes + 160


class _Joined:
    """Reads an answer as it comes: its bytes. `!` is no answer."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> None:
        if b"!" in piece:
            raise SchemaError("there is a mark")
        self._pieces.append(piece)

    def finish(self) -> tuple[int, bytes]:
        return self._size_bytes, b"".join(self._pieces)


class _InPieces(PlainBuilder):
    def response_reader(self, size_bytes: int, version: int) -> _Joined:
        return _Joined(size_bytes)


def test_an_answer_in_pieces_is_one_and_what_is_wrong_with_it_names_its_request() -> None:
    body = b"x" * 5_000
    payload = encode_response_header(ApiKey.METADATA, 12, 5) + body
    waiting = make_in_flight(1, 5, version=12, builder=_InPieces(ApiKey.METADATA))
    for begin in range(0, len(payload), 700):
        waiting.feed(payload[begin : begin + 700], len(payload))
    assert parse_response(b"", waiting) == (len(body), body)
    with pytest.raises(SchemaError, match=r"^unreadable response to Metadata v12 request 5: there is a mark"):
        waiting.feed(b"!", len(payload))


def test_an_answer_in_pieces_that_is_another_requests_is_no_answer() -> None:
    waiting = make_in_flight(1, 5, version=12, builder=_InPieces(ApiKey.METADATA))
    with pytest.raises(CorrelationIdMismatchError, match=r"\(4\) does not match request \(5\), Metadata v12"):
        waiting.feed(encode_response_header(ApiKey.METADATA, 12, 4) + bytes(2_000), 2_010)


def test_trailing_bytes_are_tolerated() -> None:
    payload = frame_of(ApiKey.PRODUCE, 12, 5, ANSWER) + b"\0\1\2"
    assert parse_response(payload, make_in_flight(1, 5, version=12)) == ANSWER


def test_another_correlation_id_is_named_with_the_request() -> None:
    payload = frame_of(ApiKey.PRODUCE, 12, 4, ANSWER)
    with pytest.raises(CorrelationIdMismatchError) as caught:
        parse_response(payload, make_in_flight(1, 5, version=12))
    assert caught.value.message == (
        "Correlation id for response (4) does not match request (5), Produce v12 request 5"
    )


def test_a_frame_that_nobody_waits_for_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match=r"^3 bytes came that no request had asked for$"):
        parse_response(b"abc", None)


def test_every_truncation_is_a_schema_error() -> None:
    payload = frame_of(ApiKey.PRODUCE, 12, 5, ANSWER)
    waiting = make_in_flight(1, 5, version=12)
    for size in range(len(payload)):
        with pytest.raises(SchemaError, match=r"^unreadable response to Produce v12 request 5: "):
            parse_response(payload[:size], waiting)


@given(garbage=st.binary(max_size=200), version=st.integers(3, 12))
def test_garbage_is_read_or_is_a_protocol_error(garbage: bytes, version: int) -> None:
    with suppress(ProtocolError):
        parse_response(garbage, make_in_flight(1, 0, version=version))
