"""Authenticates a connection before its first request.

An authenticator takes and returns frames only. The channel reads and writes them, so SCRAM is tested on
literal bytes. Java's authenticators read from the transport; these own no socket. A broker may limit the
session's lifetime (SASL-06, KIP-368). Then the same authenticator repeats the exchange on the same
connection; Java creates a new one.

`PlaintextAuthenticator` does nothing, for PLAINTEXT and SSL listeners. KafkaChannel calls it on the I/O
thread. Source: Authenticator, PlaintextChannelBuilder.PlaintextAuthenticator, Kafka 4.3 (SASL-01).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Authenticator(Protocol):
    """The client's side of an authentication, for one connection."""

    @property
    def complete(self) -> bool:
        """Whether the broker has accepted us."""
        ...

    @property
    def awaits_credentials(self) -> bool:
        """Whether the last step needs a credential that is still being fetched elsewhere.

        Then the caller must try again, even if the broker sends nothing.
        """
        ...

    @property
    def reauthenticates_at_ms(self) -> int | None:
        """The time from which a send must wait for a re-authentication; None: never."""
        ...

    def authenticate(self, received: bytes | None, now_ms: int) -> Sequence[bytes] | None:
        """Takes one step; returns the pieces of the frame to send.

        `received` is the broker's frame, None in the first step. Returns None when there is nothing to send:
        it is complete, needs another frame, or awaits credentials.
        Raises AuthenticationError when either side refuses the other, or another ApiError if the broker's
        code means one (SASL-03). Raises ProtocolError when the response does not match the request,
        DisconnectError when there is no credential at the moment.
        """
        ...

    def reauthenticate(self) -> None:
        """Restarts the exchange: `complete` becomes false; `authenticate(None)` returns the first frame."""
        ...

    def expects(self, frame: bytes) -> bool:
        """Returns whether a frame belongs to the authentication, not to a request sent before its restart."""
        ...


class PlaintextAuthenticator:
    """Complete from the start."""

    __slots__ = ()

    complete = True
    awaits_credentials = False
    reauthenticates_at_ms: int | None = None

    def authenticate(self, received: bytes | None, now_ms: int) -> Sequence[bytes] | None:
        return None

    def reauthenticate(self) -> None:
        """Does nothing."""

    def expects(self, frame: bytes) -> bool:
        return False
