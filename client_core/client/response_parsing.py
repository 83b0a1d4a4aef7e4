"""From a received frame to the message that the oldest request in flight was waiting for.

Pure. Whatever is wrong with the frame is the peer's fault and comes out as a ProtocolError; the caller then
closes the connection, since nothing behind a frame that was misread can be trusted (NET-11). In Java the
exception leaves poll and is logged by the sender's loop. Source: NetworkClient.parseResponse,
AbstractResponse.parseResponse, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.errors import CorrelationIdMismatchError, ProtocolError, SchemaError
from client_core.protocol.header import decode_response_header

if TYPE_CHECKING:
    from client_core.client.in_flight_requests import InFlightRequest


def parse_response(payload: bytes, waiting: InFlightRequest | None) -> object:
    """The response's message.

    Raises ProtocolError for a frame that nobody asked for, CorrelationIdMismatchError for an answer to
    another question, SchemaError for bytes that don't follow their schema.
    """
    if waiting is None:
        raise ProtocolError(f"{len(payload)} bytes came that no request had asked for")
    request, builder, version = waiting.request, waiting.request.builder, waiting.version
    try:
        correlation_id, offset = decode_response_header(payload, builder.api, version)
        if correlation_id != request.correlation_id:
            raise CorrelationIdMismatchError(
                f"Correlation id for response ({correlation_id}) does not match request"
                f" ({request.correlation_id}), {_describe(waiting)}"
            )
        return builder.decode_response(payload[offset:], version)
    except SchemaError as error:
        raise SchemaError(f"unreadable response to {_describe(waiting)}: {error}") from error


def _describe(waiting: InFlightRequest) -> str:
    return f"{waiting.request.builder.api.name} v{waiting.version} request {waiting.request.correlation_id}"
