"""The network layer's security config: protocol, trust, certificates and credentials.

ProducerConfig builds and checks it. Secret texts are SecretSources, which may be files that change.
Immutable, any thread. Source: SecurityProtocol, SslConfigs, SaslConfigs, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.network.secret import SecretSource


class SecurityProtocol(Enum):
    """security.protocol: with or without TLS and SASL."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class SslConfig:
    """The authorities we trust, and our own certificate. All stores are PEM; one file may hold key and chain.

    `truststore` None: the system's own authorities. `key` and `certificate_chain` need each other. Empty
    `cipher_suites`: OpenSSL's choice; names are IANA's, as in Java, or OpenSSL's.
    """

    truststore: SecretSource | None = None
    key: SecretSource | None = None
    certificate_chain: SecretSource | None = None
    key_password: SecretSource | None = None
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    verify_host_name: bool = True

    @property
    def may_change(self) -> bool:
        """Whether a file holds any of it."""
        return _are_files(self.truststore, self.key, self.certificate_chain, self.key_password)


@dataclass(frozen=True, slots=True, repr=False)
class TokenProvider:
    """A callable that returns OAUTHBEARER's tokens, or its place as `module:attribute`.

    It is shown by its place only: the repr of a callable may hold its arguments.
    """

    place: str
    function: Callable[[], object] | None = None  # None: the place is not imported yet

    @staticmethod
    def of(function: Callable[[], object]) -> TokenProvider:
        """Returns the provider of a callable. The place of one without a name is that of its type."""
        named = function if isinstance(getattr(function, "__qualname__", None), str) else type(function)
        return TokenProvider(f"{named.__module__}:{named.__qualname__}", function)

    def __repr__(self) -> str:
        return self.place


@dataclass(frozen=True, slots=True)
class AssertionConfig:
    """The JWT by which a token endpoint knows us: that of `file`, or else one that `private_key` signs.

    `template` is a JSON file of headers and claims. Claims that are None are left out.
    """

    file: SecretSource | None = None
    private_key: SecretSource | None = None
    passphrase: SecretSource | None = None
    template: SecretSource | None = None
    algorithm: str = "RS256"
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    lifetime_s: int = 300
    not_before_s: int = 60
    has_jti: bool = False


@dataclass(frozen=True, slots=True)
class OAuthBearerConfig:
    """The source of OAUTHBEARER's token, and when to fetch it again.

    `token_endpoint_url` is an https or http address for the client-credentials grant, or file:// and the path
    of a token file; None with a `token_provider`. The JAAS config may hold client id and secret instead.
    An `assertion` replaces the client's secret; with `is_jwt_bearer` it is the grant itself.
    """

    token_endpoint_url: str | None = field(default=None, repr=False)  # may hold a secret in its query
    client_id: SecretSource | None = None
    client_secret: SecretSource | None = None
    scope: str | None = None
    assertion: AssertionConfig | None = None
    is_jwt_bearer: bool = False
    token_provider: TokenProvider | None = None
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"
    header_urlencode: bool = False
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    refresh_window_factor: float = 0.8
    refresh_window_jitter: float = 0.05
    refresh_min_period_s: int = 60
    refresh_buffer_s: int = 300


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """The mechanism and its credentials: a JAAS config, or user name and password."""

    mechanism: str
    jaas_config: SecretSource | None = None
    username: SecretSource | None = None
    password: SecretSource | None = None
    oauth_bearer: OAuthBearerConfig | None = None

    @property
    def may_change(self) -> bool:
        """Whether any of it is read from a file, or fetched."""
        return self.oauth_bearer is not None or _are_files(self.jaas_config, self.username, self.password)


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """`ssl` is set with TLS, `sasl` with SASL."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    ssl: SslConfig | None = None
    sasl: SaslConfig | None = None

    @property
    def may_change(self) -> bool:
        """Whether certificates or credentials may change while the client runs."""
        return any(part is not None and part.may_change for part in (self.ssl, self.sasl))


def _are_files(*sources: SecretSource | None) -> bool:
    return any(source is not None and source.path is not None for source in sources)


#: Neither encryption nor authentication.
PLAINTEXT: Final = SecurityConfig()
