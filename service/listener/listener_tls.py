"""TLS of the API's port: certificate, key and client authorities, reloaded when their files change.

    api_tls_certificate_file   our certificate and its intermediates, PEM
    api_tls_key_file           its private key, PEM, not encrypted
    api_tls_client_ca_file     authorities of the clients, PEM; with it, every client needs a certificate

A changed set of files is validated as a whole (`watched_file.py`). New connections get the new context, open
ones keep theirs. If the files give no valid context, the last one stays in force. Event loop only, but for
the first read.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from client_core import Event, certificate_expires_at_s
from service.base.settings import Settings
from service.base.watched_file import FileFaultError, WatchedFiles

#: OpenSSL's older label of a certificate begins with X509.
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN (?:X509 )?CERTIFICATE-----([^-]*)-----END (?:X509 )?CERTIFICATE-----"
)
_BEGIN: Final = re.compile(rb"-----BEGIN (?:X509 )?CERTIFICATE-----")
_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
#: By its label, or by a header of OpenSSL's older format; not by a comment.
_ENCRYPTED: Final = re.compile(rb"-----BEGIN ENCRYPTED |^\s*Proc-Type:.*ENCRYPTED", re.MULTILINE)

#: OpenSSL's reasons when key and certificate are no pair, of the same or of different types.
_MISMATCHES: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})


class _Made(NamedTuple):
    context: ssl.SSLContext
    expires_at_s: int


class ListenerTls:
    """Provides the SSL context for the API's next connection."""

    def __init__(self, certificate_file: str, key_file: str, client_ca_file: str = "") -> None:
        """Reads the files; raises FileFaultError that names the setting."""
        self._reported: Callable[[Event], None] = lambda _: None
        paths = [certificate_file, key_file, *([client_ca_file] if client_ca_file else [])]

        def make(contents: Sequence[bytes]) -> _Made:
            return _make(paths, contents)

        self._files = WatchedFiles("api_tls_certificate_file", paths, make, reported=self._report)
        self.watch: Final = self._files.watch
        self.close: Final = self._files.close

    @property
    def expires_at_s(self) -> int:
        """The Unix time at which the certificate in force expires."""
        return self._files.in_force.expires_at_s

    def context(self) -> ssl.SSLContext:
        """Returns the context for a new connection."""
        return self._files.in_force.context

    def report_to(self, emit: Callable[[Event], None]) -> None:
        """Emits an event after each reload."""
        self._reported = emit

    def _report(self, event: Event) -> None:
        self._reported(event)


def tls_of(settings: Settings) -> ListenerTls | None:
    """Returns the TLS of the settings; None for plain HTTP. Raises FileFaultError that names a setting."""
    given = {
        name: getattr(settings, name)
        for name in ("api_tls_certificate_file", "api_tls_key_file", "api_tls_client_ca_file")
    }
    if not any(given.values()):
        return None
    for name in ("api_tls_certificate_file", "api_tls_key_file"):
        if not given[name]:
            other = next(other for other, path in given.items() if path)
            raise FileFaultError(f"{name}: missing, but {other} is given; give a certificate and its key")
    return ListenerTls(*given.values())


def _make(paths: Sequence[str], contents: Sequence[bytes]) -> _Made:
    chain = _certificates(paths[0], contents[0])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # Python's contexts never compress
    context.set_alpn_protocols(["http/1.1"])
    _identify(context, paths[0], paths[1], contents[1])
    if len(paths) > 2:
        _trust(context, _certificates(paths[2], contents[2]))
    try:
        return _Made(context, certificate_expires_at_s(chain[0]))
    except ValueError as e:
        raise FileFaultError(f"{paths[0]}: the first certificate can't be read: {e}") from e


def _certificates(path: str, content: bytes) -> list[bytes]:
    """Returns the certificates of a PEM text as DER, at least one; OpenSSL can read each."""
    found = _CERTIFICATE.findall(content)
    if (begun := len(_BEGIN.findall(content))) > len(found):
        raise FileFaultError(f"{path}: one of {begun} certificates has no END; was the file cut?")
    if not found:
        raise FileFaultError(f"{path} holds no PEM certificate (-----BEGIN CERTIFICATE-----)")
    read: list[bytes] = []
    for count, body in enumerate(found, 1):
        try:
            der = base64.b64decode(b"".join(body.split()), validate=True)
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=der)
        except (ssl.SSLError, ValueError) as e:
            raise FileFaultError(f"{path}: certificate {count} of {len(found)} is damaged") from e
        read.append(der)
    return read


def _identify(context: ssl.SSLContext, certificate_file: str, key_file: str, key: bytes) -> None:
    if not _KEY.search(key):
        raise FileFaultError(f"{key_file} holds no PEM key (-----BEGIN PRIVATE KEY-----)")
    if _ENCRYPTED.search(key):
        raise FileFaultError(f"{key_file}: the key is encrypted; give one without a password")
    try:
        # OpenSSL reads the files itself. If they change in this moment, the next check notices. Always pass a
        # password: otherwise OpenSSL would ask on the terminal.
        context.load_cert_chain(certificate_file, key_file, password="")
    except ssl.SSLError as e:
        _ensure_readable(certificate_file)
        raise FileFaultError(f"{key_file}: {_reason(e, certificate_file)}") from None
    except OSError as e:
        raise FileFaultError(f"{key_file} or {certificate_file} can't be read: {e.strerror}") from e


def _ensure_readable(certificate_file: str) -> None:
    """Raises FileFaultError if OpenSSL rejects the lines around a certificate, which we did not look at."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(certificate_file)
    except ssl.SSLError:
        raise FileFaultError(
            f"{certificate_file}: a certificate can't be read; its BEGIN and END must each be a whole line"
        ) from None


def _reason(error: ssl.SSLError, certificate_file: str) -> str:
    """Returns why OpenSSL rejects a readable key with its certificate."""
    reason: str | None = error.reason
    if reason in _MISMATCHES:
        return (
            f"the key does not belong to the first certificate of {certificate_file}, which must be the"
            " sidecar's own"
        )
    if reason is not None and error.library == "SSL":  # such as CA_MD_TOO_WEAK, EE_KEY_TOO_SMALL
        return f"OpenSSL rejects it with {certificate_file}: {reason.lower().replace('_', ' ')}"
    return "the key can't be read: it is damaged; replace it"


def _trust(context: ssl.SSLContext, authorities: Sequence[bytes]) -> None:
    context.load_verify_locations(cadata=b"".join(authorities))
    context.verify_mode = ssl.CERT_REQUIRED
    # Every certificate in the file is trusted, even if not a root: such as one's own intermediate authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
