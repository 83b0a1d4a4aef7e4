"""Our producer on every listener of a real broker: right settings get in, wrong ones get a clear error.

The error of the first record names the fault. Where Java fails at once, it comes at once too, however large
max.block.ms is. No secret is in it, nor in any line that was logged meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest

from client_core import (
    ConfigError,
    IllegalSaslStateError,
    KafkaError,
    MetadataResult,
    NoBrokersError,
    NodeDisconnected,
    SaslAuthenticationError,
    SslAuthenticationError,
    TimeoutError,
    UnsupportedSaslMechanismError,
)
from client_core.testing.free_ports import free_ports
from tests.support.certificates import YESTERYEAR, Authority
from tests.support.live_producer import PATIENCE_MS, live_producer, look_up, submit
from tests.support.oauth_endpoint import OAuthEndpoint, signed_token
from tests.support.recorded_events import RecordedEvents
from tests.support.secured_kraft import ALICE, MECHANISMS, PASSWORDS, SCRAM_MECHANISMS
from tests.support.secured_settings import (
    as_user,
    nothing_logged_of,
    on,
    with_certificate,
    with_token_endpoint,
    with_token_file,
    with_token_provider,
)
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.secured_kraft import SecuredKraft
    from tests.support.secured_settings import Settings

#: Far from max.block.ms (20 s), and above a broker's pause after a failed authentication.
_AT_ONCE_S: Final = patient(15.0)
_WRONG: Final = "looking-glass-9Kd"
_KEY_PASSWORD: Final = "jabberwocky-2Vm"
_CLIENT: Final = "pilotfish"
_CLIENT_SECRET: Final = "snark-hunt-6Pw"
#: Secrets that must not be shown: words that occur nowhere else, and the beginning of each key and token.
_SECRETS: Final = (*PASSWORDS.values(), _WRONG, _KEY_PASSWORD, _CLIENT_SECRET, "PRIVATE KEY", "eyJ")


@pytest.fixture(autouse=True)
def _no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with nothing_logged_of(_SECRETS, caplog, logger=None):
        yield


@pytest.fixture(scope="module")
def endpoint() -> Iterator[OAuthEndpoint]:
    with OAuthEndpoint({_CLIENT: _CLIENT_SECRET}) as running:
        yield running


@pytest.fixture
def topic(secured_kafka: SecuredKraft, new_topic: NewTopic) -> str:
    return new_topic(partitions=1, on=secured_kafka.cluster)


def _produces(settings: Settings, topic: str) -> None:
    with live_producer(str(settings["bootstrap.servers"]), settings) as producer:
        assert submit(producer, topic, [b"a", b"b"], partition=0).offsets() == [0, 1]


def _gets_in(settings: Settings, topic: str) -> bool:
    """Whether a look-up is answered; else its credentials are refused."""
    with live_producer(str(settings["bootstrap.servers"]), settings) as producer:
        error = look_up(producer, topic).result(MetadataResult).error
    assert error is None or isinstance(error, SaslAuthenticationError)
    return error is None


def _refusal(settings: Settings) -> KafkaError:
    """Why a record can't be sent: the error, whose text, and that of its causes, holds no secret."""
    with live_producer(str(settings["bootstrap.servers"]), settings) as producer:
        began_s = time.monotonic()
        error = submit(producer, "never-made", [b"x"], partition=0).error()
        took_s = time.monotonic() - began_s
    assert took_s < _AT_ONCE_S, f"it took {took_s:.1f} s"
    return _without_secrets(error)


def _error_after_the_wait(settings: Settings, cause: str) -> KafkaError:
    """Why a record can't be sent in time, once this is the cause: a wait may be too short to find one."""
    with live_producer(str(settings["bootstrap.servers"]), settings) as producer:

        def awaited() -> list[KafkaError]:
            error = submit(producer, "never-made", [b"x"], partition=0, block_in_ms=500).error()
            return [error] if cause in str(error.__cause__) else []

        (error,) = wait_until(awaited, what=f"an error that says {cause!r}")
    return _without_secrets(error)


def _without_secrets(error: KafkaError) -> KafkaError:
    said = f"{error!r} {error.__cause__!r}"
    for secret in _SECRETS:
        assert secret not in said
    return error


# -- settings that get in ----------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM_MECHANISMS])
def test_a_user_with_the_right_password_gets_in(
    secured_kafka: SecuredKraft, topic: str, listener: str, mechanism: str
) -> None:
    _produces(on(secured_kafka, listener) | as_user(mechanism, ALICE), topic)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM_MECHANISMS])
