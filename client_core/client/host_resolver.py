"""Resolves host names: the only module that calls DNS.

`HostResolver` calls the system's resolver and blocks without a limit. `BackgroundResolver` calls it on its
own threads, because the I/O thread must not wait: in Java this call blocks the thread that sends all records.
All failures are OSError. Source: HostResolver, DefaultHostResolver, ClientUtils.resolve, Kafka 4.3.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_log = logging.getLogger(__name__)

#: Most concurrent look-ups of one client, so that a hanging resolver holds no more threads.
MOST_LOOK_UPS: Final = 16

THREAD_NAME: Final = "pilotfish-dns"


class HostResolver(Protocol):
    """Resolves names and addresses. Both calls block."""

    def resolve(self, host: str) -> Sequence[str]:
        """Returns a name's addresses as literals, in the resolver's order; never empty. Raises OSError."""
        ...

    def canonical_name(self, address: str) -> str:
        """Returns the full name of an address; the address itself if it has none. Raises OSError."""
        ...


class NodeResolver(Protocol):
    """The resolver of node connections: `BackgroundResolver`, or another that never blocks."""

    def resolve(self, host: str) -> Sequence[str] | None:
        """Returns the same as a HostResolver's, or None while the look-up runs: call again later."""
        ...

    def name_at(self, host: str, address: str) -> str:
        """Returns the name that a peer at this address must authenticate as."""
        ...

    def abandon(self, host: str) -> None:
        """Drops a name for which no connection waits any more."""
        ...


class DefaultHostResolver:
    """The system's resolver."""

    def resolve(self, host: str) -> Sequence[str]:
        try:
            # For a str, Python loads its tables of international names: half a megabyte.
            name = host.encode() if _is_plain(host) else host
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except ValueError as error:  # UnicodeError for a label of 64 characters, ValueError for a NUL
            raise OSError(f"{host!r} is not a host name: {error}") from error
        # Some systems repeat an address per protocol; a dict keeps the resolver's order.
        return tuple(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))

    def canonical_name(self, address: str) -> str:
        return socket.getnameinfo((address, 0), 0)[0]


def _is_plain(host: str) -> bool:
    """Returns whether IDNA leaves the name as it is."""
    return host.isascii() and all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))


def resolve(host: str, resolver: NodeResolver) -> Sequence[str] | None:
    """Returns the addresses of a name in the order to try them (CONN-10); None while the look-up runs.

    Raises OSError.
    """
    addresses = resolver.resolve(host)
    if addresses is None:
        return None
    if not addresses:
        raise OSError(f"{host} has no address")
    return in_alternating_families(addresses)


def in_alternating_families(addresses: Sequence[str]) -> Sequence[str]:
    """Returns the addresses with their families in turn, the first one's first. Source: RFC 8305, section 4.

    Java drops the other family (ClientUtils.filterPreferredAddresses), and never connects if it can't route
    the one that comes first.
    """
    first_is_ipv6 = ":" in addresses[0]
    first = [address for address in addresses if (":" in address) == first_is_ipv6]
    other = [address for address in addresses if (":" in address) != first_is_ipv6]
    both = min(len(first), len(other))
    in_turn = [address for pair in zip(first, other, strict=False) for address in pair]
    return (*in_turn, *first[both:], *other[both:])


