"""What callers asked for and were told: the half of the truth that can be seen from outside.

An Attempt is one record in one request. Callers append from threads of their own; a `History` may be read
while they do, since what was appended is never changed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Told(enum.Enum):
    """What became of a record, as far as its caller knows."""

    STORED = "acknowledged, with its place"
    TAKEN = "taken on by the spool: it will be stored"
    NOT_WRITTEN = "failed, and said not to be written"
    UNKNOWN = "failed, and perhaps written"
    UNANSWERED = "the connection ended before the answer"

    @property
    def is_acknowledged(self) -> bool:
        return self in {Told.STORED, Told.TAKEN}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A record that was asked for, and its end. Times are calendar milliseconds (now_ms).

    `number` grows by one with each record of a caller; a repetition of the same record has the same number
    and the same value. No two callers have a key or a value in common.
    """

    caller: str
    number: int
    key: bytes
    value: bytes
    asked_partition: int | None
    sent_ms: int
    ended_ms: int
    told: Told
    partition: int | None = None
    offset: int | None = None
    status: int | None = None
    detail: str = ""


class History:
    """All attempts of one fault. Any thread appends."""

    def __init__(self) -> None:
        self._attempts: list[Attempt] = []

    def add(self, attempts: Iterable[Attempt]) -> None:
        self._attempts.extend(attempts)  # one step under the interpreter's lock

    def attempts(self) -> Sequence[Attempt]:
        """Those that have ended so far."""
        return tuple(self._attempts)

    def acknowledged_since(self, since_ms: int) -> Mapping[str, int]:
        """By caller: how many records that were sent since then have been acknowledged."""
        counts: dict[str, int] = {}
        for attempt in self.attempts():
            if attempt.sent_ms >= since_ms and attempt.told.is_acknowledged:
                counts[attempt.caller] = counts.get(attempt.caller, 0) + 1
        return counts
