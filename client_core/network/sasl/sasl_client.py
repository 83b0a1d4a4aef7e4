"""The interface of SASL mechanisms, the PLAIN mechanism, and printable broker messages.

A SaslClient handles tokens only, for one authentication. Only `sasl_client_authenticator.py` calls it, on the
I/O thread, and frames and sends the tokens. Pure except SCRAM's nonce. Source:
javax.security.sasl.SaslClient.

A broker's error message is shown to people. It may hold line ends, terminal escapes or megabytes, so it is
cut to one line of limited length. Pure.

PLAIN sends name and password in one token, unencrypted. Use it over TLS only.

    NUL, user name, NUL, password          in UTF-8; another identity could precede the first NUL

Source: com.sun.security.sasl.PlainClient, RFC 4616 (SASL-05).
"""

from __future__ import annotations

from typing import Final, Protocol

from client_core.errors import IllegalSaslStateError

#: Kafka's own messages are far shorter.
_MOST_CHARACTERS: Final = 1_000


def in_one_line(text: str, most_characters: int = _MOST_CHARACTERS) -> str:
    """Replaces unprintable characters by blanks and truncates the text."""
    shown = "".join(c if c.isprintable() else " " for c in text[:most_characters])
    return shown if len(text) <= most_characters else f"{shown}..."


class PlainSaslClient:
    """One exchange of PLAIN."""

    __slots__ = ("_token",)

    def __init__(self, username: str, password: str) -> None:
        self._token: bytes | None = f"\0{username}\0{password}".encode()

    @property
    def complete(self) -> bool:
        """True after the only token: PLAIN does not see the broker's decision."""
        return self._token is None

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        if self._token is None:
            raise IllegalSaslStateError("Unexpected challenge: PLAIN authentication already completed")
        token, self._token = self._token, None
        return token

    def __repr__(self) -> str:
        return f"<PlainSaslClient {'COMPLETE' if self.complete else 'INITIAL'}>"


class SaslClient(Protocol):
    """One exchange of one mechanism."""

    @property
    def complete(self) -> bool:
        """Whether the mechanism has nothing more to send and, where it can, has verified the broker."""
        ...

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        """Returns the response to the broker's token; the first challenge is empty, because we begin.

        None: nothing to send. Raises SaslAuthenticationError for an invalid token of the broker,
        IllegalSaslStateError for an unexpected one.
        """
        ...
