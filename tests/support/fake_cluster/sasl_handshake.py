"""SaslHandshake in the fake cluster, and what a connection has proved so far.

Where a test demands SASL, a connection that has not authenticated may ask for versions and nothing else, and
one whose session has run out ends with its next request. A handshake names a mechanism; another one begins a
re-authentication (KIP-368). Source: SaslServerAuthenticator, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from client_core.error_codes import Errors
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.support.sasl_server_mechanisms import OAuthBearerServer, PlainServer, ScramServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
    from tests.support.sasl_server_mechanisms import ServerMechanism


@dataclass(frozen=True, slots=True)
class SaslDemand:
    """What every connection must prove. `tokens` are OAUTHBEARER's: whose each of them is."""

    mechanisms: tuple[str, ...] = ("PLAIN",)
    passwords: Mapping[str, str] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    #: connections.max.reauth.ms; 0: a session lasts as long as its connection.
    session_lifetime_ms: int = 0

    def mechanism(self, name: str) -> ServerMechanism:
        """A new exchange."""
        if name == "PLAIN":
            return PlainServer(self.passwords)
        if name == "OAUTHBEARER":
            return OAuthBearerServer(self.tokens)
        return ScramServer(name, self.passwords)


@dataclass(slots=True)
class SaslSession:
    """One connection's state. Guarded by the cluster's lock."""

    mechanism: ServerMechanism | None = None
    principal: str | None = None
    ends_ms: int | None = None

    def may_ask(self, now_ms: int) -> bool:
        """Whether the connection may ask for more than versions."""
        if self.principal is None or self.mechanism is not None:
            return False
        return self.ends_ms is None or now_ms <= self.ends_ms


def answer(session: SaslSession, demand: SaslDemand, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Which mechanisms there are; the exchange of the one that was asked for begins."""
    if request.mechanism not in demand.mechanisms:
        return SaslHandshakeResponse(Errors.UNSUPPORTED_SASL_MECHANISM.code, demand.mechanisms)
    session.mechanism = demand.mechanism(request.mechanism)
    return SaslHandshakeResponse(Errors.NONE.code, demand.mechanisms)
