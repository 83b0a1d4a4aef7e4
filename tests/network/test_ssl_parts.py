"""The parts of TLS that need no connection: PEM, certificates' ends, versions and suites, failures."""

from __future__ import annotations

import datetime
import os
import re
import ssl
import stat
import tempfile
from functools import partial
from itertools import product
from random import Random

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import ConfigError, DisconnectError, SslAuthenticationError
from client_core.network import ssl_failures, ssl_pem
from client_core.network.certificate_expiry import certificate_expires_at_s
from client_core.network.ssl_cipher_suites import _OPENSSL_NAMES, TlsChoice, tls_choice
from tests.support.certificates import LONG_AGO, Authority, with_validity
from tests.support.counted_work import open_descriptors

NAME = "ssl.truststore.certificates"
AUTHORITY = Authority()
IDENTITY = AUTHORITY.issue("localhost")
CERTIFICATE = IDENTITY.chain
DER = IDENTITY.der


def test_a_certificate_is_found_however_its_lines_end() -> None:
    texts = {
        "plain": CERTIFICATE,
        "crlf": CERTIFICATE.replace("\n", "\r\n"),
        "one line": CERTIFICATE.replace("\n", " "),
        "backslash n": CERTIFICATE.replace("\n", "\\n"),
        "with remarks": f"subject=/CN=localhost\n\n{CERTIFICATE}\nissuer: nobody\n",
        "x509": CERTIFICATE.replace("CERTIFICATE", "X509 CERTIFICATE"),
        "behind a key": f"{IDENTITY.key}{CERTIFICATE}",
    }
    found = {name: ssl_pem.certificates(text, NAME) for name, text in texts.items()}
    assert found == {name: [DER] for name in texts}
    other = AUTHORITY.issue("other")
    assert ssl_pem.certificates(CERTIFICATE + other.chain, NAME) == [DER, other.der], "in their order"


def test_pem_is_what_openssl_reads() -> None:
    assert ssl.PEM_cert_to_DER_cert(ssl_pem.pem(DER)) == DER
    assert max(map(len, ssl_pem.pem(DER).splitlines())) == 64


def test_a_text_without_a_certificate_says_what_it_has_instead() -> None:
    for text, said in (
        ("", "it must be PEM"),
        ("/etc/kafka/ca.pem", r"give a path by the setting that ends in \.location"),
        (IDENTITY.key, "it has: private key"),
    ):
        with pytest.raises(ConfigError, match=rf"^{NAME}: it has no certificate; .*{said}") as caught:
            ssl_pem.certificates(text, NAME)
        assert caught.value.name == NAME


def test_a_certificate_that_is_not_base64_is_reported_with_its_place() -> None:
    broken = CERTIFICATE.replace("M", "!", 1)
    with pytest.raises(ConfigError, match=f"^{NAME}: certificate 2 of 2 is not base64"):
        ssl_pem.certificates(CERTIFICATE + broken, NAME)


def test_a_text_that_is_cut_within_a_certificate_is_refused_wherever_the_cut_is() -> None:
    begins_at = CERTIFICATE.index("\n")  # a line without its last dashes begins nothing
    for size in range(begins_at, len(CERTIFICATE) - 6, 7):
        for before in ("", CERTIFICATE):
            with pytest.raises(ConfigError, match=rf"^{NAME}: .* has no END; was the text cut\?$"):
                ssl_pem.certificates(before + CERTIFICATE[:size], NAME)


def test_one_private_key_is_wanted_which_is_made_readable_and_known_if_it_is_encrypted() -> None:
    block = ssl_pem.private_key(f"{CERTIFICATE}{IDENTITY.key}".replace("\n", " "), NAME)
    assert (block.is_encrypted, block.text) == (False, IDENTITY.key)
    for traditional in (False, True):
        text = IDENTITY.key_encrypted_with("secret", traditional=traditional)
        block = ssl_pem.private_key(text, NAME)
        assert (block.is_encrypted, block.text) == (True, text)
    with pytest.raises(ConfigError, match="it has no private key; it has: certificate"):
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
        descriptors = open_descriptors()
    assert not os.path.exists(path)
    assert open_descriptors() < descriptors


