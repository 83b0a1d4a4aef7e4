"""What a run is doing, on stderr: for people who wait, and for a log that somebody reads later.

       15.9 s  batch 3: 120,000 lines in 4.1 s, 29,268 lines/s (412,000 in all)
       17.2 s  gold_staleness …                          on a terminal in place; in a log after 10 s of none
       21.0 s  silver and gold are up to date

Told by the job's own thread and by the one that Spark calls for a batch, never by both at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import StreamingQueryProgress

_CLEAR_LINE: Final = "\r\x1b[K"
#: A log has a line for each table only where tables take this long: who follows it wants to see life.
_STILL_S: Final = 10.0


class Progress:
    """Lines about batches and tables; nothing at all unless `shows`."""

    def __init__(self, stream: TextIO, clock_s: Callable[[], float], *, shows: bool) -> None:
        self._stream = stream
        self._clock_s = clock_s
        self._shows = shows
        self._in_place = stream.isatty()
        self._started_s = clock_s()
        self._spoke_s = self._started_s
        self._lines: dict[int, int] = {}
        self._reported: set[int] = set()

    @property
    def awaits_batches(self) -> bool:
        """Whether lines were read of which Spark has not told yet how long they took."""
        return len(self._reported) < len(self._lines)

    def read(self, batch: int, lines: int) -> None:
        """So many lines were in a batch; its time is not known yet."""
        self._lines[batch] = lines

    def doing(self, what: str) -> None:
        """Now this table, or whatever else takes a while: gone again with the next on a terminal."""
        if self._in_place:
            self._write(f"{_CLEAR_LINE}{self._elapsed_s():7.1f} s  {what} …")
        elif self._clock_s() - self._spoke_s >= _STILL_S:
            self.done(f"{what} …")

    def done(self, what: str) -> None:
        """A line that stays."""
        clear = _CLEAR_LINE if self._in_place else ""
        self._write(f"{clear}{self._elapsed_s():7.1f} s  {what}\n")
        self._spoke_s = self._clock_s()

    def batches(self, progress: list[StreamingQueryProgress]) -> None:
        """The batches that a query has finished, as Spark tells them; each is told once."""
        for batch in progress:
            lines = self._lines.get(batch.batchId)
            # A query that finds nothing new tells that too, under the number of the batch before.
            if lines is None or batch.batchId in self._reported:
                continue
            self._reported.add(batch.batchId)
            seconds = batch.durationMs.get("triggerExecution", 0) / 1000
            rate = f", {lines / seconds:,.0f} lines/s" if seconds else ""
            all_lines = sum(self._lines[reported] for reported in self._reported)
            self.done(
                f"batch {batch.batchId}: {lines:,} lines in {seconds:.1f} s{rate} ({all_lines:,} in all)"
            )

    def end(self) -> None:
        """Takes what stood in place off the terminal."""
        if self._in_place:
            self._write(_CLEAR_LINE)

    def _write(self, text: str) -> None:
        if self._shows:
            self._stream.write(text)
            self._stream.flush()

    def _elapsed_s(self) -> float:
        return self._clock_s() - self._started_s
