"""The supported TLS and SASL settings; `config_options.py` has the others.

Deviations from Kafka are in the option's description: stores are PEM, `sasl.mechanism` has no default.
`sasl.username` and `sasl.password` are librdkafka's, to avoid a JAAS config. `security_settings.py` checks
their combinations. Pure. Source: SslConfigs, SaslConfigs, Kafka 4.3.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from client_core.producer.settings.config_def import (
    ANY_LIST,
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    PROVIDER,
    SHORT,
    STRING,
    URL,
    Option,
    Rule,
    at_least,
    between,
    one_of,
    one_of_any_case,
)

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)

#: Anyone who reads this traffic has the password, or the token.
BEARS_ITS_SECRET: Final = (PLAIN, OAUTHBEARER)

#: The values of SSLContext.getInstance; ssl.enabled.protocols decides which are used.
_PROTOCOLS: Final = ("TLS", "TLSv1.2", "TLSv1.3")
_ENABLED_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")

_TO_PEM: Final = (
    "only PEM stores can be read; make one with: keytool -importkeystore -srckeystore STORE "
    "-destkeystore store.p12 -deststoretype PKCS12, then openssl pkcs12 -in store.p12 -out store.pem"
)


def _store_type_complaint(value: str) -> str | None:
    return None if value.upper() == "PEM" else _TO_PEM


def _enabled_protocols_complaint(values: tuple[str, ...]) -> str | None:
    wrong = [value for value in values if value not in _ENABLED_PROTOCOLS]
    if wrong or not values:
        return f"must be one or more of {', '.join(_ENABLED_PROTOCOLS)}; got {', '.join(wrong) or 'none'}"
    return None


def _endpoint_complaint(value: str) -> str | None:
    if value == "" or value.lower() == "https":
        return None
    return "Must be https, or empty to verify no host names"


def _mechanism_complaint(value: str) -> str | None:
    if value in MECHANISMS:
        return None
    known = ", ".join(MECHANISMS)
    if value == "GSSAPI":
        return (
            f"Kerberos is not supported by this client; enable one of {known} at the brokers "
            "(sasl.enabled.mechanisms), and name it here"
        )
    return f"String must be one of: {known}"


def _token_endpoint_complaint(value: str) -> str | None:
    url = urlsplit(value)
    if url.scheme not in ("https", "http", "file"):
        return "Must be an https or http URL, or file:// and the path of a file that holds a token"
    if url.scheme != "file" and not url.hostname:
        return "The URL names no host"
    return None


_JAVAS: Final = "org.apache.kafka.common.security.oauthbearer."
DEFAULT_RETRIEVER: Final = f"{_JAVAS}DefaultJwtRetriever"
CLIENT_CREDENTIALS_RETRIEVER: Final = f"{_JAVAS}ClientCredentialsJwtRetriever"
FILE_RETRIEVER: Final = f"{_JAVAS}FileJwtRetriever"
JWT_BEARER_RETRIEVER: Final = f"{_JAVAS}JwtBearerJwtRetriever"
_RETRIEVERS: Final = (DEFAULT_RETRIEVER, CLIENT_CREDENTIALS_RETRIEVER, FILE_RETRIEVER, JWT_BEARER_RETRIEVER)


def _retriever_complaint(value: str) -> str | None:
    if value in _RETRIEVERS:
        return None
    return (
        f"Java's classes can't be loaded; these are built in: {', '.join(_RETRIEVERS)}. "
        f"{TOKEN_PROVIDER.name} takes a Python callable"
    )


_PEM: Final = Rule("[PEM]", _store_type_complaint)

SECURITY_PROTOCOL: Final = Option(
    "security.protocol",
    STRING,
    "PLAINTEXT",
    one_of_any_case("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"),
    "How to talk to brokers: with TLS or without, with SASL or without.",
)

# -- TLS -----------------------------------------------------------------------------------------------------

TRUSTSTORE_TYPE: Final = Option(
    "ssl.truststore.type",
    STRING,
    "PEM",
    None,
    "The truststore's format. Only PEM can be read.",
    taken=_PEM,
    kafka_default="JKS",
)
TRUSTSTORE_LOCATION: Final = Option(
    "ssl.truststore.location",
    STRING,
    None,
    None,
    "A file of authorities to trust; without one, the system's own are trusted. Read again when it changes.",
)
TRUSTSTORE_CERTIFICATES: Final = Option(
    "ssl.truststore.certificates",
    PASSWORD,
    None,
    None,
    "The authorities to trust, as PEM text.",
    may_be_file=True,
)
KEYSTORE_TYPE: Final = Option(
    "ssl.keystore.type",
    STRING,
    "PEM",
    None,
    "The keystore's format. Only PEM can be read.",
    taken=_PEM,
    kafka_default="JKS",
)
KEYSTORE_LOCATION: Final = Option(
    "ssl.keystore.location",
    STRING,
    None,
    None,
    "A file with our private key and its certificate chain. Read again when it changes.",
)
KEYSTORE_KEY: Final = Option(
    "ssl.keystore.key",
    PASSWORD,
    None,
    None,
    "Our private key (PKCS#8) as PEM text, with ssl.keystore.certificate.chain.",
    may_be_file=True,
)
KEYSTORE_CERTIFICATE_CHAIN: Final = Option(
    "ssl.keystore.certificate.chain",
    PASSWORD,
    None,
    None,
    "Our certificate and its intermediate ones, as PEM text.",
    may_be_file=True,
)
KEY_PASSWORD: Final = Option(
    "ssl.key.password",
    PASSWORD,
    None,
    None,
    "The password of our private key, if it is encrypted.",
    may_be_file=True,
)
ENABLED_PROTOCOLS: Final = Option(
    "ssl.enabled.protocols",
    LIST,
    "TLSv1.2,TLSv1.3",
    ANY_LIST,
    "The versions of TLS that may be used.",
    taken=Rule(f"[{', '.join(_ENABLED_PROTOCOLS)}]", _enabled_protocols_complaint),
)
SSL_PROTOCOL: Final = Option(
    "ssl.protocol",
    STRING,
    "TLSv1.3",
    None,
    "Accepted for compatibility, without effect: ssl.enabled.protocols decides.",
    taken=one_of(*_PROTOCOLS),
)
CIPHER_SUITES: Final = Option(
    "ssl.cipher.suites",
    LIST,
    "",
    ANY_LIST,
    "The cipher suites that may be used, by IANA's names or OpenSSL's; empty: OpenSSL's choice.",
)
ENDPOINT_IDENTIFICATION: Final = Option(
    "ssl.endpoint.identification.algorithm",
    STRING,
    "https",
    None,
    "https: the broker's certificate must bear its host name. Empty: any name is accepted.",
    taken=Rule("[https, (empty)]", _endpoint_complaint),
)

# -- SASL ----------------------------------------------------------------------------------------------------

SASL_MECHANISM: Final = Option(
    "sasl.mechanism",
    STRING,
    None,
    None,
    "How to authenticate; required if security.protocol has SASL.",
    taken=Rule(f"[{', '.join(MECHANISMS)}]", _mechanism_complaint),
    kafka_default="GSSAPI",
)
JAAS_CONFIG: Final = Option(
    "sasl.jaas.config",
    PASSWORD,
    None,
    None,
    "The credentials as Java writes them: a login module and its options.",
    may_be_file=True,
)
SASL_USERNAME: Final = Option(
    "sasl.username",
    STRING,
    None,
    None,
    "The user of PLAIN or SCRAM, instead of a JAAS config (librdkafka's name).",
    is_ours=True,
    may_be_file=True,
)
SASL_PASSWORD: Final = Option(
    "sasl.password",
    PASSWORD,
    None,
    None,
    "The user's password (librdkafka's name).",
    is_ours=True,
    may_be_file=True,
)
TOKEN_ENDPOINT_URL: Final = Option(
    "sasl.oauthbearer.token.endpoint.url",
    URL,
    None,
    None,
    "Where OAUTHBEARER's token comes from: https, or file:// and a file that holds one.",
    taken=Rule("https, http or file URL", _token_endpoint_complaint),
)
TOKEN_PROVIDER: Final = Option(
    "sasl.oauthbearer.token.provider",
    PROVIDER,
    None,
    None,
    "module:attribute of a callable that returns tokens; the library also takes the callable itself.",
    is_ours=True,
)
OAUTH_CLIENT_ID: Final = Option(
    "sasl.oauthbearer.client.credentials.client.id",
    STRING,
    None,
    None,
    "Client id of the token request.",
    may_be_file=True,
)
OAUTH_CLIENT_SECRET: Final = Option(
    "sasl.oauthbearer.client.credentials.client.secret",
    PASSWORD,
    None,
    None,
    "Client secret of the token request.",
    may_be_file=True,
)
JWT_RETRIEVER_CLASS: Final = Option(
    "sasl.oauthbearer.jwt.retriever.class",
    CLASS,
    DEFAULT_RETRIEVER,
    None,
    "The grant, by Java's class names; the default is client credentials, or a file with file://.",
    taken=Rule(f"[{', '.join(_RETRIEVERS)}]", _retriever_complaint),
)
ASSERTION_FILE: Final = Option(
    "sasl.oauthbearer.assertion.file",
    STRING,
    None,
    None,
    "A file with a ready assertion, which replaces the client's secret. Read again when it changes.",
)
ASSERTION_PRIVATE_KEY_FILE: Final = Option(
    "sasl.oauthbearer.assertion.private.key.file",
    STRING,
    None,
    None,
    "A file with the PEM key that signs assertions (extra oauth). Read again when it changes.",
)
ASSERTION_PASSPHRASE: Final = Option(
    "sasl.oauthbearer.assertion.private.key.passphrase",
    PASSWORD,
    None,
    None,
    "The passphrase of the key that signs assertions, if it is encrypted.",
    may_be_file=True,
)
ASSERTION_TEMPLATE_FILE: Final = Option(
    "sasl.oauthbearer.assertion.template.file",
    STRING,
    None,
    None,
    'A JSON file of an assertion\'s "header" and "payload". Read again when it changes.',
)
ASSERTION_ALGORITHM: Final = Option(
    "sasl.oauthbearer.assertion.algorithm",
    STRING,
    "RS256",
    one_of_any_case("ES256", "RS256"),
    "How assertions are signed: by an RSA key, or by one on the curve P-256.",
)
ASSERTION_AUD: Final = Option(
    "sasl.oauthbearer.assertion.claim.aud", STRING, None, None, "An assertion's audience."
)
ASSERTION_ISS: Final = Option(
    "sasl.oauthbearer.assertion.claim.iss",
    STRING,
    None,
    None,
    "An assertion's issuer. With client credentials, the key is used only if this is set.",
)
ASSERTION_SUB: Final = Option(
    "sasl.oauthbearer.assertion.claim.sub", STRING, None, None, "An assertion's subject."
)
ASSERTION_EXP_S: Final = Option(
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    INT,
    "300",
    between(0, 86400),
    "How long an assertion is valid.",
)
ASSERTION_NBF_S: Final = Option(
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    INT,
    "60",
    between(0, 3600),
    "An assertion is valid from this many seconds before now, so that clocks may differ.",
)
ASSERTION_JTI: Final = Option(
    "sasl.oauthbearer.assertion.claim.jti.include",
    BOOLEAN,
    "false",
    None,
    "Whether each assertion has an id of its own.",
)
OAUTH_SCOPE: Final = Option(
    "sasl.oauthbearer.scope", STRING, None, None, "The scope to request, if the token's issuer needs one."
)
OAUTH_SCOPE_CLAIM_NAME: Final = Option(
    "sasl.oauthbearer.scope.claim.name",
    STRING,
    "scope",
    None,
    "The name of the token's claim that holds its scope.",
)
OAUTH_SUB_CLAIM_NAME: Final = Option(
    "sasl.oauthbearer.sub.claim.name",
    STRING,
    "sub",
    None,
    "The name of the token's claim that holds its subject.",
)
OAUTH_HEADER_URLENCODE: Final = Option(
    "sasl.oauthbearer.header.urlencode",
    BOOLEAN,
    "false",
    None,
    "Whether client id and secret are URL-encoded in the Authorization header, as RFC 6749 has it.",
)
LOGIN_CONNECT_TIMEOUT_MS: Final = Option(
    "sasl.login.connect.timeout.ms",
    INT,
    "10000",
    None,
    "How long connecting to the token's issuer may take.",
    taken=at_least(1),
    kafka_default="none",
)
LOGIN_READ_TIMEOUT_MS: Final = Option(
    "sasl.login.read.timeout.ms",
    INT,
    "10000",
    None,
    "How long the token's issuer may take to answer.",
    taken=at_least(1),
    kafka_default="none",
)
LOGIN_RETRY_BACKOFF_MS: Final = Option(
    "sasl.login.retry.backoff.ms",
    LONG,
    "100",
    None,
    "The first pause before the token's issuer is asked again.",
    taken=at_least(0),
)
LOGIN_RETRY_BACKOFF_MAX_MS: Final = Option(
    "sasl.login.retry.backoff.max.ms",
    LONG,
    "10000",
    None,
    "The longest pause before the token's issuer is asked again; the pause doubles with each failure.",
    taken=at_least(0),
)
LOGIN_REFRESH_WINDOW_FACTOR: Final = Option(
    "sasl.login.refresh.window.factor",
    DOUBLE,
    "0.8",
    between(0.5, 1.0),
    "A token is renewed after this part of its lifetime (0.8: after 80 %).",
)
LOGIN_REFRESH_WINDOW_JITTER: Final = Option(
    "sasl.login.refresh.window.jitter",
    DOUBLE,
    "0.05",
    between(0.0, 0.25),
    "A random addition to sasl.login.refresh.window.factor, as a part of the lifetime.",
)
LOGIN_REFRESH_MIN_PERIOD_S: Final = Option(
    "sasl.login.refresh.min.period.seconds",
    SHORT,
    "60",
    between(0, 900),
    "The least time before a token is renewed, unless it expires earlier.",
)
LOGIN_REFRESH_BUFFER_S: Final = Option(
    "sasl.login.refresh.buffer.seconds",
    SHORT,
    "300",
    between(0, 3600),
    "A token is renewed at least this long before it expires.",
)

SSL_OPTIONS: Final = (
    TRUSTSTORE_LOCATION,
    TRUSTSTORE_CERTIFICATES,
    TRUSTSTORE_TYPE,
    KEYSTORE_LOCATION,
    KEYSTORE_KEY,
    KEYSTORE_CERTIFICATE_CHAIN,
    KEY_PASSWORD,
    KEYSTORE_TYPE,
    ENABLED_PROTOCOLS,
    SSL_PROTOCOL,
    CIPHER_SUITES,
    ENDPOINT_IDENTIFICATION,
)

#: Those of an assertion that is signed here.
SIGNED_ASSERTION_OPTIONS: Final = (
    ASSERTION_PRIVATE_KEY_FILE,
    ASSERTION_PASSPHRASE,
    ASSERTION_TEMPLATE_FILE,
    ASSERTION_ALGORITHM,
    ASSERTION_AUD,
    ASSERTION_ISS,
    ASSERTION_SUB,
    ASSERTION_EXP_S,
    ASSERTION_NBF_S,
    ASSERTION_JTI,
)
ASSERTION_OPTIONS: Final = (ASSERTION_FILE, *SIGNED_ASSERTION_OPTIONS)

#: Those of a request to a token endpoint.
TOKEN_REQUEST_OPTIONS: Final = (
    JWT_RETRIEVER_CLASS,
    OAUTH_CLIENT_ID,
    OAUTH_CLIENT_SECRET,
    *ASSERTION_OPTIONS,
    OAUTH_SCOPE,
    OAUTH_HEADER_URLENCODE,
    LOGIN_CONNECT_TIMEOUT_MS,
    LOGIN_READ_TIMEOUT_MS,
)

#: Those that only OAUTHBEARER reads.
OAUTH_OPTIONS: Final = (
    TOKEN_ENDPOINT_URL,
    TOKEN_PROVIDER,
    JWT_RETRIEVER_CLASS,
    OAUTH_CLIENT_ID,
    OAUTH_CLIENT_SECRET,
    *ASSERTION_OPTIONS,
    OAUTH_SCOPE,
    OAUTH_SCOPE_CLAIM_NAME,
    OAUTH_SUB_CLAIM_NAME,
    OAUTH_HEADER_URLENCODE,
    LOGIN_CONNECT_TIMEOUT_MS,
    LOGIN_READ_TIMEOUT_MS,
    LOGIN_RETRY_BACKOFF_MS,
    LOGIN_RETRY_BACKOFF_MAX_MS,
    LOGIN_REFRESH_WINDOW_FACTOR,
    LOGIN_REFRESH_WINDOW_JITTER,
    LOGIN_REFRESH_MIN_PERIOD_S,
    LOGIN_REFRESH_BUFFER_S,
)
SASL_OPTIONS: Final = (SASL_MECHANISM, JAAS_CONFIG, SASL_USERNAME, SASL_PASSWORD, *OAUTH_OPTIONS)

#: In reading order: the protocol, TLS, SASL.
SECURITY_OPTIONS: Final = (SECURITY_PROTOCOL, *SSL_OPTIONS, *SASL_OPTIONS)
