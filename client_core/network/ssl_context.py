"""Builds the SSLContext: truststore, own certificate, protocols and ciphers.

    truststore          -> the authorities, or the system's own
    key, chain          -> our certificate, if the broker requests one
    verify_host_name    -> the certificate must also match the requested host (SSL-02)

Everything is read at creation, so that errors are reported before any connection. Each new connection calls
`context`. When a file has changed, a new context is built from the new texts; open connections keep theirs
until they are renewed (`credential_renewal.py`). Invalid texts are logged once, and the last context stays in
use, because operators replace key and certificate one after the other.

Called by the builder of the config, then by the I/O thread; one owner. Source: DefaultSslEngineFactory,
SslFactory, Kafka 4.3. Of Java's three store types only PEM is supported (KIP-651).
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import ConfigError
from client_core.events import NO_EVENTS, CertificateLoaded
from client_core.network import ssl_pem
from client_core.network.certificate_expiry import certificate_expires_at_s
from client_core.network.secret import InForce, Secret, text
from client_core.network.ssl_cipher_suites import tls_choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from client_core.events import EventSink
    from client_core.network.secret import SecretSource
    from client_core.network.security_config import SslConfig

#: First bytes of files that people use in place of PEM: Java's own format, and ASN.1.
_FOREIGN_STORES: Final[Mapping[bytes, str]] = {
    b"\xfe\xed\xfe\xed": "a JKS store",
    b"\xce\xce\xce\xce": "a JCEKS store",
    b"\x30\x82": "a PKCS#12 store or a DER file",
    b"\x30\x80": "a PKCS#12 store or a DER file",
}

#: OpenSSL's reasons for a key and a certificate that are no pair: of one kind, or of different kinds.
_MISMATCHES: Final = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})

#: _ssl.c copies a password into a buffer of this size.
_LONGEST_PASSWORD_BYTES: Final = 1024


class _Texts(NamedTuple):
    """The current texts of the four settings. Never shown."""

    truststore: str | None
    key: str | None
    chain: str | None
    key_password: str | None

    def __repr__(self) -> str:
        return "<_Texts>"


class _Made(NamedTuple):
    context: ssl.SSLContext
    certificate_expires_at_s: int | None


class SslContexts:
    """The current context of one client, renewed when its files change. Not thread-safe."""

    def __init__(self, config: SslConfig, events: EventSink = NO_EVENTS) -> None:
        """Reads everything. Raises ConfigError that names the setting and the remedy."""
        self._config = config
        self._events = events
        self._choice = tls_choice(config.enabled_protocols, config.cipher_suites)
        self._check_pair()
        read: dict[SecretSource, Secret] = {}  # the key and its chain are often in one file
        self._truststore = self._secret(config.truststore, read)
        self._key = self._secret(config.key, read)
        self._chain = self._secret(config.certificate_chain, read)
        self._key_password = self._secret(config.key_password, read)
        self._in_force = InForce(self._read, self._make, events)

    @property
    def certificate_expires_at_s(self) -> int | None:
        """The Unix time when our own certificate expires; None without one."""
        return self._in_force.now().certificate_expires_at_s

    @property
    def checked_after_handshake(self) -> frozenset[str]:
        """The cipher suites to check a connection's against, if the context can't restrict them.

        OpenSSL's names; empty: no check is needed.
        """
        return self._choice.checked_after_handshake

    def context(self) -> ssl.SSLContext:
        """Returns the context for a new connection, renewed if a file changed and is valid. Never raises."""
        return self._in_force.now().context

    def version(self) -> int:
        """Returns a number that grows with each new context. Never raises."""
        return self._in_force.version()

    # -- reading ---------------------------------------------------------------------------------------------

    def _check_pair(self) -> None:
        key, chain = self._config.key, self._config.certificate_chain
        if key is not None and chain is None:
            said = f"{key.name}: a private key needs its certificate; give ssl.keystore.certificate.chain too"
            raise ConfigError(said, name=key.name)
        if chain is not None and key is None:
            said = f"{chain.name}: a certificate needs its private key; give ssl.keystore.key too"
            raise ConfigError(said, name=chain.name)

    def _secret(self, source: SecretSource | None, read: dict[SecretSource, Secret]) -> Secret | None:
        if source is None:
            return None
        if source not in read:
            try:
                read[source] = Secret(source, self._events)
            except ConfigError as error:
                store = _foreign_store(source)
                if store is None:
                    raise
                raise ConfigError(
                    f"{source.name}: {source.path} is {store}; convert it to PEM (keytool -importkeystore to"
                    " PKCS#12, then openssl pkcs12)",
                    name=source.name,
                ) from error
        return read[source]

    def _read(self) -> _Texts:
        return _Texts(*map(text, (self._truststore, self._key, self._chain, self._key_password)))

    # -- making ----------------------------------------------------------------------------------------------

    def _make(self, texts: _Texts) -> _Made:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self._config.verify_host_name
        context.verify_mode = ssl.CERT_REQUIRED  # for any host name
        context.hostname_checks_common_name = True  # in a certificate without alternative names, as in Java
        # Certificates in the truststore are trusted even if they are no roots, as in Java: a self-signed
        # broker's own certificate, or an intermediate authority.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        self._choice.apply(context)
        if self._truststore is None or texts.truststore is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _trust(context, texts.truststore, self._truststore.name)
        if self._key is None or texts.key is None or self._chain is None or texts.chain is None:
            return _Made(context, None)
        expires_at_s = self._identify(context, texts, self._key.name, self._chain.name)
        self._events.emit(CertificateLoaded(expires_at_s))
        return _Made(context, expires_at_s)

    def _identify(self, context: ssl.SSLContext, texts: _Texts, key_name: str, chain_name: str) -> int:
        """Loads our certificate; returns its expiry time."""
        chain = ssl_pem.certificates(texts.chain or "", chain_name)
        for count, der in enumerate(chain, 1):
            _check_certificate(der, f"{chain_name}: certificate {count} of {len(chain)}", chain_name)
        key = ssl_pem.private_key(texts.key or "", key_name)
        password_name = "ssl.key.password" if self._key_password is None else self._key_password.name
        if key.is_encrypted and texts.key_password is None:
            raise ConfigError(
                f"{key_name}: the private key is encrypted; give {password_name}", name=key_name
            )
        password = texts.key_password or ""
        _check_password(password, password_name)
        try:
            with ssl_pem.private_file("".join(map(ssl_pem.pem, chain)) + key.text) as path:
                # Always pass a password: without one OpenSSL would ask on the terminal.
                context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            raise _identity_refused(error, key, key_name, chain_name, password_name) from None
        except OSError as error:
            raise ConfigError(
                f"{key_name}: can't pass it to OpenSSL: {error.strerror}", name=key_name
            ) from None
        except UnicodeEncodeError:  # the chained error would hold the key
            raise _damaged_key(key_name) from None
        return certificate_expires_at_s(chain[0])

    def __repr__(self) -> str:
        return f"<SslContexts {self._config!r}>"


def _foreign_store(source: SecretSource) -> str | None:
    """Returns the format of a binary file; None if it is unknown."""
    if source.path is None or not os.path.isfile(source.path):
        return None
    try:
        with open(source.path, "rb") as file:
            beginning = file.read(4)
    except OSError:
        return None
    return next((kind for first, kind in _FOREIGN_STORES.items() if beginning.startswith(first)), None)


def _trust(context: ssl.SSLContext, text: str, name: str) -> None:
    authorities = ssl_pem.certificates(text, name)
    for count, der in enumerate(authorities, 1):
        _load(context, der, f"{name}: certificate {count} of {len(authorities)}", name)


def _check_certificate(der: bytes, where: str, name: str) -> None:
    """Raises ConfigError if OpenSSL can't read it: for a chain OpenSSL does not name the certificate."""
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), der, where, name)
    try:
        certificate_expires_at_s(der)
    except ValueError as error:
        raise ConfigError(f"{where} can't be read: {error}", name=name) from None


