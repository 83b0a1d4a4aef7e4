"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides prove the password without sending it.

    SEND_CLIENT_FIRST_MESSAGE -> RECEIVE_SERVER_FIRST_MESSAGE -> RECEIVE_SERVER_FINAL_MESSAGE -> COMPLETE
                └────────────────────────┴──────────────────────────────┴──> FAILED

    SaltedPassword  = PBKDF2(HMAC, password, salt, iterations)
    ClientKey       = HMAC(SaltedPassword, "Client Key")
    ClientProof     = ClientKey XOR HMAC(H(ClientKey), AuthMessage)
    ServerKey       = HMAC(SaltedPassword, "Server Key")
    ServerSignature = HMAC(ServerKey, AuthMessage)
    AuthMessage     = client-first-bare "," server-first "," client-final-without-proof

Passwords are hashed as UTF-8 bytes, without SASLprep, as in Java (SASL-04). A mechanism has a hash and limits
on the iterations. The messages are in `scram_messages.py`. Pure except the nonce. Source:
ScramSaslClient, ScramMechanism, ScramFormatter, Kafka 4.3; RFC 5802, RFC 7677.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from client_core.errors import IllegalArgumentError, IllegalSaslStateError, SaslAuthenticationError
from client_core.network.sasl.scram_messages import (
    ClientFinalMessage,
    ClientFirstMessage,
    ServerFinalMessage,
    ServerFirstMessage,
    auth_message,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


#: RFC 7677's minimum, and Kafka's.
MIN_ITERATIONS: Final = 4096

#: Kafka's own tools refuse more than 16,384. A broker may request two billion, which would block the I/O
#: thread for twenty minutes. 100,000 rounds of SHA-512 take about 0.06 s (measured: hashlib, one core).
#: Java's client has no such limit.
MAX_ITERATIONS: Final = 100_000


#: Java's nonce has 130 random bits, written to base 36.
_NONCE_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(Enum):
    """A SCRAM variant by Java's name."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"

    @property
    def mechanism_name(self) -> str:
        """The name on the wire and in sasl.mechanism."""
        return self.value

    @property
    def hash_name(self) -> str:
        """hashlib's name of the hash."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Returns the salted password; takes some milliseconds per thousand iterations."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """Returns the proof for these messages that we know the password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return xor(client_key, _hmac(mechanism, stored_key, auth_message))


def server_signature(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """Returns the expected proof that the broker knows the password."""
    return _hmac(mechanism, _hmac(mechanism, salted, b"Server Key"), auth_message)


def xor(first: bytes, second: bytes) -> bytes:
    """Computes the exclusive or. Raises IllegalArgumentError for different lengths."""
    if len(first) != len(second):
        raise IllegalArgumentError("Argument arrays must be of the same length")
    return bytes(one ^ other for one, other in zip(first, second, strict=True))


def sasl_name(username: str) -> str:
    """Escapes `=` and `,` of a user name, which have meanings in a message (SASL-04)."""
    return username.replace("=", "=3D").replace(",", "=2C")


def username_of(name: str) -> str:
    """Reverses `sasl_name`. Raises IllegalArgumentError for any other `=`; brokers use it."""
    username = name.replace("=2C", ",")
    if "=" in username.replace("=3D", ""):
        raise IllegalArgumentError(f"Invalid username: {name}")
    return username.replace("=3D", "=")


def secure_random_string() -> str:
    """Returns an unpredictable nonce."""
    number = secrets.randbits(_NONCE_BITS)
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


class _State(Enum):
    SEND_CLIENT_FIRST_MESSAGE = auto()
    RECEIVE_SERVER_FIRST_MESSAGE = auto()
    RECEIVE_SERVER_FINAL_MESSAGE = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramSaslClient:
    """One exchange of SCRAM. Tests set `client_nonce`."""

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
        nonce = secure_random_string() if client_nonce is None else client_nonce
        self._client_first = ClientFirstMessage(sasl_name(username), nonce, extensions)
        self._server_signature = b""  # expected in the broker's last message
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
        salted = salted_password(mechanism, self._password, server_first.salt, iterations)
        self._password = ""
        self._server_signature = server_signature(mechanism, salted, exchange)
        self._state = _State.RECEIVE_SERVER_FINAL_MESSAGE
        return client_final.with_proof(client_proof(mechanism, salted, exchange)).encode()

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
