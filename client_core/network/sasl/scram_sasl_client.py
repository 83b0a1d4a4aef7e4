"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides prove that they know the password, and neither shows it.

    SEND_CLIENT_FIRST_MESSAGE -> RECEIVE_SERVER_FIRST_MESSAGE -> RECEIVE_SERVER_FINAL_MESSAGE -> COMPLETE
                └────────────────────────┴──────────────────────────────┴──> FAILED

The messages are in `scram_messages.py`, the arithmetic in `scram_formatter.py`. Pure but for the nonce.
Source: ScramSaslClient, Kafka 4.3; RFC 5802, RFC 7677 (SASL-04).
"""

from __future__ import annotations

import hmac
from enum import Enum, auto
from typing import TYPE_CHECKING

from client_core.errors import IllegalSaslStateError, SaslAuthenticationError
from client_core.network.sasl import scram_formatter
from client_core.network.sasl.scram_mechanism import MAX_ITERATIONS, MIN_ITERATIONS
from client_core.network.sasl.scram_messages import (
    ClientFinalMessage,
    ClientFirstMessage,
    ServerFinalMessage,
    ServerFirstMessage,
    auth_message,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.network.sasl.scram_mechanism import ScramMechanism


class _State(Enum):
    SEND_CLIENT_FIRST_MESSAGE = auto()
    RECEIVE_SERVER_FIRST_MESSAGE = auto()
    RECEIVE_SERVER_FINAL_MESSAGE = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramSaslClient:
    """One exchange of SCRAM. `client_nonce` is a test's to choose."""

    __slots__ = ("_client_first", "_mechanism", "_password", "_server_signature", "_state")

    def __init__(
        self,
        mechanism: ScramMechanism,
        username: str,
        password: str,
        extensions: Mapping[str, str],
        client_nonce: str | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        nonce = scram_formatter.secure_random_string() if client_nonce is None else client_nonce
        self._client_first = ClientFirstMessage(scram_formatter.sasl_name(username), nonce, extensions)
        self._server_signature = b""  # what the broker's last message must hold
        self._state = _State.SEND_CLIENT_FIRST_MESSAGE

    @property
    def complete(self) -> bool:
        return self._state is _State.COMPLETE

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        try:
            match self._state:
                case _State.SEND_CLIENT_FIRST_MESSAGE:
                    return self._begin(challenge)
                case _State.RECEIVE_SERVER_FIRST_MESSAGE:
                    return self._prove(ServerFirstMessage.parse(challenge))
                case _State.RECEIVE_SERVER_FINAL_MESSAGE:
                    self._check(ServerFinalMessage.parse(challenge))
                    return None
                case _:
                    raise IllegalSaslStateError(
                        f"Unexpected challenge in Sasl client state {self._state.name}"
                    )
        except SaslAuthenticationError:
            self._state = _State.FAILED
            raise

    def _begin(self, challenge: bytes) -> bytes:
        if challenge:
            raise SaslAuthenticationError("Expected empty challenge")
        self._state = _State.RECEIVE_SERVER_FIRST_MESSAGE
        return str(self._client_first).encode()

    def _prove(self, server_first: ServerFirstMessage) -> bytes:
        if not server_first.nonce.startswith(self._client_first.nonce):
            raise SaslAuthenticationError("Invalid server nonce: does not start with client nonce")
        iterations, mechanism = server_first.iterations, self._mechanism
        if iterations < MIN_ITERATIONS:
            raise SaslAuthenticationError(
                f"Requested iterations {iterations} is less than the minimum {MIN_ITERATIONS}"
                f" for {mechanism.name}"
            )
        if iterations > MAX_ITERATIONS:
            raise SaslAuthenticationError(
                f"Requested iterations {iterations} is more than the maximum {MAX_ITERATIONS}"
                f" for {mechanism.name}"
            )
        client_final = ClientFinalMessage(server_first.nonce)
        exchange = auth_message(self._client_first, server_first, client_final)
        salted = scram_formatter.salted_password(mechanism, self._password, server_first.salt, iterations)
        self._password = ""
        self._server_signature = scram_formatter.server_signature(mechanism, salted, exchange)
        self._state = _State.RECEIVE_SERVER_FINAL_MESSAGE
        return client_final.with_proof(scram_formatter.client_proof(mechanism, salted, exchange)).encode()

    def _check(self, server_final: ServerFinalMessage) -> None:
        if server_final.server_signature is None:
            raise SaslAuthenticationError(
                f"Sasl authentication using {self._mechanism.name} failed with error: {server_final.error}"
            )
        if not hmac.compare_digest(server_final.server_signature, self._server_signature):
            raise SaslAuthenticationError("Invalid server signature in server final message")
        self._state = _State.COMPLETE

    def __repr__(self) -> str:
        return f"<ScramSaslClient {self._mechanism.mechanism_name} {self._state.name}>"
