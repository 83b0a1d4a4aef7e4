"""SASL credentials, read for each connection, from settings or the JAAS config.

A secret may be a file that changes while the client runs. Its current content is used for the next
connection. After an invalid change the last credentials stay in use (`secret.py`).

`sasl_authenticators.py` calls this once. After that, only the thread that authenticates or logs in calls it:
an object belongs to one thread at a time. Source: JaasContext, PlainLoginModule, ScramLoginModule,
ConfigOrJaas, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError
from client_core.network.sasl.jaas_config import JAAS_CONFIG, JaasConfig
from client_core.network.secret import HIDDEN, InForce, Secret, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.events import EventSink
    from client_core.network.secret import SecretSource
    from client_core.network.security_config import SaslConfig

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"

_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"

#: The login module with each mechanism's options.
_MODULES: Final = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_SHA_256: _SCRAM_MODULE,
    SCRAM_SHA_512: _SCRAM_MODULE,
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}

_USERNAME: Final = "sasl.username"
_PASSWORD: Final = "sasl.password"  # noqa: S105 - the name of a setting

#: ScramLoginModule's option for delegation tokens (KIP-48), which becomes an extension of the exchange.
_TOKEN_AUTH: Final = "tokenauth"  # noqa: S105 - the name of an option


@dataclass(frozen=True, slots=True, repr=False)
class PasswordCredentials:
    """User name and password; `extensions` are SCRAM's."""

    username: str
    password: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<PasswordCredentials {HIDDEN}>"


class JaasOptions:
    """The options of the JAAS config's login module. One owner thread."""

    def __init__(self, source: SecretSource, mechanism: str, events: EventSink) -> None:
        """Raises ConfigError when it is unreadable, or names another mechanism's module."""
        self._mechanism = mechanism
        self._options = InForce(Secret(source, events).read, lambda text: _options(text, mechanism), events)

    def read(self) -> Mapping[str, str]:
        """Returns the current options, or the last valid ones. Never raises."""
        return self._options.now()

    def __repr__(self) -> str:
        return f"<JaasOptions {self._mechanism} {HIDDEN}>"


class PasswordLogin:
    """Name and password of PLAIN and SCRAM. One owner thread."""

    def __init__(self, config: SaslConfig, events: EventSink) -> None:
        """Raises ConfigError when they are missing, or can't be sent."""
        if config.jaas_config is not None and (config.username or config.password):
            raise ConfigError(
                f"{JAAS_CONFIG} and {_USERNAME} are both set; remove one of them", name=JAAS_CONFIG
            )
        self._mechanism = config.mechanism
        self._credentials: (
            InForce[Mapping[str, str], PasswordCredentials]
            | InForce[tuple[str | None, str | None], PasswordCredentials]
        )
        if config.jaas_config is not None:
            options = JaasOptions(config.jaas_config, config.mechanism, events)
            self._credentials = InForce(options.read, self._of_jaas_config, events)
        else:
            username = None if config.username is None else Secret(config.username, events)
            password = None if config.password is None else Secret(config.password, events)
            self._credentials = InForce(lambda: (text(username), text(password)), self._of_settings, events)

    def read(self) -> PasswordCredentials:
        """Returns the current name and password, or the last valid ones. Never raises."""
        return self._credentials.now()

    def version(self) -> int:
        """Returns a number that grows with each new credential. Never raises."""
        return self._credentials.version()

    def _of_jaas_config(self, options: Mapping[str, str]) -> PasswordCredentials:
        username, password = (
            _sendable(options.get(name), f"{JAAS_CONFIG}: {name}", self._mechanism)
            for name in ("username", "password")
        )
        token_auth = options.get(_TOKEN_AUTH, "").lower() == "true" and self._mechanism != PLAIN
        return PasswordCredentials(username, password, {_TOKEN_AUTH: "true"} if token_auth else {})

    def _of_settings(self, given: tuple[str | None, str | None]) -> PasswordCredentials:
        username, password = given
        return PasswordCredentials(
            _sendable(username, _USERNAME, self._mechanism),
            _sendable(password, _PASSWORD, self._mechanism),
            {},
        )

    def __repr__(self) -> str:
        return f"<PasswordLogin {self._mechanism} {HIDDEN}>"


def _sendable(value: str | None, where: str, mechanism: str) -> str:
    """Returns the value if a SASL token can carry it.

    Otherwise raises a ConfigError whose text does not contain the value.
    """
    setting = where.partition(":")[0]
    if not value:
        remedy = f"set {JAAS_CONFIG}, or {_USERNAME} and {_PASSWORD}"
        raise ConfigError(f"{where} is missing: {mechanism} needs it; {remedy}", name=setting)
    if "\0" in value:
        raise ConfigError(f"{where} contains a NUL character, which SASL does not allow", name=setting)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where} is not Unicode text", name=setting) from None
    return value


def _options(text: str, mechanism: str) -> Mapping[str, str]:
    """Raises ConfigError, also for another mechanism's login module."""
    jaas_config = JaasConfig.parse(text)
    needed = _MODULES[mechanism]
    if jaas_config.module_name != needed.rpartition(".")[2]:
        raise ConfigError(
            f"{JAAS_CONFIG} names {jaas_config.shown_module} as login module, but sasl.mechanism={mechanism}"
            f" needs {needed}; change one of them",
            name=JAAS_CONFIG,
        )
    return jaas_config.options
