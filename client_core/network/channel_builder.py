"""Builds a channel from a socket: a transport layer and an authenticator, by the security protocol.

    PLAINTEXT        plaintext   no authentication
    SSL              TLS         no authentication (the certificate identifies the client)
    SASL_PLAINTEXT   plaintext   SASL
    SASL_SSL         TLS         SASL

`security_channel_builder` reads certificates, keys and credentials, once, on the thread that creates the
producer, so an unreadable file is reported before any connection. TLS and SASL are imported only when needed,
so that PLAINTEXT starts without them. Selector builds channels on the I/O thread. Source: ChannelBuilders,
PlaintextChannelBuilder, SslChannelBuilder, SaslChannelBuilder, Kafka 4.3.
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
    from client_core.network.sasl.sasl_authenticators import SaslAuthenticators
    from client_core.network.security_config import SaslConfig, SecurityConfig, SslConfig
    from client_core.network.ssl_transport_layer import SslTransports
    from client_core.network.transport_layer import TransportLayer


class ChannelBuilder(Protocol):
    """Builds the channels of one security protocol."""

    def build_channel(
        self,
        node_id: int,
        host: str,
        connection: socket.socket,
        remote_address: str,
        max_receive_bytes: int | None,
        memory_pool: MemoryPool,
    ) -> KafkaChannel:
        """Returns a channel over a connecting socket, and takes ownership of the socket.

        TLS verifies the name `host`. Raises KafkaError when the channel can't be built; then the caller still
        owns the socket.
        """
        ...

    def close(self) -> None:
        """Frees the builder's own resources."""
        ...


class Transports(Protocol):
    """Builds transports of one kind: plaintext or TLS."""

    def transport(self, host: str, connection: socket.socket, remote_address: str) -> TransportLayer:
        """Returns a transport over a connecting socket. Raises KafkaError when it can't be built."""
        ...


class Authenticators(Protocol):
    """Builds authenticators of one kind: none, or SASL."""

    def authenticator(self, host: str) -> Authenticator:
        """Returns an authenticator for one new connection. Raises KafkaError when none is possible now."""
        ...

    def close(self) -> None:
        """Frees its resources, such as a thread that renews a token."""
        ...


class LayeredChannelBuilder:
    """Builds channels of one transport with one authentication."""

    def __init__(
        self,
        transports: Transports,
        authenticators: Authenticators,
        credentials: Callable[[], CredentialsVersion] | None = None,
    ) -> None:
        """`credentials` checks the files for changes; None: they can't change."""
        self._transports = transports
        self._authenticators = authenticators
        #: Returns the version of the certificates and credentials now in use; None: they never change.
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
        # Read before use: a change in between makes the channel look too old, never too new.
        made_with = CredentialsVersion() if self.credentials is None else self.credentials()
        authenticator = self._authenticators.authenticator(host)
        transport = self._transports.transport(host, connection, remote_address)
        return KafkaChannel(node_id, transport, authenticator, max_receive_bytes, memory_pool, made_with)

    def close(self) -> None:
        self._authenticators.close()


class PlaintextTransports:
    """Builds transports over plain sockets."""

    def transport(self, host: str, connection: socket.socket, remote_address: str) -> TransportLayer:
        return PlaintextTransportLayer(connection, remote_address)


class NoAuthentication:
    """For PLAINTEXT and SSL listeners."""

    def authenticator(self, host: str) -> Authenticator:
        return PlaintextAuthenticator()

    def close(self) -> None:
        """Does nothing."""


class PlaintextChannelBuilder(LayeredChannelBuilder):
    """Builds channels without encryption and authentication."""

    def __init__(self) -> None:
        super().__init__(PlaintextTransports(), NoAuthentication())


def security_channel_builder(
    security: SecurityConfig,
    *,
    client_id: str,
    clock: Clock,
    random: Random,
    events: EventSink = NO_EVENTS,
) -> LayeredChannelBuilder:
    """Returns a channel builder for this security protocol; the caller must close it.

    Its `credentials` is set when a file or a token endpoint may change them while the client runs.
    Raises ConfigError naming the setting when a file is unreadable or invalid.
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
