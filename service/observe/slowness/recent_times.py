"""Recent durations and amounts, in bounded memory.

`RecentTimes` counts durations in buckets, each a quarter wider than the one before, and in slots of five
seconds. Its quantiles of the last minute are accurate to a quarter; its maximum is exact. `PerSecond` keeps
the sums of the last sixty seconds. Neither is thread-safe: the owner must lock. The caller passes the time as
`now_ms`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import Final

#: Upper bounds in milliseconds, ten per decade: from 1 ms to over six minutes, longer than any request takes.
_BOUNDS_MS: Final = tuple(sorted({round(10 ** (k / 10)) for k in range(57)}))
_SLOT_MS: Final = 5_000
#: A minute of whole slots, and the present one.
_SLOTS: Final = 13
#: The last whole slot and the present one: 5 to 10 s. Earlier fast requests must not hide new slowness.
LATEST_SLOTS: Final = 2
LATEST_S: Final = LATEST_SLOTS * _SLOT_MS // 1_000


@dataclass(frozen=True, slots=True)
class Recent:
    """Times of the last minute or the last seconds. Quantiles and maximum are None without any."""

    count: int
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None


NOTHING_RECENT: Final = Recent(0, None, None, None)


class _Slot:
    __slots__ = ("counts", "max_ms", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.counts = [0] * (len(_BOUNDS_MS) + 1)
        self.max_ms = 0


class RecentTimes:
    """The durations of one thing, for the last minute, or for fewer slots if that is enough."""

    __slots__ = ("_slots",)

    def __init__(self, slots: int = _SLOTS) -> None:
        self._slots: deque[_Slot] = deque(maxlen=slots)

    def add(self, took_ms: int, now_ms: int) -> None:
        """Adds a duration that ended now."""
        number = now_ms // _SLOT_MS
        slots = self._slots
        if not slots or slots[-1].number < number:
            slots.append(_Slot(number))
        slot = slots[-1]
        slot.counts[bisect_left(_BOUNDS_MS, took_ms)] += 1
        slot.max_ms = max(slot.max_ms, took_ms)

    def summary(self, now_ms: int) -> Recent:
        """Returns a summary of the last minute."""
        return self._summary(now_ms, _SLOTS)

    def latest(self, now_ms: int) -> Recent:
        """Returns a summary of the last 5 to 10 s."""
        return self._summary(now_ms, LATEST_SLOTS)

    def _summary(self, now_ms: int, slots: int) -> Recent:
        first = now_ms // _SLOT_MS - (slots - 1)
        live = [slot for slot in self._slots if slot.number >= first]
        if not live:
            return NOTHING_RECENT
        first_counts, *others = [slot.counts for slot in live]
        counts = list(map(sum, zip(first_counts, *others, strict=True))) if others else first_counts
        longest_ms = max(slot.max_ms for slot in live)
        return Recent(
            sum(counts), _quantile(counts, 0.5, longest_ms), _quantile(counts, 0.99, longest_ms), longest_ms
        )


def _quantile(counts: list[int], share: float, longest_ms: int) -> int:
    """Returns the upper bound of the bucket with the quantile `share`, at most `longest_ms`."""
    left = share * sum(counts)
    for bound_ms, count in zip(_BOUNDS_MS, counts, strict=False):
        left -= count
        if left <= 0:
            return min(bound_ms, longest_ms)
    return longest_ms


@dataclass(slots=True)
class Second:
    """What was delivered or failed in one second. Times are from a batch's creation to its end."""

    number: int
    records: int = 0
    failed_records: int = 0
    delivered_bytes: int = 0
    batches: int = 0
    total_ms: int = 0
    max_ms: int = 0


class PerSecond:
    """The last minute, second by second."""

    LENGTH: Final = 60

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=self.LENGTH + 1)

    def at(self, now_ms: int) -> Second:
        """Returns the present second, to add to."""
        number = now_ms // 1000
        if not self._seconds or self._seconds[-1].number < number:
            self._seconds.append(Second(number))
        return self._seconds[-1]

    def whole_seconds(self, now_ms: int) -> list[Second]:
        """Returns copies of the last sixty complete seconds, oldest first, idle ones included."""
        now_s = now_ms // 1000
        kept = {second.number: second for second in self._seconds}
        quiet = (Second(number) for number in range(now_s - self.LENGTH, now_s))
        return [_copy(kept.get(second.number, second)) for second in quiet]


def _copy(s: Second) -> Second:
    return Second(s.number, s.records, s.failed_records, s.delivered_bytes, s.batches, s.total_ms, s.max_ms)
