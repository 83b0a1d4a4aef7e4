"""Decodes a frame for the oldest request in flight.

A response of up to 256 KiB is decoded whole (`parse_response`). A larger one is decoded while it arrives
(`ResponsePieces`), if its API allows that size. One above its API's limit is refused before it is read.

Pure. A malformed frame raises ProtocolError, and the caller closes the connection: bytes after it can't be
trusted (NET-11). In Java, poll raises the exception and the sender's loop logs it. Source:
NetworkClient.parseResponse, AbstractResponse.parseResponse, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.errors import CorrelationIdMismatchError, IllegalStateError, ProtocolError, SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header
from client_core.protocol.request import ResponseReader, StreamedRequestBuilder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.client.in_flight_requests import InFlightRequest
    from client_core.client.kafka_client import ClientRequest

_KIB: Final = 1024
#: The largest response per API. Metadata of two million partitions takes 84 MB. The configs of a hundred
#: topics, our most per request, take 200 KB, and more with long lists. The others are small.
_MOST_BYTES: Final[Mapping[ApiKey, int]] = {
    ApiKey.METADATA: 100 * _KIB * _KIB,
    ApiKey.DESCRIBE_CONFIGS: 4 * _KIB * _KIB,
}
_MOST_BYTES_OF_OTHERS: Final = 64 * _KIB
#: Response bytes allowed per byte sent: a Produce response may name each bad record. The smallest record
#: takes 8 bytes, Kafka's message about one some 100.
_TIMES_SENT_BYTES: Final = 16
#: A response header has 4 bytes and tags; Kafka sends no tags.
_LARGEST_HEADER_BYTES: Final = _KIB


def most_response_bytes(api: ApiKey, sent_bytes: int) -> int:
    """Returns the size limit of the response to a request of `sent_bytes`."""
    return _MOST_BYTES.get(api, _MOST_BYTES_OF_OTHERS) + _TIMES_SENT_BYTES * sent_bytes


def parse_response(payload: bytes, waiting: InFlightRequest | None) -> object:
    """Returns the decoded response.

    Raises ProtocolError for a frame without a request, CorrelationIdMismatchError for a response to
    another request, SchemaError for bytes that don't match their schema.
    """
    if waiting is None:
        raise ProtocolError(f"{len(payload)} bytes arrived without a request")
    if waiting.pieces is not None:
        return waiting.pieces.finish()
    request, version = waiting.request, waiting.version
    try:
        body = payload[_body_offset(payload, request, version) :]
        return request.builder.decode_response(body, version)
    except SchemaError as error:
        raise _unreadable(request, version, error) from error


class ResponsePieces:
    """A large response, decoded while it arrives. I/O thread."""

    def __init__(self, request: ClientRequest, version: int) -> None:
        self._request = request
        self._version = version
        self._beginning = b""
        self._reader: ResponseReader | None = None
        self.frame_bytes = 0

    def feed(self, piece: bytes, frame_bytes: int) -> None:
        """Takes the next bytes of the frame. Raises what `parse_response` raises."""
        self.frame_bytes = frame_bytes
        try:
            if self._reader is not None:
                self._reader.feed(piece)
                return
            self._beginning += piece
            if len(self._beginning) >= _LARGEST_HEADER_BYTES:
                beginning, self._beginning = self._beginning, b""
                offset = _body_offset(beginning, self._request, self._version)
                self._reader = self._begin(frame_bytes - offset)
                self._reader.feed(beginning[offset:])
        except SchemaError as error:
            raise _unreadable(self._request, self._version, error) from error

    def _begin(self, size_bytes: int) -> ResponseReader:
        builder = self._request.builder
        if not isinstance(builder, StreamedRequestBuilder):
            raise IllegalStateError(
                f"the response to {_describe(self._request, self._version)} is not read in chunks"
            )
        return builder.response_reader(size_bytes, self._version)

    def finish(self) -> object:
        """Returns the response, after the last piece."""
        if self._reader is None:
            raise ProtocolError(f"no response to {_describe(self._request, self._version)} arrived")
        return self._reader.finish()


def _body_offset(payload: bytes, request: ClientRequest, version: int) -> int:
    """Returns the offset of the message after its header."""
    correlation_id, offset = decode_response_header(payload, request.builder.api, version)
    if correlation_id != request.correlation_id:
        raise CorrelationIdMismatchError(
            f"Correlation id for response ({correlation_id}) does not match request"
            f" ({request.correlation_id}), {_describe(request, version)}"
        )
    return offset


def _unreadable(request: ClientRequest, version: int, error: SchemaError) -> SchemaError:
    return SchemaError(f"unreadable response to {_describe(request, version)}: {error}")


def _describe(request: ClientRequest, version: int) -> str:
    return f"{request.builder.api.name} v{version} request {request.correlation_id}"
