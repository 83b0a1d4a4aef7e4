"""How a socket becomes a channel: a transport for its bytes, and an authenticator on top of it.

Which of the two a security protocol needs is decided in `security_channel_builder.py`. Who calls: Selector,
on the I/O thread. Source: ChannelBuilder, PlaintextChannelBuilder, Kafka 4.3.

Which transport and which authenticator a security protocol needs: the one place that chooses.

    PLAINTEXT        plaintext   nothing to prove
    SSL              TLS         nothing to prove (a certificate says it)
    SASL_PLAINTEXT   plaintext   SASL
    SASL_SSL         TLS         SASL

Certificates, keys and credentials are read here, so that a file that can't be read is known before anything
is connected. TLS and SASL are imported only where they are needed: who talks PLAINTEXT starts without them.
Called once by the producer's wiring, on the caller's thread. Source: ChannelBuilders, SslChannelBuilder,
SaslChannelBuilder, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from client_core.events import NO_EVENTS
from client_core.network.authenticator import PlaintextAuthenticator
from client_core.network.kafka_channel import KafkaChannel
from client_core.network.selectable import CredentialsVersion
from client_core.network.transport_layer import PlaintextTransportLayer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from random import Random

    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.network.authenticator import Authenticator
    from client_core.network.network_receive import MemoryPool
    from client_core.network.sasl import SaslAuthenticators
    from client_core.network.security_config import SaslConfig, SecurityConfig, SslConfig
    from client_core.network.ssl_transport_layer import SslTransports
    from client_core.network.transport_layer import TransportLayer


def security_channel_builder(
    security: SecurityConfig,
    *,
    client_id: str,
    clock: Clock,
    random: Random,
    events: EventSink = NO_EVENTS,
) -> LayeredChannelBuilder:
    """A builder of channels for this security protocol; close it, whatever becomes of it.

    Its `credentials` are there where a file, or a token endpoint, may bring others while the client runs.
    Raises ConfigError naming the setting when a file can't be read or makes no sense.
    """
    transports: Transports = PlaintextTransports()
    authenticators: Authenticators = NoAuthentication()
    tls_version: Callable[[], int] = int
    sasl_version: Callable[[], int] = int
    if security.ssl is not None:
        transports = tls = _tls(security.ssl, events)
        tls_version = tls.version
    if security.sasl is not None:
        authenticators = sasl = _sasl(security.sasl, client_id, clock, random, events)
        sasl_version = sasl.version
    if not security.may_change:
        return LayeredChannelBuilder(transports, authenticators)
    return LayeredChannelBuilder(
        transports, authenticators, lambda: CredentialsVersion(tls_version(), sasl_version())
    )


def _tls(config: SslConfig, events: EventSink) -> SslTransports:
    from client_core.network.ssl_context import SslContexts
    from client_core.network.ssl_transport_layer import SslTransports

    return SslTransports(SslContexts(config, events))


def _sasl(
    config: SaslConfig, client_id: str, clock: Clock, random: Random, events: EventSink
) -> SaslAuthenticators:
    from client_core.network.sasl.sasl_authenticators import SaslAuthenticators

    return SaslAuthenticators(config, client_id=client_id, clock=clock, random=random, events=events)


class ChannelBuilder(Protocol):
    """Makes the channels of one security protocol."""

    def build_channel(
        self,
        node_id: int,
        host: str,
        connection: socket.socket,
        remote_address: str,
        max_receive_bytes: int | None,
        memory_pool: MemoryPool,
    ) -> KafkaChannel:
        """A channel over a socket that is connecting; it owns the socket from here on.

        `host` is the name that TLS verifies. Raises KafkaError when the channel can't be made: the socket is
        the caller's then.
        """
        ...

    def close(self) -> None:
        """Frees what the builder itself holds."""
        ...


class Transports(Protocol):
    """Makes the transports of one kind: plaintext or TLS."""

    def transport(self, host: str, connection: socket.socket, remote_address: str) -> TransportLayer:
        """A transport over a socket that is connecting. Raises KafkaError when there can be none."""
        ...


class Authenticators(Protocol):
    """Makes the authenticators of one kind: none, or SASL."""

    def authenticator(self, host: str) -> Authenticator:
        """An authenticator for one new connection. Raises KafkaError when there can be none now."""
        ...

    def close(self) -> None:
        """Frees what it holds, such as a thread that renews a token."""
        ...


class LayeredChannelBuilder:
    """Channels of one transport with one authentication."""

    def __init__(
        self,
        transports: Transports,
        authenticators: Authenticators,
        credentials: Callable[[], CredentialsVersion] | None = None,
    ) -> None:
        """`credentials` looks at the files behind them; None: nothing of them can change."""
        self._transports = transports
        self._authenticators = authenticators
        #: Tells which certificates and credentials are in force now; None: always the same ones.
        self.credentials = credentials

    def build_channel(
        self,
        node_id: int,
        host: str,
        connection: socket.socket,
        remote_address: str,
        max_receive_bytes: int | None,
        memory_pool: MemoryPool,
    ) -> KafkaChannel:
        in_force = self.credentials or CredentialsVersion
        made_with = (
            in_force()
        )  # before they are used: what changes in between makes it look too old, not too new
        authenticator = self._authenticators.authenticator(host)
        transport = self._transports.transport(host, connection, remote_address)
        return KafkaChannel(
            node_id, transport, authenticator, max_receive_bytes, memory_pool, made_with, in_force
        )

    def close(self) -> None:
        self._authenticators.close()


class PlaintextTransports:
    """Sockets as they are."""

    def transport(self, host: str, connection: socket.socket, remote_address: str) -> TransportLayer:
        return PlaintextTransportLayer(connection, remote_address)


class NoAuthentication:
    """Nothing to prove: PLAINTEXT and SSL listeners."""

    def authenticator(self, host: str) -> Authenticator:
        return PlaintextAuthenticator()

    def close(self) -> None:
        """It holds nothing."""


class PlaintextChannelBuilder(LayeredChannelBuilder):
    """Channels without encryption and authentication."""

    def __init__(self) -> None:
        super().__init__(PlaintextTransports(), NoAuthentication())
