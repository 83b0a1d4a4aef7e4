"""Encodes and sends a request, and builds the ClientResponse of its answer or failure.

Negotiates the version, assigns the correlation id, encodes, tracks requests in flight, and emits an event at
the end of each. `network_client.py` decides whether a node is ready, and handles responses. I/O thread only.
Source: NetworkClient.doSend, InFlightRequest.completed/disconnected/timedOut, Kafka 4.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from client_core.client.in_flight_requests import InFlightRequest, InFlightRequests
from client_core.client.kafka_client import ClientRequest, ClientResponse
from client_core.error_codes import Errors
from client_core.errors import UnsupportedVersionError
from client_core.events import RequestCompleted
from client_core.protocol.header import encode_request_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client_core.client.disconnection import Disconnection
    from client_core.client.kafka_client import CompletionHandler
    from client_core.client.network_client_config import NetworkClientConfig
    from client_core.client.node_connections import NodeConnections
    from client_core.events import EventSink
    from client_core.network.selectable import Selectable
    from client_core.protocol.request import RequestBuilder

_log = logging.getLogger(__name__)

#: SASL's own requests use the ids from here on; ours skip them (NET-24). Source: SaslClientAuthenticator.
_FIRST_RESERVED_CORRELATION_ID: Final = 2_147_483_640
#: Correlation ids are int32: after the reserved ones, Java's counter overflows to the smallest.
_SMALLEST_CORRELATION_ID: Final = -2_147_483_648

#: A frame's size field, which is not part of the payload.
_SIZE_BYTES: Final = 4


class RequestSender:
    """Sends the requests of one NetworkClient; `in_flight` has the unanswered ones."""

    def __init__(
        self,
        selector: Selectable,
        connections: NodeConnections,
        config: NetworkClientConfig,
        events: EventSink,
        first_correlation_id: int = 0,
    ) -> None:
        self._selector = selector
        self._connections = connections
        self._config = config
        self._events = events
        self._correlation_id = first_correlation_id
        #: Whether a request without a response was sent. The poll sets it back.
        self.sent_silent = False
        self.in_flight = InFlightRequests(config.max_in_flight_requests_per_connection)

    def new_client_request(
        self,
        node_id: int,
        builder: RequestBuilder,
        created_ms: int,
        *,
        expect_response: bool,
        request_timeout_ms: int | None = None,
        on_complete: CompletionHandler | None = None,
    ) -> ClientRequest:
        """Returns a request with the next correlation id; the default timeout is request.timeout.ms."""
        timeout_ms = self._config.request_timeout_ms if request_timeout_ms is None else request_timeout_ms
        return ClientRequest(
            node_id,
            builder,
            self._next_correlation_id(),
            created_ms,
            expect_response,
            timeout_ms,
            on_complete,
        )

    def _next_correlation_id(self) -> int:
        """Returns 0, 1, 2, ... without the reserved ones (NET-24)."""
        if self._correlation_id >= _FIRST_RESERVED_CORRELATION_ID:
            self._correlation_id = _SMALLEST_CORRELATION_ID
        correlation_id = self._correlation_id
        self._correlation_id += 1
        return correlation_id

    def send(
        self, request: ClientRequest, now_ms: int, *, is_internal: bool
    ) -> UnsupportedVersionError | None:
        """Hands the request to the selector; returns an error instead if the node does not support it."""
        builder, node_id = request.builder, request.destination
        try:
            version = self._connections.version_for(node_id, builder)
            body = builder.encode(version)
        except UnsupportedVersionError as error:
            _log.debug("Version mismatch for %s to node %d: %s", builder.api.name, node_id, error)
            return error
        header = encode_request_header(builder.api, version, request.correlation_id, self._config.client_id)
        sent_bytes = _SIZE_BYTES + len(header) + len(body)
        in_flight = InFlightRequest(request, version, is_internal, now_ms, sent_bytes)
        _log.debug("Sending %r", in_flight)
        self.in_flight.add(in_flight)
        self.sent_silent = self.sent_silent or not request.expect_response
        self._selector.send(node_id, (header, body), in_flight if request.expect_response else None)
        return None

    def answered(
        self,
        in_flight: InFlightRequest,
        now_ms: int,
        *,
        body: object | None = None,
        payload_bytes: int | None = None,
        throttle_ms: int = 0,
    ) -> ClientResponse:
        """Returns the response of a request that was answered, or was sent and expects no answer (NET-10)."""
        received_bytes = 0 if payload_bytes is None else _SIZE_BYTES + payload_bytes
        self._report(in_flight, now_ms, received_bytes, Errors.NONE, throttle_ms)
        request = in_flight.request
        return ClientResponse(request, in_flight.version, now_ms, now_ms - request.created_ms, body)

    def cancel_all(
        self, node_id: int, now_ms: int, ended: Disconnection
    ) -> Iterator[tuple[InFlightRequest, ClientResponse]]:
        """Yields the node's requests, oldest first, each with its disconnected response (NET-13)."""
        error = Errors.REQUEST_TIMED_OUT if ended.timed_out else Errors.NETWORK_EXCEPTION
        for cancelled in self.in_flight.clear_all(node_id):
            _log.debug("Cancelled %r: %s", cancelled, ended.detail)
            self._report(cancelled, now_ms, 0, error)
            request = cancelled.request
            age_ms = now_ms - request.created_ms
            response = ClientResponse(
                request, cancelled.version, now_ms, age_ms, disconnected=True, timed_out=ended.timed_out
            )
            yield cancelled, response

    def _report(
        self,
        ended: InFlightRequest,
        now_ms: int,
        received_bytes: int,
        error: Errors,
        throttle_ms: int = 0,
    ) -> None:
        request, latency_ms = ended.request, now_ms - ended.sent_ms
        api, node_id = request.builder.api.name, request.destination
        self._events.emit(
            RequestCompleted(api, node_id, latency_ms, ended.sent_bytes, received_bytes, error, throttle_ms)
        )
