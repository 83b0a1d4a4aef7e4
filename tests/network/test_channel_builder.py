"""Each security protocol gets its layers, their secrets are read at once, and each change has a version."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import ConfigError
from client_core.events import CertificateLoaded, SecretReloaded
from client_core.network.authenticator import PlaintextAuthenticator
from client_core.network.channel_builder import (
    LayeredChannelBuilder,
    NoAuthentication,
    PlaintextTransports,
    security_channel_builder,
)
from client_core.network.sasl.sasl_authenticators import SaslAuthenticators
from client_core.network.sasl.sasl_client_authenticator import SaslClientAuthenticator
from client_core.network.secret import SecretSource
from client_core.network.security_config import (
    PLAINTEXT,
    OAuthBearerConfig,
    SaslConfig,
    SecurityConfig,
    SecurityProtocol,
    SslConfig,
)
from client_core.network.selectable import CredentialsVersion
from client_core.network.ssl_transport_layer import SslTransportLayer, SslTransports
from client_core.network.transport_layer import PlaintextTransportLayer
from tests.support.certificates import Authority
from tests.support.mock_clock import MockClock
from tests.support.oauth_endpoint import signed_token
from tests.support.recorded_events import RecordedEvents
from tests.support.secured_settings import MountedSecret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PASSWORD = SaslConfig(
    "SCRAM-SHA-512",
    username=SecretSource("sasl.username", text="u"),
    password=SecretSource("sasl.password", text="p"),
)


def builder_of(security: SecurityConfig) -> LayeredChannelBuilder:
    builder = security_channel_builder(
        security, client_id="billing", clock=MockClock(), random=Random(1), events=RecordedEvents()
    )
    assert isinstance(builder, LayeredChannelBuilder)
    return builder


def test_a_protocol_gets_its_layers() -> None:
    plaintext, tls = (PlaintextTransports, PlaintextTransportLayer), (SslTransports, SslTransportLayer)
    nobody, sasl = (NoAuthentication, PlaintextAuthenticator), (SaslAuthenticators, SaslClientAuthenticator)
    protocol = SecurityProtocol
    for security, (transports, transport), (authenticators, authenticator) in (
        (PLAINTEXT, plaintext, nobody),
        (SecurityConfig(protocol.SSL, ssl=SslConfig()), tls, nobody),
        (SecurityConfig(protocol.SASL_PLAINTEXT, sasl=PASSWORD), plaintext, sasl),
        (SecurityConfig(protocol.SASL_SSL, ssl=SslConfig(), sasl=PASSWORD), tls, sasl),
    ):
        with closing(builder_of(security)) as builder, socket.socket() as connection:
            assert type(builder._transports) is transports
            assert type(builder._authenticators) is authenticators
            made = builder._transports.transport("localhost", connection, "127.0.0.1:9092")
            assert type(made) is transport
            made.close()
            assert type(builder._authenticators.authenticator("localhost")) is authenticator


def test_what_can_not_be_read_is_named_before_anything_is_connected(tmp_path: Path) -> None:
    def trusting(path: Path) -> SecurityConfig:
        source = SecretSource("ssl.truststore.location", path=str(path))
        return SecurityConfig(SecurityProtocol.SSL, ssl=SslConfig(truststore=source))

    password = SecretSource("sasl.password.file", path="/no/such/password")
    sasl = SaslConfig("PLAIN", username=SecretSource("sasl.username", text="u"), password=password)
    for security, named in (
        (trusting(Path("/no/such/ca.pem")), "ssl.truststore.location"),
        (SecurityConfig(SecurityProtocol.SASL_SSL, ssl=SslConfig(), sasl=sasl), "sasl.password.file"),
    ):
        with pytest.raises(ConfigError) as refused:
            builder_of(security)
        assert refused.value.name == named
        assert "/no/such/" in refused.value.message
    builder_of(trusting(Authority().write_trust(tmp_path / "ca.pem"))).close()


def test_plaintext_connections_do_not_pay_for_tls_and_sasl() -> None:
    program = (
        "import sys, client_core\n"
        "client_core.KafkaProducer("
        "client_core.ProducerConfig.from_mapping({'bootstrap.servers': '127.0.0.1:9'})).close()\n"
        "assert not [name for name in sys.modules if 'sasl' in name or name.endswith('ssl_context')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# -- which credentials are in force --------------------------------------------------------------------------


FIRST: Final = "caterpillar-3Hn"
SECOND: Final = "butterfly-8Lc"
ONE_MORE_SASL: Final = CredentialsVersion(sasl=1)
ONE_MORE_TLS: Final = CredentialsVersion(tls=1)


class Rig:
    """A builder over mounted files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.events = RecordedEvents()
        self._builders: list[LayeredChannelBuilder] = []
        self._mounted: MountedSecret | None = None

    def mount(self, **texts: str) -> None:
        self._mounted = MountedSecret(self._folder / "mounted", texts)

    def swap(self, **texts: str) -> None:
        assert self._mounted is not None
        self._mounted.swap(texts)

    def path(self, name: str) -> Path:
        assert self._mounted is not None
        return self._mounted.path(name)

    def file(self, setting: str, name: str) -> SecretSource:
        return SecretSource(setting, path=str(self.path(name)))

    def builder(self, security: SecurityConfig) -> LayeredChannelBuilder:
        made = security_channel_builder(
            security, client_id="billing", clock=MockClock(), random=Random(1), events=self.events
        )
        self._builders.append(made)
        return made

    def credentials(self, security: SecurityConfig) -> Callable[[], CredentialsVersion]:
        credentials = self.builder(security).credentials
        assert credentials is not None
        assert credentials() == CredentialsVersion()
        return credentials

    def with_password(self, **texts: str) -> Callable[[], CredentialsVersion]:
        """SCRAM with a name and a password in two files."""
        self.mount(**texts)
        sasl = SaslConfig(
            "SCRAM-SHA-512",
            username=self.file("sasl.username", "username"),
            password=self.file("sasl.password", "password"),
        )
        return self.credentials(SecurityConfig(SecurityProtocol.SASL_PLAINTEXT, sasl=sasl))

    def with_certificate(self, **texts: str) -> Callable[[], CredentialsVersion]:
        """TLS with a key, its certificate, and an authority in three files."""
        self.mount(**texts)
        ssl = SslConfig(
            truststore=self.file("ssl.truststore.location", "ca"),
            key=self.file("ssl.keystore.key.file", "key"),
            certificate_chain=self.file("ssl.keystore.certificate.chain.file", "crt"),
        )
        return self.credentials(SecurityConfig(SecurityProtocol.SSL, ssl=ssl))

    def with_token(self, token: str) -> Callable[[], CredentialsVersion]:
        """OAUTHBEARER with a token in a file."""
        self.mount(token=token)
        oauth = OAuthBearerConfig(self.path("token").as_uri())
        security = SecurityConfig(
            SecurityProtocol.SASL_PLAINTEXT, sasl=SaslConfig("OAUTHBEARER", oauth_bearer=oauth)
        )
        credentials = self.builder(security).credentials
        assert credentials is not None
        return credentials

    def failures(self) -> list[str | None]:
        return [reloaded.failure for reloaded in self.events.of(SecretReloaded)]

    def close(self) -> None:
        for builder in self._builders:
            builder.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def test_another_password_is_noticed_without_any_connection_and_the_same_mounted_again_is_no_other(
    rig: Rig,
) -> None:
    credentials = rig.with_password(username="erin", password=FIRST)
    rig.swap(username="erin", password=FIRST)
    assert credentials() == CredentialsVersion()
    rig.swap(username="erin", password=SECOND)
    assert (credentials(), credentials()) == (ONE_MORE_SASL, ONE_MORE_SASL)
    assert rig.failures() == [None]


