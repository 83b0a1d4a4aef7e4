"""The progress that a run prints: on a terminal, in a log, and nothing where nobody asked."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from pipeline.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Run:
    """A run that is `at_s` old."""

    def __init__(self, stream: io.StringIO, *, shows: bool = True) -> None:
        self.at_s = 0.0
        self.stream = stream
        self.progress = Progress(stream, lambda: self.at_s, shows=shows)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def finished(number: int, seconds: float) -> StreamingQueryProgress:
    """Spark's progress report of a batch."""
    reported: Any = SimpleNamespace(batchId=number, durationMs={"triggerExecution": seconds * 1000})
    return cast("StreamingQueryProgress", reported)


def test_a_terminal_shows_each_table_in_place() -> None:
    run = Run(Terminal())
    run.progress.doing("gold_staleness")
    run.progress.doing("gold_churn")
    run.progress.done("up to date")
    assert run.stream.getvalue() == (
        "\r\x1b[K    0.0 s  gold_staleness …\r\x1b[K    0.0 s  gold_churn …\r\x1b[K    0.0 s  up to date\n"
    )


def test_a_terminal_is_left_clean() -> None:
    run = Run(Terminal())
    run.progress.doing("gold_staleness")
    run.progress.end()
    assert run.stream.getvalue().endswith("…\r\x1b[K")


def test_a_log_has_no_line_for_what_is_soon_over() -> None:
    run = Run(io.StringIO())
    for second in range(10):
        run.at_s = float(second)
        run.progress.doing(f"table {second}")
    run.progress.end()
    assert run.lines == []


def test_a_log_shows_life_every_ten_seconds() -> None:
    run = Run(io.StringIO())
    for second in range(31):
        run.at_s = float(second)
        run.progress.doing(f"table {second}")
    assert run.lines == ["   10.0 s  table 10 …", "   20.0 s  table 20 …", "   30.0 s  table 30 …"]


def test_a_line_that_stays_is_a_sign_of_life() -> None:
    run = Run(io.StringIO())
    run.at_s = 9.0
    run.progress.done("batch 0")
    run.at_s = 12.0
    run.progress.doing("gold_churn")
    assert run.lines == ["    9.0 s  batch 0"]


def test_each_batch_is_logged_once_with_its_rate() -> None:
    run = Run(io.StringIO())
    run.progress.read(0, 100)
    run.progress.batches([finished(0, 2.0), finished(0, 2.0), finished(7, 1.0)])
    run.progress.read(1, 50)
    run.progress.batches([finished(1, 0.0)])
    assert [line.partition("  batch ")[2] for line in run.lines] == [
        "0: 100 lines in 2.0 s, 50 lines/s (100 in all)",
        "1: 50 lines in 0.0 s (150 in all)",
    ]


def test_nothing_is_printed_where_nobody_asked() -> None:
    for stream in (Terminal(), io.StringIO()):
        run = Run(stream, shows=False)
        run.progress.doing("gold_churn")
        run.at_s = 60.0
        run.progress.doing("gold_staleness")
        run.progress.done("up to date")
        run.progress.end()
        assert run.lines == []
