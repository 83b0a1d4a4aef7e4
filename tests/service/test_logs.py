"""Log lines as logfmt."""

from __future__ import annotations

import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.logs import LogfmtFormatter, quoted


def line(message: str, *args: object, error: BaseException | None = None) -> str:
    record = logging.LogRecord("a.b", logging.WARNING, "", 1, message, args, None)
    record.created = 1_700_000_000.0075
    if error is not None:
        record.exc_info = (type(error), error, None)
    return LogfmtFormatter().format(record)


def test_a_line_has_time_in_utc_level_logger_and_message() -> None:
    expected = 'ts=2023-11-14T22:13:20.007Z level=warning logger=a.b msg="it is 5"'
    assert line("it is %d", 5) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("word", "word"),
        ("two words", '"two words"'),
        ('say "x"', '"say \\"x\\""'),
        ("a\nb\r", '"a\\nb\\r"'),
        ("a=b", '"a=b"'),
        ("", '""'),
        ("back\\slash", '"back\\\\slash"'),
        ("\x1b[31m", '"\\x1b[31m"'),
    ],
)
def test_a_value_is_quoted_where_it_would_be_ambiguous(text: str, told: str) -> None:
    assert quoted(text) == told


@given(st.text())
def test_no_text_ever_makes_two_lines_or_reaches_the_terminal_raw(text: str) -> None:
    told = quoted(text)
    assert "\n" not in told
    assert "\r" not in told
    assert "\x1b" not in told


def test_a_stack_stays_in_its_line() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 1, "x", (), sys.exc_info())
    told = LogfmtFormatter().format(record)
    assert "\n" not in told
    assert "ValueError: bad" in told
