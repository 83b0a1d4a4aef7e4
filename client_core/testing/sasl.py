"""SASL of the fake brokers: handshake, token exchange, and session state.

If a cluster demands SASL, an unauthenticated connection may only send ApiVersions. A connection whose session
has expired is closed at its next request. Another handshake begins a re-authentication (KIP-368). A refused
client gets error 58 with the reason, and its connection ends. Pure.

Source: SaslServerAuthenticator, PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer, Kafka 4.3.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from client_core.error_codes import Errors
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
    from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest

_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_CLIENT_FIRST: Final = re.compile(r"n,,(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[^,]+)(?:,.*)?)")
_CLIENT_FINAL: Final = re.compile(r"(?P<bare>c=biws,r=(?P<nonce>[^,]+)),p=(?P<proof>[A-Za-z0-9+/=]+)")
_BEARER: Final = re.compile(
    r"n,,\x01auth=Bearer (?P<token>[^\x01]+)(?P<pairs>(?:\x01[A-Za-z]+=[^\x01]+)*)\x01\x01"
)


class Refused(Exception):
    """The client failed to authenticate; the text is for the client."""


class ServerMechanism(Protocol):
    """One exchange. `principal` is set once it is complete."""

    principal: str | None

    def evaluate(self, token: bytes) -> bytes:
        """Returns the response token. Raises Refused."""
        ...


class PlainServer:
    """Verifies passwords."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.principal: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        parts = token.decode().split("\0")
        if len(parts) != 3:
            raise Refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        known = self._passwords.get(name)
        if known is None or not hmac.compare_digest(known.encode(), password.encode()):
            raise Refused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise Refused("Authentication failed: Client requested an authorization id that is not its name")
        self.principal = name
        return b""


class ScramServer:
    """Verifies with passwords; Java's server uses keys derived from them."""

    def __init__(
        self,
        mechanism: str,
        passwords: Mapping[str, str],
        *,
        salt: bytes = b"salt of the server",
        iterations: int = 4096,
        nonce: str = "server-nonce",
        forges_signature: bool = False,
    ) -> None:
        self._mechanism = mechanism
        self._hash = _HASHES[mechanism]
        self._passwords = passwords
        self._salt = salt
        self._iterations = iterations
        self._nonce = nonce
        self._forges_signature = forges_signature
        self._name = ""
        self._client_first = ""
        self._server_first = ""
        self.principal: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        return self._first(token.decode()) if not self._server_first else self._final(token.decode())

    def _first(self, message: str) -> bytes:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise self._refused()
        self._name = found["name"].replace("=2C", ",").replace("=3D", "=")
        try:
            is_known = self._name in self._passwords
        except OSError:  # do not reveal the passwords' location to a client
            raise self._refused() from None
        if not is_known:
            raise self._refused()
        self._client_first = found["bare"]
        self._nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(self._salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._iterations}"
        return self._server_first.encode()

    def _final(self, message: str) -> bytes:
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None or not hmac.compare_digest(found["nonce"], self._nonce):
            raise self._refused()
        exchange = f"{self._client_first},{self._server_first},{found['bare']}".encode()
        password = self._passwords[self._name].encode()
        salted = hashlib.pbkdf2_hmac(self._hash, password, self._salt, self._iterations)
        stored_key = hashlib.new(self._hash, self._hmac(salted, b"Client Key")).digest()
        signature = self._hmac(stored_key, exchange)
        proof = base64.b64decode(found["proof"])
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), stored_key):
            raise self._refused()
        self.principal = self._name
        verifier = self._hmac(self._hmac(salted, b"Server Key"), exchange)
        if self._forges_signature:
            verifier = bytes(len(verifier))
        return f"v={base64.b64encode(verifier).decode()}".encode()

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)

    def _refused(self) -> Refused:
        return Refused(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism"
            f" {self._mechanism}"
        )


class OAuthBearerServer:
    """Maps each token to its principal."""

    #: A broker's response to an invalid token, before it refuses (RFC 7628).
    ERROR: Final = b'{"status":"invalid_token"}'

    def __init__(self, principals: Mapping[str, str]) -> None:
        self._principals = principals
        self._is_refusing = False
        self.extensions: Mapping[str, str] = {}
        self.principal: str | None = None

    def evaluate(self, message: bytes) -> bytes:
        if self._is_refusing:
            said = "a lone ^A" if message == b"\x01" else "something else than a lone ^A"
            raise Refused(f"{self.ERROR.decode()} (the client sent {said})")
        found = _BEARER.fullmatch(message.decode())
        if found is None:
            raise Refused("Invalid OAUTHBEARER client first message")
        self.extensions = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
        self.principal = self._principals.get(found["token"])
        if self.principal is None:
            self._is_refusing = True
            return self.ERROR
        return b""


@dataclass(frozen=True, slots=True)
class SaslDemand:
    """The authentication required of every connection. `tokens` maps OAUTHBEARER tokens to principals."""

    mechanisms: tuple[str, ...] = ("PLAIN",)
    passwords: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    #: connections.max.reauth.ms; 0: a session lasts as long as its connection.
    session_lifetime_ms: int = 0

    def mechanism(self, name: str) -> ServerMechanism:
        """Returns a new exchange."""
        if name == "PLAIN":
            return PlainServer(self.passwords)
        if name == "OAUTHBEARER":
            return OAuthBearerServer(self.tokens)
        return ScramServer(name, self.passwords)


@dataclass(slots=True)
class SaslSession:
    """One connection's state. Guarded by the cluster's lock."""

    mechanism: ServerMechanism | None = None
    principal: str | None = None
    ends_ms: int | None = None

    def may_ask(self, now_ms: int) -> bool:
        """Returns whether the connection may send more than ApiVersions."""
        if self.principal is None or self.mechanism is not None:
            return False
        return self.ends_ms is None or now_ms <= self.ends_ms


def handshake(
    session: SaslSession, demand: SaslDemand, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Begins the exchange of the requested mechanism; returns the supported ones."""
    if request.mechanism not in demand.mechanisms:
        return SaslHandshakeResponse(Errors.UNSUPPORTED_SASL_MECHANISM.code, demand.mechanisms)
    session.mechanism = demand.mechanism(request.mechanism)
    return SaslHandshakeResponse(Errors.NONE.code, demand.mechanisms)


def authenticate(
    session: SaslSession, demand: SaslDemand, request: SaslAuthenticateRequest, version: int, now_ms: int
) -> SaslAuthenticateResponse:
    """Returns the broker's token, or an error: ILLEGAL_SASL_STATE without a handshake before."""
    if session.mechanism is None:
        return SaslAuthenticateResponse(Errors.ILLEGAL_SASL_STATE.code, "SaslHandshake comes first")
    try:
        token = session.mechanism.evaluate(request.auth_bytes)
        principal = session.mechanism.principal
        if principal is not None and session.principal not in {None, principal}:
            raise Refused(f"Cannot change principals during re-authentication from {session.principal}")
    except (Refused, UnicodeDecodeError) as refused:
        return SaslAuthenticateResponse(Errors.SASL_AUTHENTICATION_FAILED.code, str(refused))
    if principal is None:
        return SaslAuthenticateResponse(auth_bytes=token)
    session.principal, session.mechanism = principal, None
    lifetime_ms = demand.session_lifetime_ms
    session.ends_ms = now_ms + lifetime_ms if lifetime_ms else None
    reported_ms = lifetime_ms if version >= 1 else 0
    return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=reported_ms)
