"""NetworkClient's config and allow-list of broker hosts, with Kafka's defaults.

ProducerConfig builds it; nothing here reads a setting by name. Immutable, any thread. Pure. Source:
ProducerConfig.configDef, CommonClientConfigs, MetadataRecoveryStrategy, Kafka 4.3.

allowed.broker.hosts limits which advertised hosts a client connects to:

    broker-1.kafka.svc          that name
    *.kafka.svc                 every name that ends in .kafka.svc
    10.1.2.3, 10.0.0.0/8        that address, these addresses

Metadata lists the other brokers. A malicious broker could make the client connect to any reachable host: a
cloud's metadata service (169.254.169.254), or a loopback port. With this setting,

    an address is allowed     if an entry contains it
    a name is allowed         if it matches an entry that is a name (or there is none), and its resolved
                              address is in an entry that is an address or range (or there is none)

Hosts of bootstrap.servers are always allowed, at any address: the client's operator chose them. Ports are not
checked. Without the setting every host is allowed, as in Java, which has no such setting.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from client_core.client.host_resolver import is_ip_address

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


SETTING: Final = "allowed.broker.hosts"

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: A name, maybe after `*.`. Underscores are invalid in host names, but in use.
_NAME: Final = re.compile(r"(?P<any>\*\.)?(?P<name>[0-9a-z_-]+(\.[0-9a-z_-]+)*)\.?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The allowed hosts. `suffixes` start with a dot; names and suffixes are in lower case."""

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    networks: tuple[_Network, ...] = ()
    bootstrap: frozenset[str] = frozenset()

    @staticmethod
    def parse(entries: Iterable[str]) -> AllowedHosts:
        """Raises ValueError with the invalid entry and the reason."""
        names: set[str] = set()
        suffixes: list[str] = []
        networks: list[_Network] = []
        for entry in entries:
            if "/" in entry or is_ip_address(entry):
                networks.append(_network(entry))
                continue
            match = _NAME.fullmatch(entry)
            if match is None or match["name"].rpartition(".")[2].isdigit():
                raise ValueError(f"{entry!r} is neither a name, *.name, an address nor a range (CIDR)")
            name = _canonical(match["name"])
            if match["any"]:
                suffixes.append(f".{name}")
            else:
                names.add(name)
        return AllowedHosts(frozenset(names), tuple(suffixes), tuple(networks))

    def with_bootstrap(self, hosts: Collection[str]) -> AllowedHosts:
        """Returns the same, with the hosts of bootstrap.servers."""
        return replace(self, bootstrap=frozenset(map(_canonical, hosts)))

    def refusal_of_host(self, host: str) -> str | None:
        """Returns why this host must not be looked up or connected to; None if its name is allowed."""
        name = _canonical(host)
        if name in self.bootstrap or not (self.names or self.suffixes or self.networks):
            return None
        if is_ip_address(host):
            return None if self._holds(host) else f"{host} is not in {SETTING}"
        if name in self.names or name.endswith(self.suffixes) or not (self.names or self.suffixes):
            return None
        return f"{host} is not in {SETTING}"

    def refusal_of_address(self, host: str, address: str) -> str | None:
        """Returns why the resolved host must not be connected to at this address; None if allowed."""
        if not self.networks or _canonical(host) in self.bootstrap or self._holds(address):
            return None
        return f"{host} resolves to {address}, which is not in {SETTING}"

    def _holds(self, address: str) -> bool:
        parsed = _unmapped(ipaddress.ip_address(address))
        return any(parsed in network for network in self.networks if network.version == parsed.version)


#: Java's behaviour, and the default.
EVERY_HOST: Final = AllowedHosts()


def _canonical(host: str) -> str:
    return host.lower().removesuffix(".")


def _network(entry: str) -> _Network:
    try:
        return ipaddress.ip_network(entry)
    except ValueError as error:
        raise ValueError(f"{entry!r} is not an address or a range (CIDR): {error}") from error


def _unmapped(address: _Address) -> _Address:
    """Turns ::ffff: and an IPv4 address into that IPv4 address, because the system connects to it."""
    return getattr(address, "ipv4_mapped", None) or address


class MetadataRecoveryStrategy(Enum):
    """What to do when no known broker is reachable (metadata.recovery.strategy, KIP-899)."""

    NONE = "none"
    REBOOTSTRAP = "rebootstrap"


@dataclass(frozen=True, slots=True)
class NetworkClientConfig:
    """Kafka's settings for broker connections; buffers of -1 bytes use the OS default."""

    client_id: str | None
    max_in_flight_requests_per_connection: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    request_timeout_ms: int
    connection_setup_timeout_ms: int
    connection_setup_timeout_max_ms: int
    metadata_recovery_strategy: MetadataRecoveryStrategy
    rebootstrap_trigger_ms: int
    #: Whether the client authenticates with SASL. If not, an error may hint that the listener wants it.
    uses_sasl: bool = False
    #: The client connects only to these hosts.
    allowed_hosts: AllowedHosts = EVERY_HOST
    #: Whether to send ApiVersions to each broker first (NET-14). Off only in tests, as in Java.
    discover_broker_versions: bool = True
    #: Sent to the broker in ApiVersions v3+; must match [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?
    client_software_name: str = "pilotfish"
    client_software_version: str = "0.1.0"

    @property
    def rebootstraps(self) -> bool:
        """Whether the client may forget its known brokers and start again from bootstrap.servers."""
        return self.metadata_recovery_strategy is MetadataRecoveryStrategy.REBOOTSTRAP
