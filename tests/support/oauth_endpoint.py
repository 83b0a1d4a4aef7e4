"""A token endpoint on loopback for OAUTHBEARER: client credentials in, signed JWTs out.

    with OAuthEndpoint({"pilotfish": "its secret"}) as endpoint:
        endpoint.url                        # sasl.oauthbearer.token.endpoint.url
        endpoint.lifetime_s = 5             # of tokens from now on
        endpoint.refuse_with = 503          # every request, until None again
    write_jwks(path)                        # what a broker verifies the tokens by

It knows the client-credentials grant (RFC 6749, 4.4) with the id and the secret in the Authorization header,
as Kafka sends them, or in the form, or by an assertion (RFC 7523, 2.2); and the JWT-bearer grant (RFC 7523,
2.1). An assertion's issuer and subject are the client, its audience is `url`; `keys` has the clients' public
keys, and each assertion is good for once if it has an id. Tokens are RS256 and name the client as `sub`.
`requests` and `granted` may be read by any thread. Source of what a broker demands: BrokerJwtValidator,
Kafka 4.3.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.waiting import patient

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

_HOST: Final = "127.0.0.1"
_KEY_ID: Final = "test-key"
AUDIENCE: Final = "kafka-tests"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What a client asked: its form, as it was sent and read, and who it said it was."""

    client_id: str | None
    form: Mapping[str, str]
    was_granted: bool
    body: bytes
    authorization: str | None


class OAuthEndpoint:
    """Serves from its entering to its leaving. `clients` are ids and secrets."""

    def __init__(
        self,
        clients: Mapping[str, str],
        *,
        keys: Mapping[str, RSAPublicKey | EllipticCurvePublicKey] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls` makes it https."""
        self.clients = dict(clients)
        self.keys = dict(keys or {})
        self._used_ids: set[str] = set()
        self.lifetime_s = 3_600
        self.refuse_with: int | None = None
        self.requests: list[TokenRequest] = []
        self._scheme = "http" if tls is None else "https"
        self._server = ThreadingHTTPServer((_HOST, 0), _handler(self))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="oauth-endpoint"
        )

    @property
    def url(self) -> str:
        return f"{self._scheme}://{_HOST}:{self._server.server_address[1]}/token"

    @property
    def granted(self) -> int:
        """How many tokens were given out."""
        return sum(request.was_granted for request in self.requests)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(patient(30))
        self._server.server_close()

    def answer(self, authorization: str | None, body: bytes) -> tuple[int, Mapping[str, object]]:
        """The status and the JSON of an answer to a token request."""
        form = {name: values[-1] for name, values in parse_qs(body.decode()).items()}
        client_id, is_shown = self._client(authorization, form)
        status, document = self._judge(client_id if is_shown else None, form)
        self.requests.append(TokenRequest(client_id, form, status == 200, body, authorization))
        return status, document

    def _client(self, authorization: str | None, form: Mapping[str, str]) -> tuple[str | None, bool]:
        """Who asks, and whether that is shown."""
        if form.get("grant_type") == _JWT_BEARER:
            return self._of_assertion(form.get("assertion", "")), True
        if "client_assertion" in form:
            client_id = self._of_assertion(form["client_assertion"])
            is_meant = form.get("client_assertion_type") == _ASSERTION_TYPE and authorization is None
            return client_id, is_meant and form.get("client_id") in (None, client_id)
        client_id, secret = _basic(authorization) if authorization else _from_form(form)
        return client_id, client_id is not None and self.clients.get(client_id) == secret

    def _of_assertion(self, assertion: str) -> str | None:
        """The client of an assertion that can be believed."""
        try:
            client_id = str(jwt.decode(assertion, options={"verify_signature": False}).get("iss"))
            claims = jwt.decode(
                assertion,
                self.keys[client_id],
                ["RS256", "ES256"],
                audience=self.url,
                subject=client_id,
                options={"require": ["iss", "sub", "aud", "exp"]},
            )
        except (jwt.PyJWTError, KeyError):
            return None
        if claims.get("jti") in self._used_ids:
            return None
        if "jti" in claims:
            self._used_ids.add(claims["jti"])
        return str(claims["iss"])

    def _judge(self, client_id: str | None, form: Mapping[str, str]) -> tuple[int, Mapping[str, object]]:
        if self.refuse_with is not None:
            return self.refuse_with, {"error": "temporarily_unavailable"}
        if client_id is None:
            return 401, {"error": "invalid_client", "error_description": "Invalid client credentials"}
        if form.get("grant_type") not in ("client_credentials", _JWT_BEARER):
            return 400, {"error": "unsupported_grant_type"}
        return 200, {
            "access_token": signed_token(client_id, lifetime_s=self.lifetime_s),
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
        }


def signed_token(
    subject: str, *, lifetime_s: int = 3_600, audience: str = AUDIENCE, forged: bool = False
) -> str:
    """A JWT that a broker with `write_jwks`'s file accepts, unless it is forged, too old or for others."""
    now_s = int(time.time())
    claims = {
        "sub": subject,
        "aud": audience,
        "iss": "tests",
        "iat": now_s,
        "exp": now_s + lifetime_s,
        "scope": "kafka",
    }
    header = {"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}
    signed = ".".join(_base64url(json.dumps(part).encode()) for part in (header, claims))
    key = _key(1 if forged else 0)
    return f"{signed}.{_base64url(key.sign(signed.encode(), padding.PKCS1v15(), SHA256()))}"


def write_jwks(path: Path) -> Path:
    """Writes the public key as a JSON Web Key Set, and returns where."""
    numbers = _key(0).public_key().public_numbers()
    key = {
        "kty": "RSA",
        "use": "sig",
        "alg": "RS256",
        "kid": _KEY_ID,
        "n": _base64url(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
        "e": _base64url(numbers.e.to_bytes((numbers.e.bit_length() + 7) // 8, "big")),
    }
    path.write_text(json.dumps({"keys": [key]}), encoding="ascii")
    return path


@cache
def _key(number: int) -> rsa.RSAPrivateKey:
    """The process's own keys: 0 is the brokers' and 1 the forger's. Made once, for that takes 50 ms."""
    return rsa.generate_private_key(65_537, 2_048)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _basic(authorization: str) -> tuple[str | None, str | None]:
    scheme, _, encoded = authorization.partition(" ")
    if scheme != "Basic":
        return None, None
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None, None
    return client_id, secret


def _from_form(form: Mapping[str, str]) -> tuple[str | None, str | None]:
    return form.get("client_id"), form.get("client_secret")


def _handler(endpoint: OAuthEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            status, document = endpoint.answer(self.headers.get("Authorization"), body)
            answer = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: a test's output is its own."""

    return Handler
