"""The certificates for tests are what they say they are."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.support.certificates import LONG_AGO, YESTERYEAR, Authority, self_signed, weak, with_validity


def names(der: bytes) -> list[str]:
    certificate = x509.load_der_x509_certificate(der)
    return certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value.get_values_for_type(x509.DNSName)


def test_an_authority_issues_for_names_and_with_its_key() -> None:
    authority = Authority()
    issued = authority.issue("broker.example.com", "localhost")
    assert names(issued.der) == ["broker.example.com", "localhost"]
    certificate = x509.load_der_x509_certificate(issued.der)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
    assert load_pem_private_key(issued.key.encode(), None).public_key() == certificate.public_key()


def test_a_certificate_may_have_expired() -> None:
    issued = Authority().issue("localhost", expires=YESTERYEAR)
    assert x509.load_der_x509_certificate(issued.der).not_valid_after_utc == YESTERYEAR


def test_keys_are_elliptic_unless_rsa_is_wanted() -> None:
    authority = Authority()
    for is_rsa, kind in ((False, ec.EllipticCurvePrivateKey), (True, rsa.RSAPrivateKey)):
        issued = authority.issue("localhost", is_rsa=is_rsa)
        assert isinstance(load_pem_private_key(issued.key.encode(), None), kind)


def test_an_encrypted_key_opens_with_its_password() -> None:
    issued = Authority().issue("localhost")
    for traditional in (False, True):
        text = issued.key_encrypted_with("secret", traditional=traditional)
        assert "ENCRYPTED" in text
        opened = load_pem_private_key(text.encode(), b"secret")
        assert opened.public_key() == load_pem_private_key(issued.key.encode(), None).public_key()


def test_an_intermediate_authority_is_of_the_one_above() -> None:
    root = Authority()
    between = x509.load_pem_x509_certificate(root.intermediate().certificate.encode())
    between.verify_directly_issued_by(x509.load_pem_x509_certificate(root.certificate.encode()))


def test_self_signed_certificates_are_their_own_issuers() -> None:
    for made in (self_signed("a"), weak("a"), with_validity("a", LONG_AGO, YESTERYEAR)):
        certificate = x509.load_der_x509_certificate(made.der)
        assert certificate.issuer == certificate.subject
        certificate.verify_directly_issued_by(certificate)
    now = datetime.datetime.now(datetime.UTC)
    assert x509.load_der_x509_certificate(self_signed("a").der).not_valid_after_utc > now
