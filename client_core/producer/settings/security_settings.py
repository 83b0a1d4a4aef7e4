"""Builds a SecurityConfig from the TLS and SASL settings, and checks their combinations.

Errors name the setting and the remedy, never a value that may be secret. Files are named here and read by
their users. ProducerConfig calls this; pure. Source: DefaultSslEngineFactory, ChannelBuilders, SaslConfigs,
Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError
from client_core.network.security_config import (
    AssertionConfig,
    OAuthBearerConfig,
    SaslConfig,
    SecurityConfig,
    SecurityProtocol,
    SslConfig,
)
from client_core.producer.settings import security_options as options

if TYPE_CHECKING:
    from client_core.producer.settings.config_def import Option
    from client_core.producer.settings.given_settings import GivenSettings


#: What the JWT-bearer grant does not send.
_CREDENTIALS: Final = (options.OAUTH_CLIENT_ID, options.OAUTH_CLIENT_SECRET, options.OAUTH_HEADER_URLENCODE)


def security_config(given: GivenSettings) -> SecurityConfig:
    """Returns the network layer's config. Raises ConfigError; notes settings without an effect."""
    given.check(options.SECURITY_OPTIONS)
    protocol = SecurityProtocol(given.value(options.SECURITY_PROTOCOL).upper())
    where = f"with security.protocol={protocol.value}"
    if not protocol.uses_tls:
        _unused(given, options.SSL_OPTIONS, where)
    if not protocol.uses_sasl:
        _unused(given, options.SASL_OPTIONS, where)
    sasl = _sasl(given) if protocol.uses_sasl else None
    if sasl is not None and not protocol.uses_tls and sasl.mechanism in options.BEARS_ITS_SECRET:
        given.warn(
            f"sasl.mechanism={sasl.mechanism} sends its secret unencrypted {where}; SASL_SSL encrypts it"
        )
    return SecurityConfig(protocol, ssl=_ssl(given) if protocol.uses_tls else None, sasl=sasl)


def security_shown(given: GivenSettings, security: SecurityConfig) -> tuple[str, ...]:
    """Returns `name=value` of given settings and effective defaults; secrets masked, paths not."""
    in_force: list[Option[object]] = [options.SECURITY_PROTOCOL]
    if security.ssl is not None:
        in_force.extend(options.SSL_OPTIONS)
    if security.sasl is not None and security.sasl.oauth_bearer is not None:
        asks = security.sasl.oauth_bearer.token_provider is None
        signs = asks and security.sasl.oauth_bearer.assertion is not None
        unread = () if signs else options.ASSERTION_OPTIONS if asks else options.TOKEN_REQUEST_OPTIONS
        in_force.extend(option for option in options.OAUTH_OPTIONS if option not in unread)
    shown = (given.shown(o) for o in options.SECURITY_OPTIONS if o in in_force or o in given)
    return tuple(text for text in shown if text is not None)


def _unused(given: GivenSettings, unused: tuple[Option[object], ...], where: str) -> None:
    names = given.names(unused)
    if names:
        given.unused.extend(names)
        verb = "has" if len(names) == 1 else "have"
        given.warn(f"{', '.join(names)} {verb} no effect {where}")


# -- TLS -----------------------------------------------------------------------------------------------------


def _ssl(given: GivenSettings) -> SslConfig:
    _not_both(given, options.TRUSTSTORE_LOCATION, options.TRUSTSTORE_CERTIFICATES)
    _not_both(given, options.KEYSTORE_LOCATION, options.KEYSTORE_KEY)
    _not_both(given, options.KEYSTORE_LOCATION, options.KEYSTORE_CERTIFICATE_CHAIN)
    _together(given, options.KEYSTORE_KEY, options.KEYSTORE_CERTIFICATE_CHAIN)
    keystore = given.file(options.KEYSTORE_LOCATION)
    key = keystore or given.secret(options.KEYSTORE_KEY)
    if key is None:
        _unused(given, (options.KEY_PASSWORD,), "without ssl.keystore.location or ssl.keystore.key")
    verifies = given.value(options.ENDPOINT_IDENTIFICATION) != ""
    if not verifies:
        given.warn(
            "ssl.endpoint.identification.algorithm is empty: a broker's host name is not verified, and "
            "anyone with a certificate of a trusted authority can intercept the connection"
        )
    return SslConfig(
        truststore=given.file(options.TRUSTSTORE_LOCATION) or given.secret(options.TRUSTSTORE_CERTIFICATES),
        key=key,
        certificate_chain=keystore or given.secret(options.KEYSTORE_CERTIFICATE_CHAIN),
        key_password=None if key is None else given.secret(options.KEY_PASSWORD),
        enabled_protocols=given.value(options.ENABLED_PROTOCOLS),
        cipher_suites=given.value(options.CIPHER_SUITES),
        verify_host_name=verifies,
    )


