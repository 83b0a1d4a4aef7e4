"""A request on its way to a node, and what became of it. Source: ClientRequest, ClientResponse, Kafka 4.3."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from client_core.errors import AuthenticationError, UnsupportedVersionError
    from client_core.protocol.request import RequestBuilder

_log = logging.getLogger(__name__)

#: Called with the response on the I/O thread, by the poll that completed it.
CompletionHandler = Callable[["ClientResponse"], None]


class ClientRequest(NamedTuple):
    """A request that a caller wants sent to a node. The version is negotiated when it is sent."""

    destination: int
    builder: RequestBuilder
    correlation_id: int
    created_ms: int
    expect_response: bool
    request_timeout_ms: int
    on_complete: CompletionHandler | None = None


class ClientResponse(NamedTuple):
    """What became of a request.

    Exactly one holds: a body came, none was expected, or one of the failures is set.
    """

    request: ClientRequest
    version: int
    received_ms: int
    latency_ms: int
    body: object | None = None
    disconnected: bool = False
    timed_out: bool = False
    version_mismatch: UnsupportedVersionError | None = None
    authentication_error: AuthenticationError | None = None

    @property
    def destination(self) -> int:
        return self.request.destination

    def on_complete(self) -> None:
        """Tells the caller, if it wants to be told."""
        if self.request.on_complete is not None:
            self.request.on_complete(self)

    def complete(self) -> None:
        """The same; what the caller's handler raises is logged, and costs no other its call (NET-23)."""
        try:
            self.on_complete()
        except KeyboardInterrupt:  # which only the main thread gets, and never the I/O thread
            raise
        except BaseException:  # noqa: BLE001 -- a caller's code, its sys.exit() and CancelledError too
            _log.exception("Uncaught error in request completion")