def test_an_unusable_or_missing_password_changes_nothing_and_is_reported_once(rig: Rig) -> None:
    credentials = rig.with_password(username="erin", password=FIRST)
    rig.swap(username="erin", password="")
    assert (credentials(), credentials()) == (CredentialsVersion(), CredentialsVersion())
    (failure,) = rig.failures()
    assert "is empty" in (failure or "")
    rig.swap(username="erin", password=SECOND)
    assert credentials() == ONE_MORE_SASL
    failures_before = len(rig.failures())
    rig.path("password").unlink()
    assert credentials() == ONE_MORE_SASL
    assert len(rig.failures()) == failures_before + 1


def test_key_and_certificate_swapped_together_are_one_change_and_one_alone_is_not_used(rig: Rig) -> None:
    authority = Authority()
    before, after, last = (authority.issue("client.test") for _ in range(3))
    ca = authority.certificate
    credentials = rig.with_certificate(ca=ca, key=before.key, crt=before.chain)
    rig.swap(ca=ca, key=after.key, crt=after.chain)
    assert (credentials(), credentials()) == (ONE_MORE_TLS, ONE_MORE_TLS)
    assert len(rig.events.of(CertificateLoaded)) == 2, "the metric of its expiry is that of the new one"
    assert not any("does not belong" in (failure or "") for failure in rig.failures())
    rig.swap(ca=ca, key=last.key, crt=after.chain)
    assert credentials() == ONE_MORE_TLS
    assert any("does not belong" in (failure or "") for failure in rig.failures())
    rig.swap(ca=ca, key=last.key, crt=last.chain)
    assert credentials() == CredentialsVersion(tls=2)


def test_another_authority_is_a_change_too(rig: Rig) -> None:
    old, new = Authority(), Authority()
    client = old.issue("client.test")
    credentials = rig.with_certificate(ca=old.certificate, key=client.key, crt=client.chain)
    rig.swap(ca=old.certificate + new.certificate, key=client.key, crt=client.chain)
    assert credentials() == ONE_MORE_TLS


def test_the_next_token_of_the_same_principal_is_no_other_credential_and_one_of_another_user_is(
    rig: Rig,
) -> None:
    """The session is renewed with the next one, where the broker has sessions end."""
    credentials = rig.with_token(signed_token("alice"))
    first = credentials()
    rig.swap(token=signed_token("alice", lifetime_s=7_200))
    assert credentials() == first
    rig.swap(token=signed_token("bob"))
    assert credentials() == first._replace(sasl=first.sasl + 1)


def test_without_files_no_file_is_looked_at(rig: Rig) -> None:
    said = SaslConfig(
        "PLAIN",
        username=SecretSource("sasl.username", text="u"),
        password=SecretSource("sasl.password", text="p"),
    )
    for security in (
        PLAINTEXT,
        SecurityConfig(SecurityProtocol.SASL_PLAINTEXT, sasl=said),
        SecurityConfig(SecurityProtocol.SSL, ssl=SslConfig()),
    ):
        assert rig.builder(security).credentials is None
