"""What NetworkClient must be told: its own small config, with Kafka's defaults.

ProducerConfig builds one; nothing here reads a setting by name. Immutable, any thread.
Source: ProducerConfig.configDef, CommonClientConfigs, MetadataRecoveryStrategy, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from client_core.client.allowed_hosts import EVERY_HOST, AllowedHosts


class MetadataRecoveryStrategy(Enum):
    """What to do when none of the known brokers can be reached (metadata.recovery.strategy, KIP-899)."""

    NONE = "none"
    REBOOTSTRAP = "rebootstrap"


@dataclass(frozen=True, slots=True)
class NetworkClientConfig:
    """Kafka's settings of the connections to brokers; buffers of -1 bytes leave it to the OS."""

    client_id: str | None = None
    max_in_flight_requests_per_connection: int = 5
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    send_buffer_bytes: int = 131_072
    receive_buffer_bytes: int = 32_768
    request_timeout_ms: int = 30_000
    connection_setup_timeout_ms: int = 10_000
    connection_setup_timeout_max_ms: int = 30_000
    metadata_recovery_strategy: MetadataRecoveryStrategy = MetadataRecoveryStrategy.REBOOTSTRAP
    rebootstrap_trigger_ms: int = 300_000
    #: Whether we say who we are by SASL: who does not is told where a listener seems to want it.
    uses_sasl: bool = False
    #: Where brokers may be: others are not connected to.
    allowed_hosts: AllowedHosts = EVERY_HOST
    #: Whether to ask each broker for its versions first (NET-14). Off only in tests, as in Java.
    discover_broker_versions: bool = True
    #: What ApiVersions v3+ tells the broker about us; must match [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?
    client_software_name: str = "pilotfish"
    client_software_version: str = "0.1.0"

    @property
    def rebootstraps(self) -> bool:
        """Whether the client may forget the brokers that it knows and begin again with bootstrap.servers."""
        return self.metadata_recovery_strategy is MetadataRecoveryStrategy.REBOOTSTRAP
