"""Each security protocol gets its transport and its authenticator, and what it needs is read at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.errors import ConfigError
from client_core.network.authenticator import PlaintextAuthenticator
from client_core.network.channel_builder import LayeredChannelBuilder, NoAuthentication, PlaintextTransports
from client_core.network.sasl.sasl_authenticators import SaslAuthenticators
from client_core.network.sasl.sasl_client_authenticator import SaslClientAuthenticator
from client_core.network.secret import SecretSource
from client_core.network.security_channel_builder import security_channel_builder
from client_core.network.security_config import (
    PLAINTEXT,
    SaslConfig,
    SecurityConfig,
    SecurityProtocol,
    SslConfig,
)
from client_core.network.ssl_transport_layer import SslTransportLayer, SslTransports
from client_core.network.transport_layer import PlaintextTransportLayer
from tests.support.certificates import Authority
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize(
    ("security", "transports", "transport", "authenticators", "authenticator"),
    [
        (PLAINTEXT, PlaintextTransports, PlaintextTransportLayer, NoAuthentication, PlaintextAuthenticator),
        (
            SecurityConfig(SecurityProtocol.SSL, ssl=SslConfig()),
            SslTransports,
            SslTransportLayer,
            NoAuthentication,
            PlaintextAuthenticator,
        ),
        (
            SecurityConfig(SecurityProtocol.SASL_PLAINTEXT, sasl=PASSWORD),
            PlaintextTransports,
            PlaintextTransportLayer,
            SaslAuthenticators,
            SaslClientAuthenticator,
        ),
        (
            SecurityConfig(SecurityProtocol.SASL_SSL, ssl=SslConfig(), sasl=PASSWORD),
            SslTransports,
            SslTransportLayer,
            SaslAuthenticators,
            SaslClientAuthenticator,
        ),
    ],
    ids=lambda value: str(value.protocol.value) if isinstance(value, SecurityConfig) else "",
)
def test_a_protocol_gets_its_layers(
    security: SecurityConfig,
    transports: type,
    transport: type,
    authenticators: type,
    authenticator: type,
) -> None:
    with closing(builder_of(security)) as builder, socket.socket() as connection:
        assert type(builder._transports) is transports
        assert type(builder._authenticators) is authenticators
        made = builder._transports.transport("localhost", connection, "127.0.0.1:9092")
        assert type(made) is transport
        made.close()
        assert type(builder._authenticators.authenticator("localhost")) is authenticator


@pytest.mark.parametrize(
    ("security", "named"),
    [
        (
            SecurityConfig(
                SecurityProtocol.SSL,
                ssl=SslConfig(truststore=SecretSource("ssl.truststore.location", path="/no/such/ca.pem")),
            ),
            "ssl.truststore.location",
        ),
        (
            SecurityConfig(
                SecurityProtocol.SASL_SSL,
                ssl=SslConfig(),
                sasl=SaslConfig(
                    "PLAIN",
                    username=SecretSource("sasl.username", text="u"),
                    password=SecretSource("sasl.password.file", path="/no/such/password"),
                ),
            ),
            "sasl.password.file",
        ),
    ],
)
def test_what_can_not_be_read_is_named_before_anything_is_connected(
    security: SecurityConfig, named: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        builder_of(security)
    assert refused.value.name == named
    assert "/no/such/" in refused.value.message


def test_a_truststore_that_can_be_read_is(tmp_path: Path) -> None:
    trusted = Authority().write_trust(tmp_path / "ca.pem")
    source = SecretSource("ssl.truststore.location", path=str(trusted))
    builder_of(SecurityConfig(SecurityProtocol.SSL, ssl=SslConfig(truststore=source))).close()


def test_who_talks_plaintext_does_not_pay_for_tls_and_sasl() -> None:
    program = (
        "import sys, client_core\n"
        "client_core.KafkaProducer("
        "client_core.ProducerConfig.from_mapping({'bootstrap.servers': '127.0.0.1:9'})).close()\n"
        "assert not [name for name in sys.modules if 'sasl' in name or name.endswith('ssl_context')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
