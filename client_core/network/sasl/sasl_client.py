"""One exchange of SASL tokens from the client's side, whatever the mechanism.

A SaslClient knows tokens only: it neither frames nor sends them (`sasl_client_authenticator.py` does), and it
lives for one authentication. Pure but for the nonce of SCRAM. Who calls: SaslClientAuthenticator, on the I/O
thread. Source: javax.security.sasl.SaslClient.
"""

from __future__ import annotations

from typing import Protocol


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
