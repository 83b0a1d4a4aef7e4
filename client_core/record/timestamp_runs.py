"""The timestamps of a batch's records, stored as runs.

Records of one request mostly share the moment they were taken at, so a run of equal timestamps is one entry:
appending a record costs nothing here unless its timestamp differs from the one before. Asked for receipts and
for encoding again after a failed append. Pure; no thread of its own.
"""

from __future__ import annotations

from bisect import bisect_right


class TimestampRuns:
    """When each record of a batch was made. Owned by the batch; its partition's lock guards it."""

    __slots__ = ("_starts", "_timestamps_ms")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._timestamps_ms: list[int] = []

    def begin(self, position: int, timestamp_ms: int) -> None:
        """The record at this position, and those after it, have this timestamp."""
        self._starts.append(position)
        self._timestamps_ms.append(timestamp_ms)

    def at(self, position: int) -> int:
        """The timestamp of the record at a position of the batch."""
        return self._timestamps_ms[bisect_right(self._starts, position) - 1]

    def between(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """The runs of the positions first..end, in order: from where, to where, and with which timestamp."""
        runs = []
        at = bisect_right(self._starts, first) - 1
        while first < end:
            at += 1
            run_end = min(self._starts[at], end) if at < len(self._starts) else end
            runs.append((first, run_end, self._timestamps_ms[at - 1]))
            first = run_end
        return runs

    def before(self, position: int) -> list[tuple[int, int]]:
        """The runs that begin before a position: where, and with which timestamp."""
        runs = zip(self._starts, self._timestamps_ms, strict=True)
        return [(start, timestamp_ms) for start, timestamp_ms in runs if start < position]
