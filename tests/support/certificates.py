"""Certificates for tests: authorities and their certificates, as PEM texts or as files that only we may read.

`trustme` makes the ordinary ones; `cryptography` makes those that no authority should issue. Keys are
elliptic where a test does not care: RSA keys take a thousand times as long to make.
"""

from __future__ import annotations

import datetime
import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.serialization import KeySerializationEncryption

LONG_AGO: Final = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
YESTERYEAR: Final = datetime.datetime(2002, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A private key (PKCS#8, PEM) and its certificate chain."""

    key: str
    chain: str

    @property
    def der(self) -> bytes:
        """The certificate itself, the first of the chain."""
        end = "-----END CERTIFICATE-----"
        return ssl.PEM_cert_to_DER_cert(self.chain.partition(end)[0] + end)

    def keystore(self, password: str | None = None) -> str:
        """Key and chain in one text, the key encrypted if there is a password: a PEM keystore of Kafka's."""
        return (self.key if password is None else self.key_encrypted_with(password)) + self.chain

    def write(self, path: Path, *, password: str | None = None) -> Path:
        """Writes the keystore, and returns where."""
        return write_pem(path, self.keystore(password))

    @property
    def traditional_key(self) -> str:
        """The key in OpenSSL's older format."""
        return _key_text(self.key, PrivateFormat.TraditionalOpenSSL, NoEncryption())

    def key_encrypted_with(self, password: str, *, traditional: bool = False) -> str:
        """The key as PKCS#8 (or in OpenSSL's older format), encrypted."""
        kind = PrivateFormat.TraditionalOpenSSL if traditional else PrivateFormat.PKCS8
        return _key_text(self.key, kind, BestAvailableEncryption(password.encode()))


class Authority:
    """A certificate authority."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.certificate = self._ca.cert_pem.bytes().decode()

    def write_trust(self, path: Path) -> Path:
        """Writes a truststore that holds this authority and no other, and returns where."""
        return write_pem(path, self.certificate)

    def issue(
        self,
        *names: str,
        common_name: str | None = None,
        expires: datetime.datetime | None = None,
        is_rsa: bool = False,
    ) -> Identity:
        """A certificate for DNS names and addresses, or for a common name only."""
        key_type = trustme.KeyType.RSA if is_rsa else trustme.KeyType.ECDSA
        issued = self._ca.issue_cert(
            *names,
            common_name=common_name,
            # A broker takes a new certificate for a running listener only under the same name.
            organization_unit_name="tests",
            not_before=None if expires is None else expires - datetime.timedelta(days=1),
            not_after=expires,
            key_type=key_type,
        )
        key = issued.private_key_pem.bytes().decode()
        chain = "".join(pem.bytes().decode() for pem in issued.cert_chain_pems)
        return Identity(_key_text(key, PrivateFormat.PKCS8, NoEncryption()), chain)

    def intermediate(self) -> Authority:
        """An authority whose certificate is of this one."""
        made = Authority.__new__(Authority)
        made._ca = self._ca.create_child_ca()
        made.certificate = made._ca.cert_pem.bytes().decode()
        return made


def write_pem(path: Path, pem: str) -> Path:
    """Writes a PEM text where only its owner reads it, whole or not at all; returns where."""
    beside = path.with_name(f".{path.name}.new")
    beside.touch(mode=0o600)
    beside.write_text(pem, encoding="ascii")
    os.replace(beside, path)
    return path


def weak(name: str) -> Identity:
    """A self-signed certificate whose key is too short by today's measure."""
    return _sign(rsa.generate_private_key(65537, 1024), name, LONG_AGO, LONG_AGO.replace(year=2999))


def self_signed(name: str) -> Identity:
    """A certificate that is its own authority and was meant to be none, as keytool makes them."""
    return with_validity(name, LONG_AGO, LONG_AGO.replace(year=2999))


def with_validity(name: str, begin: datetime.datetime, end: datetime.datetime) -> Identity:
    """A self-signed certificate for one DNS name that is valid for a time."""
    return _sign(ec.generate_private_key(ec.SECP256R1()), name, begin, end)


def by_keytool(name: str) -> tuple[str, Identity]:
    """An authority whose mark as one is not critical, as RFC 5280 wants it, and a certificate of it."""
    until, key = LONG_AGO.replace(year=2999), ec.generate_private_key(ec.SECP256R1())
    authority = _sign(key, "authority", LONG_AGO, until, constraints=x509.BasicConstraints(True, None))
    issued = _sign(ec.generate_private_key(ec.SECP256R1()), name, LONG_AGO, until, by=("authority", key))
    return authority.chain, issued


def _sign(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
    name: str,
    begin: datetime.datetime,
    end: datetime.datetime,
    *,
    by: tuple[str, ec.EllipticCurvePrivateKey] | None = None,
    constraints: x509.BasicConstraints | None = None,
) -> Identity:
    """`by`: the issuer's name and key; None: it is self-signed."""
    issuer_name, issuer_key = by or (name, key)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer_name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    if constraints is not None:
        builder = builder.add_extension(constraints, critical=False)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Identity(pem.decode(), certificate.public_bytes(Encoding.PEM).decode())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _key_text(pem: str, kind: PrivateFormat, encryption: KeySerializationEncryption) -> str:
    key = load_pem_private_key(pem.encode(), None)
    return key.private_bytes(serialization.Encoding.PEM, kind, encryption).decode()
