"""Request builders and response readers, each for a negotiated version.

A builder is made once per request, before the version is known. It encodes once the connection's versions are
known. Pure: no socket, no clock. Source: AbstractRequest.Builder, AbstractResponse, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from client_core.protocol.api_keys import ApiKey


class RequestBuilder(Protocol):
    """A request whose version is still open."""

    @property
    def api(self) -> ApiKey: ...

    @property
    def oldest_allowed_version(self) -> int: ...

    @property
    def latest_allowed_version(self) -> int: ...

    def encode(self, version: int) -> bytes:
        """The request's body at that version, without header.

        Raises UnsupportedVersionError when a value can't be carried by it.
        """
        ...

    def decode_response(self, body: bytes, version: int) -> object:
        """The response's message from the bytes behind its header; trailing bytes are tolerated.

        Raises SchemaError when the bytes don't follow the schema.
        """
        ...


class ResponseReader(Protocol):
    """Reads a response's message as its bytes come."""

    def feed(self, piece: bytes) -> None:
        """Takes the next bytes. Raises SchemaError as soon as they don't follow the schema."""
        ...

    def finish(self) -> object:
        """The response's message, once all its bytes were fed. Raises SchemaError."""
        ...


@runtime_checkable
class StreamedRequestBuilder(RequestBuilder, Protocol):
    """A request whose answer may be so large that it is read as it comes."""

    def response_reader(self, size_bytes: int, version: int) -> ResponseReader:
        """What reads the `size_bytes` behind the answer's header; called when they begin to come."""
        ...


def throttle_time_ms(response: object) -> int:
    """The pause that a response asks for; 0 where its schema has no such field.

    Source: AbstractResponse.throttleTimeMs.
    """
    asked = getattr(response, "throttle_time_ms", 0)
    return asked if isinstance(asked, int) else 0
