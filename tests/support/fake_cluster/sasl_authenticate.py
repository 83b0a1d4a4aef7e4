"""SaslAuthenticate in the fake cluster: one token of an exchange, until it is complete or refused.

Who is refused hears why, with error 58, and the connection ends. Who is let in hears how long the session
lasts, from version 1 on. Source: SaslServerAuthenticator.handleSaslToken, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.error_codes import Errors
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from tests.support.sasl_server_mechanisms import Refused

if TYPE_CHECKING:
    from client_core.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
    from tests.support.fake_cluster.sasl_handshake import SaslDemand, SaslSession


def answer(
    session: SaslSession, demand: SaslDemand, request: SaslAuthenticateRequest, version: int, now_ms: int
) -> SaslAuthenticateResponse:
    """The broker's token, or why not. Without a handshake before it the state is an illegal one."""
    if session.mechanism is None:
        return SaslAuthenticateResponse(Errors.ILLEGAL_SASL_STATE.code, "SaslHandshake comes first")
    try:
        token = session.mechanism.evaluate(request.auth_bytes)
        principal = session.mechanism.principal
        if principal is not None and session.principal not in {None, principal}:
            raise Refused(f"Cannot change principals during re-authentication from {session.principal}")
    except (Refused, UnicodeDecodeError) as refused:
        return SaslAuthenticateResponse(Errors.SASL_AUTHENTICATION_FAILED.code, str(refused))
    if principal is None:
        return SaslAuthenticateResponse(auth_bytes=token)
    session.principal, session.mechanism = principal, None
    lifetime_ms = demand.session_lifetime_ms
    session.ends_ms = now_ms + lifetime_ms if lifetime_ms else None
    reported_ms = lifetime_ms if version >= 1 else 0
    return SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=reported_ms)
