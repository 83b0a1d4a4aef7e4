"""From what OpenSSL says to what people are told. Pure; real failures are in test_ssl_handshake.py."""

from __future__ import annotations

import ssl

import pytest

from client_core.errors import DisconnectError, SslAuthenticationError
from client_core.network import ssl_failures


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
@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("WRONG_VERSION_NUMBER", "does not speak TLS on this port"),
        ("RECORD_LAYER_FAILURE", "does not speak TLS on this port"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "none of the versions of ssl.enabled.protocols"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "nothing in common with us"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "does not accept our client certificate, or wants one and got none"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "wants a client certificate"),
        ("TLSV1_ALERT_UNKNOWN_CA", "does not know the authority of our client certificate"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "our client certificate has expired; renew it"),
        ("TLSV1_ALERT_INTERNAL_ERROR", "something (TLSV1_ALERT_INTERNAL_ERROR)"),
    ],
)
def test_a_reason_becomes_a_sentence(reason: str, said: str) -> None:
    error = ssl_failures.handshake_failure(ssl_error(reason), "broker")
    assert isinstance(error, SslAuthenticationError)
    assert error.message.startswith("TLS handshake failed: ")
    assert said in error.message
    assert "_ssl.c" not in error.message


def test_an_error_without_a_reason_is_told_in_openssls_words() -> None:
    error = ssl_failures.handshake_failure(ssl_error(None), "broker")
    assert error.message == "TLS handshake failed: something"


@pytest.mark.behaviour("SSL-03")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        (9, "is not valid yet; are the clocks right?"),
        (10, "has expired; renew it"),
        (18, "is self-signed and not trusted"),
        (19, "an authority that is not trusted"),
        (20, "unknown authority"),
        (21, "unknown authority"),
        (23, "the broker's certificate has been revoked"),
        (62, "is not for broker.example.com; connect by a name that it has"),
        (64, "is not for broker.example.com"),
        (26, "won't do: unsuitable certificate purpose"),
    ],
)
def test_a_certificate_that_fails_becomes_a_sentence(code: int, said: str) -> None:
    failure = certificate_error(code, "unsuitable certificate purpose")
    error = ssl_failures.handshake_failure(failure, "broker.example.com")
    assert isinstance(error, SslAuthenticationError)
    assert said in error.message


@pytest.mark.behaviour("SSL-03")
@pytest.mark.parametrize("kind", [ssl.SSLZeroReturnError, ssl.SSLEOFError, ssl.SSLSyscallError])
def test_an_end_is_no_refusal(kind: type[ssl.SSLError]) -> None:
    for judge in (
        ssl_failures.handshake_failure,
        ssl_failures.post_handshake_failure,
        ssl_failures.stream_failure,
    ):
        assert isinstance(
            judge(kind(6, "TLS/SSL connection has been closed (EOF)"), "broker"), DisconnectError
        )


@pytest.mark.behaviour("SSL-04")
def test_a_failure_is_one_of_authentication_until_bytes_came() -> None:
    failure = ssl_error("SSLV3_ALERT_BAD_CERTIFICATE")
    assert isinstance(ssl_failures.post_handshake_failure(failure, "broker"), SslAuthenticationError)
    assert isinstance(ssl_failures.stream_failure(failure, "broker"), DisconnectError)
