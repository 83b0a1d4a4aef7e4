"""What OpenTelemetry's SDK says: told to people once, and never the header with the collector's token."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from service.observe.tracing.otlp import SdkLog

if TYPE_CHECKING:
    from collections.abc import Iterator


class Outcome(logging.Handler):
    """What comes to the root, as the sidecar's own handler is; pytest listens elsewhere too."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def reported() -> Iterator[list[str]]:
    handler = Outcome()
    logging.getLogger().addHandler(handler)
    yield handler.lines
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def sdk_log() -> Iterator[SdkLog]:
    """In its place, and everything as it was afterwards."""
    logger = logging.getLogger("opentelemetry")
    before = (logger.handlers[:], logger.propagate)
    log = SdkLog()
    log.install()
    yield log
    logger.handlers[:], logger.propagate = before


def test_at_the_start_it_says_what_the_sdk_found_wrong_but_no_header(
    sdk_log: SdkLog, reported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer hunter2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "often")
    OTLPSpanExporter().shutdown()  # type: ignore[no-untyped-call]  # the SDK's
    sdk_log.report_start()
    assert len(reported) == 2
    assert "hunter2" not in str(reported)
    assert any("write OTEL_EXPORTER_OTLP_HEADERS as name=value" in line for line in reported)
    assert any("'often'" in line for line in reported)


def test_why_an_export_failed_is_told_by_status_and_kind_without_the_texts_of_others(sdk_log: SdkLog) -> None:
    logger = logging.getLogger("opentelemetry.exporter.x")
    refused = requests.ConnectionError("Bearer hunter2")
    refused.__cause__ = ConnectionRefusedError(111, "Connection refused")
    logger.error("Failed to export %s batch code: %s, reason: %s", "spans", 503, "hunter2")
    logger.warning("Transient error %s encountered, retrying in %.2fs.", refused, 1.5)
    logger.warning("Transient error %s encountered, retrying in %.2fs.", refused, 2.5)
    try:
        raise requests.exceptions.InvalidHeader("hunter2")
    except requests.exceptions.InvalidHeader:
        logger.exception("it failed")
    assert sdk_log.why() == "HTTP status 503, ConnectionError (connection refused), InvalidHeader"
    assert sdk_log.why() == "OpenTelemetry gives no reason"


def test_nothing_of_it_reaches_our_own_log(sdk_log: SdkLog, reported: list[str]) -> None:
    for _ in range(100):
        logging.getLogger("opentelemetry.sdk.trace").warning("Queue full, dropping Span.")
    assert reported == []
