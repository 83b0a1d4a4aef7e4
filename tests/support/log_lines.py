"""The messages that a logger gets, as a list that is compared; logged by any thread."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Lines(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def log_lines(name: str | None = None, level: int = logging.NOTSET) -> Iterator[list[str]]:
    """Yields a list that fills with the messages of a logger; `name` None: the root. Any thread logs."""
    log, handler = logging.getLogger(name), _Lines(level)
    log.addHandler(handler)
    try:
        yield handler.lines
    finally:
        log.removeHandler(handler)
