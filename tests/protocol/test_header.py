"""Twins of RequestHeaderTest, and the bytes of each header. Java's size methods have no counterpart."""

from __future__ import annotations

from typing import Final

import pytest

from client_core.errors import SchemaError, SerializationError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

LEFT_OUT: Final = {
    "RequestHeaderTest.parseHeaderFromBufferWithNonZeroPosition": (
        "A frame is bytes of its own, without what came before it: its header is always at the beginning."
    ),
}


@pytest.mark.java("RequestHeaderTest.RequestHeaderV1")
def test_request_header_v1() -> None:
    header = encode_request_header(ApiKey.METADATA, 1, 10, "")
    assert header.hex() == (
        "0003"  # api key
        "0001"  # api version
        "0000000a"  # correlation id
        "0000"  # client id, empty
    )
    assert decode_request_header(header) == RequestHeader(ApiKey.METADATA, 1, 10, "", len(header))


@pytest.mark.java("RequestHeaderTest.RequestHeaderV2")
def test_request_header_v2_keeps_the_two_byte_length_of_the_client_id() -> None:
    header = encode_request_header(ApiKey.METADATA, 12, 10, "pf")
    assert header.hex() == (
        "0003"  # api key
        "000c"  # api version
        "0000000a"  # correlation id
        "0002" + b"pf".hex() +  # client id
        "00"  # no tagged fields
    )  # fmt: skip
    assert decode_request_header(header) == RequestHeader(ApiKey.METADATA, 12, 10, "pf", len(header))


@pytest.mark.java("RequestHeaderTest.parseHeaderWithNullClientId")
@pytest.mark.parametrize("version", [1, 10])
def test_header_with_null_client_id(version: int) -> None:
    header = encode_request_header(ApiKey.PRODUCE, version, 123, None)
    assert decode_request_header(header) == RequestHeader(ApiKey.PRODUCE, version, 123, None, len(header))


def test_tagged_fields_of_a_request_header_are_passed_over() -> None:
    plain = encode_request_header(ApiKey.METADATA, 12, 10, "pf")
    tagged = plain[:-1] + bytes.fromhex("01" + "07" + "02" + "beef")
    assert decode_request_header(tagged + b"body").body_offset == len(tagged)


def test_a_request_of_an_api_that_is_not_spoken_is_a_schema_error() -> None:
    with pytest.raises(SchemaError, match="unknown API key 71"):
        decode_request_header(bytes.fromhex("0047" + "0000" + "00000001" + "ffff"))


@pytest.mark.parametrize("client_id", ["x" * 32768, "\udc80"])
def test_a_client_id_that_fits_no_header_is_a_serialization_error(client_id: str) -> None:
    with pytest.raises(SerializationError, match="Metadata v1: the request header can't be encoded"):
        encode_request_header(ApiKey.METADATA, 1, 1, client_id)


def test_response_header_v0_is_the_correlation_id() -> None:
    frame = bytes.fromhex("0000000a") + b"body"
    assert decode_response_header(frame, ApiKey.METADATA, 8) == (10, 4)


def test_response_header_v1_ends_with_tagged_fields() -> None:
    for tags in ("00", "01" + "05" + "01" + "ff", "02" + "00" + "01" + "ff" + "05" + "00"):
        head = bytes.fromhex("0000000a" + tags)
        assert decode_response_header(head + b"body", ApiKey.METADATA, 9) == (10, len(head)), tags


def test_response_header_of_api_versions_is_v0_at_every_version() -> None:
    for version in (0, 3, 4, 100):
        assert decode_response_header(bytes.fromhex("0000000a"), ApiKey.API_VERSIONS, version) == (10, 4)
        assert encode_response_header(ApiKey.API_VERSIONS, version, 10).hex() == "0000000a"


@pytest.mark.parametrize("version", [8, 9])
def test_every_truncation_of_a_response_header_raises(version: int) -> None:
    header = encode_response_header(ApiKey.METADATA, version, 10)
    for size in range(len(header)):
        with pytest.raises(SchemaError, match=rf"^Metadata v{version} response header"):
            decode_response_header(header[:size], ApiKey.METADATA, version)


def test_every_truncation_of_a_request_header_raises() -> None:
    header = encode_request_header(ApiKey.METADATA, 12, 10, "pilotfish")
    for size in range(len(header)):
        with pytest.raises(SchemaError, match=r"^request header"):
            decode_request_header(header[:size])
