"""Log lines on stderr, one for each thing told, in UTC: logfmt for people with grep, JSON for collectors.

    ts=2026-01-31T09:26:53.589Z level=info logger=client_core.metadata.metadata msg="cluster id is 4L6g3nShT"
    {"ts":"2026-01-31T09:26:53.589Z","level":"info","logger":"client_core.metadata.metadata","msg":"…"}

Both have the same fields, and `stack` where there is one. Whatever a message holds, its line stays one line,
valid UTF-8, of bounded length, and does nothing to a terminal. `set_up_logging` is called once, by the
server, before anything else runs.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_log: Final = logging.getLogger(__name__)

#: Where the API's listeners tell of each request, if that is asked for.
ACCESS_LOG: Final = logging.getLogger("service.access_log")

#: Longer texts lose their middle: container runtimes cut lines at 16 KiB into parts, which nobody can parse
#: (MAX_RESULT of Docker's json-file, CRI's max_container_log_line_size). A stack is worth more than that.
MAX_MESSAGE_CHARS: Final = 8_192
MAX_STACK_CHARS: Final = 32_768

_BARE: Final = re.compile(r'[^\s="\\\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+')
#: What moves a terminal's cursor, ends a line for somebody, turns the direction of text, or is no character.
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r"}
_LATIN_1_END: Final = 0x100


def quoted(text: str) -> str:
    """A logfmt value: bare where that is unambiguous, else in quotes; never more than one line."""
    if _BARE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{harmless(escaped)}"'


def harmless(text: str) -> str:
    """The text with what would move a terminal's cursor, end a line or turn text round written as escapes."""
    return _UNSAFE.sub(_as_escape, text)


def bounded(text: str, max_chars: int) -> str:
    """The text, or its beginning and its end, which in a stack is what went wrong."""
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
    """Time, level, logger, message, and the stack of an exception: as one line, which subclasses spell."""

    def format(self, record: logging.LogRecord) -> str:
        return self.spelled(dict(self._fields(record)))

    @abstractmethod
    def spelled(self, fields: Mapping[str, str]) -> str:
        """The fields as one line."""

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        at = datetime.fromtimestamp(record.created, tz=UTC)
        yield "ts", f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
        yield "level", record.levelname.lower()
        yield "logger", record.name
        yield "msg", bounded(_message(record), MAX_MESSAGE_CHARS)
        stack = self.formatException(record.exc_info) if record.exc_info else record.stack_info
        if stack:
            yield "stack", bounded(stack, MAX_STACK_CHARS)


class LogfmtFormatter(LineFormatter):
    """`name=value`, in quotes where it must be."""

    def spelled(self, fields: Mapping[str, str]) -> str:
        return " ".join([f"{name}={quoted(value)}" for name, value in fields.items()])


class JsonFormatter(LineFormatter):
    """An object. What is no character becomes U+FFFD, since many parsers refuse its escape."""

    def spelled(self, fields: Mapping[str, str]) -> str:
        said = {name: _SURROGATE.sub("\ufffd", value) for name, value in fields.items()}
        line = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
        return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


FORMATTERS: Final[Mapping[str, type[LineFormatter]]] = {"logfmt": LogfmtFormatter, "json": JsonFormatter}


def _message(record: logging.LogRecord) -> str:
    """The message; one that can't be made is told as it was written: half a line is better than a traceback
    of several, which is what `logging` would print.
    """
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - whatever an argument's own __str__ raises
        return f"{record.msg} (its arguments can't be shown: {type(error).__name__})"


class _WithoutQueryValues(logging.Filter):
    """Of access lines, whose arguments uvicorn gives: client, method, path and query, version, status."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and len(record.args) == 5:
            client, method, target, version, status = record.args
            path, question_mark, query = str(target).partition("?")
            shown = f"{path}{question_mark}{without_values(query)}"
            record.args = (client, method, shown, version, status)
        return True


def without_values(query: str) -> str:
    """`partition=3&key=jane` as `partition=…&key=…`: the names say what was asked, and the values may be
    secrets. What has no name is all value.
    """
    parameters = [part.partition("=") for part in query.split("&") if part]
    return "&".join([f"{name}=…" if equals else "…" for name, equals, _ in parameters])


_WITHOUT_QUERY_VALUES: Final = _WithoutQueryValues()


def set_up_logging(level: str, log_format: str = "logfmt") -> None:
    """Everything that this process has to say goes to stderr in one of FORMATTERS, uncaught errors too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATTERS[log_format]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Its lines at INFO tell what ours tell better; its errors are wanted.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    ACCESS_LOG.setLevel(logging.INFO)  # whoever asks for it wants it, whatever log_level says
    ACCESS_LOG.addFilter(_WITHOUT_QUERY_VALUES)
    logging.captureWarnings(True)
    sys.excepthook = _on_uncaught
    threading.excepthook = _on_uncaught_in_thread
    sys.unraisablehook = _on_unraisable


def _on_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The process ends by this."""
    _log.critical("ended by an uncaught error", exc_info=(kind, error, trace))


def _on_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    name = "a thread" if args.thread is None else f"thread {args.thread.name}"
    error = args.exc_value or args.exc_type()
    _log.critical("%s ended by an uncaught error", name, exc_info=error)


def _on_unraisable(args: UnraisableHookArgs) -> None:
    what = args.err_msg or "an error where none can be raised"
    _log.error("%s: %r", what, args.object, exc_info=args.exc_value)
