"""Private keys for tests that sign, as PEM. Each is made once in a process, for that takes up to 50 ms."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey


def rsa_key(number: int = 0, *, bits: int = 2_048) -> RSAPrivateKey:
    return _rsa_key(number, bits)


def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> EllipticCurvePrivateKey:
    return _ec_key(curve)


@cache
def _rsa_key(number: int, bits: int) -> RSAPrivateKey:
    return rsa.generate_private_key(65_537, bits)


@cache
def _ec_key(curve: type[ec.EllipticCurve]) -> EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def pem(
    key: RSAPrivateKey | EllipticCurvePrivateKey,
    password: str | None = None,
    *,
    traditional: bool = False,
) -> str:
    """PKCS#8, encrypted with a password; or else what OpenSSL wrote before it (PKCS#1, SEC 1)."""
    form = PrivateFormat.TraditionalOpenSSL if traditional else PrivateFormat.PKCS8
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, form, encryption).decode()
