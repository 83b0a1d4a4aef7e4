"""Chooses the transport and the authenticator of a security protocol.

    PLAINTEXT        plaintext   no authentication
    SSL              TLS         no authentication (the certificate identifies the client)
    SASL_PLAINTEXT   plaintext   SASL
    SASL_SSL         TLS         SASL

Certificates, keys and credentials are read here, so an unreadable file is reported before any connection.
TLS and SASL are imported only when needed, so that PLAINTEXT starts without them. Called once when the
producer is created, on the caller's thread. Source: ChannelBuilders, SslChannelBuilder, SaslChannelBuilder,
Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.events import NO_EVENTS
from client_core.network.channel_builder import LayeredChannelBuilder, NoAuthentication, PlaintextTransports
from client_core.network.selectable import CredentialsVersion

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.network.channel_builder import Authenticators, Transports
    from client_core.network.sasl import SaslAuthenticators
    from client_core.network.security_config import SaslConfig, SecurityConfig, SslConfig
    from client_core.network.ssl_transport_layer import SslTransports


def security_channel_builder(
    security: SecurityConfig,
    *,
    client_id: str,
    clock: Clock,
    random: Random,
    events: EventSink = NO_EVENTS,
) -> LayeredChannelBuilder:
    """Returns a channel builder for this security protocol; the caller must close it.

    Its `credentials` is set when a file or a token endpoint may change them while the client runs.
    Raises ConfigError naming the setting when a file is unreadable or invalid.
    """
    transports: Transports = PlaintextTransports()
    authenticators: Authenticators = NoAuthentication()
    tls_version: Callable[[], int] = int
    sasl_version: Callable[[], int] = int
    if security.ssl is not None:
        transports = tls = _tls(security.ssl, events)
        tls_version = tls.version
    if security.sasl is not None:
        authenticators = sasl = _sasl(security.sasl, client_id, clock, random, events)
        sasl_version = sasl.version
    if not security.may_change:
        return LayeredChannelBuilder(transports, authenticators)
    return LayeredChannelBuilder(
        transports, authenticators, lambda: CredentialsVersion(tls_version(), sasl_version())
    )


def _tls(config: SslConfig, events: EventSink) -> SslTransports:
    from client_core.network.ssl_context import SslContexts
    from client_core.network.ssl_transport_layer import SslTransports

    return SslTransports(SslContexts(config, events))


def _sasl(
    config: SaslConfig, client_id: str, clock: Clock, random: Random, events: EventSink
) -> SaslAuthenticators:
    from client_core.network.sasl.sasl_authenticators import SaslAuthenticators

    return SaslAuthenticators(config, client_id=client_id, clock=clock, random=random, events=events)
