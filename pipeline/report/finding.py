"""A sentence for people: what is wrong, how it shows, what to do. All of it plain text.

How sure, and how urgent, is said by the grade. Which sentences there are: findings_of_brokers.py,
findings_of_load.py and findings_of_sidecars.py; `findings_of` has them all, the most urgent first.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class Grade(enum.IntEnum):
    """How soon somebody should do something."""

    NOW = 0
    SOON = 1
    KNOW = 2

    @property
    def words(self) -> str:
        return {Grade.NOW: "Act now", Grade.SOON: "Look into it", Grade.KNOW: "Good to know"}[self]


class Finding(NamedTuple):
    """One thing to know. `section` is where its numbers are."""

    grade: Grade
    sentence: str
    evidence: str
    remedy: str
    section: str
