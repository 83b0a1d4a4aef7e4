"""Proving to a broker who we are, after the connection stands and before the first request.

An authenticator is a conversation and nothing else: frames in, frames out. The channel reads and writes them,
so that SCRAM can be tested on literal bytes. Java gives its authenticators the transport to read from; here
they own no socket.

`PlaintextAuthenticator` has nothing to prove: PLAINTEXT and SSL listeners. Who calls: KafkaChannel, on the
I/O thread. Source: Authenticator, PlaintextChannelBuilder.PlaintextAuthenticator, Kafka 4.3 (SASL-01).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Authenticator(Protocol):
    """One side of an authentication, for one connection."""

    @property
    def complete(self) -> bool:
        """Whether the broker has accepted us."""
        ...

    def authenticate(self, received: bytes | None) -> Sequence[bytes] | None:
        """Takes one step: the broker's frame, None at the very first; returns the pieces of the frame to
        answer with.

        None: there is nothing to answer; either it is complete now, or another frame must come first.
        Raises AuthenticationError when the broker refuses us or we refuse the broker, SchemaError when a
        frame can't be read.
        """
        ...


class PlaintextAuthenticator:
    """Complete before it begins."""

    __slots__ = ()

    @property
    def complete(self) -> bool:
        return True

    def authenticate(self, received: bytes | None) -> Sequence[bytes] | None:
        return None
