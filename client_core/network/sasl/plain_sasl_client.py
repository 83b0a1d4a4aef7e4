"""PLAIN: name and password in one token, in the clear. Use it over TLS only.

    NUL, user name, NUL, password          in UTF-8; before the first NUL there could be another identity

Source: com.sun.security.sasl.PlainClient, RFC 4616 (SASL-05).
"""

from __future__ import annotations

from client_core.errors import IllegalSaslStateError


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
