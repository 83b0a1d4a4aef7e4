"""Names to addresses. The one place that asks DNS; it blocks, as Java's does, for as long as the system's
resolver.

`ClusterConnectionStates` calls it on the I/O thread when it has no address left to try; `bootstrap_addresses`
when the client is made. Failures are OSError, whatever the system's resolver raised. Source: HostResolver,
DefaultHostResolver, ClientUtils.resolve, Kafka 4.3.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class HostResolver(Protocol):
    """How names become addresses."""

    def resolve(self, host: str) -> Sequence[str]:
        """Every address of a name, as literals, in the resolver's order; never empty. Raises OSError."""
        ...

    def canonical_name(self, address: str) -> str:
        """The full name of an address; the address itself if it has none. Raises OSError."""
        ...


class DefaultHostResolver:
    """The system's resolver."""

    def resolve(self, host: str) -> Sequence[str]:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except ValueError as error:  # UnicodeError for a label of 64 characters, ValueError for a NUL
            raise OSError(f"{host!r} is no host name: {error}") from error
        # One address comes once per protocol on some systems; a dict keeps the resolver's order.
        return tuple(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))

    def canonical_name(self, address: str) -> str:
        return socket.getnameinfo((address, 0), 0)[0]


def resolve(host: str, resolver: HostResolver) -> Sequence[str]:
    """The addresses of a name that are of the same family as the first one (CONN-10). Raises OSError."""
    addresses = resolver.resolve(host)
    if not addresses:
        raise OSError(f"{host} has no address")
    return filter_preferred_addresses(addresses)


def filter_preferred_addresses(addresses: Sequence[str]) -> Sequence[str]:
    """Those of the first one's family: a host with both rarely has both routed. Source: ClientUtils."""
    first_is_ipv6 = ":" in addresses[0]
    return tuple(address for address in addresses if (":" in address) == first_is_ipv6)
