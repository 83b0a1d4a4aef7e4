"""The arithmetic of SCRAM: what is computed of password, salt and messages.

    SaltedPassword  = PBKDF2(HMAC, password, salt, iterations)
    ClientKey       = HMAC(SaltedPassword, "Client Key")
    ClientProof     = ClientKey XOR HMAC(H(ClientKey), AuthMessage)
    ServerKey       = HMAC(SaltedPassword, "Server Key")
    ServerSignature = HMAC(ServerKey, AuthMessage)
    AuthMessage     = client-first-bare "," server-first "," client-final-without-proof

Passwords are hashed as their UTF-8 bytes, without SASLprep, as Java does (SASL-04). Pure. Source:
ScramFormatter, Kafka 4.3; RFC 5802.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final

from client_core.errors import IllegalArgumentError

if TYPE_CHECKING:
    from client_core.network.sasl.scram_mechanism import ScramMechanism

#: Java's nonce has 130 random bits, written to base 36.
_NONCE_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The password as both sides work with it; takes some milliseconds per thousand iterations."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """What proves to the broker that we know the password, for these messages only."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return xor(client_key, _hmac(mechanism, stored_key, auth_message))


def server_signature(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """What the broker must show to prove that it knows the password."""
    return _hmac(mechanism, _hmac(mechanism, salted, b"Server Key"), auth_message)


def xor(first: bytes, second: bytes) -> bytes:
    """Byte by byte. Raises IllegalArgumentError for two lengths."""
    if len(first) != len(second):
        raise IllegalArgumentError("Argument arrays must be of the same length")
    return bytes(one ^ other for one, other in zip(first, second, strict=True))


def sasl_name(username: str) -> str:
    """A user name as it stands in a message: `=` and `,` have meanings there (SASL-04)."""
    return username.replace("=", "=3D").replace(",", "=2C")


def username_of(name: str) -> str:
    """The user name behind `sasl_name`. Raises IllegalArgumentError for any other `=`; brokers use it."""
    username = name.replace("=2C", ",")
    if "=" in username.replace("=3D", ""):
        raise IllegalArgumentError(f"Invalid username: {name}")
    return username.replace("=3D", "=")


def secure_random_string() -> str:
    """A nonce that nobody can guess."""
    number = secrets.randbits(_NONCE_BITS)
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)
