"""Why a connection ended: a label, a sentence, and a log level.

`NetworkClient` creates one per ended connection, reported by the selector (`from_channel`) or closed by
itself. Immutable. Source: the branches of NetworkClient.processDisconnection, Kafka 4.3.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.errors import AuthenticationError, ProtocolError
from client_core.network.selectable import ChannelStateName

if TYPE_CHECKING:
    from client_core.network.selectable import ChannelState


_NO_FAILURES: Final = frozenset({"idle", "local"})


@dataclass(frozen=True, slots=True)
class Disconnection:
    """The end of one connection. `reason` is a value of events.NodeDisconnected."""

    reason: str
    detail: str
    log_level: int = logging.INFO
    timed_out: bool = False
    authentication_error: AuthenticationError | None = None

    @property
    def error(self) -> Errors | None:
        """Returns Kafka's name for it; None if it is no failure: idle, or closed by the client."""
        if self.reason in _NO_FAILURES:
            return None
        if self.authentication_error is not None:
            return self.authentication_error.error
        return Errors.REQUEST_TIMED_OUT if self.reason == "request_timeout" else Errors.NETWORK_EXCEPTION


def from_channel(channel: ChannelState) -> Disconnection:
    """Derives the reason from a channel's last state."""
    error = channel.error
    if channel.name is ChannelStateName.AUTHENTICATION_FAILED:
        refusal = (
            error
            if isinstance(error, AuthenticationError)
            else AuthenticationError(_said(channel, "refused"))
        )
        said = _at(channel, f"authentication failed due to: {refusal}")
        return Disconnection("authentication", said, logging.ERROR, authentication_error=refusal)
    if isinstance(error, ProtocolError):
        return protocol_error(_at(channel, _said(channel, str(error))))
    match channel.name:
        case ChannelStateName.NOT_CONNECTED:
            said = _said(channel, "connection could not be established; the broker may not be available")
            return Disconnection("refused", _at(channel, said), logging.WARNING)
        case ChannelStateName.AUTHENTICATE:
            said = _said(
                channel,
                "terminated during authentication: a firewall may block Kafka's TLS traffic,"
                " or the network failed for a moment",
            )
            return Disconnection("closed", _at(channel, said), logging.WARNING)
        case ChannelStateName.EXPIRED:
            return Disconnection("idle", _said(channel, "the connection was idle for too long"))
        case ChannelStateName.LOCAL_CLOSE:
            return Disconnection("local", _said(channel, "the client closed the connection"))
        case _:
            return Disconnection("closed", _at(channel, _said(channel, "the connection was closed")))


def protocol_error(detail: str) -> Disconnection:
    """Returns the end of a connection whose peer broke Kafka's protocol, or would not begin it (NET-11)."""
    return Disconnection("protocol_error", detail, logging.WARNING)


def unreachable(detail: str) -> Disconnection:
    """Returns the end of a connect call that the operating system refused at once (NET-22)."""
    return Disconnection("refused", detail, logging.WARNING)


def unresolved(host: str, error: OSError) -> Disconnection:
    """Returns the end for a host without an address; `detail` has the resolver's reason (NET-22)."""
    return Disconnection(
        "unresolved", f"{host} can't be resolved: {error.strerror or error}", logging.WARNING
    )


def resolve_timeout(host: str, timeout_ms: int) -> Disconnection:
    """Returns the end of a connection that waited too long for the resolver (NET-17)."""
    detail = f"{host} was not resolved within {timeout_ms} ms"
    return Disconnection("unresolved", detail, logging.WARNING, timed_out=True)


def forbidden(detail: str) -> Disconnection:
    """Returns an end without an attempt: allowed.broker.hosts does not contain the host."""
    return Disconnection("forbidden", detail, logging.WARNING)


def perhaps_for_want_of_sasl(ended: Disconnection) -> Disconnection:
    """Adds a hint: a broker only closes a connection that sends requests without authenticating."""
    detail = (
        f"{ended.detail}: it answered nothing but ApiVersions, so the listener may want SASL; set"
        " security.protocol to SASL_PLAINTEXT or SASL_SSL"
    )
    return replace(ended, detail=detail, log_level=logging.WARNING)


def setup_timeout(where: str, timeout_ms: int, *, awaits_token: bool = False) -> Disconnection:
    """Returns the end of a connection to `where` (host:port) that was CONNECTING too long (NET-17)."""
    detail = f"the connection to {where} was not set up within {timeout_ms} ms"
    if awaits_token:
        detail += ": it waits for an OAUTHBEARER token, not for the broker"
    return Disconnection("setup_timeout", detail, logging.WARNING, timed_out=True)


def request_timeout() -> Disconnection:
    """Returns the end of a connection whose request timed out (NET-18)."""
    return Disconnection("request_timeout", "a request was not answered within its timeout", timed_out=True)


def local(detail: str) -> Disconnection:
    """Returns the end of a connection that the client itself closed."""
    return Disconnection("local", detail)


def _said(channel: ChannelState, otherwise: str) -> str:
    return channel.detail or otherwise


def _at(channel: ChannelState, said: str) -> str:
    """Appends the address, unless the sentence already contains it."""
    address = channel.remote_address
    return said if address is None or address in said else f"{said} ({address})"
