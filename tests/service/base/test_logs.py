"""Log lines as logfmt and as JSON: one line each, whatever they are to hold."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.testing import FakeCluster
from service.base.logs import (
    FORMATTERS,
    MAX_MESSAGE_CHARS,
    MAX_STACK_CHARS,
    bounded,
    quoted,
    without_values,
)
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from pathlib import Path

#: What ends a line for somebody, moves a cursor, turns text round, or is no character.
HOSTILE = 'a\nb\r\x0b\x0c\x1c\x1b[2J\x7f\x85\x9b\u2028\u2029\u202e\u2066\u200f\ud800\udfff"\\=\x00ü€😀'


def line(message: str, *args: object, error: BaseException | None = None, log_format: str = "logfmt") -> str:
    record = logging.LogRecord("a.b", logging.WARNING, "", 1, message, args, None)
    record.created = 1_700_000_000.0075
    if error is not None:
        record.exc_info = (type(error), error, error.__traceback__)
    return FORMATTERS[log_format]().format(record)


def fields(message: str, *args: object, error: BaseException | None = None) -> dict[str, Any]:
    """What a line of JSON says."""
    said: dict[str, Any] = json.loads(line(message, *args, error=error, log_format="json"))
    return said


def raised(error: Exception) -> Exception:
    """The error with a stack."""
    try:
        raise error
    except Exception as e:  # noqa: BLE001 - any
        return e


def test_a_line_has_time_in_utc_level_logger_and_message() -> None:
    expected = 'ts=2023-11-14T22:13:20.007Z level=warning logger=a.b msg="it is 5"'
    assert line("it is %d", 5) == expected


@pytest.mark.parametrize(
    ("text", "reported"),
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
def test_a_value_is_quoted_where_it_would_be_ambiguous(text: str, reported: str) -> None:
    assert quoted(text) == reported


@given(st.text())
def test_no_text_ever_makes_two_lines_or_reaches_the_terminal_raw(text: str) -> None:
    reported = quoted(text)
    assert "\n" not in reported
    assert "\r" not in reported
    assert "\x1b" not in reported


def test_json_has_the_same_fields_and_a_stack_where_there_is_one() -> None:
    assert line("it is %d", 5, log_format="json") == (
        '{"ts":"2023-11-14T22:13:20.007Z","level":"warning","logger":"a.b","msg":"it is 5"}'
    )
    assert list(fields("x", error=raised(ValueError("bad")))) == ["ts", "level", "logger", "msg", "stack"]


@pytest.mark.parametrize("log_format", FORMATTERS)
def test_hostile_text_is_one_line_of_utf_8_that_does_nothing_to_a_terminal(log_format: str) -> None:
    reported = line(HOSTILE, log_format=log_format)
    assert reported.splitlines() == [reported]
    assert reported.isprintable()
    reported.encode("utf-8")
    assert reported.count("ü€😀") == 1


def test_json_says_what_was_said_but_for_what_is_no_character() -> None:
    assert fields(HOSTILE)["msg"] == HOSTILE.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")


@given(st.text(), st.text())
def test_any_text_becomes_one_line_in_both_formats(message: str, name: str) -> None:
    for log_format in FORMATTERS:
        reported = line("%s", message, log_format=log_format)
        assert reported.splitlines() == [reported]
        reported.encode("utf-8")
    assert fields("%s", message)["msg"] == message
    assert quoted(name).isprintable() or not name.isprintable()


@pytest.mark.parametrize("log_format", FORMATTERS)
def test_a_stack_stays_in_its_line(log_format: str) -> None:
    reported = line("x", error=raised(ValueError("bad\nworse")), log_format=log_format)
    assert reported.splitlines() == [reported]
    assert "ValueError: bad" in reported


@pytest.mark.parametrize("log_format", FORMATTERS)
def test_a_message_of_a_megabyte_keeps_its_beginning_and_its_end(log_format: str) -> None:
    reported = line("begin %s end", "x" * 1_000_000, log_format=log_format)
    assert len(reported) < MAX_MESSAGE_CHARS + 200
    assert "begin xxx" in reported
    assert "characters left out" in reported
    assert "xxx end" in reported


def test_a_stack_of_a_megabyte_keeps_where_it_began_and_what_went_wrong() -> None:
    stack = fields("x", error=raised(ValueError("y" * 1_000_000 + " in the end")))["stack"]
    assert len(stack) < MAX_STACK_CHARS + 100
    assert stack.startswith("Traceback")
    assert stack.endswith("yyy in the end")


def test_what_fits_is_not_cut() -> None:
    assert bounded("x" * 10, 10) == "x" * 10
    assert bounded("abcdefghijk", 4) == "ab…[7 characters left out]…jk"


class Stubborn:
    """Can't be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("message", "args"), [("it is %d", ("five",)), ("%s", (Stubborn(),)), ("%s %s", (1,))]
)
def test_a_message_that_cannot_be_made_is_told_as_it_was_written(message: str, args: tuple[Any, ...]) -> None:
    said = fields(message, *args)["msg"]
    assert said.startswith(f"{message} (its arguments can't be shown: ")


