"""The SASL exchange with a broker: versions, mechanism, then tokens.

    client                                broker
    ApiVersions v0                  ->
                                    <-    its supported versions
    SaslHandshake v0, v1            ->    "I would like to use SCRAM-SHA-256"
                                    <-    or an error, with the mechanisms that it offers
    SaslAuthenticate v0 .. v2       ->    a token of the mechanism; raw tokens, without any header, if the
                                    <-    broker does not know SaslAuthenticate (before Kafka 1.0)
                                    ...   until the mechanism is complete

ApiVersions is always version 0: a broker takes a request that it can't read for a GSSAPI token.
Re-authentication (KIP-368) begins with the handshake, at the known versions. These requests have their own
correlation ids (NET-24), to distinguish their responses from those to earlier requests.

No socket, no clock. Owned by one KafkaChannel, on the I/O thread. Source: SaslClientAuthenticator, Kafka 4.3
(SASL-01 to SASL-03, SASL-06).
"""

from __future__ import annotations

import logging
import struct
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeVar

from client_core.error_codes import Errors
from client_core.errors import (
    AuthenticationError,
    CorrelationIdMismatchError,
    IllegalSaslStateError,
    IllegalStateError,
    KafkaError,
    SaslAuthenticationError,
    SchemaError,
    UnsupportedSaslMechanismError,
    error_for,
)
from client_core.network.sasl.sasl_client import in_one_line
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header, encode_request_header
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from client_core.network.sasl.sasl_client import SaslClient

_log = logging.getLogger(__name__)

#: Correlation ids of SASL's own requests, used in rotation; no other request has them (NET-24).
MIN_RESERVED_CORRELATION_ID: Final = 2_147_483_640
MAX_RESERVED_CORRELATION_ID: Final = 2_147_483_647

#: The fraction of a session's lifetime before renewal. Leaves time for latency and clock differences, and
#: spreads the connections.
_SESSION_PART: Final = 0.85
_SESSION_PART_JITTER: Final = 0.10

#: A broker refuses a re-authentication less than a second after the last one began. We count from its end,
#: which is later on both sides. Java's clients let the broker refuse.
_MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000

_CORRELATION_ID: Final = struct.Struct(">i")

_Response = TypeVar("_Response")


class SaslState(Enum):
    """The next message to send or receive."""

    SEND_API_VERSIONS_REQUEST = auto()
    RECEIVE_API_VERSIONS_RESPONSE = auto()
    SEND_HANDSHAKE_REQUEST = auto()  # re-authentication begins here
    RECEIVE_HANDSHAKE_RESPONSE = auto()
    INTERMEDIATE = auto()  # exchanging tokens
    COMPLETE = auto()
    FAILED = auto()  # from any state


_MOVES: Final[Mapping[SaslState, frozenset[SaslState]]] = {
    SaslState.SEND_API_VERSIONS_REQUEST: frozenset({SaslState.RECEIVE_API_VERSIONS_RESPONSE}),
    SaslState.RECEIVE_API_VERSIONS_RESPONSE: frozenset({SaslState.RECEIVE_HANDSHAKE_RESPONSE}),
    SaslState.SEND_HANDSHAKE_REQUEST: frozenset({SaslState.RECEIVE_HANDSHAKE_RESPONSE}),
    SaslState.RECEIVE_HANDSHAKE_RESPONSE: frozenset({SaslState.INTERMEDIATE}),
    SaslState.INTERMEDIATE: frozenset({SaslState.COMPLETE}),
    SaslState.COMPLETE: frozenset({SaslState.SEND_HANDSHAKE_REQUEST}),
    SaslState.FAILED: frozenset(),
}


