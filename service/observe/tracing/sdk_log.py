"""What OpenTelemetry's SDK logs, kept out of our log until it is known to be no secret.

It logs each failed attempt, each dropped span, and, where OTEL_EXPORTER_OTLP_HEADERS can't be read, the very
header that holds the collector's token. Here its records are caught: whoever starts or exports asks what was
said, and tells people what may be told, once.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

_log: Final = logging.getLogger(__name__)

_SDK: Final = "opentelemetry"
#: Where headers are read. What it complains of are the headers.
_OF_HEADERS: Final = "opentelemetry.util.re"
_KEPT: Final = 16


class SdkLog(logging.Handler):
    """The last records of the SDK. Any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._records: deque[logging.LogRecord] = deque(maxlen=_KEPT)

    def install(self) -> None:
        """Takes the place of every other handler of the SDK's loggers."""
        logger = logging.getLogger(_SDK)
        logger.handlers[:] = [self]
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)

    def tell_of_start(self) -> None:
        """Says what the SDK found wrong with its variables."""
        for record in self._taken():
            if record.name == _OF_HEADERS:
                _log.warning(
                    "OpenTelemetry: a header is left out; write OTEL_EXPORTER_OTLP_HEADERS as name=value, "
                    "parted by commas, values URL-encoded"
                )
            else:
                _log.warning("OpenTelemetry: %s", record.getMessage())

    def why(self) -> str:
        """What went wrong since this was last asked: statuses and kinds of errors, no texts of others."""
        causes = dict.fromkeys(cause for record in self._taken() for cause in _causes(record))
        return ", ".join(causes) or "OpenTelemetry gives no reason"

    def _taken(self) -> list[logging.LogRecord]:
        taken: list[logging.LogRecord] = []
        while self._records:
            taken.append(self._records.popleft())
        return taken


def _causes(record: logging.LogRecord) -> list[str]:
    """The HTTP status and the error among a record's arguments."""
    given = list(record.args) if isinstance(record.args, tuple) else []
    if record.exc_info and record.exc_info[1] is not None:
        given.append(record.exc_info[1])
    causes: list[str] = []
    for argument in given:
        if isinstance(argument, BaseException):
            causes.append(_called(argument))
        elif isinstance(argument, int) and not isinstance(argument, bool):
            causes.append(f"HTTP status {argument}")
    return causes


def _called(error: BaseException) -> str:
    """The error's kind, and what the system said, if it was asked."""
    of_system: BaseException | None = error
    while of_system is not None:
        if isinstance(of_system, OSError) and of_system.strerror:
            return f"{type(error).__name__} ({of_system.strerror.lower()})"
        of_system = of_system.__cause__ or of_system.__context__
    return type(error).__name__
