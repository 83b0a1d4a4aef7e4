"""Maps Kafka's TLS versions and cipher suites to OpenSSL's.

Java has one list of suites for all versions; OpenSSL has a separate one for TLS 1.3. A version without a
suite in the list is disabled; Java could not negotiate it either. A list that leaves no version is refused.

Python can restrict TLS 1.3 suites only with SSLContext's `set_ciphersuites`, which is newer than Python 3.14.
Without it all of them are offered, and `TlsChoice.checked_after_handshake` names the allowed ones: the
transport closes a connection whose broker chose another.

Pure but for `apply`. Called by SslContexts. Source: DefaultSslEngineFactory.createSslEngine, Kafka 4.3; names
from IANA's registry "TLS Cipher Suites" and `openssl ciphers -stdname`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ENABLED_PROTOCOLS: Final = "ssl.enabled.protocols"
CIPHER_SUITES: Final = "ssl.cipher.suites"

_TLS12: Final = "TLSv1.2"
_TLS13: Final = "TLSv1.3"
_VERSIONS: Final[Mapping[str, ssl.TLSVersion]] = {
    _TLS12: ssl.TLSVersion.TLSv1_2,
    _TLS13: ssl.TLSVersion.TLSv1_3,
}
_TOO_OLD: Final = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})

#: IANA and OpenSSL use the same names.
_TLS13_SUITES: Final = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)

#: TLS 1.2's suites that Java and OpenSSL both have and that authenticate the broker. Others, such as the
#: anonymous ones, would silently disable the verification.
_OPENSSL_NAMES: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA": "DHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA": "DHE-RSA-AES128-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}
_TLS12_SUITES: Final = frozenset(_OPENSSL_NAMES.values())


@dataclass(frozen=True, slots=True)
class TlsChoice:
    """The versions and suites to offer. Names of suites are OpenSSL's; empty: OpenSSL's choice."""

    oldest: ssl.TLSVersion
    newest: ssl.TLSVersion
    tls12_suites: tuple[str, ...] = ()
    tls13_suites: tuple[str, ...] = ()

    @property
    def checked_after_handshake(self) -> frozenset[str]:
        """The suites to check the connection's against, if the context can't restrict them; else empty."""
        if not self.tls13_suites or hasattr(ssl.SSLContext, "set_ciphersuites"):
            return frozenset()
        return frozenset(self.tls12_suites + self.tls13_suites)

    def apply(self, context: ssl.SSLContext) -> None:
        """Restricts a context. Raises ConfigError when OpenSSL has none of the suites."""
        context.minimum_version = self.oldest
        context.maximum_version = self.newest
        try:
            if self.tls12_suites:
                context.set_ciphers(":".join(self.tls12_suites))
            restrict: Callable[[str], None] | None = getattr(context, "set_ciphersuites", None)
            if self.tls13_suites and restrict is not None:
                restrict(":".join(self.tls13_suites))
        except ssl.SSLError as error:
            raise ConfigError(
                f"{CIPHER_SUITES}: this machine's {ssl.OPENSSL_VERSION} can use none of them",
                name=CIPHER_SUITES,
            ) from error


def tls_choice(enabled_protocols: Sequence[str], cipher_suites: Sequence[str]) -> TlsChoice:
    """Returns the choice that both settings allow.

    Raises ConfigError for an unknown name, and when nothing is left.
    """
    _check_protocols(enabled_protocols)
    tls12 = _each_once(_to_openssl(name) for name in cipher_suites if name not in _TLS13_SUITES)
    tls13 = _each_once(name for name in cipher_suites if name in _TLS13_SUITES)
    usable = set(enabled_protocols)
    if cipher_suites:
        usable -= ({_TLS12} if not tls12 else set()) | ({_TLS13} if not tls13 else set())
    if not usable:
        raise ConfigError(
            f"{CIPHER_SUITES}: none of {', '.join(cipher_suites)} works with {ENABLED_PROTOCOLS}="
            f"{','.join(enabled_protocols)}; suites of TLS 1.3 have no WITH in their names, those of TLS 1.2"
            " have",
            name=CIPHER_SUITES,
        )
    versions = sorted(_VERSIONS[name] for name in usable)
    return TlsChoice(
        versions[0],
        versions[-1],
        tls12 if _TLS12 in usable else (),
        tls13 if _TLS13 in usable else (),
    )


def _check_protocols(names: Sequence[str]) -> None:
    for name in names:
        if name in _TOO_OLD:
            raise ConfigError(
                f"{ENABLED_PROTOCOLS}: {name} is insecure and not supported; use {_TLS12} and {_TLS13}",
                name=ENABLED_PROTOCOLS,
            )
        if name not in _VERSIONS:
            raise ConfigError(
                f"{ENABLED_PROTOCOLS}: {name!r} is unknown; use {_TLS12} and {_TLS13}", name=ENABLED_PROTOCOLS
            )
    if not names:
        raise ConfigError(f"{ENABLED_PROTOCOLS} is empty; use {_TLS12} and {_TLS13}", name=ENABLED_PROTOCOLS)


def _to_openssl(name: str) -> str:
    if name in _TLS12_SUITES:
        return name
    known = _OPENSSL_NAMES.get(name)
    if known is None:
        raise ConfigError(
            f"{CIPHER_SUITES}: {name!r} is unknown or not safe; give names as IANA lists them, such as"
            " TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, or leave it empty for OpenSSL's choice",
            name=CIPHER_SUITES,
        )
    return known


def _each_once(names: Iterable[str]) -> tuple[str, ...]:
    """Returns each name once, in the given order of preference."""
    return tuple(dict.fromkeys(names))