def test_credentials_may_be_written_as_java_writes_them(
    secured_kafka: SecuredKraft, topic: str, mechanism: str
) -> None:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    module = f"org.apache.kafka.common.security.{kind}LoginModule"
    jaas = f'{module} required username="{ALICE}" password="{PASSWORDS[ALICE]}";'
    settings: Settings = {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    _produces(on(secured_kafka, "SASL_SSL") | settings, topic)


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.behaviour("SASL-04")
def test_names_and_passwords_may_hold_what_scram_has_to_quote(
    secured_kafka: SecuredKraft, topic: str, mechanism: str
) -> None:
    user, password = "a=b,c =2C", 'quote " comma , equals = backslash \\ ключ'
    secured_kafka.security.set_password(user, mechanism, password)
    settings = on(secured_kafka, "SASL_PLAINTEXT") | as_user(mechanism, user, password)
    # The broker learns of it in its own time.
    wait_until(lambda: _gets_in(settings, topic), what=f"a password of {user} that is in force")
    _produces(settings, topic)


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_token_from_an_endpoint_lets_in(
    secured_kafka: SecuredKraft, topic: str, endpoint: OAuthEndpoint, listener: str
) -> None:
    _produces(on(secured_kafka, listener) | with_token_endpoint(endpoint.url, _CLIENT, _CLIENT_SECRET), topic)


def test_a_token_from_a_file_lets_in(secured_kafka: SecuredKraft, topic: str, tmp_path: Path) -> None:
    _produces(on(secured_kafka, "SASL_SSL") | with_token_file(tmp_path / "token", "somebody"), topic)


def test_a_token_from_a_callable_lets_in_with_its_expiry_or_without(
    secured_kafka: SecuredKraft, topic: str
) -> None:
    def with_its_expiry() -> tuple[str, int, str]:
        return signed_token("somebody"), time.time_ns() // 1_000_000 + 3_600_000, "somebody"

    for provider in (lambda: signed_token("somebody"), with_its_expiry):
        settings = {**on(secured_kafka, "SASL_SSL"), **with_token_provider(provider)}
        with live_producer(secured_kafka.bootstrap("SASL_SSL"), settings) as producer:
            assert len(submit(producer, topic, [b"a"], partition=0).offsets()) == 1


def test_an_exception_of_a_callable_is_named_by_its_type_and_its_text_is_not_shown(
    secured_kafka: SecuredKraft, topic: str
) -> None:
    attempts: list[str] = []

    def token() -> str:
        attempts.append("one more")
        if len(attempts) < 3:
            raise LookupError(_WRONG)
        return signed_token("somebody")

    settings = {**on(secured_kafka, "SASL_PLAINTEXT"), **with_token_provider(token)}
    with live_producer(secured_kafka.bootstrap("SASL_PLAINTEXT"), settings) as producer:
        assert len(submit(producer, topic, [b"a"], partition=0).offsets()) == 1
    assert len(attempts) == 3


def test_a_callable_that_hangs_ends_the_connection_by_its_timeout_and_close_does_not_wait_for_it(
    secured_kafka: SecuredKraft,
) -> None:
    over = threading.Event()
    returned: list[str] = []

    def hangs() -> str:
        over.wait(patient(60))
        returned.append("")
        return ""

    events = RecordedEvents()
    settings = {
        **on(secured_kafka, "SASL_PLAINTEXT"),
        **with_token_provider(hangs),
        "socket.connection.setup.timeout.ms": 200,
        "socket.connection.setup.timeout.max.ms": 200,
    }
    bootstrap = secured_kafka.bootstrap("SASL_PLAINTEXT")
    with live_producer(bootstrap, settings, events=events) as producer:
        wait_until(lambda: len(events.of(NodeDisconnected)) >= 2, what="two connections that ended")
        producer.close(PATIENCE_MS)
        assert not returned, "close waited for the callable"
    over.set()
    reasons = {str(event) for event in events.of(NodeDisconnected)}
    assert all("timed out" in reason or "timeout" in reason for reason in reasons), reasons


@pytest.mark.parametrize("listener", ["SSL", "SSL_12", "SSL_13"])
def test_tls_needs_nothing_but_an_authority_to_trust(
    secured_kafka: SecuredKraft, topic: str, listener: str
) -> None:
    _produces(on(secured_kafka, listener), topic)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_one_version_of_tls_is_enough(secured_kafka: SecuredKraft, topic: str, version: str) -> None:
    settings = on(secured_kafka, "SASL_SSL") | as_user("PLAIN", ALICE)
    _produces(settings | {"ssl.enabled.protocols": version}, topic)


def test_stores_may_be_given_as_texts(secured_kafka: SecuredKraft, topic: str) -> None:
    client = secured_kafka.authority.issue("client.test")
    texts: Settings = {
        "bootstrap.servers": secured_kafka.bootstrap("SSL_REQUIRED"),
        "security.protocol": "SSL",
        "ssl.truststore.certificates": secured_kafka.authority.certificate,
        "ssl.keystore.key": client.key_encrypted_with(_KEY_PASSWORD),
        "ssl.keystore.certificate.chain": client.chain,
        "ssl.key.password": _KEY_PASSWORD,
    }
    _produces(texts, topic)


@pytest.mark.parametrize("listener", ["SSL", "SSL_REQUIRED", "SSL_PROXIED"])
@pytest.mark.parametrize("key_password", [None, _KEY_PASSWORD])
def test_a_certificate_lets_in_whether_its_key_is_encrypted_or_not(
    secured_kafka: SecuredKraft, topic: str, tmp_path: Path, listener: str, key_password: str | None
) -> None:
    client = secured_kafka.authority.issue("client.test")
    store = with_certificate(client, tmp_path / "client.pem", key_password=key_password)
    _produces(on(secured_kafka, listener) | store, topic)


@pytest.mark.behaviour("SSL-02")
def test_a_name_that_is_not_verified_may_be_any(secured_kafka: SecuredKraft, topic: str) -> None:
    unverified: Settings = {"ssl.endpoint.identification.algorithm": ""}
    _produces(on(secured_kafka, "SSL_ELSEWHERE") | unverified, topic)


# -- and the errors of those that don't --------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        ("PLAIN", "Invalid username or password"),
        *((name, f"invalid credentials with SASL mechanism {name}") for name in SCRAM_MECHANISMS),
    ],
)
@pytest.mark.parametrize("user", [ALICE, "mallory"])
@pytest.mark.behaviour("SASL-03")
def test_a_wrong_password_or_user_is_named(
    secured_kafka: SecuredKraft, listener: str, mechanism: str, said: str, user: str
) -> None:
    error = _refusal(on(secured_kafka, listener) | as_user(mechanism, user, _WRONG))
    assert isinstance(error, SaslAuthenticationError)
    assert said in str(error)