def test_the_private_file_is_a_temporary_one_where_there_is_none_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))
    with ssl_pem.private_file("text") as path:
        assert path.startswith(os.fspath(tmp_path))
        with open(path) as file:
            assert file.read() == "text"
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
        assert [(block.label, block.body) for block in ssl_pem.pem_blocks(text)] == plain.findall(text), text


def test_a_file_of_nothing_but_beginnings_is_refused_in_one_pass() -> None:
    """Such a file is read on the I/O thread. Searching an end for each beginning took quadratic time."""
    text = "-----BEGIN CERTIFICATE-----\n" * 100_000
    with pytest.raises(ConfigError, match=r"one of 100000 certificates has no END"):
        ssl_pem.certificates(text, NAME)


# -- when a certificate expires, as `cryptography` has it ----------------------------------------------------


ISSUED = Authority().issue("localhost")


def expiry_of(der: bytes) -> int:
    return int(x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp())


def test_it_is_what_the_certificate_says() -> None:
    assert certificate_expires_at_s(ISSUED.der) == expiry_of(ISSUED.der)


def test_both_kinds_of_time_are_read() -> None:
    """UTCTime to the end of 2049, GeneralizedTime thereafter; the last one is RFC 5280's for no end."""
    utc = partial(datetime.datetime, tzinfo=datetime.UTC)
    last_century = [utc(1950, 6, 1), utc(1951, 6, 1), utc(1999, 6, 1)]
    this_one = [
        utc(2001, 6, 1),
        utc(2049, 12, 31, 23, 59, 59),
        utc(2050, 1, 1),
        utc(9999, 12, 31, 23, 59, 59),
    ]
    for began, ends in ((utc(1950, 1, 1), last_century), (LONG_AGO, this_one)):
        for end in ends:
            made = with_validity("localhost", began, end)
            assert certificate_expires_at_s(made.der) == int(end.timestamp()), end


@given(st.integers(0, len(ISSUED.der) - 1))
def test_a_certificate_that_is_cut_is_none(size: int) -> None:
    with pytest.raises(ValueError, match="truncated"):
        certificate_expires_at_s(ISSUED.der[:size])


def test_a_validity_without_an_end_is_none() -> None:
    only_its_beginning = "300c 300a 0200 3000 3000 3002 1700"
    with pytest.raises(ValueError, match="truncated"):
        certificate_expires_at_s(bytes.fromhex(only_its_beginning))