# -- SASL ----------------------------------------------------------------------------------------------------


def _sasl(given: GivenSettings) -> SaslConfig:
    mechanism = given.optional(options.SASL_MECHANISM)
    if mechanism is None:
        raise ConfigError(
            "sasl.mechanism must be given where security.protocol has SASL: one of "
            f"{', '.join(options.MECHANISMS)}. Kafka's default, GSSAPI (Kerberos), is not supported",
            name=options.SASL_MECHANISM.name,
        )
    if mechanism == options.OAUTHBEARER:
        return _oauth_bearer(given)
    _unused(given, options.OAUTH_OPTIONS, f"with sasl.mechanism={mechanism}")
    _not_both(given, options.JAAS_CONFIG, options.SASL_USERNAME)
    _not_both(given, options.JAAS_CONFIG, options.SASL_PASSWORD)
    _together(given, options.SASL_USERNAME, options.SASL_PASSWORD)
    jaas_config, username = given.secret(options.JAAS_CONFIG), given.secret(options.SASL_USERNAME)
    if jaas_config is None and username is None:
        raise ConfigError(
            f"sasl.mechanism={mechanism} needs credentials: set sasl.username and sasl.password, "
            "or sasl.jaas.config",
            name=options.SASL_USERNAME.name,
        )
    return SaslConfig(mechanism, jaas_config, username, given.secret(options.SASL_PASSWORD))


def _oauth_bearer(given: GivenSettings) -> SaslConfig:
    where = f"with sasl.mechanism={options.OAUTHBEARER}"
    _unused(given, (options.SASL_USERNAME, options.SASL_PASSWORD), where)
    _not_both(given, options.TOKEN_ENDPOINT_URL, options.TOKEN_PROVIDER)
    provider = given.optional(options.TOKEN_PROVIDER)
    url = given.optional(options.TOKEN_ENDPOINT_URL)
    if provider is not None:
        _unused(given, options.TOKEN_REQUEST_OPTIONS, f"with {options.TOKEN_PROVIDER.name}")
        login = replace(_login(given), token_provider=provider)
        return SaslConfig(options.OAUTHBEARER, given.secret(options.JAAS_CONFIG), oauth_bearer=login)
    if url is None:
        raise ConfigError(
            f"{options.TOKEN_ENDPOINT_URL.name} must be given {where}: the URL of a token endpoint, or "
            f"file:// and the path of a token file; or set {options.TOKEN_PROVIDER.name}",
            name=options.TOKEN_ENDPOINT_URL.name,
        )
    retriever = _retriever(given, url)
    if url.lower().startswith("http:"):
        given.warn(f"{options.TOKEN_ENDPOINT_URL.name} is http: the client's secret is sent unencrypted")
    assertion = _assertion(given, retriever)
    jaas_config = given.secret(options.JAAS_CONFIG)
    if retriever == options.JWT_BEARER_RETRIEVER:
        _unused(given, _CREDENTIALS, f"with the retriever {retriever.rpartition('.')[2]}")
    elif assertion is not None:
        _unused(
            given,
            (options.OAUTH_CLIENT_SECRET, options.OAUTH_HEADER_URLENCODE),
            "with an assertion, which replaces the client's secret",
        )
    else:
        _together(given, options.OAUTH_CLIENT_ID, options.OAUTH_CLIENT_SECRET)
        if retriever != options.FILE_RETRIEVER and jaas_config is None:
            _need_credentials(given)
    oauth_bearer = replace(
        _login(given),
        token_endpoint_url=url,
        client_id=given.secret(options.OAUTH_CLIENT_ID),
        client_secret=None if assertion is not None else given.secret(options.OAUTH_CLIENT_SECRET),
        assertion=assertion,
        is_jwt_bearer=retriever == options.JWT_BEARER_RETRIEVER,
        scope=given.optional(options.OAUTH_SCOPE),
    )
    return SaslConfig(options.OAUTHBEARER, jaas_config, oauth_bearer=oauth_bearer)


def _retriever(given: GivenSettings, url: str) -> str:
    """Returns the class that Java would use, never the default one. Raises ConfigError."""
    retriever = given.value(options.JWT_RETRIEVER_CLASS)
    is_file = url.lower().startswith("file:")
    if retriever == options.DEFAULT_RETRIEVER:
        return options.FILE_RETRIEVER if is_file else options.CLIENT_CREDENTIALS_RETRIEVER
    if is_file != (retriever == options.FILE_RETRIEVER):
        needed = "an https or http URL" if is_file else "file:// and the path of a file"
        raise ConfigError(
            f"{options.JWT_RETRIEVER_CLASS.name}={retriever} needs {needed} in "
            f"{options.TOKEN_ENDPOINT_URL.name}",
            name=options.TOKEN_ENDPOINT_URL.name,
        )
    return retriever