class SaslClientAuthenticator:
    """One connection's authentication, and its re-authentications."""

    def __init__(
        self, mechanism: str, new_client: Callable[[], SaslClient | None], client_id: str, random: Random
    ) -> None:
        """`new_client` begins an exchange; None while the credentials are being fetched.

        It raises SaslAuthenticationError or DisconnectError when there are none.
        """
        self._mechanism = mechanism
        self._new_client = new_client
        self._client_id = client_id
        self._random = random
        self._state = SaslState.SEND_API_VERSIONS_REQUEST
        self._client: SaslClient | None = None
        self.awaits_credentials = False
        self._handshake_version = 0
        self._authenticate_version: int | None = None  # None: raw tokens
        self._next_correlation_id = MIN_RESERVED_CORRELATION_ID
        self._awaited = (
            ApiKey.API_VERSIONS,
            0,
            0,
        )  # API, version and correlation id of the pending response
        self._session_lifetime_ms: int | None = None
        self._is_reauthenticating = False
        self.reauthenticates_at_ms: int | None = None

    # -- Authenticator ---------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        return self._state is SaslState.COMPLETE

    def reauthenticate(self) -> None:
        self._move(SaslState.SEND_HANDSHAKE_REQUEST)
        self._is_reauthenticating = True
        self._session_lifetime_ms = None
        self.reauthenticates_at_ms = None
        self._next_correlation_id = MIN_RESERVED_CORRELATION_ID

    def expects(self, frame: bytes) -> bool:
        if not self._is_reauthenticating or len(frame) < _CORRELATION_ID.size:
            return True
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        return is_reserved(correlation_id)

    def authenticate(self, received: bytes | None, now_ms: int) -> Sequence[bytes] | None:
        try:
            return self._step(received, now_ms)
        except KafkaError:
            self._client = None
            self.awaits_credentials = False
            self._move(SaslState.FAILED)
            raise

    # -- the conversation ------------------------------------------------------------------------------------

    def _step(self, received: bytes | None, now_ms: int) -> Sequence[bytes] | None:
        match self._state:
            case SaslState.SEND_API_VERSIONS_REQUEST:
                if not self._has_credentials():
                    return None
                self._move(SaslState.RECEIVE_API_VERSIONS_RESPONSE)
                return self._request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest().encode(0))
            case SaslState.RECEIVE_API_VERSIONS_RESPONSE:
                self._choose_versions(self._response(received, ApiVersionsResponse.decode))
                return self._send_handshake()
            case SaslState.SEND_HANDSHAKE_REQUEST:
                return self._send_handshake() if self._has_credentials() else None
            case SaslState.RECEIVE_HANDSHAKE_RESPONSE:
                self._judge_handshake(self._response(received, SaslHandshakeResponse.decode))
                self._move(SaslState.INTERMEDIATE)
                return self._first_token()
            case SaslState.INTERMEDIATE:
                return self._next_token(self._token(received), now_ms)
            case _:
                raise IllegalStateError(f"SASL authentication is {self._state.name} already")

    def _has_credentials(self) -> bool:
        """Starts an exchange if the credentials are available; returns whether they are."""
        self._client = self._new_client()
        self.awaits_credentials = self._client is None
        return not self.awaits_credentials

    def _choose_versions(self, response: ApiVersionsResponse) -> None:
        """Chooses the greatest common versions; SaslHandshake 0 and raw tokens for an unlisted API.

        Raises IllegalSaslStateError for versions below 0, which no request can use.
        """
        listed = {key.api_key: key.max_version for key in response.api_keys}
        for api in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            if listed.get(api.id, 0) < 0:
                raise IllegalSaslStateError(f"the broker lists {api} up to version {listed[api.id]}")
        handshake = listed.get(ApiKey.SASL_HANDSHAKE.id)
        if handshake is not None:
            self._handshake_version = min(handshake, ApiKey.SASL_HANDSHAKE.max_version)
        authenticate = listed.get(ApiKey.SASL_AUTHENTICATE.id)
        if authenticate is not None:
            self._authenticate_version = min(authenticate, ApiKey.SASL_AUTHENTICATE.max_version)

    def _send_handshake(self) -> Sequence[bytes]:
        self._move(SaslState.RECEIVE_HANDSHAKE_RESPONSE)
        version = self._handshake_version
        body = SaslHandshakeRequest(self._mechanism).encode(version)
        return self._request(ApiKey.SASL_HANDSHAKE, version, body)

    def _judge_handshake(self, response: SaslHandshakeResponse) -> None:
        """Raises the exception for the broker's error (SASL-02)."""
        error, mechanism = Errors.of(response.error_code), self._mechanism
        enabled = f"enabled mechanisms are [{in_one_line(', '.join(response.mechanisms))}]"
        match error:
            case Errors.NONE:
                return
            case Errors.UNSUPPORTED_SASL_MECHANISM:
                raise UnsupportedSaslMechanismError(
                    f"Client SASL mechanism '{mechanism}' not enabled in the server, {enabled}"
                )
            case Errors.ILLEGAL_SASL_STATE:
                raise IllegalSaslStateError(
                    f"Unexpected handshake request with client mechanism {mechanism}, {enabled}"
                )
            case _:
                raise IllegalSaslStateError(
                    f"Unknown error code {error.name}, client mechanism is {mechanism}, {enabled}"
                )

    def _token(self, received: bytes | None) -> bytes:
        """Returns the broker's token; raises the exception for its error (SASL-03)."""
        if self._authenticate_version is None:
            return received or b""
        response = self._response(received, SaslAuthenticateResponse.decode)
        if response.error_code:
            said = response.error_message
            error = error_for(response.error_code, None if said is None else in_one_line(said))
            if isinstance(error, AuthenticationError):
                raise error
            # Ends the connection as a failure of the network would, and the broker's words do not say where.
            raise error_for(
                response.error_code,
                f"the broker answered SaslAuthenticate with {error.error.name}: {error.message}",
            )
        if response.session_lifetime_ms > 0:
            self._session_lifetime_ms = response.session_lifetime_ms
        return response.auth_bytes

    def _first_token(self) -> Sequence[bytes]:
        token = self._evaluate(b"")
        if token is None:
            raise IllegalStateError(f"{self._mechanism} returned no first token")
        return self._send_token(token)

    def _next_token(self, challenge: bytes, now_ms: int) -> Sequence[bytes] | None:
        """Returns the response to the broker's token; complete when the mechanism has no more to send."""
        if self._exchange.complete:
            self._complete(now_ms)
            return None
        token = self._evaluate(challenge)
        if token is None:
            self._complete(now_ms)
            return None
        return self._send_token(token)

    def _evaluate(self, challenge: bytes) -> bytes | None:
        try:
            return self._exchange.evaluate_challenge(challenge)
        except SaslAuthenticationError as error:
            raise SaslAuthenticationError(
                f"An error: ({error.message}) occurred when evaluating SASL token received from the Kafka"
                " Broker. Kafka Client will go to AUTHENTICATION_FAILED state."
            ) from error

    @property
    def _exchange(self) -> SaslClient:
        if self._client is None:
            raise IllegalStateError("no SASL exchange is in progress")
        return self._client

    def _send_token(self, token: bytes) -> Sequence[bytes]:
        version = self._authenticate_version
        if version is None:
            return (token,)
        return self._request(
            ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(token).encode(version)
        )

    def _complete(self, now_ms: int) -> None:
        self._client = None
        self._move(SaslState.COMPLETE)
        lifetime_ms, again = self._session_lifetime_ms, self._is_reauthenticating
        if lifetime_ms is None:
            return
        part = _SESSION_PART + self._random.random() * _SESSION_PART_JITTER
        pause_ms = int(lifetime_ms * part)
        if again:
            pause_ms = max(pause_ms, _MIN_REAUTHENTICATION_INTERVAL_MS)
        self.reauthenticates_at_ms = now_ms + pause_ms
        _log.debug(
            "Finished %s with session expiration in %d ms and session re-authentication on or after %d ms",
            "re-authentication" if again else "authentication",
            lifetime_ms,
            pause_ms,
        )

    # -- requests and their answers --------------------------------------------------------------------------

    def _request(self, api: ApiKey, version: int, body: bytes) -> Sequence[bytes]:
        correlation_id = self._next_correlation_id
        at_the_end = correlation_id == MAX_RESERVED_CORRELATION_ID
        self._next_correlation_id = MIN_RESERVED_CORRELATION_ID if at_the_end else correlation_id + 1
        self._awaited = (api, version, correlation_id)
        return encode_request_header(api, version, correlation_id, self._client_id), body

    def _response(self, received: bytes | None, decode: Callable[[bytes, int, int], _Response]) -> _Response:
        """Returns the response to the last request. Raises IllegalSaslStateError for invalid bytes."""
        api, version, correlation_id = self._awaited
        frame = received or b""
        try:
            answered, offset = decode_response_header(frame, api, version)
            if answered != correlation_id:
                raise _unrelated(answered, correlation_id)
            return decode(frame, version, offset)
        except SchemaError as error:
            raise IllegalSaslStateError(
                "Invalid SASL mechanism response, server may be expecting a different protocol"
            ) from error

    def _move(self, to: SaslState) -> None:
        if to is not SaslState.FAILED and to not in _MOVES[self._state]:
            raise IllegalStateError(f"SASL authentication can't go from {self._state.name} to {to.name}")
        self._state = to

    def __repr__(self) -> str:
        return f"<SaslClientAuthenticator {self._mechanism} {self._state.name}>"


def is_reserved(correlation_id: int) -> bool:
    """Returns whether the correlation id is one of SASL's (NET-24)."""
    return correlation_id >= MIN_RESERVED_CORRELATION_ID


def _unrelated(answered: int, correlation_id: int) -> KafkaError:
    if is_reserved(answered):
        return CorrelationIdMismatchError(
            f"Correlation id for response ({answered}) does not match request ({correlation_id}) of SASL"
        )
    return SchemaError(
        f"the response is unrelated to Sasl request since its correlation id is {answered} and the reserved"
        f" range for Sasl request is [ {MIN_RESERVED_CORRELATION_ID},{MAX_RESERVED_CORRELATION_ID}]"
    )
