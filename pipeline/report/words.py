"""Formats numbers, times and names for people, and defines findings. Plain text: the page escapes it.

A Finding says what is wrong, the evidence and what to do. Its grade says how certain and urgent it is. The
modules findings_of_*.py make findings; `findings_of` returns all, the most urgent first.
"""

from __future__ import annotations

import enum
import unicodedata
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


_LONGEST_NAME: Final = 64
#: A BIGINT holds nine of the last one.
_UNITS_COMPACT: Final = ("", " k", " M", " G", " T", " P", " E")
_UNITS_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


class Grade(enum.IntEnum):
    """How soon a person should act."""

    NOW = 0
    SOON = 1
    KNOW = 2

    @property
    def words(self) -> str:
        return {Grade.NOW: "Act now", Grade.SOON: "Look into it", Grade.KNOW: "Good to know"}[self]


class Finding(NamedTuple):
    """A finding. `section` is the key of the section with its numbers."""

    grade: Grade
    sentence: str
    evidence: str
    remedy: str
    section: str


def count(number: float) -> str:
    """Formats 1234567 as 1,234,567."""
    return f"{number:,.0f}"


def compact(number: float) -> str:
    """Formats 1234567 as 1.2 M, where there is little room."""
    power = 0
    # What rounds to a thousand of a unit is one of the next.
    while abs(number) >= 999.5 and power < len(_UNITS_COMPACT) - 1:
        number /= 1_000
        power += 1
    return f"{number:.3g}{_UNITS_COMPACT[power]}"


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """Formats 1 with "sidecar" as "1 sidecar", 2 as "2 sidecars"; `plural` if an s is not enough."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def times(number: float) -> str:
    """Formats 2 as "twice"."""
    return {1: "once", 2: "twice"}.get(round(number), f"{count(number)} times")


def share(part: float) -> str:
    """Formats 0.123 as 12 %; never formats a share above zero as 0 %."""
    percent = 100 * part
    if 0 < percent < 0.01:
        return "below 0.01 %"
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


def duration(milliseconds: float) -> str:
    """Formats 61000 as 1 min 1 s, 12.3 as 12 ms; two units at most."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"
    if milliseconds < 10_000:
        return f"{milliseconds / 1_000:.3g} s"
    left = round(milliseconds / 1_000) * 1_000
    said: list[tuple[int, str]] = []
    for unit, size in _UNITS_MS:
        if left >= size or said:
            said.append((left // size, unit))
            left %= size
    return " ".join(f"{number} {unit}" for number, unit in said[:2] if number)


def latency(microseconds: float) -> str:
    """Formats microseconds as a duration."""
    return duration(microseconds / 1_000) if microseconds >= 1_000 else f"{microseconds:.0f} µs"


def moment(at: datetime) -> str:
    """Formats a time as 2026-09-01 11:05:30, in UTC; the page says so once."""
    return at.strftime("%Y-%m-%d %H:%M:%S")


def clock(at: datetime) -> str:
    """Formats a time as 11:05:30."""
    return at.strftime("%H:%M:%S")


def listed(words: Sequence[str], most: int = 3) -> str:
    """Formats a list as "a, b and c", or as "a, b, c and 7 more"."""
    shown = list(words[:most])
    if len(words) > most:
        return f"{', '.join(shown)} and {count(len(words) - most)} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def name(given: object, longest: int = _LONGEST_NAME) -> str:
    """Formats an untrusted name: replaces invisible and text direction characters, cuts the length."""
    seen = "".join(
        "�" if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else letter
        for letter in str(given)
    )
    return seen if len(seen) <= longest else f"{seen[: longest - 1]}…"


def partition(topic: object, number: int) -> str:
    """Formats a partition as orders-3, as Kafka's tools do."""
    return f"{name(topic)}-{number}"


def broker(number: int) -> str:
    """Formats a broker; "no leader" for a negative number."""
    return "no leader" if number < 0 else f"broker {number}"