@given(st.binary(max_size=300))
def test_other_bytes_are_none(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each byte has its own complaint
        certificate_expires_at_s(data)
    with pytest.raises(ValueError):  # noqa: PT011
        certificate_expires_at_s(b"\x30\x81" + bytes([len(data) % 256]) + data)


# -- versions and cipher suites ------------------------------------------------------------------------------


BOTH = ("TLSv1.2", "TLSv1.3")
V2, V3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3

GCM_256 = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
CHACHA = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
AES_128 = "TLS_AES_128_GCM_SHA256"


class ContextThatCanRestrict(ssl.SSLContext):
    """A context as newer Pythons have them."""

    tls13: str | None = None

    def set_ciphersuites(self, ciphersuites: str, /) -> None:
        self.tls13 = ciphersuites


def names(context: ssl.SSLContext) -> list[str]:
    return [cipher["name"] for cipher in context.get_ciphers()]


def test_versions_are_those_that_are_enabled() -> None:
    for protocols, versions in (
        (("TLSv1.2",), (V2, V2)),
        (("TLSv1.3",), (V3, V3)),
        (("TLSv1.2", "TLSv1.3"), (V2, V3)),
        (("TLSv1.3", "TLSv1.2"), (V2, V3)),
        (("TLSv1.3", "TLSv1.3"), (V3, V3)),
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls_choice(protocols, ()).apply(context)
        assert (context.minimum_version, context.maximum_version) == versions, protocols


def test_other_versions_are_refused() -> None:
    refusals: dict[tuple[str, ...], str] = {
        (): "is empty",
        ("TLSv1.4",): "'TLSv1.4' is unknown; use TLSv1.2 and TLSv1.3",
        ("TLSv1.2", "TLSv1.1"): "TLSv1.1 is insecure and not supported",
        ("SSLv3",): "SSLv3 is insecure and not supported",
    }
    for protocols, said in refusals.items():
        with pytest.raises(ConfigError, match=said) as caught:
            tls_choice(protocols, ())
        assert caught.value.name == "ssl.enabled.protocols"


def test_without_a_list_openssl_chooses() -> None:
    plain, context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    choice = tls_choice(BOTH, ())
    choice.apply(context)
    assert names(context) == names(plain)
    assert not choice.checked_after_handshake


def test_a_suite_goes_by_its_iana_name_or_by_openssls_and_in_the_order_of_preference() -> None:
    openssls = "ECDHE-RSA-AES256-GCM-SHA384"
    for given_names, wanted in (
        ((GCM_256,), [openssls]),
        ((openssls,), [openssls]),
        ((CHACHA, GCM_256, CHACHA), ["ECDHE-RSA-CHACHA20-POLY1305", openssls]),
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls_choice(("TLSv1.2",), given_names).apply(context)
        assert [it for it in names(context) if not it.startswith("TLS_")] == wanted


def test_a_version_without_a_suite_is_switched_off_as_in_java_and_suites_of_no_version_left_out() -> None:
    gcm_256 = ("ECDHE-RSA-AES256-GCM-SHA384",)
    assert tls_choice(BOTH, (GCM_256,)) == TlsChoice(V2, V2, gcm_256)
    assert tls_choice(BOTH, (AES_128,)) == TlsChoice(V3, V3, (), (AES_128,))
    both = (AES_128, GCM_256)
    assert tls_choice(BOTH, both) == TlsChoice(V2, V3, gcm_256, (AES_128,))
    assert tls_choice(("TLSv1.2",), both) == TlsChoice(V2, V2, gcm_256)
    assert tls_choice(("TLSv1.3",), both) == TlsChoice(V3, V3, (), (AES_128,))


def test_lists_that_leave_no_version_and_unknown_and_unsafe_suites_are_refused() -> None:
    def assert_refused(protocols: tuple[str, ...], suites: tuple[str, ...], said: str) -> None:
        with pytest.raises(ConfigError, match=said) as caught:
            tls_choice(protocols, suites)
        assert caught.value.name == "ssl.cipher.suites"

    for protocol, suite in (("TLSv1.3", GCM_256), ("TLSv1.2", AES_128)):
        said = f"none of {suite} works with ssl.enabled.protocols={protocol}"
        assert_refused((protocol,), (suite,), said)
    for name in (
        "TLS_UNHEARD_OF",
        "HIGH",  # a word of OpenSSL's own language
        "ADH-AES256-GCM-SHA384",  # nobody proves anything
        "TLS_DH_anon_WITH_AES_256_GCM_SHA384",
        "TLS_RSA_WITH_NULL_SHA256",
        f"{GCM_256}:ALL",
        "",
    ):
        assert_refused(BOTH, (GCM_256, name), "is unknown or not safe")


def test_suites_of_tls13_are_set_where_python_can() -> None:
    context = ContextThatCanRestrict(ssl.PROTOCOL_TLS_CLIENT)
    tls_choice(BOTH, (AES_128, GCM_256, "TLS_AES_256_GCM_SHA384")).apply(context)
    assert context.tls13 == "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384"


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can restrict them")
def test_suites_of_tls13_are_left_to_the_transport_where_python_can_not() -> None:
    assert tls_choice(BOTH, (AES_128, GCM_256)).checked_after_handshake == {
        "TLS_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES256-GCM-SHA384",
    }
    assert not tls_choice(BOTH, (GCM_256,)).checked_after_handshake


def test_suites_that_this_openssl_lacks_are_said_to_be_missing() -> None:
    class ContextWithout(ssl.SSLContext):
        def set_ciphers(self, ciphers: str, /) -> None:
            raise ssl.SSLError("No cipher can be selected.")

    with pytest.raises(ConfigError, match=r"OpenSSL .* can use none of them"):
        tls_choice(BOTH, (GCM_256,)).apply(ContextWithout(ssl.PROTOCOL_TLS_CLIENT))


def test_openssl_knows_every_name_of_the_table() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL")
    assert set(_OPENSSL_NAMES.values()) <= set(names(context))


# -- from OpenSSL's errors to ours ---------------------------------------------------------------------------


def ssl_error(reason: str | None, said: str = "[SSL: X] something (_ssl.c:1006)") -> ssl.SSLError:
    error = ssl.SSLError(1, said)
    if reason is not None:
        error.reason = reason
    return error


def certificate_error(code: int, said: str = "") -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code = code
    error.verify_message = said
    return error


@pytest.mark.behaviour("SSL-03")
def test_a_reason_becomes_a_sentence() -> None:
    sentences = {
        "WRONG_VERSION_NUMBER": "does not speak TLS on this port",
        "RECORD_LAYER_FAILURE": "does not speak TLS on this port",
        "TLSV1_ALERT_PROTOCOL_VERSION": "none of the versions of ssl.enabled.protocols",
        "SSLV3_ALERT_HANDSHAKE_FAILURE": "no TLS parameters in common with us",
        "SSLV3_ALERT_BAD_CERTIFICATE": "does not accept our client certificate, or wants one and got none",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED": "wants a client certificate",
        "TLSV1_ALERT_UNKNOWN_CA": "does not know the authority of our client certificate",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our client certificate has expired; renew it",
        "TLSV1_ALERT_INTERNAL_ERROR": "something (TLSV1_ALERT_INTERNAL_ERROR)",
    }
    for reason, said in sentences.items():
        error = ssl_failures.handshake_failure(ssl_error(reason), "broker")
        assert isinstance(error, SslAuthenticationError)
        assert error.message.startswith("TLS handshake failed: ")
        assert said in error.message
        assert "_ssl.c" not in error.message
    error = ssl_failures.handshake_failure(ssl_error(None), "broker")
    assert error.message == "TLS handshake failed: something", "in OpenSSL's words"


def test_after_a_handshake_nothing_means_that_the_peer_speaks_no_tls() -> None:
    """OpenSSL 3.2 gives a damaged record the reason that it gives a peer without TLS."""
    damaged = ssl_error("RECORD_LAYER_FAILURE")
    assert (
        ssl_failures.stream_failure(damaged, "broker").message
        == "TLS failed: something (RECORD_LAYER_FAILURE)"
    )
    refused = ssl_failures.post_handshake_failure(damaged, "broker").message
    assert refused.endswith("after the TLS handshake: something (RECORD_LAYER_FAILURE)")


@pytest.mark.behaviour("SSL-03")
def test_a_certificate_that_fails_becomes_a_sentence() -> None:
    sentences = {
        9: "is not valid yet; are the clocks right?",
        10: "has expired; renew it",
        18: "is self-signed and not trusted",
        19: "an authority that is not trusted",
        20: "unknown authority",
        21: "unknown authority",
        23: "the broker's certificate has been revoked",
        62: "is not for broker.example.com; connect by a name that it has",
        64: "is not for broker.example.com",
        26: "is not accepted: unsuitable certificate purpose",
    }
    for code, said in sentences.items():
        failure = certificate_error(code, "unsuitable certificate purpose")
        error = ssl_failures.handshake_failure(failure, "broker.example.com")
        assert isinstance(error, SslAuthenticationError)
        assert said in error.message


@pytest.mark.behaviour("SSL-03")
def test_an_end_is_no_refusal() -> None:
    judges = (
        ssl_failures.handshake_failure,
        ssl_failures.post_handshake_failure,
        ssl_failures.stream_failure,
    )
    for kind, judge in product((ssl.SSLZeroReturnError, ssl.SSLEOFError, ssl.SSLSyscallError), judges):
        ended = judge(kind(6, "TLS/SSL connection has been closed (EOF)"), "broker")
        assert isinstance(ended, DisconnectError)


@pytest.mark.behaviour("SSL-04")
def test_a_failure_is_one_of_authentication_until_bytes_came() -> None:
    failure = ssl_error("SSLV3_ALERT_BAD_CERTIFICATE")
    assert isinstance(ssl_failures.post_handshake_failure(failure, "broker"), SslAuthenticationError)
    assert isinstance(ssl_failures.stream_failure(failure, "broker"), DisconnectError)