def _assertion(given: GivenSettings, retriever: str) -> AssertionConfig | None:
    """Returns the assertion that is sent, if one is. Raises ConfigError when its settings are incomplete."""
    if retriever == options.FILE_RETRIEVER:
        _unused(given, options.ASSERTION_OPTIONS, "with a token that lies in a file")
        return None
    file = given.file(options.ASSERTION_FILE)
    if file is not None:
        _unused(given, options.SIGNED_ASSERTION_OPTIONS, f"with {options.ASSERTION_FILE.name}")
        return AssertionConfig(file)
    is_signed = options.ASSERTION_ISS in given or retriever == options.JWT_BEARER_RETRIEVER
    if not is_signed:
        either = f"{options.ASSERTION_ISS.name} or {options.ASSERTION_FILE.name}"
        _unused(given, options.SIGNED_ASSERTION_OPTIONS, f"without {either}")
        return None
    private_key = given.file(options.ASSERTION_PRIVATE_KEY_FILE)
    if private_key is None:
        raise ConfigError(
            f"{options.ASSERTION_PRIVATE_KEY_FILE.name} must be given: an assertion is signed with it. "
            f"Or set {options.ASSERTION_FILE.name} to a ready one",
            name=options.ASSERTION_PRIVATE_KEY_FILE.name,
        )
    return AssertionConfig(
        private_key=private_key,
        passphrase=given.secret(options.ASSERTION_PASSPHRASE),
        template=given.file(options.ASSERTION_TEMPLATE_FILE),
        algorithm=given.value(options.ASSERTION_ALGORITHM).upper(),
        audience=_claim(given, options.ASSERTION_AUD),
        issuer=_claim(given, options.ASSERTION_ISS),
        subject=_claim(given, options.ASSERTION_SUB),
        lifetime_s=given.value(options.ASSERTION_EXP_S),
        not_before_s=given.value(options.ASSERTION_NBF_S),
        has_jti=given.value(options.ASSERTION_JTI),
    )


def _claim(given: GivenSettings, option: Option[str]) -> str | None:
    value = given.optional(option)
    if value == "":
        raise ConfigError(f"{option.name} is empty; leave it out", name=option.name)
    return value


def _need_credentials(given: GivenSettings) -> None:
    if options.OAUTH_CLIENT_ID not in given:
        raise ConfigError(
            f"sasl.mechanism={options.OAUTHBEARER} needs credentials for {options.TOKEN_ENDPOINT_URL.name}: "
            f"set {options.OAUTH_CLIENT_ID.name} and {options.OAUTH_CLIENT_SECRET.name}, or "
            f"sasl.jaas.config, or {options.ASSERTION_FILE.name}",
            name=options.OAUTH_CLIENT_ID.name,
        )


def _login(given: GivenSettings) -> OAuthBearerConfig:
    """Returns the config without a source of tokens."""
    return OAuthBearerConfig(
        scope_claim_name=given.value(options.OAUTH_SCOPE_CLAIM_NAME),
        sub_claim_name=given.value(options.OAUTH_SUB_CLAIM_NAME),
        header_urlencode=given.value(options.OAUTH_HEADER_URLENCODE),
        connect_timeout_ms=given.value(options.LOGIN_CONNECT_TIMEOUT_MS),
        read_timeout_ms=given.value(options.LOGIN_READ_TIMEOUT_MS),
        retry_backoff_ms=given.value(options.LOGIN_RETRY_BACKOFF_MS),
        retry_backoff_max_ms=given.value(options.LOGIN_RETRY_BACKOFF_MAX_MS),
        refresh_window_factor=given.value(options.LOGIN_REFRESH_WINDOW_FACTOR),
        refresh_window_jitter=given.value(options.LOGIN_REFRESH_WINDOW_JITTER),
        refresh_min_period_s=given.value(options.LOGIN_REFRESH_MIN_PERIOD_S),
        refresh_buffer_s=given.value(options.LOGIN_REFRESH_BUFFER_S),
    )


# -- combinations --------------------------------------------------------------------------------------------


def _not_both(given: GivenSettings, one: Option[object], other: Option[object]) -> None:
    if one in given and other in given:
        raise ConfigError(f"{one.name} and {other.name} are both given; choose one", name=other.name)


def _together(given: GivenSettings, one: Option[object], other: Option[object]) -> None:
    for present, missing in ((one, other), (other, one)):
        if present in given and missing not in given:
            raise ConfigError(
                f"{present.name} is given without {missing.name}; they go together", name=missing.name
            )
