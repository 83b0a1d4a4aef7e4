"""Builds a SASL authenticator for each connection, from one set of credentials.

Missing credentials, a wrong login module and an unsupported mechanism are reported here, before any
connection. Created on the caller's thread; the I/O thread builds authenticators and closes this. Source:
SaslChannelBuilder, LoginManager, Kafka 4.3.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError, DisconnectError, SaslAuthenticationError
from client_core.events import NO_EVENTS
from client_core.network.sasl.assertions import assertions
from client_core.network.sasl.client_jwt_validator import ClientJwtValidator
from client_core.network.sasl.file_login import FileLogin
from client_core.network.sasl.http_jwt_retriever import TOKEN_ENDPOINT_URL, HttpJwtRetriever
from client_core.network.sasl.oauth_bearer_login import OAuthBearerLogin
from client_core.network.sasl.oauth_bearer_sasl_client import OAuthBearerSaslClient
from client_core.network.sasl.oauth_credentials import ClientIdentities, OAuthCredentials, sasl_extensions
from client_core.network.sasl.provider_jwt_retriever import ProviderJwtRetriever
from client_core.network.sasl.sasl_client import PlainSaslClient
from client_core.network.sasl.sasl_client_authenticator import SaslClientAuthenticator
from client_core.network.sasl.sasl_credentials import OAUTHBEARER, PLAIN, PasswordLogin
from client_core.network.sasl.scram_sasl_client import ScramMechanism, ScramSaslClient
from client_core.network.sasl.token_requests import (
    ClientAssertionRequestFormatter,
    ClientSecretRequestFormatter,
    JwtBearerRequestFormatter,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.network.authenticator import Authenticator
    from client_core.network.sasl.oauth_bearer_login import JwtRetriever, TokenSource
    from client_core.network.sasl.sasl_client import SaslClient
    from client_core.network.sasl.token_requests import RequestFormatter
    from client_core.network.security_config import OAuthBearerConfig, SaslConfig

    #: Begins an exchange; None while the credentials are being fetched.
    _Clients = Callable[[], SaslClient | None]

_MECHANISM: Final = "sasl.mechanism"
_GSSAPI: Final = "GSSAPI"
_SCRAM: Final[Mapping[str, ScramMechanism]] = {one.mechanism_name: one for one in ScramMechanism}

#: The mechanisms of this client.
SASL_MECHANISMS: Final = (PLAIN, *_SCRAM, OAUTHBEARER)


class SaslAuthenticators:
    """Builds authenticators of one mechanism."""

    def __init__(
        self,
        config: SaslConfig,
        *,
        client_id: str,
        clock: Clock,
        random: Random,
        events: EventSink = NO_EVENTS,
    ) -> None:
        """Reads the credentials; raises ConfigError naming the setting.

        With OAUTHBEARER and a token endpoint or a callable, the first connection starts the thread that
        fetches the token.
        """
        self._mechanism = config.mechanism
        self._client_id = client_id
        self._random = random
        self._login: TokenSource | None = None
        if config.mechanism == OAUTHBEARER:
            extensions = sasl_extensions(config, events)
            self._login = login = _token_source(config, clock, random, events)
            self._clients: Callable[[], _Clients] = partial(_oauth_bearer, login, extensions)
            self._version: Callable[[], int] = _Principals(login).version
        else:
            scram = _scram_of(config.mechanism)
            passwords = PasswordLogin(config, events)
            self._clients = partial(_with_password, passwords, scram)
            self._version = passwords.version

    def authenticator(self, host: str) -> Authenticator:
        """Raises DisconnectError when no token is available at the moment.

        The authenticator waits for a token that is being fetched. A refused one fails the authentication.
        """
        if self._login is not None:
            with suppress(SaslAuthenticationError):  # raised again when the channel authenticates
                self._login.token()
        return SaslClientAuthenticator(self._mechanism, self._clients(), self._client_id, self._random)

    def version(self) -> int:
        """Returns a number that grows with each new credential. Never raises.

        A newer token of the same principal is no new credential. It renews the session on the existing
        connection where the broker requires that (KIP-368).
        """
        return self._version()

    def close(self) -> None:
        """Ends the thread that fetches tokens. Idempotent."""
        if self._login is not None:
            self._login.close()

    def __repr__(self) -> str:
        return f"<SaslAuthenticators {self._mechanism}>"


class _Principals:
    """Counts the principals of the tokens: another principal can't renew a session."""

    def __init__(self, login: TokenSource) -> None:
        self._login = login
        self._name: str | None = None
        self._count = 0

    def version(self) -> int:
        """Returns how many there were; 0 before the first. Never raises."""
        name = self._login.principal_name
        if name is not None and name != self._name:
            self._name = name
            self._count += 1
        return self._count


