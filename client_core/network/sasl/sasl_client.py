"""The interface of SASL mechanisms, the PLAIN mechanism, and printable broker messages.

A SaslClient handles tokens only, for one authentication; `sasl_client_authenticator.py` frames and sends them
and is its only caller, on the I/O thread. Pure but for SCRAM's nonce. Source: javax.security.sasl.SaslClient.

A broker's error message is shown to people. It may hold line ends, terminal escapes or megabytes, so it is
cut to one line of limited length. Pure.

PLAIN sends name and password in one token, unencrypted. Use it over TLS only.

    NUL, user name, NUL, password          in UTF-8; before the first NUL there could be another identity

Source: com.sun.security.sasl.PlainClient, RFC 4616 (SASL-05).
"""

from __future__ import annotations

from typing import Final, Protocol

from client_core.errors import IllegalSaslStateError

#: Kafka's own sentences are far shorter.
_MOST_CHARACTERS: Final = 1_000


def in_one_line(text: str, most_characters: int = _MOST_CHARACTERS) -> str:
    """The text with blanks for what can't be printed, and without its end if it is long."""
    shown = "".join(c if c.isprintable() else " " for c in text[:most_characters])
    return shown if len(text) <= most_characters else f"{shown}..."


class PlainSaslClient:
    """One exchange of PLAIN."""

    __slots__ = ("_token",)

    def __init__(self, username: str, password: str) -> None:
        self._token: bytes | None = f"\0{username}\0{password}".encode()

    @property
    def complete(self) -> bool:
        """After the only token: what the broker thinks of it is not PLAIN's business."""
        return self._token is None

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        if self._token is None:
            raise IllegalSaslStateError("Unexpected challenge: PLAIN authentication already completed")
        token, self._token = self._token, None
        return token

    def __repr__(self) -> str:
        return f"<PlainSaslClient {'COMPLETE' if self.complete else 'INITIAL'}>"


class SaslClient(Protocol):
    """One mechanism, once."""

    @property
    def complete(self) -> bool:
        """Whether the mechanism has nothing more to say and, where it can tell, believes the broker."""
        ...

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """The token that answers the broker's; the first challenge is empty, and is ours to begin with.

        None: nothing is to be sent. Raises SaslAuthenticationError when the broker's token won't do,
        IllegalSaslStateError when none was due.
        """
        ...
