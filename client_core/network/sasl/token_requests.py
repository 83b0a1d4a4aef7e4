"""Formats the requests to a token endpoint: which grant, and how the client proves its identity.

    client credentials, RFC 6749 section 4.4       grant_type=client_credentials[&scope=..]
      by a secret                                    Authorization: Basic base64(id:secret)
      by an assertion, RFC 7523 section 2.2          client_assertion_type=..&client_assertion=..
                                                     &grant_type=..[&client_id=..][&scope=..]
    JWT bearer, RFC 7523 section 2.1               grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer
                                                     &assertion=..[&scope=..]

`sasl_authenticators.py` builds a formatter, `http_jwt_retriever.py` asks it for each request, on the login's
thread. Source: HttpRequestFormatter, ClientSecretRequestFormatter, ClientAssertionRequestFormatter,
JwtBearerRequestFormatter, Kafka 4.3.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote_plus

from client_core.network.secret import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.network.sasl.assertions import Assertions
    from client_core.network.sasl.oauth_credentials import ClientIdentities, OAuthCredentials

_HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
_CLIENT_CREDENTIALS: Final = "client_credentials"
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

#: The beginning of a JWT, and what may follow: an endpoint may repeat a part of an assertion.
_JWT: Final = re.compile(r"eyJ[\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True, repr=False)
class TokenRequest:
    """The body, the headers, and the secrets in them."""

    body: bytes
    headers: Mapping[str, str]
    secrets: tuple[str, ...]

    def masked(self, text: str) -> str:
        """Masks in a text of the token endpoint what was sent to it."""
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return _JWT.sub(HIDDEN, text)

    def __repr__(self) -> str:
        return f"<TokenRequest {HIDDEN}>"


class RequestFormatter(Protocol):
    """Formats the next request, from the current secrets. One owner thread."""

    def format(self) -> TokenRequest:
        """Returns it. Never raises."""
        ...


class ClientSecretRequestFormatter:
    """The client-credentials grant, by id and secret."""

    def __init__(self, credentials: OAuthCredentials, *, header_urlencode: bool) -> None:
        self._credentials = credentials
        self._header_urlencode = header_urlencode

    def format(self) -> TokenRequest:
        given = self._credentials.read()
        client_id, secret, scope = given.client_id, given.client_secret, given.scope
        if self._header_urlencode:
            client_id, secret = quote_plus(client_id), quote_plus(secret)
            scope = None if scope is None else quote_plus(scope)
        basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        body = f"grant_type={_CLIENT_CREDENTIALS}" + ("" if scope is None else f"&scope={scope}")
        headers = {**_HEADERS, "Authorization": f"Basic {basic}"}
        secrets = (basic, given.client_secret, secret, given.client_id, client_id)
        return TokenRequest(body.encode(), headers, secrets)


class ClientAssertionRequestFormatter:
    """The client-credentials grant, by an assertion."""

    def __init__(self, identities: ClientIdentities, assertions: Assertions) -> None:
        self._identities = identities
        self._assertions = assertions

    def format(self) -> TokenRequest:
        identity, assertion = self._identities.read(), self._assertions.assertion()
        return _of_assertion(
            assertion,
            client_assertion_type=_ASSERTION_TYPE,
            client_assertion=assertion,
            grant_type=_CLIENT_CREDENTIALS,
            client_id=identity.client_id,
            scope=identity.scope,
        )


class JwtBearerRequestFormatter:
    """The JWT-bearer grant."""

    def __init__(self, scope: str | None, assertions: Assertions) -> None:
        self._scope = scope
        self._assertions = assertions

    def format(self) -> TokenRequest:
        assertion = self._assertions.assertion()
        return _of_assertion(assertion, grant_type=_JWT_BEARER, assertion=assertion, scope=self._scope)


def _of_assertion(sent: str, **fields: str | None) -> TokenRequest:
    body = "&".join(f"{name}={quote_plus(value)}" for name, value in fields.items() if value)
    return TokenRequest(body.encode(), _HEADERS, (sent, sent.rpartition(".")[2]))
