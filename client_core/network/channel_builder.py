"""How a socket becomes a channel: which transport and which authenticator a security protocol needs.

One implementation so far, for PLAINTEXT; SSL and SASL are builders of their own, chosen from
security.protocol. Who calls: Selector, on the I/O thread. Source: ChannelBuilder, PlaintextChannelBuilder,
Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from client_core.network.authenticator import PlaintextAuthenticator
from client_core.network.kafka_channel import KafkaChannel
from client_core.network.transport_layer import PlaintextTransportLayer

if TYPE_CHECKING:
    import socket


class ChannelBuilder(Protocol):
    """Makes the channels of one security protocol."""

    def build_channel(
        self,
        node_id: int,
        host: str,
        connection: socket.socket,
        remote_address: str,
        max_receive_bytes: int | None,
    ) -> KafkaChannel:
        """A channel over a socket that is connecting; it owns the socket from here on.

        `host` is the name that TLS verifies. Raises KafkaError when the channel can't be made: the socket is
        the caller's then.
        """
        ...

    def close(self) -> None:
        """Frees what the builder itself holds."""
        ...


class PlaintextChannelBuilder:
    """Channels without encryption and authentication."""

    def build_channel(
        self,
        node_id: int,
        host: str,
        connection: socket.socket,
        remote_address: str,
        max_receive_bytes: int | None,
    ) -> KafkaChannel:
        transport = PlaintextTransportLayer(connection, remote_address)
        return KafkaChannel(node_id, transport, PlaintextAuthenticator(), max_receive_bytes)

    def close(self) -> None:
        """It holds nothing."""
