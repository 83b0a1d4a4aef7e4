"""PEM texts: what is found in them, what is said where nothing is, and the file that nobody else reads."""

from __future__ import annotations

import os
import re
import ssl
import stat
import tempfile
from random import Random

import pytest

from client_core.errors import ConfigError
from client_core.network import ssl_pem
from tests.support.certificates import Authority

NAME = "ssl.truststore.certificates"
AUTHORITY = Authority()
IDENTITY = AUTHORITY.issue("localhost")
CERTIFICATE = IDENTITY.chain
DER = IDENTITY.der


@pytest.mark.parametrize(
    "text",
    [
        CERTIFICATE,
        CERTIFICATE.replace("\n", "\r\n"),
        CERTIFICATE.replace("\n", " "),
        CERTIFICATE.replace("\n", "\\n"),
        f"subject=/CN=localhost\n\n{CERTIFICATE}\nissuer: nobody\n",
        CERTIFICATE.replace("CERTIFICATE", "X509 CERTIFICATE"),
        f"{IDENTITY.key}{CERTIFICATE}",
    ],
    ids=["plain", "crlf", "one line", "backslash n", "with remarks", "x509", "behind a key"],
)
def test_a_certificate_is_found_however_its_lines_end(text: str) -> None:
    assert ssl_pem.certificates(text, NAME) == [DER]


def test_certificates_come_in_their_order() -> None:
    other = AUTHORITY.issue("other")
    assert ssl_pem.certificates(CERTIFICATE + other.chain, NAME) == [DER, other.der]


def test_pem_is_what_openssl_reads() -> None:
    assert ssl.PEM_cert_to_DER_cert(ssl_pem.pem(DER)) == DER
    assert max(map(len, ssl_pem.pem(DER).splitlines())) == 64


def test_a_key_is_found_and_made_readable() -> None:
    block = ssl_pem.private_key(f"{CERTIFICATE}{IDENTITY.key}".replace("\n", " "), NAME)
    assert block.text == IDENTITY.key
    assert not block.is_encrypted


@pytest.mark.parametrize("traditional", [False, True])
def test_an_encrypted_key_is_known_as_one(traditional: bool) -> None:
    text = IDENTITY.key_encrypted_with("secret", traditional=traditional)
    block = ssl_pem.private_key(text, NAME)
    assert block.is_encrypted
    assert block.text == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it must be PEM"),
        ("/etc/kafka/ca.pem", r"a path belongs into the setting that ends in \.location"),
        (IDENTITY.key, "what it holds is: private key"),
        (CERTIFICATE[:-40], "it must be PEM"),
    ],
    # Keys are made anew by each process, and a test has one name in all of them.
    ids=["nothing", "a path", "a key", "half a certificate"],
)
def test_a_text_without_a_certificate_says_what_it_has_instead(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{NAME}: there is no certificate in it; .*{said}") as caught:
        ssl_pem.certificates(text, NAME)
    assert caught.value.name == NAME


def test_a_certificate_that_is_not_base64_is_told_by_its_place() -> None:
    broken = CERTIFICATE.replace("M", "!", 1)
    with pytest.raises(ConfigError, match=f"^{NAME}: certificate 2 of 2 is not base64"):
        ssl_pem.certificates(CERTIFICATE + broken, NAME)


def test_one_private_key_is_wanted() -> None:
    with pytest.raises(ConfigError, match="there is no private key in it; what it holds is: certificate"):
        ssl_pem.private_key(CERTIFICATE, NAME)
    with pytest.raises(ConfigError, match="there are 2 private keys in it, give one"):
        ssl_pem.private_key(IDENTITY.key * 2, NAME)


def test_no_error_and_no_repr_shows_a_byte_of_the_text() -> None:
    secret = IDENTITY.key.splitlines()[1]
    with pytest.raises(ConfigError) as caught:
        ssl_pem.certificates(IDENTITY.key, NAME)
    assert secret not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert repr(ssl_pem.private_key(IDENTITY.key, NAME)) == "<PemBlock PRIVATE KEY>"


def test_the_private_file_is_ours_alone_and_gone_thereafter() -> None:
    with ssl_pem.private_file("text") as path:
        with open(path) as file:
            assert file.read() == "text"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        descriptors = os.listdir("/proc/self/fd")
    assert not os.path.exists(path)
    assert len(os.listdir("/proc/self/fd")) == len(descriptors) - 1


def test_the_private_file_is_a_temporary_one_where_there_is_none_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
    with ssl_pem.private_file("text") as path:
        assert path.startswith(os.fspath(tmp_path))
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == []


def test_blocks_are_those_of_the_plain_expression() -> None:
    plain = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
    pieces = (
        "-----BEGIN A-----",
        "-----END A-----",
        "-----BEGIN B",
        "-----END B-----",
        "-----",
        "A",
        "\n",
        "-",
    )
    for seed in range(3_000):
        random = Random(seed)
        text = "".join(random.choices(pieces, k=random.randrange(12)))
        assert [(block.label, block.body) for block in ssl_pem._blocks(text)] == plain.findall(text), text


def test_a_file_of_nothing_but_beginnings_is_refused_in_one_pass() -> None:
    """It may lie where a certificate did, and is read on the I/O thread: each one searched for its end."""
    text = "-----BEGIN CERTIFICATE-----\n" * 100_000
    with pytest.raises(ConfigError, match="there is no certificate in it"):
        ssl_pem.certificates(text, NAME)
