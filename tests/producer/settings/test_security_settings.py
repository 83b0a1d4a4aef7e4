"""From the settings of TLS and SASL to a SecurityConfig: what goes together, is missing or in vain."""

from __future__ import annotations

import logging

import pytest

from client_core.errors import ConfigError
from client_core.network.secret import HIDDEN, SecretSource
from client_core.network.security_config import (
    PLAINTEXT,
    OAuthBearerConfig,
    SaslConfig,
    SecurityConfig,
    SecurityProtocol,
    SslConfig,
)
from client_core.producer.kafka_producer import KafkaProducer
from client_core.producer.settings.config import ProducerConfig
from client_core.producer.settings.config_options import OPTIONS

PASSWORD = "hunter2-the-password"
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
}


def config(*layers: dict[str, str], **more: str) -> ProducerConfig:
    settings: dict[str, object] = {"bootstrap.servers": "localhost:9092"}
    for layer in layers:
        settings.update(layer)
    return ProducerConfig.from_mapping({**settings, **{k.replace("_", "."): v for k, v in more.items()}})


def security(*layers: dict[str, str]) -> SecurityConfig:
    return config(*layers).security


def refused(*layers: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config(*layers)
    return caught.value


# -- the protocol --------------------------------------------------------------------------------------------


def test_without_a_word_on_security_there_is_none() -> None:
    assert security() == PLAINTEXT


@pytest.mark.java("ProducerConfigTest.CaseInsensitiveSecurityProtocol")
@pytest.mark.parametrize("spelled", ["sasl_ssl", "SASL_SSL", "Sasl_Ssl"])
def test_the_protocol_may_be_spelled_in_any_case(spelled: str) -> None:
    chosen = security(SCRAM, {"sasl.username": "u", "sasl.password": "p", "security.protocol": spelled})
    assert chosen.protocol is SecurityProtocol.SASL_SSL


@pytest.mark.parametrize(
    ("protocol", "tls", "sasl"),
    [
        ("PLAINTEXT", False, False),
        ("SSL", True, False),
        ("SASL_PLAINTEXT", False, True),
        ("SASL_SSL", True, True),
    ],
)
def test_a_protocol_brings_what_it_needs(protocol: str, tls: bool, sasl: bool) -> None:
    credentials = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    chosen = security({"security.protocol": protocol}, credentials if sasl else {})
    assert (chosen.ssl is not None, chosen.sasl is not None) == (tls, sasl)


# -- TLS -----------------------------------------------------------------------------------------------------


def test_tls_without_a_word_trusts_the_systems_authorities_and_verifies_names() -> None:
    assert security({"security.protocol": "SSL"}).ssl == SslConfig()


def test_stores_may_be_files_texts_or_files_of_texts() -> None:
    by_location = security(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": "/tls/ca.pem",
            "ssl.keystore.location": "/tls/me.pem",
            "ssl.key.password": PASSWORD,
        }
    ).ssl
    keystore = SecretSource("ssl.keystore.location", path="/tls/me.pem")
    assert by_location == SslConfig(
        truststore=SecretSource("ssl.truststore.location", path="/tls/ca.pem"),
        key=keystore,
        certificate_chain=keystore,
        key_password=SecretSource("ssl.key.password", text=PASSWORD),
    )
    by_text = security(
        {
            "security.protocol": "SSL",
            "ssl.truststore.certificates": "CA",
            "ssl.keystore.key": "KEY",
            "ssl.keystore.certificate.chain": "CHAIN",
        }
    ).ssl
    assert by_text == SslConfig(
        truststore=SecretSource("ssl.truststore.certificates", text="CA"),
        key=SecretSource("ssl.keystore.key", text="KEY"),
        certificate_chain=SecretSource("ssl.keystore.certificate.chain", text="CHAIN"),
    )
    as_kubernetes_mounts_it = security(
        {
            "security.protocol": "SSL",
            "ssl.truststore.certificates.file": "/tls/ca.crt",
            "ssl.keystore.key.file": "/tls/tls.key",
            "ssl.keystore.certificate.chain.file": "/tls/tls.crt",
        }
    ).ssl
    assert as_kubernetes_mounts_it == SslConfig(
        truststore=SecretSource("ssl.truststore.certificates.file", path="/tls/ca.crt"),
        key=SecretSource("ssl.keystore.key.file", path="/tls/tls.key"),
        certificate_chain=SecretSource("ssl.keystore.certificate.chain.file", path="/tls/tls.crt"),
    )


