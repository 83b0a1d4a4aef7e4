"""From a frame to its message, and every way in which a frame can be wrong (NET-11)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.client.response_parsing import parse_response
from client_core.errors import CorrelationIdMismatchError, ProtocolError, SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.client_builders import frame_of, make_in_flight

ANSWER = ProduceResponse(
    responses=(TopicProduceResponse("orders", partition_responses=(PartitionProduceResponse(0, 0, 42),)),),
    throttle_time_ms=3,
)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_frame_is_read_by_the_version_of_its_request(version: int) -> None:
    payload = frame_of(ApiKey.PRODUCE, version, 5, ANSWER)
    assert parse_response(payload, make_in_flight(1, 5, version=version)) == ANSWER


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