# -- the process ---------------------------------------------------------------------------------------------


def said_by(program: str, log_format: str = "json") -> list[dict[str, Any]]:
    """What a process logs that runs this; each line is an object."""
    setup = (
        f"import logging, sys, threading, warnings\nfrom service.base.logs import set_up_logging\n"
        f"set_up_logging('info', {log_format!r})\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", setup + program], capture_output=True, text=True, check=False
    )
    return [json.loads(each) for each in ended.stderr.splitlines()]


def test_what_nobody_caught_is_a_line_as_any_other() -> None:
    (reported,) = said_by("raise ValueError('bad')")
    assert (reported["level"], reported["msg"]) == ("critical", "ended by an uncaught error")
    assert reported["stack"].endswith("ValueError: bad")


def test_so_is_what_nobody_caught_in_a_thread() -> None:
    (reported,) = said_by("threading.Thread(target=lambda: 1 / 0, name='worker').start()")
    assert (reported["level"], reported["msg"]) == (
        "critical",
        "thread worker ended by an uncaught error",
    )
    assert "ZeroDivisionError" in reported["stack"]


def test_so_are_warnings_and_errors_that_cannot_be_raised() -> None:
    program = "warnings.warn('old')\nclass A:\n  def __del__(self): 1 / 0\nA()"
    warned, unraisable = said_by(program)
    assert (warned["logger"], "UserWarning: old" in warned["msg"]) == ("py.warnings", True)
    assert (unraisable["level"], "ZeroDivisionError" in unraisable["stack"]) == ("error", True)


# -- the access log ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "reported"),
    [
        ("", ""),
        ("partition=3", "partition=…"),
        ("partition=3&key=jane%26", "partition=…&key=…"),
        ("jane", "…"),
        ("a==b&&c=", "a=…&c=…"),
    ],
)
def test_of_a_query_the_names_are_told_and_no_value(query: str, reported: str) -> None:
    assert without_values(query) == reported


def raw_answer(port: int, request_line: bytes) -> bytes:
    """The beginning of the answer to a request that no client would send."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request_line + b"\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        return connection.recv(100)


@pytest.mark.parametrize("log_format", FORMATTERS)
def test_the_access_log_has_a_line_for_each_request_and_nothing_secret(
    tmp_path: Path, log_format: str
) -> None:
    flags = ("--access-log", "--log-format", log_format, "--log-level", "warning")
    with FakeCluster(brokers=1) as kafka:
        kafka.create_topic("orders", partitions=1)
        with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=flags) as sidecar:
            target = "/v1/topics/orders/leader?key=hunter2&max_block_ms=5000"
            headers = {"authorization": "Bearer hunter2", "pilotfish-key": "hunter2"}
            assert sidecar.api.get(target).status_code == 200
            assert (
                sidecar.api.post("/v1/topics/orders/records?key=hunter2", headers=headers).status_code == 415
            )
            assert b" 400 " in raw_answer(sidecar.api_port, b"GET /v1/topics/orders?\xff=hunter2 HTTP/1.1")
            assert sidecar.terminate() == 0
            log = sidecar.log()
    assert "hunter2" not in log
    assert "GET /v1/topics/orders/leader?key=…&max_block_ms=… HTTP/1.1" in log
    assert log.count("service.access_log") >= 2
    if log_format == "json":
        assert {tuple(json.loads(each)) for each in log.splitlines()} == {("ts", "level", "logger", "msg")}
