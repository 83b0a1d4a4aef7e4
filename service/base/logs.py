"""Formats log lines on stderr in UTC, as logfmt or JSON.

    ts=2026-01-31T09:26:53.589Z level=info logger=client_core.metadata.metadata msg="cluster id is 4L6g3nShT"
    {"ts":"2026-01-31T09:26:53.589Z","level":"info","logger":"client_core.metadata.metadata","msg":"…"}

logfmt is for people with grep, JSON for log collectors. Both have the same fields. `trace_id` follows in
lines of a request with a trace, `stack` if there is a stack. Lines of the access log have more fields
(`access_log.py`). Whatever a message contains, its line is one line of valid UTF-8 with a bounded length, and
has no effect on a terminal. The server calls `set_up_logging` once, before anything else. Logging waits for
nobody who reads the lines.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import select
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_log: Final = logging.getLogger(__name__)

#: The logger of requests, if access_log is set.
ACCESS_LOG: Final = logging.getLogger("service.access_log")

#: Longer texts lose their middle. Container runtimes split lines at 16 KiB, and the parts can't be parsed
#: (MAX_RESULT of Docker's json-file, CRI's max_container_log_line_size). A whole stack is worth a split.
MAX_MESSAGE_CHARS: Final = 8_192
MAX_STACK_CHARS: Final = 32_768

#: Attribute of a log record with further fields, by name: `log.info(…, extra={FIELDS: {…}})`.
FIELDS: Final = "pilotfish_fields"
Field = str | int | float
_NO_FIELDS: Final[Mapping[str, Field]] = MappingProxyType({})

#: The most that a minute's lines wait for who reads stderr. Then lines are lost while the pipe is full.
_MOST_WAITED_MS: Final = 100
_PER_S: Final = 60

_BARE: Final = re.compile(r'[^\s="\\\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+')
#: Control characters, line ends, characters that change the direction of text, lone surrogates.
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r"}
_LATIN_1_END: Final = 0x100


def quoted(text: str) -> str:
    """Returns a logfmt value: bare if that is unambiguous, else in quotes. Always one line."""
    if _BARE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{harmless(escaped)}"'


def harmless(text: str) -> str:
    """Returns the text with control characters, line ends and direction marks as escapes."""
    return _UNSAFE.sub(_as_escape, text)


def bounded(text: str, max_chars: int) -> str:
    """Returns the text, or its beginning and its end. The end of a stack names the error."""
    left_out = len(text) - max_chars
    if left_out <= 0:
        return text
    half = max_chars // 2
    return f"{text[:half]}…[{left_out} characters left out]…{text[-half:]}"


def _as_escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _ESCAPES.get(character) or (f"\\x{code:02x}" if code < _LATIN_1_END else f"\\u{code:04x}")


class LineFormatter(logging.Formatter, ABC):
    """Formats a record's fields and its stack as one line; subclasses define the syntax."""

    def format(self, record: logging.LogRecord) -> str:
        return self.spelled(dict(self._fields(record)))

    def __init__(self, trace_id: Callable[[], str | None] = lambda: None) -> None:
        """`trace_id` returns that of the request that the present code runs for, if there is one."""
        super().__init__()
        self._trace_id = trace_id

    @abstractmethod
    def spelled(self, fields: Mapping[str, Field]) -> str:
        """Returns the fields as one line."""

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, Field]]:
        at = datetime.fromtimestamp(record.created, tz=UTC)
        yield "ts", f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
        yield "level", record.levelname.lower()
        yield "logger", record.name
        yield "msg", bounded(_message(record), MAX_MESSAGE_CHARS)
        fields: Mapping[str, Field] = getattr(record, FIELDS, _NO_FIELDS)
        yield from fields.items()
        trace_id = None if "trace_id" in fields else self._trace_id()
        if trace_id is not None:
            yield "trace_id", trace_id
        stack = self.formatException(record.exc_info) if record.exc_info else record.stack_info
        if stack:
            yield "stack", bounded(stack, MAX_STACK_CHARS)


class LogfmtFormatter(LineFormatter):
    """Formats as `name=value`, with quotes if needed."""

    def spelled(self, fields: Mapping[str, Field]) -> str:
        return " ".join([f"{name}={quoted(str(value))}" for name, value in fields.items()])


class JsonFormatter(LineFormatter):
    """Formats as a JSON object. Lone surrogates become U+FFFD, since many parsers reject their escapes."""

    def spelled(self, fields: Mapping[str, Field]) -> str:
        said = {
            name: _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value
            for name, value in fields.items()
        }
        line = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
        return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


FORMATTERS: Final[Mapping[str, type[LineFormatter]]] = {"logfmt": LogfmtFormatter, "json": JsonFormatter}


