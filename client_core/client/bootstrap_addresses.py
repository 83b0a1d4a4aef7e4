"""Parses and checks bootstrap.servers: "host:port" strings to addresses.

`parse_and_validate_addresses` only parses the strings. Then `resolve_bootstrap_addresses` resolves the names,
as Java does, and skips unknown ones with a warning, so that one missing name does not stop the client. Or
`check_host_names` checks only their syntax, for a client that resolves names when it connects. All raise
ConfigError. Called once per producer, on its caller's thread. Source: ClientUtils, Kafka 4.3.
"""

from __future__ import annotations

import logging
import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from client_core.client.host_resolver import canonical_name, is_ip_address
from client_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.client.host_resolver import HostResolver

_log = logging.getLogger(__name__)

_NAME: Final = "bootstrap.servers"

#: Scheme and brackets are optional, the port is required. IPv6 addresses are in brackets. Source: Utils.java.
_HOST_PORT: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")

_HIGHEST_PORT: Final = 65_535

#: Characters of a DNS name, and of one label. Source: RFC 1035, 2.3.4.
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63


class ClientDnsLookup(Enum):
    """client.dns.lookup: how bootstrap names are resolved."""

    USE_ALL_DNS_IPS = "use_all_dns_ips"
    RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY = "resolve_canonical_bootstrap_servers_only"


def parse_and_validate_addresses(urls: Sequence[str]) -> list[tuple[str, int]]:
    """Returns host and port of each non-empty string (PROD-14).

    Raises ConfigError for a string that is not an address, a port out of range, and an empty result.
    """
    addresses: list[tuple[str, int]] = []
    for url in urls:
        if not url:
            continue
        match = _HOST_PORT.fullmatch(url)
        if match is None or not match[1]:
            raise ConfigError(f"Invalid url in {_NAME}: {url}", name=_NAME)
        if len(match[2]) > len(str(_HIGHEST_PORT)) or int(match[2]) > _HIGHEST_PORT:
            raise ConfigError(f"Invalid port in {_NAME}: {url}", name=_NAME)
        addresses.append((match[1], int(match[2])))
    if not addresses:
        raise ConfigError(f"No resolvable bootstrap urls given in {_NAME}", name=_NAME)
    return addresses


def check_host_names(addresses: Sequence[tuple[str, int]]) -> None:
    """Raises ConfigError for an invalid host name. Resolves nothing."""
    for host, port in addresses:
        complaint = _complaint_about(host)
        if complaint is not None:
            raise ConfigError(f"Invalid url in {_NAME}: {host}:{port}: {complaint}", name=_NAME)


def _complaint_about(host: str) -> str | None:
    if ":" in host:
        return None if is_ip_address(host) else "not an IPv6 address"
    labels = host.removesuffix(".").split(".")
    if len(host) > _LONGEST_NAME:
        return f"a host name has at most {_LONGEST_NAME} characters"
    if not all(0 < len(label) <= _LONGEST_LABEL for label in labels):
        return f"each part of a host name has 1 to {_LONGEST_LABEL} characters"
    if labels[-1].isdigit() and not is_ip_address(host):
        return "not an IPv4 address"  # and not a name: no top level domain is a number
    return None


def resolve_bootstrap_addresses(
    addresses: Sequence[tuple[str, int]],
    resolver: HostResolver,
    dns_lookup: ClientDnsLookup = ClientDnsLookup.USE_ALL_DNS_IPS,
) -> list[tuple[str, int]]:
    """Returns the addresses that resolve; with RESOLVE_CANONICAL_..., one per canonical name of each host.

    Raises ConfigError if none resolves, or with RESOLVE_CANONICAL_... for any unknown host. Blocks.
    """
    canonical = dns_lookup is ClientDnsLookup.RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY
    found: list[tuple[str, int]] = []
    for host, port in addresses:
        if canonical:
            found.extend((name, port) for name in _canonical_names(host, port, resolver))
        elif _is_known(host, resolver):
            found.append((host, port))
        else:
            _log.warning("Couldn't resolve server %s:%d from %s: DNS knows no such host", host, port, _NAME)
    if not found:
        raise ConfigError(f"No resolvable bootstrap urls given in {_NAME}", name=_NAME)
    return found


def _canonical_names(host: str, port: int, resolver: HostResolver) -> list[str]:
    try:
        addresses = resolver.resolve(host)
    except OSError as error:
        raise ConfigError(f"Unknown host in {_NAME}: {host}:{port}", name=_NAME) from error
    names: list[str] = []
    for address in addresses:
        name = canonical_name(address, resolver)
        if _is_known(name, resolver):
            names.append(name)
        else:
            _log.warning(
                "Couldn't resolve server %s:%d from %s: DNS resolution of the canonical hostname %s failed",
                host,
                port,
                _NAME,
                name,
            )
    return names


def _is_known(host: str, resolver: HostResolver) -> bool:
    try:
        return bool(resolver.resolve(host))
    except OSError:
        return False
