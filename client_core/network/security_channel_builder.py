"""Which transport and which authenticator a security protocol needs: the one place that chooses.

    PLAINTEXT        plaintext   nothing to prove
    SSL              TLS         nothing to prove (a certificate says it)
    SASL_PLAINTEXT   plaintext   SASL
    SASL_SSL         TLS         SASL

Certificates, keys and credentials are read here, so that a file that can't be read is known before anything
is connected. TLS and SASL are imported only where they are needed: who talks PLAINTEXT starts without them.
Called once by the producer's wiring, on the caller's thread. Source: ChannelBuilders, SslChannelBuilder,
SaslChannelBuilder, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.events import NO_EVENTS
from client_core.network.channel_builder import LayeredChannelBuilder, NoAuthentication, PlaintextTransports

if TYPE_CHECKING:
    from random import Random

    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.network.channel_builder import Authenticators, ChannelBuilder, Transports
    from client_core.network.security_config import SaslConfig, SecurityConfig, SslConfig


def security_channel_builder(
    security: SecurityConfig,
    *,
    client_id: str,
    clock: Clock,
    random: Random,
    events: EventSink = NO_EVENTS,
) -> ChannelBuilder:
    """A builder of channels for this security protocol; close it, whatever becomes of it.

    Raises ConfigError naming the setting when a file can't be read or makes no sense.
    """
    transports: Transports = PlaintextTransports()
    authenticators: Authenticators = NoAuthentication()
    if security.ssl is not None:
        transports = _tls(security.ssl, events)
    if security.sasl is not None:
        authenticators = _sasl(security.sasl, client_id, clock, random, events)
    return LayeredChannelBuilder(transports, authenticators)


def _tls(config: SslConfig, events: EventSink) -> Transports:
    from client_core.network.ssl_context import SslContexts
    from client_core.network.ssl_transport_layer import SslTransports

    return SslTransports(SslContexts(config, events))


def _sasl(
    config: SaslConfig, client_id: str, clock: Clock, random: Random, events: EventSink
) -> Authenticators:
    from client_core.network.sasl.sasl_authenticators import SaslAuthenticators

    return SaslAuthenticators(config, client_id=client_id, clock=clock, random=random, events=events)
