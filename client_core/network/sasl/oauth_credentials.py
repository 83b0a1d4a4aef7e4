"""Client id, secret and scope for a token endpoint, from settings or the JAAS config.

Settings take precedence over JAAS options, Kafka's older spelling. Secret files are read for each token; if a
file is invalid, the last credentials stay in use. The extensions, which are not secret, are read once.

Called by `sasl_authenticators.py` once, then by the login thread. Source: ConfigOrJaas,
ClientCredentialsRequestFormatterFactory, OAuthBearerLoginCallbackHandler, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import ConfigError
from client_core.network.sasl.jaas_config import JAAS_CONFIG
from client_core.network.sasl.oauth_bearer_sasl_client import validate_extensions
from client_core.network.sasl.sasl_credentials import JaasOptions
from client_core.network.secret import HIDDEN, InForce, Secret, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.events import EventSink
    from client_core.network.security_config import OAuthBearerConfig, SaslConfig

_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - the name of a setting

_EXTENSION_PREFIX: Final = "extension_"


@dataclass(frozen=True, slots=True, repr=False)
class ClientCredentials:
    """The client's identity, secret and requested scope."""

    client_id: str
    client_secret: str
    scope: str | None

    def __repr__(self) -> str:
        return f"<ClientCredentials {HIDDEN}>"


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """A client that proves its identity by an assertion: its id, if one is sent, and the requested scope."""

    client_id: str | None
    scope: str | None


class _Given(NamedTuple):
    """The current inputs. Never shown."""

    options: Mapping[str, str]  # of the JAAS config
    client_id: str | None
    client_secret: str | None

    def __repr__(self) -> str:
        return f"<_Given {HIDDEN}>"


class OAuthCredentials:
    """The current client id, secret and scope. One owner thread."""

    def __init__(self, config: SaslConfig, oauth_bearer: OAuthBearerConfig, events: EventSink) -> None:
        """Raises ConfigError when they are missing, or their file is unreadable."""
        jaas = _jaas_options(config, events)
        client_id = None if oauth_bearer.client_id is None else Secret(oauth_bearer.client_id, events)
        secret = None if oauth_bearer.client_secret is None else Secret(oauth_bearer.client_secret, events)
        self._scope = oauth_bearer.scope
        self._credentials = InForce(
            lambda: _Given({} if jaas is None else jaas.read(), text(client_id), text(secret)),
            self._checked,
            events,
        )

    def read(self) -> ClientCredentials:
        """Returns the current ones, or the last complete ones. Never raises."""
        return self._credentials.now()

    def _checked(self, given: _Given) -> ClientCredentials:
        scope = _scope(self._scope, given.options)
        return ClientCredentials(
            _sendable(_CLIENT_ID, given.client_id, "clientId", given.options),
            _sendable(_CLIENT_SECRET, given.client_secret, "clientSecret", given.options),
            scope,
        )

    def __repr__(self) -> str:
        return f"<OAuthCredentials {HIDDEN}>"


class ClientIdentities:
    """The current client id and scope. One owner thread."""

    def __init__(self, config: SaslConfig, oauth_bearer: OAuthBearerConfig, events: EventSink) -> None:
        """Raises ConfigError when one can't be sent, or its file is unreadable."""
        jaas = _jaas_options(config, events)
        client_id = None if oauth_bearer.client_id is None else Secret(oauth_bearer.client_id, events)
        self._scope = oauth_bearer.scope
        self._identity = InForce(
            lambda: _Given({} if jaas is None else jaas.read(), text(client_id), None), self._checked, events
        )

    def read(self) -> ClientIdentity:
        """Returns the current ones, or the last that could be sent. Never raises."""
        return self._identity.now()

    def _checked(self, given: _Given) -> ClientIdentity:
        is_given = given.client_id is not None or "clientId" in given.options
        client_id = _sendable(_CLIENT_ID, given.client_id, "clientId", given.options) if is_given else None
        return ClientIdentity(client_id, _scope(self._scope, given.options))

    def __repr__(self) -> str:
        return f"<ClientIdentities {HIDDEN}>"


def _jaas_options(config: SaslConfig, events: EventSink) -> JaasOptions | None:
    return None if config.jaas_config is None else JaasOptions(config.jaas_config, config.mechanism, events)


def _scope(given: str | None, options: Mapping[str, str]) -> str | None:
    """Returns the setting's scope, or else the option's, without surrounding blanks. Raises ConfigError."""
    scope = given or options.get("scope", "")
    if not scope.isascii():
        raise ConfigError("sasl.oauthbearer.scope must be ASCII", name="sasl.oauthbearer.scope")
    return scope.strip() or None


def sasl_extensions(config: SaslConfig, events: EventSink) -> Mapping[str, str]:
    """Returns the JAAS config's `extension_NAME=value` by name.

    Raises ConfigError for unsupported options and for values that can't be sent.
    """
    if config.jaas_config is None:
        return {}
    options = JaasOptions(config.jaas_config, config.mechanism, events).read()
    for name in options:
        if name.startswith("unsecuredLogin"):
            raise _not_taken(name, "unsecured tokens are only for tests; set a token endpoint or a file")
        if name.startswith("ssl."):
            raise _not_taken(
                name,
                "the token endpoint's certificate is checked against the system's authorities; add yours to"
                " them, or to the file that the environment's SSL_CERT_FILE names",
            )
    extensions = {
        name.removeprefix(_EXTENSION_PREFIX): value
        for name, value in options.items()
        if name.startswith(_EXTENSION_PREFIX)
    }
    validate_extensions(extensions, JAAS_CONFIG)
    return extensions


def _not_taken(option: str, remedy: str) -> ConfigError:
    return ConfigError(f"{JAAS_CONFIG}: {option} is not supported: {remedy}", name=JAAS_CONFIG)


def _sendable(setting: str, given: str | None, option: str, options: Mapping[str, str]) -> str:
    """Returns the setting's value, else the option's, without surrounding blanks. Raises ConfigError."""
    value = (options.get(option, "") if given is None else given).strip()
    if not value:
        raise ConfigError(
            f"{setting} is missing: the token endpoint needs it; set it, or {option} in {JAAS_CONFIG}",
            name=setting,
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{setting} is not Unicode text", name=setting) from None
    return value
