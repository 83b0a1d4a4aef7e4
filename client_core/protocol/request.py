"""Request builders and response readers, each for a negotiated version.

A builder is made once per request, before the version is known. It encodes once the connection's versions are
known. Pure: no socket, no clock. Source: AbstractRequest.Builder, AbstractResponse, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from client_core.protocol.api_keys import ApiKey


class RequestBuilder(Protocol):
    """A request whose version is not chosen yet."""

    @property
    def api(self) -> ApiKey: ...

    @property
    def oldest_allowed_version(self) -> int: ...

    @property
    def latest_allowed_version(self) -> int: ...

    def encode(self, version: int) -> bytes:
        """Returns the request's body at that version, without header.

        Raises UnsupportedVersionError when the version can't carry a value.
        """
        ...

    def decode_response(self, body: bytes, version: int) -> object:
        """Returns the response's message from the bytes after its header; trailing bytes are tolerated.

        Raises SchemaError for invalid bytes.
        """
        ...


class ResponseReader(Protocol):
    """Reads a response's message while its bytes arrive."""

    def feed(self, piece: bytes) -> None:
        """Takes the next bytes. Raises SchemaError as soon as they are invalid."""
        ...

    def finish(self) -> object:
        """Returns the response's message after its last byte. Raises SchemaError."""
        ...


@runtime_checkable
class StreamedRequestBuilder(RequestBuilder, Protocol):
    """A request whose response may be so large that it is read while it arrives."""

    def response_reader(self, size_bytes: int, version: int) -> ResponseReader:
        """Returns a reader for the `size_bytes` after the header; called when the first of them arrive."""
        ...


def throttle_time_ms(response: object) -> int:
    """Returns the pause that a response requests; 0 if its schema has no such field.

    Source: AbstractResponse.throttleTimeMs.
    """
    asked = getattr(response, "throttle_time_ms", 0)
    return asked if isinstance(asked, int) else 0
