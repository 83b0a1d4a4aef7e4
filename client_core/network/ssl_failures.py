"""Maps ssl.SSLError to our errors, each with its cause and remedy in one sentence.

An unacceptable certificate or protocol is SslAuthenticationError: retrying does not help. An end without a
reason is DisconnectError: it may be a firewall, or a restarting broker. A peer's alert is trusted.

Pure. Called by SslTransportLayer. Source: the branches of SslTransportLayer.maybeProcessHandshakeFailure,
Kafka 4.3 (SSL-03); alerts from RFC 8446, section 6; verify codes from OpenSSL's x509_vfy.h.
"""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final

from client_core.errors import DisconnectError, SslAuthenticationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.errors import KafkaError

_ADD_TO_TRUSTSTORE: Final = "add its authority to ssl.truststore.certificates or ssl.truststore.location"
_OUR_CERTIFICATE: Final = "(ssl.keystore.key and ssl.keystore.certificate.chain, or ssl.keystore.location)"

_HOST_NAME_MISMATCHES: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH

#: By X509_V_ERR_*.
_CERTIFICATE_SENTENCES: Final[Mapping[int, str]] = {
    9: "the broker's certificate is not valid yet; are the clocks right?",
    10: "the broker's certificate, or one of its chain, has expired; renew it",
    18: f"the broker's certificate is self-signed and not trusted; {_ADD_TO_TRUSTSTORE}",
    19: f"the broker's certificate is from an authority that is not trusted; {_ADD_TO_TRUSTSTORE}",
    20: f"the broker's certificate is of an unknown authority; {_ADD_TO_TRUSTSTORE}",
    21: f"the broker's certificate is of an unknown authority; {_ADD_TO_TRUSTSTORE}",
    23: "the broker's certificate has been revoked",
}

_NO_TLS_THERE: Final = (
    "the peer does not speak TLS on this port; give the address of a TLS listener, or set security.protocol"
    " to PLAINTEXT or SASL_PLAINTEXT"
)
_NO_COMMON_VERSION: Final = "the broker supports none of the versions of ssl.enabled.protocols"
_NO_COMMON_GROUND: Final = (
    "the broker has no TLS parameters in common with us: the cipher suites differ (ssl.cipher.suites), or it"
    f" wants a client certificate {_OUR_CERTIFICATE}"
)
_WANTS_CERTIFICATE: Final = f"the broker wants a client certificate; give one {_OUR_CERTIFICATE}"
_DISLIKES_CERTIFICATE: Final = (
    f"the broker does not accept our client certificate, or wants one and got none {_OUR_CERTIFICATE}"
)

#: OpenSSL's reasons in a handshake with a peer that does not speak TLS. Later they mean something else: since
#: OpenSSL 3.2 a damaged record has one of them.
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
#: By OpenSSL's reason. SSLV3_ and TLSV1_ name the version that introduced the alert, not the one in use.
_SENTENCES: Final[Mapping[str, str]] = {
    "UNSUPPORTED_PROTOCOL": _NO_COMMON_VERSION,
    "WRONG_SSL_VERSION": _NO_COMMON_VERSION,
    "TLSV1_ALERT_PROTOCOL_VERSION": _NO_COMMON_VERSION,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _NO_COMMON_GROUND,
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": _NO_COMMON_GROUND,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _WANTS_CERTIFICATE,
    "SSLV3_ALERT_NO_CERTIFICATE": _WANTS_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": _DISLIKES_CERTIFICATE,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _DISLIKES_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _DISLIKES_CERTIFICATE,
    "TLSV1_ALERT_ACCESS_DENIED": _DISLIKES_CERTIFICATE,
    "TLSV1_ALERT_DECRYPT_ERROR": _DISLIKES_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not know the authority of our client certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our client certificate has expired; renew it",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "our client certificate has been revoked",
    "TLSV1_UNRECOGNIZED_NAME": "the broker does not know the host name that it was asked for",
    "NO_RENEGOTIATION": "the broker asked for a renegotiation, which is refused",
}

_SOURCE_POSITION: Final = re.compile(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$")


def handshake_failure(error: ssl.SSLError, host: str) -> KafkaError:
    """Returns a failed handshake's SslAuthenticationError; DisconnectError if the peer only left (SSL-03)."""
    if _is_end(error):
        return terminated("the peer closed the connection")
    sentence = _NO_TLS_THERE if _reason(error) in _NO_TLS else _sentence(error, host)
    return SslAuthenticationError(f"TLS handshake failed: {sentence}")


def post_handshake_failure(error: ssl.SSLError, host: str) -> KafkaError:
    """Returns an error of TLS 1.3, where the broker checks our certificate after our handshake (SSL-04)."""
    if _is_end(error):
        return DisconnectError("the peer closed the connection")
    return SslAuthenticationError(f"the broker refused us after the TLS handshake: {_sentence(error, host)}")


def stream_failure(error: ssl.SSLError, host: str) -> KafkaError:
    """Returns the end of a working connection that failed."""
    if _is_end(error):
        return DisconnectError("the peer closed the connection")
    return DisconnectError(f"TLS failed: {_sentence(error, host)}")


def terminated(reason: str) -> DisconnectError:
    """Returns the end of a connection during its handshake."""
    return DisconnectError(
        f"terminated during the TLS handshake ({reason}): the listener may be a plaintext one"
        " (security.protocol), a firewall may block Kafka's TLS traffic, or the network failed for a moment"
    )


def forbidden_cipher_suite(name: str) -> SslAuthenticationError:
    """Returns the error: the broker chose a suite that the settings forbid and this Python can't withhold."""
    return SslAuthenticationError(
        f"TLS handshake failed: the broker chose the cipher suite {name}, which ssl.cipher.suites does not"
        " have; add it, or leave the suites of TLS 1.3 to the broker"
    )


def _is_end(error: ssl.SSLError) -> bool:
    return isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError | ssl.SSLSyscallError)


def _sentence(error: ssl.SSLError, host: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_sentence(error, host)
    reason = _reason(error)
    known = _SENTENCES.get(reason)
    if known is not None:
        return known
    said = _SOURCE_POSITION.sub("", str(error.args[-1] if error.args else error))
    return f"{said} ({reason})" if reason else said


def _reason(error: ssl.SSLError) -> str:
    return getattr(error, "reason", None) or ""  # errors raised by Python itself have none


def _certificate_sentence(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code in _HOST_NAME_MISMATCHES:
        return (
            f"the broker's certificate is not for {host}; connect by a name that it has, or have it issued"
            " for this one (an empty ssl.endpoint.identification.algorithm accepts any name)"
        )
    known = _CERTIFICATE_SENTENCES.get(error.verify_code)
    return known if known is not None else f"the broker's certificate is not accepted: {error.verify_message}"
