"""Which topic names Kafka takes. Source: Topic.validate, Kafka 4.3. Pure."""

from __future__ import annotations

import re
from typing import Final

#: Kafka's own limit: a topic's folder on disk carries its name.
MAX_LENGTH: Final = 249

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def fault_of_topic_name(name: str) -> str | None:
    """What is wrong with a topic's name; None if Kafka would take it."""
    if name in (".", ".."):
        return f"a topic can't be named {name!r}"
    if _LEGAL.fullmatch(name):
        return None
    if len(name) > MAX_LENGTH:
        return f"a topic's name has at most {MAX_LENGTH} characters, not {len(name)}"
    return f"a topic's name has letters, digits, '.', '_' and '-' only, not {name!r}"
