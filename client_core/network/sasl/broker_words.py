"""A broker's own words, fit for our errors and logs: one line, of some length.

What a broker says of a refusal is shown to people as it is. It may be anything: line ends that begin a log
line of their own, a terminal's escapes, megabytes. Pure. Called by `sasl_client_authenticator.py` and
`scram_messages.py`.
"""

from __future__ import annotations

from typing import Final

#: Kafka's own sentences are far shorter.
_MOST_CHARACTERS: Final = 1_000


def in_one_line(text: str, most_characters: int = _MOST_CHARACTERS) -> str:
    """The text with blanks for what can't be printed, and without its end if it is long."""
    shown = "".join(c if c.isprintable() else " " for c in text[:most_characters])
    return shown if len(text) <= most_characters else f"{shown}..."
