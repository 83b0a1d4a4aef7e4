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
