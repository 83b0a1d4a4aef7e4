"""Encodes and decodes request and response headers.

    request header v1    int16 api key, int16 api version, int32 correlation id, nullable string client id
    request header v2    the same, then tagged fields; the client id keeps its two-byte length, so that
                         any broker can read the header of any ApiVersions request
    response header v0   int32 correlation id
    response header v1   the same, then tagged fields

The frame's size prefix belongs to `network/`. Called by NetworkClient, authenticators and the tests' fake
cluster; pure. Source: RequestHeader, ResponseHeader, Kafka 4.3.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from client_core.errors import SchemaError, SerializationError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.primitives import FlexibleReader, Reader, Writer

_KEY_VERSION_CORRELATION: Final = Struct(">hhi")
_CORRELATION: Final = Struct(">i")
_NO_TAGS: Final = b"\x00"


class RequestHeader(NamedTuple):
    """A decoded request header. `body_offset` is the start of the message."""

    api: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def encode_request_header(api: ApiKey, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Returns a request header. Raises SerializationError for values that don't fit its fields."""
    try:
        begin = _KEY_VERSION_CORRELATION.pack(api.id, version, correlation_id)
        return begin + _behind_correlation_id(api, version, client_id)
    except (StructError, UnicodeEncodeError) as problem:
        raise SerializationError(
            f"{api} v{version}: the request header can't be encoded: {problem}"
        ) from problem


@lru_cache(maxsize=64)
def _behind_correlation_id(api: ApiKey, version: int, client_id: str | None) -> bytes:
    """Returns the rest of a request header: the same for all requests of a client at a version."""
    writer = Writer()
    writer.nullable_string(client_id)
    if api.request_header_version(version) >= 2:
        writer.parts.append(_NO_TAGS)
    return writer.getvalue()


def decode_request_header(payload: bytes) -> RequestHeader:
    """Decodes a request frame's header. Raises SchemaError, also for an unsupported API."""
    reader = Reader(payload, 0, "request header")
    api_id, version, correlation_id = reader.unpack(_KEY_VERSION_CORRELATION)
    api = ApiKey.of(api_id)
    if api is None:
        raise SchemaError(f"request header: unknown API key {api_id}")
    client_id = reader.nullable_string()
    body_offset = reader.pos
    if api.request_header_version(version) >= 2:
        body_offset = _behind_tags(payload, body_offset, "request header")
    return RequestHeader(api, version, correlation_id, client_id, body_offset)


def encode_response_header(api: ApiKey, version: int, correlation_id: int) -> bytes:
    """Returns a response header; for fake brokers."""
    writer = Writer()
    writer.int32(correlation_id)
    if api.response_header_version(version) >= 1:
        writer.parts.append(_NO_TAGS)
    return writer.getvalue()


def decode_response_header(payload: bytes, api: ApiKey, version: int) -> tuple[int, int]:
    """Returns a response's correlation id and the offset of its message. Raises SchemaError."""
    has_tags = api.response_header_version(version) > 0
    if len(payload) > _CORRELATION.size and (not has_tags or not payload[_CORRELATION.size]):
        (plain_id,) = _CORRELATION.unpack_from(payload)
        return plain_id, _CORRELATION.size + has_tags  # the common case
    what = f"{api} v{version} response header"
    reader = Reader(payload, 0, what)
    correlation_id = reader.int32()
    if not has_tags:
        return correlation_id, reader.pos
    return correlation_id, _behind_tags(payload, reader.pos, what)


def _behind_tags(payload: bytes, offset: int, what: str) -> int:
    reader = FlexibleReader(payload, offset, what)
    reader.skip_tags()
    return reader.pos
