"""Builds a channel from a socket: a transport layer and an authenticator.

`security_channel_builder.py` chooses both by security protocol. Called by Selector on the I/O thread. Source:
ChannelBuilder, PlaintextChannelBuilder, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from client_core.network.authenticator import PlaintextAuthenticator
from client_core.network.kafka_channel import KafkaChannel
from client_core.network.selectable import CredentialsVersion
from client_core.network.transport_layer import PlaintextTransportLayer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from client_core.network.authenticator import Authenticator
    from client_core.network.network_receive import MemoryPool
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
        in_force = self.credentials or CredentialsVersion
        made_with = (
            in_force()
        )  # read before use: a change in between makes the channel look too old, never too new
        authenticator = self._authenticators.authenticator(host)
        transport = self._transports.transport(host, connection, remote_address)
        return KafkaChannel(
            node_id, transport, authenticator, max_receive_bytes, memory_pool, made_with, in_force
        )

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
