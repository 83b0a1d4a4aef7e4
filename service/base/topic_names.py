"""Checks topic names by Kafka's rules. Source: Topic.validate, Kafka 4.3. Pure."""

from __future__ import annotations

import re
from typing import Final

#: Kafka's limit, because the name is part of a folder's name on the broker's disk.
MAX_LENGTH: Final = 249

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def fault_of_topic_name(name: str) -> str | None:
    """Returns what is wrong with a topic's name, or None if Kafka accepts it."""
    if name in (".", ".."):
        return f"a topic can't be named {name!r}"
    if _LEGAL.fullmatch(name):
        return None
    if len(name) > MAX_LENGTH:
        return f"a topic's name has at most {MAX_LENGTH} characters, not {len(name)}"
    return f"a topic's name has letters, digits, '.', '_' and '-' only, not {name!r}"
