"""Writes a run's progress to stderr, for a terminal or for a log.

       15.9 s  batch 3: 120,000 lines in 4.1 s, 29,268 lines/s (412,000 in all)
       17.2 s  gold_staleness …                          on a terminal in place; in a log after 10 s of none
       21.0 s  silver and gold are up to date

Called by the job's own thread and by the thread that Spark calls for a batch, never by both at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import StreamingQueryProgress

_CLEAR_LINE: Final = "\r\x1b[K"
#: A log gets a line about a table only after this time without one: it shows that the run is alive.
_STILL_S: Final = 10.0


class Progress:
    """Writes lines about batches and tables; writes nothing unless `shows`."""

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
        """Returns whether Spark has not yet reported the duration of some batch."""
        return len(self._reported) < len(self._lines)

    def read(self, batch: int, lines: int) -> None:
        """Records the number of lines in a batch; its duration is not known yet."""
        self._lines[batch] = lines

    def doing(self, what: str) -> None:
        """Shows the current step; on a terminal the next one replaces it."""
        if self._in_place:
            self._write(f"{_CLEAR_LINE}{self._elapsed_s():7.1f} s  {what} …")
        elif self._clock_s() - self._spoke_s >= _STILL_S:
            self.done(f"{what} …")

    def done(self, what: str) -> None:
        """Writes a permanent line."""
        clear = _CLEAR_LINE if self._in_place else ""
        self._write(f"{clear}{self._elapsed_s():7.1f} s  {what}\n")
        self._spoke_s = self._clock_s()

    def batches(self, progress: list[StreamingQueryProgress]) -> None:
        """Reports the finished batches of a query's progress, each once."""
        for batch in progress:
            lines = self._lines.get(batch.batchId)
            # A query without new lines reports progress too, under the number of the previous batch.
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
        """Clears the temporary line from the terminal."""
        if self._in_place:
            self._write(_CLEAR_LINE)

    def _write(self, text: str) -> None:
        if self._shows:
            self._stream.write(text)
            self._stream.flush()

    def _elapsed_s(self) -> float:
        return self._clock_s() - self._started_s
