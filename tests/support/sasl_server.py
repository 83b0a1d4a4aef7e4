"""A broker's SASL listener without a socket: frames in, frames out. A test sets faults and session lifetimes.

`SaslServer` is the broker, `connect()` one connection to it. After the authentication it answers ApiVersions
and echoes everything else. `play` serves it over a socket, as a script of ScriptedPeer. It has the counters
that Java's tests read from the broker's metrics.

Source: SaslServerAuthenticator, NioEchoServer (a test's server), Kafka 4.3.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.errors import SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_request_header, encode_response_header
from client_core.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from client_core.testing import api_versions
from client_core.testing.api_versions import KAFKA_4_3
from client_core.testing.sasl import OAuthBearerServer, PlainServer, Refused, ScramServer, ServerMechanism
from tests.support.tcp_peers import frame, receive_frame

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from client_core.clock import Clock
    from client_core.protocol.header import RequestHeader

_MIN_REAUTHENTICATION_INTERVAL_MS: Final = 1000

#: Kafka before 1.0: SaslHandshake v0 and raw tokens.
WITHOUT_SASL_AUTHENTICATE: Final = {ApiKey.SASL_HANDSHAKE.id: (0, 0), ApiKey.API_VERSIONS.id: (0, 0)}


class Fault(Enum):
    """What the server does instead of an answer."""

    CLOSE = auto()
    SILENCE = auto()
    GARBAGE = auto()
    WRONG_CORRELATION_ID = auto()


@dataclass
class SaslServer:
    """One broker. Every field may be turned between requests."""

    clock: Clock
    mechanisms: tuple[str, ...]
    passwords: dict[str, str] = field(default_factory=dict)
    scram_passwords: dict[str, dict[str, str]] = field(default_factory=dict)  # by mechanism; else `passwords`
    tokens: dict[str, str] = field(default_factory=dict)  # whose each token is
    versions: Mapping[int, tuple[int, int]] = field(default_factory=lambda: KAFKA_4_3)
    session_lifetime_ms: int = 0
    max_receive_bytes: int = 524_288
    scram_iterations: int = 4096
    forges_signature: bool = False
    holds_answers: bool = False  # what was asked is answered when a re-authentication begins
    handshake_error: int = 0
    authenticate_error: tuple[int, str | None] | None = None
    faults: dict[ApiKey, Fault] = field(default_factory=dict)
    # what came of it
    authentications: int = 0
    failed_authentications: int = 0
    reauthentications: int = 0
    failed_reauthentications: int = 0
    expired_sessions: int = 0
    requests: list[tuple[str, int]] = field(default_factory=list)  # API and version, until authenticated
    extensions: Mapping[str, str] = field(default_factory=dict)  # of the last OAUTHBEARER client

    def connect(self) -> SaslConversation:
        return SaslConversation(self)

    def mechanism(self, name: str) -> ServerMechanism:
        """A new exchange."""
        if name == "PLAIN":
            return PlainServer(self.passwords)
        if name == "OAUTHBEARER":
            return OAuthBearerServer(self.tokens)
        return ScramServer(
            name,
            self.scram_passwords.get(name, self.passwords),
            iterations=self.scram_iterations,
            forges_signature=self.forges_signature,
        )


class SaslConversation:
    """One connection to a SaslServer."""

    def __init__(self, server: SaslServer) -> None:
        self._server = server
        self._mechanism_name: str | None = None
        self._mechanism: ServerMechanism | None = None
        self._takes_raw_tokens = False
        self._principal: str | None = None
        self._reauthenticates = False
        self._last_reauthentication_ms: int | None = None
        self._session_ends_ms: int | None = None
        self._held: list[bytes] = []
        self.is_closed = False

    @property
    def principal(self) -> str | None:
        """Who the client is, once that is proved."""
        return self._principal

    def receive(self, request: bytes) -> list[bytes]:
        """The frames that answer one frame; look at `is_closed` then."""
        if self._mechanism is None and self._principal is not None and not self._begins_again(request):
            return self._serve(request)
        if len(request) > self._server.max_receive_bytes:
            return self._fail()
        try:
            if self._mechanism is not None and self._takes_raw_tokens:
                return self._raw_token(self._mechanism, request)
            return self._request(decode_request_header(request), request)
        except (SchemaError, UnicodeDecodeError):
            return self._fail()

    # -- authenticated ---------------------------------------------------------------------------------------

    def _begins_again(self, request: bytes) -> bool:
        """Whether this is the handshake of a re-authentication; too soon, it is a request like any other."""
        try:
            header = decode_request_header(request)
        except SchemaError:
            return False
        if header.api is not ApiKey.SASL_HANDSHAKE or self._session_ends_ms is None:
            return False
        now_ms, last_ms = self._server.clock.now_ms(), self._last_reauthentication_ms
        if last_ms is not None and now_ms - last_ms < _MIN_REAUTHENTICATION_INTERVAL_MS:
            return False
        self._last_reauthentication_ms = now_ms
        self._reauthenticates = True
        return True

    def _serve(self, request: bytes) -> list[bytes]:
        if self._session_ends_ms is not None and self._server.clock.now_ms() > self._session_ends_ms:
            self._server.expired_sessions += 1
            self.is_closed = True
            return []
        answer = self._answer(request)
        if self._server.holds_answers and not self._reauthenticates:
            self._held.append(answer)
            return []
        return [answer]

    def _answer(self, request: bytes) -> bytes:
        try:
            header = decode_request_header(request)
        except SchemaError:
            return request
        return self._api_versions(header, request) if header.api is ApiKey.API_VERSIONS else request

    # -- authenticating --------------------------------------------------------------------------------------

    def _request(self, header: RequestHeader, request: bytes) -> list[bytes]:
        self._server.requests.append((header.api.name, header.version))
        match self._server.faults.get(header.api):
            case Fault.CLOSE:
                return self._fail()
            case Fault.SILENCE:
                return []
            case Fault.GARBAGE:
                return [os.urandom(3)]
            case Fault.WRONG_CORRELATION_ID:
                header = header._replace(correlation_id=header.correlation_id + 1)
            case None:
                pass
        low, high = self._server.versions.get(header.api.id, (0, -1))
        if not low <= header.version <= high and header.api is not ApiKey.API_VERSIONS:
            return self._fail()
        if header.api is ApiKey.API_VERSIONS and self._mechanism is None:
            return [self._api_versions(header, request)]
        if header.api is ApiKey.SASL_HANDSHAKE and self._mechanism is None:
            return self._handshake(header, request)
        if header.api is ApiKey.SASL_AUTHENTICATE and self._mechanism is not None:
            return self._authenticate(self._mechanism, header, request)
        return self._fail()

    def _api_versions(self, header: RequestHeader, request: bytes) -> bytes:
        response, version = api_versions.answer(
            self._server.versions, request, header.version, header.body_offset
        )
        return _response(header, response.encode(version))

    def _handshake(self, header: RequestHeader, request: bytes) -> list[bytes]:
        server = self._server
        wanted = SaslHandshakeRequest.decode(request, header.version, header.body_offset).mechanism
        error = server.handshake_error
        if wanted not in server.mechanisms:
            error = Errors.UNSUPPORTED_SASL_MECHANISM.code
        answer = _response(header, SaslHandshakeResponse(error, server.mechanisms).encode(header.version))
        held, self._held = self._held, []
        if error:
            return [*held, answer, *self._fail()]
        # A changed mechanism is refused after the handshake, with the first token.
        is_changed = self._reauthenticates and wanted != self._mechanism_name
        self._mechanism = _Refusing(self._mechanism_name, wanted) if is_changed else server.mechanism(wanted)
        self._mechanism_name = wanted
        self._takes_raw_tokens = header.version == 0
        return [*held, answer]

    def _authenticate(self, mechanism: ServerMechanism, header: RequestHeader, request: bytes) -> list[bytes]:
        server, version = self._server, header.version
        if server.authenticate_error is not None:
            code, message = server.authenticate_error
            return [_response(header, SaslAuthenticateResponse(code, message).encode(version)), *self._fail()]
        token = SaslAuthenticateRequest.decode(request, version, header.body_offset).auth_bytes
        try:
            answer = self._evaluate(mechanism, token)
        except Refused as refused:
            code = Errors.SASL_AUTHENTICATION_FAILED.code
            response = SaslAuthenticateResponse(code, str(refused)).encode(version)
            return [_response(header, response), *self._fail()]
        lifetime_ms = self._server.session_lifetime_ms if mechanism.principal is not None else 0
        return [_response(header, SaslAuthenticateResponse(0, None, answer, lifetime_ms).encode(version))]

    def _raw_token(self, mechanism: ServerMechanism, token: bytes) -> list[bytes]:
        try:
            return [self._evaluate(mechanism, token)]
        except Refused:  # there is no form for an error: the connection ends
            return self._fail()

    def _evaluate(self, mechanism: ServerMechanism, token: bytes) -> bytes:
        answer = mechanism.evaluate(token)
        principal = mechanism.principal
        if principal is None:
            return answer
        if self._reauthenticates and principal != self._principal:
            raise Refused(
                f"Cannot change principals during re-authentication from User.{self._principal}:"
                f" User.{principal}"
            )
        if isinstance(mechanism, OAuthBearerServer):
            self._server.extensions = mechanism.extensions
        self._complete(principal)
        return answer

    def _complete(self, principal: str) -> None:
        server = self._server
        if self._reauthenticates:
            server.reauthentications += 1
        else:
            server.authentications += 1
        self._principal, self._mechanism = principal, None
        lifetime_ms = server.session_lifetime_ms
        self._session_ends_ms = server.clock.now_ms() + lifetime_ms if lifetime_ms else None

    def _fail(self) -> list[bytes]:
        self.is_closed = True
        if self._reauthenticates:
            self._server.failed_reauthentications += 1
        else:
            self._server.failed_authentications += 1
        return []


class _Refusing:
    """What a client meets that comes back with another mechanism."""

    principal: str | None = None

    def __init__(self, before: str | None, now: str) -> None:
        self._said = (
            f"SASL mechanism '{now}' requested by client is not supported for re-authentication of mechanism"
            f" '{before}'"
        )

    def evaluate(self, token: bytes) -> bytes:
        raise Refused(self._said)


def play(
    server: SaslServer, wrap: Callable[[socket.socket], socket.socket] = lambda plain: plain
) -> Callable[[socket.socket], None]:
    """A script for ScriptedPeer; `wrap` puts TLS around the connection."""

    def script(plain: socket.socket) -> None:
        connection, conversation = wrap(plain), server.connect()
        while not conversation.is_closed:
            request = receive_frame(connection)
            if request is None:
                return
            for answer in conversation.receive(request):
                connection.sendall(frame(answer))

    return script


def _response(header: RequestHeader, body: bytes) -> bytes:
    return encode_response_header(header.api, header.version, header.correlation_id) + body