def is_ip_address(host: str) -> bool:
    """Returns whether the host is an IP address, which needs no look-up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def canonical_addresses(host: str, resolver: HostResolver) -> Sequence[tuple[str, str]]:
    """Returns the addresses of each canonical name behind a host, as (address, name). Blocks. Raises OSError.

    A canonical name that can't be resolved is skipped with a warning. Source: ClientUtils,
    resolve_canonical_bootstrap_servers_only.
    """
    found: dict[str, str] = {}
    for address in resolver.resolve(host):
        name = canonical_name(address, resolver)
        try:
            found.update(dict.fromkeys(resolver.resolve(name), name))
        except OSError as error:
            _log.warning("The canonical name %s of %s (%s) can't be resolved: %s", name, host, address, error)
    if not found:
        raise OSError(f"no canonical name of {host} can be resolved")
    return tuple(found.items())


def canonical_name(address: str, resolver: HostResolver) -> str:
    """Returns the full name of an address, or the address if it has none. Blocks."""
    try:
        return resolver.canonical_name(address)
    except OSError:
        return address


class _LookUp:
    """One look-up. Its thread sets `found` or `error`, and then `is_done`."""

    __slots__ = ("error", "found", "is_done", "is_wanted")

    def __init__(self) -> None:
        self.found: Sequence[tuple[str, str]] = ()
        self.error: OSError | None = None
        self.is_done = False
        self.is_wanted = True


def start_thread(run: Callable[[], None], new_thread: type[threading.Thread] = threading.Thread) -> None:
    """Runs it on a daemon thread. Raises OSError when no thread can start."""
    try:
        new_thread(target=run, name=THREAD_NAME, daemon=True).start()
    except RuntimeError as error:
        raise OSError(f"no thread could be started for the look-up: {error}") from error


class BackgroundResolver:
    """Looks names up on other threads: at most MOST_LOOK_UPS, and one per name. I/O thread only.

    An abandoned look-up continues: the resolver can't be interrupted. Later callers for the same name wait
    for it, so a hanging resolver takes one thread per name. A result that arrived after the look-up was
    abandoned is not used, because it may be old.
    """

    def __init__(
        self,
        resolver: HostResolver,
        wakeup: Callable[[], None],
        canonical: Collection[str] = (),
        start: Callable[[Callable[[], None]], None] = start_thread,
    ) -> None:
        """Calls `wakeup` on the look-up's thread when one ends. Addresses of hosts in `canonical` get their
        canonical names.
        """
        self._resolver = resolver
        self._wakeup = wakeup
        self._canonical = frozenset(canonical)
        self._start = start
        self._look_ups: dict[str, _LookUp] = {}
        #: By canonical host: the name of each address, from the last look-up.
        self._names: dict[str, dict[str, str]] = {}

    def __repr__(self) -> str:
        return f"<BackgroundResolver looks_up={list(self._look_ups)}>"

    def resolve(self, host: str) -> Sequence[str] | None:
        """Returns the addresses; None while the look-up runs, or while too many others run.

        `wakeup` is called when the caller should try again.
        """
        if host not in self._canonical and is_ip_address(host):
            return (host,)
        look_up = self._look_ups.get(host)
        if look_up is None or (look_up.is_done and not look_up.is_wanted):
            look_up = self._begin(host)
        if look_up is None:
            return None
        look_up.is_wanted = True
        if not look_up.is_done:
            return None
        del self._look_ups[host]
        if look_up.error is not None:
            raise look_up.error
        if host in self._canonical:
            self._names[host] = dict(look_up.found)
        return tuple(address for address, _ in look_up.found)

    def name_at(self, host: str, address: str) -> str:
        return self._names.get(host, {}).get(address, host)

    def abandon(self, host: str) -> None:
        look_up = self._look_ups.get(host)
        if look_up is not None:
            look_up.is_wanted = False

    def _begin(self, host: str) -> _LookUp | None:
        for other, old in list(self._look_ups.items()):
            if old.is_done and not old.is_wanted:
                del self._look_ups[other]
        if sum(not old.is_done for old in self._look_ups.values()) >= MOST_LOOK_UPS:
            return None
        look_up = _LookUp()
        self._start(lambda: self._look_up(host, look_up))
        self._look_ups[host] = look_up
        return look_up

    def _look_up(self, host: str, look_up: _LookUp) -> None:
        """Runs on the look-up's thread."""
        try:
            if host in self._canonical:
                look_up.found = canonical_addresses(host, self._resolver)
            else:
                look_up.found = tuple((address, host) for address in self._resolver.resolve(host))
        except OSError as error:
            look_up.error = error
        except Exception as error:  # noqa: BLE001 -- no caller above, and a node waits
            look_up.error = OSError(f"{host} can't be looked up: {error!r}")
        look_up.is_done = True
        self._wakeup()
