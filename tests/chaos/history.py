"""The requests of callers and their answers: the part of a run that is visible from outside.

An Attempt is one record in one request. The load's thread appends; other threads may read a `History`
meanwhile, since entries never change.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Headers = tuple[tuple[str, bytes | None], ...]


class Outcome(enum.Enum):
    """The outcome of a record, as far as its caller knows."""

    STORED = "acknowledged, with its place"
    TAKEN = "accepted by the spool: it will be stored"
    PLACELESS = "acknowledged, by a dialect that names no place"
    NOT_WRITTEN = "failed, and said not to be written"
    UNKNOWN = "failed, and perhaps written"
    UNANSWERED = "the connection ended before the answer"

    @property
    def is_acknowledged(self) -> bool:
        return self in {Outcome.STORED, Outcome.TAKEN, Outcome.PLACELESS}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A record that was asked for, and its end. Times are milliseconds of the caller's clock (now_ms).

    `number` grows by one with each record of a caller; a repetition of the same record has the same number
    and the same value. No two callers have a key or a value in common. `lane` is the request, or the stream,
    whose records must keep the order of their numbers.
    """

    caller: str
    number: int
    key: bytes
    value: bytes
    asked_partition: int | None
    sent_ms: int
    ended_ms: int
    reported: Outcome
    partition: int | None = None
    offset: int | None = None
    status: int | None = None
    detail: str = ""
    lane: str = ""
    headers: Headers = ()
    #: The dialect adds headers of its own to these.
    has_more_headers: bool = False
    #: None where the sidecar was to set it.
    timestamp_ms: int | None = None
    #: None where the request did not say how long it waits.
    timeout_ms: int | None = None
    #: Its caller cut the connection.
    was_cut: bool = False
    #: How often it was answered.
    answers: int = 1
    has_idempotency_key: bool = False


class Lag:
    """How long a busy machine, or a stopped process, held up caller or sidecar."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, float]] = []
        self._stops: list[tuple[int, int]] = []

    def note(self, at_ms: int, lag_ms: float) -> None:
        """In the order of time. Samples of less than a millisecond are not kept."""
        if lag_ms >= 1:
            self._samples.append((at_ms, lag_ms))

    def excuse(self, since_ms: int, until_ms: int) -> None:
        """The sidecar was stopped in between: requests open meanwhile may be late by as much. Any thread."""
        self._stops.append((since_ms, until_ms))

    def within(self, since_ms: int, until_ms: int) -> float:
        """The sum of the samples that overlap that time, in milliseconds; ends included.

        A sample is noted at its end, perhaps after the answers that it delayed.
        """
        samples = self._samples
        first = bisect_left(samples, (since_ms, 0.0))
        stopped = sum(end - begin for begin, end in self._stops if begin <= until_ms and since_ms <= end)
        return stopped + sum(lag for at_ms, lag in samples[first:] if at_ms - lag <= until_ms)


class History:
    """All attempts of one fault, and how long who was held up. One thread appends."""

    def __init__(self) -> None:
        self._attempts: list[Attempt] = []
        self.lag = Lag()

    def add(self, attempts: Iterable[Attempt]) -> None:
        self._attempts.extend(attempts)  # one step under the interpreter's lock

    def attempts(self) -> Sequence[Attempt]:
        """Those that have ended so far."""
        return tuple(self._attempts)

    def acknowledged_since(self, since_ms: int) -> Mapping[str, int]:
        """By caller: how many records that were sent since then have been acknowledged."""
        counts: dict[str, int] = {}
        for attempt in self.attempts():
            if attempt.sent_ms >= since_ms and attempt.reported.is_acknowledged:
                counts[attempt.caller] = counts.get(attempt.caller, 0) + 1
        return counts
