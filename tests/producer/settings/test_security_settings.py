"""From the settings of TLS and SASL to a SecurityConfig: combinations, missing and unused settings."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from client_core.errors import ConfigError
from client_core.network.secret import HIDDEN, SecretSource
from client_core.network.security_config import (
    PLAINTEXT,
    AssertionConfig,
    OAuthBearerConfig,
    SaslConfig,
    SecurityConfig,
    SecurityProtocol,
    SslConfig,
    TokenProvider,
)
from client_core.producer.kafka_producer import KafkaProducer
from client_core.producer.settings.config import ProducerConfig
from client_core.producer.settings.config_options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

PASSWORD = "hunter2-the-password"
TLS = {"security.protocol": "SSL"}
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
}


def config(*layers: dict[str, str]) -> ProducerConfig:
    settings: dict[str, object] = {"bootstrap.servers": "localhost:9092"}
    for layer in layers:
        settings.update(layer)
    return ProducerConfig.from_mapping(settings)


def security(*layers: dict[str, str]) -> SecurityConfig:
    return config(*layers).security


def refused(*layers: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config(*layers)
    return caught.value


def assert_refused(rows: Sequence[tuple[dict[str, str], str, str]], base: dict[str, str]) -> None:
    """The named setting and the message of each refusal; all of these settings must be refused."""
    for given, named, reported in rows:
        error = refused(base, given)
        assert (error.name, reported in error.message) == (named, True), (given, str(error))
        assert PASSWORD not in error.message + str(error)


# -- the protocol --------------------------------------------------------------------------------------------


def test_without_a_word_on_security_there_is_none() -> None:
    assert security() == PLAINTEXT


@pytest.mark.java("ProducerConfigTest.CaseInsensitiveSecurityProtocol")
def test_the_protocol_may_be_spelled_in_any_case() -> None:
    credentials = {"sasl.username": "u", "sasl.password": "p"}
    for spelled in ("sasl_ssl", "SASL_SSL", "Sasl_Ssl"):
        chosen = security(SCRAM, credentials, {"security.protocol": spelled})
        assert chosen.protocol is SecurityProtocol.SASL_SSL


def test_a_protocol_brings_what_it_needs() -> None:
    credentials = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    brought = {}
    for protocol in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        chosen = security({"security.protocol": protocol}, credentials if "SASL" in protocol else {})
        brought[protocol] = (chosen.ssl is not None, chosen.sasl is not None)
    assert brought == {
        "PLAINTEXT": (False, False),
        "SSL": (True, False),
        "SASL_PLAINTEXT": (False, True),
        "SASL_SSL": (True, True),
    }


# -- TLS -----------------------------------------------------------------------------------------------------


def test_tls_without_a_word_trusts_the_systems_authorities_and_verifies_names() -> None:
    assert security(TLS).ssl == SslConfig()


def test_stores_may_be_files_texts_or_files_of_texts() -> None:
    locations = {"ssl.truststore.location": "/tls/ca.pem", "ssl.keystore.location": "/tls/me.pem"}
    keystore = SecretSource("ssl.keystore.location", path="/tls/me.pem")
    assert security(TLS, locations, {"ssl.key.password": PASSWORD}).ssl == SslConfig(
        truststore=SecretSource("ssl.truststore.location", path="/tls/ca.pem"),
        key=keystore,
        certificate_chain=keystore,
        key_password=SecretSource("ssl.key.password", text=PASSWORD),
    )
    texts = {
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.key": "KEY",
        "ssl.keystore.certificate.chain": "CHAIN",
    }
    ca, key, chain = (SecretSource(name, text=text) for name, text in texts.items())
    assert security(TLS, texts).ssl == SslConfig(truststore=ca, key=key, certificate_chain=chain)
    as_kubernetes_mounts_it = {
        "ssl.truststore.certificates.file": "/tls/ca.crt",
        "ssl.keystore.key.file": "/tls/tls.key",
        "ssl.keystore.certificate.chain.file": "/tls/tls.crt",
    }
    ca, key, chain = (SecretSource(name, path=path) for name, path in as_kubernetes_mounts_it.items())
    assert security(TLS, as_kubernetes_mounts_it).ssl == SslConfig(
        truststore=ca, key=key, certificate_chain=chain
    )


def test_versions_ciphers_and_verification_are_passed_on() -> None:
    given = {
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "pem",
    }
    assert security(TLS, given).ssl == SslConfig(
        enabled_protocols=("TLSv1.3",),
        cipher_suites=("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"),
        verify_host_name=False,
    )


def test_a_client_that_verifies_no_names_is_warned_of() -> None:
    (remark,) = config({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}).remarks
    assert remark.level == logging.WARNING
    assert "host name is not verified" in remark.text


TLS_REFUSED = [
    ({"ssl.truststore.type": "JKS"}, "ssl.truststore.type", "only PEM stores can be read; make one with"),
    ({"ssl.keystore.type": "PKCS12"}, "ssl.keystore.type", "only PEM stores can be read; make one with"),
    (
        {"ssl.keystore.key": "K"},
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key is given without ssl.keystore.certificate.chain; they go together",
    ),
    (
        {"ssl.keystore.certificate.chain.file": "/x"},
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain is given without ssl.keystore.key; they go together",
    ),
    (
        {"ssl.keystore.location": "/x", "ssl.keystore.key": "K", "ssl.keystore.certificate.chain": "C"},
        "ssl.keystore.key",
        "ssl.keystore.location and ssl.keystore.key are both given; choose one",
    ),
    (
        {"ssl.truststore.location": "/x", "ssl.truststore.certificates.file": "/y"},
        "ssl.truststore.certificates",
        "ssl.truststore.location and ssl.truststore.certificates are both given; choose one",
    ),
    ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols", "one or more of TLSv1.2, TLSv1.3"),
    ({"ssl.enabled.protocols": ""}, "ssl.enabled.protocols", "one or more of TLSv1.2, TLSv1.3"),
    ({"ssl.protocol": "SSLv3"}, "ssl.protocol", "String must be one of: TLS, TLSv1.2, TLSv1.3"),
    (
        {"ssl.endpoint.identification.algorithm": "ldaps"},
        "ssl.endpoint.identification.algorithm",
        "Must be https, or empty",
    ),
    ({"ssl.truststore.location": ""}, "ssl.truststore.location", "it must name a file"),
    ({"ssl.key.password.file": " "}, "ssl.key.password.file", "must be the path of a file"),
    (
        {"ssl.key.password": PASSWORD, "ssl.key.password.file": "/x"},
        "ssl.key.password",
        "ssl.key.password and ssl.key.password.file are both given; choose one",
    ),
]


def test_an_invalid_combination_for_tls_names_the_setting_and_the_remedy() -> None:
    assert_refused(TLS_REFUSED, TLS)


# -- SASL ----------------------------------------------------------------------------------------------------


def test_user_and_password_may_be_in_the_settings_or_in_files() -> None:
    password = SecretSource("sasl.password.file", path="/p")
    for given, username in (
        ({"sasl.username": "u"}, SecretSource("sasl.username", text="u")),
        ({"sasl.username.file": "/u"}, SecretSource("sasl.username.file", path="/u")),
    ):
        sasl = security(SCRAM, given, {"sasl.password.file": "/p"}).sasl
        assert sasl == SaslConfig("SCRAM-SHA-512", username=username, password=password)


def test_a_jaas_config_will_do_as_well() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    assert security(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    ).sasl == SaslConfig("PLAIN", jaas_config=SecretSource("sasl.jaas.config", text=jaas))


def test_a_token_is_asked_for_with_kafkas_patience_or_ours() -> None:
    credentials = {
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": PASSWORD,
    }
    expected = OAuthBearerConfig(
        "https://idp.example/token",
        client_id=SecretSource("sasl.oauthbearer.client.credentials.client.id", text="me"),
        client_secret=SecretSource("sasl.oauthbearer.client.credentials.client.secret", text=PASSWORD),
    )
    assert security(OAUTH, credentials).sasl == SaslConfig("OAUTHBEARER", oauth_bearer=expected)
    sasl = security(
        OAUTH,
        credentials,
        {
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.scope.claim.name": "scp",
            "sasl.oauthbearer.sub.claim.name": "upn",
            "sasl.oauthbearer.header.urlencode": "true",
            "sasl.login.connect.timeout.ms": "1",
            "sasl.login.read.timeout.ms": "2",
            "sasl.login.retry.backoff.ms": "3",
            "sasl.login.retry.backoff.max.ms": "4",
            "sasl.login.refresh.window.factor": "0.5",
            "sasl.login.refresh.window.jitter": "0.25",
            "sasl.login.refresh.min.period.seconds": "7",
            "sasl.login.refresh.buffer.seconds": "8",
        },
    ).sasl
    assert sasl is not None
    assert sasl.oauth_bearer == OAuthBearerConfig(
        "https://idp.example/token",
        expected.client_id,
        expected.client_secret,
        scope="kafka",
        scope_claim_name="scp",
        sub_claim_name="upn",
        header_urlencode=True,
        connect_timeout_ms=1,
        read_timeout_ms=2,
        retry_backoff_ms=3,
        retry_backoff_max_ms=4,
        refresh_window_factor=0.5,
        refresh_window_jitter=0.25,
        refresh_min_period_s=7,
        refresh_buffer_s=8,
    )


def test_a_token_in_a_file_needs_no_credentials_and_the_options_defaults_are_those_of_the_config() -> None:
    sasl = security(OAUTH, {"sasl.oauthbearer.token.endpoint.url": "file:///var/run/token"}).sasl
    expected = OAuthBearerConfig("file:///var/run/token")
    assert sasl == SaslConfig("OAUTHBEARER", oauth_bearer=expected)


ASSERTION = "sasl.oauthbearer.assertion"
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
JAVAS = "org.apache.kafka.common.security.oauthbearer"
BEARER = {RETRIEVER: f"{JAVAS}.JwtBearerJwtRetriever"}
SIGNED = {f"{ASSERTION}.claim.iss": "me", f"{ASSERTION}.private.key.file": "/key.pem"}
KEY = SecretSource(f"{ASSERTION}.private.key.file", path="/key.pem")


def oauth_bearer(*layers: dict[str, str]) -> OAuthBearerConfig:
    sasl = security(*layers).sasl
    assert sasl is not None
    assert sasl.oauth_bearer is not None
    return sasl.oauth_bearer


def test_an_assertion_replaces_the_clients_secret() -> None:
    file = SecretSource(f"{ASSERTION}.file", path="/assertion")
    client_id = SecretSource("sasl.oauthbearer.client.credentials.client.id", text="me")
    for given, expected in (
        ({f"{ASSERTION}.file": "/assertion"}, AssertionConfig(file)),
        (SIGNED, AssertionConfig(private_key=KEY, issuer="me")),
        (
            {
                **SIGNED,
                f"{ASSERTION}.private.key.passphrase.file": "/passphrase",
                f"{ASSERTION}.template.file": "/template",
                f"{ASSERTION}.algorithm": "es256",
                f"{ASSERTION}.claim.aud": "aud",
                f"{ASSERTION}.claim.sub": "sub",
                f"{ASSERTION}.claim.exp.seconds": "1",
                f"{ASSERTION}.claim.nbf.seconds": "2",
                f"{ASSERTION}.claim.jti.include": "true",
            },
            AssertionConfig(
                private_key=KEY,
                passphrase=SecretSource(f"{ASSERTION}.private.key.passphrase.file", path="/passphrase"),
                template=SecretSource(f"{ASSERTION}.template.file", path="/template"),
                algorithm="ES256",
                audience="aud",
                issuer="me",
                subject="sub",
                lifetime_s=1,
                not_before_s=2,
                has_jti=True,
            ),
        ),
    ):
        url = "https://idp.example/token"
        assert oauth_bearer(OAUTH, given) == OAuthBearerConfig(url, assertion=expected)
        built = oauth_bearer(OAUTH, given, {client_id.name: "me"})
        assert built == OAuthBearerConfig(url, client_id, assertion=expected)


def test_the_jwt_bearer_grant_needs_a_key_or_a_file_and_no_issuer() -> None:
    for given, expected in (
        ({f"{ASSERTION}.private.key.file": "/key.pem"}, AssertionConfig(private_key=KEY)),
        ({f"{ASSERTION}.file": "/a"}, AssertionConfig(SecretSource(f"{ASSERTION}.file", path="/a"))),
    ):
        assert oauth_bearer(OAUTH, BEARER, given) == OAuthBearerConfig(
            "https://idp.example/token", assertion=expected, is_jwt_bearer=True
        )


def test_javas_names_of_what_asks_for_tokens_mean_what_they_mean_there() -> None:
    credentials = {f"{CREDENTIALS}.client.id": "me", f"{CREDENTIALS}.client.secret": PASSWORD}
    in_file = {ENDPOINT: "file:///token"}
    by_default = oauth_bearer(OAUTH, credentials)
    for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever"):
        assert oauth_bearer(OAUTH, credentials, {RETRIEVER: f"{JAVAS}.{name}"}) == by_default
    for name in ("DefaultJwtRetriever", "FileJwtRetriever"):
        config_of_file = OAuthBearerConfig("file:///token")
        assert oauth_bearer(OAUTH, in_file, {RETRIEVER: f"{JAVAS}.{name}"}) == config_of_file


def test_defaults_of_assertions_are_shown_with_assertions_only() -> None:
    default = f" {ASSERTION}.claim.exp.seconds=300 "
    assert default in repr(config(OAUTH, SIGNED))
    assert default not in repr(config(OAUTH, {ENDPOINT: "file:///t"}))


PROVIDER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
PROVIDED = "sasl.oauthbearer.token.provider"


def test_a_callable_provides_tokens_or_its_place_does() -> None:
    def kafka_token() -> str:
        raise AssertionError("it is not called here")

    place = "billing.tokens:Source.kafka_token"
    for given, provider in (
        (kafka_token, TokenProvider(f"{__name__}:{kafka_token.__qualname__}", kafka_token)),
        (f" {place} ", TokenProvider(place)),
    ):
        built = ProducerConfig.from_mapping({"bootstrap.servers": "a:1", **PROVIDER, PROVIDED: given})
        expected = OAuthBearerConfig(token_provider=provider)
        assert built.security.sasl == SaslConfig("OAUTHBEARER", oauth_bearer=expected)
        assert f" {PROVIDED}={provider.place} " in repr(built)
        assert built.remarks == ()


def test_a_callable_is_shown_without_what_it_holds() -> None:
    given: dict[str, object] = {"bootstrap.servers": "a:1", **PROVIDER, PROVIDED: partial(str, PASSWORD)}
    built = ProducerConfig.from_mapping(given)
    assert f" {PROVIDED}=functools:partial " in repr(built)
    assert PASSWORD not in f"{built!r} {built.security!r}"


async def _async_token() -> str:
    return PASSWORD


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (PASSWORD, "Must be module:attribute, such as"),
        (f"a:b:{PASSWORD}", "Must be module:attribute, such as"),
        (f"a b:{PASSWORD}", "Must be module:attribute, such as"),
        ("a:", "Must be module:attribute, such as"),
        (":b", "Must be module:attribute, such as"),
        ("", "Must be module:attribute, such as"),
        (7, "Expected value to be a callable or module:attribute, but it was a int"),
        (_async_token, "Must be a plain function, which may block; this one is async"),
    ],
)
def test_what_is_neither_a_callable_nor_its_place_is_refused_unseen(given: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_mapping({"bootstrap.servers": "a:1", **PROVIDER, PROVIDED: given})
    assert caught.value.name == PROVIDED
    assert caught.value.message.startswith(f"Invalid value {HIDDEN} for configuration {PROVIDED}: {said}")


ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = "sasl.oauthbearer.client.credentials"
SASL_REFUSED = [
    (
        {"security.protocol": "SASL_SSL"},
        "sasl.mechanism",
        "sasl.mechanism must be given where security.protocol has SASL: one of PLAIN, SCRAM-SHA-256, "
        "SCRAM-SHA-512, OAUTHBEARER. Kafka's default, GSSAPI (Kerberos), is not supported",
    ),
    ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "enable one of PLAIN,"),
    ({"sasl.mechanism": "scram-sha-512"}, "sasl.mechanism", "String must be one of: PLAIN,"),
    ({"sasl.mechanism": ""}, "sasl.mechanism", "String must be one of: PLAIN,"),
    (
        SCRAM,
        "sasl.username",
        "sasl.mechanism=SCRAM-SHA-512 needs credentials: set sasl.username and sasl.password, or "
        "sasl.jaas.config",
    ),
    ({**SCRAM, "sasl.username": "u"}, "sasl.password", "sasl.username is given without sasl.password"),
    ({**SCRAM, "sasl.password.file": "/p"}, "sasl.username", "sasl.password is given without sasl.username"),
    (
        {**SCRAM, "sasl.jaas.config": PASSWORD, "sasl.username": "u", "sasl.password": PASSWORD},
        "sasl.username",
        "sasl.jaas.config and sasl.username are both given; choose one",
    ),
    (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
        ENDPOINT,
        "must be given with sasl.mechanism=OAUTHBEARER",
    ),
    ({**OAUTH, **BEARER}, f"{ASSERTION}.private.key.file", "must be given: an assertion is signed with it"),
    ({**OAUTH, f"{ASSERTION}.claim.iss": "me"}, f"{ASSERTION}.private.key.file", "must be given"),
    ({**OAUTH, **SIGNED, f"{ASSERTION}.claim.iss": " "}, f"{ASSERTION}.claim.iss", "is empty; leave it out"),
    ({**OAUTH, **SIGNED, f"{ASSERTION}.claim.sub": ""}, f"{ASSERTION}.claim.sub", "is empty; leave it out"),
    ({**OAUTH, f"{ASSERTION}.file": ""}, f"{ASSERTION}.file", "is empty; it must name a file"),
    ({**OAUTH, f"{ASSERTION}.algorithm": "HS256"}, f"{ASSERTION}.algorithm", "String must be one of"),
    ({**OAUTH, f"{ASSERTION}.private.key.file": "/k"}, f"{CREDENTIALS}.client.id", f"or {ASSERTION}.file"),
    (
        {**OAUTH, **BEARER, ENDPOINT: "file:///t"},
        ENDPOINT,
        "JwtBearerJwtRetriever needs an https or http URL",
    ),
    (
        {**OAUTH, RETRIEVER: f"{JAVAS}.FileJwtRetriever"},
        ENDPOINT,
        "FileJwtRetriever needs file:// and the path of a file",
    ),
    (
        {**OAUTH, RETRIEVER: "com.example.Retriever"},
        RETRIEVER,
        f"Java's classes can't be loaded; these are built in: {JAVAS}.DefaultJwtRetriever, ",
    ),
    ({**OAUTH, PROVIDED: "a:b"}, PROVIDED, f"{ENDPOINT} and {PROVIDED} are both given; choose one"),
    (OAUTH, f"{CREDENTIALS}.client.id", "needs credentials for"),
    ({**OAUTH, f"{CREDENTIALS}.client.id": "me"}, f"{CREDENTIALS}.client.secret", "they go together"),
    ({**OAUTH, ENDPOINT: "idp.example/token"}, ENDPOINT, "Must be an https or http URL, or file://"),
    ({**OAUTH, ENDPOINT: "https:///token"}, ENDPOINT, "The URL names no host"),
    (
        {**OAUTH, ENDPOINT: f"https://me:{PASSWORD}@idp.example/token"},
        ENDPOINT,
        "Must not contain user and password",
    ),
    # No address, which is shown without what may be a password.
    ({**OAUTH, ENDPOINT: f"me:{PASSWORD}@idp.example/token"}, ENDPOINT, ""),
    ({**OAUTH, ENDPOINT: f"//me:{PASSWORD}@idp.example"}, ENDPOINT, ""),
    ({**OAUTH, ENDPOINT: f"ftp://idp/?key={PASSWORD}"}, ENDPOINT, ""),
    ({**OAUTH, ENDPOINT: f"ftp://x?{PASSWORD}"}, ENDPOINT, ""),
]


@pytest.mark.java("CommonClientConfigsTest.InvalidSaslMechanism")
def test_an_invalid_combination_for_sasl_names_the_setting_and_the_remedy() -> None:
    assert_refused(SASL_REFUSED, {})


# -- in vain -------------------------------------------------------------------------------------------------


@pytest.mark.java("KafkaProducerTest.UnusedConfigs")
def test_settings_of_tls_are_unused_without_it_and_warned_of() -> None:
    given = config({"ssl.protocol": "TLS", "ssl.key.password.file": "/x"})
    with KafkaProducer(given) as producer:
        assert producer.config.unused == given.unused == ("ssl.key.password.file", "ssl.protocol")
    said = "ssl.key.password.file, ssl.protocol have no effect with security.protocol=PLAINTEXT"
    assert list(given.remarks) == [(logging.WARNING, said)]


WARNED_OF = {
    "sasl.username has no effect with security.protocol=PLAINTEXT": {"sasl.username": "u"},
    "sasl.oauthbearer.scope has no effect with sasl.mechanism=SCRAM-SHA-512": {
        **SCRAM,
        "sasl.username": "u",
        "sasl.password": "p",
        "sasl.oauthbearer.scope": "x",
    },
    "sasl.username has no effect with sasl.mechanism=OAUTHBEARER": {
        **OAUTH,
        ENDPOINT: "file:///t",
        "sasl.username": "u",
    },
    f"{ASSERTION}.private.key.file, {ASSERTION}.claim.iss have no effect with {ASSERTION}.file": {
        **OAUTH,
        **SIGNED,
        f"{ASSERTION}.file": "/a",
    },
    f"{ASSERTION}.private.key.file has no effect without {ASSERTION}.claim.iss or {ASSERTION}.file": {
        **OAUTH,
        f"{ASSERTION}.private.key.file": "/key.pem",
        f"{CREDENTIALS}.client.id": "me",
        f"{CREDENTIALS}.client.secret": PASSWORD,
    },
    f"{ASSERTION}.file has no effect with a token that lies in a file": {
        **OAUTH,
        ENDPOINT: "file:///t",
        f"{ASSERTION}.file": "/a",
    },
    f"{CREDENTIALS}.client.secret has no effect with an assertion, which replaces the client's secret": {
        **OAUTH,
        **SIGNED,
        f"{CREDENTIALS}.client.secret": PASSWORD,
    },
    f"{CREDENTIALS}.client.id has no effect with the retriever JwtBearerJwtRetriever": {
        **OAUTH,
        **BEARER,
        f"{ASSERTION}.file": "/a",
        f"{CREDENTIALS}.client.id": "me",
    },
    f"{CREDENTIALS}.client.id, sasl.oauthbearer.scope, sasl.login.read.timeout.ms have no effect with "
    f"{PROVIDED}": {
        **PROVIDER,
        PROVIDED: "a:b",
        f"{CREDENTIALS}.client.id": "me",
        "sasl.oauthbearer.scope": "x",
        "sasl.login.read.timeout.ms": "1",
    },
    "ssl.key.password has no effect without ssl.keystore.location or ssl.keystore.key": {
        **TLS,
        "ssl.key.password": "p",
    },
    "sasl.mechanism=PLAIN sends its secret unencrypted with security.protocol=SASL_PLAINTEXT; SASL_SSL "
    "encrypts it": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": PASSWORD,
    },
    f"{ENDPOINT} is http: the client's secret is sent unencrypted": {
        **OAUTH,
        ENDPOINT: "HTTP://idp.example/token",
        "sasl.jaas.config": PASSWORD,
    },
}


def test_settings_without_effect_and_unencrypted_secrets_give_a_warning() -> None:
    remarks = {said: list(config(given).remarks) for said, given in WARNED_OF.items()}
    assert remarks == {said: [(logging.WARNING, said)] for said in WARNED_OF}


def test_settings_without_effect_must_be_valid_all_the_same() -> None:
    assert refused({"ssl.truststore.type": "JKS"}).name == "ssl.truststore.type"


# -- texts and secrets ---------------------------------------------------------------------------------------


def test_an_invalid_value_is_reported_before_a_missing_setting() -> None:
    given_twice = {"sasl.password": "p", "sasl.password.file": "/p"}
    rows = [
        ({"sasl.login.refresh.window.factor": "0.4"}, "sasl.login.refresh.window.factor", "at least 0.5"),
        (given_twice, "sasl.password", "sasl.password and sasl.password.file are both given"),
    ]
    assert_refused(rows, {"security.protocol": "SASL_SSL"})


def test_no_secret_is_shown_and_every_path_is() -> None:
    secrets = {option.name: f"{PASSWORD}-{n}" for n, option in enumerate(OPTIONS) if option.kind.secret}
    for name in ("ssl.keystore.key", "sasl.jaas.config", "ssl.keystore.certificate.chain"):
        del secrets[name]
    paths = {
        "ssl.keystore.key.file": "/tls/tls.key",
        "ssl.keystore.certificate.chain.file": "/tls/tls.crt",
    }
    given = config(SCRAM, secrets, {"sasl.username": "billing"}, paths)
    shown = repr(given)
    assert PASSWORD not in shown + repr(given.security) + repr(given.remarks) + str(given)
    assert f" sasl.password={HIDDEN}" in shown
    assert " sasl.username=billing" in shown
    assert " ssl.keystore.key.file=/tls/tls.key" in shown
    assert "/tls/tls.crt" in repr(given.security)


def test_the_query_of_an_address_is_not_shown() -> None:
    address = {"sasl.oauthbearer.token.endpoint.url": f"https://idp.example/token?key={PASSWORD}"}
    given = config(OAUTH, address, {"sasl.jaas.config": "x"})
    shown = repr(given)
    assert PASSWORD not in repr(given.security)
    assert f" sasl.oauthbearer.token.endpoint.url=https://idp.example/token?{HIDDEN} " in shown
    assert PASSWORD not in shown


def test_defaults_that_are_in_force_are_shown_and_others_are_not() -> None:
    shown = repr(config({"security.protocol": "ssl"}))
    assert " security.protocol=ssl " in shown
    assert " ssl.enabled.protocols=TLSv1.2,TLSv1.3 " in shown
    assert "sasl" not in shown
    assert " sasl.login.refresh.buffer.seconds=300" in repr(
        config(OAUTH, {"sasl.oauthbearer.token.endpoint.url": "file:///t"})
    )
