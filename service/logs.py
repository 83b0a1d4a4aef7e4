"""Log lines as logfmt on stderr: one line each, in UTC, for people with grep and for collectors alike.

    ts=2026-01-31T09:26:53.589Z level=info logger=client_core.metadata.metadata msg="cluster id is 4L6g3nShT"

`set_up_logging` is called once, by the server, before anything else runs.
"""

from __future__ import annotations

import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final

_BARE: Final = re.compile(r'[^\s="\\\x00-\x1f\x7f]+')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def quoted(text: str) -> str:
    """A logfmt value: bare where that is unambiguous, else in quotes; never more than one line."""
    if _BARE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{_CONTROL.sub(_as_escape, escaped)}"'


def _as_escape(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"


class LogfmtFormatter(logging.Formatter):
    """Time, level, logger, message, and the stack of an exception in the same line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, tz=UTC)
        parts = [
            f"ts={at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
            f"level={record.levelname.lower()}",
            f"logger={record.name}",
            f"msg={quoted(record.getMessage())}",
        ]
        if record.exc_info:
            parts.append(f"stack={quoted(self.formatException(record.exc_info))}")
        return " ".join(parts)


def set_up_logging(level: str) -> None:
    """Everything that logs in this process goes to stderr as logfmt."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogfmtFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Its lines at INFO tell what ours tell better; its errors are wanted.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