def test_a_token_that_the_broker_does_not_believe_is_named(
    secured_kafka: SecuredKraft, tmp_path: Path
) -> None:
    wrong = with_token_file(tmp_path / "token", "somebody", forged=True)
    error = _refusal(on(secured_kafka, "SASL_PLAINTEXT") | wrong)
    assert isinstance(error, SaslAuthenticationError)
    assert "invalid_token" in str(error)


def test_a_wrong_client_secret_is_named_with_the_endpoint_that_refused_it(
    secured_kafka: SecuredKraft, endpoint: OAuthEndpoint
) -> None:
    wrong = with_token_endpoint(endpoint.url, _CLIENT, _WRONG)
    error = _refusal(on(secured_kafka, "SASL_PLAINTEXT") | wrong)
    assert isinstance(error, SaslAuthenticationError)
    assert f"{endpoint.url} answered 401 (invalid_client" in str(error)


@pytest.mark.parametrize("mechanism", [name for name in MECHANISMS if name != "PLAIN"])
@pytest.mark.behaviour("SASL-02")
def test_a_disabled_mechanism_is_named_with_those_that_are_enabled(
    secured_kafka: SecuredKraft, tmp_path: Path, mechanism: str
) -> None:
    oauth = mechanism == "OAUTHBEARER"
    who = with_token_file(tmp_path / "token", "me") if oauth else as_user(mechanism, ALICE)
    error = _refusal(on(secured_kafka, "SASL_PLAIN_ONLY") | who)
    assert isinstance(error, UnsupportedSaslMechanismError)
    assert f"'{mechanism}' not enabled in the server, enabled mechanisms are [PLAIN]" in str(error)


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        ("SSL_EXPIRED", "the broker's certificate, or one of its chain, has expired"),
        ("SSL_ELSEWHERE", "the broker's certificate is not for 127.0.0.1"),
    ],
)
@pytest.mark.behaviour("SSL-02", "SSL-03")
def test_the_fault_of_the_brokers_certificate_is_named(
    secured_kafka: SecuredKraft, listener: str, said: str
) -> None:
    error = _refusal(on(secured_kafka, listener))
    assert isinstance(error, SslAuthenticationError)
    assert said in str(error)


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_an_authority_that_is_not_trusted_is_named(
    secured_kafka: SecuredKraft, tmp_path: Path, listener: str
) -> None:
    trust: Settings = {"ssl.truststore.location": str(Authority().write_trust(tmp_path / "other.pem"))}
    settings = on(secured_kafka, listener) | trust
    error = _refusal(settings if listener == "SSL" else settings | as_user("PLAIN", ALICE))
    assert isinstance(error, SslAuthenticationError)
    assert "unknown authority" in str(error)