def test_versions_ciphers_and_verification_are_passed_on() -> None:
    ssl = security(
        {
            "security.protocol": "SSL",
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.truststore.type": "pem",
        }
    ).ssl
    assert ssl == SslConfig(
        enabled_protocols=("TLSv1.3",),
        cipher_suites=("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"),
        verify_host_name=False,
    )


def test_a_client_that_verifies_no_names_is_warned_of() -> None:
    (remark,) = config({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}).remarks
    assert remark.level == logging.WARNING
    assert "host name is not verified" in remark.text


@pytest.mark.parametrize(
    ("given", "named", "reported"),
    [
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
    ],
)
def test_what_makes_no_sense_of_tls_names_the_setting_and_the_remedy(
    given: dict[str, str], named: str, reported: str
) -> None:
    error = refused({"security.protocol": "SSL"}, given)
    assert error.name == named
    assert reported in error.message
    assert PASSWORD not in error.message


# -- SASL ----------------------------------------------------------------------------------------------------


def test_user_and_password_may_stand_in_the_settings_or_in_files() -> None:
    assert security(SCRAM, {"sasl.username": "u", "sasl.password.file": "/sasl/password"}).sasl == SaslConfig(
        "SCRAM-SHA-512",
        username=SecretSource("sasl.username", text="u"),
        password=SecretSource("sasl.password.file", path="/sasl/password"),
    )
    assert security(SCRAM, {"sasl.username.file": "/u", "sasl.password.file": "/p"}).sasl == SaslConfig(
        "SCRAM-SHA-512",
        username=SecretSource("sasl.username.file", path="/u"),
        password=SecretSource("sasl.password.file", path="/p"),
    )


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


def test_a_token_in_a_file_needs_no_credentials() -> None:
    sasl = security(OAUTH, {"sasl.oauthbearer.token.endpoint.url": "file:///var/run/token"}).sasl
    assert sasl is not None
    assert sasl.oauth_bearer == OAuthBearerConfig("file:///var/run/token")


def test_the_defaults_of_the_options_are_those_of_the_config_they_make() -> None:
    sasl = security(OAUTH, {"sasl.oauthbearer.token.endpoint.url": "file:///t"}).sasl
    assert sasl == SaslConfig("OAUTHBEARER", oauth_bearer=OAuthBearerConfig("file:///t"))


@pytest.mark.parametrize(
    ("given", "named", "reported"),
    [
        (
            {"security.protocol": "SASL_SSL"},
            "sasl.mechanism",
            "sasl.mechanism must be given where security.protocol has SASL: one of PLAIN, SCRAM-SHA-256, "
            "SCRAM-SHA-512, OAUTHBEARER. Kafka's default, GSSAPI (Kerberos), is not supported",
        ),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "have the brokers enable one of PLAIN,"),
        ({"sasl.mechanism": "scram-sha-512"}, "sasl.mechanism", "String must be one of: PLAIN,"),
        (
            SCRAM,
            "sasl.username",
            "sasl.mechanism=SCRAM-SHA-512 needs credentials: set sasl.username and sasl.password, or "
            "sasl.jaas.config",
        ),
        ({**SCRAM, "sasl.username": "u"}, "sasl.password", "sasl.username is given without sasl.password"),
        (
            {**SCRAM, "sasl.password.file": "/p"},
            "sasl.username",
            "sasl.password is given without sasl.username",
        ),
        (
            {**SCRAM, "sasl.jaas.config": PASSWORD, "sasl.username": "u", "sasl.password": PASSWORD},
            "sasl.username",
            "sasl.jaas.config and sasl.username are both given; choose one",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            "sasl.oauthbearer.token.endpoint.url",
            "must be given with sasl.mechanism=OAUTHBEARER",
        ),
        (OAUTH, "sasl.oauthbearer.client.credentials.client.id", "needs credentials for"),
        (
            {**OAUTH, "sasl.oauthbearer.client.credentials.client.id": "me"},
            "sasl.oauthbearer.client.credentials.client.secret",
            "they go together",
        ),
        (
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "idp.example/token"},
            "sasl.oauthbearer.token.endpoint.url",
            "Must be an https or http URL, or file://",
        ),
        (
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "https:///token"},
            "sasl.oauthbearer.token.endpoint.url",
            "The URL names no host",
        ),
        (
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": f"https://me:{PASSWORD}@idp.example/token"},
            "sasl.oauthbearer.token.endpoint.url",
            "Must hold no user and password",
        ),
    ],
)
def test_what_makes_no_sense_of_sasl_names_the_setting_and_the_remedy(
    given: dict[str, str], named: str, reported: str
) -> None:
    error = refused(given)
    assert error.name == named
    assert reported in error.message
    assert PASSWORD not in error.message


