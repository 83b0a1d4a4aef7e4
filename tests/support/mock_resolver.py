"""A HostResolver and NodeResolver whose answers a test sets, and which keeps what it was asked.

Source: AddressChangeHostResolver, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class MockResolver:
    """Answers every name alike, but for those in `hosts`; no address means that the name is unknown."""

    def __init__(
        self,
        *addresses: str,
        hosts: Mapping[str, Sequence[str]] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.addresses: Sequence[str] = addresses
        self.hosts = dict(hosts or {})
        self.names = dict(names or {})
        #: The names that were asked for, in order.
        self.asked: list[str] = []

    def resolve(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        found = self.hosts.get(host, self.addresses)
        if not found:
            raise OSError(f"{host}: Name or service not known")
        return tuple(found)

    def name_at(self, host: str, address: str) -> str:
        return host

    def abandon(self, host: str) -> None:
        """Nothing is under way."""

    def canonical_name(self, address: str) -> str:
        if address not in self.names:
            raise OSError(f"{address}: Name or service not known")
        return self.names[address]
