"""Authenticates a connection after it is established and before its first request.

An authenticator takes and returns frames only; the channel reads and writes them, so SCRAM is tested on
literal bytes. Java's authenticators read from the transport; these own no socket. A broker may limit the
session's lifetime; then the exchange is repeated on the same connection (SASL-06, KIP-368), here by the same
authenticator, in Java by a new one.

`PlaintextAuthenticator` does nothing, for PLAINTEXT and SSL listeners. KafkaChannel calls it on the I/O
thread. Source: Authenticator, PlaintextChannelBuilder.PlaintextAuthenticator, Kafka 4.3 (SASL-01).
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

    @property
    def awaits_credentials(self) -> bool:
        """Whether the last step could not be taken for want of a credential that is being fetched elsewhere.

        Then it is to be tried again, though nothing came from the broker.
        """
        ...

    @property
    def reauthenticates_at_ms(self) -> int | None:
        """From when on a send must wait for a re-authentication; None: what was proved holds for good."""
        ...

    def authenticate(self, received: bytes | None, now_ms: int) -> Sequence[bytes] | None:
        """Takes one step: the broker's frame, None at the very first; returns the pieces of the frame to
        answer with.

        None: there is nothing to answer; either it is complete now, or another frame must come first, or it
        awaits credentials.
        Raises AuthenticationError when the broker refuses us or we refuse the broker, another ApiError where
        that is what the broker's code means (SASL-03), ProtocolError when it answers another question,
        DisconnectError when there is nothing to prove it with at the moment.
        """
        ...

    def reauthenticate(self) -> None:
        """Begins anew: it is not complete any more, and `authenticate(None)` gives the first frame."""
        ...

    def expects(self, frame: bytes) -> bool:
        """Whether a frame belongs to the authentication, and not to a request sent before it began anew."""
        ...


class PlaintextAuthenticator:
    """Complete before it begins."""

    __slots__ = ()

    @property
    def complete(self) -> bool:
        return True

    @property
    def awaits_credentials(self) -> bool:
        return False

    @property
    def reauthenticates_at_ms(self) -> int | None:
        return None

    def authenticate(self, received: bytes | None, now_ms: int) -> Sequence[bytes] | None:
        return None

    def reauthenticate(self) -> None:
        """There is nothing to prove again."""

    def expects(self, frame: bytes) -> bool:
        return False