def test_without_a_truststore_the_systems_authorities_are_trusted_and_no_others(
    secured_kafka: SecuredKraft,
) -> None:
    settings = on(secured_kafka, "SSL")
    del settings["ssl.truststore.location"]
    error = _refusal(settings)
    assert isinstance(error, SslAuthenticationError)
    assert "ssl.truststore.location" in str(error)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("whose", ["nobody", "another authority's", "expired"])
@pytest.mark.behaviour("SSL-04")
def test_a_client_certificate_that_the_broker_does_not_take_is_named(
    secured_kafka: SecuredKraft, tmp_path: Path, version: str, whose: str
) -> None:
    settings = on(secured_kafka, "SSL_REQUIRED") | {"ssl.enabled.protocols": version}
    if whose != "nobody":
        authority = secured_kafka.authority if whose == "expired" else Authority()
        identity = authority.issue("client.test", expires=YESTERYEAR if whose == "expired" else None)
        settings |= with_certificate(identity, tmp_path / "client.pem")
    error = _refusal(settings)
    assert isinstance(error, SslAuthenticationError)
    assert "client certificate" in str(error)
    assert "ssl.keystore.location" in str(error)


@pytest.mark.parametrize(("listener", "version"), [("SSL_12", "TLSv1.3"), ("SSL_13", "TLSv1.2")])
def test_no_common_version_of_tls_is_named(secured_kafka: SecuredKraft, listener: str, version: str) -> None:
    error = _refusal(on(secured_kafka, listener) | {"ssl.enabled.protocols": version})
    assert isinstance(error, SslAuthenticationError)
    assert "ssl.enabled.protocols" in str(error)


@pytest.mark.parametrize(
    ("given", "said"), [(_WRONG, "the password is wrong"), (None, "give ssl.key.password")]
)
def test_a_key_that_does_not_open_is_named_before_anything_is_connected(
    secured_kafka: SecuredKraft, tmp_path: Path, given: str | None, said: str
) -> None:
    client = secured_kafka.authority.issue("client.test")
    settings = on(secured_kafka, "SSL") | with_certificate(
        client, tmp_path / "client.pem", key_password=_KEY_PASSWORD
    )
    del settings["ssl.key.password"]
    if given is not None:
        settings["ssl.key.password"] = given
    with (
        pytest.raises(ConfigError, match=said) as refused,
        live_producer(str(settings["bootstrap.servers"]), settings),
    ):
        pytest.fail("it came to that")
    logging.getLogger(__name__).info("%r", refused.value)  # so that secrets are looked for in it, too


@pytest.mark.parametrize(("claimed", "real"), [("SASL_PLAINTEXT", "PLAINTEXT"), ("SASL_SSL", "SSL")])
@pytest.mark.behaviour("SASL-02")
def test_sasl_on_a_listener_without_it_is_named(secured_kafka: SecuredKraft, claimed: str, real: str) -> None:
    settings = on(secured_kafka, claimed) | as_user("PLAIN", ALICE)
    error = _refusal(settings | {"bootstrap.servers": secured_kafka.bootstrap(real)})
    assert isinstance(error, IllegalSaslStateError)
    assert "enabled mechanisms are []" in str(error)


@pytest.mark.parametrize(
    ("claimed", "real", "said"),
    [
        ("SSL", "PLAINTEXT", "the listener may be a plaintext one (security.protocol)"),
        ("SSL", "SASL_PLAINTEXT", "the listener may be a plaintext one (security.protocol)"),
        ("PLAINTEXT", "SSL", "its listener wants TLS; set security.protocol to SSL or SASL_SSL"),
        ("SASL_PLAINTEXT", "SASL_SSL", "its listener wants TLS; set security.protocol to SSL or SASL_SSL"),
    ],
)
@pytest.mark.behaviour("SSL-03")
def test_tls_on_a_plaintext_port_and_the_reverse_are_named_when_the_wait_is_over(
    secured_kafka: SecuredKraft, claimed: str, real: str, said: str
) -> None:
    """To Java, too, these are connections that end: it goes on trying, for the listener may change."""
    settings = on(secured_kafka, claimed) | {"bootstrap.servers": secured_kafka.bootstrap(real)}
    error = _error_after_the_wait(settings | as_user("PLAIN", ALICE) if "SASL" in claimed else settings, said)
    assert isinstance(error, TimeoutError)
    assert isinstance(error.__cause__, NoBrokersError)


def test_a_missing_token_endpoint_is_named_when_the_wait_is_over(
    secured_kafka: SecuredKraft,
) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/token"
    nowhere = with_token_endpoint(url, _CLIENT, _CLIENT_SECRET)
    said = f"{url} can't be reached: connection refused"
    error = _error_after_the_wait(on(secured_kafka, "SASL_PLAINTEXT") | nowhere, said)
    assert isinstance(error, TimeoutError)