# -- in vain -------------------------------------------------------------------------------------------------


@pytest.mark.java("KafkaProducerTest.UnusedConfigs")
def test_settings_of_tls_are_unused_without_it_and_warned_of() -> None:
    given = config({"ssl.protocol": "TLS", "ssl.key.password.file": "/x"})
    assert given.unused == ("ssl.key.password.file", "ssl.protocol")
    with KafkaProducer(given) as producer:
        assert producer.config.unused == ("ssl.key.password.file", "ssl.protocol")
    (remark,) = given.remarks
    assert remark == (
        logging.WARNING,
        "ssl.key.password.file, ssl.protocol have no effect with security.protocol=PLAINTEXT",
    )


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({"sasl.username": "u"}, "sasl.username has no effect with security.protocol=PLAINTEXT"),
        (
            {**SCRAM, "sasl.username": "u", "sasl.password": "p", "sasl.oauthbearer.scope": "x"},
            "sasl.oauthbearer.scope has no effect with sasl.mechanism=SCRAM-SHA-512",
        ),
        (
            {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "file:///t", "sasl.username": "u"},
            "sasl.username has no effect with sasl.mechanism=OAUTHBEARER",
        ),
        (
            {"security.protocol": "SSL", "ssl.key.password": "p"},
            "ssl.key.password has no effect without ssl.keystore.location or ssl.keystore.key",
        ),
    ],
)
def test_what_has_no_effect_is_warned_of(given: dict[str, str], reported: str) -> None:
    (remark,) = config(given).remarks
    assert remark == (logging.WARNING, reported)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "u",
                "sasl.password": PASSWORD,
            },
            "sasl.mechanism=PLAIN sends its secret as it is, and with security.protocol=SASL_PLAINTEXT "
            "nothing encrypts it; SASL_SSL does",
        ),
        (
            {
                **OAUTH,
                "sasl.oauthbearer.token.endpoint.url": "http://idp.example/token",
                "sasl.jaas.config": PASSWORD,
            },
            "sasl.oauthbearer.token.endpoint.url is http: the client's secret is sent unencrypted",
        ),
    ],
)
def test_a_secret_that_travels_unencrypted_is_warned_of(given: dict[str, str], reported: str) -> None:
    (remark,) = config(given).remarks
    assert remark == (logging.WARNING, reported)


def test_what_has_no_effect_must_be_valid_all_the_same() -> None:
    assert refused({"ssl.truststore.type": "JKS"}).name == "ssl.truststore.type"


# -- what is shown -------------------------------------------------------------------------------------------


def test_no_secret_is_shown_and_every_path_is() -> None:
    secrets = {option.name: f"{PASSWORD}-{n}" for n, option in enumerate(OPTIONS) if option.kind.secret}
    for name in ("ssl.keystore.key", "sasl.jaas.config"):
        del secrets[name]
    del secrets["ssl.keystore.certificate.chain"]
    given = config(
        SCRAM,
        secrets,
        {
            "sasl.username": "billing",
            "ssl.keystore.key.file": "/tls/tls.key",
            "ssl.keystore.certificate.chain.file": "/tls/tls.crt",
        },
    )
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
    refusal = refused(OAUTH, {"sasl.oauthbearer.token.endpoint.url": f"ftp://x?{PASSWORD}"})
    assert PASSWORD not in refusal.message


def test_defaults_that_are_in_force_are_shown_and_others_are_not() -> None:
    shown = repr(config({"security.protocol": "ssl"}))
    assert " security.protocol=ssl " in shown
    assert " ssl.enabled.protocols=TLSv1.2,TLSv1.3 " in shown
    assert "sasl" not in shown
    assert " sasl.login.refresh.buffer.seconds=300" in repr(
        config(OAUTH, {"sasl.oauthbearer.token.endpoint.url": "file:///t"})
    )


@pytest.mark.parametrize(
    "url", [f"me:{PASSWORD}@idp.example/token", f"//me:{PASSWORD}@idp.example", f"ftp://idp/?key={PASSWORD}"]
)
def test_a_token_endpoint_that_is_no_address_is_shown_without_what_may_be_a_password(url: str) -> None:
    error = refused(OAUTH, {"sasl.oauthbearer.token.endpoint.url": url})
    assert error.name == "sasl.oauthbearer.token.endpoint.url"
    assert PASSWORD not in str(error)