def _scram_of(mechanism: str) -> ScramMechanism | None:
    """Returns the SCRAM mechanism of that name; None for PLAIN. Raises ConfigError for any other."""
    scram = _SCRAM.get(mechanism)
    if scram is None and mechanism != PLAIN:
        raise _no_such_mechanism(mechanism)
    return scram


def _with_password(login: PasswordLogin, scram: ScramMechanism | None) -> _Clients:
    """Returns the exchanges of one connection: its session is renewed with what it began with.

    Changed credentials may be another user's, or not known to the broker yet.
    """
    credentials = login.read()

    def new_client() -> SaslClient:
        if scram is None:
            return PlainSaslClient(credentials.username, credentials.password)
        return ScramSaslClient(scram, credentials.username, credentials.password, credentials.extensions)

    return new_client


def _oauth_bearer(login: TokenSource, extensions: Mapping[str, str]) -> _Clients:
    """Returns the exchanges of one connection: its session is renewed with the current token."""
    principals: set[str] = set()

    def new_client() -> SaslClient | None:
        token = login.token()
        if token is None:
            return None
        principals.add(token.principal_name)
        if len(principals) > 1:
            raise DisconnectError("the new token is another principal's, which can't renew the session")
        return OAuthBearerSaslClient(token.value, extensions)

    return new_client


def _token_source(config: SaslConfig, clock: Clock, random: Random, events: EventSink) -> TokenSource:
    oauth_bearer = config.oauth_bearer
    if oauth_bearer is None:
        raise ConfigError(
            f"{TOKEN_ENDPOINT_URL} is missing: {OAUTHBEARER} needs the address of a token endpoint, or file://"
            " and the path of a file that holds a token",
            name=TOKEN_ENDPOINT_URL,
        )
    validator = ClientJwtValidator(oauth_bearer.scope_claim_name, oauth_bearer.sub_claim_name)
    url = oauth_bearer.token_endpoint_url
    if url is not None and url.lower().startswith("file:"):
        return FileLogin(url, validator, clock, events)
    retriever: JwtRetriever
    if oauth_bearer.token_provider is not None:
        retriever = ProviderJwtRetriever(oauth_bearer.token_provider)
    else:
        retriever = HttpJwtRetriever(oauth_bearer, _request_formatter(config, oauth_bearer, clock, events))
    return OAuthBearerLogin(oauth_bearer, retriever, validator, clock, random, events)


def _request_formatter(
    config: SaslConfig, oauth_bearer: OAuthBearerConfig, clock: Clock, events: EventSink
) -> RequestFormatter:
    """Returns that of the grant. Raises ConfigError when its secrets are missing or can't be used."""
    if oauth_bearer.assertion is None:
        credentials = OAuthCredentials(config, oauth_bearer, events)
        return ClientSecretRequestFormatter(credentials, header_urlencode=oauth_bearer.header_urlencode)
    by = assertions(oauth_bearer.assertion, clock, events)
    if oauth_bearer.is_jwt_bearer:
        return JwtBearerRequestFormatter(oauth_bearer.scope, by)
    return ClientAssertionRequestFormatter(ClientIdentities(config, oauth_bearer, events), by)


def _no_such_mechanism(mechanism: str) -> ConfigError:
    has = f"this client has {', '.join(SASL_MECHANISMS)}"
    if mechanism == _GSSAPI:
        return ConfigError(f"{_MECHANISM}={_GSSAPI} (Kerberos) is not supported: {has}", name=_MECHANISM)
    return ConfigError(f"{_MECHANISM}={mechanism} is unknown: {has}", name=_MECHANISM)