def _message(record: logging.LogRecord) -> str:
    """Returns the message. If it can't be formatted, returns its format string and a note: `logging` would
    print a traceback of several lines.
    """
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - whatever an argument's own __str__ raises
        return f"{record.msg} (its arguments can't be shown: {type(error).__name__})"


class _WithoutQueryValues(logging.Filter):
    """Hides query values in access lines. Arguments: client, method, target, version, status (uvicorn)."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and len(record.args) == 5:
            client, method, target, version, status = record.args
            path, question_mark, query = str(target).partition("?")
            shown = f"{path}{question_mark}{without_values(query)}"
            record.args = (client, method, shown, version, status)
        return True


def without_values(query: str) -> str:
    """Returns `partition=3&key=jane` as `partition=…&key=…`. Names show what was asked; values may be
    secrets. A parameter without `=` is hidden as a whole.
    """
    parameters = [part.partition("=") for part in query.split("&") if part]
    return "&".join([f"{name}=…" if equals else "…" for name, equals, _ in parameters])


_WITHOUT_QUERY_VALUES: Final = _WithoutQueryValues()


class StderrHandler(logging.Handler):
    """Writes lines to a file descriptor, and hardly waits for a reader.

    A pipe whose reader has stopped would stop each thread that logs: event loop, I/O thread, the end of the
    process. Here such lines are lost, and a later line has their number. Lines stay whole.
    """

    def __init__(self, descriptor: int, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._patience_ms = _MOST_WAITED_MS
        self._patient_again_s = 0.0
        #: Of a line that was written in part.
        self._rest = b""
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001 - as each handler of logging: the caller goes on
            self.handleError(record)
            return
        try:
            if self._lost and self._can_begin():
                self._rest = self._line(_lost_lines(self._lost))
                self._lost = 0
            if self._can_begin():
                self._rest = line
                self._write_rest()
            else:
                self._lost += 1
        except OSError:
            self._rest = b""  # nobody will read it

    def flush(self) -> None:
        """Writes the rest of the last line, if somebody reads it. Called at the end of the process."""
        self.acquire()
        try:
            self._patience_ms = _MOST_WAITED_MS
            self._write_rest()
        except OSError:
            self._rest = b""
        finally:
            self.release()

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode(errors="backslashreplace") + b"\n"

    def _can_begin(self) -> bool:
        """Returns whether the line before is written, and a part of the next one can be."""
        self._write_rest()
        return not self._rest and self._is_ready()

    def _write_rest(self) -> None:
        while self._rest and self._is_ready():
            try:
                written = os.write(self._descriptor, self._rest[: select.PIPE_BUF])
            except BlockingIOError:
                return  # somebody has made the descriptor non-blocking
            self._rest = self._rest[written:]

    def _is_ready(self) -> bool:
        """Returns whether PIPE_BUF bytes can be written at once. Waits for it, but little in all."""
        if self._poll.poll(0):
            return True
        began_s = self._now_s()
        if began_s >= self._patient_again_s:
            self._patience_ms, self._patient_again_s = _MOST_WAITED_MS, began_s + _PER_S
        if self._patience_ms <= 0:
            return False
        ready = bool(self._poll.poll(self._patience_ms))
        self._patience_ms -= math.ceil((self._now_s() - began_s) * 1_000)
        return ready


def _lost_lines(count: int) -> logging.LogRecord:
    text = "%d log lines were lost: nobody read them in time"
    return logging.LogRecord(__name__, logging.WARNING, "", 0, text, (count,), None)


def _stderr_handler() -> logging.Handler:
    try:
        return StderrHandler(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # it was closed, or is no file
        return logging.StreamHandler(sys.stderr)


def set_up_logging(
    level: str, log_format: str = "logfmt", trace_id: Callable[[], str | None] = lambda: None
) -> None:
    """Sends all logs of the process, and uncaught errors, to stderr in one of FORMATTERS.

    `trace_id` returns that of the request that the present code runs for, if there is one.
    """
    handler = _stderr_handler()
    handler.setFormatter(FORMATTERS[log_format](trace_id))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Its INFO lines repeat ours; its errors are needed.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    ACCESS_LOG.setLevel(logging.INFO)  # not affected by log_level
    ACCESS_LOG.addFilter(_WITHOUT_QUERY_VALUES)
    logging.captureWarnings(True)
    sys.excepthook = _on_uncaught
    threading.excepthook = _on_uncaught_in_thread
    sys.unraisablehook = _on_unraisable


def _on_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Logs the error that ends the process."""
    _log.critical("ended with an uncaught exception", exc_info=(kind, error, trace))


def _on_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    name = "a thread" if args.thread is None else f"thread {args.thread.name}"
    error = args.exc_value or args.exc_type()
    _log.critical("%s ended with an uncaught exception", name, exc_info=error)


def _on_unraisable(args: UnraisableHookArgs) -> None:
    what = args.err_msg or "an exception that could not be raised"
    _log.error("%s: %r", what, args.object, exc_info=args.exc_value)
