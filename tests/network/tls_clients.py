"""The client's side of TLS for tests: settings in one call, and a transport over a TlsPipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.network.secret import SecretSource
from client_core.network.security_config import SslConfig
from client_core.network.ssl_context import SslContexts
from client_core.network.ssl_transport_layer import SslTransportLayer
from tests.support.tls_peers import TLS12, TLS13

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.certificates import Identity
    from tests.support.tls_peers import TlsPipe

#: More steps than any handshake needs.
MANY_STEPS = 500


def truststore(text: str) -> SecretSource:
    return SecretSource("ssl.truststore.certificates", text=text)


def key(text: str) -> SecretSource:
    return SecretSource("ssl.keystore.key", text=text)


def chain(text: str) -> SecretSource:
    return SecretSource("ssl.keystore.certificate.chain", text=text)


def key_password(text: str) -> SecretSource:
    return SecretSource("ssl.key.password", text=text)


def ssl_config(
    trusts: str | None,
    identity: Identity | None = None,
    *,
    protocols: Sequence[str] = (TLS12, TLS13),
    ciphers: Sequence[str] = (),
    verify_host_name: bool = True,
) -> SslConfig:
    """A client's settings, everything given as text. `trusts` is a PEM of authorities; None: the system's."""
    return SslConfig(
        truststore=None if trusts is None else truststore(trusts),
        key=None if identity is None else key(identity.key),
        certificate_chain=None if identity is None else chain(identity.chain),
        enabled_protocols=tuple(protocols),
        cipher_suites=tuple(ciphers),
        verify_host_name=verify_host_name,
    )


def transport_over(pipe: TlsPipe, config: SslConfig, host: str = "localhost") -> SslTransportLayer:
    """A client over the pipe that is connected and has done nothing else."""
    contexts = SslContexts(config)
    transport = SslTransportLayer(pipe, contexts.context(), host, contexts.checked_after_handshake)
    assert transport.finish_connect()
    return transport


def shake_hands(transport: SslTransportLayer) -> None:
    """Goes through with the handshake, in as many steps as it takes."""
    for _ in range(MANY_STEPS):
        if transport.ready:
            return
        transport.handshake()
    raise AssertionError("the handshake comes to no end")