def _load(context: ssl.SSLContext, der: bytes, where: str, name: str) -> None:
    try:
        context.load_verify_locations(cadata=der)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{where} can't be read: it is damaged; replace it", name=name) from None


def _check_password(password: str, name: str) -> None:
    try:
        size_bytes = len(password.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{name} is not Unicode text", name=name) from None
    if size_bytes >= _LONGEST_PASSWORD_BYTES:
        raise ConfigError(f"{name}: it must be shorter than {_LONGEST_PASSWORD_BYTES} bytes", name=name)


def _identity_refused(
    error: ssl.SSLError, key: ssl_pem.PemBlock, key_name: str, chain_name: str, password_name: str
) -> ConfigError:
    reason = error.reason
    if reason in _MISMATCHES:
        said = (
            f"the private key does not belong to the first certificate of {chain_name}, which must be our own"
        )
        return ConfigError(f"{key_name}: {said}", name=key_name)
    if reason is not None and error.library == "SSL":  # such as CA_MD_TOO_WEAK, EE_KEY_TOO_SMALL
        said = f"OpenSSL rejects our certificate: {reason.lower().replace('_', ' ')}"
        return ConfigError(f"{chain_name}: {said}", name=chain_name)
    if key.is_encrypted:
        said = f"it does not open {key_name}; the password is wrong, or the key damaged"
        return ConfigError(f"{password_name}: {said}", name=password_name)
    return _damaged_key(key_name)


def _damaged_key(name: str) -> ConfigError:
    return ConfigError(f"{name}: the private key can't be read: it is damaged; replace it", name=name)
